"""The scan for numbers to predict: the largest decrease of variance. Oracle: tests/naive/variance.py.

The decrease orders like sum_l**2 / w_l + sum_r**2 / w_r, where sum is that of the targets of a side and w its weight
(Breiman et al. 1984, section 8.4). Targets are whole numbers (encode/steps.py), so the sums do not depend on an order.
They are counted from the node's mean, rounded down, which keeps scores in float64 right to 1e-15; scores closer than
that are compared exactly.

A size is one number for two: bag rows in the upper 32 bits, their weight in the lower ones. Both are below 2**31.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.exact import compare_variance
from bigforest.kernels.jit import helper, inlined
from bigforest.kernels.node import (
    BITS16,
    BITS32,
    BUCKETS,
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

# Up to this many rows sorting beats the histogram, whose bounds then open most buckets. Measured.
_SORTED = 512
_ROWS = np.int64(32)
_WEIGHT = np.int64(0xFFFFFFFF)
_FOUR = np.uint64(4)
_THREE = np.uint64(3)


class Target(NamedTuple):
    """The numbers to predict, and scratch of one growing tree.

    value     int64 [rows of the table]; its magnitude times the weight of the bag is below 2**61
    weight    uint32 [rows of the table], of one occurrence of the row; empty where all weigh 1
    place     uint64 [rows of the root], 0, 1, ...: what sort keys have in the place of a class
    rows      int64 [2 * rows of the root], by place in the node: its size and sum of targets from the centre
    buckets   int64 [4 * (BUCKETS + 1)]: of a bucket the size and sum of the rows before it, and in it the sum of
              those above and below zero
    """

    value: NDArray[np.int64]
    weight: NDArray[np.uint32]
    place: NDArray[np.uint64]
    rows: NDArray[np.int64]
    buckets: NDArray[np.int64]


def make_target(value: NDArray[np.int64], weight: NDArray[np.uint32], rows: int) -> Target:
    """Target for trees of up to `rows` rows."""
    size = max(rows, PAIRS)
    place = np.arange(size, dtype=np.uint64)
    return Target(value, weight, place, np.empty(2 * size, np.int64), np.empty(4 * (BUCKETS + 1), np.int64))


@inlined
def rows_of(size):
    """Bag rows of a size."""
    return size >> _ROWS


@inlined
def weight_of(size):
    """Weight of a size."""
    return size & _WEIGHT


@inlined
def size_of(item, target):
    """Size of an item."""
    multiplicity = np.int64(item & BITS16)
    if target.weight.size == 0:
        return (multiplicity << _ROWS) | multiplicity
    return (multiplicity << _ROWS) | (multiplicity * np.int64(target.weight[item >> SHIFT32]))


@inlined
def sum_targets(items, target, total):
    """total = size and sum of the items; int64 [2]."""
    total[0] = 0
    total[1] = 0
    for i in range(np.uint64(items.size)):
        size = size_of(items[i], target)
        total[0] += size
        total[1] += weight_of(size) * target.value[items[i] >> SHIFT32]


@inlined
def all_alike(items, target):
    """Whether all items have one target."""
    first = target.value[items[ZERO] >> SHIFT32]
    for i in range(np.uint64(items.size)):
        if target.value[items[i] >> SHIFT32] != first:
            return False
    return True


@inlined
def centre_rows(items, total, target):
    """Fill target.rows for the node of `items`, whose size and sum are `total`; returns its centre."""
    centre = total[1] // weight_of(total[0])
    rows = target.rows
    for i in range(np.uint64(items.size)):
        size = size_of(items[i], target)
        rows[TWO * i] = size
        rows[TWO * i + ONE] = (target.value[items[i] >> SHIFT32] - centre) * weight_of(size)
    return centre


@inlined
def left_of(node, best, total_l):
    """total_l = size and sum of what the best split sends to the left; int64 [2]."""
    total_l[0] = best.split[W_L]
    total_l[1] = best.split[SQ_L] + node.centre * weight_of(best.split[W_L])


@inlined
def reaches(sum_l, w_l, node, bar):
    """Whether the score of a split is at least `bar`, without dividing; neither side is empty."""
    left = np.float64(w_l)
    right = np.float64(node.weight - w_l)
    one = np.float64(sum_l)
    two = np.float64(node.sum - sum_l)
    return one * one * right + two * two * left >= bar * (left * right)


@helper
def offer_sums(node, min_leaf, feature, code, size_l, sum_l, best):
    """Make this split the best if it is better, or as good with a lower feature, or a lower code."""
    size_r = node.total[0] - size_l
    if rows_of(size_l) < min_leaf or rows_of(size_r) < min_leaf:
        return
    sum_r = node.sum - sum_l
    split = best.split
    w_l, w_r = weight_of(size_l), weight_of(size_r)
    if split[FEATURE] >= 0:
        other_l, other_r = weight_of(split[W_L]), weight_of(split[W_R])
        sign = compare_variance(sum_l, w_l, sum_r, w_r, split[SQ_L], other_l, split[SQ_R], other_r)
        later = feature > split[FEATURE] or (feature == split[FEATURE] and code > split[CODE])
        if sign < 0 or (sign == 0 and later):
            return
    split[FEATURE] = feature
    split[CODE] = code
    split[SQ_L] = sum_l
    split[W_L] = size_l
    split[SQ_R] = sum_r
    split[W_R] = size_r
    one, two = np.float64(sum_l), np.float64(sum_r)
    best.limit[0] = (one * one / np.float64(w_l) + two * two / np.float64(w_r)) * NEAR


@helper
def walk_sums(keys, begin, end, size_l, sum_l, node, rows, min_leaf, feature, best):
    """Offer every boundary between different codes of the sorted keys[begin:end]; size_l, sum_l lie left of it."""
    bar = best.limit[0]
    key = keys[begin]
    for i in range(begin + ONE, end):
        code = key >> SHIFT32
        at = TWO * (key & BITS32)
        size_l += rows[at]
        sum_l += rows[at + ONE]
        key = keys[i]
        if key >> SHIFT32 != code and reaches(sum_l, weight_of(size_l), node, bar):
            offer_sums(node, min_leaf, feature, np.int64(code), size_l, sum_l, best)
            bar = best.limit[0]


@inlined
def histogram_sums(low, shift, n, buckets, codes, target):
    """Of each bucket the size and sum of its rows, and the sum of those above zero, in target.buckets."""
    found, rows = target.buckets, target.rows
    for slot in range(_FOUR * buckets):
        found[slot] = 0
    for i in range(n):
        at = _FOUR * np.uint64((codes[i] - low) >> shift)
        value = rows[TWO * i + ONE]
        found[at] += rows[TWO * i]
        found[at + ONE] += value
        found[at + TWO] += max(value, NONE)


@inlined
def offer_edges(low, shift, buckets, node, min_leaf, feature, best, target):
    """Offer the split after every bucket, and turn target.buckets into what it is said to be."""
    found = target.buckets
    size_l = NONE
    sum_l = NONE
    bar = best.limit[0]
    for b in range(buckets):
        at = _FOUR * b
        size, inside = found[at], found[at + ONE]
        found[at] = size_l
        found[at + ONE] = sum_l
        found[at + _THREE] = inside - found[at + TWO]
        size_l += size
        sum_l += inside
        if size > 0 and b + ONE < buckets and reaches(sum_l, weight_of(size_l), node, bar):
            code = np.int64(low) + ((np.int64(b) + 1) << np.int64(shift)) - 1
            offer_sums(node, min_leaf, feature, code, size_l, sum_l, best)
            bar = best.limit[0]
    found[_FOUR * buckets] = size_l


@inlined
def may_hide(b, node, bar, found):
    """Whether a split inside of bucket b may have a score of `bar`.

    The score is convex in the weight and the sum of the left side together, so that over all they may be, from none to
    all of the bucket's weight and from its sum below to that above zero, it is largest in a corner.
    """
    at = _FOUR * b
    weight = node.weight
    first = max(weight_of(found[at]), np.int64(1))
    last = min(weight_of(found[at + _FOUR]), weight - 1)
    most = found[at + ONE] + found[at + TWO]
    least = found[at + ONE] + found[at + _THREE]
    return (
        reaches(most, first, node, bar)
        or reaches(least, first, node, bar)
        or reaches(most, last, node, bar)
        or reaches(least, last, node, bar)
    )


@helper
def scan_buckets(low, shift, buckets, node, min_leaf, feature, best, work, target):
    """scan_sums by histogram: the edge of every bucket of 2**shift codes from `low` on, and what the few could hide."""
    n = np.uint64(node.items.size)
    histogram_sums(low, shift, n, buckets, work.codes, target)
    offer_edges(low, shift, buckets, node, min_leaf, feature, best, target)
    if shift == np.uint32(0):
        return
    found = target.buckets
    for b in range(buckets):
        work.bound[b] = 1.0 if may_hide(b, node, best.limit[0], found) else -1.0
    if not collect(low, shift, buckets, target.place[:n], 0.0, work, None):
        return
    begin = ONE
    for b in range(buckets):
        end = np.uint64(work.places[b])
        if end != ZERO:
            if may_hide(b, node, best.limit[0], found):
                sort_bucket(work.keys, begin, end, work)
                at = _FOUR * b
                walk_sums(work.keys, begin, end, found[at], found[at + ONE], node, target.rows, min_leaf, feature, best)
            begin = end


@inlined
def scan_sums(low, high, node, min_leaf, feature, best, work, target):
    """Offer every threshold of `feature`, whose codes are work.codes[:n], low < high, after centre_rows.

    Few rows: sort and walk. Many, or so few codes that a histogram is smaller than the rows: by histogram.
    """
    n = np.uint64(node.items.size)
    span = np.uint64(high - low)
    if n > np.uint64(_SORTED) or span < n:
        shift = shift_for(span, buckets_for_sums(n))
        scan_buckets(low, shift, (span >> np.uint64(shift)) + ONE, node, min_leaf, feature, best, work, target)
        return
    if n <= np.uint64(PAIRS):
        sort_few(low, high, target.place[:n], work)
    else:
        sort_rows(low, high, target.place[:n], work)
    walk_sums(work.keys, ZERO, n, NONE, NONE, node, target.rows, min_leaf, feature, best)


@inlined
def buckets_for_sums(n):
    """Most buckets worth their while for n rows, a power of two."""
    wanted = np.uint64(128)
    while wanted < np.uint64(BUCKETS) and wanted * np.uint64(8) < n:
        wanted *= TWO
    return wanted
