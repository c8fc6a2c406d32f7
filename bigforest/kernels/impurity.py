"""The impurities, by number. Scores order splits of one node: larger is a larger decrease."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.jit import helper

GINI, ENTROPY, ERROR = 0, 1, 2
NUMBERS = {"gini": GINI, "entropy": ENTROPY, "error": ERROR}

# n log2 n is kept in fixed point, so that equal counts give equal scores whatever the order of the classes.
# At n = 2**32 the value is 2**57, far from overflow; the step of 2**-20 bits is below any difference that matters.
ENTROPY_SCALE = 2.0**20
ENTROPY_TABLE = 65_536


def entropy_table() -> np.ndarray:
    """int64 [ENTROPY_TABLE]: rint(n log2 n 2**20), 0 for n = 0."""
    n = np.arange(ENTROPY_TABLE, dtype=np.float64)
    n[0] = 1.0
    return np.rint(n * np.log2(n) * ENTROPY_SCALE).astype(np.int64)


@helper
def n_log_n(n, table):
    """rint(n log2 n 2**20) of int64 n >= 0, from the table where it reaches."""
    if n < ENTROPY_TABLE:
        return table[np.uint64(n)]
    value = np.float64(n)
    return np.int64(np.rint(value * np.log2(value) * ENTROPY_SCALE))


@helper
def side_score(impurity, counts, weight, table):
    """Integer score of one side from its int64 class weights [classes] and their sum: error or entropy."""
    score = np.int64(0)
    if impurity == ERROR:
        for k in range(counts.size):
            score = max(score, counts[np.uint64(k)])
        return score
    for k in range(counts.size):
        score += n_log_n(counts[np.uint64(k)], table)
    return score - n_log_n(weight, table)


@helper
def impurity_of(impurity, counts, weight):
    """The impurity itself, float64: Gini 1 - sum p**2, entropy in bits, error 1 - max p (Tomasi 2017, section 3)."""
    total = np.float64(weight)
    value = 0.0
    if impurity == GINI:
        for k in range(counts.size):
            share = np.float64(counts[np.uint64(k)]) / total
            value += share * share
        return 1.0 - value
    if impurity == ERROR:
        for k in range(counts.size):
            value = max(value, np.float64(counts[np.uint64(k)]) / total)
        return 1.0 - value
    for k in range(counts.size):
        share = np.float64(counts[np.uint64(k)]) / total
        if share > 0.0:
            value -= share * np.log2(share)
    return value
