"""Score splits of nodes of two classes by Gini impurity, and offer the best. Oracle: tests/naive/split.py.

Let w and n1 be the weights of both classes and of class 1 in the node, w_l and n1_l those on the left, w_r = w - w_l,
and d = n1_l * w - n1 * w_l. A split decreases the impurity by 2 d**2 / (w_l w_r w**2). Its score is d**2 / (w_l w_r).

A light node (weight below SCORED_WEIGHT) is scored in vectors, by float32 scores that are only a filter:

1. Score the splits after each row (few rows, by comparing all pairs), or after each bucket of codes.
2. Offer the splits with the highest score to the exact comparison.
3. Open the buckets that may have a better split inside: score their rows in the same way, over the smaller range of
   codes of the bucket.

    codes of a node    0 | 3  7 9 16 | 20 | 33 34 35 36 | 50      0 alone and buckets of 16 codes; four edges are scored
                                            ^ opened: the same over the codes 33 to 48, four splits

The rows of a heavy node are counted in buckets. Scores of the edges, and bounds of the buckets, are computed in
float64. The rows of opened buckets are sorted and walked.

The weights of both classes are packed in one number, class 1 in the upper half, so that one addition counts both:
uint32 in light nodes, uint64 in heavy nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.node_scan import (
    BITS16,
    BITS32,
    MOST_BUCKETS,
    NEAR,
    ONE,
    SHIFT32,
    TWO,
    ZERO,
    buckets_for,
    buckets_from,
    class_of,
    heavy_buckets,
    last_code,
    most_buckets,
    offer_gini,
    shift_for,
)
from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.llvm.edges import open_buckets_two, score_buckets_two
from bigforest.kernels.llvm.lanes import LANES
from bigforest.kernels.llvm.numbers import larger
from bigforest.kernels.llvm.pairwise import PAIRS, SCORE_ERROR, SCORED_WEIGHT, score_pairs_two
from bigforest.kernels.llvm.selection import select_codes, select_scores
from bigforest.kernels.scan.open_buckets import open_buckets

# Features that are scored together before their splits are offered. With 8, growing takes the same time
# (benchmarks/profile.md).
TOGETHER = 6
# Up to this many rows of a light node, or of an opened bucket, are scored by pairs.
PAIRED = np.uint64(56)
_PAIRED_INSIDE = np.uint64(PAIRS)
# Up to this many codes get a bucket each, and no bucket is opened. Opening would be slow if one code had most rows.
_FEW_CODES = np.uint64(256)
# Arguments of buckets_for and heavy_buckets: fewest buckets, most buckets, rows per bucket.
_LIGHT_BUCKETS = (32, 1024, 4)
HEAVY_BUCKETS = (64, MOST_BUCKETS, 8)
# If a heavy node has up to this many buckets, one of them for the smallest code, every other row is counted in a second
# table. Two larger tables would not fit in the cache.
_TWICE = np.uint64(513)
# Most waiting ranges. A bucket of a range has at least five bits less, so ranges of 32 bits are opened at most seven
# times.
_RANGES = 7 * 1024
# Far below any score that is not 0.
_LEAST_SCORE = 1e-30
_ZERO32 = np.uint32(0)
_HALF = np.uint32(16)
_LOW_HALF = np.uint32(0xFFFF)


class TwoClassScratch(NamedTuple):
    """Scratch of one growing tree of `rows` rows; a light node has at most `light` rows.

    add      uint32 [rows], weights of the node's rows: their multiplicity, shifted by 16 bits for class 1
    codes    uint32 [TOGETHER + 1, light + LANES], codes of a node for features scored together. The last entry of
             codes, left and score is for the rows of an opened bucket
    left     uint32 [TOGETHER + 1, two tables of buckets], weights on the left of splits: after each row, or before each
             bucket
    score    float32 [TOGETHER + 1, buckets + LANES], scores of these splits
    inside   uint32 [light + LANES], `add` of the rows of an opened bucket
    ranges   uint32 [_RANGES, 3], buckets to be opened: first code, number of codes less one, weights before
    counts   uint64 [2, most_buckets(rows)], histogram of a heavy node, in one or two tables
    before   uint64 [most_buckets(rows) + 1], weights before each bucket of the histogram
    """

    add: NDArray[np.uint32]
    codes: NDArray[np.uint32]
    left: NDArray[np.uint32]
    score: NDArray[np.float32]
    inside: NDArray[np.uint32]
    ranges: NDArray[np.uint32]
    counts: NDArray[np.uint64]
    before: NDArray[np.uint64]


def make_two_class_scratch(rows: int) -> TwoClassScratch:
    """Allocate TwoClassScratch for nodes of up to `rows` rows."""
    light = min(max(rows, PAIRS), SCORED_WEIGHT) + LANES
    buckets = _LIGHT_BUCKETS[1] + 1  # one more for the smallest code
    return TwoClassScratch(
        np.empty(max(rows, PAIRS), np.uint32),
        np.empty((TOGETHER + 1, light), np.uint32),
        np.empty((TOGETHER + 1, 2 * (buckets + 1) + LANES), np.uint32),
        np.empty((TOGETHER + 1, buckets + LANES), np.float32),
        np.empty(light, np.uint32),
        np.empty((_RANGES, 3), np.uint32),
        np.empty((2, most_buckets(rows)), np.uint64),
        np.empty(most_buckets(rows) + 1, np.uint64),
    )


@inlined
def prepare_two(node, two):
    """Fill two.add, once per node, before its features are scanned."""
    for i in range(np.uint64(node.items.size)):
        item = node.items[i]
        two.add[i] = np.uint32(item & BITS16) << np.uint32(class_of(item) << np.uint64(4))


@inlined
def is_light(node):
    """Return True if splits of the node are scored in float32, from weights of 16 bits."""
    return node.weight < SCORED_WEIGHT


@inlined
def score_two(ones_l, w_l, ones, weight):
    """Return d**2 / (w_l w_r) of int64 weights, float64; -1 if a side is empty."""
    d = np.float64(ones_l * weight - ones * w_l)
    room = np.float64(w_l) * np.float64(weight - w_l)
    return d * d / room if room > 0.0 else -1.0


@inlined
def reaches_two(ones_l, w_l, ones, weight, bar):
    """Return True if the score is at least `bar`, without dividing. Neither side may be empty."""
    d = np.float64(ones_l * weight - ones * w_l)
    return d * d >= bar * (np.float64(w_l) * np.float64(weight - w_l))


@inlined
def offer_two(code, ones_l, w_l, scan):
    """Offer a split by its weights, int64."""
    ones, weight = scan.node.total[ONE], scan.node.weight
    w_r = weight - w_l
    if w_l < scan.min_leaf or w_r < scan.min_leaf:
        return
    zeros_l = w_l - ones_l
    ones_r = ones - ones_l
    zeros_r = w_r - ones_r
    sq_l = zeros_l * zeros_l + ones_l * ones_l
    sq_r = zeros_r * zeros_r + ones_r * ones_r
    if offer_gini(scan, code, sq_l, w_l, sq_r, w_r):
        scan.best.bar[0] = score_two(ones_l, w_l, ones, weight) * NEAR


@inlined
def light_buckets(low, high, n):
    """Return the first code (uint32) and the number (uint64) of buckets for n rows with codes from low to high, and the
    bits to drop (uint32), see `buckets_from`."""
    span = np.uint64(high - low)
    shift = _ZERO32 if span < _FEW_CODES else shift_for(span, buckets_for(n, *_LIGHT_BUCKETS))
    first, buckets = buckets_from(low, span, shift)
    return first, buckets, shift


@inlined
def score_light(low, high, n, paired, codes, add, before, node, min_leaf, left, score):
    """Score the splits of n rows of a light node. Return the highest score (float64).

    low, high   smallest and largest code of the rows
    paired      uint64, most rows that are scored by pairs
    codes, add  uint32 [>= n], codes and weights of the rows
    before      uint32, weights of the rows of the node with smaller codes
    left        uint32, out: weights on the left of the split after each row, or before each bucket if n > paired
    score       float32, out: score of the split after each row or bucket, -1 if a side weighs less than min_leaf
    """
    ones, weight = node.total[ONE], node.weight
    if n <= paired:
        return score_pairs_two(codes, add, n, before, ones, weight, min_leaf, left, score)
    first, buckets, shift = light_buckets(low, high, n)
    apart = buckets + ONE  # two tables, because an addition waits for an earlier addition to the same bucket
    for b in range(apart + apart):
        left[b] = _ZERO32
    if high - low == np.uint32(1):
        at_low, total = _ZERO32, _ZERO32
        for i in range(n):  # a product instead of an index lets the compiler vectorise
            at_low = np.uint32(at_low + np.uint32(add[i] * np.uint32(codes[i] == low)))
            total = np.uint32(total + add[i])
        left[ONE], left[TWO] = at_low, np.uint32(total - at_low)
    else:
        for i in range(n):
            left[(i & ONE) * apart + ONE + np.uint64(np.uint32(codes[i] - first) >> shift)] += add[i]
        for b in range(ONE, apart):
            left[b] += left[apart + b]
    left[ONE] += before
    highest = score_buckets_two(left, buckets, ones, weight, min_leaf, score)
    left[ZERO] = before
    return highest


@inlined
def may_be_best(highest, best):
    """Return True if the split with the highest score may be as good as the best so far."""
    return highest >= 0.0 and highest * (1.0 + SCORE_ERROR) >= best.bar[0]


@inlined
def offer_light(low, high, highest, codes, slot, scan, two):
    """Offer the splits of a light node that may be the best, after score_light has scored its rows.

    highest  result of score_light
    codes    uint32 [rows], codes of the feature, from `low` to `high`
    slot     uint64, entry of two.left and two.score
    """
    if scan.node.items.size > PAIRED or may_be_best(highest, scan.best):  # saves the call for most small nodes
        open_light(low, high, highest, codes, slot, scan, two)


@helper
def open_light(low, high, highest, codes, slot, scan, two):
    """Offer the splits of `offer_light`. Open buckets that may have a better split, and offer the splits inside."""
    node, best, work = scan.node, scan.best, scan.work
    n = np.uint64(node.items.size)
    row_codes, size, paired, waiting = codes, n, PAIRED, ZERO
    while True:
        left, score = two.left[slot], two.score[slot]
        first, buckets, shift = light_buckets(low, high, size)
        by_row = size <= paired
        if may_be_best(highest, best):
            bar = np.float32(highest * (1.0 - SCORE_ERROR))
            hits = select_scores(score, size if by_row else buckets, bar, work.selected)
            offered = np.int64(-1)
            for k in range(hits):
                at = np.uint64(work.selected[k])
                code = np.int64(row_codes[at]) if by_row else np.int64(last_code(first, at, shift))
                packed = left[at if by_row else at + ONE]
                if code != offered:
                    offered = code
                    ones_l = np.int64(packed >> _HALF)
                    w_l = ones_l + np.int64(packed & _LOW_HALF)
                    offer_two(code, ones_l, w_l, scan)
        if not by_row and shift > _ZERO32:
            waiting = push_ranges(first, shift, buckets, left, waiting, scan, two)
        if waiting == ZERO:
            return
        waiting -= ONE
        low, before = two.ranges[waiting, 0], two.ranges[waiting, 2]
        span = two.ranges[waiting, 1]
        size = select_codes(codes, n, low, span, work.selected)
        slot, high, paired = np.uint64(TOGETHER), np.uint32(low + span), _PAIRED_INSIDE
        row_codes = two.codes[slot]
        for k in range(size):
            i = np.uint64(work.selected[k])
            row_codes[k] = codes[i]
            two.inside[k] = two.add[i]
        rows = (low, high, size, paired, row_codes, two.inside, before)
        highest = score_light(*rows, node, scan.min_leaf, two.left[slot], two.score[slot])


@inlined
def ends_here(first, after, shift, left):
    """Return True if opening these buckets once scores every split inside: they have few codes, or few rows."""
    inside = left[after] - left[first]
    weight = np.uint64((inside >> _HALF) + (inside & _LOW_HALF))
    return (after - first) << np.uint64(shift) <= _FEW_CODES or weight <= _PAIRED_INSIDE


@inlined
def push_ranges(low, shift, buckets, left, waiting, scan, two):
    """Push the buckets that may have a better split on two.ranges. Return the number of waiting ranges.

    low, shift  bucket b has the codes from low + (b << shift) on; the first has a single code

    Neighbouring buckets become one range if it need not be opened again (`ends_here`).
    """
    node, opened = scan.node, scan.work.positions
    bar = np.float32(scan.best.bar[0] * (1.0 - SCORE_ERROR) - _LEAST_SCORE)
    count = open_buckets_two(left, buckets, node.total[ONE], node.weight, scan.min_leaf, bar, opened)
    k = np.uint64(count > ZERO and opened[ZERO] == _ZERO32)  # skip the first bucket
    while k < count:
        first = np.uint64(opened[k])
        after = first + ONE
        k += ONE
        # Join only buckets that are opened once: ranges that are opened again must become smaller each time.
        while k < count and np.uint64(opened[k]) == after and ends_here(first, after + ONE, shift, left):
            after += ONE
            k += ONE
        two.ranges[waiting, 0] = np.uint32(low + np.uint32(first << np.uint64(shift)))
        two.ranges[waiting, 1] = np.uint32(((after - first) << np.uint64(shift)) - ONE)
        two.ranges[waiting, 2] = left[first]
        waiting += ONE
    return waiting


@inlined
def scan_light(low, high, scan, two):
    """Offer every threshold of a feature, as `scan_codes` (criterion.py), in a light node."""
    rows = (low, high, np.uint64(scan.node.items.size), PAIRED, scan.work.codes, two.add, _ZERO32)
    highest = score_light(*rows, scan.node, scan.min_leaf, two.left[ZERO], two.score[ZERO])
    offer_light(low, high, highest, scan.work.codes, ZERO, scan, two)


@inlined
def scan_two(low, high, scan, two):
    """Offer every threshold of a feature, as `scan_codes` (criterion.py)."""
    if is_light(scan.node):
        scan_light(low, high, scan, two)
    else:
        n, span = np.uint64(scan.node.items.size), np.uint64(high - low)
        shift = _ZERO32 if span < _FEW_CODES else shift_for(span, heavy_buckets(n, *HEAVY_BUCKETS))
        first, buckets = buckets_from(low, span, shift)
        scan_heavy(first, shift, buckets, scan, two, None)


@helper
def walk_two(begin, end, ones_l, w_l, scan):
    """Offer every boundary between different codes of the sorted work.keys[begin:end].

    ones_l, w_l  weight of class 1 and of both classes before `begin`
    """
    ones, weight, keys = scan.node.total[ONE], scan.node.weight, scan.work.keys
    bar = scan.best.bar[0]
    key = keys[begin]
    for i in range(begin + ONE, end):
        code = key >> SHIFT32
        multiplicity = np.int64(key & BITS16)
        ones_l += multiplicity * np.int64(class_of(key))
        w_l += multiplicity
        key = keys[i]
        if key >> SHIFT32 != code and reaches_two(ones_l, w_l, ones, weight, bar):
            offer_two(np.int64(code), ones_l, w_l, scan)
            bar = scan.best.bar[0]


@inlined
def ones_and_weight(packed):
    """Unpack the weights of both classes, uint64. Return the weight of class 1 and of both classes, int64."""
    ones = np.int64(packed >> SHIFT32)
    return ones, np.int64(packed & BITS32) + ones


@inlined
def walk_bucket_two(b, begin, end, scan, two):
    """Offer every boundary inside bucket b, whose sorted keys are work.keys[begin:end]; see open_buckets."""
    ones_l, w_l = ones_and_weight(two.before[b])
    walk_two(begin, end, ones_l, w_l, scan)


@helper
def scan_heavy(low, shift, buckets, scan, two, projected):
    """Offer every threshold of a feature in any node, by a histogram of buckets of 2**shift codes from `low` on.

    projected  ProjectionScratch if codes are made from projections, which order the rows of an opened bucket; None for
               a feature

    d**2 / (w_l w_r) is convex in the weights, so its maximum inside a bucket is at one of four corners. Two corners
    have all rows of one class of the bucket on the left, and none of the other class. The other two corners are the
    edges of the bucket. Edges are offered as splits, so they enter the bound only if min_leaf may forbid them.
    """
    node, min_leaf, best, work = scan.node, scan.min_leaf, scan.best, scan.work
    counts, before, edge, bound = two.counts, two.before, work.edge, work.bound
    ones, weight, wide = node.total[ONE], node.weight, shift > _ZERO32
    odd = ONE if buckets <= _TWICE else ZERO
    for b in range(buckets):
        counts[ZERO, b] = ZERO
        counts[ONE, b] = ZERO
    for i in range(np.uint64(node.items.size)):
        add = two.add[i]
        packed = np.uint64(add & _LOW_HALF) | (np.uint64(add >> _HALF) << SHIFT32)
        counts[i & odd, np.uint64(np.uint32(work.codes[i] - low) >> shift)] += packed
    before[ZERO] = ZERO
    for b in range(buckets):
        before[b + ONE] = before[b] + counts[ZERO, b] + counts[ONE, b]
    for b in range(buckets):
        first, first_weight = ones_and_weight(before[b])
        last, last_weight = ones_and_weight(before[b + ONE])
        edge[b] = score_two(last, last_weight, ones, weight)
        if wide:
            ones_moved = score_two(last, first_weight - first + last, ones, weight)
            zeros_moved = score_two(first, last_weight - last + first, ones, weight)
            bound[b] = larger(ones_moved, zeros_moved)
            if min_leaf > 1:
                bound[b] = larger(bound[b], larger(edge[b], score_two(first, first_weight, ones, weight)))
    for b in range(buckets - ONE):
        if edge[b] >= best.bar[0]:
            code = np.int64(last_code(low, b, shift))
            ones_l, w_l = ones_and_weight(before[b + ONE])
            offer_two(code, ones_l, w_l, scan)
    if wide:
        open_buckets(walk_bucket_two, (scan, two), low, shift, buckets, node.items, scan, projected)
