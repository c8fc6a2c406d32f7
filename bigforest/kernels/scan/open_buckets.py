"""Opening the buckets of a histogram that could hold a better split than the best so far. Oracle: tests/naive/split.py.

All scans by histogram share this: they score the edges of buckets, and bound the scores of the splits inside. The rows
of open buckets are gathered, for a feature by narrower buckets, so that few rows are left to be sorted at a time.

    buckets           0    1    2    3    4    5         bounds reach the best score in 1 and 4
    slots                  0              1
    narrow buckets         0 1            2 3            two for each, so the keys of bucket 4 end with those of 3
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.columns.order_projections import keep_cut, order_bucket
from bigforest.kernels.common.node_scan import ONE, SORT_BUCKETS, ZERO, as_key
from bigforest.kernels.common.sort import sort_bucket
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.selection import select_codes

# Slot of a bucket that is not opened.
_CLOSED = np.uint32(0xFFFFFFFF)
# Rows of a narrow bucket, on average.
_ROWS = np.uint64(8)


@inlined
def narrow_bucket(distance, shift, fine, work):
    """Return the narrow bucket of a code in an open bucket, uint64; distance: uint32, from the first code of all
    buckets."""
    inside = np.uint64(distance >> (shift - fine)) & ((ONE << np.uint64(fine)) - ONE)
    return (np.uint64(work.slot[np.uint64(distance >> shift)]) << np.uint64(fine)) | inside


@inlined
def collect(low, shift, buckets, items, bar, work, projected):
    """Gather the sort keys of all buckets with bound >= bar, bucket by bucket, in work.keys.

    Open bucket b is divided into 2**fine narrow ones, work.slot[b] << fine and the following; work.places[k] becomes
    the end of the keys of narrow bucket k. Return fine (uint32), and whether any bucket is open. Where the codes
    represent projections (`projected` is not None), these and their rows are gathered in the same way, and fine is 0.
    """
    places, bound, slot, codes, selected = work.places, work.bound, work.slot, work.codes, work.selected
    first, last, opened, fine = buckets, ZERO, ZERO, np.uint32(0)
    for b in range(buckets):
        is_open = bound[b] >= bar
        first = min(first, b if is_open else buckets)
        last = max(last, b if is_open else ZERO)
        slot[b] = np.uint32(opened) if is_open else _CLOSED
        opened += np.uint64(is_open)
    if opened == ZERO:
        return fine, False
    lowest = low + np.uint32(first << np.uint64(shift))
    span = np.uint32(((last - first + ONE) << np.uint64(shift)) - ONE)
    found = ZERO
    for k in range(select_codes(codes, np.uint64(items.size), lowest, span, selected)):
        i = selected[k]
        selected[found] = i
        found += np.uint64(slot[np.uint64((codes[i] - low) >> shift)] != _CLOSED)
    if projected is None:
        most = min(found // _ROWS, np.uint64(SORT_BUCKETS))
        while fine < shift and (opened << np.uint64(fine + np.uint32(1))) <= most:
            fine += np.uint32(1)
    for k in range(opened << np.uint64(fine)):
        places[k] = np.uint32(0)
    for k in range(found):
        places[narrow_bucket(codes[selected[k]] - low, shift, fine, work)] += np.uint32(1)
    at = np.uint32(0)
    for k in range(opened << np.uint64(fine)):
        size = places[k]
        places[k] = at
        at += size
    for k in range(found):
        i = selected[k]
        narrow = narrow_bucket(codes[i] - low, shift, fine, work)
        place = np.uint64(places[narrow])
        places[narrow] += np.uint32(1)
        if projected is None:
            work.keys[place] = as_key(codes[i], items[i])
        else:
            projected.row[place] = np.uint32(i)
            projected.ordered[place] = projected.value[i]
    return fine, True


@inlined
def open_buckets(walk, arguments, low, shift, buckets, items, feature, best, work, projected):
    """Offer every boundary inside the buckets whose bound, work.bound[b], reaches the best score.

    walk(b, begin, end, *arguments)  an inlined function that offers those of bucket b, whose keys are sorted in
                                     work.keys[begin:end]
    low, shift  bucket b has the codes from low + (b << shift) on
    items       uint64 [n], whose lower halves are those of the keys
    projected   ProjectionScratch where the codes stand for projections; None for a feature, compiled separately
    """
    fine, is_any = collect(low, shift, buckets, items, best.limit[0], work, projected)
    if not is_any:
        return
    begin = ZERO
    for b in range(buckets):
        if work.slot[b] != _CLOSED:
            narrow = np.uint64(work.slot[b]) << np.uint64(fine)
            after = narrow + (ONE << np.uint64(fine))
            end = np.uint64(work.places[after - ONE])
            if end - begin > ONE and work.bound[b] >= best.limit[0]:
                if projected is None:
                    start = begin
                    for k in range(narrow, after):
                        stop = np.uint64(work.places[k])
                        sort_bucket(work.keys, start, stop)
                        start = stop
                else:
                    order_bucket(projected, begin, end, b << np.uint64(shift), items, work.keys)
                walk(b, begin, end, *arguments)
                if projected is not None:
                    keep_cut(projected, begin, end, b << np.uint64(shift), feature, best)
            begin = end
