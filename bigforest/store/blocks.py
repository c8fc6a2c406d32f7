"""Reading a store block by block into memory of our own, in the order of the rows: what the passes over it do."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import FormatError
from bigforest.kernels.layout import Codes
from bigforest.store.format import CODE_TYPES, CODES
from bigforest.store.store import Store

# What places, sizes and addresses are multiples of where files are read past the page cache; enough for any disk.
_UNIT = 4096
_PAGE = mmap.PAGESIZE
# Buffers of a reader: while one is used the next is filled.
BUFFERS = 2


@contextmanager
def reading_codes(
    store: Store, blocks: range, features: Iterable[int], *, together: int, again: bool
) -> Iterator[Callable[[int], Codes]]:
    """Yield what gives the codes of `features` in a block; blocks are asked for in order, see Reader.

    together  blocks that are read at once.
    again     whether they have been read before, see ColumnFile.
    """
    widths = {width: sum(f.width == width for f in store.spec.features) for width in CODES}
    files = [
        ColumnFile(store.folder / CODES[width], 0, CODE_TYPES[width], columns, store.rows, again)
        for width, columns in widths.items()
    ]
    wanted = store.place[list(features)].tolist()
    slots = [[slot for width, slot in wanted if width == each] for each in widths]
    rows = range(blocks.start * store.block_rows, min(blocks.stop * store.block_rows, store.rows))
    with Reader(files, slots, rows, store.block_rows, together) as reader:

        def read(block: int) -> Codes:
            u8, u16, u32 = reader.read(block - blocks.start)
            return Codes(u8, u16, u32, store.place)

        yield read


class ColumnFile:
    """A matrix [columns, rows] of a file, some consecutive rows of which are read at a time, column by column.

    A file that is larger than the page cache is not there any more when it is read again: it is read past the cache
    then, which saves the system looking for pages to give up, and copying (half of the seconds of processor of growing
    on 30 million rows). What is in the cache is taken from there, so files that fit it are read once.
    """

    def __init__(self, path: Path, start: int, dtype: np.dtype[Any], columns: int, rows: int, again: bool) -> None:
        """start: the place of the matrix in the file; again: whether the file has been read before.

        Raises OSError when it cannot be opened.
        """
        self._path = path
        self._start = start
        self._rows = rows
        self.dtype = dtype
        self.columns = columns
        self._file = os.open(path, os.O_RDONLY) if columns else -1
        self._direct = -1
        if again and columns and hasattr(os, "O_DIRECT"):
            with suppress(OSError, AttributeError, ValueError):  # not on every file system, nor with every C library
                self._cached = cached_pages(self._file)
                self._direct = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def close(self) -> None:
        """Close the file."""
        for file in (self._file, self._direct):
            if file >= 0:
                os.close(file)

    def place(self, slot: int, row: int) -> int:
        """Where a cell is in the file."""
        return self._start + (slot * self._rows + row) * self.dtype.itemsize

    def read(self, slot: int, first: int, count: int, room: Room) -> None:
        """Read the rows from `first` on of a column. Raises FormatError when the file is cut short."""
        place, size = self.place(slot, first), count * self.dtype.itemsize
        at = room.begin(slot)
        if self._direct >= 0 and not self._is_cached(place, size) and self._read_past(at, place, size, room):
            return
        if os.preadv(self._file, [room.bytes[at : at + size]], place) != size:
            raise FormatError(f"{self._path} is cut short; make it again")

    def _is_cached(self, place: int, size: int) -> bool:
        return bool(self._cached[place // _PAGE : -(-(place + size) // _PAGE)].all())

    def _read_past(self, at: int, place: int, size: int, room: Room) -> bool:
        """Read past the page cache whole units that hold the bytes, so that these come to be `at`; whether it could."""
        before = place % _UNIT
        units = -(-(before + size) // _UNIT)
        with suppress(OSError):
            whole = room.bytes[at - before : at - before + units * _UNIT]
            return os.preadv(self._direct, [whole], place - before) >= before + size
        return False


class Room:
    """Memory for some consecutive rows of all columns of a file."""

    def __init__(self, file: ColumnFile, rows: int) -> None:
        """rows: most at a time."""
        size, columns = file.dtype.itemsize, file.columns
        # Columns are as far from each other, in units, as in the file, with room for a unit before and after.
        self._stride = (file.place(1, 0) - file.place(0, 0)) % _UNIT + (-(-rows * size // _UNIT) + 2) * _UNIT
        self._dtype = file.dtype
        self._columns = columns
        # A matrix that begins with a later row ends so much later.
        self._memory = np.empty((columns * self._stride + rows * size + 3 * _UNIT) if columns else 0, np.uint8)
        self._begin = _UNIT + (file.place(0, 0) - self._memory.ctypes.data) % _UNIT
        self.bytes = memoryview(self._memory.data)

    def begin(self, slot: int) -> int:
        """Where a column is in `bytes`."""
        return self._begin + slot * self._stride

    def matrix(self, row: int) -> NDArray[Any]:
        """The matrix [columns, more rows] that begins with this row; read-only, in C order."""
        begin = self._begin + row * self._dtype.itemsize
        cells = self._memory[begin : begin + self._columns * self._stride]
        matrix: NDArray[Any] = cells.view(self._dtype).reshape(self._columns, self._stride // self._dtype.itemsize)
        matrix.flags.writeable = False
        return matrix


class Reader:
    """Some columns of files, one block of rows after the other; a context manager, for one thread.

    Several blocks of a column are read at once, and the next ones by a thread of its own while these are used, so that
    the disk is not waited for. Memory: BUFFERS times so many blocks, of the columns that are read.
    """

    def __init__(
        self, files: Sequence[ColumnFile], slots: Sequence[Sequence[int]], rows: range, block_rows: int, together: int
    ) -> None:
        """slots: the columns to be read of each file; rows: those that are cut into blocks."""
        self._columns = list(zip(files, slots, strict=True))
        self._block_rows = block_rows
        self._together = together
        starts = rows[:: together * block_rows]
        self._runs = [rows[start - rows.start :][: together * block_rows] for start in starts]
        most = max(map(len, self._runs), default=0)
        self._rooms = [[Room(file, most) for file in files] for _ in self._runs[:BUFFERS]]
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bigforest-read")
        self._here = -1
        self._coming = self._thread.submit(self._fill, 0)

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(cancel_futures=True)
        for file, _ in self._columns:
            file.close()

    def read(self, block: int) -> list[NDArray[Any]]:
        """A matrix of each file, [columns, more rows], that begins with the first row of a block, whose number is 0 for
        the first one; other columns, and rows after its last, hold anything. Blocks are asked for in ascending order.

        The arrays are read-only, in C order, and good until the next call. Raises FormatError when a file is cut short.
        """
        run, within = divmod(block, self._together)
        while self._here < run:
            self._coming.result()
            self._here += 1
            self._coming = self._thread.submit(self._fill, self._here + 1)
        return [room.matrix(within * self._block_rows) for room in self._rooms[run % BUFFERS]]

    def _fill(self, number: int) -> None:
        for run in self._runs[number : number + 1]:
            for (file, slots), room in zip(self._columns, self._rooms[number % BUFFERS], strict=True):
                for slot in slots:
                    file.read(slot, run.start, len(run), room)


def cached_pages(file: int) -> NDArray[np.bool_]:
    """Whether each page of an open file is in the page cache, bool [pages].

    Where the system keeps that from who may not write the file, all are. Raises OSError and AttributeError where it
    cannot be asked, ValueError for an empty file.
    """
    with mmap.mmap(file, 0, prot=mmap.PROT_READ) as mapped:
        content = np.frombuffer(mapped, np.uint8)
        found = np.zeros(-(-content.size // _PAGE), np.uint8)
        library = ctypes.CDLL(None, use_errno=True)
        sizes = (ctypes.c_void_p(content.ctypes.data), ctypes.c_size_t(content.size))
        failed = library.mincore(*sizes, ctypes.c_void_p(found.ctypes.data))
        del content  # or the map stays
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    return (found & 1).astype(np.bool_)
