"""Order the rows of a node by their codes. Oracle: numpy.sort."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import ONE, SHIFT32, SORT_BUCKETS, TWO, ZERO, as_key, shift_for
from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.llvm.pairwise import PAIRS, sums_up_to

_POSITION_BITS = np.uint64(7)
# Codes this far apart leave no room for a position in 32 bits.
_FAR = ONE << np.uint64(25)


@helper
def sort_many(keys, begin, end):
    """Heapsort of keys[begin:end]: in place, and no input is slow (Williams 1964)."""
    size = end - begin
    start = size // TWO
    last = size
    while last > ONE:
        if start > ZERO:  # build the heap
            start -= ONE
        else:  # move the largest to the end
            last -= ONE
            largest = keys[begin]
            keys[begin] = keys[begin + last]
            keys[begin + last] = largest
        at = start
        key = keys[begin + at]
        child = TWO * at + ONE
        while child < last:
            if child + ONE < last and keys[begin + child] < keys[begin + child + ONE]:
                child += ONE
            if keys[begin + child] <= key:
                break
            keys[begin + at] = keys[begin + child]
            at = child
            child = TWO * at + ONE
        keys[begin + at] = key


@inlined
def rank_pairs(n, work):
    """work.pair_sum[i] = 1 + number of i < n <= PAIRS whose work.pair_code, distinct numbers, are smaller."""
    sums_up_to(work.pair_code, work.pair_one, n, work.pair_sum)


@inlined
def sort_pairs(keys, begin, end, work):
    """Sort keys[begin:end] of 2 to PAIRS keys by code, by counting for each those that precede it."""
    n = end - begin
    low = keys[begin] >> SHIFT32
    high = low
    for i in range(n):
        code = keys[begin + i] >> SHIFT32
        low = min(low, code)
        high = max(high, code)
    if high - low >= _FAR:
        sort_many(keys, begin, end)
        return
    for i in range(n):
        key = keys[begin + i]
        work.pair_key[i] = key
        # The position makes equal codes distinct, so that their ranks are.
        work.pair_code[i] = np.uint32((((key >> SHIFT32) - low) << _POSITION_BITS) | i)
    rank_pairs(n, work)
    for i in range(n):
        keys[begin + np.uint64(work.pair_sum[i]) - ONE] = work.pair_key[i]


@inlined
def sort_few(codes, low, high, items, keys, work):
    """What sort_rows does, for up to PAIRS rows."""
    n = np.uint64(items.size)
    if np.uint64(high - low) >= _FAR:
        for i in range(n):
            keys[i] = as_key(codes[i], items[i])
        sort_many(keys, ZERO, n)
        return
    for i in range(n):
        work.pair_code[i] = np.uint32((np.uint64(codes[i] - low) << _POSITION_BITS) | i)
    rank_pairs(n, work)
    for i in range(n):
        keys[np.uint64(work.pair_sum[i]) - ONE] = as_key(codes[i], items[i])


@helper
def sort_bucket(keys, begin, end, work):
    """Sort keys[begin:end] by code: by pairs for a few, by heap for many."""
    size = end - begin
    if size == TWO:
        first = keys[begin]
        second = keys[begin + ONE]
        keys[begin] = min(first, second)
        keys[begin + ONE] = max(first, second)
    elif size > np.uint64(PAIRS):
        sort_many(keys, begin, end)
    elif size > TWO:
        sort_pairs(keys, begin, end, work)


@inlined
def insertion_sort(keys, n):
    """Sort keys[:n], which are few, or mostly in place or next to it."""
    for i in range(ONE, n):
        key = keys[i]
        j = i
        while j > ZERO and keys[j - ONE] > key:
            keys[j] = keys[j - ONE]
            j -= ONE
        keys[j] = key


@helper
def sort_rows(codes, low, high, items, keys, work):
    """keys[:n] = sort keys of the items, ascending by code; codes[:n] in low..high are their codes.

    A counting sort into buckets, then each bucket. About 4 ns per row.
    """
    n = np.uint64(items.size)
    places = work.places
    span = np.uint64(high - low)
    shift = shift_for(span, min(max(n, np.uint64(512)), np.uint64(SORT_BUCKETS)))
    buckets = (span >> np.uint64(shift)) + ONE
    for b in range(buckets + ONE):
        places[b] = np.uint32(0)
    for i in range(n):
        places[np.uint64((codes[i] - low) >> shift) + ONE] += np.uint32(1)
    for b in range(buckets):
        places[b + ONE] += places[b]
    for i in range(n):
        bucket = np.uint64((codes[i] - low) >> shift)
        place = places[bucket]
        places[bucket] = place + np.uint32(1)
        keys[np.uint64(place)] = as_key(codes[i], items[i])
    if shift == np.uint32(0):
        return
    if n <= TWO * buckets:
        insertion_sort(keys, n)
        return
    begin = ZERO
    for b in range(buckets):
        end = np.uint64(places[b])  # after the scatter a place is its bucket's end
        sort_bucket(keys, begin, end, work)
        begin = end
