"""Sort items (offset << 32 | row, all different) by their offsets, through a buffer. Oracle: numpy.sort."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.node_scan import ONE, SHIFT32, ZERO
from bigforest.kernels.common.sort import sort_bucket
from bigforest.kernels.compiler.jit import helper, inlined

# Most bits of a digit, bits of a digit of few items, and most items for an insertion sort.
DIGIT_BITS = 11
FEW = 32
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
    """Sort items[begin:end] by bits 32 .. 32 + bits - 1; higher bits are equal; bits <= 32.

    About 4 ns per item, for any order and any ties. More items than the buffer holds, or only a few, are sorted by
    `sort_bucket`. Not stable.
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
    """Copy source to target in the order of the digit of `width` bits above `shift`, stably."""
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
