"""Float scores of many splits, and bounds of the splits inside buckets, from counts. They are a filter: splits that
pass are compared exactly by grow/out_of_core/node_search.py.

The scans in memory (kernels/scan/) use the same formulas, except for two classes: here they use the formula of many
classes, because the products of kernels/scan/two_class.py would overflow for weights beyond 2**31.
Oracle: tests/naive/tree.py, through grow/out_of_core/passes.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigforest.kernels.common.node_scan import ONE, TWO, ZERO
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.numbers import larger
from bigforest.kernels.scan.impurity import GINI, side_score
from bigforest.kernels.scan.many_classes import bound_many, score_many
from bigforest.kernels.scan.regression import bound_sums, score_sums


@inlined
def _gini(one, total):
    """Return score_many of the split with the class weights `one` of `total` on the left; -inf if a side is empty."""
    w_l = w_r = sq_l = sq_r = 0.0
    for k in range(np.uint64(total.size)):
        left, right = np.float64(one[k]), np.float64(total[k] - one[k])
        w_l += left
        w_r += right
        sq_l += left * left
        sq_r += right * right
    return score_many(sq_l, w_l, sq_r, w_r) if w_l > 0.0 and w_r > 0.0 else -np.inf


@inlined
def _sum(counts):
    total = np.int64(0)
    for k in range(np.uint64(counts.size)):
        total += counts[k]
    return total


@inlined
def _both_sides(impurity, left, total, right, table):
    """Return the integer score of a split; right: int64 [classes], scratch."""
    for k in range(np.uint64(total.size)):
        right[k] = total[k] - left[k]
    return side_score(impurity, left, _sum(left), table) + side_score(impurity, right, _sum(right), table)


@kernel
def integer_score(impurity, left, total, right, table):
    """Return the integer score of the split with `left` of `total`, int64 [classes]; right: scratch. Not for Gini."""
    return _both_sides(impurity, left, total, right, table)


@kernel
def split_scores(impurity, left, total, min_leaf, table, right, scores):
    """Set scores[i] to the score of split i; -inf if a side weighs less than min_leaf >= 1.

    left    int64 [n, slots], statistics of the left side of each split (grow/out_of_core/context.py)
    total   int64 [classes]
    table   see kernels/scan/impurity.py
    right   int64 [classes], scratch
    scores  float64 [n], out, with a relative error of at most 1e-15
    """
    weight = _sum(total)
    for i in range(np.uint64(left.shape[0])):
        here = left[i, : total.size]
        w_l = _sum(here)
        if w_l < min_leaf or weight - w_l < min_leaf:
            scores[i] = -np.inf
        elif impurity == GINI:
            scores[i] = _gini(here, total)
        else:
            scores[i] = np.float64(_both_sides(impurity, here, total, right, table))


@inlined
def _two_bound(before, counts, total, after):
    """Bound a bucket of two classes. The score is convex in the counts, so it is highest at one of four corners."""
    bound = -np.inf
    for corner in range(np.uint64(4)):
        after[ZERO] = before[ZERO] + (counts[ZERO] if corner & ONE else np.int64(0))
        after[ONE] = before[ONE] + (counts[ONE] if corner & TWO else np.int64(0))
        bound = larger(bound, _gini(after, total))
    return bound


@inlined
def _integer_bound(impurity, before, counts, total, right, table):
    """Bound a bucket for a criterion with integer scores.

    Rows do not raise the score of the side that they are on, so the score without the rows of the bucket is a bound.
    """
    for k in range(np.uint64(total.size)):
        right[k] = total[k] - before[k] - counts[k]
    score = side_score(impurity, before, _sum(before), table) + side_score(impurity, right, _sum(right), table)
    # Each of the classes + 1 terms of the entropy of a side is rounded to the nearest integer.
    return np.float64(score + 2 * (np.int64(total.size) + 1))


@kernel
def bucket_bounds(impurity, before, counts, total, table, scratch, bounds):
    """Set bounds[b] so that no split inside bucket b has a higher score.

    before, counts  int64 [buckets, slots], counts before each bucket and in each bucket (grow/out_of_core/context.py)
    total           int64 [classes]
    scratch         int64 [classes]
    bounds          float64 [buckets], out
    """
    weight = np.float64(_sum(total))
    for b in range(np.uint64(before.shape[0])):
        passed, here = before[b, : total.size], counts[b, : total.size]
        if impurity == GINI and total.size > 2:
            for k in range(np.uint64(total.size)):
                scratch[k] = passed[k] + here[k]
            bounds[b] = bound_many(passed, scratch, total, weight)
        elif impurity == GINI:
            bounds[b] = _two_bound(passed, here, total, scratch)
        else:
            bounds[b] = _integer_bound(impurity, passed, here, total, scratch, table)


class _Sums(NamedTuple):
    """Total of a regression node, as Node of kernels/common/node_scan.py: weight, and sum of the targets (sq)."""

    weight: int
    sq: int


@kernel
def split_scores_sums(left, total, origin, min_leaf, scores):
    """Compute `split_scores` for regression, from [weight, sum]; -inf also if the Poisson deviance forbids a split.

    origin  for the Poisson deviance float64: the centre from which targets are counted, less the number that
            represents a target of zero. None for the variance
    """
    node = _Sums(total[ZERO], total[ONE])
    for i in range(np.uint64(left.shape[0])):
        w_l = left[i, ZERO]
        scores[i] = -np.inf
        if w_l >= min_leaf and node.weight - w_l >= min_leaf:
            score = score_sums(left[i, ONE], w_l, node, origin)
            scores[i] = score if score >= 0.0 else -np.inf


@kernel
def bucket_bounds_sums(before, counts, total, origin, bounds):
    """Compute `bucket_bounds` for regression, from [weight, sum, sum of the positive targets].

    origin  see `split_scores_sums`
    """
    node = _Sums(total[ZERO], total[ONE])
    for b in range(np.uint64(before.shape[0])):
        passed, here = before[b], counts[b]
        most, least = passed[ONE] + here[TWO], passed[ONE] + here[ONE] - here[TWO]
        bounds[b] = bound_sums(passed[ZERO], passed[ZERO] + here[ZERO], most, least, node, origin)
