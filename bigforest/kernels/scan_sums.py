"""The scan for numbers to predict: the largest decrease of variance. Oracle: tests/naive/split.py.

The decrease orders like sum_l**2 / w_l + sum_r**2 / w_r, where sum is that of the numbers of a side and w its weight
(Breiman et al. 1984, section 8.4). Numbers are whole, so the sums do not depend on an order. They are counted from the
node's mean, rounded down (node.sq is the sum of all), which keeps scores in float64 right to 1e-15; scores closer than
that are compared exactly.
"""

from __future__ import annotations

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
from bigforest.kernels.pairs import PAIRS
from bigforest.kernels.scan_two import collect
from bigforest.kernels.sort import sort_bucket, sort_few, sort_rows
from bigforest.kernels.target import BUCKETS_SUMS

# Up to this many rows they are sorted, as the bounds of a histogram would open most buckets.
_SORTED = 512
_THREE = np.uint64(3)


@inlined
def is_allowed(w_l, node, min_leaf):
    """Whether both sides of a split weigh at least min_leaf, as uint64."""
    return np.uint64(w_l >= min_leaf) & np.uint64(node.weight - w_l >= min_leaf)


@inlined
def reaches(sum_l, w_l, node, bar):
    """Whether the score of a split is at least `bar`, without dividing; neither side is empty.

    Differences of floats are right to a rounding here: weights are below 2**31, and a sum that float64 rounds is far
    above node.sq, which is below the weight.
    """
    left = np.float64(w_l)
    right = np.float64(node.weight) - left
    one = np.float64(sum_l)
    two = np.float64(node.sq) - one
    return one * one * right + two * two * left >= bar * (left * right)


@helper
def offer_sums(weight, total, feature, code, w_l, sum_l, best):
    """Make this split of a node's `weight` and sum `total` the best, if it is better, or as good and comes first.

    First is the lower feature, then the lower code. The split `is_allowed`.
    """
    w_r = weight - w_l
    sum_r = total - sum_l
    split = best.split
    one, two = np.float64(sum_l), np.float64(sum_r)
    limit = (one * one / np.float64(w_l) + two * two / np.float64(w_r)) * NEAR
    # Most are better by far: comparing 256 bits takes ten times as long as all else here.
    if split[FEATURE] >= 0 and limit * NEAR <= best.limit[0]:
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
    best.limit[0] = limit


@helper
def walk_sums(keys, begin, end, w_l, sum_l, node, rows, min_leaf, feature, best):
    """Offer every boundary between different codes of the sorted keys[begin:end]; w_l, sum_l lie left of it."""
    bar = best.limit[0]
    key = keys[begin]
    for i in range(begin + ONE, end):
        code = key >> SHIFT32
        at = key & BITS32
        w_l += rows[at, ZERO]
        sum_l += rows[at, ONE]
        key = keys[i]
        # All is evaluated, so that what no processor can guess, such as ties, is no branch.
        allowed = np.uint64(key >> SHIFT32 != code) & is_allowed(w_l, node, min_leaf)
        if allowed & np.uint64(reaches(sum_l, w_l, node, bar)):
            offer_sums(node.weight, node.sq, feature, np.int64(code), w_l, sum_l, best)
            bar = best.limit[0]


@inlined
def histogram_sums(low, shift, n, buckets, codes, sums, opened):
    """Of each bucket the weight and sum of its rows, in sums.buckets, and, if any are `opened`, of those above zero."""
    found, rows = sums.buckets, sums.rows
    for b in range(buckets):
        for k in range(np.uint64(4)):
            found[b, k] = 0
    for i in range(n):
        b = np.uint64((codes[i] - low) >> shift)
        here = rows[i, ONE]
        found[b, ZERO] += rows[i, ZERO]
        found[b, ONE] += here
        if opened:
            found[b, TWO] += max(here, NONE)


@inlined
def offer_edges(low, shift, buckets, node, min_leaf, feature, best, found, opened):
    """Offer the split after every bucket, and turn `found` into what Sums.buckets is said to be if any are `opened`."""
    w_l = NONE
    sum_l = NONE
    bar = best.limit[0]
    for b in range(buckets):
        weight, inside = found[b, ZERO], found[b, ONE]
        if opened:
            found[b, ZERO] = w_l
            found[b, ONE] = sum_l
            found[b, _THREE] = inside - found[b, TWO]
        w_l += weight
        sum_l += inside
        allowed = np.uint64(weight > 0) & is_allowed(w_l, node, min_leaf)
        if allowed & np.uint64(reaches(sum_l, w_l, node, bar)):
            code = np.int64(low) + ((np.int64(b) + 1) << np.int64(shift)) - 1
            offer_sums(node.weight, node.sq, feature, code, w_l, sum_l, best)
            bar = best.limit[0]
    if opened:
        found[buckets, ZERO] = w_l


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
    if shift == np.uint32(0):
        histogram_sums(low, shift, n, buckets, work.codes, sums, False)
        offer_edges(low, shift, buckets, node, min_leaf, feature, best, found, False)
        return
    histogram_sums(low, shift, n, buckets, work.codes, sums, True)
    offer_edges(low, shift, buckets, node, min_leaf, feature, best, found, True)
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
def scan_sums(low, high, node, min_leaf, feature, best, work, sums):
    """Offer every threshold of `feature`, whose codes are work.codes[:n], low < high, in a node seen by view_node.

    Few rows: sort and walk. Many, or so few codes that a histogram is smaller than the rows: by histogram.
    """
    n = np.uint64(node.items.size)
    span = np.uint64(high - low)
    if n > np.uint64(_SORTED) or span < n:
        shift = shift_for(span, buckets_for_sums(n))
        scan_buckets(low, shift, (span >> np.uint64(shift)) + ONE, node, min_leaf, feature, best, work, sums)
        return
    if n <= np.uint64(PAIRS):
        sort_few(work.codes, low, high, sums.place[:n], work.keys, work)
    else:
        sort_rows(work.codes, low, high, sums.place[:n], work.keys, work)
    walk_sums(work.keys, ZERO, n, NONE, NONE, node, sums.rows, min_leaf, feature, best)


@inlined
def buckets_for_sums(n):
    """Most buckets worth their while for n rows, a power of two."""
    wanted = np.uint64(128)
    while wanted < np.uint64(BUCKETS_SUMS) and wanted * np.uint64(8) < n:
        wanted *= TWO
    return wanted
