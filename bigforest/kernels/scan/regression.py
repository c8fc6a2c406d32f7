"""The scan for regression: the largest decrease of variance, or of Poisson deviance. Oracle: tests/naive/split.py.

The score sum_l**2 / w_l + sum_r**2 / w_r orders splits by decrease of variance. sum is the sum of the targets of a
side, w its weight (Breiman et al. 1984, section 8.4). Targets are integers, so sums do not depend on the order of rows.
The mean of the node, rounded down, is subtracted from the targets (node.sq is the sum of the differences). Float64
scores are then accurate to about 1e-15; scores that are nearly equal (NEAR) are compared exactly.

For the deviance (kernels/common/deviance.py), `poisson` is the field of RegressionScratch (target.py), and `origin` its
second number; for the variance, both are None. Kernels are compiled separately for deviance and variance.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.deviance import poisson_corner, poisson_score
from bigforest.kernels.common.node_scan import (
    BITS32,
    CODE,
    FEATURE,
    NEAR,
    ONE,
    SHIFT32,
    SQ_L,
    SQ_R,
    W_L,
    W_R,
    ZERO,
    ZERO_I64,
    buckets_from,
    heavy_buckets,
    last_code,
    shift_for,
    take_split,
)
from bigforest.kernels.common.sort import sort_rows
from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.llvm.exact import compare_variance
from bigforest.kernels.llvm.numbers import float_of, larger, smaller
from bigforest.kernels.scan.open_buckets import open_buckets
from bigforest.kernels.scan.target import BUCKETS_SUMS

_ONE_I64 = np.int64(1)
# Most rows of a node that are sorted.
_SORTED = 80
# Arguments of heavy_buckets: fewest buckets, most buckets, rows per bucket.
BUCKETS_FOR_SUMS = (64, BUCKETS_SUMS, 8)
# The bits of the score -1.
_NO_SCORE = np.float64(-1.0).view(np.int64)


@inlined
def is_allowed(w_l, node, min_leaf):
    """Return 1 if both sides of a split weigh at least min_leaf, else 0, as uint64."""
    return np.uint64(w_l >= min_leaf) & np.uint64(node.weight - w_l >= min_leaf)


@inlined
def origin_of(poisson):
    """Return `origin` of the node; None for the variance."""
    return None if poisson is None else poisson[ONE]


@inlined
def score_sums(sum_l, w_l, node, origin):
    """Return the score of a split with two nonempty sides; for the deviance -1 if the sum of a side is not above 0.

    Both differences of floats are accurate. Weights are below 2**53, so their difference is exact. node.sq is from 0 to
    below the weight of the node. If float64 rounds sum_l, then sum_l is far larger than node.sq, so no digits cancel.
    """
    if origin is not None:
        return poisson_score(sum_l, w_l, node.weight, node.sq, origin)
    left, sum_left = np.float64(w_l), np.float64(sum_l)
    right, sum_right = np.float64(node.weight) - left, np.float64(node.sq) - sum_left
    return (sum_left * sum_left * right + sum_right * sum_right * left) / (left * right)


@inlined
def score_corner(sum_l, w_l, node, origin):
    """Return the score of a corner of a bucket, which need not be a split, for its bound. For the deviance, a negative
    sum counts as 0."""
    if origin is not None:
        return poisson_corner(sum_l, w_l, node.weight, node.sq, origin)
    return score_sums(sum_l, w_l, node, None)


@inlined
def compare_sums(sum_l, w_l, sum_r, w_r, split, poisson):
    """Return the sign (1, 0, -1) of the score of a split minus the score of the best split."""
    if poisson is not None:
        weight, total = w_l + w_r, sum_l + sum_r
        new = poisson_score(sum_l, w_l, weight, total, origin_of(poisson))
        old = poisson_score(split[SQ_L], split[W_L], weight, total, origin_of(poisson))
        return np.int64(new > old) - np.int64(new < old)
    return compare_variance(sum_l, w_l, sum_r, w_r, split[SQ_L], split[W_L], split[SQ_R], split[W_R])


@helper
def offer_sums(code, w_l, sum_l, bar, scan, poisson):
    """Make this split the best if it is better, or equal with a lower code of the same number (BestSplit).

    bar  score of the split times NEAR; becomes best.bar

    Of equal splits with different numbers, the first is kept. Callers check `is_allowed`.
    """
    number, best = scan.number, scan.best
    w_r = scan.node.weight - w_l
    sum_r = scan.node.sq - sum_l
    split = best.split
    # Most scores differ clearly: comparing 256 bits takes ten times as long as the rest of this function.
    if split[FEATURE] >= 0 and bar * NEAR <= best.bar[0]:
        sign = compare_sums(sum_l, w_l, sum_r, w_r, split, poisson)
        later = number != split[FEATURE] or code > split[CODE]
        if sign < 0 or (sign == 0 and later):
            return
    take_split(split, number, code, sum_l, w_l, sum_r, w_r)
    best.bar[0] = bar


@inlined
def offer_one(code, w_l, sum_l, scan, poisson):
    """Offer a split if it is allowed and may be the best."""
    score = score_sums(sum_l, w_l, scan.node, origin_of(poisson))
    if is_allowed(w_l, scan.node, scan.min_leaf) & np.uint64(score >= larger(scan.best.bar[0], 0.0)):
        offer_sums(code, w_l, sum_l, score * NEAR, scan, poisson)


@inlined
def score_edges_sums(w_l, sum_l, n, node, min_leaf, score, poisson):
    """Set score[i] to the score of the split with w_l[i] and sum_l[i] on the left. Return the highest score.

    The score is -1 if a side weighs less than min_leaf. The maximum is taken over the bits of the scores as signed
    integers, which have the same order, because the compiler vectorises the maximum of integers.
    """
    origin = origin_of(poisson)
    for i in range(n):
        left = np.int64(w_l[i])
        edge_score = score_sums(sum_l[i], left, node, origin)
        score[i] = edge_score if is_allowed(left, node, min_leaf) != ZERO else -1.0
    bits, highest = score.view(np.int64), _NO_SCORE
    for i in range(n):
        highest = larger(highest, bits[i])
    return float_of(highest)


@inlined
def bound_sums(w_l, w_after, most, least, node, origin):
    """Return an upper bound of the scores of splits inside a bucket.

    w_l, w_after  weights before and up to the end of the bucket
    most, least   largest and smallest sum on the left of a split inside the bucket

    The score is convex in (weight, sum) of the left side, so it is largest in a corner.
    """
    first = smaller(larger(w_l, _ONE_I64), node.weight - _ONE_I64)
    last = smaller(w_after, node.weight - _ONE_I64)
    score_first = larger(score_corner(most, first, node, origin), score_corner(least, first, node, origin))
    score_last = larger(score_corner(most, last, node, origin), score_corner(least, last, node, origin))
    return larger(score_first, score_last)


@inlined
def bound_buckets_sums(sums, buckets, node, bound):
    """Set bound[b] to an upper bound of the scores of splits inside bucket b."""
    w_l, origin = sums.edges.w_l, origin_of(sums.poisson)
    for b in range(buckets):
        bound[b] = bound_sums(np.int64(w_l[b]), np.int64(w_l[b + ONE]), sums.most[b], sums.least[b], node, origin)


@inlined
def offer_edges_sums(edges, first, end, scan, poisson):
    """Offer the splits of `edges` from `first` to before `end` whose score may be the highest of these."""
    n = end - first
    w_l, sum_l, score = edges.w_l[first:], edges.sum_l[first:], edges.score
    least = score_edges_sums(w_l, sum_l, n, scan.node, scan.min_leaf, score, poisson) * NEAR
    if least < larger(scan.best.bar[0], 0.0) * NEAR:
        return
    for at in range(n):
        if score[at] >= least:
            code, bar = np.int64(edges.code[first + at]), score[at] * NEAR
            offer_sums(code, np.int64(w_l[at]), sum_l[at], bar, scan, poisson)


@helper
def walk_sums(begin, end, w_l, sum_l, scan, sums):
    """Offer every boundary between different codes of the sorted work.keys[begin:end].

    w_l, sum_l  weight and sum of the targets before `begin`
    """
    edges, rows, keys = sums.inner, sums.rows, scan.work.keys
    key = keys[begin]
    begin += ONE
    while begin < end:
        stop = smaller(begin + np.uint64(BUCKETS_SUMS), end)
        count = ZERO
        for i in range(begin, stop):
            code = key >> SHIFT32
            at = key & BITS32
            w_l += rows[at, ZERO]
            sum_l += rows[at, ONE]
            edges.w_l[count] = np.uint32(w_l)
            edges.sum_l[count] = sum_l
            edges.code[count] = np.uint32(code)
            key = keys[i]
            # No branch, because ties are unpredictable: the next entry overwrites one that is not a boundary.
            count += np.uint64(key >> SHIFT32 != code)
        offer_edges_sums(edges, ZERO, count, scan, sums.poisson)
        begin = stop


@inlined
def count_buckets_sums(low, shift, buckets, items, codes, sums):
    """Count the rows in buckets of 2**shift codes. Return the number of buckets.

    sums.edges             set to the statistics before each bucket, and after the last
    sums.most, sums.least  set to the largest and the smallest sum on the left of the splits inside each bucket

    If buckets have one code each, empty buckets are left out of sums.edges and of the result.
    """
    counts, above, edges, rows = sums.buckets, sums.above, sums.edges, sums.rows
    for b in range(buckets):
        counts[b, ZERO] = 0
        counts[b, ONE] = 0
        above[b] = 0
    for i in range(np.uint64(items.size)):
        b = np.uint64(np.uint32(codes[i] - low) >> shift)
        counts[b, ZERO] += rows[i, ZERO]
        counts[b, ONE] += rows[i, ONE]
        above[b] += larger(rows[i, ONE], ZERO_I64)
    w_l, sum_l, count = ZERO_I64, ZERO_I64, ZERO
    edges.w_l[ZERO] = np.uint32(0)
    edges.sum_l[ZERO] = ZERO_I64
    for b in range(buckets):
        weight, bucket_sum = counts[b, ZERO], counts[b, ONE]
        sums.most[b] = sum_l + above[b]
        sums.least[b] = sum_l + bucket_sum - above[b]
        w_l += weight
        sum_l += bucket_sum
        edges.w_l[count + ONE] = np.uint32(w_l)
        edges.sum_l[count + ONE] = sum_l
        edges.code[count + ONE] = last_code(low, b, shift)
        # No branch, which would be unpredictable: the next entry overwrites the entry of an empty bucket.
        count += np.uint64((shift > np.uint32(0)) | (weight > ZERO_I64))
    return count


@inlined
def walk_bucket_sums(b, begin, end, scan, sums):
    """Offer every boundary inside bucket b, see open_buckets."""
    walk_sums(begin, end, np.int64(sums.edges.w_l[b]), sums.edges.sum_l[b], scan, sums)


@helper
def scan_buckets_sums(low, shift, buckets, scan, sums, projected):
    """Offer every threshold of a feature by a histogram of buckets of 2**shift codes from `low` on.

    projected  ProjectionScratch if codes are made from projections: rows of an opened bucket are then ordered by
               projection, and shift is above 0. None for a feature
    """
    node, work = scan.node, scan.work
    count = count_buckets_sums(low, shift, buckets, node.items, work.codes, sums)
    offer_edges_sums(sums.edges, ONE, count, scan, sums.poisson)
    if shift > np.uint32(0):
        bound_buckets_sums(sums, buckets, node, work.bound)
        items = sums.position[: node.items.size]
        open_buckets(walk_bucket_sums, (scan, sums), low, shift, buckets, items, scan, projected)


@inlined
def scan_sums(low, high, scan, sums):
    """Offer every threshold of a feature, as `scan_codes` (criterion.py). Call `view_node` before.

    Few rows are sorted, unless their range has no more codes than rows. Otherwise the rows are counted in a histogram,
    with a bucket for each code if the range has few codes.
    """
    n, work = np.uint64(scan.node.items.size), scan.work
    span = np.uint64(high - low)
    if n <= np.uint64(_SORTED) and span >= n:
        sort_rows(work.codes, low, high, sums.position[:n], work.keys, work.positions)
        walk_sums(ZERO, n, ZERO_I64, ZERO_I64, scan, sums)
        return
    bucket_per_code = span < smaller(n, np.uint64(BUCKETS_SUMS))
    shift = np.uint32(0) if bucket_per_code else shift_for(span, heavy_buckets(n, *BUCKETS_FOR_SUMS))
    first, buckets = buckets_from(low, span, shift)
    scan_buckets_sums(first, shift, buckets, scan, sums, None)
