"""Sort items (offset << 32 | row, all different) by their offsets: through a buffer if they fit in the cache, else in
place. Oracle: numpy.sort.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.node_scan import ONE, SHIFT32, ZERO
from bigforest.kernels.common.sort import insertion_sort
from bigforest.kernels.compiler.jit import helper, inlined

# Most bits of a digit, bits of a digit in place, and most items for an insertion sort.
DIGIT_BITS = 11
FLAG_BITS = 8
FEW = 32
_FLAGS = 1 << FLAG_BITS
# Four digits in place sort 32 bits; at most this many parts wait at a time.
WAITING = 4 * _FLAGS

_EIGHT = np.uint64(FLAG_BITS)
_ELEVEN = np.uint64(DIGIT_BITS)


class SortScratch(NamedTuple):
    """Scratch of sorting.

    buffer   uint64 [most items sorted through it]
    counts   uint64 [2**DIGIT_BITS]
    heads    uint64 [2**FLAG_BITS]
    ends     uint64 [2**FLAG_BITS]
    waiting  uint64 [WAITING, 3]: begin, end and bits of parts yet to be sorted
    """

    buffer: NDArray[np.uint64]
    counts: NDArray[np.uint64]
    heads: NDArray[np.uint64]
    ends: NDArray[np.uint64]
    waiting: NDArray[np.uint64]


def sort_scratch(buffered):
    """Allocate SortScratch for `buffered` items at a time."""
    return SortScratch(
        np.empty(buffered, np.uint64),
        np.empty(1 << DIGIT_BITS, np.uint64),
        np.empty(_FLAGS, np.uint64),
        np.empty(_FLAGS, np.uint64),
        np.empty((WAITING, 3), np.uint64),
    )


@helper
def sort_items(items, begin, end, bits, scratch):
    """Sort items[begin:end] by bits 32 .. 32 + bits - 1; higher bits are equal; bits <= 32.

    About 4 ns per item, whatever the order and the number of ties. Not stable.
    """
    waiting = scratch.waiting
    waiting[0, 0], waiting[0, 1], waiting[0, 2] = begin, end, bits
    left = ONE
    while left > ZERO:
        left -= ONE
        begin, end, bits = waiting[left, 0], waiting[left, 1], waiting[left, 2]
        size = end - begin
        if size < np.uint64(2) or bits == ZERO:
            continue
        if size <= np.uint64(FEW):
            insertion_sort(items[begin:end], size)
        elif size <= np.uint64(scratch.buffer.size):
            _sort_by_digits(items, begin, size, bits, scratch)
        else:
            digit = min(bits, _EIGHT)
            _part_in_place(items, begin, end, SHIFT32 + bits - digit, scratch)
            for d in range(np.uint64(_FLAGS)):
                stop = scratch.ends[d]
                if stop > begin:
                    waiting[left, 0], waiting[left, 1], waiting[left, 2] = begin, stop, bits - digit
                    left += ONE
                begin = stop


@helper
def _part_in_place(items, begin, end, shift, scratch):
    """Order items[begin:end] by the digit above `shift`; scratch.ends[digit] becomes the end of its items.

    McIlroy, Bostic, McIlroy: Engineering Radix Sort (1993), the American flag.
    """
    heads, ends = scratch.heads, scratch.ends
    mask = np.uint64(_FLAGS - 1)
    for d in range(np.uint64(_FLAGS)):
        ends[d] = ZERO
    for i in range(begin, end):
        ends[(items[i] >> shift) & mask] += ONE
    at = begin
    for d in range(np.uint64(_FLAGS)):
        heads[d] = at
        at += ends[d]
        ends[d] = at
    for d in range(np.uint64(_FLAGS)):
        while heads[d] < ends[d]:
            item = items[heads[d]]
            home = (item >> shift) & mask
            while home != d:
                head = heads[home]
                heads[home] = head + ONE
                other = items[head]
                items[head] = item
                item = other
                home = (item >> shift) & mask
            items[heads[d]] = item
            heads[d] += ONE


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
