"""Small tables of the codes of one subtree's rows, which lie far apart in the table of all rows.

In a small node, and in all nodes below it, nearly every read of a code misses the cache. So the first node on the way
down that is small enough copies the codes of its rows. From then on, the row numbers in its items, and in the items of
the nodes below, are those of the copy. Growing is depth-first, so the subtree is finished before another copy is made.

A large table has two copies: the *far* copy fits the cache that all cores share, and the *near* copy, made in a node
below, fits the cache of one core. Both are made from the row-major codes, and share one table, the near copy first:

    rows of the table     0 .............................. 3,200,000
    a subtree's items     7, 90, 95, ...     numbers of far rows      near + 0, near + 1, ...
    and one below it      90, 1210, ...      numbers of near rows     0, 1, ...

Trees on projections copy the values by columns, too (`ValueCache`): a small node, and each node below it, reads cells
of a dozen columns that lie far apart in a large table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.columns.gather import gather_column, on_column
from bigforest.kernels.common.layout import Codes, RowMajorCodes
from bigforest.kernels.common.node_scan import BITS32, ONE, SHIFT32, ZERO
from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.llvm.numbers import larger, prefetch, smaller
from bigforest.kernels.llvm.square import SQUARE, transpose_square

# Bytes of the near copy. Measured (benchmarks/profile.md).
COPY_BYTES = 1_300_000
# Bytes of the far copy. It has at most 1 / FAR_PART of the rows, because larger nodes read most cache lines of a column
# anyway. Measured (benchmarks/profile.md).
_FAR_BYTES = 24_000_000
FAR_PART = 8
# A far copy pays only if it has more than this many times the rows of the near copy.
_FAR_LEAST = 4
# Bytes of a row of the far copy in addition to its codes: its number in the table, and its target.
FAR_ROW = 12
# Copying pays from this many rows on. At least SQUARE.
FEWEST_ROWS = np.uint64(256)
_SIDE = np.uint64(SQUARE)
# Bytes of a cache line.
_LINE = np.uint64(64)


class CodedTable(NamedTuple):
    """The rows of a table, from which trees grow.

    value  int64 [rows], the regression targets; None for classes
    """

    codes: Codes
    by_row: RowMajorCodes
    value: NDArray[np.int64] | None


class CodeCache(NamedTuple):
    """Room for the near copy and, after it, the far one.

    codes        Codes of the copied rows; its matrices are read-only views of u8, u16 and u32
    u8, u16, u32 [columns of that width, near + far rows]
    value        int64 [near + far], regression targets of these rows, a read-only view of `copied`; None for classes
    copied       int64 [near + far]; None for classes
    row          uint32 [near + far], numbers of these rows in the table of all rows
    room         uint64 [2], most rows of the near copy, and of the far copy: 0 if there is none
    span         uint64 [2, 2], for each copy, begin and end of the items that have its row numbers
    """

    codes: Codes
    u8: NDArray[np.uint8]
    u16: NDArray[np.uint16]
    u32: NDArray[np.uint32]
    value: NDArray[np.int64] | None
    copied: NDArray[np.int64] | None
    row: NDArray[np.uint32]
    room: NDArray[np.uint64]
    span: NDArray[np.uint64]


def make_code_cache(codes: Codes, rows: int, regression: bool) -> CodeCache:
    """Allocate room for the copies of rows of a table, for trees of up to `rows` rows."""
    width = row_bytes(codes)
    near, far = min(COPY_BYTES // width, rows), min(_far_rows(width, codes.u8.shape[1]), rows)
    return empty_code_cache(codes, near, regression, far if far > _FAR_LEAST * near else 0)


def _far_rows(width: int, rows: int) -> int:
    return min(_FAR_BYTES // (width + FAR_ROW), rows // FAR_PART)


def far_bytes(width: int, rows: int) -> int:
    """Return the largest size in bytes of the far copy of a table of `rows` rows of `width` bytes."""
    return (width + FAR_ROW) * _far_rows(width, rows)


def row_bytes(codes: Codes) -> int:
    """Return the bytes of the codes of a row."""
    return sum(matrix.shape[0] * matrix.itemsize for matrix in codes[:3])


def empty_code_cache(codes: Codes, near: int, regression: bool, far: int = 0) -> CodeCache:
    """Allocate room for copies of this many rows."""
    reach = near + far
    u8, u16, u32 = (np.empty((matrix.shape[0], reach), matrix.dtype) for matrix in codes[:3])
    views = Codes(u8.view(), u16.view(), u32.view(), codes.place)
    copied = np.empty(reach, np.int64) if regression else None
    value = None if copied is None else copied.view()
    for view in views[:3] if value is None else (*views[:3], value):
        view.flags.writeable = False  # as in a store: with other flags kernels would be compiled again
    row, room = np.empty(reach, np.uint32), np.array([near, far], np.uint64)
    return CodeCache(views, u8, u16, u32, value, copied, row, room, np.zeros((2, 2), np.uint64))


@inlined
def is_copied(span, copy, begin, end):
    """Return True if the items begin..end have row numbers of a copy (0: near, 1: far)."""
    return begin >= span[copy, ZERO] and end <= span[copy, ONE]


@inlined
def is_cached(span, begin, end):
    """Return True if the items begin..end have row numbers of any copy."""
    return is_copied(span, ZERO, begin, end) or is_copied(span, ONE, begin, end)


@inlined
def copy_cells(table, items, out, at):
    """Set out[column, at + i] to table[row of items[i], column] for i < SQUARE."""
    for column in range(np.uint64(table.shape[1])):
        for i in range(_SIDE):
            out[column, at + i] = table[items[i] >> SHIFT32, column]


@inlined
def copy_squares(table, items, out, at):
    """Copy as `copy_cells`, in squares of SQUARE by SQUARE if the table has as many columns."""
    columns = np.uint64(table.shape[1])
    if columns < _SIDE:
        copy_cells(table, items, out, at)
        return
    for begin in range(ZERO, columns, _SIDE):
        transpose_square(table, items, smaller(begin, columns - _SIDE), out, at)


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
def copy_rows(table, items, out, first, copy_few):
    """Copy the rows of at least SQUARE items to out[:, first:], and prefetch the next SQUARE meanwhile.

    copy_few  copy_cells or copy_squares
    """
    n = np.uint64(items.size)
    if table.shape[1] == 0:
        return
    for start in range(ZERO, n, _SIDE):
        at = smaller(start, n - _SIDE)
        prefetch_rows(table, items, at + _SIDE, smaller(at + _SIDE + _SIDE, n))
        copy_few(table, items[at:], out, first + at)


@inlined
def copy_codes(by_row, items, cache, first):
    """Copy the codes of the rows of `items` to rows of the copy from `first` on, and renumber the items accordingly."""
    copy_rows(by_row.r8, items, cache.u8, first, copy_squares)
    copy_rows(by_row.r16, items, cache.u16, first, copy_cells)
    copy_rows(by_row.r32, items, cache.u32, first, copy_squares)
    for i in range(np.uint64(items.size)):
        cache.row[first + i] = np.uint32(items[i] >> SHIFT32)
        items[i] = ((first + i) << SHIFT32) | (items[i] & BITS32)


@inlined
def number_in_table(items, row):
    """Replace row numbers of a copy in the items by row numbers of the table."""
    for i in range(np.uint64(items.size)):
        items[i] = (np.uint64(row[items[i] >> SHIFT32]) << SHIFT32) | (items[i] & BITS32)


@inlined
def note_column(column, begin, end, feature, constant):
    """Add a feature to `constant` if it is constant in the rows begin..end of its column."""
    low, high = column[begin], column[begin]
    if low == column[end - ONE]:
        for i in range(begin, end):
            low = smaller(low, column[i])
            high = larger(high, column[i])
        constant[feature >> np.uint64(6)] |= np.uint64(low == high) << (feature & np.uint64(63))


@helper
def fill_code_cache(by_row, value, items, first, constant, cache):
    """Copy the rows of the items to rows of the cache from `first` on, and renumber the items accordingly.

    Features that are constant in the copy are added to `constant` (scan/draw.py), so that no node below reads them.
    """
    if value is not None:
        gather_column(value, items, cache.copied[first:])
    copy_codes(by_row, items, cache, first)
    columns, place = (cache.u8, cache.u16, cache.u32), cache.codes.place
    for feature in range(np.uint64(place.shape[0])):
        on_column(columns, place, feature, note_column, (first, first + np.uint64(items.size), feature, constant))


@inlined
def codes_in_cache(table, items, begin, end, constant, cache):
    """Return the Codes and the regression targets (None for classes) that the row numbers in the items begin..end refer
    to: of the table, or of a copy, which is made if it pays.

    table     CodedTable
    constant  see fill_code_cache
    """
    n, near, span = end - begin, cache.room[ZERO], cache.span
    copy = np.uint64(n > near)  # 0: near, 1: far
    if FEWEST_ROWS <= n <= cache.room[copy] and not is_copied(span, copy, begin, end):
        if is_copied(span, ONE, begin, end):
            number_in_table(items[begin:end], cache.row)
        fill_code_cache(table.by_row, table.value, items[begin:end], copy * near, constant, cache)
        span[copy, ZERO] = begin
        span[copy, ONE] = end
    if is_cached(span, begin, end):
        return cache.codes, cache.value
    return table.codes, table.value


class ValueCache(NamedTuple):
    """The one copy of rows for trees on projections.

    code_cache  codes of the rows, as a near copy; its span also holds for `value` and `mean`
    value       float64 [features, most rows], the value of each code
    mean        float64 [pairs of classes, most rows], copied from Means.value
    """

    code_cache: CodeCache
    value: NDArray[np.float64]
    mean: NDArray[np.float64]


def make_value_cache(codes: Codes, pairs: int, rows: int, regression: bool) -> ValueCache:
    """Allocate room for the copy of up to `rows` rows, or of no rows if fewer than FEWEST_ROWS would fit."""
    features = codes.place.shape[0]
    reach = min(COPY_BYTES // (row_bytes(codes) + 8 * (features + pairs)), rows)
    reach = reach if reach >= FEWEST_ROWS else 0
    code_cache = empty_code_cache(codes, reach, regression)
    return ValueCache(code_cache, np.empty((features, reach)), np.empty((pairs, reach)))


@inlined
def fill_value_cache(by_row, values, means, value, items, begin, end, cache):
    """Make the copy of the items begin..end if it pays. Return True if the items have row numbers of the copy."""
    code_cache = cache.code_cache
    n = end - begin
    if FEWEST_ROWS <= n <= np.uint64(cache.value.shape[1]) and not is_cached(code_cache.span, begin, end):
        rows = items[begin:end]
        if value is not None:
            gather_column(value, rows, code_cache.copied)
        for pair in range(np.uint64(cache.mean.shape[0])):
            gather_column(means.value[pair], rows, cache.mean[pair])
        copy_codes(by_row, rows, code_cache, ZERO)
        look_up_all(code_cache, values, n, cache.value)
        code_cache.span[ZERO, ZERO] = begin
        code_cache.span[ZERO, ONE] = end
    return is_cached(code_cache.span, begin, end)


@inlined
def look_up_all(code_cache, values, n, value):
    """Set value[f, i] to the value of code i of feature f in the copy, i < n."""
    for feature in range(np.uint64(value.shape[0])):
        low = values.low[values.offsets[feature] :]
        codes = code_cache.u8, code_cache.u16, code_cache.u32
        on_column(codes, code_cache.codes.place, feature, look_up_values, (low, n, value[feature]))


@inlined
def look_up_values(column, low, n, out):
    """Set out[i] to low[column[i]] for i < n."""
    for i in range(n):
        out[i] = low[np.uint64(column[i])]
