"""The local copy of a store that is in an object store: files of the same sizes, empty at first, into which requested
cells are fetched and checked. Blocks of a feature lie side by side, so several come with one request.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import damaged_store
from bigforest.storage.object_cache import ObjectCache
from bigforest.storage.object_store import ObjectPath, pending
from bigforest.storage.paths import local_copies
from bigforest.store.checks import check_cells
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
