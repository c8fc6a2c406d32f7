"""Score splits by Gini impurity in forests of more than two classes, and offer the best. Oracle: tests/naive/split.py.

The score of a split is sq_l / w_l + sq_r / w_r, with sq the sum of squared class weights of a side and w its weight.

1. In nodes of few rows, renumber the classes that are present and leave out the others.
2. Few rows: sort the rows above the smallest code, and walk down from the largest code. Rows of the smallest code are
   on the left of every split, so they are not sorted.
3. Many rows, or few codes: count rows by class and bucket, score the splits at the edges of buckets in vectors, offer
   the splits with the highest score, and open the buckets whose bound reaches the best score (open_buckets.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.node_scan import (
    BITS16,
    NEAR,
    ONE,
    SHIFT16,
    SHIFT32,
    ZERO,
    ZERO_I64,
    Node,
    as_key,
    buckets_from,
    class_of,
    heavy_buckets,
    last_code,
    most_buckets,
    offer_gini,
    shift_for,
)
from bigforest.kernels.common.sort import sort_rows
from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.llvm.edges import score_edges, stride_for
from bigforest.kernels.llvm.lanes import LANES
from bigforest.kernels.llvm.numbers import larger, smaller
from bigforest.kernels.scan.open_buckets import open_buckets

# Up to this many rows are sorted, unless they have few codes.
SORTED = 1024
# Up to this many codes get a bucket each.
_BUCKETS = 1024
# Arguments of `heavy_buckets` for more than _BUCKETS codes: fewest buckets, most buckets, and rows per bucket.
_MANY_BUCKETS = (64, _BUCKETS, 16)
# Most entries of a histogram of more than _BUCKETS buckets, so that it fits the cache of a core.
_ENTRIES = 2**17
# Classes are renumbered in nodes of up to this many rows. Larger nodes have nearly all classes.
FEW_ROWS = 4096
# Costs of a bucket, of sorting a row, and of a histogram, measured on 3 to 8 classes. The unit is the cost of one class
# in one bucket.
_LOOP = np.uint64(2)
_SORT = np.uint64(9)
_ONCE = np.uint64(180)
# Upper bound of the relative error of float scores, per class.
_ROUNDING = 2.0**-50
# No node weighs more.
_HEAVIEST = np.int64(2**31 - 1)
_CLASS = np.uint64(0xFFFF) << SHIFT16


class ManyClassScratch(NamedTuple):
    """Scratch of one growing tree for Gini of more than two classes.

    items        uint64 [FEW_ROWS], items of the node with the new numbers of their classes
    total        int64 [classes], weights of the new classes
    number       uint64 [classes], the new number of each class, shifted to its bits in items
    left         int64 [classes], class weights on the left of a split
    hist         uint32 [(classes + 1) * (most + LANES + 1)], histogram (kernels/llvm/edges.py), one bucket for the
                 smallest code and up to `most` others
    most         uint64 [1], _BUCKETS or more
    above_code   uint32 [SORTED], codes above the smallest
    above_item   uint64 [SORTED], items of their rows
    """

    items: NDArray[np.uint64]
    total: NDArray[np.int64]
    number: NDArray[np.uint64]
    left: NDArray[np.int64]
    hist: NDArray[np.uint32]
    most: NDArray[np.uint64]
    above_code: NDArray[np.uint32]
    above_item: NDArray[np.uint64]


def make_many_class_scratch(classes: int, rows: int) -> ManyClassScratch:
    """Allocate ManyClassScratch for `classes` classes and nodes of up to `rows` rows."""
    buckets = max(_BUCKETS, min(most_buckets(rows), _ENTRIES // (classes + 1)) // LANES * LANES)
    return ManyClassScratch(
        np.empty(FEW_ROWS, np.uint64),
        np.empty(classes, np.int64),
        np.empty(classes, np.uint64),
        np.empty(classes, np.int64),
        np.empty((buckets + LANES + 1) * (classes + 1), np.uint32),
        np.array([buckets], np.uint64),
        np.empty(SORTED, np.uint32),
        np.empty(SORTED, np.uint64),
    )


@inlined
def many_buckets(n, many):
    """Return the number of buckets for n rows, uint64."""
    return smaller(heavy_buckets(n, *_MANY_BUCKETS), many.most[ZERO])


@inlined
def with_present_classes(node, many):
    """Return the node with its present classes only, in scratch, or unchanged if it has all classes or many rows.

    The best split depends neither on the numbering of classes nor on absent classes. Without absent classes the
    histogram is smaller, and a light node with two present classes is scanned by two_class.py.
    """
    items, total = node.items, node.total
    if items.size > FEW_ROWS:
        return node
    present = ZERO
    for k in range(np.uint64(total.size)):
        many.number[k] = present << SHIFT16
        many.total[present] = total[k]
        present += np.uint64(total[k] > 0)
    if present == np.uint64(total.size):
        return node
    for i in range(np.uint64(items.size)):
        many.items[i] = (items[i] & ~_CLASS) | many.number[class_of(items[i])]
    return Node(many.items[: items.size], many.total[:present], node.weight, node.sq, node.key)


@inlined
def score_many(sq_l, w_l, sq_r, w_r):
    """Return sq_l / w_l + sq_r / w_r, float64; the weights are positive."""
    return np.float64(sq_l) / np.float64(w_l) + np.float64(sq_r) / np.float64(w_r)


@inlined
def reaches_many(sq_l, w_l, sq_r, w_r, bar):
    """Return True if score_many is at least `bar`, without dividing."""
    left = np.float64(w_l)
    right = np.float64(w_r)
    return np.float64(sq_l) * right + np.float64(sq_r) * left >= bar * (left * right)


@helper
def offer_many(code, sq_l, w_l, sq_r, w_r, scan):
    """Offer a split by its int64 sums."""
    if w_l >= scan.min_leaf and w_r >= scan.min_leaf and offer_gini(scan, code, sq_l, w_l, sq_r, w_r):
        scan.best.bar[0] = score_many(sq_l, w_l, sq_r, w_r) * NEAR


@helper
def walk_many(begin, end, sq_l, w_l, sq_r, scan, left):
    """Offer every boundary between different codes of the sorted work.keys[begin:end], starting at the end.

    left             class weights before `end`; overwritten
    sq_l, w_l, sq_r  sums of the split at `end`

    The sums are updated in constant time per key. Let a class weigh l on the left and r on the right. If a key of this
    class and of weight m moves to the right, sq_l decreases by m (2 l - m) and sq_r increases by m (2 r + m).
    """
    total, weight, keys = scan.node.total, scan.node.weight, scan.work.keys
    bar = scan.best.bar[0]
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
            offer_many(np.int64(key >> SHIFT32), sq_l, w_l, sq_r, weight - w_l, scan)
            bar = scan.best.bar[0]


@inlined
def walk_all_many(end, scan, left):
    """Offer every boundary of the sorted work.keys[:end] of a node.

    keys[0] represents all rows of the smallest code, which have no keys of their own.
    """
    node = scan.node
    for k in range(np.uint64(node.total.size)):
        left[k] = node.total[k]
    walk_many(ZERO, end, node.sq, node.weight, ZERO_I64, scan, left)


@inlined
def sums_before(b, stride, node, many):
    """Fill many.left with the class weights before bucket b; return w_l, sq_l and sq_r of the split there."""
    w_l, sq_l, sq_r = ZERO_I64, ZERO_I64, ZERO_I64
    for k in range(np.uint64(node.total.size)):
        left_k = np.int64(many.hist[k * stride + b])
        right_k = node.total[k] - left_k
        many.left[k] = left_k
        w_l += left_k
        sq_l += left_k * left_k
        sq_r += right_k * right_k
    return w_l, sq_l, sq_r


@inlined
def bound_many(before, after, total, weight):
    """Return an upper bound of the scores of the splits inside a bucket, float64.

    before, after  [classes], class weights before the bucket and up to its end

    Let t_k, l_k be the weights of class k in the node and on the left of the split, and w, w_l, w_r the weights of all
    classes in the node, on the left and on the right. The score is

        sum_k t_k**2 / w + sum_k d_k**2 / (w w_l w_r)   with   d_k = w l_k - t_k w_l

    Inside the bucket, w_l grows from `start` to `end`, and l_k from before_k to after_k, by c_k.

    1. d_k is least if the split takes none of class k and all other rows of the bucket:
       w before_k - t_k (end - c_k).
    2. d_k is largest if the split takes all of class k and no other row: w after_k - t_k (start + c_k).
    3. w_l w_r is concave in w_l, so it is least at an end of the bucket.
    """
    start, end, squares, spread, w = 0.0, 0.0, 0.0, 0.0, np.float64(weight)
    for k in range(np.uint64(total.size)):
        start += np.float64(before[k])
        end += np.float64(after[k])
        squares += np.float64(total[k]) * np.float64(total[k])
    for k in range(np.uint64(total.size)):
        t_k, before_k, after_k = np.float64(total[k]), np.float64(before[k]), np.float64(after[k])
        c_k = after_k - before_k
        least = w * before_k - t_k * (end - c_k)
        most = w * after_k - t_k * (start + c_k)
        spread += larger(least * least, most * most)
    first, last = larger(start, 1.0), smaller(end, w - 1.0)
    room = w * smaller(first * (w - first), last * (w - last))
    return squares / w + spread / room if room > 0.0 else np.inf


@inlined
def walk_bucket_many(b, begin, end, stride, scan, many):
    """Offer every boundary inside bucket b, whose sorted keys are work.keys[begin:end]; see open_buckets."""
    w_l, sq_l, sq_r = sums_before(b + ONE, stride, scan.node, many)
    walk_many(begin, end, sq_l, w_l, sq_r, scan, many.left)


@inlined
def count_row(item, bucket, start, stride, hist):
    """Count an item in its bucket of the histogram that begins at `start`."""
    hist[start + class_of(item) * stride + np.uint64(bucket) + ONE] += np.uint32(item & BITS16)


@inlined
def histogram_many(low, shift, items, codes, stride, classes, hist):
    """Sum the weights of the rows by class and by the bucket of their codes, in `hist` (kernels/llvm/edges.py).

    If there is room, odd rows are counted in a second table. The processor has to wait if it adds to an entry that was
    changed just before. This is frequent with few buckets, and less frequent with two tables.
    """
    n, entries = np.uint64(items.size), stride * classes
    apart = entries if stride + stride <= np.uint64(_BUCKETS) else ZERO
    for entry in range(entries + apart):
        hist[entry] = np.uint32(0)
    for i in range(n):
        count_row(items[i], np.uint32(codes[i] - low) >> shift, (i & ONE) * apart, stride, hist)
    if apart != ZERO:
        for entry in range(entries):
            hist[entry] += hist[apart + entry]


@helper
def scan_buckets_many(low, shift, buckets, scan, many, projected):
    """Offer every threshold of a feature by a histogram of buckets of 2**shift codes from `low` on.

    projected  ProjectionScratch, whose projections order the rows of an opened bucket; None for a feature
    """
    node, work = scan.node, scan.work
    stride, classes, hist, weight = stride_for(buckets), np.uint64(node.total.size), many.hist, node.weight
    histogram_many(low, shift, node.items, work.codes, stride, classes, hist)
    min_leaf = smaller(np.int64(scan.min_leaf), _HEAVIEST)
    highest = score_edges(hist, stride, buckets, node.total, weight, min_leaf, work.edge)
    bar = larger(scan.best.bar[0], highest * NEAR) * (1.0 - np.float64(classes) * _ROUNDING)
    if highest >= bar:
        for b in range(buckets):  # skip the edge of an empty bucket: its split equals the one before
            if work.edge[b] >= bar and hist[classes * stride + b + ONE] != hist[classes * stride + b]:
                w_l, sq_l, sq_r = sums_before(b + ONE, stride, node, many)
                code = np.int64(last_code(low, b, shift))
                offer_many(code, sq_l, w_l, sq_r, weight - w_l, scan)
    if shift > np.uint32(0):
        end, all_classes = stride * classes, hist[stride * classes :]
        for b in range(buckets):
            work.bound[b] = -1.0
            if all_classes[b + ONE] - all_classes[b] > np.uint32(1):
                work.bound[b] = bound_many(hist[b:end:stride], hist[b + ONE : end : stride], node.total, weight)
        open_buckets(walk_bucket_many, (stride, scan, many), low, shift, buckets, node.items, scan, projected)


@inlined
def scan_many(low, high, scan, many):
    """Offer every threshold of a feature, as `scan_codes` (criterion.py)."""
    node, work = scan.node, scan.work
    n, span = np.uint64(node.items.size), np.uint64(high - low)
    # Few codes get a bucket each, which is never opened: a bucket of several codes might have nearly all rows, such as
    # all zeros, and opening it would sort them.
    bucket_per_code = span < np.uint64(_BUCKETS)
    if n <= np.uint64(SORTED):
        above = ZERO
        for i in range(n):
            above += np.uint64(work.codes[i] != low)
        count_is_cheaper = bucket_per_code and span * (np.uint64(node.total.size) + _LOOP) + _ONCE < above * _SORT
        if not count_is_cheaper:
            at = ZERO
            for i in range(n):  # without a branch
                many.above_code[at] = work.codes[i]
                many.above_item[at] = node.items[i]
                at += np.uint64(work.codes[i] != low)
            work.keys[ZERO] = as_key(low, ZERO)  # represents the rows of the smallest code, which stay on the left
            sort_rows(many.above_code, low, high, many.above_item[:above], work.keys[ONE:], work.positions)
            walk_all_many(above + ONE, scan, many.left)
            return
    shift = np.uint32(0) if bucket_per_code else shift_for(span, many_buckets(n, many))
    first, buckets = buckets_from(low, span, shift)
    scan_buckets_many(first, shift, buckets, scan, many, None)
