"""A copy of the codes by rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.layout import Codes, RowMajorCodes
from bigforest.kernels.common.transpose import row_items, transpose

# Cells up to which a table is transposed by numpy, which takes twice as long for each.
_FEW_CELLS = 1 << 18

# No copy, for families that read no codes.
NO_ROWS = RowMajorCodes(np.empty((0, 0), np.uint8), np.empty((0, 0), np.uint16), np.empty((0, 0), np.uint32))


def new_arrays(*specs: tuple[Sequence[int], Any]) -> list[NDArray[Any]]:
    """Allocate arrays of these shapes and types."""
    return [np.empty(*spec) for spec in specs]


def empty_rows(codes: Codes, new: Callable[..., list[NDArray[Any]]] = new_arrays) -> RowMajorCodes:
    """Allocate the transposed copy of the codes, in arrays made by `new`."""
    return RowMajorCodes(*new(*((matrix.shape[::-1], matrix.dtype) for matrix in codes[:3])))


def fill_rows(codes: Codes, by_row: RowMajorCodes, start: int, stop: int) -> None:
    """Copy the rows from `start` to before `stop`; half a nanosecond per cell."""
    matrices: tuple[NDArray[Any], ...] = codes[:3]
    results: tuple[NDArray[Any], ...] = tuple(by_row)
    for matrix, result in zip(matrices, results, strict=True):
        if matrix.size <= _FEW_CELLS:  # not worth compiling a kernel
            result[start:stop] = matrix[:, start:stop].T
        else:
            transpose(matrix, row_items(len(matrix)), start, stop, result[start:stop])


def by_rows(codes: Codes, new: Callable[..., list[NDArray[Any]]] = new_arrays) -> RowMajorCodes:
    """Return the transposed copy of the codes, in arrays made by `new`."""
    by_row = empty_rows(codes, new)
    fill_rows(codes, by_row, 0, codes.u8.shape[1])
    return by_row
