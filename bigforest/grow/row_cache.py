"""Codes of a table by rows, which growing in memory reads in addition to codes by columns.

The copy of a whole table is made once in each process (`row_cache_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import damaged_store
from bigforest.execution.process_cache import ProcessCache
from bigforest.grow.filled_store import ordered_store
from bigforest.kernels.common.layout import Codes, RowMajorCodes
from bigforest.store.store import Store

# Rows copied together. Without these tiles a cell takes up to 12 ns: in blocks of 65,536 rows the cells of a row are a
# power of two apart, and would compete for a few lines of the processor's cache.
_TILE_ROWS = 200

# No copy, for families that read no codes.
NO_ROWS = RowMajorCodes(np.empty((0, 0), np.uint8), np.empty((0, 0), np.uint16), np.empty((0, 0), np.uint32))


def new_arrays(*specs: tuple[Sequence[int], Any]) -> list[NDArray[Any]]:
    """Allocate arrays of these shapes and types."""
    return [np.empty(*spec) for spec in specs]


def empty_rows(codes: Codes, new: Callable[..., list[NDArray[Any]]] = new_arrays) -> RowMajorCodes:
    """Allocate the transposed copy of the codes, in arrays made by `new`."""
    return RowMajorCodes(*new(*((matrix.shape[::-1], matrix.dtype) for matrix in codes[:3])))


def fill_rows(codes: Codes, by_row: RowMajorCodes, start: int, stop: int) -> None:
    """Copy the rows from `start` to before `stop`; about a nanosecond per cell."""
    pairs: Iterable[tuple[NDArray[Any], NDArray[Any]]] = zip(codes[:3], by_row, strict=True)
    for matrix, result in pairs:
        for begin in range(start, stop, _TILE_ROWS):
            rows = slice(begin, min(begin + _TILE_ROWS, stop))
            result[rows] = matrix[:, rows].copy().T


def by_rows(codes: Codes, new: Callable[..., list[NDArray[Any]]] = new_arrays) -> RowMajorCodes:
    """Return the transposed copy of the codes, in arrays made by `new`."""
    by_row = empty_rows(codes, new)
    fill_rows(codes, by_row, 0, codes.u8.shape[1])
    return by_row


# Rows that are copied, tile by tile, and then checked while they are in the processor's cache.
_COPY_ROWS = 8_192


class RowCache(NamedTuple):
    """The codes of a store by rows, and the store."""

    by_row: RowMajorCodes
    store: Store


_copies: ProcessCache[RowCache] = ProcessCache(2)


def row_cache_of(store: Store, *, ordered: bool) -> RowCache:
    """Return the codes of the store by rows; ordered: True for the codes of its `ordered_store`.

    The copy stays in memory until `forget_row_cache`. The first thread makes it, in less than a tenth of the time of
    growing one tree, while others wait.
    """
    return _copies.get((store, ordered), lambda: _copy(ordered_store(store) if ordered else store))


def forget_row_cache(store: Store) -> None:
    for ordered in (False, True):
        _copies.forget((store, ordered))


def _copy(store: Store) -> RowCache:
    by_row = empty_rows(store.codes)
    for start in range(0, store.rows, _COPY_ROWS):
        stop = min(start + _COPY_ROWS, store.rows)
        fill_rows(store.codes, by_row, start, stop)
        _check(store, by_row, start, stop)
    return RowCache(by_row, store)


def _check(store: Store, by_row: RowMajorCodes, start: int, stop: int) -> None:
    """Raise FormatError for a copied code out of range: kernels do not check, and the store may have been changed."""
    for width, rows in ((1, by_row.r8), (2, by_row.r16), (4, by_row.r32)):
        codes = [feature.codes for feature in store.spec.features if feature.width == width]
        if codes and (rows[start:stop].max(axis=0) >= np.array(codes)).any():
            raise damaged_store(f"{store.path}: a code is out of range")
