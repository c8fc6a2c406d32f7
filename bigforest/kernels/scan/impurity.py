"""Impurities, by number, and the scan for entropy, error and registered criteria. Oracle: tests/naive/split.py.

Each side of a split has an integer score. In one node, a larger sum of both scores is a larger decrease of impurity.
Kernels take the number of the impurity and a `table`: entropy_table or, for SCORED, the function that scores a side.
Kernels are compiled separately for each function.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from bigforest.kernels.common.node_scan import BITS16, FEATURE, ONE, SHIFT32, SQ_L, SQ_R, class_of, take_split
from bigforest.kernels.common.sort import sort_rows
from bigforest.kernels.compiler.jit import compiled_as, helper, inlined
from bigforest.kernels.llvm.numbers import larger

GINI, ENTROPY, ERROR, VARIANCE, POISSON, SCORED = range(6)

# n log2 n is in fixed point, so equal counts have equal scores in any order of the classes. At n = 2**32 the value is
# 2**57, far from overflow. The step of 2**-20 bits is below any difference that matters.
ENTROPY_SCALE = 2.0**20
ENTROPY_TABLE = 65_536


@cache
def entropy_table() -> np.ndarray:
    """Return rint(n log2 n 2**20), 0 for n = 0, as int64 [ENTROPY_TABLE]. Callers must not write to the array."""
    n = np.arange(ENTROPY_TABLE, dtype=np.float64)
    n[0] = 1.0
    return np.rint(n * np.log2(n) * ENTROPY_SCALE).astype(np.int64)


@inlined
def n_log_n(n, table):
    """Return rint(n log2 n 2**20) of int64 n >= 0, from the table if it is long enough."""
    if n < ENTROPY_TABLE:
        return table[np.uint64(n)]
    value = np.float64(n)
    return np.int64(np.rint(value * np.log2(value) * ENTROPY_SCALE))


@helper
def known_score(impurity, counts, weight, table):
    """Return `side_score` for entropy or error; 0 for others. Error: weight of the largest class minus `weight`."""
    score = np.int64(0)
    if impurity == ENTROPY:
        for k in range(np.uint64(counts.size)):
            score += n_log_n(counts[k], table)
        score -= n_log_n(weight, table)
    elif impurity == ERROR:
        for k in range(np.uint64(counts.size)):
            score = larger(score, counts[k])
        score -= weight
    return score


def side_score(impurity, counts, weight, table):
    """Return the integer score of a side. For SCORED it is table(counts, weight).

    counts  int64 [classes], class weights of the side
    weight  int64, their sum

    The score is at most 0. Adding rows to a side does not raise it, except by rounding errors of at most classes + 1.
    The bound of kernels/out_of_core/split_scores.py relies on this.
    """
    return table(counts, weight) if callable(table) else known_score(impurity, counts, weight, table)


@compiled_as(side_score)
def _compiled_side_score(impurity, counts, weight, table):
    if isinstance(table, types.Dispatcher):
        return lambda impurity, counts, weight, table: table(counts, weight)
    return lambda impurity, counts, weight, table: known_score(impurity, counts, weight, table)


@inlined
def known_impurity(impurity, counts, weight):
    """Return Gini 1 - sum p**2, entropy in bits, or error 1 - max p (Tomasi 2017, section 3), of counts [classes].

    NaN for a criterion without a formula here.
    """
    value = 0.0
    for k in range(np.uint64(counts.size)):
        share = np.float64(counts[k]) / weight
        if impurity == GINI:
            value += share * share
        elif impurity == ERROR:
            value = larger(value, share)
        elif impurity == ENTROPY:
            value -= share * np.log2(share) if share > 0.0 else 0.0
        else:
            value = np.nan
    return value if impurity == ENTROPY else 1.0 - value


def impurity_of(impurity, counts, weight):
    """Return the impurity, float64, of counts [classes] with sum `weight`, float64.

    impurity  number of the impurity, or a function of counts and weight
    """
    return impurity(counts, weight) if callable(impurity) else known_impurity(impurity, counts, weight)


@compiled_as(impurity_of)
def _compiled_impurity_of(impurity, counts, weight):
    if isinstance(impurity, types.Dispatcher):
        return lambda impurity, counts, weight: impurity(counts, weight)
    return lambda impurity, counts, weight: known_impurity(impurity, counts, weight)


class ScoreScratch(NamedTuple):
    """Scratch of one growing tree for criteria of classes other than Gini, and for random splits.

    impurity     number of the criterion; GINI only for random splits
    table        entropy_table, or the function that scores a side
    left, right  int64 [classes], class weights of both sides of a split
    """

    impurity: int
    table: Any
    left: NDArray[np.int64]
    right: NDArray[np.int64]


def make_score_scratch(impurity: int, table: Any, classes: int) -> ScoreScratch:
    """Allocate ScoreScratch for `classes` classes."""
    return ScoreScratch(impurity, table, np.empty(classes, np.int64), np.empty(classes, np.int64))


@inlined
def scan_scores(low, high, scan, scores):
    """Offer every threshold of a feature, as `scan_codes` (criterion.py): sort and walk."""
    work = scan.work
    sort_rows(work.codes, low, high, scan.node.items, work.keys, work.positions)
    walk_scores(scan, scores)


@inlined
def offer_scores(scan, code, score_l, w_l, score_r, w_r):
    """Make this split the best if the sum of its scores is higher, or if there is no best split yet."""
    split = scan.best.split
    gain = score_l + score_r - split[SQ_L] - split[SQ_R]
    if split[FEATURE] < 0 or gain > 0:
        take_split(split, scan.number, code, score_l, w_l, score_r, w_r)


@helper
def walk_scores(scan, scores):
    """Offer every boundary between different codes of the sorted work.keys[:n], in O(classes) each.

    best.split[SQ_L] and [SQ_R] hold the scores of the sides; best.bar is not used.
    """
    node, min_leaf, keys = scan.node, scan.min_leaf, scan.work.keys
    impurity, table, left, right = scores
    for k in range(np.uint64(left.size)):
        left[k] = 0
        right[k] = node.total[k]
    w_l = np.int64(0)
    for i in range(ONE, np.uint64(node.items.size)):
        key = keys[i - ONE]
        m = np.int64(key & BITS16)
        left[class_of(key)] += m
        right[class_of(key)] -= m
        w_l += m
        w_r = node.weight - w_l
        code = key >> SHIFT32
        if keys[i] >> SHIFT32 != code and w_l >= min_leaf and w_r >= min_leaf:
            score_l = side_score(impurity, left, w_l, table)
            score_r = side_score(impurity, right, w_r, table)
            offer_scores(scan, np.int64(code), score_l, w_l, score_r, w_r)
