"""Writing a store (format.py). Tasks write parts in any order; the parts are joined in the order of the features.

1. `PartWriter` (in tasks): a part has consecutive features and files of its own.
2. `StoreWriter.append`: the bytes of a part follow those of the parts before it, in each file of the store.
3. `StoreWriter.join`, on a cluster: workers copy the parts instead. A task copies one range of a file of the store.
   Ranges begin at multiples of their size, so no two tasks write to the same page of a file.
4. `StoreWriter.finish`: checksums, then the manifest.

    parts of codes-u8.bin   [a a a a] [b b c c c]          features a | b c
    file of the store        a a a a   b b c c c           copied in ranges of RANGE_BYTES
"""

from __future__ import annotations

import os
import secrets
import shutil
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import arrow_array, as_numpy
from bigforest.columns.dataspec import DataSpec, FeatureSpec, GroupSpec, TargetSpec, WeightSpec, code_width
from bigforest.errors import naming_file
from bigforest.execution.executor import Executor
from bigforest.options.values import Exact
from bigforest.storage.atomic import remove
from bigforest.storage.paths import readable, uploads
from bigforest.store.format import (
    BLOCK_ROWS,
    CHECKSUM_TYPE,
    CHECKSUMS,
    CODE_TYPES,
    CODES,
    HIGH,
    LEVELS,
    LOW,
    MANIFEST,
    NUMBERS,
    ROW_NUMBER_TYPE,
    ROW_NUMBERS,
    TARGET,
    TARGET_TYPES,
    VALUE_TYPE,
    Manifest,
)
from bigforest.store.levels import LEVELS as LEVEL_SCHEMA
from bigforest.store.levels import LevelsFile, level_tables

# The polynomial of CRC-32; bit 31 - k is the coefficient of x**k.
_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
_X_TO_8 = 1 << 23
# Bytes of a range, and bytes that one read copies.
RANGE_BYTES = 1 << 26
COPY_BYTES = 1 << 20


class Piece(NamedTuple):
    """Some bytes of a file."""

    path: Path
    begin: int
    size: int


class FileRange(NamedTuple):
    """A range of the file `path`, from `begin` on, and the pieces of other files to copy there, in order."""

    path: Path
    begin: int
    pieces: tuple[Piece, ...]


def cut_ranges(path: Path, parts: Sequence[tuple[Path, int]], range_bytes: int = RANGE_BYTES) -> list[FileRange]:
    """Return the ranges of a file `path` that joins other files; parts: path and number of bytes of each of these."""
    pieces: list[list[Piece]] = []
    room = 0
    for part, size in parts:
        begin = 0
        while begin < size:
            if not room:
                pieces.append([])
                room = range_bytes
            taken = min(size - begin, room)
            pieces[-1].append(Piece(part, begin, taken))
            begin, room = begin + taken, room - taken
    return [FileRange(path, number * range_bytes, tuple(each)) for number, each in enumerate(pieces)]


def write_range(target: FileRange, copy_bytes: int = COPY_BYTES) -> None:
    """Task: write a range of an existing file, `copy_bytes` at a time.

    If this worker is slow or was taken for dead, another worker may write the range, and the client then removes the
    pieces. This worker must then not write to the file any more: readers of the file would see a new modification time.
    A piece is therefore opened anew for every read. Opening asks the file server; a check for existence may be answered
    from a cache. A write that is already on its way to the server puts the same bytes in the same place.
    """
    with target.path.open("r+b") as out:
        out.seek(target.begin)
        for piece in target.pieces:
            begin, end = piece.begin, piece.begin + piece.size
            while begin < end:
                content = _read(piece.path, begin, min(end - begin, copy_bytes), target.path)
                out.write(content)
                out.flush()
                begin += len(content)


def _read(path: Path, begin: int, size: int, joined: Path) -> bytes:
    try:
        with path.open("rb", buffering=0) as content:
            content.seek(begin)
            piece = content.read(size)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} is gone: another worker has written {joined}") from error
    if not piece:
        raise OSError(f"{path} has become shorter")
    return piece


class BlockChecksums:
    """CRC-32 of every block of a column that comes in chunks of any size."""

    def __init__(self) -> None:
        self._done: list[int] = []
        self._crc = 0
        self._rows = 0  # of the block that is not full yet

    def add(self, cells: NDArray[Any]) -> None:
        """Add the next cells of the column, contiguous."""
        while len(cells):
            piece = cells[: BLOCK_ROWS - self._rows]
            self._crc = zlib.crc32(piece.data, self._crc)
            self._rows += len(piece)
            if self._rows == BLOCK_ROWS:
                self._done.append(self._crc)
                self._crc = self._rows = 0
            cells = cells[len(piece) :]

    def result(self) -> NDArray[np.uint32]:
        return np.array([*self._done, self._crc] if self._rows else self._done, CHECKSUM_TYPE)


def joined_crc(first: int, second: int, size: int) -> int:
    """Return the CRC-32 of two pieces of bytes, one after the other, from the checksum of each.

    size  number of bytes of the second piece.
    """
    power, square = _ONE, _X_TO_8  # each byte that follows multiplies the first checksum by x**8
    while size:
        if size & 1:
            power = _product(power, square)
        square = _product(square, square)
        size >>= 1
    return _product(power, first) ^ second


def _product(first: int, second: int) -> int:
    """Return the product of two polynomials modulo the polynomial of CRC-32."""
    product, bit = 0, _ONE
    while bit:
        if first & bit:
            product ^= second
        second = second >> 1 ^ (_POLYNOMIAL if second & 1 else 0)
        bit >>= 1
    return product


# Files that have a checksum for each block.
_BY_BLOCK = {*CODES.values(), TARGET}


class PartFile(NamedTuple):
    """A file of a part, its number of bytes and its CRC-32.

    The CRC-32 is 0 if the blocks of the file have checksums. For levels, both numbers are 0.
    """

    path: Path
    size: int
    crc: int


class Part(NamedTuple):
    """Features that a `PartWriter` has written, to be appended to a store.

    features   their specs, without the slot
    checksums  checksums of the blocks of each feature
    files      the written files, by the name of the file of the store to which each is appended
    """

    features: list[FeatureSpec]
    checksums: list[NDArray[np.uint32]]
    files: dict[str, PartFile]


class _Files:
    """Files of a folder, opened when something is first appended to them."""

    def __init__(self, folder: Path, prefix: str = "") -> None:
        self._folder = folder
        self._prefix = prefix
        self._files: dict[str, IO[bytes]] = {}
        self._crc: dict[str, int] = {}
        self._size: dict[str, int] = {}

    def path(self, name: str) -> Path:
        return self._folder / f"{self._prefix}{name}"

    def append(self, name: str, array: NDArray[Any]) -> None:
        """Append a contiguous array to a file."""
        if name not in self._files:
            with naming_file(path := self.path(name)):
                self._files[name] = path.open("wb")
        file = self._files[name]
        with naming_file(file.name):
            file.write(array.data)
        self._size[name] = self._size.get(name, 0) + array.nbytes
        if name not in _BY_BLOCK:
            self._crc[name] = zlib.crc32(array.data, self._crc.get(name, 0))

    def flush(self, name: str) -> None:
        """Make the content visible to other processes, also on other machines."""
        self._files[name].flush()
        os.fsync(self._files[name].fileno())

    def close(self) -> dict[str, PartFile]:
        for file in self._files.values():
            file.close()
        return {name: PartFile(self.path(name), self._size[name], self._crc.get(name, 0)) for name in self._files}


class PartWriter:
    """Writer of a part. The names of its files are random, so another process can write the same part at the same time.

    For each feature, call `values` for each piece of its values, `levels` if it is a category, then `end_feature` with
    its codes. No column need be in memory as a whole.
    """

    def __init__(self, folder: Path, index: int) -> None:
        """Open a part in `folder`; index: number with which the names of its files begin."""
        self._folder = folder
        self._opened = ExitStack()
        self._files = _Files(self._opened.enter_context(uploads(folder)), f"{index}-{secrets.token_hex(8)}-")
        self._levels = LevelsFile(self._files.path(LEVELS))
        self._opened.callback(self._files.close)
        self._opened.callback(self._levels.close)
        self._features: list[FeatureSpec] = []
        self._checksums: list[NDArray[np.uint32]] = []
        self._codes = 0

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, *failure: Any) -> None:
        self._opened.__exit__(*failure)

    def values(self, low: NDArray[np.float64], high: NDArray[np.float64] | None) -> None:
        """Append the smallest and the largest value of each of the next codes; `high` is None without max_bins."""
        self._codes += len(low)
        self._files.append(LOW, low.astype(VALUE_TYPE, copy=False))
        if high is not None:
            self._files.append(HIGH, high.astype(VALUE_TYPE, copy=False))

    def levels(self, levels: pl.Series, first: int) -> None:
        """Append the levels of the next feature, a category, ascending; `first` is the code of the first level."""
        self._levels.add(level_tables(len(self._features), first, levels))

    def end_feature(
        self,
        name: str,
        dtype: str,
        cells: Iterable[NDArray[Any]],
        column: str | None = None,
        *,
        kind: str = "numeric",
        missing: bool = False,
    ) -> None:
        """Append the codes of the feature, unsigned integers, in chunks of any size.

        column  column of the table that holds the feature; None if it has the same name.
        """
        width = code_width(self._codes)
        checksums = BlockChecksums()
        for chunk in cells:
            codes = np.ascontiguousarray(chunk, dtype=CODE_TYPES[width])
            checksums.add(codes)
            self._files.append(CODES[width], codes)
        self._checksums.append(checksums.result())
        self._features.append(
            FeatureSpec(name, kind, dtype, self._codes, width, 0, name if column is None else column, missing)
        )
        self._codes = 0

    def part(self) -> Part:
        levels = self._levels.close()
        local = self._files.close() | ({LEVELS: PartFile(levels, 0, 0)} if levels else {})
        files = {name: file._replace(path=self._folder / file.path.name) for name, file in local.items()}
        self._opened.close()
        return Part(self._features, self._checksums, files)


class StoreWriter:
    """Writer of a store, in a new folder. The store is complete when `finish` has returned.

    Parts are written by any thread or process, in any order, to files of their own; `append` copies them while they are
    still in the page cache. So codes never wait in memory for the features before them.

    parts   folder of the parts, by default in the folder of the store.
    shared  True if workers share this folder: `append` then copies only the levels of a part, and `join` lets workers
            copy its other files.
    """

    def __init__(self, folder: Path, *, max_bins: Exact | int, parts: Path | None = None) -> None:
        self._folder = folder
        self._max_bins = max_bins
        self.parts = parts or folder / "parts"
        self.shared = False
        self._files = _Files(folder)
        self._parts: dict[str, list[PartFile]] = {}
        self._levels = LevelsFile(folder / LEVELS)
        self._opened = ExitStack()
        self._opened.callback(self._files.close)
        self._opened.callback(self._levels.close)
        self._features: list[FeatureSpec] = []
        self._checksums: list[NDArray[np.uint32]] = []
        self._target_checksums = BlockChecksums()
        self._slots = dict.fromkeys(CODES, 0)
        self._crc: dict[str, int] = {}
        self._rows = 0
        self._numbered = False

    def __enter__(self) -> StoreWriter:
        self._folder.mkdir()
        self.parts.mkdir()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._opened.__exit__(*failure)

    def add_rows(self, target: NDArray[Any], numbers: NDArray[Any] | None) -> None:
        """Append the targets of the next rows.

        target   class codes, or whole numbers of 64 bits.
        numbers  row numbers in the source; None if all rows of the source are kept.
        """
        kind = TARGET_TYPES["regression" if target.dtype == np.int64 else "classification"]
        cells = np.ascontiguousarray(target, dtype=kind)
        self._files.append(TARGET, cells)
        self._target_checksums.add(cells)
        self._rows += len(cells)
        if numbers is not None:
            self._numbered = True
            self._files.append(ROW_NUMBERS, numbers.astype(ROW_NUMBER_TYPE, copy=False))

    def add(self, name: str, cells: NDArray[Any], kind: np.dtype[Any]) -> None:
        """Append cells of the next rows to the file `name`: groups, weights, or regression targets as floats."""
        self._files.append(name, np.ascontiguousarray(cells, dtype=kind))

    def target(self) -> Path:
        """Return the file of the targets of all rows added."""
        self._files.flush(TARGET)
        return self._files.path(TARGET)

    def row_numbers(self) -> Path | None:
        """Return the file of the numbers of all rows added, ROW_NUMBER_TYPE; None if no row is left out."""
        if not self._numbered:
            return None
        self._files.flush(ROW_NUMBERS)
        return self._files.path(ROW_NUMBERS)

    def append(self, part: Part) -> None:
        """Append the features of `part` to the store, or record them if `shared`. Remove each file that is copied."""
        for name, file in part.files.items():
            if name == LEVELS:
                self._append_levels(file.path)
            else:
                self._crc[name] = joined_crc(self._crc.get(name, 0), file.crc, file.size)
                if self.shared:
                    self._parts.setdefault(name, []).append(file)
                    continue
                with file.path.open("rb") as content, self._files.path(name).open("ab") as out:
                    shutil.copyfileobj(content, out, COPY_BYTES)
            file.path.unlink()
        for feature in part.features:
            self._features.append(replace(feature, slot=self._slots[feature.width]))
            self._slots[feature.width] += 1
        self._checksums.extend(part.checksums)

    def join(self, executor: Executor) -> None:
        """Let the workers copy all recorded parts. Each file of a part is removed once it is copied."""
        ranges: list[FileRange] = []
        for name, files in self._parts.items():
            self._files.path(name).touch(exist_ok=False)
            ranges += cut_ranges(self._files.path(name), [(file.path, file.size) for file in files])
        uncopied = Counter(piece.path for each in ranges for piece in each.pieces)

        def remove_copied(index: int, _: None) -> None:
            for piece in ranges[index].pieces:
                uncopied[piece.path] -= 1
                if not uncopied[piece.path]:
                    piece.path.unlink()

        executor.run(write_range, [(each,) for each in ranges], remove_copied)

    def finish(
        self,
        target: TargetSpec,
        dropped: int,
        group: GroupSpec | None = None,
        weight: WeightSpec | None = None,
        missing_words: tuple[str, ...] = (),
        separator: str | None = None,
    ) -> None:
        """Write the checksums, and then the manifest. `dropped` rows of the source were left out.

        Targets as floats are removed if their whole numbers of steps are exact.
        """
        checksums = np.stack([*self._checksums, self._target_checksums.result()])
        self._files.append(CHECKSUMS, checksums.astype(CHECKSUM_TYPE, copy=False))
        closed = self._files.close()
        if target.exact and NUMBERS in closed:
            closed.pop(NUMBERS).path.unlink()
        crc = {name: file.crc for name, file in closed.items()} | self._crc
        levels = self._levels.close()
        if levels is not None:
            with levels.open("rb") as content:
                for piece in iter(lambda: content.read(COPY_BYTES), b""):
                    crc[LEVELS] = zlib.crc32(piece, crc.get(LEVELS, 0))
        remove(self.parts)  # a task that ran twice may have left files
        spec = DataSpec(self._rows, dropped, tuple(self._features), target, group, weight, missing_words, separator)
        levels_size = 0 if levels is None else levels.stat().st_size
        whole = {name: checksum for name, checksum in crc.items() if name not in _BY_BLOCK}
        manifest = Manifest(spec, self._max_bins, whole, levels_size)
        (self._folder / MANIFEST).write_text(manifest.to_json() + "\n", encoding="utf-8")

    def _append_levels(self, path: Path) -> None:
        """Append the levels of a part, one row group at a time, with the feature numbers of the store."""
        with pq.ParquetFile(readable(path)) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                feature = arrow_array(as_numpy(table["feature"]) + np.uint32(len(self._features)))
                self._levels.add([table.set_column(0, LEVEL_SCHEMA.field(0), feature)])
