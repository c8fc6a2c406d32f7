"""Reading a store block by block into private memory, in the order of the rows, for passes."""

from __future__ import annotations

import ctypes
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.errors import FormatError, damaged_store
from bigforest.kernels.common.layout import Codes
from bigforest.storage.regular_files import DIRECT_UNIT, read_at
from bigforest.store.format import BLOCK_ROWS, CODE_TYPES, CODES, block_count

_PAGE = mmap.PAGESIZE


class MatrixReader(ABC):
    """Reader of consecutive rows, one block at a time. A context manager, for one thread.

    Feature f is row place[f, 1] of the matrix whose cells have place[f, 0] bytes. Memory: a block of all columns.
    """

    # Type of the result of `read`, a NamedTuple: the matrices in the order of `files`, then `place`.
    _cells: ClassVar[Any]

    def __init__(self, files: dict[int, ColumnFile], place: NDArray[np.uint32], blocks: range, rows: int) -> None:
        """Take the reader of each matrix, by the bytes of its cells.

        blocks  numbers of the blocks in the matrices.
        rows    number of rows of the matrices.
        """
        self._files = files
        self._place = place
        self._places = place.tolist()
        self._first = blocks.start
        self._rows = rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def size(self, block: int) -> int:
        """Return the number of rows of a block."""
        return min(BLOCK_ROWS, self._rows - (block - self._first) * BLOCK_ROWS)

    def read(self, block: int, features: Collection[int], *, more: bool = False) -> Any:
        """Return the cells of `features` in a block, read-only and valid until the next call.

        more  True if the block that follows will be read next

        Each column begins with the first row of the block. Cells of other features, and cells after the last row of
        the block, are arbitrary. Raises FormatError if a file is damaged or cut short.
        """
        first, rows = (block - self._first) * BLOCK_ROWS, self.size(block)
        for feature in features:
            width, slot = self._places[feature]
            file = self._files[width]
            file.read(slot, first, rows)
            if more:
                file.announce(slot, first + BLOCK_ROWS, self.size(block + 1))
            self._check(feature, block, file.matrix[slot, :rows])
        return self._cells._make([*(file.matrix for file in self._files.values()), self._place])

    def each(self, blocks: range, features: Collection[int]) -> Iterator[tuple[int, Any]]:
        """Yield the blocks in order, with the result of `read`."""
        for block in blocks:
            yield block, self.read(block, features, more=block + 1 in blocks)

    @abstractmethod
    def _check(self, feature: int, block: int, column: NDArray[Any]) -> None:
        """Raise FormatError if the column of a feature in a block is damaged."""


class BlockReader(MatrixReader):
    """The codes of a store, read on request."""

    _cells = Codes

    def __init__(self, path: Path, spec: DataSpec, place: NDArray[np.uint32], again: bool) -> None:
        """Open the files; `again` is True if the files have been read before, see ColumnFile."""
        self._codes = [feature.codes for feature in spec.features]
        columns = {width: sum(f.width == width for f in spec.features) for width in CODES}
        files = {
            width: ColumnFile(path / CODES[width], CODE_TYPES[width], count, spec.rows, BLOCK_ROWS, again)
            for width, count in columns.items()
        }
        super().__init__(files, place, range(block_count(spec.rows)), spec.rows)

    def _check(self, feature: int, block: int, column: NDArray[Any]) -> None:
        # Kernels index by codes and do not check bounds. The column is in private memory, which no process can change.
        if column.max() >= self._codes[feature]:
            path = self._files[int(self._place[feature, 0])].path
            raise damaged_store(f"{path}, block {block}: a code is out of range")


class ColumnFile:
    """Reader of a matrix [columns, rows] in a file. It reads consecutive rows of one column at a time.

    A file larger than the page cache is no longer in the cache when it is read again. It is then read past the cache,
    so that the system need not evict and copy pages (half of the processor time of growing on 30 million rows). Pages
    that are in the cache are read from there, so a file that fits the cache is read from disk once.

    path    the file.
    matrix  [columns, at least `most` rows], read-only: each column begins with the first row of its last `read`.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], columns: int, rows: int, most: int, again: bool) -> None:
        """Open the file. Raises OSError.

        rows   number of rows of the file.
        most   most rows of a `read`.
        again  True if the file has been read before.
        """
        self.path = path
        self._rows = rows
        self._size = dtype.itemsize
        # Modulo a unit, columns are as far apart as in the file. A whole unit of the file can then be read into an
        # aligned unit of memory, and each cell is in its place. Each column has room for a unit before and after it.
        stride = most + (rows - most) % (DIRECT_UNIT // self._size) + 2 * DIRECT_UNIT // self._size
        room = np.empty((columns * stride * self._size + 3 * DIRECT_UNIT) if columns else 0, np.uint8)
        self._begin = DIRECT_UNIT + -room.ctypes.data % DIRECT_UNIT
        area = room[self._begin : self._begin + columns * stride * self._size]
        self._room = memoryview(room.data)  # the bytes around `matrix`
        self.matrix: NDArray[Any] = area.view(dtype).reshape(columns, stride) if columns else np.empty((0, most), dtype)
        self.matrix.flags.writeable = False
        self._stride = stride * self._size
        self._file = path.open("rb", buffering=0) if columns else None
        self._direct: IO[bytes] | None = None
        if again and self._file is not None and hasattr(os, "O_DIRECT"):
            with suppress(OSError, AttributeError, ValueError):  # some file systems and C libraries cannot do this
                self._cache = PageCache(self._file.fileno())
                self._direct = os.fdopen(os.open(path, os.O_RDONLY | os.O_DIRECT), "rb", buffering=0)

    def close(self) -> None:
        for file in (self._file, self._direct):
            if file is not None:
                file.close()

    def read(self, slot: int, first: int, count: int) -> None:
        """Read `count` rows of the column `slot`, from `first` on. Raises FormatError if the file is cut short."""
        place, size = (slot * self._rows + first) * self._size, count * self._size
        at = self._begin + slot * self._stride
        target = self._room[at : at + size]
        direct, file = self._direct, self._file
        if direct is not None and not self._cache.holds(place) and self._read_past(direct, at, place, size):
            return
        if file is None or read_at(file, target, place) != size:
            raise FormatError(f"{self.path} is cut short; make it again")

    def announce(self, slot: int, first: int, count: int) -> None:
        """Announce to the system the rows that will be read next. Without this, each column of a block would wait for
        the disk."""
        if self._file is not None and self._direct is None and hasattr(os, "posix_fadvise"):
            place = (slot * self._rows + first) * self._size
            os.posix_fadvise(self._file.fileno(), place, count * self._size, os.POSIX_FADV_WILLNEED)

    def _read_past(self, direct: IO[bytes], at: int, place: int, size: int) -> bool:
        """Read `size` bytes of the file, from `place` on, to `at` in the room, past the page cache. Return True on
        success. The whole units that contain the bytes are read."""
        before = place % DIRECT_UNIT
        units = -(-(before + size) // DIRECT_UNIT)
        with suppress(OSError):
            whole = self._room[at - before : at - before + units * DIRECT_UNIT]
            return read_at(direct, whole, place - before) >= before + size
        return False


class PageCache:
    """The pages of an open file that are in the page cache.

    If this user may not write the file, the system reports all pages as cached. Raises OSError if the file cannot be
    mapped, ValueError for an empty file, and AttributeError if the system has no mincore.
    """

    def __init__(self, file: int) -> None:
        self._mapped = np.frombuffer(mmap.mmap(file, 0, prot=mmap.PROT_READ), np.uint8)
        self._address = self._mapped.ctypes.data
        self._ask = ctypes.CDLL(None).mincore
        self._found = ctypes.create_string_buffer(1)

    def holds(self, place: int) -> bool:
        """Return True if the page with the byte `place` is in the cache, or if that is unknown.

        Pages leave the cache in long runs, so the first page of a read answers for all its pages.
        """
        page = ctypes.c_void_p(self._address + place // _PAGE * _PAGE)
        return self._ask(page, ctypes.c_size_t(1), self._found) != 0 or bool(self._found.raw[0] & 1)
