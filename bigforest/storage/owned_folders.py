"""Folders that belong to a living process: each has a lock, which ends with the process that holds it, however it ends.

What ended processes left is removed by the next one that makes such a folder in the same place. Nothing else is: the
name of a folder says which host made it, so that others are left to their own, whether or not locks reach from host
to host; links, and folders of other users, are left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

try:
    import fcntl
except ImportError:  # not POSIX: no lock, and nothing is removed
    fcntl = None  # type: ignore[assignment]

_LOCK = "lock"
# What mkdtemp puts behind a prefix.
_RANDOM = re.compile(r"[a-z0-9_]{8}")
# A thread that still writes while its folder is being removed leaves one more file for the next attempt.
_REMOVALS = 5


class FileLock:
    """flock on a file, which is made if it is not there; a lock once it is acquired."""

    def __init__(self, path: Path, *, make: bool = True) -> None:
        """Raises FileNotFoundError when there is no such folder or, without `make`, no such file."""
        flags = os.O_RDWR | (os.O_CREAT if make else 0)
        for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):  # no links, no waiting at a pipe; Windows has neither
            flags |= getattr(os, name, 0)
        self._path = path
        self._file: IO[bytes] = os.fdopen(os.open(path, flags, 0o666), "r+b", buffering=0)

    def acquire(self) -> bool:
        """Take it, unless another process has it; whether it is ours. Raises OSError where nothing can be locked."""
        try:
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def held(self) -> bool:
        """Whether it is the lock of the file that is there now: whoever had it may have removed the file between our
        opening and locking it."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        return False

    def close(self) -> None:
        """Release it."""
        self._file.close()


class LockedDir(NamedTuple):
    """A folder of this process, and its lock."""

    path: Path
    lock: FileLock

    def remove(self) -> None:
        """Remove the folder and everything in it, as far as the system allows."""
        remove_tree(self.path)
        self.lock.close()


def hold(parent: Path, prefix: str) -> LockedDir:
    """A new folder in `parent`; its lock is in it, and beside that it is empty. Raises OSError."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_start(prefix), dir=parent))
        with contextlib.suppress(FileNotFoundError):  # another process took it for left behind, and removed it
            lock = FileLock(folder / _LOCK)
            with contextlib.suppress(OSError):  # nothing can be locked on this disk: nothing is swept there either
                if not lock.acquire() or not lock.held():
                    lock.close()
                    continue
            return LockedDir(folder, lock)


def sweep(parent: Path, prefix: str, rescue: Callable[[Path], None] | None = None) -> None:
    """Remove the folders that ended processes of this host made with `hold(parent, prefix)` and left.

    rescue  is called before with each folder, which nobody else touches then.
    """
    folders: list[Path] = []
    start = _start(prefix)
    if fcntl is not None:
        with contextlib.suppress(OSError), os.scandir(parent) as entries:
            folders = [Path(entry) for entry in entries if _is_ours(entry, start)]
    for folder in folders:
        with contextlib.suppress(OSError):
            _sweep(folder, rescue)


def _sweep(folder: Path, rescue: Callable[[Path], None] | None) -> None:
    try:
        lock = FileLock(folder / _LOCK, make=False)
    except FileNotFoundError:  # killed before there was a lock, or after it was removed, which is at the end
        folder.rmdir()
        return
    with contextlib.closing(lock):
        if lock.acquire() and lock.held():
            if rescue is not None:
                rescue(folder)
            remove_tree(folder)


def _is_ours(entry: os.DirEntry[str], start: str) -> bool:
    """Whether it is a folder that this user made on this host."""
    if not entry.name.startswith(start) or not _RANDOM.fullmatch(entry.name[len(start) :]):
        return False
    return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()


def _start(prefix: str) -> str:
    return f"{prefix}{zlib.crc32(socket.gethostname().encode()):08x}-"


def remove_tree(path: Path) -> None:
    """Remove a folder and everything in it, as far as the system lets us; a lock last, so that what is left when we
    are killed meanwhile is swept. Links are not followed."""
    for _ in range(_REMOVALS):
        if (path / _LOCK).exists() and not path.is_symlink():
            for entry in path.iterdir():
                if entry.name != _LOCK:
                    _remove_entry(entry)
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return


def _remove_entry(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            entry.unlink()
