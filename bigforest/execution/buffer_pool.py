"""Memory that is used again: the system takes longer to make pages for new arrays than many tasks take to fill them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Where arrays begin, so that none shares a line of a cache with another.
_LINE = 64


class BufferPool(threading.local):
    """Room for the arrays of one step after the other, for each thread its own. In another process it is empty."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def __reduce__(self) -> tuple[type[BufferPool], tuple[()]]:
        return BufferPool, ()

    def arrays(self, *wanted: tuple[Sequence[int], Any]) -> list[NDArray[Any]]:
        """Arrays of these shapes and types, of any content; they are valid until the next call in this thread."""
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
        """This many words, as `arrays`."""
        [words] = self.arrays(((count,), np.uint64))
        return words
