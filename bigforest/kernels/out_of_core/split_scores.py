"""Float scores of many splits, and bounds of the splits inside buckets, from their counts: a filter for
grow/out_of_core/node_search.py, which compares exactly what passes.

The formulas are those of the scans in memory (kernels/scan/). That of two classes is not shared, because its products
would overflow for weights beyond 2**31.
Oracle: tests/naive/tree.py, through grow/out_of_core/passes.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigforest.kernels.common.node_scan import ONE, TWO, ZERO
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.scan.impurity import GINI, side_score
from bigforest.kernels.scan.many_classes import bound_many, score_many
from bigforest.kernels.scan.regression import bound_sums, score_sums


@inlined
def _gini(one, total):
    """Return score_many with int64 class weights `one` on the left; -inf where a side is empty."""
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
    """Return the integer score of a split; right int64 [classes] is scratch."""
    for k in range(np.uint64(total.size)):
        right[k] = total[k] - left[k]
    return side_score(impurity, left, _sum(left), table) + side_score(impurity, right, _sum(right), table)


@kernel
def integer_score(impurity, left, total, right, table):
    """Return the integer score of the split with `left` of `total`, int64 [classes]; right: scratch. Not for Gini."""
    return _both_sides(impurity, left, total, right, table)


@kernel
def split_scores(impurity, left, total, min_leaf, table, right, scores):
    """Set scores[i] = score of the split with left[i] on the left; -inf where a side weighs less than min_leaf >= 1.

    left int64 [n, slots], total int64 [classes] (grow/out_of_core/context.py), table: impurity.entropy_table, right
    int64 [classes] (scratch), scores float64 [n], out. Right to 1e-15 of the score.
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
    """Bound a bucket of two classes. Convex in the counts, so highest at a corner: one class left, the other right."""
    bound = -np.inf
    for corner in range(np.uint64(4)):
        after[ZERO] = before[ZERO] + (counts[ZERO] if corner & ONE else np.int64(0))
        after[ONE] = before[ONE] + (counts[ONE] if corner & TWO else np.int64(0))
        bound = max(bound, _gini(after, total))
    return bound


@inlined
def _integer_bound(impurity, before, counts, total, right, table):
    """Bound a bucket by a score that is an integer.

    The rows of a bucket add to the impurity of whichever side they fall on, so it is least when they add nothing.
    """
    for k in range(np.uint64(total.size)):
        right[k] = total[k] - before[k] - counts[k]
    score = side_score(impurity, before, _sum(before), table) + side_score(impurity, right, _sum(right), table)
    # Each of the classes + 1 terms of a side's entropy is rounded to the nearest integer.
    return np.float64(score + 2 * (np.int64(total.size) + 1))


@kernel
def bucket_bounds(impurity, before, counts, total, table, scratch, bounds):
    """Set bounds[b] so that no split inside bucket b has a higher score.

    before, counts  int64 [buckets, slots]: counts before each bucket, and in it (grow/out_of_core/context.py)
    total           int64 [classes]; scratch of that length
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
    """Total of a node of a regression, as the scan in memory names it: its weight, and the sum of its targets."""

    weight: int
    sq: int


@kernel
def split_scores_sums(left, total, zero, min_leaf, scores):
    """Do `split_scores` for regression, from [weight, sum]; -inf, too, where the Poisson deviance forbids a split.

    zero  centre of the sums, counted from zero (float64), for the Poisson deviance; None for the variance
    """
    node = _Sums(total[ZERO], total[ONE])
    for i in range(np.uint64(left.shape[0])):
        w_l = left[i, ZERO]
        scores[i] = -np.inf
        if w_l >= min_leaf and node.weight - w_l >= min_leaf:
            score = score_sums(left[i, ONE], w_l, node, zero)
            scores[i] = score if score >= 0.0 else -np.inf


@kernel
def bucket_bounds_sums(before, counts, total, zero, bounds):
    """Do `bucket_bounds` for regression, from [weight, sum, sum of the targets above 0]; zero: see
    `split_scores_sums`."""
    node = _Sums(total[ZERO], total[ONE])
    for b in range(np.uint64(before.shape[0])):
        passed, here = before[b], counts[b]
        most, least = passed[ONE] + here[TWO], passed[ONE] + here[ONE] - here[TWO]
        bounds[b] = bound_sums(passed[ZERO], passed[ZERO] + here[ZERO], most, least, node, zero)
