"""Reading a store block by block into memory of our own, in the order of the rows: what the passes over it do."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.encode.dataspec import DataSpec
from bigforest.errors import FormatError
from bigforest.kernels.layout import Codes
from bigforest.store.format import CODE_TYPES, CODES


class BlockReader:
    """The codes of one block of a store at a time; a context manager, for one thread.

    Reads what it is asked for and no more, and tells the system what it will read next: a block is one piece of every
    column, so without that a cold disk would be waited for column by column. Memory: a block of all columns.
    """

    def __init__(self, path: Path, spec: DataSpec, block_rows: int, place: NDArray[np.uint32]) -> None:
        self._path = path
        self._rows = spec.rows
        self._block_rows = block_rows
        self._place = place
        self._columns = {width: sum(f.width == width for f in spec.features) for width in CODES}
        self._files = dict.fromkeys(CODES, -1)
        self._buffers: dict[int, NDArray[Any]] = {}

    def __enter__(self) -> BlockReader:
        for width, columns in self._columns.items():
            if columns:
                self._files[width] = os.open(self._path / CODES[width], os.O_RDONLY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            if file >= 0:
                os.close(file)

    def size(self, block: int) -> int:
        """Rows of a block."""
        return min(self._block_rows, self._rows - block * self._block_rows)

    def read(self, block: int, features: Iterable[int], following: int | None = None) -> Codes:
        """The codes of `features` in `block`, row 0 being its first; other features have any codes.

        following  the block that will be read next, if any.

        The arrays are read-only and good until the next call. Raises FormatError when the store is cut short.
        """
        rows = self.size(block)
        if not self._buffers or self._buffers[1].shape[1] != rows:
            self._buffers = {width: np.zeros((n, rows), CODE_TYPES[width]) for width, n in self._columns.items()}
        for feature in features:
            width, slot = (int(number) for number in self._place[feature])
            target = memoryview(self._buffers[width][slot]).cast("B")
            if os.preadv(self._files[width], [target], self._offset(width, slot, block)) != len(target):
                raise FormatError(f"{self._path / CODES[width]} is cut short; encode the table again")
            if following is not None and hasattr(os, "posix_fadvise"):
                begin, length = self._offset(width, slot, following), self.size(following) * width
                os.posix_fadvise(self._files[width], begin, length, os.POSIX_FADV_WILLNEED)
        u8, u16, u32 = (_read_only(self._buffers[width]) for width in CODES)
        return Codes(u8, u16, u32, self._place)

    def _offset(self, width: int, slot: int, block: int) -> int:
        return (slot * self._rows + block * self._block_rows) * width


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
