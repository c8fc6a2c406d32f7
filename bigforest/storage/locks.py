"""Locks and locked folders. A process that ends releases its locks, even if it is killed.

On a disk a lock is flock on a file. An object store has no locks, but every process sees an object as soon as it is
put. A run puts a *lease*, an object with a random name, next to the file, and then looks for other leases. Of two runs
that begin at the same time, at least one sees the lease of the other and gives up. The run puts its lease again every
ten seconds. A lease that was not put for a minute, by the clock of the store, belongs to a dead process and is removed.

A locked folder contains its own lock. `remove_stale_dirs` removes the folders of ended processes; it is called before a
process creates a folder in the same place. The name of a folder contains a checksum of the name of its host. Folders of
other hosts stay, because locks may not reach from host to host. Links and folders of other users stay, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import tempfile
import threading
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

from bigforest.errors import StorageError, naming_file
from bigforest.storage.object_store import ObjectPath

try:
    import fcntl
except ImportError:  # not POSIX: no lock, and no stale folder is removed
    fcntl = None  # type: ignore[assignment]

_LEASE = "lease-"
# Seconds between two puts of a lease. A process without a put for _DEAD seconds counts as dead.
_BEAT = 10.0
_DEAD = 60.0
# Name of the lock in a locked folder.
_LOCK = "lock"
# The part of a name that mkdtemp adds to a prefix.
_RANDOM = re.compile(r"[a-z0-9_]{8}")
# Attempts to remove a folder: a thread that still writes to it may leave a file after each attempt.
_REMOVALS = 5


class FileLock:
    """A lock on a local file: flock, which `acquire` calls."""

    def __init__(self, path: Path, *, make: bool = True) -> None:
        """Open the file, and create it if `make`. Raises FileNotFoundError if there is no folder or no file."""
        flags = os.O_RDWR | (os.O_CREAT if make else 0)
        for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):  # no links, no waiting at a pipe; Windows lacks them
            flags |= getattr(os, name, 0)
        self._path = path
        self._file: IO[bytes] = os.fdopen(os.open(path, flags, 0o666), "r+b", buffering=0)

    def acquire(self) -> bool:
        """Lock the file. Return False if another process holds the lock. Raises OSError if the disk has no locks."""
        try:
            with naming_file(self._path):
                if fcntl is not None:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def held(self) -> bool:
        """Return True if the locked file is still at its path: the previous holder may have removed it."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        return False

    def close(self) -> None:
        self._file.close()


class _Lease:
    """A lock on an object: a lease, put at once and kept alive by a thread. Parameters as for `take_lock`."""

    def __init__(self, path: Path, beat: float, dead: float) -> None:
        self._beat_seconds, self._dead_seconds = beat, dead
        self._path = path.with_name(f"{_LEASE}{secrets.token_hex(8)}")
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._keep_alive, name="bigforest-lease", daemon=True)
        path.write_text("")
        self._path.write_text("")
        self._beat.start()

    def acquire(self) -> bool:
        """Return False if another live process has a lease. Remove the leases of dead processes."""
        now = self._path.stat().st_mtime_ns
        for other in self._path.parent.glob(f"{_LEASE}*"):
            if other == self._path:
                continue
            with contextlib.suppress(FileNotFoundError):  # released meanwhile
                if now - other.stat().st_mtime_ns < self._dead_seconds * 1e9:
                    return False
                other.unlink(missing_ok=True)
        return True

    def held(self) -> bool:
        """Return True if the lease still exists."""
        return self._path.exists()

    def close(self) -> None:
        self._ended.set()
        self._beat.join()
        with contextlib.suppress(OSError, StorageError):
            self._path.unlink(missing_ok=True)

    def _keep_alive(self) -> None:
        while not self._ended.wait(self._beat_seconds):
            with contextlib.suppress(OSError, StorageError):  # the store may answer again before the lease expires
                if self._path.exists():
                    self._path.write_text("")


# A lock that is held.
Lock = FileLock | _Lease


def take_lock(path: Path, *, beat: float = _BEAT, dead: float = _DEAD) -> Lock | None:
    """Lock the file `path`, which is created if necessary. Return the lock; None if another process holds it.

    beat  seconds between two puts of a lease in an object store
    dead  seconds without a put after which the process of a lease counts as dead

    Raises FileNotFoundError if the folder of `path` does not exist, and OSError if its disk has no locks.
    """
    taken = _Lease(path, beat, dead) if isinstance(path, ObjectPath) else FileLock(path)
    if taken.acquire():
        return taken
    taken.close()
    return None


def is_lease(path: Path) -> bool:
    return path.name.startswith(_LEASE)


def finalize(owner: object, remove: Callable[..., object], *args: object) -> weakref.finalize[..., Any]:
    """Register a `weakref.finalize` that does nothing in a forked process: files belong to the process that made them.

    owner  object at whose end `remove(*args)` is called
    """
    return weakref.finalize(owner, _call_in, os.getpid(), remove, *args)


def _call_in(process: int, remove: Callable[..., object], *args: object) -> None:
    if os.getpid() == process:
        remove(*args)


class LockedDir(NamedTuple):
    """A folder of this process, and its lock."""

    path: Path
    lock: FileLock

    def remove(self) -> None:
        """Remove the folder and everything in it, as far as the system allows."""
        remove_tree(self.path)
        self.lock.close()


def create_locked_dir(parent: Path, prefix: str) -> LockedDir:
    """Create a folder in `parent` that contains only its lock. Raises OSError."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_host_prefix(prefix), dir=parent))
        with contextlib.suppress(FileNotFoundError):  # another process took the folder for stale, and removed it
            lock = FileLock(folder / _LOCK)
            with contextlib.suppress(OSError):  # this disk has no locks, so no process removes stale folders on it
                if not lock.acquire() or not lock.held():
                    lock.close()
                    continue
            return LockedDir(folder, lock)


def remove_stale_dirs(parent: Path, prefix: str, rescue: Callable[[Path], None] | None = None) -> None:
    """Remove the folders that ended processes of this host created with `create_locked_dir(parent, prefix)`.

    rescue  called with each folder before its removal, while its lock is held.
    """
    folders: list[Path] = []
    start = _host_prefix(prefix)
    if fcntl is not None:
        with contextlib.suppress(OSError), os.scandir(parent) as entries:
            folders = [Path(entry) for entry in entries if _is_ours(entry, start)]
    for folder in folders:
        with contextlib.suppress(OSError):
            _remove_stale(folder, rescue)


def _remove_stale(folder: Path, rescue: Callable[[Path], None] | None) -> None:
    try:
        lock = FileLock(folder / _LOCK, make=False)
    except FileNotFoundError:  # its process was killed before creating the lock, or after removing it, at the end
        folder.rmdir()
        return
    with contextlib.closing(lock):
        if lock.acquire() and lock.held():
            if rescue is not None:
                rescue(folder)
            remove_tree(folder)


def _is_ours(entry: os.DirEntry[str], start: str) -> bool:
    """Return True if this user created the folder on this host."""
    if not entry.name.startswith(start) or not _RANDOM.fullmatch(entry.name[len(start) :]):
        return False
    return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()


def _host_prefix(prefix: str) -> str:
    return f"{prefix}{zlib.crc32(socket.gethostname().encode()):08x}-"


def remove_tree(path: Path) -> None:
    """Remove a folder and everything in it, as far as the system allows.

    A lock is removed last, so that a folder whose removal is interrupted counts as stale. Links are not followed.
    """
    for _ in range(_REMOVALS):
        with contextlib.suppress(OSError):
            if (path / _LOCK).exists() and not path.is_symlink():
                for entry in path.iterdir():
                    if entry.name != _LOCK:
                        _remove_entry(entry)
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            if not path.exists():
                return


def _remove_entry(entry: Path) -> None:
    with contextlib.suppress(OSError):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()
