"""Memory that is used again, because making pages for new arrays takes longer than many tasks take to fill them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Alignment of arrays, bytes, so that none shares a cache line with another.
_LINE = 64


class BufferPool(threading.local):
    """Memory for the arrays of one step after the other, separate for each thread. It pickles as an empty pool."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def __reduce__(self) -> tuple[type[BufferPool], tuple[()]]:
        return BufferPool, ()

    def arrays(self, *wanted: tuple[Sequence[int], Any]) -> list[NDArray[Any]]:
        """Return uninitialised arrays of these shapes and types, which are valid until the next call in this thread."""
        sizes = [int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in wanted]
        starts = np.cumsum([0, *(-(-size // _LINE) * _LINE for size in sizes)]).tolist()
        if starts[-1] > self._bytes.size:
            del self._bytes  # before there is more
            self._bytes = np.empty(starts[-1], np.uint8)
        return [
            self._bytes[start : start + size].view(kind).reshape(shape)
            for start, size, (shape, kind) in zip(starts[:-1], sizes, wanted, strict=True)
        ]

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return `count` words, see `arrays`."""
        [words] = self.arrays(((count,), np.uint64))
        return words
