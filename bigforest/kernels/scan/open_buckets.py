"""Opening the buckets of a histogram that could hold a better split than the best so far. Oracle: tests/naive/split.py.

All scans by histogram share this: they score the edges of buckets, and bound the scores of the splits inside.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.columns.order_projections import keep_cut, order_bucket
from bigforest.kernels.common.node_scan import ONE, ZERO, as_key
from bigforest.kernels.common.sort import sort_bucket
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.selection import select_codes


@inlined
def collect(low, shift, buckets, items, bar, work, projected):
    """Gather the sort keys of all buckets with bound >= bar and more than one row, bucket by bucket, from work.keys[1]
    on.

    work.places[b] becomes the end of bucket b's keys, or 0 if they are not gathered. Returns whether any are. Where the
    codes stand for projections (`projected` is not None), these and their rows are gathered in the same way.
    """
    places, bound, codes, keys = work.places, work.bound, work.codes, work.keys
    n = np.uint64(items.size)
    first, last = buckets, ZERO
    for b in range(buckets):
        is_open = bound[b] >= bar
        first = min(first, b if is_open else buckets)
        last = max(last, b if is_open else ZERO)
        places[b] = np.uint32(0)
    if first == buckets:
        return False
    lowest = low + np.uint32(first << np.uint64(shift))
    span = np.uint32(((last - first + ONE) << np.uint64(shift)) - ONE)
    found = select_codes(codes, n, lowest, span, work.selected)
    for k in range(found):
        places[np.uint64((codes[work.selected[k]] - low) >> shift)] += np.uint32(1)
    at = np.uint32(1)  # place 0 takes the rows of all other buckets
    for b in range(first, last + ONE):
        size = places[b]
        places[b] = np.uint32(0)
        if bound[b] >= bar and size > np.uint32(1):
            places[b] = at
            at += size
    for k in range(found):
        i = work.selected[k]
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
def open_buckets(walk, arguments, low, shift, buckets, items, feature, best, work, projected):
    """Offer every boundary inside the buckets whose bound, work.bound[b], reaches the best score.

    walk(b, begin, end, *arguments)  an inlined function that offers those of bucket b, whose keys are sorted in
                                     work.keys[begin:end]
    low, shift  bucket b has the codes from low + (b << shift) on
    items       uint64 [n], whose lower halves are those of the keys
    projected   ProjectionScratch where the codes stand for projections; None for a feature, compiled separately
    """
    if not collect(low, shift, buckets, items, best.limit[0], work, projected):
        return
    begin = ONE
    for b in range(buckets):
        end = np.uint64(work.places[b])
        if end != ZERO:
            if work.bound[b] >= best.limit[0]:
                if projected is None:
                    sort_bucket(work.keys, begin, end)
                else:
                    order_bucket(projected, begin, end, b << np.uint64(shift), items, work.keys)
                walk(b, begin, end, *arguments)
                if projected is not None:
                    keep_cut(projected, begin, end, b << np.uint64(shift), feature, best)
            begin = end
