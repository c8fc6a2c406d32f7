"""Order the rows of a node by their codes. Oracle: numpy.sort."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import ONE, SHIFT32, SORT_BUCKETS, TWO, ZERO, as_key, shift_for
from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.llvm.numbers import larger, smaller
from bigforest.kernels.llvm.pairwise import PAIRS, sums_up_to

# Up to this many entries are sorted by insertion without gaps.
_FEW = np.uint64(48)
_THREE = np.uint64(3)
# More keys than this are divided at a code, up to _PARTS times.
_MANY = np.uint64(256)
_PARTS = 8
# A counting sort may have as many buckets as there are rows, but from _FEWEST to SORT_BUCKETS in any case.
_FEWEST = 512
# Up to _RANKED rows are ranked by comparing pairs, if the range of their codes is below _RANKED_SPAN: 32 bits then have
# room for a code and the index of a row.
_RANKED = 80
_INDEX_BITS = np.uint64(7)
_RANKED_SPAN = ONE << np.uint64(25)


@inlined
def first_gap(n):
    """Return the first gap for sorting n entries: 1, a plain insertion sort, for up to _FEW entries."""
    gap = ONE
    while gap * _FEW < n:
        gap = _THREE * gap + ONE
    return gap


@inlined
def insertion_sort(keys, gap, drop):
    """Sort by insertion each sequence of keys that are `gap` apart. A gap of 1 suits few or almost ordered keys.

    drop  uint64, bits at the end of a key that are not compared
    """
    for i in range(gap, np.uint64(keys.size)):
        key = keys[i]
        j = i
        while j >= gap and keys[j - gap] >> drop > key >> drop:
            keys[j] = keys[j - gap]
            j -= gap
        keys[j] = key


@inlined
def sort_by_gaps(keys, drop):
    """Sort keys by insertion with decreasing gaps (Shell 1959; gaps of Knuth, TAOCP 5.2.1); drop: of insertion_sort.

    Cost: O(n**1.5) steps for any order; 80 and 140 ns a key for 100,000 and 4,000,000 in random order.
    """
    gap = first_gap(np.uint64(keys.size))
    while gap > ONE:
        insertion_sort(keys, gap, drop)
        gap //= _THREE
    insertion_sort(keys, ONE, drop)


@helper
def sort_bucket(keys, begin, end):
    """Sort keys[begin:end]."""
    sort_by_gaps(keys[begin:end], ZERO)


@inlined
def part_at(keys, begin, end, code):
    """Move keys[begin:end] of smaller codes to the front, and keys of larger codes to the end (Dijkstra 1976).

    Return begin and end of the keys of this code, which are left between them.
    """
    i = begin
    while i < end:
        key = keys[i]
        if key >> SHIFT32 < code:
            keys[i] = keys[begin]
            keys[begin] = key
            begin += ONE
            i += ONE
        elif key >> SHIFT32 > code:
            end -= ONE
            keys[i] = keys[end]
            keys[end] = key
        else:
            i += ONE
    return begin, end


@inlined
def middle_code(keys, begin, end):
    """Return the median of the first, the middle and the last code."""
    first, middle, last = keys[begin] >> SHIFT32, keys[(begin + end) >> ONE] >> SHIFT32, keys[end - ONE] >> SHIFT32
    return larger(smaller(first, middle), smaller(larger(first, middle), last))


@helper
def sort_by_code(keys, begin, end):
    """Sort keys[begin:end] by their codes alone.

    In a large bucket, most keys often have the same code, such as the zeros of a column. So keys are first divided into
    smaller, equal and larger codes than a code that is probably frequent, up to _PARTS times; equal ones are in place.
    """
    for _ in range(_PARTS):
        if end - begin <= _MANY:
            break
        first, after = part_at(keys, begin, end, middle_code(keys, begin, end))
        if first - begin < end - after:
            sort_by_gaps(keys[begin:first], SHIFT32)
            begin = after
        else:
            sort_by_gaps(keys[after:end], SHIFT32)
            end = first
    sort_by_gaps(keys[begin:end], SHIFT32)


@helper
def sort_rows(codes, low, high, items, keys, positions):
    """Fill keys[:n] with the sort keys of the items, ascending by code.

    codes      uint32 [>= n], codes of the items, from `low` to `high`
    positions  uint32 [SORT_BUCKETS + 2], scratch

    Few rows are ranked by comparing all pairs. More rows are put into buckets, which are then sorted: about 4 ns per
    row.
    """
    n = np.uint64(items.size)
    span = np.uint64(high - low)
    if n <= np.uint64(_RANKED) and span < _RANKED_SPAN:
        distinct, ones, rank = positions[:PAIRS], positions[PAIRS : 2 * PAIRS], positions[2 * PAIRS : 3 * PAIRS]
        for i in range(n):
            # The index of the row in the lowest bits makes the ranks of equal codes distinct.
            distinct[i] = np.uint32((np.uint64(codes[i] - low) << _INDEX_BITS) | i)
            ones[i] = np.uint32(1)
        sums_up_to(distinct, ones, n, rank)
        for i in range(n):
            keys[np.uint64(rank[i]) - ONE] = as_key(codes[i], items[i])
        return
    shift = shift_for(span, smaller(larger(n, np.uint64(_FEWEST)), np.uint64(SORT_BUCKETS)))
    buckets = (span >> np.uint64(shift)) + ONE
    for b in range(buckets + ONE):
        positions[b] = np.uint32(0)
    for i in range(n):
        positions[np.uint64((codes[i] - low) >> shift) + ONE] += np.uint32(1)
    for b in range(buckets):
        positions[b + ONE] += positions[b]
    for i in range(n):
        bucket = np.uint64((codes[i] - low) >> shift)
        position = positions[bucket]
        positions[bucket] = position + np.uint32(1)
        keys[np.uint64(position)] = as_key(codes[i], items[i])
    if shift == np.uint32(0):
        return
    if n <= TWO * buckets:
        insertion_sort(keys[:n], ONE, SHIFT32)
        return
    begin = ZERO
    for b in range(buckets):
        end = np.uint64(positions[b])  # after the scatter, the position is the bucket's end
        sort_by_code(keys, begin, end)
        begin = end
