"""Stamps of files, which show that a file has changed while it was read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bigforest.errors import DataError


class FileStamp(NamedTuple):
    """Properties of a file that change when it is written, cut or replaced, but not when it is renamed or linked.

    path        the file.
    size        bytes.
    written_ns  time of the last change of the content.
    place       device and inode. None in an object store, and in a stamp sent to another process, because device
                numbers differ between machines.
    """

    path: Path
    size: int
    written_ns: int
    place: tuple[int, int] | None

    @classmethod
    def of(cls, path: Path) -> FileStamp:
        """Return the stamp of a file. Raises OSError."""
        return cls._from(path, path.stat())

    @classmethod
    def _from(cls, path: Path, status: Any) -> FileStamp:
        if not hasattr(status, "st_ino"):
            return cls(path, status.st_size, status.st_mtime_ns, None)
        return cls(path, status.st_size, status.st_mtime_ns, (status.st_dev, status.st_ino))

    def check_open(self, descriptor: int) -> None:
        """Raise DataError if an open file has another stamp."""
        if not self.is_of(FileStamp._from(self.path, os.fstat(descriptor))):
            raise _changed(self.path, "changed")

    def check(self) -> None:
        """Raise DataError if the file of this name has changed."""
        try:
            now = FileStamp.of(self.path)
        except FileNotFoundError:
            raise _changed(self.path, "was removed") from None
        if not self.is_of(now):
            raise _changed(self.path, "changed")

    def is_of(self, now: FileStamp) -> bool:
        """Return True if `now` is a stamp of the same file, unchanged."""
        same = (self.size, self.written_ns) == (now.size, now.written_ns)
        return same and (self.place is None or self.place == now.place)


def _changed(path: Path, change: str) -> DataError:
    return DataError(f"{path}: the file {change} while it was read; nothing was written; run again when it is complete")


@contextlib.contextmanager
def unchanged(stamps: Sequence[FileStamp]) -> Iterator[None]:
    """Raise DataError if one of the files changes during the block, in place of any other error of the block."""
    try:
        yield
    except Exception:
        for stamp in stamps:
            stamp.check()
        raise
    for stamp in stamps:
        stamp.check()
