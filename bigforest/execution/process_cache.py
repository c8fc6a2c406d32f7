"""Objects shared by the tasks of a process: made by the first task that needs them, and kept for the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ProcessCache(Generic[Value]):
    """Values by key, each made once, of which the `most` that were asked for last are kept; for several threads.

    The values of runs that ended without forgetting theirs, as when a task of another machine failed, make way.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[Hashable, Value] = {}  # that not asked for the longest first
        self._lock = threading.RLock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key; others wait while `make` makes it."""
        with self._lock:
            if key in self._values:
                self._values[key] = self._values.pop(key)
            else:
                while len(self._values) >= self._most:  # before: a value may fill most of the memory
                    del self._values[next(iter(self._values))]
                self._values[key] = make()
            return self._values[key]

    def forget(self, key: Hashable) -> None:
        """Drop a value, if it is there."""
        with self._lock:
            self._values.pop(key, None)
