"""Objects shared by the tasks of a process: made by the first task that needs them, and kept for the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ProcessCache(Generic[Value]):
    """Thread-safe cache of values by key. Each is made once; the `size` last used values are kept.

    Values of runs that ended without forgetting theirs, as when a task on another machine failed, are dropped.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: dict[Hashable, Value] = {}  # the one unused for the longest time first
        self._lock = threading.RLock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key; other threads wait while `make` makes it."""
        with self._lock:
            if key in self._values:
                self._values[key] = self._values.pop(key)
            else:
                while len(self._values) >= self._size:  # before: a value may fill most of the memory
                    del self._values[next(iter(self._values))]
                self._values[key] = make()
            return self._values[key]

    def forget(self, key: Hashable) -> None:
        """Drop the value of a key, if any."""
        with self._lock:
            self._values.pop(key, None)
