"""The files of a store: mapped into memory and watched for changes.

A store in an object store has a local copy: sparse files of the same sizes, into which blocks are fetched and checked
before they are first read. The blocks of a feature are contiguous, so one request fetches several.

Kernels index by codes, classes and groups, and do not check bounds. So these are checked before kernels run: the
checksum and the range of each block of codes and targets, the checksum of every other file, and the order of
dictionaries and row numbers. `Store.open(verify=True)` checks a whole store on a disk. A local copy checks blocks as it
fetches them, so opening it checks the other files only. `Store.verify` checks everything in both. All checks raise
FormatError and name the file. With `verify=False`, the caller has checked or written the store.
"""

from __future__ import annotations

import tempfile
import threading
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.columns.dataspec import FeatureSpec, GroupSpec, TargetSpec, WeightSpec
from bigforest.errors import FormatError, damaged_store, naming_file
from bigforest.storage.file_stamps import FileStamp
from bigforest.storage.locks import finalize
from bigforest.storage.object_store import ObjectPath, connection_to
from bigforest.storage.paths import local_copies
from bigforest.store.format import (
    BLOCK_ROWS,
    CHECKSUM_TYPE,
    CHECKSUMS,
    CODE_TYPES,
    CODES,
    TARGET,
    TARGET_TYPES,
    Manifest,
    block_count,
    target_span,
)

# Most bytes of one request, and number of requests at a time.
_REQUEST_BYTES = 8 << 20
_MAX_REQUESTS = 8


class StoreFiles:
    """The files of a store. The constructor checks their sizes. All methods raise FormatError.

    folder  local folder of the files; the files of a local copy are filled on demand.
    copy    local copy of a store in an object store; None for a store on a disk.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        _check_sizes(path, manifest)
        self.copy = LocalCopy(path, manifest) if isinstance(path, ObjectPath) else None
        self.folder = path if self.copy is None else self.copy.folder
        names = manifest.sizes() if self.copy is None else ()
        self._stamps = [FileStamp.of(path / name) for name in names]

    def map(self, name: str, dtype: np.dtype[Any], *shape: int, private: bool = False) -> NDArray[Any]:
        """Return a file as a read-only np.ndarray, because kernels are not compiled for np.memmap.

        shape    shape of the array, with a 0 if the file is absent.
        private  True for a writable array. Writing copies pages in memory and leaves the file unchanged.
        """
        if 0 in shape:
            return read_only(np.empty(shape, dtype))
        return np.asarray(self._mapped(name, dtype, shape, private=private))

    def crc(self, name: str) -> int:
        if self.copy is not None:
            self.copy.fetch_whole(name)
        return zlib.crc32(self._mapped(name, np.dtype(np.uint8), None).data)

    def check_unchanged(self) -> None:
        for stamp in self._stamps:
            current = FileStamp.of(stamp.path) if stamp.path.exists() else None
            if current is None or not stamp.is_of(current):
                short = current is not None and current.size < stamp.size
                raise FormatError(
                    f"{stamp.path} was {'cut short' if short else 'changed'} while it was read: keep others from "
                    "writing there, and encode the table again"
                )

    def _mapped(
        self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...] | None, *, private: bool = False
    ) -> np.memmap[Any, Any]:
        path = self.folder / name
        try:
            with naming_file(path):
                return np.memmap(path, dtype, "c" if private else "r", shape=shape)
        except ValueError as error:  # the file was cut short after its size was checked
            raise FormatError(f"{path} was changed while it was read: keep others from writing there") from error


def _check_sizes(path: Path, manifest: Manifest) -> None:
    """Check that all files of the manifest exist and have their sizes."""
    for name, size in manifest.sizes().items():
        actual = (path / name).stat().st_size if (path / name).is_file() else None
        if actual != size:
            state = "is missing" if actual is None else f"has {actual} bytes"
            raise damaged_store(f"{path / name} {state}; {size} bytes were written")


class _Column(NamedTuple):
    """Position of the cells of a feature or the target: file, first byte, type, smallest and largest allowed value."""

    name: str
    begin: int
    dtype: np.dtype[Any]
    span: tuple[int, int]


class LocalCopy:
    """The local copy of the store at `path`. It is removed with this object. May be used from several threads.

    folder  local folder of the files.
    """

    def __init__(self, path: ObjectPath, manifest: Manifest) -> None:
        self._copies = local_copies()
        self.folder = Path(tempfile.mkdtemp(prefix="store-", dir=self._copies.folder))
        finalize(self, self._copies.drop, self.folder)
        self._path = path
        self._rows = manifest.spec.rows
        self._crc = manifest.crc
        self._columns = _columns(manifest)
        self._fetching = threading.Lock()
        self._fetched = np.zeros((len(self._columns), block_count(self._rows)), np.bool_)  # by column and block
        self._whole: set[str] = set()  # fetched files, of those that have one checksum
        self._whole_lock = threading.Lock()
        for name, size in manifest.sizes().items():
            with (self.folder / name).open("wb") as file:
                file.truncate(size)
        self.fetch_whole(CHECKSUMS)
        sums = np.fromfile(self.folder / CHECKSUMS, CHECKSUM_TYPE)
        self._checksums: NDArray[np.uint32] = sums.reshape(self._fetched.shape)

    def fetch(self, features: Iterable[int] | None, blocks: range | None) -> None:
        """Fetch blocks of features and of the target; parameters as for `Store.fetch`."""
        target = len(self._columns) - 1
        columns = [*(range(target) if features is None else features), target]
        requested = range(self._fetched.shape[1]) if blocks is None else blocks
        if self._fetched[columns, requested.start : requested.stop].all():
            return
        with self._fetching:  # one thread at a time: it makes several requests itself
            runs = list(self._absent_runs(sorted(set(columns)), requested))
            with ThreadPoolExecutor(_MAX_REQUESTS, thread_name_prefix="bigforest-fetch") as pool:
                for _ in pool.map(self._fetch_run, *zip(*runs, strict=True)) if runs else ():
                    pass

    def fetch_whole(self, name: str) -> None:
        """Fetch a file that has one checksum, if the store has the file. Raises FormatError if the checksum differs."""
        with self._whole_lock:
            if name in self._whole or name not in self._crc:
                return
            local, crc = self.folder / name, 0
            with self._copies.counting(local.stat().st_size, self.folder):
                with connection_to(self._path), (self._path / name).open("rb") as source, local.open("r+b") as file:
                    while piece := source.read(_REQUEST_BYTES):
                        crc = zlib.crc32(piece, crc)
                        file.write(piece)
                if crc != self._crc[name]:
                    raise damaged_store(f"{self._path / name}: the checksum differs")
            self._whole.add(name)

    def _absent_runs(self, columns: Iterable[int], requested: range) -> Iterator[tuple[int, int, int]]:
        """Yield runs of blocks to fetch with one request each: column, first block, and the block after the last."""
        for column in columns:
            max_blocks = max(1, _REQUEST_BYTES // (BLOCK_ROWS * self._columns[column].dtype.itemsize))
            absent = [block for block in requested if not self._fetched[column, block]]
            first = 0
            for at in range(1, len(absent) + 1):
                if at == len(absent) or absent[at] != absent[at - 1] + 1 or at - first == max_blocks:
                    yield column, absent[first], absent[at - 1] + 1
                    first = at

    def _fetch_run(self, column: int, first: int, stop: int) -> None:
        """Fetch some blocks of a column, and check them. Raises FormatError."""
        name, begin, dtype, span = self._columns[column]
        rows = min(stop * BLOCK_ROWS, self._rows) - first * BLOCK_ROWS
        size, offset = rows * dtype.itemsize, begin + first * BLOCK_ROWS * dtype.itemsize
        with self._copies.counting(size, self.folder):
            with connection_to(self._path), (self._path / name).open("rb") as source:
                source.seek(offset)
                cells = np.frombuffer(source.read(size), dtype)
            check_cells(cells, self._checksums[column, first:stop], span, str(self._path / name), first)
            with (self.folder / name).open("r+b") as file:
                file.seek(offset)
                file.write(cells.data)
        self._fetched[column, first:stop] = True


def _columns(manifest: Manifest) -> list[_Column]:
    """Return the columns of the features and then the target, in the order of the rows of checksums.bin."""
    spec = manifest.spec
    features = [
        _Column(CODES[f.width], f.slot * spec.rows * f.width, CODE_TYPES[f.width], (0, f.codes - 1))
        for f in spec.features
    ]
    kind = TARGET_TYPES[spec.target.task]
    return [*features, _Column(TARGET, 0, kind, target_span(spec))]


def check_cells(
    cells: NDArray[Any],
    checksums: NDArray[np.uint32],
    span: tuple[int, int],
    where: str,
    first: int = 0,
) -> None:
    """Check consecutive blocks of a column of codes or targets.

    cells      the column, from row 0 of the first block on.
    checksums  uint32 [blocks], CRC-32 of each block.
    span       smallest and largest allowed value.
    where      beginning of the message of an error.
    first      number of the first block.
    """
    for block, checksum in enumerate(checksums.tolist(), first):
        part = cells[(block - first) * BLOCK_ROWS : (block - first + 1) * BLOCK_ROWS]
        if not part.size or zlib.crc32(part.data) != checksum:
            raise damaged_store(f"{where}, block {block}: the checksum differs")
        if part.max() > span[1] or part.min() < span[0]:
            raise damaged_store(f"{where}, block {block}: a value is out of range")


def check_dictionary(feature: FeatureSpec, low: NDArray[np.float64], high: NDArray[np.float64], file: Path) -> None:
    first = int(feature.missing)
    if not _ascends(low[first:], high[first:]) or not np.isnan([low[:first], high[:first]]).all():
        raise damaged_store(f"{file}: a dictionary is not ascending")
    if feature.kind == "category" and not np.array_equal(low[first:], np.arange(first, low.size)):
        raise FormatError(f"{file}: the values of a category are not its codes; encode again")


def check_row_numbers(numbers: NDArray[np.uint64], source_rows: int, file: Path) -> None:
    if not (_ascends(numbers) and numbers[-1] < source_rows):
        raise FormatError(f"{file}: the row numbers are not ascending; encode again")


def check_numbers(numbers: NDArray[np.float64], whole: NDArray[Any], target: TargetSpec, file: Path) -> None:
    """Check that regression targets differ by at most a step from their whole numbers of steps, `whole`."""
    for start in range(0, len(numbers), BLOCK_ROWS):
        span = slice(start, start + BLOCK_ROWS)
        near = np.abs(numbers[span] - target.values(whole[span])) <= target.step  # False for NaN
        if not near.all():
            raise damaged_store(f"{file}: the targets are not those described")


def check_weights(weight: NDArray[Any], spec: WeightSpec, file: Path) -> None:
    total = 0
    for start in range(0, len(weight), BLOCK_ROWS):
        part = weight[start : start + BLOCK_ROWS]
        # A sum of upper or lower 32 bits does not overflow.
        upper, lower = part >> np.uint8(32) if part.itemsize > 4 else part[:0], part & np.uint32(2**32 - 1)
        total += (int(upper.sum(dtype=np.int64)) << 32) + int(lower.sum(dtype=np.int64))
    if weight.min() < 1 or (int(weight.max()), total) != (spec.largest, spec.total):
        raise damaged_store(f"{file}: the weights are not those described")


def check_groups(groups: NDArray[Any], group: GroupSpec, file: Path) -> None:
    if groups.max() >= group.groups:
        raise damaged_store(f"{file}: a group is out of range")
    rows = np.zeros(group.groups, np.int64)
    for start in range(0, len(groups), BLOCK_ROWS):
        np.add.at(rows, groups[start : start + BLOCK_ROWS], 1)
    if rows.max() != group.largest:
        raise damaged_store(f"{file}: the largest group is not of {group.largest} rows")


def _ascends(low: NDArray[Any], high: NDArray[Any] | None = None) -> bool:
    """Return True if low[i] <= high[i] < low[i + 1] for all i. Without `high`, return True if low[i] < low[i + 1].

    An array with NaN does not ascend.
    """
    high = low if high is None else high
    for start in range(0, len(low), BLOCK_ROWS):
        stop = start + BLOCK_ROWS
        following = low[start + 1 : stop + 1]
        inside = (low[start:stop] <= high[start:stop]).all()
        if not (inside and (high[start : start + len(following)] < following).all()):
            return False
    return True
