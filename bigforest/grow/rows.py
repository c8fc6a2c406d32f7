"""The copy of a table's codes by rows (kernels/rows.py), made once in each process by all threads that want it."""

from __future__ import annotations

import threading

from bigforest.kernels.layout import Rows
from bigforest.kernels.rows import empty_rows, fill_rows
from bigforest.store.store import Store

# Rows copied at a time.
_COPY_ROWS = 8_192
# Copies that are kept: of runs that go on side by side in one process, or that ended without saying so.
_MOST_COPIES = 2


class _Copy:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows = empty_rows(store.codes)
        self._starts = iter(range(0, store.rows, _COPY_ROWS))
        self._busy = 0
        self._changed = threading.Condition()

    def filled(self) -> Rows:
        """The copy, when it is whole; until then the calling thread helps to fill it."""
        while (start := self._take()) is not None:
            try:
                fill_rows(self._store.codes, self._rows, start, min(start + _COPY_ROWS, self._store.rows))
            finally:
                with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()
        with self._changed:
            self._changed.wait_for(lambda: self._busy == 0)
        return self._rows

    def _take(self) -> int | None:
        with self._changed:
            start = next(self._starts, None)
            self._busy += start is not None
            return start


_copies: dict[Store, _Copy] = {}
_lock = threading.Lock()


def rows_of(store: Store) -> Rows:
    """The codes of the store by rows. They stay in memory until `forget_rows`."""
    with _lock:
        if store not in _copies:
            while len(_copies) >= _MOST_COPIES:
                del _copies[next(iter(_copies))]
            _copies[store] = _Copy(store)
        copy = _copies[store]
    return copy.filled()


def forget_rows(store: Store) -> None:
    """Give the memory of the copy back."""
    with _lock:
        _copies.pop(store, None)
