"""The scan for numbers to predict: the largest decrease of variance. Oracle: tests/naive/split.py.

The decrease orders like sum_l**2 / w_l + sum_r**2 / w_r, where sum is that of the numbers of a side and w its weight
(Breiman et al. 1984, section 8.4). Numbers are whole, so the sums do not depend on an order. They are counted from the
node's mean, rounded down (node.sq is the sum of all), which keeps scores in float64 right to 1e-15; scores closer than
that are compared exactly.
"""

from __future__ import annotations

import math

import numpy as np

from bigforest.kernels.exact import compare_variance
from bigforest.kernels.jit import helper, inlined
from bigforest.kernels.node import (
    BITS32,
    CODE,
    FEATURE,
    NEAR,
    NONE,
    ONE,
    SHIFT32,
    SQ_L,
    SQ_R,
    TWO,
    W_L,
    W_R,
    ZERO,
    shift_for,
)
from bigforest.kernels.pairs import PAIRS, SCORE_ERROR, score_pairs_sums
from bigforest.kernels.scan_two import by_pairs, collect
from bigforest.kernels.sort import sort_bucket, sort_few, sort_rows
from bigforest.kernels.target import BUCKETS_SUMS

# Up to this many rows they are sorted, as the bounds of a histogram would open most buckets.
_SORTED = 512
_THREE = np.uint64(3)
# What all numbers of a node have together, and what the rounding of a score to float32 may come to, both in units.
_UNITS = 2.0**30
_ROUNDINGS = 4.0 * 2.0**6


@inlined
def reaches(sum_l, w_l, node, bar):
    """Whether the score of a split is at least `bar`, without dividing; neither side is empty."""
    left = np.float64(w_l)
    right = np.float64(node.weight - w_l)
    one = np.float64(sum_l)
    two = np.float64(node.sq - sum_l)
    return one * one * right + two * two * left >= bar * (left * right)


@helper
def offer_sums(weight, total, min_leaf, feature, code, w_l, sum_l, best):
    """Make this split of a node's `weight` and sum `total` the best, if it is better, or as good and comes first.

    First is the lower feature, then the lower code.
    """
    w_r = weight - w_l
    if w_l < min_leaf or w_r < min_leaf:
        return
    sum_r = total - sum_l
    split = best.split
    if split[FEATURE] >= 0:
        sign = compare_variance(sum_l, w_l, sum_r, w_r, split[SQ_L], split[W_L], split[SQ_R], split[W_R])
        later = feature > split[FEATURE] or (feature == split[FEATURE] and code > split[CODE])
        if sign < 0 or (sign == 0 and later):
            return
    split[FEATURE] = feature
    split[CODE] = code
    split[SQ_L] = sum_l
    split[W_L] = w_l
    split[SQ_R] = sum_r
    split[W_R] = w_r
    one, two = np.float64(sum_l), np.float64(sum_r)
    best.limit[0] = (one * one / np.float64(w_l) + two * two / np.float64(w_r)) * NEAR


@inlined
def score_sums(sum_l, w_l, node, min_leaf):
    """The score of a split; -1 where a side has less than min_leaf, which is 1 at least."""
    w_r = node.weight - w_l
    one = np.float64(sum_l)
    two = np.float64(node.sq - sum_l)
    left = np.float64(max(w_l, np.int64(1)))
    right = np.float64(max(w_r, np.int64(1)))
    score = (one * one * right + two * two * left) / (left * right)
    return score if w_l >= min_leaf and w_r >= min_leaf else -1.0


@helper
def walk_sums(keys, begin, end, w_l, sum_l, node, rows, min_leaf, feature, best):
    """Offer every boundary between different codes of the sorted keys[begin:end]; w_l, sum_l lie left of it.

    The highest score is looked for first: along a good feature scores rise step by step, and each would be offered.
    """
    w_before, sum_before = w_l, sum_l
    highest = -1.0
    for i in range(begin, end - ONE):
        at = keys[i] & BITS32
        w_l += rows[at, ZERO]
        sum_l += rows[at, ONE]
        score = score_sums(sum_l, w_l, node, min_leaf)
        highest = max(highest, score if keys[i] >> SHIFT32 != keys[i + ONE] >> SHIFT32 else -1.0)
    if highest < 0.0 or highest < best.limit[0]:
        return
    bar = highest * NEAR
    w_l, sum_l = w_before, sum_before
    for i in range(begin, end - ONE):
        at = keys[i] & BITS32
        code = keys[i] >> SHIFT32
        w_l += rows[at, ZERO]
        sum_l += rows[at, ONE]
        if code != keys[i + ONE] >> SHIFT32 and score_sums(sum_l, w_l, node, min_leaf) >= bar:
            offer_sums(node.weight, node.sq, min_leaf, feature, np.int64(code), w_l, sum_l, best)


@inlined
def histogram_sums(low, shift, n, buckets, codes, sums):
    """Of each bucket the weight and sum of its rows, and the sum of those above zero, in sums.buckets."""
    found, rows = sums.buckets, sums.rows
    for b in range(buckets):
        for k in range(np.uint64(4)):
            found[b, k] = 0
    for i in range(n):
        b = np.uint64((codes[i] - low) >> shift)
        here = rows[i, ONE]
        found[b, ZERO] += rows[i, ZERO]
        found[b, ONE] += here
        found[b, TWO] += max(here, NONE)


@inlined
def offer_edges(low, shift, buckets, node, min_leaf, feature, best, edge, found):
    """Offer the split after every bucket, and turn `found` into what Sums.buckets is said to be; edge: scratch."""
    w_l = NONE
    sum_l = NONE
    for b in range(buckets):
        weight, inside = found[b, ZERO], found[b, ONE]
        found[b, ZERO] = w_l
        found[b, ONE] = sum_l
        found[b, _THREE] = inside - found[b, TWO]
        w_l += weight
        sum_l += inside
    found[buckets, ZERO] = w_l
    found[buckets, ONE] = sum_l
    highest = -1.0
    for b in range(buckets):
        score = score_sums(found[b + ONE, ONE], found[b + ONE, ZERO], node, min_leaf)
        edge[b] = score
        highest = max(highest, score)
    if highest < 0.0 or highest < best.limit[0]:
        return
    for b in range(buckets):
        w_l = found[b + ONE, ZERO]
        if edge[b] >= highest * NEAR and w_l > found[b, ZERO]:
            code = np.int64(low) + ((np.int64(b) + 1) << np.int64(shift)) - 1
            offer_sums(node.weight, node.sq, min_leaf, feature, code, w_l, found[b + ONE, ONE], best)


@inlined
def may_hide(b, node, bar, found):
    """Whether a split inside of bucket b may have a score of `bar`.

    The score is convex in the weight and the sum of the left side together, so that over all they may be, from none to
    all of the bucket's weight and from its sum below to that above zero, it is largest in a corner.
    """
    first = max(found[b, ZERO], np.int64(1))
    last = min(found[b + ONE, ZERO], node.weight - 1)
    most = found[b, ONE] + found[b, TWO]
    least = found[b, ONE] + found[b, _THREE]
    return (
        reaches(most, first, node, bar)
        or reaches(least, first, node, bar)
        or reaches(most, last, node, bar)
        or reaches(least, last, node, bar)
    )


@helper
def scan_buckets(low, shift, buckets, node, min_leaf, feature, best, work, sums):
    """scan_sums by histogram: the edge of every bucket of 2**shift codes from `low` on, and what the few could hide."""
    n = np.uint64(node.items.size)
    found = sums.buckets
    histogram_sums(low, shift, n, buckets, work.codes, sums)
    offer_edges(low, shift, buckets, node, min_leaf, feature, best, work.edge, found)
    if shift == np.uint32(0):
        return
    for b in range(buckets):
        work.bound[b] = 1.0 if may_hide(b, node, best.limit[0], found) else -1.0
    if not collect(low, shift, buckets, sums.place[:n], 0.0, work, None):
        return
    begin = ONE
    for b in range(buckets):
        end = np.uint64(work.places[b])
        if end != ZERO:
            if may_hide(b, node, best.limit[0], found):
                sort_bucket(work.keys, begin, end, work)
                w_l, sum_l = found[b, ZERO], found[b, ONE]
                walk_sums(work.keys, begin, end, w_l, sum_l, node, sums.rows, min_leaf, feature, best)
            begin = end


@inlined
def prepare_sums(node, min_leaf, work, sums):
    """Once per node, before scan_sums: what small_sums needs, numbers counted from the mean and in units.

    Each is off by half a unit at most, and a score is rounded a few times, each time by 2**-24 of it.
    """
    if not by_pairs(node):
        return
    rows, number = sums.rows, sums.number
    n = np.uint64(node.items.size)
    rest = np.float64(node.sq) / np.float64(node.weight)
    magnitude = 0.0
    for i in range(n):
        magnitude += abs(np.float64(rows[i, ONE]) - rest * np.float64(rows[i, ZERO]))
    scale = _UNITS / magnitude
    for i in range(n):
        work.pair_add[i] = np.uint32(rows[i, ZERO])
        number[i] = np.int32(np.rint((np.float64(rows[i, ONE]) - rest * np.float64(rows[i, ZERO])) * scale))
    sums.scale[ZERO] = scale
    room = np.float64(min_leaf) * np.float64(node.weight - min_leaf)
    sums.scale[ONE] = (np.float64(n) + _ROUNDINGS) / math.sqrt(room)


@inlined
def small_sums(node, min_leaf, feature, best, work, sums):
    """What scan_sums does for nodes that are `by_pairs`: scores of all first, then those that may be the best."""
    codes, rows, score = work.codes, sums.rows, work.pair_score
    n = np.uint64(node.items.size)
    highest = score_pairs_sums(codes, work.pair_add, sums.number, n, node.weight, min_leaf, score)
    if highest < 0.0:
        return
    scale, error = sums.scale[ZERO], sums.scale[ONE]
    weight, rest = np.float64(node.weight), np.float64(node.sq)
    # Of sums from the mean d and -d, the score of `reaches` is d**2 weight / (w_l w_r) + rest**2 / weight.
    known = math.sqrt(max(0.0, (best.limit[0] - rest * rest / weight) / weight)) * scale
    root = math.sqrt(highest)
    if root + error < known:
        return
    lowest = max(0.0, max(root - error, known) - error)
    bar = np.float32(lowest * lowest * (1.0 - SCORE_ERROR))
    offered = NONE - 1
    for i in range(n):
        code = codes[i]
        if score[i] >= bar and np.int64(code) != offered:
            offered = np.int64(code)
            w_l = NONE
            sum_l = NONE
            for j in range(n):  # no branch: this loop runs in vectors
                left = np.int64(codes[j] <= code)
                w_l += left * rows[j, ZERO]
                sum_l += left * rows[j, ONE]
            offer_sums(node.weight, node.sq, min_leaf, feature, offered, w_l, sum_l, best)


@inlined
def scan_sums(low, high, node, min_leaf, feature, best, work, sums):
    """Offer every threshold of `feature`, whose codes are work.codes[:n], low < high, after prepare_sums.

    Few rows: by pairs, or, if they are heavy, sorted. Many, or so few codes that a histogram is smaller than the rows:
    by histogram.
    """
    n = np.uint64(node.items.size)
    if by_pairs(node):
        small_sums(node, min_leaf, feature, best, work, sums)
        return
    span = np.uint64(high - low)
    if n > np.uint64(_SORTED) or span < n:
        shift = shift_for(span, buckets_for_sums(n))
        scan_buckets(low, shift, (span >> np.uint64(shift)) + ONE, node, min_leaf, feature, best, work, sums)
        return
    if n <= np.uint64(PAIRS):
        sort_few(low, high, sums.place[:n], work)
    else:
        sort_rows(low, high, sums.place[:n], work)
    walk_sums(work.keys, ZERO, n, NONE, NONE, node, sums.rows, min_leaf, feature, best)


@inlined
def buckets_for_sums(n):
    """Most buckets worth their while for n rows, a power of two."""
    wanted = np.uint64(128)
    while wanted < np.uint64(BUCKETS_SUMS) and wanted * np.uint64(8) < n:
        wanted *= TWO
    return wanted
