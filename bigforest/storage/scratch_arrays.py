"""Arrays in scratch files that are mapped: the system keeps their pages in memory as long as there is room.

For arrays that need not fit into the budget of memory, if they are read and written mostly in order.
"""

from __future__ import annotations

import math
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.storage.array_file import damaged
from bigforest.storage.paths import local_path, write_atomically

# Zeros that are written at a time.
_ZEROS = 1 << 20


def mapped_array(folder: Path, shape: tuple[int, ...] | int, kind: Any) -> NDArray[Any]:
    """Return an array of zeros in a file without a name, which is removed with the array."""
    shape = (shape,) if isinstance(shape, int) else shape
    left = math.prod(shape) * np.dtype(kind).itemsize
    if not left:
        return np.empty(shape, kind)
    with tempfile.TemporaryFile(dir=folder) as file:
        while left:  # written, so that a full disk is an error here rather than the end of the process
            left -= file.write(bytes(min(left, _ZEROS)))
        file.flush()
        return np.asarray(np.memmap(file, kind, "r+", shape=shape))


class ScratchArray(NamedTuple):
    """An array in a file: type, number of entries, and CRC-32."""

    path: Path
    kind: str
    size: int
    check: int

    def load(self) -> NDArray[Any]:
        """Map the array. Raise FormatError for a damaged file."""
        here = local_path(self.path)
        if here.stat().st_size != self.size * np.dtype(self.kind).itemsize:
            raise damaged(self.path)
        array = read_only(np.asarray(np.memmap(here, self.kind, "r")) if self.size else np.empty(0, self.kind))
        if zlib.crc32(array.data) != self.check:
            raise damaged(self.path)
        return array


@contextmanager
def appending(
    folder: Path, stem: str, types: Mapping[str, str]
) -> Iterator[tuple[dict[str, ScratchArray], Callable[..., None]]]:
    """Write arrays piece by piece, each to a file; yield the arrays as written so far, and a function that appends."""
    with ExitStack() as stack:
        arrays: dict[str, ScratchArray] = {}
        files: dict[str, BinaryIO] = {}
        for name, kind in types.items():
            arrays[name] = ScratchArray(folder / f"{stem}-{name}.bin", kind, 0, 0)
            here = stack.enter_context(write_atomically(arrays[name].path))
            files[name] = stack.enter_context(here.open("wb"))

        def add(**given: NDArray[Any]) -> None:
            for name, array in given.items():
                path, kind, size, check = arrays[name]
                content = np.ascontiguousarray(array, kind)
                files[name].write(content.data)
                arrays[name] = ScratchArray(path, kind, size + content.size, zlib.crc32(content.data, check))

        yield arrays, add
