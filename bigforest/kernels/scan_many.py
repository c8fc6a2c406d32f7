"""The scan for any number of classes: Gini by histogram, bound and opening; the other impurities by sorting."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.impurity import side_score
from bigforest.kernels.jit import helper, inlined
from bigforest.kernels.scan import (
    BITS16,
    BUCKETS,
    CODE,
    FEATURE,
    NEAR,
    ONE,
    SHIFT16,
    SHIFT32,
    SQ_L,
    SQ_R,
    TWO,
    W_L,
    W_R,
    ZERO,
    as_key,
    offer_gini,
    sort_bucket,
)

GROUP_BITS = np.uint32(3)
GROUP = np.uint64(8)


@inlined
def score_many(sq_l, w_l, sq_r, w_r):
    """sq_l / w_l + sq_r / w_r in float64; the weights are positive."""
    return np.float64(sq_l) / np.float64(w_l) + np.float64(sq_r) / np.float64(w_r)


@inlined
def reaches(sq_l, w_l, sq_r, w_r, bar):
    """Whether score_many is at least `bar`, without dividing."""
    left = np.float64(w_l)
    right = np.float64(w_r)
    return np.float64(sq_l) * right + np.float64(sq_r) * left >= bar * (left * right)


@helper
def offer_many(best, limit, feature, code, sq_l, w_l, sq_r, w_r, min_leaf):
    """Offer a split by its int64 sums; updates best and limit when it is taken."""
    if w_l >= min_leaf and w_r >= min_leaf and offer_gini(best, feature, code, sq_l, w_l, sq_r, w_r):
        limit[0] = score_many(sq_l, w_l, sq_r, w_r) * NEAR


@helper
def walk_many(keys, begin, end, left, total, sq_l, w_l, sq_r, weight, min_leaf, feature, best, limit):
    """Offer every boundary between different codes of keys[begin:end].

    left int64 [classes]: weights before `begin`, consumed; sq_l, sq_r belong to it. O(1) per row: moving m rows of a
    class with l on the left and r on the right adds m (2 l + m) to sq_l and takes m (2 r - m) from sq_r.
    """
    key = keys[begin]
    code = key >> SHIFT32
    bar = limit[0]
    for i in range(begin + ONE, end):
        k = (key >> SHIFT16) & BITS16
        m = np.int64(key & BITS16)
        before = left[k]
        sq_l += m * (2 * before + m)
        sq_r -= m * (2 * (total[k] - before) - m)
        left[k] = before + m
        w_l += m
        key = keys[i]
        following = key >> SHIFT32
        if following != code and reaches(sq_l, w_l, sq_r, weight - w_l, bar):
            offer_many(best, limit, feature, np.int64(code), sq_l, w_l, sq_r, weight - w_l, min_leaf)
            bar = limit[0]
        code = following


@helper
def walk_scores(impurity, table, keys, n, left, right, total, weight, min_leaf, feature, best):
    """Offer every boundary of keys[:n] under an impurity whose scores are integers (entropy, error); O(classes) each.

    left, right int64 [classes] are scratch; total int64 [classes] are the node's class weights.
    """
    for k in range(total.size):
        left[k] = 0
        right[k] = total[k]
    w_l = np.int64(0)
    for i in range(ONE, n):
        key = keys[i - ONE]
        k = (key >> SHIFT16) & BITS16
        m = np.int64(key & BITS16)
        left[k] += m
        right[k] -= m
        w_l += m
        w_r = weight - w_l
        code = key >> SHIFT32
        if keys[i] >> SHIFT32 != code and w_l >= min_leaf and w_r >= min_leaf:
            score_l = side_score(impurity, left, w_l, table)
            score_r = side_score(impurity, right, w_r, table)
            gain = score_l + score_r - best[SQ_L] - best[SQ_R]
            if best[FEATURE] < 0 or gain > 0 or (gain == 0 and feature < best[FEATURE]):
                best[FEATURE] = feature
                best[CODE] = np.int64(code)
                best[SQ_L] = score_l
                best[W_L] = w_l
                best[SQ_R] = score_r
                best[W_R] = w_r


@helper
def histogram_many(codes, low, shift, items, n, buckets, classes, hist):
    """hist[b * classes + k] = weight of class k in bucket b; codes uint32 [n], items uint64 [n], hist uint32."""
    for b in range(buckets * classes):
        hist[b] = np.uint32(0)
    for i in range(n):
        item = items[i]
        slot = np.uint64((codes[i] - low) >> shift) * classes + ((item >> SHIFT16) & BITS16)
        hist[slot] += np.uint32(item & BITS16)


@inlined
def bound_many(hist, base, left, total, w_l, w_bucket, weight):
    """Upper bound of the score of any split inside the bucket whose class weights start at hist[base].

    The decrease is sum_k d_k**2 / (w w_l w_r) with d_k = w l_k - t_k w_l. Inside the bucket l_k and w_l move together:
    where all of class k has moved, at least its weight w_k has; where none has, at most w_bucket - w_k. So d_k is between
    w l_k - t_k (w_l + w_bucket - w_k) and w (l_k + w_k) - t_k (w_l + w_k); w_l w_r is concave, so least at an end.
    """
    w = np.float64(weight)
    start = np.float64(w_l)
    inside = np.float64(w_bucket)
    spread = 0.0
    squares = 0.0
    for k in range(np.uint64(total.size)):
        t = np.float64(total[k])
        before = np.float64(left[k])
        here = np.float64(hist[base + k])
        least = w * before - t * (start + inside - here)
        most = w * (before + here) - t * (start + here)
        spread += max(least * least, most * most)
        squares += t * t
    first = max(start, 1.0)
    last = min(start + inside, w - 1.0)
    return squares / w + spread / (w * min(first * (w - first), last * (w - last)))


@inlined
def pass_bucket(hist, base, left, total, sq_l, sq_r):
    """Move the bucket at hist[base] to the left: updates `left`, returns the weight moved and the new sq_l, sq_r."""
    moved = np.int64(0)
    for k in range(np.uint64(total.size)):
        m = np.int64(hist[base + k])
        before = left[k]
        sq_l += m * (2 * before + m)
        sq_r -= m * (2 * (total[k] - before) - m)
        left[k] = before + m
        moved += m
    return moved, sq_l, sq_r


@helper
def sweep_many(
    hist, low, shift, begin, end, left, total, w_l, sq_l, sq_r, weight, min_leaf, feature, best, limit, bound
):
    """Offer the edges of the buckets begin..end; where buckets hold several codes also set bound[b].

    left int64 [classes], w_l, sq_l, sq_r: what lies before bucket `begin`; left is consumed.
    """
    classes = np.uint64(total.size)
    for b in range(begin, end):
        base = b * classes
        inside = np.int64(0)
        for k in range(classes):
            inside += np.int64(hist[base + k])
        if inside == 0:
            bound[b] = -1.0
            continue
        if shift > np.uint32(0):
            bound[b] = bound_many(hist, base, left, total, w_l, inside, weight) if inside > 1 else -1.0
        moved, sq_l, sq_r = pass_bucket(hist, base, left, total, sq_l, sq_r)
        w_l += moved
        if w_l < weight and reaches(sq_l, w_l, sq_r, weight - w_l, limit[0]):
            code = np.int64(low) + ((np.int64(b) + 1) << np.int64(shift)) - 1
            offer_many(best, limit, feature, code, sq_l, w_l, sq_r, weight - w_l, min_leaf)


@helper
def sweep_groups(
    hist, groups, low, shift, buckets, left, inner, total, sq, weight, min_leaf, feature, best, limit, bound
):
    """sweep_many over all buckets, but only inside those groups of GROUP neighbours that could hold something better.

    groups uint32 [buckets / GROUP * classes] and the tail of `bound` are scratch; buckets of other groups get bound -1.
    """
    classes = np.uint64(total.size)
    count = (buckets + GROUP - ONE) // GROUP
    row = GROUP * classes
    for slot in range(buckets * classes, count * row):
        hist[slot] = np.uint32(0)
    for g in range(count):
        for k in range(classes):
            groups[g * classes + k] = np.uint32(0)
        for b in range(GROUP):
            for k in range(classes):
                groups[g * classes + k] += hist[g * row + b * classes + k]
    group_bound = bound[BUCKETS:]
    for k in range(classes):
        left[k] = 0
    sweep_many(
        groups,
        low,
        shift + GROUP_BITS,
        ZERO,
        count,
        left,
        total,
        0,
        0,
        sq,
        weight,
        min_leaf,
        feature,
        best,
        limit,
        group_bound,
    )
    for k in range(classes):
        left[k] = 0
    w_l = np.int64(0)
    sq_l = np.int64(0)
    sq_r = sq
    for g in range(count):
        begin = g * GROUP
        end = min(begin + GROUP, buckets)
        if group_bound[g] >= limit[0]:
            for k in range(classes):
                inner[k] = left[k]
            sweep_many(
                hist,
                low,
                shift,
                begin,
                end,
                inner,
                total,
                w_l,
                sq_l,
                sq_r,
                weight,
                min_leaf,
                feature,
                best,
                limit,
                bound,
            )
        else:
            for b in range(begin, end):
                bound[b] = -1.0
        moved, sq_l, sq_r = pass_bucket(groups, g * classes, left, total, sq_l, sq_r)
        w_l += moved


@helper
def open_many(
    codes,
    low,
    shift,
    items,
    n,
    hist,
    buckets,
    bound,
    left,
    inner,
    total,
    sq,
    weight,
    min_leaf,
    feature,
    best,
    limit,
    keys,
    places,
    pairs,
):
    """Look inside the buckets whose bound reaches the best score: collect their rows, sort, offer every boundary."""
    classes = np.uint64(total.size)
    bar = limit[0]
    opened = ZERO
    for b in range(buckets):
        opened += np.uint64(bound[b] >= bar)
        places[b] = np.uint32(0)
    if opened == ZERO:
        return ZERO
    for i in range(n):
        places[np.uint64((codes[i] - low) >> shift)] += np.uint32(1)
    at = np.uint32(1)  # place 0 takes the rows of all closed buckets
    for b in range(buckets):
        size = places[b]
        places[b] = np.uint32(0)
        if bound[b] >= bar and size > np.uint32(1):
            places[b] = at
            at += size
    for i in range(n):
        b = np.uint64((codes[i] - low) >> shift)
        place = places[b]
        keys[np.uint64(place)] = as_key(codes[i], items[i])
        places[b] = place + np.uint32(place != np.uint32(0))
    for k in range(classes):
        left[k] = 0
    begin = ONE
    w_l = np.int64(0)
    sq_l = np.int64(0)
    sq_r = sq
    for b in range(buckets):
        base = b * classes
        end = np.uint64(places[b])
        if end != ZERO:
            if bound[b] >= limit[0]:
                sort_bucket(keys, begin, end, pairs)
                for k in range(classes):
                    inner[k] = left[k]
                walk_many(keys, begin, end, inner, total, sq_l, w_l, sq_r, weight, min_leaf, feature, best, limit)
            begin = end
        moved, sq_l, sq_r = pass_bucket(hist, base, left, total, sq_l, sq_r)
        w_l += moved
    return np.uint64(at)


@helper
def scan_many(
    codes,
    low,
    high,
    items,
    n,
    wanted,
    hist,
    groups,
    bound,
    left,
    inner,
    total,
    sq,
    weight,
    min_leaf,
    feature,
    best,
    limit,
    keys,
    places,
    pairs,
):
    """Histogram, score the bucket edges, open the few buckets that could hide something better (Gini).

    codes uint32 [n] in low..high; wanted: most buckets; hist uint32 [BUCKETS * classes], groups an eighth of that;
    bound float64 [BUCKETS * 9 / 8]; left, inner int64 [classes] scratch; sq = sum of squares of total. Returns the
    rows looked at twice.
    """
    classes = np.uint64(total.size)
    shift = np.uint32(0)
    span = np.uint64(high - low)
    while (span >> np.uint64(shift)) >= wanted:
        shift += np.uint32(1)
    buckets = (span >> np.uint64(shift)) + ONE
    histogram_many(codes, low, shift, items, n, buckets, classes, hist)
    if buckets > TWO * GROUP:
        sweep_groups(
            hist,
            groups,
            low,
            shift,
            buckets,
            left,
            inner,
            total,
            sq,
            weight,
            min_leaf,
            feature,
            best,
            limit,
            bound,
        )
    else:
        for k in range(classes):
            left[k] = 0
        sweep_many(
            hist,
            low,
            shift,
            ZERO,
            buckets,
            left,
            total,
            0,
            0,
            sq,
            weight,
            min_leaf,
            feature,
            best,
            limit,
            bound,
        )
    if shift > np.uint32(0):
        return open_many(
            codes,
            low,
            shift,
            items,
            n,
            hist,
            buckets,
            bound,
            left,
            inner,
            total,
            sq,
            weight,
            min_leaf,
            feature,
            best,
            limit,
            keys,
            places,
            pairs,
        )
    return ZERO
