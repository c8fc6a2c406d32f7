"""Open the buckets of a histogram that may have a better split inside than the best so far. Oracle:
tests/naive/split.py.

A scan by histogram calls this code after it has computed the bound of each bucket. Only light nodes of two classes have
code of their own (two_class.py). The keys of the rows in open buckets are gathered. Each open bucket of a feature is
divided into narrow buckets, so that few rows are sorted at a time.

    buckets           0    1    2    3    4    5         bounds reach the best score in 1 and 4
    slots                  0              1              numbers of the open buckets
    narrow buckets         0 1            2 3            two in each; the keys of bucket 4 end with narrow bucket 3
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.columns.order_projections import keep_cut, order_bucket
from bigforest.kernels.common.node_scan import ONE, SORT_BUCKETS, ZERO, as_key
from bigforest.kernels.common.sort import sort_by_code
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.numbers import larger, smaller
from bigforest.kernels.llvm.selection import select_codes

# Slot of a bucket that is not opened.
_CLOSED = np.uint32(0xFFFFFFFF)
# Rows of a narrow bucket, on average.
_ROWS = np.uint64(8)


@inlined
def narrow_bucket(distance, shift, fine, work):
    """Return the narrow bucket of a code in an open bucket, uint64.

    distance  uint32, code less the first code of all buckets
    """
    inside = np.uint64(distance >> (shift - fine)) & ((ONE << np.uint64(fine)) - ONE)
    return (np.uint64(work.slot[np.uint64(distance >> shift)]) << np.uint64(fine)) | inside


@inlined
def collect(low, shift, buckets, items, bar, work, projected):
    """Gather the sort keys of all buckets with bound >= bar, bucket by bucket, in work.keys.

    Open bucket b is divided into 2**fine narrow buckets, from number work.slot[b] << fine on.
    work.positions[k] becomes the end of the keys of narrow bucket k. Return fine (uint32), and True if any bucket is
    open.

    If codes are made from projections (`projected` is not None), projections and rows are gathered instead of keys, and
    fine is 0.
    """
    positions, bound, slot, codes, selected = work.positions, work.bound, work.slot, work.codes, work.selected
    first, last, opened, fine = buckets, ZERO, ZERO, np.uint32(0)
    for b in range(buckets):
        is_open = bound[b] >= bar
        first = smaller(first, b if is_open else buckets)
        last = larger(last, b if is_open else ZERO)
        slot[b] = np.uint32(opened) if is_open else _CLOSED
        opened += np.uint64(is_open)
    if opened == ZERO:
        return fine, False
    lowest = np.uint32(low + np.uint32(first << np.uint64(shift)))
    span = np.uint32(((last - first + ONE) << np.uint64(shift)) - ONE)
    count = ZERO
    for k in range(select_codes(codes, np.uint64(items.size), lowest, span, selected)):
        i = selected[k]
        selected[count] = i
        count += np.uint64(slot[np.uint64(np.uint32(codes[i] - low) >> shift)] != _CLOSED)
    if projected is None:
        most = smaller(count // _ROWS, np.uint64(SORT_BUCKETS))
        while fine < shift and (opened << np.uint64(fine + np.uint32(1))) <= most:
            fine += np.uint32(1)
    for k in range(opened << np.uint64(fine)):
        positions[k] = np.uint32(0)
    for k in range(count):
        positions[narrow_bucket(np.uint32(codes[selected[k]] - low), shift, fine, work)] += np.uint32(1)
    at = np.uint32(0)
    for k in range(opened << np.uint64(fine)):
        size = positions[k]
        positions[k] = at
        at += size
    for k in range(count):
        i = selected[k]
        narrow = narrow_bucket(np.uint32(codes[i] - low), shift, fine, work)
        position = np.uint64(positions[narrow])
        positions[narrow] += np.uint32(1)
        if projected is None:
            work.keys[position] = as_key(codes[i], items[i])
        else:
            projected.row[position] = np.uint32(i)
            projected.ordered[position] = projected.value[i]
    return fine, True


@inlined
def open_buckets(walk, arguments, low, shift, buckets, items, scan, projected):
    """Offer every boundary inside the buckets whose bound, work.bound[b], reaches the best score.

    walk(b, begin, end, *arguments)  an inlined function that offers the boundaries inside bucket b, whose sorted keys
                                     are work.keys[begin:end]
    low, shift  bucket b has the codes from low + (b << shift) on, see `buckets_from`. The first has a single code and
                is not opened, unless codes are made from projections
    items       uint64 [n], items of the node. Their lower halves become the lower halves of the keys
    projected   ProjectionScratch if codes are made from projections; None for a feature
    """
    best, work = scan.best, scan.work
    if projected is None:
        work.bound[ZERO] = -1.0
    fine, is_any = collect(low, shift, buckets, items, best.bar[0], work, projected)
    if not is_any:
        return
    begin = ZERO
    for b in range(buckets):
        if work.slot[b] != _CLOSED:
            narrow = np.uint64(work.slot[b]) << np.uint64(fine)
            after = narrow + (ONE << np.uint64(fine))
            end = np.uint64(work.positions[after - ONE])
            if end - begin > ONE and work.bound[b] >= best.bar[0]:
                if projected is None:
                    start = begin
                    for k in range(narrow, after):
                        stop = np.uint64(work.positions[k])
                        sort_by_code(work.keys, start, stop)
                        start = stop
                else:
                    order_bucket(projected, begin, end, b << np.uint64(shift), items, work.keys)
                walk(b, begin, end, *arguments)
                if projected is not None:
                    keep_cut(projected, begin, end, b << np.uint64(shift), scan)
            begin = end
