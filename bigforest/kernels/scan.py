"""Best threshold of one feature in one node, found exactly. Oracle: tests/naive/split.py.

A node's rows come as `items`: row << 32 | class << 16 | multiplicity, one uint64 each, rows ascending.
A sort key is code << 32 | class << 16 | multiplicity, so ordering keys orders codes.
The best split so far of the node is `best`, int64 [feature, code, sq_l, w_l, sq_r, w_r]: codes up to `code` go left,
w_l, w_r are the weights of the sides and sq_l, sq_r their sums of squared class weights (or, for the impurities that
are compared as integers, their scores). feature is -1 when there is none. `limit`, float64 [1], is its score in the
scanner's own scale: a cheap filter before the exact comparison, right to about 1e-15.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.exact import compare_gini
from bigforest.kernels.jit import helper, inlined
from bigforest.kernels.pairs import PAIRS, sums_up_to

FEATURE, CODE, SQ_L, W_L, SQ_R, W_R = range(6)

LOW = np.uint64(0xFFFFFFFF)
BITS16 = np.uint64(0xFFFF)
SHIFT16 = np.uint64(16)
SHIFT32 = np.uint64(32)
ONE = np.uint64(1)
TWO = np.uint64(2)
ZERO = np.uint64(0)

# A float score this much below the limit cannot be as good: rounding is about 1e-15 of the score.
NEAR = 1.0 - 1e-12

# Up to this weight the cross products of two Gini scores fit 63 bits.
SMALL = 4096

POSITION_BITS = np.uint64(7)
DISTINCT = ONE << np.uint64(25)  # codes this far apart leave no room for a position in 32 bits
# Most buckets of one histogram.
BUCKETS = 1024
# Buckets of the counting sort never exceed this.
SORT_BUCKETS = 4096


class Pairs(NamedTuple):
    """Scratch of the loops over all pairs of a few rows; PAIRS long each."""

    key: NDArray[np.uint64]
    code: NDArray[np.uint32]
    rank: NDArray[np.uint32]
    add: NDArray[np.uint32]
    score: NDArray[np.float64]


@inlined
def gather_column(column, items, n, out):
    """out[i] = column[row of items[i]]."""
    for i in range(n):
        out[i] = column[items[i] >> SHIFT32]


@inlined
def gather_row(table, slot, items, n, out):
    """out[i] = table[row of items[i], slot]."""
    for i in range(n):
        out[i] = table[items[i] >> SHIFT32, slot]


@helper
def gather(codes, rows, feature, items, n, out):
    """out[i] = code of the row of items[i], i < n; returns the smallest and the largest (uint32).

    codes Codes, rows Rows, items uint64 [>= n], out uint32 [>= n] (written). Rows ascend, so memory is read forward.
    """
    width = codes.place[feature, 0]
    slot = np.uint64(codes.place[feature, 1])
    few = n <= np.uint64(rows.reach)
    if width == np.uint32(1):
        if few:
            gather_row(rows.r8, slot, items, n, out)
        else:
            gather_column(codes.u8[slot], items, n, out)
    elif width == np.uint32(2):
        if few:
            gather_row(rows.r16, slot, items, n, out)
        else:
            gather_column(codes.u16[slot], items, n, out)
    else:
        if few:
            gather_row(rows.r32, slot, items, n, out)
        else:
            gather_column(codes.u32[slot], items, n, out)
    low = np.uint32(0xFFFFFFFF)
    high = np.uint32(0)
    for i in range(n):
        low = min(low, out[i])
        high = max(high, out[i])
    return low, high


@helper
def offer_gini(best, feature, code, sq_l, w_l, sq_r, w_r):
    """Make this split the best if it is better, or as good with a lower feature, or a lower code. True if taken."""
    if best[FEATURE] >= 0:
        weight = w_l + w_r
        if weight <= SMALL:
            one = (sq_l * w_r + sq_r * w_l) * (best[W_L] * best[W_R])
            two = (best[SQ_L] * best[W_R] + best[SQ_R] * best[W_L]) * (w_l * w_r)
            sign = np.int64(one > two) - np.int64(one < two)
        else:
            sign = compare_gini(sq_l, w_l, sq_r, w_r, best[SQ_L], best[W_L], best[SQ_R], best[W_R])
        later = feature > best[FEATURE] or (feature == best[FEATURE] and code > best[CODE])
        if sign < 0 or (sign == 0 and later):
            return False
    best[FEATURE] = feature
    best[CODE] = code
    best[SQ_L] = sq_l
    best[W_L] = w_l
    best[SQ_R] = sq_r
    best[W_R] = w_r
    return True


@inlined
def as_key(code, item):
    """Sort key of a row: its code above, class and multiplicity below."""
    return (np.uint64(code) << SHIFT32) | (item & LOW)


@helper
def sort_many(keys, begin, end):
    """Heapsort of keys[begin:end]: in place, and no order of the data makes it slow (Williams 1964)."""
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
def sort_pairs(keys, begin, end, pairs):
    """Sort keys[begin:end] of 2 to PAIRS keys by code, by counting for each those that precede it."""
    n = end - begin
    first = keys[begin] >> SHIFT32
    low = first
    high = first
    for i in range(n):
        code = keys[begin + i] >> SHIFT32
        low = min(low, code)
        high = max(high, code)
    if high - low >= DISTINCT:
        sort_many(keys, begin, end)
        return
    for i in range(n):
        key = keys[begin + i]
        pairs.key[i] = key
        # The position makes equal codes distinct, so that ranks are.
        pairs.code[i] = np.uint32((((key >> SHIFT32) - low) << POSITION_BITS) | i)
        pairs.add[i] = np.uint32(1)
    sums_up_to(pairs.code, pairs.add, n, pairs.rank)
    for i in range(n):
        keys[begin + np.uint64(pairs.rank[i]) - ONE] = pairs.key[i]


@helper
def sort_bucket(keys, begin, end, pairs):
    """Sort keys[begin:end] by code: by pairs for a few, by the library for many."""
    size = end - begin
    if size == TWO:
        first = keys[begin]
        second = keys[begin + ONE]
        keys[begin] = min(first, second)
        keys[begin + ONE] = max(first, second)
    elif size > np.uint64(PAIRS):
        sort_many(keys, begin, end)
    elif size > TWO:
        sort_pairs(keys, begin, end, pairs)


@helper
def sort_rows(codes, low, high, items, n, keys, offsets, pairs):
    """keys[:n] = sort keys of the rows, ascending by code; by pairs for a few, else into buckets and then each bucket.

    codes uint32 [n] in low..high, items uint64 [n], offsets uint32 [SORT_BUCKETS + 2] (scratch).
    """
    if n <= np.uint64(PAIRS):
        for i in range(n):
            keys[i] = as_key(codes[i], items[i])
        sort_bucket(keys, ZERO, n, pairs)
        return
    span = np.uint64(high - low)
    wanted = min(max(n, np.uint64(512)), np.uint64(SORT_BUCKETS))
    shift = np.uint32(0)
    while (span >> np.uint64(shift)) >= wanted:
        shift += np.uint32(1)
    buckets = (span >> np.uint64(shift)) + ONE
    for b in range(buckets + ONE):
        offsets[b] = np.uint32(0)
    for i in range(n):
        offsets[np.uint64((codes[i] - low) >> shift) + ONE] += np.uint32(1)
    for b in range(buckets):
        offsets[b + ONE] += offsets[b]
    for i in range(n):
        bucket = np.uint64((codes[i] - low) >> shift)
        at = offsets[bucket]
        offsets[bucket] = at + np.uint32(1)
        keys[np.uint64(at)] = as_key(codes[i], items[i])
    if shift == np.uint32(0):
        return
    if n <= TWO * buckets:  # few rows in a bucket: one insertion sort over all moves keys by a place or two
        for i in range(ONE, n):
            key = keys[i]
            j = i
            while j > ZERO and keys[j - ONE] > key:
                keys[j] = keys[j - ONE]
                j -= ONE
            keys[j] = key
        return
    begin = ZERO
    for b in range(buckets):
        end = np.uint64(offsets[b])  # after the scatter an offset is its bucket's end
        sort_bucket(keys, begin, end, pairs)
        begin = end
