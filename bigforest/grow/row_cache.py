"""Copies of a table that growing in memory reads in addition to the codes by columns: codes by rows
(kernels/columns/row_major.py), and values (kernels/columns/decoded.py).

Both are made once in each process. All threads that need them fill them together, some rows at a time.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np

from bigforest.errors import damaged_store
from bigforest.execution.process_cache import ProcessCache
from bigforest.grow.filled_store import ordered_store
from bigforest.kernels.columns.decoded import (
    DecodedColumns,
    empty_decoded_columns,
    fill_decoded_columns,
    no_decoded_columns,
)
from bigforest.kernels.columns.row_major import empty_rows, fill_rows
from bigforest.kernels.common.layout import RowMajorCodes
from bigforest.store.store import Store

# Rows copied at a time.
_COPY_ROWS = 8_192


class RowCache(NamedTuple):
    """Copies of a table, and their store, whose codes are in the order of the values."""

    by_row: RowMajorCodes
    wide: DecodedColumns
    store: Store


class _CopyInProgress:
    """Copies that several threads fill."""

    def __init__(self, store: Store, wide: bool) -> None:
        self._store = store = ordered_store(store) if wide else store
        self._values = store.dictionaries[:2] if wide else None
        features = len(store.spec.features)
        room = (
            no_decoded_columns(features) if self._values is None else empty_decoded_columns(store.codes, *self._values)
        )
        self._copies = RowCache(empty_rows(store.codes), room, store)
        self._starts = iter(range(0, store.rows, _COPY_ROWS))
        self._busy = 0
        self._failed: BaseException | None = None
        self._changed = threading.Condition()

    def filled(self) -> RowCache:
        """Help to fill the copies; return them once complete.

        If one thread fails, all fail: some rows are missing, or hold codes that are out of range.
        """
        store = self._store
        while (start := self._take()) is not None:
            stop = min(start + _COPY_ROWS, store.rows)
            try:
                fill_rows(store.codes, self._copies.by_row, start, stop)
                self._check(start, stop)
                if self._values is not None:
                    fill_decoded_columns(store.codes, *self._values, self._copies.wide, start, stop)
            except BaseException as error:
                self._failed = error
                raise
            finally:
                with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()
        with self._changed:
            self._changed.wait_for(lambda: self._busy == 0)
        if self._failed is not None:
            raise self._failed
        return self._copies

    def _check(self, start: int, stop: int) -> None:
        """Check the copied codes: kernels do not check, and another process may have changed the store meanwhile."""
        by_row = self._copies.by_row
        for width, rows in ((1, by_row.r8), (2, by_row.r16), (4, by_row.r32)):
            codes = [feature.codes for feature in self._store.spec.features if feature.width == width]
            if codes and (rows[start:stop].max(axis=0) >= np.array(codes)).any():
                raise damaged_store(f"{self._store.path}: a code is out of range")

    def _take(self) -> int | None:
        """Return the first of the next rows to copy; None if all are taken."""
        with self._changed:
            start = next(self._starts, None)
            self._busy += start is not None
            return start


_made: ProcessCache[_CopyInProgress] = ProcessCache(2)


def row_cache_of(store: Store, *, wide: bool) -> RowCache:
    """Return the codes of the store by rows and, with `wide`, the values, with codes in the order of the values.

    The copies stay in memory until `forget_row_cache`.
    """
    return _made.get((store, wide), lambda: _CopyInProgress(store, wide)).filled()


def forget_row_cache(store: Store) -> None:
    """Free the copies."""
    for wide in (False, True):
        _made.forget((store, wide))
