"""Transpose codes or values, in squares of SQUARE by SQUARE."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.llvm.square import SQUARE, transpose_square

_SIDE = np.uint64(SQUARE)
_LINE = np.uint64(64)
_ZERO = np.uint64(0)
_SHIFT32 = np.uint64(32)


@kernel
def transpose(table, items, start, stop, out):
    """Set out[c - start, r] to table[items[r] >> 32, c] for start <= c < stop and every r.

    table, out [., .] of unsigned integers of one width, C order; items uint64.
    """
    source = table[:, start:stop]
    columns, rows = np.uint64(stop - start), np.uint64(items.size)
    if columns < _SIDE or rows < _SIDE:
        for r in range(rows):
            for c in range(columns):
                out[c, r] = source[items[r] >> _SHIFT32, c]
        return
    for begin in range(_ZERO, columns, _LINE):  # so that source and target stay in the cache
        for r in range(_ZERO, rows, _SIDE):
            row = min(r, rows - _SIDE)
            for c in range(begin, min(begin + _LINE, columns), _SIDE):
                transpose_square(source, items[row:], min(c, columns - _SIDE), out, row)


def row_items(rows: int) -> NDArray[np.uint64]:
    """Return the items of `rows` rows, numbered in order."""
    return np.arange(rows, dtype=np.uint64) << _SHIFT32
