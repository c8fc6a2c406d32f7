"""Probabilities of classes from shares of votes, by a power.

With shares p, the probability of class k is p_k**a / sum_j p_j**a. The power a is a whole number of quarters, so p_k**a
needs square roots and products only, which are rounded in the same way on every processor. Shares are divided by the
largest share first, so the largest p_k**a is 1. A class without votes keeps the probability 0.
"""

from __future__ import annotations

import math

import numpy as np

from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.numbers import larger

_ZERO, _ONE, _TWO = np.int64(0), np.int64(1), np.int64(2)


@inlined
def _raised(ratio, root, fourth, quarters):
    """Return `raised`, from the square root and the fourth root of the ratio."""
    power = fourth if quarters & _ONE else 1.0
    if quarters & _TWO:
        power *= root
    square, exponent = ratio, quarters >> _TWO
    while exponent:
        if exponent & _ONE:
            power *= square
        square *= square
        exponent >>= _ONE
    return power


@inlined
def raised(ratio, quarters):
    """Return ratio**(quarters / 4) of a ratio from 0 to 1; quarters: int64, 1 or more."""
    root = math.sqrt(ratio)
    return _raised(ratio, root, math.sqrt(root), quarters)


@inlined
def _largest(votes, row):
    """Return the votes of the class that has most votes on a row."""
    largest = votes[row, np.uint64(0)]
    for k in range(np.uint64(1), np.uint64(votes.shape[1])):
        largest = larger(largest, votes[row, k])
    return largest


@kernel
def raise_shares(shares, quarters):
    """Replace shares of votes by probabilities (module docstring). A row without votes is not changed.

    shares    float64 [rows, classes], 0 or more, changed in place
    quarters  int64, 1 or more: the power, times 4

    Cost: rows * classes steps of some ns. Oracle: tests/naive/power.py.
    """
    for row in range(np.uint64(shares.shape[0])):
        largest, total = _largest(shares, row), 0.0
        if largest <= 0.0:
            continue
        for k in range(np.uint64(shares.shape[1])):
            shares[row, k] = raised(shares[row, k] / largest, quarters)
            total += shares[row, k]
        for k in range(np.uint64(shares.shape[1])):
            shares[row, k] /= total


@kernel
def true_probabilities(votes, rows, truth, quarters, probability):
    """Compute the probability of the true class of each row in `rows`, by each power.

    votes        float64 [table rows, classes], 0 or more
    rows         int64 [rows], numbers of rows of the table
    truth        uint16 [table rows], true classes
    quarters     int64 [powers], 1 or more, ascending: the powers, times 4
    probability  float64 [rows, powers], out; 0 for a row without votes

    Cost: rows * classes * powers steps of some ns; a class without votes takes one step. Oracle: tests/naive/power.py.
    """
    for at in range(np.uint64(rows.size)):
        row = np.uint64(rows[at])
        largest = _largest(votes, row)
        for p in range(np.uint64(quarters.size)):
            probability[at, p] = 0.0
        if largest <= 0.0:
            continue
        for k in range(np.uint64(votes.shape[1])):
            ratio = votes[row, k] / largest
            if ratio > 0.0:
                root = math.sqrt(ratio)
                fourth = math.sqrt(root)
                reached, power = _ZERO, 1.0
                for p in range(np.uint64(quarters.size)):
                    step = quarters[p] - reached
                    reached = quarters[p]
                    power *= _raised(ratio, root, fourth, step)
                    probability[at, p] += power
        true_ratio = votes[row, np.uint64(truth[row])] / largest
        for p in range(np.uint64(quarters.size)):
            probability[at, p] = raised(true_ratio, quarters[p]) / probability[at, p]
