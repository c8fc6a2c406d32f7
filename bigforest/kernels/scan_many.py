"""The scan for any number of classes: Gini by histogram, bound and opening. Oracle: tests/naive/split.py."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.jit import helper, inlined
from bigforest.kernels.node import (
    BITS16,
    BUCKETS,
    GROUP,
    NEAR,
    NONE,
    ONE,
    SHIFT32,
    TWO,
    ZERO,
    class_of,
    offer_gini,
    shift_for,
)
from bigforest.kernels.order import keep_cut, order_bucket
from bigforest.kernels.pairs import PAIRS
from bigforest.kernels.scan_two import collect
from bigforest.kernels.sort import sort_bucket, sort_few, sort_rows

# Up to this many rows sorting beats the histogram, whose cost grows with the classes. Measured on seven and ten.
_SORTED = 1024
# Above this many rows the histogram has the most buckets there are.
_LARGE = 32_768
_GROUP = np.uint64(GROUP)
_GROUP_BITS = np.uint32(3)


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
def offer_many(min_leaf, feature, code, sq_l, w_l, sq_r, w_r, best):
    """Offer a split by its int64 sums; updates `best` when it is taken."""
    if w_l >= min_leaf and w_r >= min_leaf and offer_gini(best, feature, code, sq_l, w_l, sq_r, w_r):
        best.limit[0] = score_many(sq_l, w_l, sq_r, w_r) * NEAR


@inlined
def walk_many(begin, end, left, sq_l, w_l, sq_r, node, min_leaf, feature, best, work):
    """Offer every boundary between different codes of the sorted work.keys[begin:end].

    left int64 [classes]: weights before `begin`, consumed; sq_l, sq_r belong to it. O(1) per row: moving m rows of a
    class with l on the left and r on the right adds m (2 l + m) to sq_l and takes m (2 r - m) from sq_r.
    """
    keys, total, weight = work.keys, node.total, node.weight
    bar = best.limit[0]
    key = keys[begin]
    for i in range(begin + ONE, end):
        code = key >> SHIFT32
        k = class_of(key)
        m = np.int64(key & BITS16)
        before = left[k]
        sq_l += m * (2 * before + m)
        sq_r -= m * (2 * (total[k] - before) - m)
        left[k] = before + m
        w_l += m
        key = keys[i]
        if key >> SHIFT32 != code and reaches(sq_l, w_l, sq_r, weight - w_l, bar):
            offer_many(min_leaf, feature, np.int64(code), sq_l, w_l, sq_r, weight - w_l, best)
            bar = best.limit[0]


@inlined
def histogram_many(low, shift, items, buckets, classes, work):
    """work.hist[b * classes + k] = weight of class k among the rows whose work.codes fall into bucket b."""
    hist, codes = work.hist, work.codes
    for slot in range(buckets * classes):
        hist[slot] = np.uint32(0)
    for i in range(np.uint64(items.size)):
        item = items[i]
        hist[np.uint64((codes[i] - low) >> shift) * classes + class_of(item)] += np.uint32(item & BITS16)


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


@inlined
def bound_many(hist, base, left, w_l, inside, node):
    """Upper bound of the score of any split inside the bucket whose class weights start at hist[base], `inside` in sum.

    The decrease is sum_k d_k**2 / (w w_l w_r) with d_k = w l_k - t_k w_l. Inside the bucket l_k and w_l move together:
    where all of class k has moved, at least its weight w_k has; where none has, at most inside - w_k. So d_k is
    between w l_k - t_k (w_l + inside - w_k) and w (l_k + w_k) - t_k (w_l + w_k); w_l w_r is concave, least at an end.
    """
    w = np.float64(node.weight)
    start = np.float64(w_l)
    width = np.float64(inside)
    spread = 0.0
    for k in range(np.uint64(node.total.size)):
        total = np.float64(node.total[k])
        before = np.float64(left[k])
        here = np.float64(hist[base + k])
        least = w * before - total * (start + width - here)
        most = w * (before + here) - total * (start + here)
        spread += max(least * least, most * most)
    first = max(start, 1.0)
    last = min(start + width, w - 1.0)
    return np.float64(node.sq) / w + spread / (w * min(first * (w - first), last * (w - last)))


@helper
def sweep_many(hist, low, shift, begin, end, left, w_l, sq_l, sq_r, node, min_leaf, feature, best, bound):
    """Offer the edges of the buckets begin..end; where buckets hold several codes also set bound[b].

    left int64 [classes], w_l, sq_l, sq_r: what lies before bucket `begin`; left is consumed.
    """
    classes = np.uint64(node.total.size)
    for b in range(begin, end):
        base = b * classes
        inside = np.int64(0)
        for k in range(classes):
            inside += np.int64(hist[base + k])
        if inside == 0:
            bound[b] = -1.0
            continue
        if shift > np.uint32(0):
            bound[b] = bound_many(hist, base, left, w_l, inside, node) if inside > 1 else -1.0
        moved, sq_l, sq_r = pass_bucket(hist, base, left, node.total, sq_l, sq_r)
        w_l += moved
        w_r = node.weight - w_l
        if w_r > 0 and reaches(sq_l, w_l, sq_r, w_r, best.limit[0]):
            code = np.int64(low) + ((np.int64(b) + 1) << np.int64(shift)) - 1
            offer_many(min_leaf, feature, code, sq_l, w_l, sq_r, w_r, best)


@inlined
def clear(counts):
    """Set a short int64 array to zero."""
    for k in range(np.uint64(counts.size)):
        counts[k] = 0


@inlined
def sweep_groups(low, shift, buckets, node, min_leaf, feature, best, work):
    """sweep_many over all buckets, but only inside those groups of GROUP neighbours that could hold something better.

    The buckets of the other groups get bound -1.
    """
    hist, groups, left, inner = work.hist, work.groups, work.left, work.inner
    bound, group_bound = work.bound, work.group_bound
    classes = np.uint64(node.total.size)
    count = (buckets + _GROUP - ONE) // _GROUP
    for slot in range(buckets * classes, count * _GROUP * classes):
        hist[slot] = np.uint32(0)
    for g in range(count):
        for k in range(classes):
            together = np.uint32(0)
            for b in range(g * _GROUP, (g + ONE) * _GROUP):
                together += hist[b * classes + k]
            groups[g * classes + k] = together
    clear(left)
    sweep_many(
        groups,
        low,
        shift + _GROUP_BITS,
        ZERO,
        count,
        left,
        NONE,
        NONE,
        node.sq,
        node,
        min_leaf,
        feature,
        best,
        work.group_bound,
    )
    clear(left)
    w_l, sq_l, sq_r = NONE, NONE, node.sq
    for g in range(count):
        begin = g * _GROUP
        end = min(begin + _GROUP, buckets)
        if group_bound[g] >= best.limit[0]:
            for k in range(classes):
                inner[k] = left[k]
            sweep_many(hist, low, shift, begin, end, inner, w_l, sq_l, sq_r, node, min_leaf, feature, best, bound)
        else:
            for b in range(begin, end):
                bound[b] = -1.0
        moved, sq_l, sq_r = pass_bucket(groups, g * classes, left, node.total, sq_l, sq_r)
        w_l += moved


@inlined
def open_many(low, shift, buckets, node, min_leaf, feature, best, work, projected):
    """Look inside the buckets whose bound reaches the best score: offer every boundary there."""
    if not collect(low, shift, buckets, node.items, best.limit[0], work, projected):
        return
    left, inner = work.left, work.inner
    classes = np.uint64(node.total.size)
    clear(left)
    w_l, sq_l, sq_r = NONE, NONE, node.sq
    begin = ONE
    for b in range(buckets):
        end = np.uint64(work.places[b])
        if end != ZERO:
            if work.bound[b] >= best.limit[0]:
                if projected is None:
                    sort_bucket(work.keys, begin, end, work)
                else:
                    order_bucket(projected, begin, end, b << np.uint64(shift), node.items, work)
                for k in range(classes):
                    inner[k] = left[k]
                walk_many(begin, end, inner, sq_l, w_l, sq_r, node, min_leaf, feature, best, work)
                if projected is not None:
                    keep_cut(projected, begin, end, b << np.uint64(shift), feature, best)
            begin = end
        moved, sq_l, sq_r = pass_bucket(work.hist, b * classes, left, node.total, sq_l, sq_r)
        w_l += moved


@inlined
def buckets_for_many(n):
    """Most buckets worth their while for n rows, a power of two."""
    return np.uint64(BUCKETS // 4 if n < np.uint64(_LARGE) else BUCKETS)


@helper
def scan_buckets_many(low, shift, buckets, node, min_leaf, feature, best, work, projected):
    """scan_many by histogram: the edge of every bucket of 2**shift codes from `low` on, and what the few could hide.

    projected  Projected where the codes stand for projections: a bucket is opened by these. None for a feature.
    """
    classes = np.uint64(node.total.size)
    histogram_many(low, shift, node.items, buckets, classes, work)
    if buckets > TWO * _GROUP:
        sweep_groups(low, shift, buckets, node, min_leaf, feature, best, work)
    else:
        hist, left, bound = work.hist, work.left, work.bound
        clear(left)
        sweep_many(hist, low, shift, ZERO, buckets, left, NONE, NONE, node.sq, node, min_leaf, feature, best, bound)
    if shift > np.uint32(0):
        open_many(low, shift, buckets, node, min_leaf, feature, best, work, projected)


@inlined
def scan_many(low, high, node, min_leaf, feature, best, work):
    """Offer every threshold of `feature`, whose codes are work.codes[:n], low < high.

    Few rows: sort and walk. Many, or so few codes that a histogram is smaller than the rows: by histogram.
    """
    n = np.uint64(node.items.size)
    span = np.uint64(high - low)
    if n > np.uint64(_SORTED) or (span * np.uint64(node.total.size) < n and span < np.uint64(BUCKETS)):
        # A bucket of few codes may hold most rows, such as those of the value 0, and would be sorted to be looked into.
        shift = shift_for(span, np.uint64(BUCKETS) if span < np.uint64(BUCKETS) else buckets_for_many(n))
        scan_buckets_many(low, shift, (span >> np.uint64(shift)) + ONE, node, min_leaf, feature, best, work, None)
        return
    if n <= np.uint64(PAIRS):
        sort_few(low, high, node.items, work)
    else:
        sort_rows(low, high, node.items, work)
    clear(work.left)
    walk_many(ZERO, n, work.left, NONE, NONE, node.sq, node, min_leaf, feature, best, work)
