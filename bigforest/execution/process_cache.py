"""Memory of a process that outlives a task: objects that tasks share, and a buffer that is used again.

Making pages for new arrays takes longer than many tasks take to fill them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

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


# Alignment of arrays, bytes, so that none shares a cache line with another.
_LINE = 64


class BufferPool(threading.local):
    """Memory for the arrays of one step after the other, separate for each thread. It pickles as an empty pool."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def __reduce__(self) -> tuple[type[BufferPool], tuple[()]]:
        return BufferPool, ()

    def arrays(self, *requested: tuple[Sequence[int], Any]) -> list[NDArray[Any]]:
        """Return uninitialised arrays of these shapes and types, which are valid until the next call in this thread."""
        sizes = [int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in requested]
        starts = np.cumsum([0, *(-(-size // _LINE) * _LINE for size in sizes)]).tolist()
        if starts[-1] > self._bytes.size:
            del self._bytes  # before there is more
            self._bytes = np.empty(starts[-1], np.uint8)
        return [
            self._bytes[start : start + size].view(kind).reshape(shape)
            for start, size, (shape, kind) in zip(starts[:-1], sizes, requested, strict=True)
        ]

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return `count` words, see `arrays`."""
        [words] = self.arrays(((count,), np.uint64))
        return words
