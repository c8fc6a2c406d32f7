"""One run at a time: locks that end with the process that holds them, also when it is killed.

On a disk a lock is flock on a file. An object store has no locks, but is consistent. A run puts a *lease* next to the
file, an object with its own name, and then checks for others: of two that begin at the same time at least one sees the
other, and gives up. It puts the lease again every few seconds; a lease that was not put again for a minute, by the
clock of the store, belongs to a dead process and is removed.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from pathlib import Path

from bigforest.errors import StorageError
from bigforest.storage.owned_folders import FileLock
from bigforest.storage.paths import is_remote

_PREFIX = "lease-"
# Seconds between two signs of life, and without one until a process counts as dead.
_BEAT = 10.0
DEAD = 60.0


def take_lock(path: Path) -> Lock | None:
    """The lock of the file `path`, which is made in its folder; None where another process holds it.

    Raises FileNotFoundError when there is no such folder.
    """
    taken = _Lease(path) if is_remote(path) else FileLock(path)
    if taken.acquire():
        return taken
    taken.close()
    return None


def is_lease(path: Path) -> bool:
    """Whether a file is the sign of a process that works in its folder."""
    return path.name.startswith(_PREFIX)


class _Lease:
    """A lease in an object store, put at once and kept alive by a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{_PREFIX}{secrets.token_hex(8)}")
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._live, name="bigforest-lease", daemon=True)
        path.write_text("")
        self._path.write_text("")
        self._beat.start()

    def acquire(self) -> bool:
        """Whether there is no other lease of a process that lives."""
        now = self._path.stat().st_mtime_ns
        for other in self._path.parent.glob(f"{_PREFIX}*"):
            if other == self._path:
                continue
            with contextlib.suppress(FileNotFoundError):  # it is just being released
                if now - other.stat().st_mtime_ns < DEAD * 1e9:
                    return False
                other.unlink(missing_ok=True)
        return True

    def held(self) -> bool:
        """Whether it is still held."""
        return self._path.exists()

    def close(self) -> None:
        """Release it."""
        self._ended.set()
        self._beat.join()
        with contextlib.suppress(OSError, StorageError):
            self._path.unlink(missing_ok=True)

    def _live(self) -> None:
        while not self._ended.wait(_BEAT):
            with contextlib.suppress(OSError, StorageError):  # the store may answer again before the lease expires
                if self._path.exists():
                    self._path.write_text("")


# A lock that is held.
Lock = FileLock | _Lease
