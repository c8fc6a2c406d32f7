"""Codes by rows beside codes by columns."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.jit import kernel
from bigforest.kernels.layout import Codes, Rows
from bigforest.kernels.transpose import SQUARE, transpose_square

# Bytes of a core's second-level cache that a node's rows may fill.
CACHE_BYTES = 768 * 1024
# Narrower rows are only copied from here (nearby.py): reading them gained nothing, measured on 28 columns of 4 bytes.
_WIDE_BYTES = 256
_TILE = 64

# No copy, for families that read no codes.
NO_ROWS = Rows(np.empty((0, 0), np.uint8), np.empty((0, 0), np.uint16), np.empty((0, 0), np.uint32), 0)


def empty_rows(codes: Codes) -> Rows:
    """Room for the transposed copy of the codes; a table with narrow rows gets a reach of 0."""
    rows = codes.u8.shape[1]
    width = sum(matrix.shape[0] * matrix.itemsize for matrix in codes[:3])
    r8, r16, r32 = (np.empty((rows, matrix.shape[0]), matrix.dtype) for matrix in codes[:3])
    return Rows(r8, r16, r32, CACHE_BYTES // width if width >= _WIDE_BYTES else 0)


def no_rows() -> Rows:
    """Rows without reach, for kernels that can read a table by rows too and are to read it by columns."""
    r8, r16, r32 = (np.empty((0, 0), kind) for kind in (np.uint8, np.uint16, np.uint32))
    return Rows(r8, r16, r32, 0)


def fill_rows(codes: Codes, by_row: Rows, start: int, stop: int) -> None:
    """Copy the rows from `start` to before `stop`; half a nanosecond per cell."""
    items = np.arange(codes.place.shape[0], dtype=np.uint64) << np.uint64(32)
    for matrix, result in zip(codes[:3], by_row[:3], strict=True):
        transpose(matrix, result, start, stop, items)


def by_rows(codes: Codes) -> Rows:
    """The transposed copy of the codes."""
    by_row = empty_rows(codes)
    fill_rows(codes, by_row, 0, codes.u8.shape[1])
    return by_row


@kernel
def transpose(matrix, result, start, stop, items):
    """result[r, c] = matrix[c, r] for start <= r < stop, by tiles so that both sides stay in the cache.

    items: number of each row of `matrix` << 32, for transpose_square.
    """
    columns = matrix.shape[0]
    if columns >= SQUARE and stop - start >= SQUARE:
        for row in range(start, stop, _TILE):
            for column in range(0, columns, SQUARE):
                c = min(column, columns - SQUARE)
                for r in range(row, min(row + _TILE, stop), SQUARE):
                    transpose_square(matrix, items[c:], min(r, stop - SQUARE), result, c)
        return
    for row in range(start, stop, _TILE):
        for column in range(0, columns, _TILE):
            for c in range(column, min(column + _TILE, columns)):
                for r in range(row, min(row + _TILE, stop)):
                    result[np.uint64(r), np.uint64(c)] = matrix[np.uint64(c), np.uint64(r)]
