"""Recognising that the folder of a forest was replaced after it was opened.

All files of a forest carry its dataspec and configuration, which forests of other runs may share. run.parquet also has
the seconds of each stage, so its content identifies the run. A stamp remembers a digest of this content, and the
device, inode, size and time of the file. A check compares the latter, and reads the file only if they have changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bigforest.errors import FormatError

RUN_FILE = "run.parquet"
# Bytes at the beginning and at the end of a file that are hashed.
_READ_BYTES = 1 << 20


class RunStamp:
    """The run that a folder contained when the forest was opened. Can be sent to other processes.

    directory  of the forest.
    digest     of the content of its run.parquet.
    """

    def __init__(self, directory: Path) -> None:
        """Raises OSError."""
        self.directory = directory
        self._status = _status(directory / RUN_FILE)
        self.digest = _digest(directory / RUN_FILE)

    @classmethod
    def of(cls, directory: Path) -> RunStamp | None:
        """Return the stamp of a folder; None while it has no run.parquet. Raises OSError."""
        return cls(directory) if (directory / RUN_FILE).is_file() else None

    def check(self) -> None:
        """Raise FormatError if the folder contains another run, or none. A copy of the same run passes."""
        path = self.directory / RUN_FILE
        try:
            status = _status(path)
            same = status == self._status or _digest(path) == self.digest
        except OSError as error:
            raise FormatError(
                f"the forest in {self.directory} was removed or replaced after it was opened ({error}); restore its "
                "folder, or open another with bigforest.read_forest"
            ) from error
        if not same:
            raise replaced_forest(self.directory)
        self._status = status


def replaced_forest(directory: Path) -> FormatError:
    """Return the error of a folder that contains another forest than the one that was opened."""
    return FormatError(
        f"the forest in {directory} was replaced by another one after it was opened, as its {RUN_FILE} differs; open "
        "it again with bigforest.read_forest"
    )


@contextmanager
def same_run(stamp: RunStamp | None) -> Iterator[None]:
    """Check before and after the block that the folder still contains the run. An error in the block may be due to a
    replacement, which is then raised instead. None for no check. Raises FormatError."""
    if stamp is None:
        yield
        return
    stamp.check()
    try:
        yield
    except Exception:
        stamp.check()
        raise
    stamp.check()


def _status(path: Path) -> tuple[int, int, int, int]:
    """Return device, inode, size and time of a file; an object in a store has neither device nor inode."""
    status = path.stat()
    return getattr(status, "st_dev", 0), getattr(status, "st_ino", 0), status.st_size, status.st_mtime_ns


def _digest(path: Path) -> str:
    """Return a digest of a file: of all of it, unless it is larger than any run.parquet, which is a few kilobytes."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file")  # a pipe would be waited for
    size = path.stat().st_size
    found = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        found.update(file.read(_READ_BYTES))
        file.seek(max(0, size - _READ_BYTES))
        found.update(file.read(_READ_BYTES))
    return found.hexdigest()[:32]
