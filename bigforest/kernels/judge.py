"""Float scores of many splits, and of what buckets can hide, from their counts: a filter for grow/judge.py, which
compares exactly what passes it. Weights are int64 and may be beyond 2**31. Oracle: tests/naive/tree.py, through
grow/level.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.impurity import ERROR, GINI, side_score
from bigforest.kernels.jit import inlined, kernel
from bigforest.kernels.node import ZERO


@inlined
def _gini(one, total, shifted, by):
    """sq_l / w_l + sq_r / w_r with int64 class weights `one` on the left, `by` more of class `shifted`.

    -inf where a side is empty. shifted may be past the classes.
    """
    w_l = w_r = sq_l = sq_r = 0.0
    for k in range(np.uint64(total.size)):
        here = one[k] + (by if k == shifted else np.int64(0))
        left, right = np.float64(here), np.float64(total[k] - here)
        w_l += left
        w_r += right
        sq_l += left * left
        sq_r += right * right
    return sq_l / w_l + sq_r / w_r if w_l > 0.0 and w_r > 0.0 else -np.inf


@inlined
def _many_bound(before, counts, total, weight):
    """Of more than two classes: see scan_many.bound_many."""
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
def _sum(counts):
    total = np.int64(0)
    for k in range(np.uint64(counts.size)):
        total += counts[k]
    return total


@inlined
def _both_sides(impurity, left, total, right, table):
    """Integer score of a split; right int64 [classes] is scratch."""
    for k in range(np.uint64(total.size)):
        right[k] = total[k] - left[k]
    return side_score(impurity, left, _sum(left), table) + side_score(impurity, right, _sum(right), table)


@kernel
def integer_score(impurity, left, total, right, table):
    """Integer score (entropy or error) of the split with `left` of `total`, int64 [classes]; right: scratch."""
    return _both_sides(impurity, left, total, right, table)


@kernel
def split_scores(impurity, left, total, min_leaf, table, right, scores):
    """scores[i] = score of the split with class weights left[i] on the left; -inf where a side is below min_leaf >= 1.

    left int64 [n, classes], total int64 [classes], table: impurity.entropy_table, right int64 [classes] (scratch),
    scores float64 [n], out. Right to 1e-15 of the score.
    """
    weight = _sum(total)
    for i in range(np.uint64(left.shape[0])):
        w_l = _sum(left[i])
        if w_l < min_leaf or weight - w_l < min_leaf:
            scores[i] = -np.inf
        elif impurity == GINI:
            scores[i] = _gini(left[i], total, total.size, np.int64(0))
        else:
            scores[i] = np.float64(_both_sides(impurity, left[i], total, right, table))


@kernel
def bucket_bounds(impurity, before, counts, total, table, scratch, bounds):
    """No split inside bucket b has a higher score than bounds[b].

    before, counts  int64 [buckets, classes]: weights left of each bucket, and in it
    scratch         int64 [2, classes]
    bounds          float64 [buckets], out
    """
    weight = np.float64(_sum(total))
    after, right = scratch[ZERO], scratch[np.uint64(1)]
    # Each of the classes + 1 terms of a side's entropy is rounded to the nearest integer.
    slack = 2 * (np.int64(total.size) + 1)
    for b in range(np.uint64(before.shape[0])):
        if impurity == GINI and total.size > 2:
            bounds[b] = _many_bound(before[b], counts[b], total, weight)
        elif impurity == GINI:
            # Convex in the counts, so most at a corner: all of one class left, none of the other.
            bound = -np.inf
            for k in range(np.uint64(total.size)):
                bound = max(bound, _gini(before[b], total, k, counts[b, k]))
                after[k] = before[b, k] + counts[b, k]
            bound = max(bound, _gini(before[b], total, total.size, np.int64(0)))
            bounds[b] = max(bound, _gini(after, total, total.size, np.int64(0)))
        else:
            # The rows of a bucket add to the impurity of whichever side they fall on, so it is least when they add
            # nothing: no entropy, or no error, which is counted here as rows that are right.
            for k in range(np.uint64(total.size)):
                right[k] = total[k] - before[b, k] - counts[b, k]
            score = side_score(impurity, before[b], _sum(before[b]), table)
            score += side_score(impurity, right, _sum(right), table)
            bounds[b] = np.float64(score + slack + (_sum(counts[b]) if impurity == ERROR else np.int64(0)))
