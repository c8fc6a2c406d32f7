"""Float scores of many splits, and bounds of the splits inside buckets, from their counts: a filter for
grow/out_of_core/node_search.py, which compares exactly what passes. Weights are int64 and may be beyond 2**31.
Oracle: tests/naive/tree.py, through grow/out_of_core/passes.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.deviance import poisson_corner, poisson_score
from bigforest.kernels.common.node_scan import ONE, TWO, ZERO
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.scan.impurity import GINI, VARIANCE, side_score


@inlined
def _gini(one, total):
    """Return sq_l / w_l + sq_r / w_r with int64 class weights `one` on the left; -inf where a side is empty."""
    w_l = w_r = sq_l = sq_r = 0.0
    for k in range(np.uint64(total.size)):
        left, right = np.float64(one[k]), np.float64(total[k] - one[k])
        w_l += left
        w_r += right
        sq_l += left * left
        sq_r += right * right
    return sq_l / w_l + sq_r / w_r if w_l > 0.0 and w_r > 0.0 else -np.inf


@inlined
def _many_bound(before, counts, total, weight):
    """Bound a bucket for more than two classes: see multi_class_edges.bound_buckets."""
    start = width = squares = 0.0
    for k in range(np.uint64(total.size)):
        start += np.float64(before[k])
        width += np.float64(counts[k])
        squares += np.float64(total[k]) * np.float64(total[k])
    spread = 0.0
    for k in range(np.uint64(total.size)):
        of_class, passed, here = np.float64(total[k]), np.float64(before[k]), np.float64(counts[k])
        least = weight * passed - of_class * (start + width - here)
        most = weight * (passed + here) - of_class * (start + here)
        spread += max(least * least, most * most)
    first, last = max(start, 1.0), min(start + width, weight - 1.0)
    room = weight * min(first * (weight - first), last * (weight - last))
    return squares / weight + spread / room if room > 0.0 else np.inf


@inlined
def _variance(sum_l, w_l, total):
    """Return sum_l**2 / w_l + sum_r**2 / w_r, for regression (kernels/scan/regression.py); total int64 [weight, sum] of
    the node."""
    one, two = np.float64(sum_l), np.float64(total[ONE] - sum_l)
    return one * one / np.float64(w_l) + two * two / np.float64(total[ZERO] - w_l)


@inlined
def _corners(before, counts, total):
    """Return the smallest and largest weight, and the largest and smallest sum, on the left of a split in a bucket, for
    regression."""
    first = min(max(before[ZERO], np.int64(1)), total[ZERO] - 1)
    last = min(before[ZERO] + counts[ZERO], total[ZERO] - 1)
    return first, last, before[ONE] + counts[TWO], before[ONE] + counts[ONE] - counts[TWO]


@inlined
def _variance_bound(before, counts, total):
    """Bound a bucket for regression: see scan/regression.py bound_buckets_sums."""
    first, last, most, least = _corners(before, counts, total)
    bound = max(_variance(most, first, total), _variance(least, first, total))
    return max(bound, _variance(most, last, total), _variance(least, last, total))


@inlined
def _sum(counts):
    total = np.int64(0)
    for k in range(np.uint64(counts.size)):
        total += counts[k]
    return total


@inlined
def _weight(impurity, total):
    return total[ZERO] if impurity == VARIANCE else _sum(total)


@inlined
def _both_sides(impurity, left, total, right, table):
    """Return the integer score of a split; right int64 [classes] is scratch."""
    for k in range(np.uint64(total.size)):
        right[k] = total[k] - left[k]
    return side_score(impurity, left, _sum(left), table) + side_score(impurity, right, _sum(right), table)


@kernel
def integer_score(impurity, left, total, right, table):
    """Return the integer score of the split with `left` of `total`, int64 [classes]; right: scratch.

    Not for Gini and variance.
    """
    return _both_sides(impurity, left, total, right, table)


@kernel
def split_scores(impurity, left, total, min_leaf, table, right, scores):
    """Set scores[i] = score of the split with left[i] on the left; -inf where a side weighs less than min_leaf >= 1.

    left int64 [n, parts], total int64 [scored] (grow/out_of_core/context.py), table: impurity.entropy_table, right
    int64 [scored] (scratch), scores float64 [n], out. Right to 1e-15 of the score.
    """
    weight = _weight(impurity, total)
    for i in range(np.uint64(left.shape[0])):
        here = left[i, : total.size]
        w_l = _weight(impurity, here)
        if w_l < min_leaf or weight - w_l < min_leaf:
            scores[i] = -np.inf
        elif impurity == GINI:
            scores[i] = _gini(here, total)
        elif impurity == VARIANCE:
            scores[i] = _variance(here[ONE], w_l, total)
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

    before, counts  int64 [buckets, parts]: counts before each bucket, and in it (grow/out_of_core/context.py)
    total           int64 [scored]; scratch of that length
    bounds          float64 [buckets], out
    """
    weight = np.float64(_weight(impurity, total))
    for b in range(np.uint64(before.shape[0])):
        if impurity == VARIANCE:
            bounds[b] = _variance_bound(before[b], counts[b], total)
            continue
        passed, here = before[b, : total.size], counts[b, : total.size]
        if impurity == GINI and total.size > 2:
            bounds[b] = _many_bound(passed, here, total, weight)
        elif impurity == GINI:
            bounds[b] = _two_bound(passed, here, total, scratch)
        else:
            bounds[b] = _integer_bound(impurity, passed, here, total, scratch, table)


@kernel
def poisson_split_scores(left, total, origin, min_leaf, scores):
    """Do `split_scores` by the Poisson deviance; -inf, too, where the sum of a side is not above 0.

    Sums are counted from a centre, which is `origin` above zero.
    """
    for i in range(np.uint64(left.shape[0])):
        w_l = left[i, ZERO]
        scores[i] = -np.inf
        if w_l >= min_leaf and total[ZERO] - w_l >= min_leaf:
            score = poisson_score(left[i, ONE], w_l, total[ZERO], total[ONE], origin)
            scores[i] = score if score > 0.0 else -np.inf


@kernel
def poisson_bucket_bounds(before, counts, total, origin, bounds):
    """Do `bucket_bounds` by the Poisson deviance: see scan/regression.py bound_buckets_sums."""
    for b in range(np.uint64(before.shape[0])):
        first, last, most, least = _corners(before[b], counts[b], total)
        bounds[b] = -np.inf
        for one in (most, least):
            for w_l in (first, last):
                bounds[b] = max(bounds[b], poisson_corner(one, w_l, total[ZERO], total[ONE], origin))
