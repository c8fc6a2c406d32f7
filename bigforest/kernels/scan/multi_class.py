"""The scan for any number of classes: Gini by histogram, bound and opening. Oracle: tests/naive/split.py."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import (
    BITS16,
    BUCKETS,
    NEAR,
    ONE,
    SHIFT32,
    SORTED,
    TWO,
    ZERO,
    ZERO_I64,
    as_key,
    buckets_for,
    class_of,
    offer_gini,
    shift_for,
)
from bigforest.kernels.common.sort import sort_few, sort_rows
from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.llvm.multi_class_edges import bound_buckets, score_edges, stride_for
from bigforest.kernels.scan.open_buckets import open_buckets
from bigforest.kernels.scan.packed_counts import pack_weights, sum_of_code

# Up to this many rows sorting by pairs beats counting.
_FEW = np.uint64(80)
# Arguments of buckets_for: the fewest and the most buckets, and rows for each.
BUCKETS_FOR_MANY = (64, BUCKETS, 16)
# Costs in units of a bucket and class: a bucket besides its classes, sorting a row, a histogram besides its buckets.
# Measured on 3 to 8 classes.
_LOOP = np.uint64(2)
_SORT = np.uint64(9)
_ONCE = np.uint64(180)
# Weights of this many classes, each below 2**16, share 64 bits: work.add has that of class k shifted by 16 k bits.
_PACKED = 4
_PACKED_WEIGHT = 65_536
_LOG_WIDTH = np.uint64(4)
# An upper bound on the relative error of float scores per class.
_ROUNDING = 2.0**-50
# More than any node weighs.
_HEAVIEST = np.int64(2**31 - 1)


@inlined
def score_many(sq_l, w_l, sq_r, w_r):
    """sq_l / w_l + sq_r / w_r in float64; the weights are positive."""
    return np.float64(sq_l) / np.float64(w_l) + np.float64(sq_r) / np.float64(w_r)


@inlined
def reaches_many(sq_l, w_l, sq_r, w_r, bar):
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
def walk_many(begin, end, sq_l, w_l, sq_r, node, min_leaf, feature, best, work):
    """Offer every boundary between different codes of the sorted work.keys[begin:end], from the last.

    work.left: class weights before `end`, consumed; sq_l, w_l, sq_r belong to it. O(1) per row: moving m rows of a
    class with l on the left and r on the right takes m (2 l - m) from sq_l and adds m (2 r + m) to sq_r.
    """
    keys, left, total, weight = work.keys, work.left, node.total, node.weight
    bar = best.limit[0]
    key = keys[end - ONE]
    for i in range(ONE, end - begin):
        code = key >> SHIFT32
        k = class_of(key)
        m = np.int64(key & BITS16)
        after = left[k]
        sq_l -= m * (2 * after - m)
        sq_r += m * (2 * (total[k] - after) + m)
        left[k] = after - m
        w_l -= m
        key = keys[end - ONE - i]
        if key >> SHIFT32 != code and reaches_many(sq_l, w_l, sq_r, weight - w_l, bar):
            offer_many(min_leaf, feature, np.int64(key >> SHIFT32), sq_l, w_l, sq_r, weight - w_l, best)
            bar = best.limit[0]


@inlined
def histogram_many(low, shift, items, stride, classes, work):
    """Weights of the rows by class and by the bucket that their work.codes fall into, in work.hist
    (multi_class_edges.py).

    If there is room, odd rows are counted in a second table: an addition waits for the one before it to the same place,
    which is frequent with few buckets.
    """
    hist, codes = work.hist, work.codes
    n, places = np.uint64(items.size), stride * classes
    apart = places if stride + stride <= np.uint64(BUCKETS) else ZERO
    for place in range(places + apart):
        hist[place] = np.uint32(0)
    for i in range(ZERO, n - ONE, TWO):
        count_row(items[i], (codes[i] - low) >> shift, ZERO, stride, hist)
        count_row(items[i + ONE], (codes[i + ONE] - low) >> shift, apart, stride, hist)
    if n & ONE:
        count_row(items[n - ONE], (codes[n - ONE] - low) >> shift, ZERO, stride, hist)
    if apart != ZERO:
        for place in range(places):
            hist[place] += hist[apart + place]


@inlined
def count_row(item, bucket, start, stride, hist):
    """Count an item in its bucket of the histogram that begins at `start`."""
    hist[start + class_of(item) * stride + np.uint64(bucket) + ONE] += np.uint32(item & BITS16)


@inlined
def put_all_left(node, work):
    """work.left = class weights of the node."""
    for k in range(np.uint64(node.total.size)):
        work.left[k] = node.total[k]


@inlined
def sums_before(b, stride, node, work):
    """Class weights before bucket b, to work.left; returns w_l, sq_l and sq_r."""
    left, w_l, sq_l, sq_r = work.left, ZERO_I64, ZERO_I64, ZERO_I64
    for k in range(np.uint64(node.total.size)):
        here = np.int64(work.hist[k * stride + b])
        rest = node.total[k] - here
        left[k] = here
        w_l += here
        sq_l += here * here
        sq_r += rest * rest
    return w_l, sq_l, sq_r


@inlined
def offer_edges_many(low, shift, buckets, stride, node, min_leaf, feature, best, work):
    """Offer the splits between the buckets of work.hist: those whose float scores are the highest are compared."""
    classes = np.uint64(node.total.size)
    slack = 1.0 - np.float64(classes) * _ROUNDING
    least = min(np.int64(min_leaf), _HEAVIEST)
    highest = score_edges(work.hist, stride, buckets, node.total, node.weight, least, work.edge)
    bar = max(best.limit[0], highest * NEAR) * slack
    if highest < bar:
        return
    weights = classes * stride
    for b in range(buckets):
        if work.edge[b] >= bar and work.hist[weights + b + ONE] != work.hist[weights + b]:
            w_l, sq_l, sq_r = sums_before(b + ONE, stride, node, work)
            code = np.int64(low) + ((np.int64(b) + 1) << np.int64(shift)) - 1
            offer_many(min_leaf, feature, code, sq_l, w_l, sq_r, node.weight - w_l, best)


@inlined
def walk_bucket_many(b, begin, end, stride, node, min_leaf, feature, best, work):
    """Offer every boundary inside bucket b, see open_buckets."""
    w_l, sq_l, sq_r = sums_before(b + ONE, stride, node, work)
    walk_many(begin, end, sq_l, w_l, sq_r, node, min_leaf, feature, best, work)


@helper
def scan_buckets_many(low, shift, buckets, node, min_leaf, feature, best, work, projected):
    """scan_many by histogram: the edge of every bucket of 2**shift codes from `low` on, and the buckets that could hold
    a better split.

    projected  ProjectionScratch where the codes stand for projections, by which a bucket is opened. None for a feature.
    """
    stride = stride_for(buckets)
    histogram_many(low, shift, node.items, stride, np.uint64(node.total.size), work)
    offer_edges_many(low, shift, buckets, stride, node, min_leaf, feature, best, work)
    if shift > np.uint32(0):
        whole = np.float64(node.sq) / np.float64(node.weight)
        bound_buckets(work.hist, stride, buckets, node.total, node.weight, whole, work.bound)
        arguments = (stride, node, min_leaf, feature, best, work)
        open_buckets(walk_bucket_many, arguments, low, shift, buckets, node.items, feature, best, work, projected)


@inlined
def count_above(low, n, work):
    """How many of work.codes[:n] are above `low`."""
    above = ZERO
    for i in range(n):
        above += np.uint64(work.codes[i] != low)
    return above


@inlined
def set_above_apart(low, items, work):
    """work.above_code and work.above_item = those of the rows whose work.codes are above `low`, without a branch."""
    at = ZERO
    for i in range(np.uint64(items.size)):
        work.above_code[at] = work.codes[i]
        work.above_item[at] = items[i]
        at += np.uint64(work.codes[i] != low)


@inlined
def sort_and_walk(low, high, above, node, min_leaf, feature, best, work):
    """scan_many for up to SORTED rows of which `above` exceed the smallest code: only these are sorted."""
    work.keys[ZERO] = as_key(low, ZERO)  # in place of all other rows, which are never moved
    set_above_apart(low, node.items, work)
    keys, items = work.keys[ONE:], work.above_item[:above]
    if above <= _FEW:
        sort_few(work.above_code, low, high, items, keys, work)
    else:
        sort_rows(work.above_code, low, high, items, keys, work)
    put_all_left(node, work)
    walk_many(ZERO, above + ONE, node.sq, node.weight, ZERO_I64, node, min_leaf, feature, best, work)


@inlined
def is_packed(node):
    """Whether the weights by class of the node share one number."""
    return node.total.size <= _PACKED and node.weight < _PACKED_WEIGHT


@inlined
def prepare_many(node, work):
    """Once per node, before scan_many: its multiplicities by class, in work.add, if it is_packed."""
    if is_packed(node):
        pack_weights(node.items, _LOG_WIDTH, work.add)


@inlined
def scan_two_codes(low, node, min_leaf, feature, best, work):
    """scan_many for a feature of two codes in a node that is_packed: it has one threshold."""
    inside = sum_of_code(low, work.codes, work.add, np.uint64(node.items.size))
    w_l, sq_l, sq_r = ZERO_I64, ZERO_I64, ZERO_I64
    for k in range(np.uint64(node.total.size)):
        here = np.int64((inside >> (k << _LOG_WIDTH)) & BITS16)
        rest = node.total[k] - here
        w_l += here
        sq_l += here * here
        sq_r += rest * rest
    if reaches_many(sq_l, w_l, sq_r, node.weight - w_l, best.limit[0]):
        offer_many(min_leaf, feature, np.int64(low), sq_l, w_l, sq_r, node.weight - w_l, best)


@inlined
def scan_many(low, high, node, min_leaf, feature, best, work):
    """Offer every threshold of `feature`, whose codes are work.codes[:n], low < high, after prepare_many.

    Few rows: sort those above the smallest code, and walk. Many, or so few codes that a histogram is smaller than these
    rows: by histogram.
    """
    n = np.uint64(node.items.size)
    span = np.uint64(high - low)
    if span == ONE and is_packed(node):
        scan_two_codes(low, node, min_leaf, feature, best, work)
        return
    few = n <= np.uint64(SORTED)
    above = count_above(low, n, work) if few else n
    # A bucket of few codes may hold most rows, such as those of the value 0; opening it would sort them.
    exact = span < np.uint64(BUCKETS)
    if few and not (exact and span * (np.uint64(node.total.size) + _LOOP) + _ONCE < above * _SORT):
        sort_and_walk(low, high, above, node, min_leaf, feature, best, work)
        return
    shift = shift_for(span, np.uint64(BUCKETS) if exact else buckets_for(n, *BUCKETS_FOR_MANY))
    scan_buckets_many(low, shift, (span >> np.uint64(shift)) + ONE, node, min_leaf, feature, best, work, None)
