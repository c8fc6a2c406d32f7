"""A small table of the codes of one subtree's rows, which lie far apart in the table of all rows.

In a small node nearly every code read misses the cache, and so in all nodes below it. So the first node on the way
down that is small enough copies the codes of its rows; from then on its items, and those of the nodes below, number
rows of the copy. Growing is depth-first, so the subtree is finished before another copy is made.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.columns.gather import gather_column, on_column
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.common.node_scan import BITS32, ONE, SHIFT32, ZERO
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.prefetch import prefetch
from bigforest.kernels.llvm.square import SQUARE, transpose_square

# Bytes of the copy. Measured: half of it is as good for 28 columns of four bytes and worse for 784 of one.
COPY_BYTES = 1_800_000
# For fewer rows copying does not pay. At least SQUARE.
FEWEST_ROWS = np.uint64(256)
_SIDE = np.uint64(SQUARE)
# Bytes of a cache line.
_LINE = np.uint64(64)


class CodeCache(NamedTuple):
    """The copy.

    codes        Codes of the copied rows; its matrices are read-only views of the next three
    u8, u16, u32 [columns of that width, reach]
    value        int64 [reach], regression targets of these rows: a read-only view of the next; None for classes
    copied       int64 [reach]; None for classes
    span         uint64 [2], begin and end of the items that number rows of the copy
    """

    codes: Codes
    u8: NDArray[np.uint8]
    u16: NDArray[np.uint16]
    u32: NDArray[np.uint32]
    value: NDArray[np.int64] | None
    copied: NDArray[np.int64] | None
    span: NDArray[np.uint64]


def make_code_cache(codes: Codes, rows: int, regression: bool) -> CodeCache:
    """Allocate room for the copy of a part with `rows` rows; regression: whether the target is one."""
    return empty_code_cache(codes, min(COPY_BYTES // row_bytes(codes), rows), regression)


def row_bytes(codes: Codes) -> int:
    """Return bytes of the codes of a row."""
    return sum(matrix.shape[0] * matrix.itemsize for matrix in codes[:3])


def empty_code_cache(codes: Codes, reach: int, regression: bool) -> CodeCache:
    """Allocate room for the copy of `reach` rows."""
    u8, u16, u32 = (np.empty((matrix.shape[0], reach), matrix.dtype) for matrix in codes[:3])
    views = Codes(u8.view(), u16.view(), u32.view(), codes.place)
    copied = np.empty(reach, np.int64) if regression else None
    value = None if copied is None else copied.view()
    for view in views[:3] if value is None else (*views[:3], value):
        view.flags.writeable = False  # as in a store: with other flags kernels would be compiled again
    return CodeCache(views, u8, u16, u32, value, copied, np.zeros(2, np.uint64))


@inlined
def is_cached(cache, begin, end):
    """Return whether the items begin..end number rows of the copy."""
    return begin >= cache.span[ZERO] and end <= cache.span[ONE]


@inlined
def copy_few_rows(table, items, at, out):
    """out[column, i] = table[row of items[i], column] for SQUARE items from `at` on; tables as in transpose_square."""
    columns = np.uint64(table.shape[1])
    if columns >= _SIDE:
        for begin in range(ZERO, columns, _SIDE):
            transpose_square(table, items[at:], min(begin, columns - _SIDE), out, at)
        return
    for column in range(columns):
        for i in range(at, at + _SIDE):
            out[column, i] = table[items[i] >> SHIFT32, column]


@inlined
def prefetch_rows(table, items, begin, end):
    """Prefetch the rows of items begin..end of a table, a cache line at a time."""
    columns = np.uint64(table.shape[1])
    for i in range(begin, end):
        row = (items[i] >> SHIFT32) * columns
        for column in range(ZERO, columns, _LINE // np.uint64(table.itemsize)):
            prefetch(table, row + column)
        prefetch(table, row + columns - ONE)


@inlined
def copy_rows(table, items, out):
    """Copy the rows of at least SQUARE items, and prefetch the next SQUARE meanwhile."""
    n = np.uint64(items.size)
    if table.shape[1] == 0:
        return
    for start in range(ZERO, n, _SIDE):
        at = min(start, n - _SIDE)
        prefetch_rows(table, items, at + _SIDE, min(at + _SIDE + _SIDE, n))
        copy_few_rows(table, items, at, out)


@inlined
def copy_codes(by_row, items, cache):
    """Copy the codes of the rows of `items`, and renumber the items by rows of the copy."""
    copy_rows(by_row.r8, items, cache.u8)
    copy_rows(by_row.r16, items, cache.u16)
    copy_rows(by_row.r32, items, cache.u32)
    for i in range(np.uint64(items.size)):
        items[i] = (i << SHIFT32) | (items[i] & BITS32)


@inlined
def note_column(column, n, feature, constant):
    """Add a feature to `constant` if it is constant in the first n rows of its column."""
    low, high = column[ZERO], column[ZERO]
    for i in range(n):
        low = min(low, column[i])
        high = max(high, column[i])
    constant[feature >> np.uint64(6)] |= np.uint64(low == high) << (feature & np.uint64(63))


@inlined
def codes_in_cache(codes, by_row, value, items, begin, end, constant, cache):
    """Return the codes that the items begin..end number rows of, and the regression targets of these rows, or None.

    They are those of all rows, or of a copy, which is made if it pays. Features that are constant in the copy are added
    to `constant` (scan/draw.py), so that not every path below reads them again.
    """
    if FEWEST_ROWS <= end - begin <= np.uint64(cache.u8.shape[1]) and not is_cached(cache, begin, end):
        if value is not None:
            gather_column(value, items[begin:end], cache.copied)
        copy_codes(by_row, items[begin:end], cache)
        place = cache.codes.place
        for feature in range(np.uint64(place.shape[0])):
            on_column((cache.u8, cache.u16, cache.u32), place, feature, note_column, (end - begin, feature, constant))
        cache.span[ZERO] = begin
        cache.span[ONE] = end
    if is_cached(cache, begin, end):
        return cache.codes, cache.value
    return codes, value
