"""Presort one column: replace keys by their ranks, in place. Oracle: numpy.unique with return_inverse, in
tests/grow/test_ranks.py.

If few keys are possible, the rows of each are counted (`rank_cells`, `look_up_ranks`). Otherwise rows are spread over
buckets that fit the cache, sorted there, and ranked (`spread_rows`, `rank_items`).

A *key* is an unsigned integer of 32 or 64 bits in the order of the values. Its *offset* is (key - low) >> shift: low is
the smallest key, and shift drops the trailing bits in which no two keys differ (as in multiples of a thousand, or in a
float32 stored as float64). A *cell* is a range of 2**cell_shift offsets, a *bucket* some consecutive cells.

In addition to the keys, the sort needs one *item* per row, uint64: offset << 32 | row. Here the offset counts from the
first offset of the bucket; if it has more than 32 bits, its lowest bits are dropped. Items are sorted by their offsets,
through a buffer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.node_scan import BITS32, ONE, SHIFT32, ZERO
from bigforest.kernels.common.sort import sort_bucket
from bigforest.kernels.compiler.jit import helper, inlined, kernel

# Most bits of a digit.
DIGIT_BITS = 11
# Up to this many items are sorted by `sort_bucket`.
FEW = 32
# Bits of a digit for fewer than 4,096 items, and for more.
_EIGHT = np.uint64(8)
_ELEVEN = np.uint64(DIGIT_BITS)


class SortScratch(NamedTuple):
    """Scratch of sorting: buffer uint64 [most items sorted through it], counts uint64 [2**DIGIT_BITS]."""

    buffer: NDArray[np.uint64]
    counts: NDArray[np.uint64]


def sort_scratch(buffered: int) -> SortScratch:
    """Allocate SortScratch for `buffered` items at a time."""
    return SortScratch(np.empty(buffered, np.uint64), np.empty(1 << DIGIT_BITS, np.uint64))


@helper
def sort_items(items, begin, end, bits, scratch):
    """Sort items[begin:end] by bits 32 to 31 + bits; higher bits must be equal, and bits <= 32. Not stable.

    About 4 ns per item, for any order and any ties. Up to FEW items, and more than the buffer holds, are sorted by
    `sort_bucket`.
    """
    size = end - begin
    if size < np.uint64(2) or bits == ZERO:
        return
    if np.uint64(FEW) < size <= np.uint64(scratch.buffer.size):
        _sort_by_digits(items, begin, size, bits, scratch)
    else:
        sort_bucket(items, begin, end)


@inlined
def _sort_by_digits(items, begin, size, bits, scratch):
    """Sort items[begin:begin + size] digit by digit from the lowest, through the buffer and back."""
    widest = _EIGHT if size < np.uint64(4096) else _ELEVEN
    passes = (bits + widest - ONE) // widest
    width = (bits + passes - ONE) // passes
    shift = SHIFT32
    source = items[begin : begin + size]
    target = scratch.buffer[:size]
    for _ in range(passes):
        _pass(source, target, shift, width, scratch.counts)
        source, target = target, source
        shift += width
    if passes & ONE:
        for i in range(size):
            target[i] = source[i]


@inlined
def _pass(source, target, shift, width, counts):
    """Copy source to target, sorted stably by the digit of `width` bits from bit `shift` on."""
    digits = ONE << width
    mask = digits - ONE
    for d in range(digits):
        counts[d] = ZERO
    for i in range(np.uint64(source.size)):
        counts[(source[i] >> shift) & mask] += ONE
    at = ZERO
    for d in range(digits):
        count = counts[d]
        counts[d] = at
        at += count
    for i in range(np.uint64(source.size)):
        item = source[i]
        digit = (item >> shift) & mask
        position = counts[digit]
        counts[digit] = position + ONE
        target[position] = item


class OffsetCells(NamedTuple):
    """Division of offsets into buckets: offset >> cell_shift is the cell, of_cell[cell] the bucket.

    of_cell    uint32 [cells]
    start      uint64 [buckets + 1 or more], first item of each bucket, and the number of items
    next_item  uint64 [buckets or more], where the next item of each bucket goes
    base       uint64 [buckets or more], first offset of each bucket
    bits       uint64 [buckets or more], bits that hold every offset of each bucket, counted from its base
    """

    of_cell: NDArray[np.uint32]
    start: NDArray[np.uint64]
    next_item: NDArray[np.uint64]
    base: NDArray[np.uint64]
    bits: NDArray[np.uint64]


class Bins(NamedTuple):
    """The bins, at most `last.size`, into which `note_run` divides a column, and the state between its calls.

    rows   uint64, number of rows of the column
    state  uint64 [2], number of bins begun, and the stretch of the last bin
    last   uint64 [max_bins], largest rank of each bin; empty when every value has a code of its own
    """

    rows: np.uint64
    state: NDArray[np.uint64]
    last: NDArray[np.uint64]


@kernel
def count_offset_cells(keys, low, shift, counts):
    """Add 1 to counts[(key - low) >> shift], unsigned integers, for every key."""
    for i in range(np.uint64(keys.size)):
        counts[(np.uint64(keys[i]) - low) >> shift] += ONE


@inlined
def note_run(begin, end, rank, bins):
    """Put a value of rank `rank`, which has the rows begin .. end - 1 in ascending order, into a bin.

    The ordered rows are divided into stretches of rows / max_bins rows. A value belongs to the stretch of its middle
    row; if it covers other stretches, these have no bin. Bins therefore depend only on the values and their counts.
    """
    most = np.uint64(bins.last.size)
    if most > ZERO:
        stretch = (begin + end) * most // (np.uint64(2) * bins.rows)
        if bins.state[0] == ZERO or stretch != bins.state[1]:
            bins.state[0] += ONE
            bins.state[1] = stretch
        bins.last[bins.state[0] - ONE] = rank


@kernel
def rank_cells(counts, bins, before, distinct):
    """Replace each count by the rank of its cell among the cells with rows. Set distinct[rank] to the cell.

    counts  unsigned integers [cells], number of rows of each cell, changed in place
    before  uint64 [2], number of rows and of ranks of the keys below the first cell
    """
    rank = ZERO
    begin = ZERO
    for cell in range(np.uint64(counts.size)):
        count = np.uint64(counts[cell])
        counts[cell] = rank
        if count > ZERO:
            note_run(before[0] + begin, before[0] + begin + count, before[1] + rank, bins)
            distinct[rank] = cell
            rank += ONE
            begin += count


@kernel
def cut_runs(keys, begin, end, bound, middle):
    """Cut ascending runs: set middle[r] to the index of the first key of keys[begin[r]:end[r]] that is >= `bound`.

    keys                uint32 or uint64
    begin, end, middle  uint64 [runs]; middle[r] becomes end[r] if all keys of the run are below the bound
    """
    for r in range(np.uint64(begin.size)):
        at, left = begin[r], end[r] - begin[r]
        while left > ZERO:
            half = left >> ONE
            if np.uint64(keys[at + half]) < bound:
                at += half + ONE
                left -= half + ONE
            else:
                left = half
        middle[r] = at


@kernel
def look_up_ranks(keys, low, shift, ranks):
    """Replace every key by the entry of its offset in `ranks`."""
    for i in range(np.uint64(keys.size)):
        keys[i] = ranks[(np.uint64(keys[i]) - low) >> shift]


@kernel
def group_cells(counts, cell_shift, most, cells):
    """Group the cells into buckets of at most `most` rows, or of a single larger cell. Return the number of buckets.

    counts  unsigned integers [cells], number of rows of each cell, at least one above 0
    cells   OffsetCells, filled except for the buckets of empty cells
    """
    bucket = ZERO
    first = ZERO
    last = ZERO
    rows = ZERO
    total = ZERO
    cells.start[0] = ZERO
    for cell in range(np.uint64(counts.size)):
        count = np.uint64(counts[cell])
        if count == ZERO:
            continue
        if rows > ZERO and rows + count > most:
            _end_bucket(bucket, first, last, cell_shift, total, cells)
            bucket += ONE
            rows = ZERO
        if rows == ZERO:
            first = cell
        cells.of_cell[cell] = bucket
        rows += count
        total += count
        last = cell
    _end_bucket(bucket, first, last, cell_shift, total, cells)
    return bucket + ONE


@helper
def _end_bucket(bucket, first, last, cell_shift, total, cells):
    span = last - first
    bits = cell_shift
    while span > ZERO:
        span >>= ONE
        bits += ONE
    cells.base[bucket] = first << cell_shift
    cells.bits[bucket] = bits
    cells.next_item[bucket] = cells.start[bucket]
    cells.start[bucket + ONE] = total


@kernel
def spread_rows(keys, low, shift, cell_shift, cells, items):
    """Write the item of every row into the part of items, uint64 [rows], of its bucket. About 4 ns per row."""
    for i in range(np.uint64(keys.size)):
        offset = (np.uint64(keys[i]) - low) >> shift
        bucket = np.uint64(cells.of_cell[offset >> cell_shift])
        index = cells.next_item[bucket]
        cells.next_item[bucket] = index + ONE
        items[index] = (((offset - cells.base[bucket]) >> _lost(cells.bits[bucket])) << SHIFT32) | i


@inlined
def _lost(bits):
    """Return the number of bits of an offset that do not fit in an item."""
    return bits - SHIFT32 if bits > SHIFT32 else ZERO


@kernel
def rank_items(keys, low, shift, buckets, cells, items, bins, scratch):
    """Sort the items of every bucket, and replace every row's key by its rank. Return the number of ranks.

    items  uint64 [rows], as `spread_rows` left them, but buckets of more items than the buffer holds must be sorted.
           Afterwards items[rank] is the offset of that rank

    No item is overwritten before it is read: there are at most as many ranks as rows so far.
    """
    rank = ZERO
    for bucket in range(buckets):
        begin, end = cells.start[bucket], cells.start[bucket + ONE]
        bits = cells.bits[bucket]
        lost = _lost(bits)
        base = cells.base[bucket]
        if end - begin <= np.uint64(scratch.buffer.size):
            sort_items(items, begin, end, bits - lost, scratch)
        while begin < end:
            top = items[begin] >> SHIFT32
            stop = begin + ONE
            while stop < end and items[stop] >> SHIFT32 == top:
                stop += ONE
            start = base + (top << lost)
            if lost > ZERO:
                if not _same_key(keys, items, begin, stop):
                    _sort_by_rest(keys, low, shift, start, lost, items, begin, stop, scratch)
                    rank = _rank_rest(keys, start, items, begin, stop, rank, bins)
                    begin = stop
                    continue
                start = (np.uint64(keys[items[begin] & BITS32]) - low) >> shift
            rank = _rank_run(keys, start, items, begin, stop, rank, bins)
            begin = stop
    return rank


@inlined
def _rank_run(keys, offset, items, begin, end, rank, bins):
    """Write the rank of the rows of items[begin:end], which have the same offset; return the next rank."""
    for i in range(begin, end):
        keys[items[i] & BITS32] = rank
    note_run(begin, end, rank, bins)
    items[rank] = offset
    return rank + ONE


@helper
def _rank_rest(keys, base, items, begin, end, rank, bins):
    """Rank items[begin:end], which are sorted by their offsets above `base`; return the next rank."""
    while begin < end:
        rest = items[begin] >> SHIFT32
        stop = begin + ONE
        while stop < end and items[stop] >> SHIFT32 == rest:
            stop += ONE
        rank = _rank_run(keys, base + rest, items, begin, stop, rank, bins)
        begin = stop
    return rank


@inlined
def _same_key(keys, items, begin, end):
    """Return True if all rows of items[begin:end] have the same key."""
    key = keys[items[begin] & BITS32]
    same = True
    for i in range(begin + ONE, end):
        same &= keys[items[i] & BITS32] == key
    return same


@helper
def _sort_by_rest(keys, low, shift, base, bits, items, begin, end, scratch):
    """Sort items[begin:end], whose offsets are less than 2**bits above `base`, by those bits."""
    for i in range(begin, end):
        row = items[i] & BITS32
        items[i] = ((((np.uint64(keys[row]) - low) >> shift) - base) << SHIFT32) | row
    sort_items(items, begin, end, bits, scratch)
