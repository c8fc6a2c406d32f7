"""Paths of files: in a folder of this machine or, as an `ObjectPath`, in an object store.

All else works on paths and asks here for what the two do differently: an object appears whole or not at all when it is
put there, cannot be appended to, mapped or renamed, and must be fetched to be read. So whatever writes a file writes it
to the local path that `write_atomically` or `uploads` give, and whatever reads one reads the local path that
`local_path` or `downloads` give; for a path on this machine that is the path itself.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import io
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

from bigforest.errors import ConfigError, shown
from bigforest.storage.object_cache import ObjectCache
from bigforest.storage.object_store import ROOT, SCHEME, ObjectPath

# Objects carried at a time: each waits for the network most of the time.
_AT_ONCE = 16
# Files by which a folder is known for what it is; they are put last and removed first.
_LAST = ("manifest.json", "run.parquet")
# Bytes of the name of a file, and of a path, in all systems that matter.
_MOST_NAME, _MOST_PATH = 255, 4096
# How a URL begins; a single letter may be a drive.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# How the name of a file ends that is being made.
_HALF_MADE = ".tmp"
# What the folder of a run is called, after its output.
UNFINISHED = ".unfinished"
# What is in each kind of folder that bigforest writes, and in no other.
_INSIDE = {
    "a forest": ("run.parquet", "trees"),
    "a store": ("manifest.json", "checksums.bin"),
    "an unfinished run": ("state.json", "forest"),
    "a comparison": ("race.json", "table.store"),
}


def as_path(text: str | Path) -> Path:
    """The path that a user means, ~ being the home folder.

    Raises ConfigError for what is no path, or has a name that no file can have, for a URL of another scheme, and for
    one in an object store without a bucket.
    """
    if not isinstance(text, str | Path):
        raise ConfigError(f"a path was expected, not {shown(text)}; give text or a pathlib.Path")
    if text == "":
        raise ConfigError("a path was expected, not ''; give one that is not empty")
    if not _can_be_named(str(text)):
        raise ConfigError(
            f"{shown(str(text))} is the name of no file: it has a zero, or no UTF-8, or more than {_MOST_NAME} bytes; "
            "give a shorter path"
        )
    if not str(text).startswith(ROOT):
        if isinstance(text, str) and (url := _URL.match(text)):
            raise ConfigError(
                f"{text}: URLs of {url[0]} are not read; give a path of this machine, or {SCHEME}bucket/name, "
                "with AWS_ENDPOINT_URL for a store that is not of AWS"
            )
        return Path(os.path.expanduser(text))  # noqa: PTH111 (which leaves an unknown user as it is)
    path = ObjectPath(text)
    bucket = path.key.split("/")[0]
    if not bucket or bucket == ROOT.rstrip("/") or glob.has_magic(bucket):
        raise ConfigError(f"{text} names no bucket; write {SCHEME}bucket/name")
    return path


def _can_be_named(text: str) -> bool:
    """Whether the system, and the libraries that write, have files of this name."""
    try:
        long = max(map(len, text.encode().split(b"/")))
    except UnicodeEncodeError:
        return False
    return long <= _MOST_NAME and len(text) < _MOST_PATH and "\0" not in text


def is_remote(path: Path | None) -> bool:
    """Whether the path is in an object store."""
    return isinstance(path, ObjectPath)


def is_folder(path: Path) -> bool:
    """Whether files may be put into the folder: on this machine it is there, in an object store its bucket is."""
    return ObjectPath(SCHEME + path.key.split("/")[0]).is_dir() if isinstance(path, ObjectPath) else path.is_dir()


def can_write(folder: Path) -> bool:
    """Whether this user may put files into a folder; of one in an object store, the store says so when it is tried."""
    return is_remote(folder) or os.access(folder, os.W_OK | os.X_OK)


def known_folder(folder: Path) -> str | None:
    """What a folder that bigforest wrote is, of whatever version and state: "a forest" and so on; None for others."""
    return next((kind for kind, names in _INSIDE.items() if all((folder / name).exists() for name in names)), None)


def free_bytes(path: Path) -> int:
    """Free bytes on the disk of a folder; sys.maxsize in an object store."""
    return sys.maxsize if is_remote(path) else shutil.disk_usage(path).free


def absolute(text: str | Path) -> str:
    """The absolute form of a path or glob."""
    path = as_path(text)
    return str(path) if is_remote(path) else os.path.abspath(path)  # noqa: PTH100 (Path.absolute keeps ..)


def expanded(pattern: str | Path) -> list[Path]:
    """The files that match a glob, by name."""
    path = as_path(pattern)
    if not is_remote(path):
        found = glob.glob(str(path), recursive=True)  # noqa: PTH207 (Path.glob would give hidden files too)
        return sorted(Path(file) for file in found if Path(file).is_file())
    root = next(parent for parent in path.parents if not glob.has_magic(str(parent)))
    wanted = path.parts
    return [file for file in root.rglob("*") if _matches(file.parts, wanted)]


def _matches(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the parts of a path are those of a glob; ** stands for any number of folders, * for none hidden."""
    if not wanted:
        return not parts
    if wanted[0] == "**":
        return any(_matches(parts[skipped:], wanted[1:]) for skipped in range(len(parts) + 1))
    if not parts or (parts[0].startswith(".") and not wanted[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(parts[0], wanted[0]) and _matches(parts[1:], wanted[1:])


def readable(path: Path) -> Any:
    """What Arrow reads a file from, piece by piece."""
    return path.open("rb") if is_remote(path) else path


def local_path(path: Path) -> Path:
    """A local file with the content of `path`, good to be opened at once: copies are kept in this process for as long
    as the object does not change and there is room for them. Raises FileNotFoundError."""
    if not is_remote(path):
        return path
    known = path.stat()
    return local_copies().file((str(path), *known), known.st_size, lambda local: _copy(path, local))


@contextlib.contextmanager
def downloads(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """Local files, for the block, with the content of those of the files that exist, in order."""
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
    """A local path for the block to write to; the file appears as `path` if the block ends without an error.

    The folder of `path` is made, but not the one around it: where that is gone, so is the run that wants the file, and
    a worker that it had taken for dead raises FileNotFoundError.
    """
    if is_remote(path):
        with local_workdir(path) as folder:
            yield folder / path.name
            _copy(folder / path.name, path)
        return
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_HALF_MADE}")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_half_made(folder: Path) -> None:
    """Remove what processes that were killed were making in a folder of ours with `write_atomically`."""
    for file in list(folder.rglob(f".*{_HALF_MADE}")):
        file.unlink(missing_ok=True)


def remove_half_made_as(path: Path) -> None:
    """Remove what processes that were killed were making as this file, in a folder where others may work as well."""
    if is_remote(path):  # where half a file never appears
        return
    for file in list(path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}{_HALF_MADE}")):
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def uploads(folder: Path) -> Iterator[Path]:
    """A local folder in which the block makes files; they are in `folder`, under their names, when it has ended well.

    For files that nobody looks for before: on this machine it is the folder itself.
    """
    with local_workdir(folder) as local:
        yield local
        if local != folder:
            copy_folder(local, folder)


@contextlib.contextmanager
def local_workdir(folder: Path) -> Iterator[Path]:
    """A local folder for temporary files of the block: `folder`, or one of this process where that is elsewhere."""
    if not is_remote(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="bigforest-out-", dir=local_copies().folder) as local:
        yield Path(local)


def copy(path: Path, target: Path) -> None:
    """Copy a file, or a folder in which nothing is missing, to a path where there is nothing."""
    if path.is_dir():
        copy_folder(path, target)
    else:
        _copy(path, target)


def copy_folder(folder: Path, target: Path) -> None:
    """Copy all files of a folder to another one, the one it is known by last."""
    files = list(folder.rglob("*")) if is_remote(folder) else [file for file in folder.rglob("*") if file.is_file()]
    for last in (False, True):
        some = [file for file in files if (file.name in _LAST) == last]
        _each(_copy, some, [target / file.relative_to(folder) for file in some])


def remove_folder(folder: Path) -> None:
    """Remove all objects of a folder, the one it is known by first."""
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


def text_lines(path: Path, encoding: str) -> io.TextIOWrapper:
    """The file as text, with the ends of lines as they are."""
    return io.TextIOWrapper(path.open("rb"), encoding=encoding, newline="")


@lru_cache(maxsize=1)
def local_copies() -> ObjectCache:
    """The local copies of this process."""
    return ObjectCache()
