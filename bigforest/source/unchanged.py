"""Files of a table that must stay the same while they are read.

A table is read in several passes, a column at a time. If a file were replaced or written to between two passes, columns
of different rows would be combined. So each file gets a stamp before it is first opened. The stamp is compared
1. with the open file, whenever a Parquet file that is read in place is opened again;
2. with the file of that name, at the end of each stage that reads the table.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from bigforest.errors import DataError
from bigforest.storage.paths import as_path


class FileStamp(NamedTuple):
    """Properties of a file that change when it is written, cut or replaced.

    path        the file.
    size        bytes.
    written_ns  time of the last change of the content.
    place       device and inode; None in an object store, and for other machines, since device numbers differ there.
    status_ns   time of the last change of the inode, also by renaming and linking; None where `place` is None.
    """

    path: Path
    size: int
    written_ns: int
    place: tuple[int, int] | None
    status_ns: int | None

    @classmethod
    def of(cls, path: Path) -> FileStamp:
        """Return the stamp of a file. Raises OSError."""
        return cls._from(path, path.stat())

    @classmethod
    def _from(cls, path: Path, status: Any) -> FileStamp:
        if not hasattr(status, "st_ino"):
            return cls(path, status.st_size, status.st_mtime_ns, None, None)
        return cls(path, status.st_size, status.st_mtime_ns, (status.st_dev, status.st_ino), status.st_ctime_ns)

    def check_open(self, descriptor: int) -> None:
        """Raise DataError if an open file has another stamp."""
        if not self.is_of(FileStamp._from(self.path, os.fstat(descriptor)), renamed=True):
            raise _changed(self.path, "changed")

    def check(self, *, renamed: bool) -> None:
        """Raise DataError if the file of this name has changed.

        renamed  True to accept a file that was only renamed or linked: each of its openings was checked.
        """
        try:
            now = FileStamp.of(self.path)
        except FileNotFoundError:
            raise _changed(self.path, "was removed") from None
        if not self.is_of(now, renamed=renamed):
            raise _changed(self.path, "changed")

    def is_of(self, now: FileStamp, *, renamed: bool) -> bool:
        """Return True if a file with the stamp `now` is the same file, unchanged; see `check`."""
        same = (self.size, self.written_ns) == (now.size, now.written_ns)
        same &= self.place is None or self.place == now.place
        return same and (renamed or self.status_ns is None or self.status_ns == now.status_ns)


def _changed(path: Path, change: str) -> DataError:
    return DataError(f"{path}: the file {change} while it was read; nothing was written; run again when it is complete")


@contextlib.contextmanager
def unchanged(stamps: Sequence[FileStamp], *, renamed: bool = False) -> Iterator[None]:
    """Raise DataError if one of the files changes in the block. It replaces any other error of the block."""
    try:
        yield
    except Exception:
        for stamp in stamps:
            stamp.check(renamed=renamed)
        raise
    for stamp in stamps:
        stamp.check(renamed=renamed)


def stamps_behind(data: Any) -> list[FileStamp]:
    """Return stamps of the files that a lazy query or a pyarrow dataset names. A query of many files names the first
    only."""
    names: list[str] = []
    if isinstance(data, pl.LazyFrame):
        with contextlib.suppress(pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
            for paths in re.findall(r"SCAN \[(.*?)\]$", data.explain(optimized=False), re.MULTILINE):
                names += re.split(r", ", re.sub(r", \.\.\. \d+ other .*$", "", paths))
    elif isinstance(files := getattr(data, "files", None), list):  # of a dataset, not of a forest
        names += files
    stamps = []
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            if "://" not in name and Path(name).is_file():
                stamps.append(FileStamp.of(as_path(name)))
    return stamps
