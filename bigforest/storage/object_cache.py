"""Local copies of objects of an object store: a folder of this process, kept within a limit.

BIGFOREST_CACHE is the folder in which each process creates its own (default: the system's temporary folder), and
BIGFOREST_CACHE_SIZE the limit for one process, such as 200GB (default: none). Folders of ended processes are removed by
the next one.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from bigforest.errors import ConfigError
from bigforest.planning.sizes import parse_bytes
from bigforest.storage.locks import create_locked_dir, remove_stale_dirs

_PREFIX = "bigforest-copies-"
# Seconds for which a requested copy is kept: by then it is open, and its name may be removed.
_KEPT = 60.0


class ObjectCache:
    """The copies of this process, for several threads."""

    def __init__(self) -> None:
        home = Path(os.environ.get("BIGFOREST_CACHE") or tempfile.gettempdir())
        limit = os.environ.get("BIGFOREST_CACHE_SIZE")
        self._limit = None if limit is None else parse_bytes(limit, "BIGFOREST_CACHE_SIZE")
        if not home.is_dir():
            raise ConfigError(f"the folder {home} for local copies does not exist; create it, or set BIGFOREST_CACHE")
        remove_stale_dirs(home, _PREFIX)
        held = create_locked_dir(home, _PREFIX)
        self.folder = held.path
        weakref.finalize(self, held.remove)
        self._lock = threading.Lock()
        self._making: dict[tuple[object, ...], threading.Lock] = {}
        self._files: dict[tuple[object, ...], tuple[Path, int, float]] = {}
        self._used = 0
        self._number = 0

    def file(self, key: tuple[object, ...], size: int, fetch: Callable[[Path], None]) -> Path:
        """Return the copy of this key, of `size` bytes; `fetch(path)` makes it if there is none yet."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._files:
                    path, size, _ = self._files.pop(key)
                    self._files[key] = (path, size, time.monotonic())  # the last to be dropped
                    return path
                self._number += 1
                path = self.folder / f"file-{self._number}"
            self.take(size)
            try:
                fetch(path)
            except BaseException:
                path.unlink(missing_ok=True)
                self.give_back(size)
                raise
            with self._lock:
                self._files[key] = (path, size, time.monotonic())
            return path

    def take(self, size: int) -> None:
        """Count `size` bytes as used, after removing the least recently requested copies if there is no room.

        Raises ConfigError.
        """
        with self._lock:
            while self._limit is not None and self._used + size > self._limit:
                oldest = next(iter(self._files), None)
                if oldest is None or time.monotonic() - self._files[oldest][2] < _KEPT:
                    raise ConfigError(
                        f"local copies of {self._used + size:,} bytes are needed and BIGFOREST_CACHE_SIZE allows "
                        f"{self._limit:,}; raise it, or spread the work over more workers"
                    )
                path, freed, _ = self._files.pop(oldest)
                self._making.pop(oldest, None)
                path.unlink(missing_ok=True)
                self._used -= freed
            self._used += size

    def give_back(self, size: int) -> None:
        """Count `size` bytes as no longer used."""
        with self._lock:
            self._used -= size
