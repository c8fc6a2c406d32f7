"""Paths of files: in a folder of this machine or, as an `ObjectPath`, in an object store.

This module has the operations that differ between the two. An object is uploaded as a whole. It cannot be appended to,
mapped or renamed. So code that writes a file writes to the local path that `write_atomically` or `uploads` yields. Code
that reads a file reads the local path from `local_path` or `downloads`: the local file itself, or a copy of the object.
Arrow reads objects piece by piece, without a copy (`readable`).

Local copies of objects are kept in a folder of this process, within a limit. Each process creates its folder in
BIGFOREST_CACHE (default: the system's temporary folder). BIGFOREST_CACHE_SIZE is the limit for one process, such as
200GB (default: none). When a process starts to cache, it removes the folders of ended processes of this host and user.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import io
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

from bigforest.errors import ConfigError, naming_file, shown
from bigforest.planning.sizes import parse_bytes
from bigforest.storage.locks import create_locked_dir, finalize, remove_stale_dirs
from bigforest.storage.object_store import ROOT, SCHEME, ObjectPath

# Objects copied at a time: each waits for the network most of the time.
_AT_ONCE = 16
# Main files, which mark a folder as complete. They are uploaded last and removed first.
_LAST = ("manifest.json", "run.parquet")
# Limits of the name of a file, in bytes, and of a path, in characters.
_MAX_NAME, _MAX_PATH = 255, 4096
# Beginning of a URL; a single letter may be a drive.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# Suffix of files that are being written.
_HALF_MADE = ".tmp"
# Suffix of the folder of a run, after the name of its output.
UNFINISHED = ".unfinished"
# Files by which each kind of folder that bigforest writes is recognised.
_INSIDE = {
    "a forest": ("run.parquet", "trees"),
    "a store": ("manifest.json", "checksums.bin"),
    "an unfinished run": ("state.json", "forest"),
    "a comparison": ("race.json", "table.store"),
}
# Beginning of the names of folders with copies.
_PREFIX = "bigforest-copies-"
# Seconds for which a copy is kept after a request. By then the reader has opened the file, so it may be removed.
_KEPT = 60.0


class ObjectCache:
    """The local copies of objects of this process. Thread-safe."""

    def __init__(self, keep_seconds: float = _KEPT) -> None:
        """Create the folder; keep_seconds: time for which a requested copy is not dropped."""
        self._keep_seconds = keep_seconds
        home = Path(os.environ.get("BIGFOREST_CACHE") or tempfile.gettempdir())
        limit = os.environ.get("BIGFOREST_CACHE_SIZE")
        self._limit = None if limit is None else parse_bytes(limit, "BIGFOREST_CACHE_SIZE")
        if not home.is_dir():
            raise ConfigError(f"the folder {home} for local copies does not exist; create it, or set BIGFOREST_CACHE")
        remove_stale_dirs(home, _PREFIX)
        held = create_locked_dir(home, _PREFIX)
        self.folder = held.path
        finalize(self, held.remove)
        self._lock = threading.RLock()  # the garbage collector may call `drop` in a thread that holds the lock
        self._making: dict[tuple[object, ...], threading.Lock] = {}  # by key, held while the copy is made
        # Path, bytes and time of the last request of each copy, by key, in the order of these requests.
        self._files: dict[tuple[object, ...], tuple[Path, int, float]] = {}
        self._folders: dict[Path, int] = {}  # bytes in each folder given to `counting`
        self._used = 0  # bytes of all copies
        self._number = 0  # of the last copy

    def file(self, key: tuple[object, ...], size: int, fetch: Callable[[Path], None]) -> Path:
        """Return the path of the copy for `key`. If there is none yet, `fetch(path)` makes a copy of `size` bytes."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._files:
                    path, kept_size, _ = self._files.pop(key)
                    self._files[key] = (path, kept_size, time.monotonic())  # at the end, where it is dropped last
                    return path
                self._number += 1
                path = self.folder / f"file-{self._number}"
            with self.counting(size):
                try:
                    fetch(path)
                except BaseException:
                    path.unlink(missing_ok=True)
                    raise
            with self._lock:
                self._files[key] = (path, size, time.monotonic())
            return path

    @contextlib.contextmanager
    def counting(self, size: int, folder: Path | None = None) -> Iterator[None]:
        """Count `size` bytes that the block writes. Make room by removing the least recently requested copies.

        folder  folder in which the block writes, to be removed by `drop`; None for a copy that `file` makes.

        If the block fails, the bytes are not counted. Raises ConfigError if there is no room.
        """
        with self._lock:
            while self._limit is not None and self._used + size > self._limit:
                oldest = next(iter(self._files), None)
                if oldest is None or time.monotonic() - self._files[oldest][2] < self._keep_seconds:
                    raise ConfigError(
                        f"local copies of {self._used + size:,} bytes are needed and BIGFOREST_CACHE_SIZE allows "
                        f"{self._limit:,}; raise it, or spread the work over more workers"
                    )
                path, freed, _ = self._files.pop(oldest)
                self._making.pop(oldest, None)
                path.unlink(missing_ok=True)
                self._used -= freed
            self._used += size
        try:
            yield
        except BaseException:
            with self._lock:
                self._used -= size
            raise
        if folder is not None:
            with self._lock:
                self._folders[folder] = self._folders.get(folder, 0) + size

    def drop(self, folder: Path) -> None:
        """Remove a folder that was given to `counting`, and stop counting its bytes."""
        shutil.rmtree(folder, ignore_errors=True)
        with self._lock:
            self._used -= self._folders.pop(folder, 0)


def as_path(text: str | os.PathLike[Any]) -> Path:
    """Convert an argument to a path. ~ is the home folder.

    Raises ConfigError for anything but text and paths, for an empty text, for an impossible file name, for a URL of
    another scheme than s3://, and for an s3:// path that has no bucket or a glob in place of the bucket.
    """
    if isinstance(text, os.PathLike) and not isinstance(text, Path):
        text = os.fspath(text)
    if not isinstance(text, str | Path):
        raise ConfigError(f"a path was expected, not {shown(text)}; give text or a pathlib.Path")
    if text == "":
        raise ConfigError("a path was expected, not ''; give one that is not empty")
    if not _can_be_named(str(text)):
        raise ConfigError(
            f"{shown(str(text))} cannot name a file: it has a zero byte, is not UTF-8, or is too long (more than "
            f"{_MAX_NAME} bytes a name, or {_MAX_PATH:,} characters in all); give another path"
        )
    if not str(text).startswith(ROOT):
        if isinstance(text, str) and (url := _URL.match(text)):
            raise ConfigError(
                f"{text}: URLs of {url[0]} are not read; give a path of this machine, or {SCHEME}bucket/name, "
                "with AWS_ENDPOINT_URL for a store that is not of AWS"
            )
        return Path(os.path.expanduser(text))  # noqa: PTH111 (this keeps ~name of an unknown user)
    path = ObjectPath(text)
    bucket = path.key.split("/")[0]
    if not bucket or bucket == ROOT.rstrip("/") or glob.has_magic(bucket):
        raise ConfigError(f"{text} names no bucket; write {SCHEME}bucket/name")
    return path


def _can_be_named(text: str) -> bool:
    """Return True if the system, and the libraries that write files, allow this name."""
    try:
        long = max(map(len, text.encode().split(b"/")))
    except UnicodeEncodeError:
        return False
    return long <= _MAX_NAME and len(text) < _MAX_PATH and "\0" not in text


def is_remote(path: Path | None) -> bool:
    return isinstance(path, ObjectPath)


def is_folder(path: Path) -> bool:
    """Return True if the folder exists or, in an object store, its bucket exists."""
    return ObjectPath(SCHEME + path.key.split("/")[0]).is_dir() if isinstance(path, ObjectPath) else path.is_dir()


def can_write(folder: Path) -> bool:
    """Return True if this user may write into a folder. Always True in an object store, which checks each write."""
    return is_remote(folder) or os.access(folder, os.W_OK | os.X_OK)


def known_folder(folder: Path) -> str | None:
    """Return the kind of a folder that any version of bigforest wrote, such as "a forest"; None for other folders."""
    return next((kind for kind, names in _INSIDE.items() if all((folder / name).exists() for name in names)), None)


def free_bytes(path: Path) -> int:
    """Return the free bytes on the disk of a folder; sys.maxsize in an object store."""
    return sys.maxsize if is_remote(path) else shutil.disk_usage(path).free


def absolute_path(text: str | Path) -> Path:
    """Return the absolute path or glob, which does not depend on later changes of the current folder.

    Links are kept, except before "..", which leads from a link to the folder above its target.
    """
    path = as_path(text).absolute()
    if is_remote(path) or ".." not in path.parts:
        return path
    end = len(path.parts) - path.parts[::-1].index("..")
    return Path(*path.parts[:end]).resolve().joinpath(*path.parts[end:])


def expanded(pattern: str | Path) -> list[Path]:
    """Return the paths that match a glob, sorted, without folders: files, broken links, pipes, devices, or objects.

    Raises OSError for a folder that cannot be read, and ConfigError as `as_path`.
    """
    path = as_path(pattern)
    if not is_remote(path):
        return sorted(set(_matching(Path(path.anchor), path.relative_to(path.anchor).parts)))
    root = next(parent for parent in path.parents if not glob.has_magic(str(parent)))
    patterns = path.parts
    return [file for file in root.rglob("*") if _matches(file.parts, patterns)]


def files_in(folder: Path, pattern: str) -> list[Path]:
    """Return the files of a folder that match a pattern: `part-*`, or with the files of its subfolders, `**/part-*`.

    Return none if the folder does not exist. Raises OSError for a folder that cannot be read.
    """
    patterns = pattern.split("/")
    if is_remote(folder):
        return [file for file in folder.rglob("*") if _matches(file.relative_to(folder).parts, patterns)]
    with naming_file(folder):
        return [file for file in _matching(folder, patterns) if stat.S_ISREG(_mode(file))]


def _matching(place: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """Yield the paths in the folder `place` that match a glob, without folders. ** may yield a path twice.

    Raises OSError for a folder that cannot be read. Python's own functions silently leave it out.
    """
    if not patterns:
        mode = _mode(place)
        if (mode and not stat.S_ISDIR(mode)) or (not mode and place.is_symlink()):
            yield place
    elif not glob.has_magic(patterns[0]):
        yield from _matching(place / patterns[0], patterns[1:])
    elif stat.S_ISDIR(_mode(place)):
        every = patterns[0] == "**"
        if every:
            yield from _matching(place, patterns[1:])
        for inside in place.iterdir():
            hidden = inside.name.startswith(".") and not patterns[0].startswith(".")
            if not hidden and fnmatch.fnmatch(inside.name, patterns[0]):
                yield from _matching(inside, patterns if every and stat.S_ISDIR(_mode(inside)) else patterns[1:])


def _mode(path: Path) -> int:
    """Return the mode of a file or folder; 0 if it does not exist. Raises OSError if it cannot be reached."""
    try:
        return path.stat().st_mode
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # a circle of links leads to no file
            return 0
        raise


def walk(folder: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield folders and the names in them as `os.walk` does, but raise OSError for a folder that cannot be read."""

    def refuse(error: OSError) -> None:
        raise error

    return ((Path(place), folders, files) for place, folders, files in os.walk(folder, onerror=refuse))


def _matches(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Return True if the parts of a path match a glob. ** matches any number of folders; * matches no hidden file."""
    if not patterns:
        return not parts
    every = patterns[0] == "**"
    if every and _matches(parts, patterns[1:]):
        return True
    if not parts or (parts[0].startswith(".") and not patterns[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(parts[0], patterns[0]) and _matches(parts[1:], patterns if every else patterns[1:])


def readable(path: Path) -> Any:
    """Return a path or an open object from which Arrow reads the file piece by piece.

    The path is absolute: Arrow and Polars would read relative paths such as file:a.parquet or s3:a.parquet as URLs.
    """
    return path.open("rb") if is_remote(path) else path.absolute()


def local_path(path: Path) -> Path:
    """Return a local file with the content of `path`: a copy of an object, to be opened within a minute, or `path`.

    The copy of an object is used again by this process while the object does not change and there is room. Raises
    FileNotFoundError for an object that does not exist; a local path is not checked.
    """
    if not is_remote(path):
        return path
    facts = path.stat()
    return local_copies().file((str(path), *facts), facts.st_size, lambda local: _copy(path, local))


@contextlib.contextmanager
def downloads(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """Yield local files with the content of `paths`, in order, without paths that do not exist."""
    paths = list(paths)
    if not any(map(is_remote, paths)):
        yield [path for path in paths if path.exists()]
        return
    with tempfile.TemporaryDirectory(prefix="bigforest-in-", dir=local_copies().folder) as folder:
        targets = [Path(folder) / str(number) for number in range(len(paths))]

        def take(path: Path, local: Path) -> None:
            with contextlib.suppress(FileNotFoundError):
                _copy(path, local)

        _each(take, paths, targets)
        yield [target for target in targets if target.exists()]


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a local path to write to. The file appears as `path` if the block ends without an error.

    The folder of `path` is created if it is missing, but not its parent: a task that Dask runs again after the run has
    ended raises FileNotFoundError.
    """
    if is_remote(path):
        with local_workdir(path) as folder:
            yield folder / path.name
            _copy(folder / path.name, path)
        return
    with naming_file(path):
        path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_HALF_MADE}")
    try:
        with naming_file(path):
            yield temporary
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_half_made(folder: Path) -> None:
    """Remove the incomplete files of `write_atomically` that killed processes left in a folder and its subfolders.

    No other process may be writing to the folder.
    """
    for file in list(folder.rglob(f".*{_HALF_MADE}")):
        file.unlink(missing_ok=True)


def remove_half_made_as(path: Path) -> None:
    """Remove the incomplete files of `write_atomically(path)` that killed processes left, and no other files."""
    if is_remote(path):  # incomplete objects never appear
        return
    for file in list(path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}{_HALF_MADE}")):
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def uploads(folder: Path) -> Iterator[Path]:
    """Yield a local folder for new files. If the block ends without an error, they are then in `folder`.

    If `folder` is local, it is yielded itself, so other processes must not read the files before the block ends.
    """
    with local_workdir(folder) as local:
        yield local
        if local != folder:
            copy_folder(local, folder)


@contextlib.contextmanager
def local_workdir(folder: Path) -> Iterator[Path]:
    """Yield a local folder for temporary files: `folder`, or another one if `folder` is in an object store."""
    if not is_remote(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="bigforest-out-", dir=local_copies().folder) as local:
        yield Path(local)


def copy(path: Path, target: Path) -> None:
    """Copy a file or a complete folder to a path that does not exist."""
    if path.is_dir():
        copy_folder(path, target)
    else:
        _copy(path, target)


def copy_folder(folder: Path, target: Path) -> None:
    """Copy all files of a folder to another one, its main file last."""
    inside = folder.rglob("*") if is_remote(folder) else (at / name for at, _, names in walk(folder) for name in names)
    files = list(inside)
    for last in (False, True):
        chosen = [file for file in files if (file.name in _LAST) == last]
        _each(_copy, chosen, [target / file.relative_to(folder) for file in chosen])


def remove_folder(folder: Path) -> None:
    """Remove all objects of a folder, its main file first."""
    assert isinstance(folder, ObjectPath)
    for name in _LAST:
        (folder / name).unlink(missing_ok=True)
    folder.remove_all()


def _each(function: Callable[[Path, Path], None], paths: Sequence[Path], targets: Sequence[Path]) -> None:
    if len(paths) == 1:
        function(paths[0], targets[0])
        return
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="bigforest-carry") as pool:
        for _ in pool.map(function, paths, targets):
            pass


def _copy(path: Path, target: Path) -> None:
    """Copy a file. Raises FileNotFoundError."""
    if isinstance(target, ObjectPath):
        target.put(path)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(path, ObjectPath):
        path.get(target)
    else:
        shutil.copyfile(path, target)


@contextlib.contextmanager
def text_lines(path: Path, encoding: str) -> Iterator[io.TextIOWrapper]:
    """Yield a file opened as text. Ends of lines are not translated."""
    with naming_file(path), io.TextIOWrapper(path.open("rb"), encoding=encoding, newline="") as lines:
        yield lines


@lru_cache(maxsize=1)
def local_copies() -> ObjectCache:
    """Return the cache of this process."""
    return ObjectCache()
