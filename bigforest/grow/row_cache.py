"""Codes of a table by rows (kernels/columns/row_major.py), which growing in memory reads in addition to those by
columns. Made once in each process.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigforest.errors import damaged_store
from bigforest.execution.process_cache import ProcessCache
from bigforest.grow.filled_store import ordered_store
from bigforest.kernels.columns.row_major import empty_rows, fill_rows
from bigforest.kernels.common.layout import RowMajorCodes
from bigforest.store.store import Store

# Rows copied at a time, so that the columns of these rows stay in the cache.
_COPY_ROWS = 8_192


class RowCache(NamedTuple):
    """The codes of a store by rows, and the store."""

    by_row: RowMajorCodes
    store: Store


_copies: ProcessCache[RowCache] = ProcessCache(2)


def row_cache_of(store: Store, *, ordered: bool) -> RowCache:
    """Return the codes of the store by rows; ordered: of the store with codes in the order of the values.

    The copies stay in memory until `forget_row_cache`. The first thread makes them while others wait: that takes less
    than a tenth of growing one tree.
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
    """Check the copied codes: kernels do not check, and another process may have changed the store meanwhile."""
    for width, rows in ((1, by_row.r8), (2, by_row.r16), (4, by_row.r32)):
        codes = [feature.codes for feature in store.spec.features if feature.width == width]
        if codes and (rows[start:stop].max(axis=0) >= np.array(codes)).any():
            raise damaged_store(f"{store.path}: a code is out of range")
