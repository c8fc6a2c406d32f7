"""Files of arrays for internal use by a run.

`ArrayFile` is complete or absent, and checked when it is read:

    blocks  the arrays of each block, one after the other, each in C order, little-endian, padded to words of 8 bytes
    head    JSON: {"arrays": [[name, type, shape of a row], ...], "about": {name: integer}}
    index   uint64 [blocks, 2 + arrays]: where a block begins, its CRC-32, and the rows of each of its arrays
    end     uint64 [4]: a mark, the bytes of the head, the number of blocks, and the CRC-32 of the head, the index and
            the first three numbers of the end

The file is written block by block under a temporary name, and renamed when it is complete. Blocks are read separately,
in any order. A reader names the arrays and types that it expects; a file with others counts as damaged.

`MatrixFile` is a matrix that tasks write row by row, in any order, and map. It has no checksums, because parts of all
rows are read together, at random.

`mapped_array` and `appending` make arrays in mapped files, whose pages the system keeps in memory as long as there is
room. They need not fit into the memory budget, if they are read and written mostly in order.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.errors import FormatError, naming_file
from bigforest.storage.atomic import write_whole
from bigforest.storage.paths import local_path, write_atomically

_WORD = np.dtype("<u8")
_MARK = 0x0001_7379_6172_7241  # "Arrays" and the version


class ArrayFile(NamedTuple):
    """A file of arrays, whose head and index have been checked.

    about   integers written with the arrays
    arrays  type of each array, and shape of one of its rows, by name
    table   uint64 [blocks, 2 + arrays], the index
    """

    path: Path
    about: Mapping[str, int]
    arrays: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]
    table: NDArray[np.uint64]

    @classmethod
    def of(cls, path: Path, types: Mapping[str, str]) -> ArrayFile:
        """Open a file of arrays; types: type of each array, by name. Raises FormatError for a damaged file."""
        with naming_file(path), local_path(path).open("rb", buffering=0) as file:
            return cls.opened(path, file, types)

    @classmethod
    def opened(cls, path: Path, file: FileIO, types: Mapping[str, str]) -> ArrayFile:
        """Read head and index of an open file. See `of`."""
        size = file.seek(0, 2)
        end = _read(file, size - 4 * _WORD.itemsize, 4 * _WORD.itemsize).view(_WORD)
        mark, length, blocks, check = end.tolist() if end.size else (0, 0, 0, 0)
        width = 2 + len(types)
        body = length + blocks * width * _WORD.itemsize
        if mark != _MARK or body + end.nbytes > size:
            raise damaged(path)
        content = _read(file, size - end.nbytes - body, body)
        if zlib.crc32(end[:3].data, zlib.crc32(content.data)) != check:
            raise damaged(path)
        about, arrays = _parse_head(content[:length].tobytes(), path)
        index = content[length:].copy().view(_WORD).reshape(blocks, width)
        expected = [(name, np.dtype(kind)) for name, kind in types.items()]
        if [(name, kind) for name, (kind, _) in arrays.items()] != expected:
            raise damaged(path)
        return cls(path, about, arrays, index)

    @property
    def blocks(self) -> int:
        return len(self.table)

    def rows(self, name: str) -> NDArray[np.uint64]:
        """Return the number of rows of an array in each block, [blocks]."""
        return self.table[:, 2 + list(self.arrays).index(name)]

    def reading(self) -> FileIO:
        """Open the file, to be passed to `block`."""
        return local_path(self.path).open("rb", buffering=0)

    def each(self) -> Generator[list[NDArray[Any]]]:
        """Yield the arrays of each block, in order. See `block`."""
        with self.reading() as file:
            for number in range(self.blocks):
                yield self.block(file, number)

    def block(self, file: FileIO, number: int, *, mapped: bool = False) -> list[NDArray[Any]]:
        """Return the arrays of a block, in their order, read or mapped. Raises FormatError for a damaged block."""
        place, check, *rows = self.table[number].tolist()
        sizes = [
            count * math.prod(shape) * kind.itemsize
            for count, (kind, shape) in zip(rows, self.arrays.values(), strict=True)
        ]
        with naming_file(self.path):
            content = (_map_bytes if mapped else _read)(file, place, sum(map(_padded_size, sizes)))
        if content.size != sum(map(_padded_size, sizes)) or zlib.crc32(content.data) != check:
            raise damaged(self.path)
        arrays, begin = [], 0
        with suppress(ValueError, OverflowError):  # a shape that no array can have
            for count, size, (kind, shape) in zip(rows, sizes, self.arrays.values(), strict=True):
                arrays.append(content[begin : begin + size].view(kind).reshape(count, *shape))
                begin += _padded_size(size)
            return arrays
        raise damaged(self.path)


@contextmanager
def writing_arrays(
    path: Path, types: Mapping[str, str], about: Mapping[str, int] | None = None
) -> Iterator[Callable[..., None]]:
    """Yield a function that writes a block: it takes the arrays in the order of `types`.

    The rows of an array have the same shape in all blocks.
    """
    shapes: dict[str, list[int]] = {name: [] for name in types}
    index: list[list[int]] = []
    with write_atomically(path) as temporary, temporary.open("wb") as file:

        def add(*arrays: NDArray[Any]) -> None:
            entry, check = [file.tell(), 0], 0
            for (name, kind), array in zip(types.items(), arrays, strict=True):
                shapes[name] = list(array.shape[1:])
                entry.append(len(array))
                content = np.ascontiguousarray(array, kind)
                filling = bytes(_padded_size(content.nbytes) - content.nbytes)
                check = zlib.crc32(filling, zlib.crc32(content.data, check))
                file.write(content.data)
                file.write(filling)
            entry[1] = check
            index.append(entry)

        yield add
        arrays = [[name, np.dtype(kind).str, shapes[name]] for name, kind in types.items()]
        head = json.dumps({"arrays": arrays, "about": dict(about or {})}).encode()
        table = np.array(index, _WORD).reshape(len(index), 2 + len(types))
        end = np.array([_MARK, len(head), len(index), 0], _WORD)
        end[3] = zlib.crc32(end[:3].data, zlib.crc32(table.data.cast("B") if index else b"", zlib.crc32(head)))
        file.write(head + table.tobytes() + end.tobytes())


def write_arrays(path: Path, types: Mapping[str, str], *arrays: NDArray[Any]) -> None:
    """Write a file of a single block."""
    with writing_arrays(path, types) as add:
        add(*arrays)


def read_arrays(path: Path, types: Mapping[str, str], *, mapped: bool = False) -> list[NDArray[Any]]:
    """Return the arrays of a file of a single block, read or mapped. Raises FormatError for a damaged file."""
    with naming_file(path), local_path(path).open("rb", buffering=0) as file:
        arrays_file = ArrayFile.opened(path, file, types)
        if arrays_file.blocks != 1:
            raise damaged(path)
        return arrays_file.block(file, 0, mapped=mapped)


class MatrixFile(NamedTuple):
    """A matrix [rows, columns] in a file. kind: type of its entries, such as "<u2"."""

    path: Path
    rows: int
    columns: int
    kind: str

    def make(self) -> None:
        """Create the file, full of zeros."""
        with naming_file(self.path):
            self.path.touch()
            os.truncate(self.path, self.rows * self.columns * np.dtype(self.kind).itemsize)

    def put(self, row: int, values: NDArray[Any]) -> None:
        """Write values into a row from its beginning, at most as many as there are columns."""
        with naming_file(self.path), self.path.open("r+b", buffering=0) as file:
            file.seek(row * self.columns * np.dtype(self.kind).itemsize)
            write_whole(file, values.astype(self.kind, copy=False))

    def mapped(self) -> NDArray[Any]:
        """Return the whole matrix, mapped and read-only."""
        return map_file(self.path, self.kind, (self.rows, self.columns))


def damaged(path: Path) -> FormatError:
    return FormatError(f"{path} is damaged; remove it and resume the run, which makes it again, or start it again")


def _parse_head(head: bytes, path: Path) -> tuple[dict[str, int], dict[str, tuple[np.dtype[Any], tuple[int, ...]]]]:
    with suppress(ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raw = json.loads(head)
        arrays = {name: (np.dtype(kind), tuple(map(int, shape))) for name, kind, shape in raw["arrays"]}
        if all(number >= 0 for _, shape in arrays.values() for number in shape):
            return {name: int(number) for name, number in raw["about"].items()}, arrays
    raise damaged(path)


def _padded_size(size: int) -> int:
    return -(-size // _WORD.itemsize) * _WORD.itemsize


def _map_bytes(file: FileIO, place: int, size: int) -> NDArray[np.uint8]:
    """Return `size` bytes of a file, mapped, or an empty array if it is shorter."""
    if not size or place < 0 or place + size > file.seek(0, 2):
        return np.empty(0, np.uint8)
    return np.asarray(np.memmap(file, np.uint8, "r", place, (size,)))


def _read(file: FileIO, place: int, size: int) -> NDArray[np.uint8]:
    """Return `size` bytes of a file, or an empty array if it is shorter."""
    if place < 0 or place + size > file.seek(0, 2):
        return np.empty(0, np.uint8)
    content = np.empty(size, np.uint8)
    file.seek(place)
    rest = content.data
    while rest and (count := file.readinto(rest)):
        rest = rest[count:]
    return content if not rest else np.empty(0, np.uint8)


def map_file(path: Path, kind: Any, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Map an array of type `kind` at the beginning of a file, read-only. An empty array is not mapped.

    shape  shape of the array; None for the whole file, in one dimension.

    Raises ValueError if the file is too short.
    """
    with naming_file(path):
        if not (path.stat().st_size if shape is None else math.prod(shape)):
            return np.empty(shape or 0, kind)
        return np.asarray(np.memmap(path, kind, "r", shape=shape))


# Zeros that are written at a time.
_ZEROS = 1 << 20


def mapped_array(folder: Path, shape: tuple[int, ...] | int, kind: Any) -> NDArray[Any]:
    """Return an array of zeros, mapped from a file without a name, which disappears with the array."""
    shape = (shape,) if isinstance(shape, int) else shape
    left = math.prod(shape) * np.dtype(kind).itemsize
    if not left:
        return np.empty(shape, kind)
    with naming_file(folder), tempfile.TemporaryFile(dir=folder) as file:
        while left:  # zeros are written, because a full disk is an error here, and would later end the process
            left -= file.write(bytes(min(left, _ZEROS)))
        file.flush()
        return np.asarray(np.memmap(file, kind, "r+", shape=shape))


class ScratchArray(NamedTuple):
    """An array in a file: path, type, number of entries, and CRC-32."""

    path: Path
    kind: str
    size: int
    check: int

    def load(self) -> NDArray[Any]:
        """Map the array. Raise FormatError for a damaged file."""
        local = local_path(self.path)
        if local.stat().st_size != self.size * np.dtype(self.kind).itemsize:
            raise damaged(self.path)
        array = read_only(map_file(local, self.kind))
        if zlib.crc32(array.data) != self.check:
            raise damaged(self.path)
        return array


@contextmanager
def appending(
    folder: Path, stem: str, types: Mapping[str, str]
) -> Iterator[tuple[dict[str, ScratchArray], Callable[..., None]]]:
    """Yield the arrays written so far, by name, and a function that appends to the arrays whose names it is given.

    The file of an array, STEM-NAME.bin in `folder`, gets its name when the block ends.
    """
    with ExitStack() as stack:
        arrays: dict[str, ScratchArray] = {}
        files: dict[str, BinaryIO] = {}
        for name, kind in types.items():
            arrays[name] = ScratchArray(folder / f"{stem}-{name}.bin", kind, 0, 0)
            file = stack.enter_context(write_atomically(arrays[name].path))
            files[name] = stack.enter_context(file.open("wb"))

        def add(**values: NDArray[Any]) -> None:
            for name, array in values.items():
                path, kind, size, check = arrays[name]
                content = np.ascontiguousarray(array, kind)
                files[name].write(content.data)
                arrays[name] = ScratchArray(path, kind, size + content.size, zlib.crc32(content.data, check))

        yield arrays, add
