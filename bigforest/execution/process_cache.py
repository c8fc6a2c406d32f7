"""Memory of a process that outlives a task: objects that tasks share, and a buffer that is used again.

The system takes longer to provide pages for new arrays than many tasks take to fill them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Value = TypeVar("Value")


class ProcessCache(Generic[Value]):
    """Thread-safe cache of values by key. A value is made when it is first requested.

    The `size` values used last are kept, and dropped when later values need the room. Runs that call `forget` when they
    end free memory earlier.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: dict[Hashable, Value] = {}  # in the order of their last use
        self._lock = threading.RLock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key; other threads wait while `make` makes it."""
        with self._lock:
            if key in self._values:
                self._values[key] = self._values.pop(key)
            else:
                while len(self._values) >= self._size:  # before `make`: a value may fill most of the memory
                    del self._values[next(iter(self._values))]
                self._values[key] = make()
            return self._values[key]

    def forget(self, key: Hashable) -> None:
        """Drop the value of a key, if any."""
        with self._lock:
            self._values.pop(key, None)


# Arrays begin at multiples of this in the buffer, bytes: a cache line.
_LINE = 64


class BufferPool(threading.local):
    """A buffer for arrays in each thread, used again by each step of a task. It pickles as an empty pool."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def __reduce__(self) -> tuple[type[BufferPool], tuple[()]]:
        return BufferPool, ()

    def arrays(self, *requested: tuple[Sequence[int], Any]) -> list[NDArray[Any]]:
        """Return uninitialised arrays of these shapes and types, which are valid until the next call in this thread."""
        sizes = [int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in requested]
        starts = np.cumsum([0, *(-(-size // _LINE) * _LINE for size in sizes)]).tolist()
        if starts[-1] > self._bytes.size:
            del self._bytes  # free the old buffer before the new one is made
            self._bytes = np.empty(starts[-1], np.uint8)
        return [
            self._bytes[start : start + size].view(kind).reshape(shape)
            for start, size, (shape, kind) in zip(starts[:-1], sizes, requested, strict=True)
        ]

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return `count` words of 8 bytes, see `arrays`."""
        [words] = self.arrays(((count,), np.uint64))
        return words
