"""The scan for two classes under Gini. Oracle: tests/naive/split.py.

With d = n1_l * w - n1 * w_l, the decrease of a split is 2 d**2 / (w_l w_r w**2); the scale here is d**2 / (w_l w_r).
A bucket's weights travel as one uint64, class 1 in the upper half, so one addition counts both.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.jit import helper, inlined
from bigforest.kernels.node import (
    BITS16,
    BITS32,
    BUCKETS_TWO,
    NEAR,
    NONE,
    ONE,
    SHIFT32,
    TWO,
    ZERO,
    as_key,
    class_of,
    offer_gini,
    shift_for,
)
from bigforest.kernels.order import keep_cut, order_bucket
from bigforest.kernels.packed import pack_items, sum_of_code
from bigforest.kernels.pairs import PAIRS, SCORE_ERROR, SCORED_WEIGHT, score_pairs_two, sums_up_to
from bigforest.kernels.sort import sort_many

# Codes within so many have a bucket each, so that none is opened: one that most rows have would make that dear.
_FEW_CODES = np.uint64(256)
# Two classes share 64 bits: work.add has the weight of class 1 this power of two of bits higher.
_LOG_HALF = np.uint64(5)
# What counting a row costs, in pairs of rows; in that, what a code of the histogram costs, and the whole of it besides.
_ROW = np.uint64(12)
_CODE = np.uint64(3)
_ONCE = np.uint64(40)
# Pairs keep both classes' weights in one 32-bit number.
_PAIR_WEIGHT = 65_536
_HALF = np.uint32(16)
_LOW_HALF = np.uint32(0xFFFF)


@inlined
def score_two(ones_l, w_l, ones, weight):
    """d**2 / (w_l w_r) of int64 counts; -1 where a side is empty."""
    d = np.float64(ones_l * weight - ones * w_l)
    room = np.float64(w_l) * np.float64(weight - w_l)
    return d * d / room if room > 0.0 else -1.0


@inlined
def reaches(ones_l, w_l, ones, weight, bar):
    """Whether the score is at least `bar`, without dividing; neither side is empty."""
    d = np.float64(ones_l * weight - ones * w_l)
    return d * d >= bar * (np.float64(w_l) * np.float64(weight - w_l))


@helper
def offer_two(ones, weight, min_leaf, feature, code, ones_l, w_l, best):
    """Offer a split by its counts; updates `best` when it is taken."""
    w_r = weight - w_l
    if w_l < min_leaf or w_r < min_leaf:
        return
    zeros_l = w_l - ones_l
    ones_r = ones - ones_l
    zeros_r = w_r - ones_r
    sq_l = zeros_l * zeros_l + ones_l * ones_l
    sq_r = zeros_r * zeros_r + ones_r * ones_r
    if offer_gini(best, feature, code, sq_l, w_l, sq_r, w_r):
        best.limit[0] = score_two(ones_l, w_l, ones, weight) * NEAR


@helper
def walk_two(begin, end, ones_l, w_l, node, min_leaf, feature, best, keys):
    """Offer every boundary between different codes of the sorted keys[begin:end]; ones_l, w_l lie left of it."""
    ones = node.total[ONE]
    bar = best.limit[0]
    key = keys[begin]
    for i in range(begin + ONE, end):
        code = key >> SHIFT32
        multiplicity = np.int64(key & BITS16)
        ones_l += multiplicity * np.int64(class_of(key))
        w_l += multiplicity
        key = keys[i]
        if key >> SHIFT32 != code and reaches(ones_l, w_l, ones, node.weight, bar):
            offer_two(node.total[ONE], node.weight, min_leaf, feature, np.int64(code), ones_l, w_l, best)
            bar = best.limit[0]


@inlined
def pairs_two(codes, n, ones_l, w_l, node, min_leaf, feature, best, work):
    """What walk_two does, for n <= PAIRS rows in any order: their codes, and work.pair_add with class 1 shifted 16.

    For every row the weights of the rows with codes up to its own come from all pairs: no sorting, no branch.
    """
    sums_up_to(codes, work.pair_add, n, work.pair_sum)
    sums = work.pair_sum
    ones, weight = node.total[ONE], node.weight
    bar = best.limit[0]
    hits = ZERO
    for i in range(n):  # no branch: this loop runs in vectors, and mostly nothing is found
        ones_here = ones_l + np.int64(sums[i] >> _HALF)
        w_here = w_l + np.int64((sums[i] >> _HALF) + (sums[i] & _LOW_HALF))
        hits += np.uint64(w_here < weight) & np.uint64(reaches(ones_here, w_here, ones, weight, bar))
    if hits == ZERO:
        return
    last = np.uint32(0)
    for i in range(n):
        last = max(last, codes[i])
    for i in range(n):
        ones_here = ones_l + np.int64(sums[i] >> _HALF)
        w_here = w_l + np.int64((sums[i] >> _HALF) + (sums[i] & _LOW_HALF))
        if codes[i] != last and reaches(ones_here, w_here, ones, weight, bar):
            offer_two(ones, weight, min_leaf, feature, np.int64(codes[i]), ones_here, w_here, best)
            bar = best.limit[0]


@inlined
def pair_weight(item):
    """Multiplicity of an item or a key, shifted 16 for class 1."""
    return np.uint32(item & BITS16) << np.uint32(class_of(item) << np.uint64(4))


@inlined
def boundaries_two(begin, end, inside, ones_l, w_l, node, min_leaf, feature, best, work):
    """Offer every boundary of work.keys[begin:end], in any order, of total weight `inside`."""
    n = end - begin
    if n <= np.uint64(PAIRS) and inside < _PAIR_WEIGHT:
        for i in range(n):
            key = work.keys[begin + i]
            work.pair_code[i] = np.uint32(key >> SHIFT32)
            work.pair_add[i] = pair_weight(key)
        pairs_two(work.pair_code, n, ones_l, w_l, node, min_leaf, feature, best, work)
    else:
        sort_many(work.keys, begin, end)
        walk_two(begin, end, ones_l, w_l, node, min_leaf, feature, best, work.keys)


@inlined
def small_two(node, min_leaf, feature, best, work):
    """What scan_two does for nodes that are `by_pairs`: scores of all splits first, then those that may be the best."""
    offer_small_two(score_small_two(node, min_leaf, work), node, min_leaf, feature, best, work)


@inlined
def score_small_two(node, min_leaf, work):
    """work.pair_score[i] = score of the split after work.codes[i], work.pair_sum[i] what is left; the highest."""
    n, ones = np.uint64(node.items.size), node.total[ONE]
    return score_pairs_two(work.codes, work.pair_add, n, ones, node.weight, min_leaf, work.pair_sum, work.pair_score)


@inlined
def shares_codes(n, weight, work):
    """Whether two of the rows that score_small_two has scored have the same code; `weight` is that of all rows.

    Added up over the rows, the weights of the rows up to each, times its own, count every two rows once, and twice
    where they have the same code.
    """
    found, alone = NONE, weight * weight
    for i in range(n):
        own = weight_of_pair(work.pair_add[i])
        found += own * weight_of_pair(work.pair_sum[i])
        alone += own * own
    return found + found != alone


@inlined
def weight_of_pair(packed):
    """Weight of both classes, of which class 1 is shifted 16."""
    return np.int64((packed >> _HALF) + (packed & _LOW_HALF))


@inlined
def offer_small_two(highest, node, min_leaf, feature, best, work):
    """Offer the splits whose scores, by score_small_two, may be the best; `highest` is the highest of them."""
    codes, sums, score = work.codes, work.pair_sum, work.pair_score
    n = np.uint64(node.items.size)
    ones, weight = node.total[ONE], node.weight
    if highest < 0.0 or highest * (1.0 + SCORE_ERROR) < best.limit[0]:
        return
    bar = np.float32(highest * (1.0 - SCORE_ERROR))
    offered = NONE - 1
    for i in range(n):
        if score[i] >= bar and np.int64(codes[i]) != offered:
            offered = np.int64(codes[i])
            ones_l = np.int64(sums[i] >> _HALF)
            w_l = ones_l + np.int64(sums[i] & _LOW_HALF)
            offer_two(ones, weight, min_leaf, feature, offered, ones_l, w_l, best)


@inlined
def by_pairs(node):
    """Whether the node is small enough to compare all pairs."""
    return node.items.size <= PAIRS and node.weight < SCORED_WEIGHT


@inlined
def is_counted(n, span):
    """Whether a histogram of codes within `span` costs less than the pairs of n rows; uint64s, measured."""
    return span < _FEW_CODES and n * n > _ROW * (n + _CODE * span + _ONCE)


@inlined
def prepare_two(node, work):
    """Once per node, before scan_two: its multiplicities by class, in work.add, and in work.pair_add for pairs."""
    pack_items(node.items, _LOG_HALF, work.add)
    if by_pairs(node):
        for i in range(np.uint64(node.items.size)):
            work.pair_add[i] = pair_weight(node.items[i])


@inlined
def histogram_two(low, shift, n, buckets, work):
    """work.packed[b] = weights of the rows whose work.codes fall into bucket b.

    Every other row is counted apart, because an addition to a bucket waits for the one before to the same bucket.
    """
    packed, codes, add = work.packed, work.codes, work.add
    for b in range(buckets + buckets):
        packed[b] = ZERO
    for i in range(ZERO, n - ONE, TWO):
        packed[np.uint64((codes[i] - low) >> shift)] += add[i]
        packed[buckets + np.uint64((codes[i + ONE] - low) >> shift)] += add[i + ONE]
    if n & ONE:
        packed[np.uint64((codes[n - ONE] - low) >> shift)] += add[n - ONE]
    for b in range(buckets):
        packed[b] += packed[buckets + b]


@inlined
def edges_two(buckets, node, min_leaf, wide, work):
    """sums[b] = weights before bucket b; edge[b] = score of the split after bucket b; bound[b] = most inside bucket b.

    wide: whether buckets have more than one code each; no bound is needed otherwise.

    d**2 / (w_l w_r) is convex in the counts, so over a bucket its maximum is at a corner: all of one class of the
    bucket to the left and all of the other to the right. The two remaining corners are the edges of the bucket,
    which are offered themselves; only where min_leaf may forbid them do they count here.
    """
    sums, edge, bound = work.sums, work.edge, work.bound
    ones, weight = node.total[ONE], node.weight
    running = ZERO
    sums[ZERO] = ZERO
    for b in range(buckets):
        running += work.packed[b]
        sums[b + ONE] = running
    for b in range(buckets):
        ones_before = np.int64(sums[b] >> SHIFT32)
        zeros_before = np.int64(sums[b] & BITS32)
        ones_after = np.int64(sums[b + ONE] >> SHIFT32)
        zeros_after = np.int64(sums[b + ONE] & BITS32)
        edge[b] = score_two(ones_after, zeros_after + ones_after, ones, weight)
        if wide:
            one = score_two(ones_after, zeros_before + ones_after, ones, weight)
            two = score_two(ones_before, zeros_after + ones_before, ones, weight)
            bound[b] = max(one, two)
    if wide and min_leaf > 1:
        bound[ZERO] = max(bound[ZERO], edge[ZERO])
        for b in range(ONE, buckets):
            bound[b] = max(bound[b], max(edge[b - ONE], edge[b]))


@inlined
def collect(low, shift, buckets, items, bar, work, projected):
    """Gather the keys of all buckets with bound >= bar and more than one row, bucket by bucket, from work.keys[1] on.

    work.places[b] becomes the end of bucket b's keys, or 0 if it is not among them. False if no bucket is. Where the
    codes stand for projections (`projected` is not None), these and their places are gathered, in the same way.
    """
    places, bound, codes, keys = work.places, work.bound, work.codes, work.keys
    n = np.uint64(items.size)
    opened = ZERO
    for b in range(buckets):
        opened += np.uint64(bound[b] >= bar)
        places[b] = np.uint32(0)
    if opened == ZERO:
        return False
    for i in range(n):
        places[np.uint64((codes[i] - low) >> shift)] += np.uint32(1)
    at = np.uint32(1)  # place 0 takes the rows of all other buckets
    for b in range(buckets):
        size = places[b]
        places[b] = np.uint32(0)
        if bound[b] >= bar and size > np.uint32(1):
            places[b] = at
            at += size
    for i in range(n):
        b = np.uint64((codes[i] - low) >> shift)
        place = places[b]
        if projected is None:
            keys[np.uint64(place)] = as_key(codes[i], items[i])
        else:
            projected.row[np.uint64(place)] = np.uint32(i)
            projected.ordered[np.uint64(place)] = projected.value[i]
        places[b] = place + np.uint32(place != np.uint32(0))
    return at > np.uint32(1)


@inlined
def open_two(low, shift, buckets, node, min_leaf, feature, best, work, projected):
    """Look inside the buckets whose bound reaches the best score: offer every boundary there."""
    if not collect(low, shift, buckets, node.items, best.limit[0], work, projected):
        return
    begin = ONE
    for b in range(buckets):
        end = np.uint64(work.places[b])
        if end != ZERO:
            if work.bound[b] >= best.limit[0]:
                before = work.sums[b]
                ones_l = np.int64(before >> SHIFT32)
                w_l = np.int64(before & BITS32) + ones_l
                if projected is None:
                    inside = work.packed[b]
                    weight = np.int64((inside & BITS32) + (inside >> SHIFT32))
                    boundaries_two(begin, end, weight, ones_l, w_l, node, min_leaf, feature, best, work)
                else:
                    order_bucket(projected, begin, end, b << np.uint64(shift), node.items, work)
                    walk_two(begin, end, ones_l, w_l, node, min_leaf, feature, best, work.keys)
                    keep_cut(projected, begin, end, b << np.uint64(shift), feature, best)
            begin = end


@inlined
def scan_two(low, high, node, min_leaf, feature, best, work):
    """Offer every threshold of `feature`, whose codes are work.codes[:n], low < high, after prepare_two.

    Few rows, unless they have few codes: by pairs. Many: histogram, score of every bucket edge, then open the few
    buckets that could hide better. Two codes have one threshold, which needs neither.
    """
    n = np.uint64(node.items.size)
    span = np.uint64(high - low)
    if span == ONE:
        inside = sum_of_code(low, work.codes, work.add, n)
        ones_l = np.int64(inside >> SHIFT32)
        w_l = np.int64(inside & BITS32) + ones_l
        if reaches(ones_l, w_l, node.total[ONE], node.weight, best.limit[0]):
            offer_two(node.total[ONE], node.weight, min_leaf, feature, np.int64(low), ones_l, w_l, best)
        return
    if by_pairs(node) and not is_counted(n, span):
        small_two(node, min_leaf, feature, best, work)
        return
    shift = np.uint32(0) if span < _FEW_CODES else shift_for(span, buckets_for_two(n))
    scan_buckets_two(low, shift, (span >> np.uint64(shift)) + ONE, node, min_leaf, feature, best, work, None)


@inlined
def buckets_for_two(n):
    """Most buckets worth their while for n rows, a power of two."""
    wanted = np.uint64(64)
    while wanted < np.uint64(BUCKETS_TWO) and wanted * np.uint64(8) < n:
        wanted *= np.uint64(2)
    return wanted


@inlined
def scan_buckets_two(low, shift, buckets, node, min_leaf, feature, best, work, projected):
    """scan_two by histogram: the edge of every bucket of 2**shift codes from `low` on, and what the few could hide.

    projected  Projected where the codes stand for projections: a bucket is opened by these. None for a feature.
    """
    histogram_two(low, shift, np.uint64(node.items.size), buckets, work)
    edges_two(buckets, node, min_leaf, shift > np.uint32(0), work)
    bar = best.limit[0]
    for b in range(buckets - ONE):
        if work.edge[b] >= bar:
            code = np.int64(low) + ((np.int64(b) + 1) << np.int64(shift)) - 1
            after = work.sums[b + ONE]
            ones_l = np.int64(after >> SHIFT32)
            offer_two(
                node.total[ONE], node.weight, min_leaf, feature, code, ones_l, np.int64(after & BITS32) + ones_l, best
            )
            bar = best.limit[0]
    if shift > np.uint32(0):
        open_two(low, shift, buckets, node, min_leaf, feature, best, work, projected)
