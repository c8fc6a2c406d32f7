"""The files of a store on this machine: mapped, fetched where the store is remote, and watched for changes."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.arrays import read_only
from bigforest.common.errors import FormatError, damaged_store
from bigforest.kernels.compiler.mapped_files import GuardedMap
from bigforest.storage.object_store import ObjectPath
from bigforest.store.format import Manifest
from bigforest.store.local_copy import LocalCopy


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
        self._maps: dict[tuple[Path, bool], GuardedMap] = {}

    def map(self, name: str, dtype: np.dtype[Any], *shape: int, private: bool = False) -> NDArray[Any]:
        """A file as a plain read-only array, which Numba compiles for once; files that would be empty are absent.

        private  whether it may be written to, which copies a page in memory and leaves the file as it is.
        """
        if 0 in shape:
            return read_only(np.empty(shape, dtype))
        guarded = self._guarded(name, dtype, shape, private=private)
        self._maps[self.folder / name, private] = guarded
        return guarded.array

    def crc(self, name: str) -> int:
        """CRC-32 of a whole file."""
        if self.copy is not None:
            self.copy.fetch_whole(name)
        return zlib.crc32(self._guarded(name, np.dtype(np.uint8), None).array.data)

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
        for (file, _), mapped in self._maps.items():
            if mapped.was_lost():
                raise FormatError(f"{file} cannot be read: the disk fails, or it was cut short and written again")

    def _guarded(
        self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...] | None, *, private: bool = False
    ) -> GuardedMap:
        path = self.folder / name
        try:
            return GuardedMap(np.memmap(path, dtype, "c" if private else "r", shape=shape))
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
