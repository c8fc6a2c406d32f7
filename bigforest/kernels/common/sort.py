"""Order the rows of a node by their codes. Oracle: numpy.sort."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import ONE, SORT_BUCKETS, TWO, ZERO, as_key, shift_for
from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.llvm.numbers import larger, smaller
from bigforest.kernels.llvm.pairwise import PAIRS, sums_up_to

# Up to this many entries are sorted by insertion without gaps.
_FEW = np.uint64(48)
_THREE = np.uint64(3)
# Fewest buckets of a counting sort, unless the range has fewer codes.
_FEWEST = 512
# Up to _RANKED rows are ranked by comparing pairs, if the range of their codes is below _NEAR: 32 bits then have room
# for a code and the index of a row.
_RANKED = 80
_INDEX_BITS = np.uint64(7)
_NEAR = ONE << np.uint64(25)


@inlined
def first_gap(n):
    """Return the first gap for sorting n entries: 1, a plain insertion sort, for up to _FEW entries."""
    gap = ONE
    while gap * _FEW < n:
        gap = _THREE * gap + ONE
    return gap


@inlined
def insertion_sort(keys, gap):
    """Sort by insertion each sequence of keys that are `gap` apart. A gap of 1 suits few or almost ordered keys."""
    for i in range(gap, np.uint64(keys.size)):
        key = keys[i]
        j = i
        while j >= gap and keys[j - gap] > key:
            keys[j] = keys[j - gap]
            j -= gap
        keys[j] = key


@helper
def sort_bucket(keys, begin, end):
    """Sort keys[begin:end] by insertion with decreasing gaps (Shell 1959; gaps of Knuth, TAOCP 5.2.1).

    Cost: O(n**1.5) steps for any order; 80 and 140 ns a key for 100,000 and 4,000,000 in random order.
    """
    gap = first_gap(end - begin)
    while gap > ONE:
        insertion_sort(keys[begin:end], gap)
        gap //= _THREE
    insertion_sort(keys[begin:end], ONE)


@helper
def sort_rows(codes, low, high, items, keys, positions):
    """Fill keys[:n] with the sort keys of the items, ascending by code.

    codes      uint32, codes[:n] are the codes of the items, from `low` to `high`
    positions  uint32 [SORT_BUCKETS + 2], scratch

    Few rows are ranked by comparing all pairs. More rows are put into buckets, which are then sorted. About 4 ns per
    row.
    """
    n = np.uint64(items.size)
    span = np.uint64(high - low)
    if n <= np.uint64(_RANKED) and span < _NEAR:
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
        insertion_sort(keys[:n], ONE)
        return
    begin = ZERO
    for b in range(buckets):
        end = np.uint64(positions[b])  # after the scatter, the position is the bucket's end
        sort_bucket(keys, begin, end)
        begin = end
