"""Sums of the losses of rows by several lambdas, as whole numbers."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.compiler.jit import kernel

_MASK = np.int64(2**32 - 1)
_HALF = np.int64(32)
# Bits of the lower part of a loss, which has 62.
LOW_BITS = np.int64(31)
_LOW = np.int64(2**31 - 1)


@kernel
def sum_losses(losses, factor, second, sums, squares):
    """Add up the losses of some rows, fewer than 2**30, by each lambda.

    losses   float64 [rows, lambdas]
    factor   float64 [rows], makes the losses of a row numbers below 2**61, which are rounded
    second   bool [rows], the half of the table that a row is in
    sums     int64 [2, lambdas], added to: the sums of each half
    squares  int64 [2, lambdas, 3, 2], added to: the squares of the differences to the first lambda, the sums of high *
             high, high * low and low * low, where a difference is high * 2**LOW_BITS + low; each in 2**32 and ones

    Cost: rows * lambdas steps of some ns. Oracle: tests/naive/shrinkage.py.
    """
    for i in range(np.uint64(losses.shape[0])):
        row = np.uint64(i)
        half = np.uint64(second[row])
        first = np.int64(np.rint(losses[row, 0] * factor[row]))
        for k in range(np.uint64(losses.shape[1])):
            own = np.uint64(k)
            loss = np.int64(np.rint(losses[row, own] * factor[row]))
            sums[half, own] += loss
            high, low = (loss - first) >> LOW_BITS, (loss - first) & _LOW
            squares[half, own, 0, 0] += (high * high) >> _HALF
            squares[half, own, 0, 1] += (high * high) & _MASK
            squares[half, own, 1, 0] += (high * low) >> _HALF
            squares[half, own, 1, 1] += (high * low) & _MASK
            squares[half, own, 2, 0] += (low * low) >> _HALF
            squares[half, own, 2, 1] += (low * low) & _MASK
