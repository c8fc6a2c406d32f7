"""The scan for two classes under Gini.

With d = n1_l * w - n1 * w_l, the decrease of a split is 2 d**2 / (w_l w_r w**2); the scale here is d**2 / (w_l w_r).
A bucket's weights travel as one uint64, class 1 in the upper half, so one addition counts both.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.jit import helper, inlined
from bigforest.kernels.pairs import PAIRS, sums_up_to
from bigforest.kernels.scan import (
    BITS16,
    LOW,
    NEAR,
    ONE,
    SHIFT16,
    SHIFT32,
    ZERO,
    as_key,
    offer_gini,
    sort_many,
)


@inlined
def score_two(ones_l, w_l, ones, weight):
    """d**2 / (w_l w_r) of int64 counts; -1 where a side is empty."""
    w_r = weight - w_l
    d = np.float64(ones_l * weight - ones * w_l)
    room = np.float64(w_l) * np.float64(w_r)
    return d * d / room if room > 0.0 else -1.0


@inlined
def reaches(ones_l, w_l, ones, weight, bar):
    """Whether score_two is at least `bar`, without dividing; both sides have weight."""
    d = np.float64(ones_l * weight - ones * w_l)
    return d * d >= bar * (np.float64(w_l) * np.float64(weight - w_l))


@helper
def offer_two(best, limit, feature, code, ones_l, w_l, ones, weight, min_leaf):
    """Offer a split by its counts; updates best and limit when it is taken."""
    w_r = weight - w_l
    if w_l < min_leaf or w_r < min_leaf:
        return
    zeros_l = w_l - ones_l
    ones_r = ones - ones_l
    zeros_r = w_r - ones_r
    sq_l = zeros_l * zeros_l + ones_l * ones_l
    sq_r = zeros_r * zeros_r + ones_r * ones_r
    if offer_gini(best, feature, code, sq_l, w_l, sq_r, w_r):
        limit[0] = score_two(ones_l, w_l, ones, weight) * NEAR


@helper
def walk_two(keys, begin, end, ones_l, w_l, ones, weight, min_leaf, feature, best, limit):
    """Offer every boundary between different codes of keys[begin:end]; ones_l, w_l int64 lie left of `begin`."""
    key = keys[begin]
    code = key >> SHIFT32
    bar = limit[0]
    for i in range(begin + ONE, end):
        multiplicity = np.int64(key & BITS16)
        ones_l += multiplicity * np.int64((key >> SHIFT16) & ONE)
        w_l += multiplicity
        key = keys[i]
        following = key >> SHIFT32
        if following != code and reaches(ones_l, w_l, ones, weight, bar):
            offer_two(best, limit, feature, np.int64(code), ones_l, w_l, ones, weight, min_leaf)
            bar = limit[0]
        code = following


@inlined
def pairs_two(keys, begin, end, ones_l, w_l, ones, weight, min_leaf, feature, best, limit, pairs):
    """What walk_two does, for 2 to PAIRS keys in any order and with less than 65,536 weight between them.

    For every row the weights of the rows with codes up to its own, counted over all pairs: sixteen an instruction, no
    sorting, no branch.
    """
    n = end - begin
    for i in range(n):
        key = keys[begin + i]
        pairs.code[i] = np.uint32(key >> SHIFT32)
        pairs.add[i] = np.uint32(key & BITS16) << np.uint32(((key >> SHIFT16) & ONE) << np.uint64(4))
    sums_up_to(pairs.code, pairs.add, n, pairs.rank)
    last = np.uint32(0)
    for i in range(n):
        last = max(last, pairs.code[i])
    bar = limit[0]
    for i in range(n):
        packed = pairs.rank[i]
        ones_here = ones_l + np.int64(packed >> np.uint32(16))
        w_here = w_l + np.int64((packed >> np.uint32(16)) + (packed & np.uint32(0xFFFF)))
        if reaches(ones_here, w_here, ones, weight, bar) and pairs.code[i] != last:
            offer_two(best, limit, feature, np.int64(pairs.code[i]), ones_here, w_here, ones, weight, min_leaf)
            bar = limit[0]


@inlined
def boundaries_two(keys, begin, end, inside, ones_l, w_l, ones, weight, min_leaf, feature, best, limit, pairs):
    """Offer every boundary of keys[begin:end], in any order, of total weight `inside`."""
    if end - begin <= np.uint64(PAIRS) and inside < np.uint64(65536):
        pairs_two(keys, begin, end, ones_l, w_l, ones, weight, min_leaf, feature, best, limit, pairs)
    else:
        sort_many(keys, begin, end)
        walk_two(keys, begin, end, ones_l, w_l, ones, weight, min_leaf, feature, best, limit)


@helper
def histogram_two(codes, low, shift, add, n, buckets, hist):
    """hist[b] = packed weights of the rows of bucket b; codes uint32 [n], add uint64 [n], hist uint64 [buckets]."""
    for b in range(buckets):
        hist[b] = ZERO
    for i in range(n):
        hist[np.uint64((codes[i] - low) >> shift)] += add[i]


@helper
def edges_two(hist, buckets, ones, weight, min_leaf, sums, edge, bound):
    """sums[b] = packed weights before bucket b; edge[b] = score of the split after bucket b; bound[b] = most inside b.

    d**2 / (w_l w_r) is convex in the counts, so over a bucket its maximum is at a corner: all of one class of the
    bucket to the left and all of the other to the right. The two remaining corners are the edges of the bucket,
    which are offered themselves; only where min_leaf may forbid them do they count here.
    """
    total = ZERO
    sums[ZERO] = ZERO
    for b in range(buckets):
        total += hist[b]
        sums[b + ONE] = total
    for b in range(buckets):
        ones_before = np.int64(sums[b] >> SHIFT32)
        zeros_before = np.int64(sums[b] & LOW)
        ones_after = np.int64(sums[b + ONE] >> SHIFT32)
        zeros_after = np.int64(sums[b + ONE] & LOW)
        edge[b] = score_two(ones_after, zeros_after + ones_after, ones, weight)
        one = score_two(ones_after, zeros_before + ones_after, ones, weight)
        two = score_two(ones_before, zeros_after + ones_before, ones, weight)
        bound[b] = max(one, two)
    if min_leaf > 1:
        bound[ZERO] = max(bound[ZERO], edge[ZERO])
        for b in range(ONE, buckets):
            bound[b] = max(bound[b], max(edge[b - ONE], edge[b]))


@helper
def open_two(
    codes,
    low,
    shift,
    items,
    n,
    sums,
    buckets,
    bound,
    ones,
    weight,
    min_leaf,
    feature,
    best,
    limit,
    keys,
    offsets,
    pairs,
):
    """Look inside the buckets whose bound reaches the best score: collect their rows, sort, offer every boundary."""
    bar = limit[0]
    opened = ZERO
    for b in range(buckets):
        opened += np.uint64(bound[b] >= bar)
    if opened == ZERO:
        return ZERO
    counts = offsets
    for b in range(buckets):
        counts[b] = np.uint32(0)
    for i in range(n):
        counts[np.uint64((codes[i] - low) >> shift)] += np.uint32(1)
    at = np.uint32(1)
    for b in range(buckets):
        if bound[b] >= bar and counts[b] > np.uint32(1):
            size = counts[b]
            counts[b] = at
            at += size
        else:
            counts[b] = np.uint32(0)
    taken = at
    for i in range(n):
        b = np.uint64((codes[i] - low) >> shift)
        place = counts[b]
        keys[np.uint64(place)] = as_key(codes[i], items[i])
        counts[b] = place + np.uint32(place != np.uint32(0))
    begin = ONE
    for b in range(buckets):
        end = np.uint64(counts[b])
        if end != ZERO:
            if bound[b] >= limit[0]:
                ones_before = np.int64(sums[b] >> SHIFT32)
                w_before = np.int64(sums[b] & LOW) + ones_before
                inside = sums[b + ONE] - sums[b]
                boundaries_two(
                    keys,
                    begin,
                    end,
                    (inside & LOW) + (inside >> SHIFT32),
                    ones_before,
                    w_before,
                    ones,
                    weight,
                    min_leaf,
                    feature,
                    best,
                    limit,
                    pairs,
                )
            begin = end
    return np.uint64(taken)


@helper
def scan_two(
    codes,
    low,
    high,
    add,
    items,
    n,
    wanted,
    hist,
    sums,
    edge,
    bound,
    ones,
    weight,
    min_leaf,
    feature,
    best,
    limit,
    keys,
    offsets,
    pairs,
):
    """Histogram, score every bucket edge, open the few buckets that could hide something better.

    codes uint32 [n] in low..high; add uint64 [n]: multiplicity in the half of its class; wanted: most buckets.
    Returns the rows looked at twice.
    """
    shift = np.uint32(0)
    span = np.uint64(high - low)
    while (span >> np.uint64(shift)) >= wanted:
        shift += np.uint32(1)
    buckets = (span >> np.uint64(shift)) + ONE
    histogram_two(codes, low, shift, add, n, buckets, hist)
    edges_two(hist, buckets, ones, weight, min_leaf, sums, edge, bound)
    for b in range(buckets - ONE):
        if edge[b] >= limit[0]:
            code = np.int64(low) + ((np.int64(b) + 1) << np.int64(shift)) - 1
            after = sums[b + ONE]
            ones_l = np.int64(after >> SHIFT32)
            offer_two(best, limit, feature, code, ones_l, np.int64(after & LOW) + ones_l, ones, weight, min_leaf)
    if shift > np.uint32(0):
        return open_two(
            codes,
            low,
            shift,
            items,
            n,
            sums,
            buckets,
            bound,
            ones,
            weight,
            min_leaf,
            feature,
            best,
            limit,
            keys,
            offsets,
            pairs,
        )
    return ZERO
