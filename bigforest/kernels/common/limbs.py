"""Exact sums of weight * integer that exceed 64 bits, independent of the order.

A row of PARTS int64:   [weight, limb 1, limb 2, limb 3]        sum = limb 1 + limb 2 * 2**32 + limb 3 * 2**64
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.compiler.jit import inlined

PARTS = 4

_MASK = np.int64(2**32 - 1)
_HALF = np.int64(32)


@inlined
def add_product(sums, row, weight, number):
    """Add weight * number to the limbs of sums[row], int64 [rows, PARTS]; 0 <= weight < 2**63, |number| < 2**53.

    Limbs 1 and 2 stay below 2**32; limb 3 does not overflow as long as all weights together are below 2**63.
    """
    weight_0, weight_1 = weight & _MASK, weight >> _HALF
    number_0, number_1 = number & _MASK, number >> _HALF
    lowest = np.uint64(weight_0) * np.uint64(number_0)
    limb_1 = sums[row, 1] + np.int64(lowest & np.uint64(_MASK))
    lower, upper = weight_0 * number_1, weight_1 * number_0
    limb_2 = sums[row, 2] + np.int64(lowest >> np.uint64(32)) + (lower & _MASK) + (upper & _MASK) + (limb_1 >> _HALF)
    sums[row, 1] = limb_1 & _MASK
    sums[row, 2] = limb_2 & _MASK
    sums[row, 3] += weight_1 * number_1 + (lower >> _HALF) + (upper >> _HALF) + (limb_2 >> _HALF)


@inlined
def carry(sums, row):
    """Carry limbs 1 and 2, which are sums of numbers below 2**32, so that both are below 2**32."""
    sums[row, 2] += sums[row, 1] >> _HALF
    sums[row, 1] &= _MASK
    sums[row, 3] += sums[row, 2] >> _HALF
    sums[row, 2] &= _MASK


@inlined
def as_float(sums, row):
    """Return the sum in sums[row] after `carry`; relative error at most 2**-51."""
    upper = np.float64(sums[row, 3]) * 2.0**64 + np.float64(sums[row, 2]) * 2.0**32
    return upper + np.float64(sums[row, 1])
