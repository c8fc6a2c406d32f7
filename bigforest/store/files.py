"""The files of a store on this machine: mapped, fetched where the store is remote, and watched for changes.

The local copy of a store that is in an object store: files of the same sizes, empty at first, into which requested
cells are fetched and checked. Blocks of a feature lie side by side, so several come with one request.

Checksums of the files of a store, from pieces that are written by different processes.

Checks of a store before kernels use its values as indices. All raise FormatError, naming the file.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.columns.dataspec import FeatureSpec, GroupSpec, TargetSpec, WeightSpec
from bigforest.errors import FormatError, damaged_store
from bigforest.storage.object_cache import ObjectCache
from bigforest.storage.object_store import ObjectPath, pending
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

# The polynomial of CRC-32; bit 31 - k stands for x**k.
_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
_X_TO_8 = 1 << 23


class BlockChecksums:
    """CRC-32 of every block of a column that comes in chunks of any size, or of a piece of one, see `joined_blocks`.

    before  rows of the column before the piece.
    """

    def __init__(self, before: int = 0) -> None:
        self._done: list[int] = []
        self._crc = 0
        self._held = before % BLOCK_ROWS

    def add(self, cells: NDArray[Any]) -> None:
        """The next cells of the column, contiguous."""
        while len(cells):
            piece = cells[: BLOCK_ROWS - self._held]
            self._crc = zlib.crc32(piece.data, self._crc)
            self._held += len(piece)
            if self._held == BLOCK_ROWS:
                self._done.append(self._crc)
                self._crc = self._held = 0
            cells = cells[len(piece) :]

    def result(self) -> NDArray[np.uint32]:
        """The checksums, [blocks]."""
        return np.array([*self._done, self._crc] if self._held else self._done, CHECKSUM_TYPE)


def joined_blocks(pieces: Sequence[NDArray[np.uint32]], rows: Sequence[int], width: int) -> NDArray[np.uint32]:
    """The checksums of the blocks of a column, [blocks], from those of pieces of some rows each, one at least.

    width  bytes of a cell.
    """
    found: list[int] = []
    before = 0
    for own, count in zip(pieces, rows, strict=True):
        rest = own.tolist()
        if held := before % BLOCK_ROWS:
            found[-1] = joined_crc(found[-1], rest.pop(0), min(count, BLOCK_ROWS - held) * width)
        found += rest
        before += count
    return np.array(found, CHECKSUM_TYPE)


def joined_crc(first: int, second: int, size: int) -> int:
    """The CRC-32 of some bytes with the checksum `first` and `size` more with the checksum `second`."""
    power, square = _ONE, _X_TO_8
    while size:
        if size & 1:
            power = _product(power, square)
        square = _product(square, square)
        size >>= 1
    return _product(power, first) ^ second


def _product(one: int, two: int) -> int:
    """The product of two polynomials modulo that of CRC-32."""
    product, bit = 0, _ONE
    while bit:
        if one & bit:
            product ^= two
        two = two >> 1 ^ (_POLYNOMIAL if two & 1 else 0)
        bit >>= 1
    return product


def check_cells(
    cells: NDArray[Any],
    checksums: NDArray[np.uint32],
    span: tuple[int, int],
    where: str,
    first: int = 0,
) -> None:
    """Check the blocks of a column, codes or targets, whose cells are to be from span[0] to span[1]; those from number
    `first` on, which have these checksums."""
    for block, checksum in enumerate(checksums.tolist(), first):
        part = cells[(block - first) * BLOCK_ROWS : (block - first + 1) * BLOCK_ROWS]
        if not part.size or zlib.crc32(part.data) != checksum:
            raise damaged_store(f"{where}, block {block}: the checksum differs")
        if part.max() > span[1] or part.min() < span[0]:
            raise damaged_store(f"{where}, block {block}: a code is out of range")


def check_dictionary(feature: FeatureSpec, low: NDArray[np.float64], high: NDArray[np.float64], file: Path) -> None:
    """Check the values of the codes of a feature."""
    first = int(feature.missing)
    if not _ascends(low[first:], high[first:]) or not np.isnan([low[:first], high[:first]]).all():
        raise damaged_store(f"{file}: a dictionary is not ascending")
    if feature.kind == "category" and not np.array_equal(low[first:], np.arange(first, low.size)):
        raise FormatError(f"{file}: the values of a category are not its codes; encode again")


def check_row_numbers(numbers: NDArray[np.uint64], source_rows: int, file: Path) -> None:
    """Check the numbers of the rows in a source of this many rows."""
    if not (_ascends(numbers) and numbers[-1] < source_rows):
        raise FormatError(f"{file}: the row numbers are not ascending; encode again")


def check_numbers(numbers: NDArray[np.float64], whole: NDArray[Any], target: TargetSpec, file: Path) -> None:
    """Check regression targets against the whole numbers that are kept of them."""
    near = np.abs(numbers - target.values(whole)) <= target.step  # false where it is not a number
    if not near.all():
        raise damaged_store(f"{file}: the targets are not those described")


def check_weights(weight: NDArray[Any], spec: WeightSpec, file: Path) -> None:
    """Check the weights of rows."""
    parts = weight >> np.uint8(32) if weight.itemsize > 4 else weight[:0], weight & np.uint32(2**32 - 1)
    total = (int(parts[0].sum(dtype=np.int64)) << 32) + int(parts[1].sum(dtype=np.int64))
    if weight.min() < 1 or (int(weight.max()), total) != (spec.largest, spec.total):
        raise damaged_store(f"{file}: the weights are not those described")


def check_groups(groups: NDArray[Any], group: GroupSpec, file: Path) -> None:
    """Check the group of each row."""
    if groups.max() >= group.groups:
        raise damaged_store(f"{file}: a group is out of range")
    rows = np.zeros(group.groups, np.int64)
    for start in range(0, len(groups), BLOCK_ROWS):
        np.add.at(rows, groups[start : start + BLOCK_ROWS], 1)
    if rows.max() != group.largest:
        raise damaged_store(f"{file}: the largest group is not of {group.largest} rows")


def _ascends(low: NDArray[Any], high: NDArray[Any] | None = None) -> bool:
    """Whether low[i] <= high[i] < low[i + 1] for all i; `high` is `low` by default. Looks at a block at a time.

    Comparisons with NaN are false, so an array with one does not ascend.
    """
    high = low if high is None else high
    for start in range(0, len(low), BLOCK_ROWS):
        stop = start + BLOCK_ROWS
        following = low[start + 1 : stop + 1]
        inside = (low[start:stop] <= high[start:stop]).all()
        if not (inside and (high[start : start + len(following)] < following).all()):
            return False
    return True


_ABSENT, _COMING, _HERE = 0, 1, 2
# Bytes of one request, and requests at a time.
_REQUEST_BYTES = 8 << 20
_AT_ONCE = 8


class _Column(NamedTuple):
    """Where the cells of a feature, or of the target, are: file, first byte, type, smallest and largest value."""

    name: str
    begin: int
    dtype: np.dtype[Any]
    span: tuple[int, int]


class LocalCopy:
    """The copy of the store at `path`, as long as this object lives. May be used from several threads.

    folder  where the files are.
    """

    def __init__(self, path: ObjectPath, manifest: Manifest) -> None:
        copies = local_copies()
        self.folder = Path(tempfile.mkdtemp(prefix="store-", dir=copies.folder))
        self._held = _Held(copies, self.folder)
        weakref.finalize(self, self._held.remove)
        self._path = path
        self._rows = manifest.spec.rows
        self._crc = manifest.crc
        self._columns = _columns(manifest)
        self._changed = threading.Condition()
        self._state = np.zeros((len(self._columns), block_count(manifest.spec.rows)), np.uint8)
        self._complete = False
        self._whole: set[str] = set()
        self._whole_lock = threading.Lock()
        for name, size in manifest.sizes().items():
            with (self.folder / name).open("wb") as file:
                file.truncate(size)
        self.fetch_whole(CHECKSUMS)
        sums = np.fromfile(self.folder / CHECKSUMS, CHECKSUM_TYPE)
        self._checksums: NDArray[np.uint32] = sums.reshape(self._state.shape)

    def fetch(self, features: Iterable[int] | None, blocks: range | None) -> None:
        """See Store.fetch."""
        if self._complete:
            return
        last = len(self._columns) - 1
        wanted = sorted({*(range(last) if features is None else features), last})
        here = range(self._state.shape[1]) if blocks is None else blocks
        self._fetch_runs(list(self._claim(wanted, here)))
        with self._changed:
            self._changed.wait_for(lambda: not (self._state[wanted, here.start : here.stop] == _COMING).any())
            failed = (self._state[wanted, here.start : here.stop] == _ABSENT).any()
            self._complete = bool((self._state == _HERE).all())
        if failed:  # another thread failed; try it here
            self.fetch(features, blocks)

    def fetch_whole(self, name: str) -> None:
        """Fetch a file that has one checksum, if the store has it. Raises FormatError when it differs."""
        with self._whole_lock:
            if name in self._whole or name not in self._crc:
                return
            local, crc = self.folder / name, 0
            with self._held.counting(local.stat().st_size):
                with pending(self._path), (self._path / name).open("rb") as source, local.open("r+b") as file:
                    while piece := source.read(_REQUEST_BYTES):
                        crc = zlib.crc32(piece, crc)
                        file.write(piece)
                if crc != self._crc[name]:
                    raise damaged_store(f"{self._path / name}: the checksum differs")
            self._whole.add(name)

    def _claim(self, columns: Iterable[int], wanted: range) -> Iterator[tuple[int, int, int]]:
        """The absent cells, claimed by this thread: a column, and blocks from one to before another."""
        with self._changed:
            for column in columns:
                most = max(1, _REQUEST_BYTES // (BLOCK_ROWS * self._columns[column].dtype.itemsize))
                absent = [block for block in wanted if self._state[column, block] == _ABSENT]
                self._state[column, absent] = _COMING
                first = 0
                for at in range(1, len(absent) + 1):
                    if at == len(absent) or absent[at] != absent[at - 1] + 1 or at - first == most:
                        yield column, absent[first], absent[at - 1] + 1
                        first = at

    def _fetch_runs(self, runs: list[tuple[int, int, int]]) -> None:
        """Fetch the claimed cells; on failure those that did not arrive are absent again."""
        if not runs:
            return
        try:
            with ThreadPoolExecutor(min(_AT_ONCE, len(runs)), thread_name_prefix="bigforest-fetch") as pool:
                for _ in pool.map(self._fetch_run, *zip(*runs, strict=True)):
                    pass
        finally:
            with self._changed:
                for column, first, stop in runs:
                    cells = self._state[column, first:stop]
                    cells[cells == _COMING] = _ABSENT
                self._changed.notify_all()

    def _fetch_run(self, column: int, first: int, stop: int) -> None:
        """Fetch some blocks of a column, and check them. Raises FormatError."""
        name, begin, dtype, span = self._columns[column]
        rows = min(stop * BLOCK_ROWS, self._rows) - first * BLOCK_ROWS
        size, offset = rows * dtype.itemsize, begin + first * BLOCK_ROWS * dtype.itemsize
        with self._held.counting(size):
            with pending(self._path), (self._path / name).open("rb") as source:
                source.seek(offset)
                cells = np.frombuffer(source.read(size), dtype)
            checksums = self._checksums[column, first:stop]
            check_cells(cells, checksums, span, str(self._path / name), first)
            with (self.folder / name).open("r+b") as file:
                file.seek(offset)
                file.write(cells.data)
        with self._changed:
            self._state[column, first:stop] = _HERE
            self._changed.notify_all()


class _Held:
    """A folder and the bytes in it; does not keep its owner alive."""

    def __init__(self, copies: ObjectCache, folder: Path) -> None:
        self._copies = copies
        self._folder = folder
        self._lock = threading.Lock()
        self._bytes = 0

    @contextmanager
    def counting(self, size: int) -> Iterator[None]:
        """Count the bytes that the block puts into the folder, unless it fails. Raises ConfigError."""
        self._copies.take(size)
        try:
            yield
        except BaseException:
            self._copies.give_back(size)
            raise
        with self._lock:
            self._bytes += size

    def remove(self) -> None:
        """Remove the folder and count no more."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._copies.give_back(self._bytes)


def _columns(manifest: Manifest) -> list[_Column]:
    """The features and the target, as they stand in the checksums."""
    spec = manifest.spec
    features = [
        _Column(CODES[f.width], f.slot * spec.rows * f.width, CODE_TYPES[f.width], (0, f.codes - 1))
        for f in spec.features
    ]
    kind = TARGET_TYPES[spec.target.task]
    return [*features, _Column(TARGET, 0, kind, target_span(spec))]


class StoreFiles:
    """The files of the store at `path`, whose sizes are checked. Raises FormatError, as all methods do.

    folder  where they are on this machine, as far as they have been fetched.
    copy    of a store in an object store; None for one on a disk.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        _check_sizes(path, manifest)
        self.copy = LocalCopy(path, manifest) if isinstance(path, ObjectPath) else None
        self.folder = path if self.copy is None else self.copy.folder
        names = manifest.sizes() if self.copy is None else ()
        self._stamps = {path / name: _stamp(path / name) for name in names}

    def map(self, name: str, dtype: np.dtype[Any], *shape: int, private: bool = False) -> NDArray[Any]:
        """A file as a plain read-only array, which Numba compiles for once; files that would be empty are absent.

        private  whether it may be written to, which copies a page in memory and leaves the file as it is.
        """
        if 0 in shape:
            return read_only(np.empty(shape, dtype))
        return np.asarray(self._mapped(name, dtype, shape, private=private))

    def crc(self, name: str) -> int:
        """CRC-32 of a whole file."""
        if self.copy is not None:
            self.copy.fetch_whole(name)
        return zlib.crc32(self._mapped(name, np.dtype(np.uint8), None).data)

    def check_unchanged(self) -> None:
        """See Store.check_unchanged."""
        for file, stamp in self._stamps.items():
            found = _stamp(file)
            if found != stamp:
                short = found is not None and stamp is not None and found.size < stamp.size
                raise FormatError(
                    f"{file} was {'cut short' if short else 'changed'} while it was read: keep others from writing "
                    "there, and encode the table again"
                )

    def _mapped(
        self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...] | None, *, private: bool = False
    ) -> np.memmap[Any, Any]:
        path = self.folder / name
        try:
            return np.memmap(path, dtype, "c" if private else "r", shape=shape)
        except ValueError as error:  # it has been cut short since its size was checked
            raise FormatError(f"{path} was changed while it was read: keep others from writing there") from error


class _Stamp(NamedTuple):
    """What changes when a file is written to, cut short or replaced."""

    size: int
    time_ns: int
    device: int
    number: int


def _stamp(file: Path) -> _Stamp | None:
    """The stamp of a file; None where there is none."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return _Stamp(found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino)


def _check_sizes(path: Path, manifest: Manifest) -> None:
    """Check that the files of the manifest are there, in full."""
    for name, size in manifest.sizes().items():
        found = (path / name).stat().st_size if (path / name).is_file() else None
        if found != size:
            state = "is missing" if found is None else f"has {found} bytes"
            raise damaged_store(f"{path / name} {state}; {size} bytes were written")
