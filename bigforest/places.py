"""Places: where files are. A place is a path, in a folder of this machine or, as an `ObjectPath`, in an object store.

All else works on paths and asks here for what the two do differently: an object appears whole or not at all when it is
put there, cannot be appended to, mapped or renamed, and must be fetched to be read. So whatever writes a file writes it
to the local path that `made` or `outbox` give, and whatever reads one reads the local path that `fetched` or `inbox`
give; for a place on this machine that is the place itself.

An `ObjectPath` is never taken for a local path: handing one to the system raises TypeError.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import io
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path, PosixPath
from typing import Any, NamedTuple

from bigforest.copies import Copies

SCHEME = "s3://"
# What pathlib makes of the scheme.
_ROOT = "s3:/"
_PIECE = 8 << 20
# Objects carried at a time: each waits for the network most of the time.
_AT_ONCE = 16
# Files by which a folder is known for what it is; they are put last and removed first.
_LAST = ("manifest.json", "run.parquet")
# A server-side copy of one object may have so many bytes in S3.
_COPIED_THERE = 5 << 30


class Stat(NamedTuple):
    """Size in bytes and time of the last change, of an object."""

    st_size: int
    st_mtime_ns: int


class ObjectPath(PosixPath):
    """An object of an S3-compatible store, or the folder of all objects whose names begin with it and a slash.

    Endpoint, region and credentials are those of the usual AWS_ variables and files.
    """

    def __str__(self) -> str:
        return SCHEME + super().__str__().removeprefix(_ROOT).lstrip("/")

    def __fspath__(self) -> str:
        raise TypeError(f"{self} is not a local file")

    @property
    def key(self) -> str:
        """Bucket and name, as Arrow takes them."""
        return str(self).removeprefix(SCHEME)

    def resolve(self, strict: bool = False) -> ObjectPath:
        """Itself: there are no links."""
        return self

    def absolute(self) -> ObjectPath:
        """Itself."""
        return self

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is such an object or folder."""
        return self._kind() != "NotFound"

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is such an object."""
        return self._kind() == "File"

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is such a folder."""
        return self._kind() == "Directory"

    def stat(self, *, follow_symlinks: bool = True) -> Any:
        """Size and time of an object. Raises FileNotFoundError."""
        info = _store().get_file_info(self.key)
        if info.type.name != "File":
            raise FileNotFoundError(f"{self}: there is no such object")
        return Stat(info.size, info.mtime_ns)

    def iterdir(self) -> Generator[ObjectPath, None, None]:
        """What is in the folder, by name; nothing where there is none."""
        yield from (path for path, _ in self._listed(recursive=False))

    def glob(self, pattern: str, **_: Any) -> Generator[ObjectPath, None, None]:
        """What in the folder has a name of the pattern."""
        return (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str, **_: Any) -> Generator[ObjectPath, None, None]:
        """The same in the folder and all folders in it, but for these themselves."""
        found = self._listed(recursive=True)
        return (path for path, is_file in found if is_file and fnmatch.fnmatchcase(path.name, pattern))

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Make the folder known before there is an object in it."""
        _store().create_dir(self.key)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object. Raises FileNotFoundError."""
        with contextlib.suppress(*[FileNotFoundError] if missing_ok else []):
            _store().delete_file(self.key)

    def open(self, mode: str = "r", buffering: int = -1, *_: Any, **__: Any) -> Any:
        """The object, for reading bytes. Raises FileNotFoundError."""
        if mode != "rb":
            raise ValueError(f"{self}: objects are opened for reading bytes only")
        return _store().open_input_file(self.key)

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        """The text of the object. Raises FileNotFoundError."""
        with self.open("rb") as file:
            return bytes(file.read()).decode(encoding or "utf-8", errors or "strict")

    def write_text(self, data: str, encoding: str | None = None, errors: str | None = None, *_: Any, **__: Any) -> int:
        """Put the object."""
        with _store().open_output_stream(self.key) as file:
            file.write(data.encode(encoding or "utf-8", errors or "strict"))
        return len(data)

    def _kind(self) -> str:
        return str(_store().get_file_info(self.key).type.name)

    def _listed(self, *, recursive: bool) -> list[tuple[ObjectPath, bool]]:
        """Entries by name, and whether they are objects."""
        from pyarrow.fs import FileSelector

        found = _store().get_file_info(FileSelector(self.key, allow_not_found=True, recursive=recursive))
        return sorted((ObjectPath(SCHEME + info.path), info.is_file) for info in found)


def place_of(text: str | Path) -> Path:
    """The place that a user means."""
    return ObjectPath(text) if str(text).startswith(_ROOT) else Path(text)


def is_remote(path: Path | None) -> bool:
    """Whether the place is in an object store."""
    return isinstance(path, ObjectPath)


def is_folder(path: Path) -> bool:
    """Whether files may be put into the folder: on this machine it is there, in an object store its bucket is."""
    return ObjectPath(SCHEME + path.key.split("/")[0]).is_dir() if isinstance(path, ObjectPath) else path.is_dir()


def free_bytes(path: Path) -> int:
    """Free bytes on the disk of a folder; as many as there are numbers in an object store."""
    return sys.maxsize if is_remote(path) else shutil.disk_usage(path).free


def absolute(text: str | Path) -> str:
    """The absolute form of a path or glob."""
    place = place_of(text)
    return str(place) if is_remote(place) else os.path.abspath(text)  # noqa: PTH100 (a glob is no Path)


def expanded(pattern: str | Path) -> list[Path]:
    """The files that match a glob, by name."""
    place = place_of(pattern)
    if not is_remote(place):
        found = glob.glob(str(pattern), recursive=True)  # noqa: PTH207 (Path.glob would give hidden files too)
        return sorted(Path(file) for file in found if Path(file).is_file())
    root = next(parent for parent in place.parents if not glob.has_magic(str(parent)))
    wanted = place.parts
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


def fetched(path: Path) -> Path:
    """A local file with the content of `path`, good to be opened at once: copies are kept in this process for as long
    as the object does not change and there is room for them. Raises FileNotFoundError."""
    if not is_remote(path):
        return path
    known = path.stat()
    return local_copies().file((str(path), *known), known.st_size, lambda local: _copy(path, local))


@contextlib.contextmanager
def inbox(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """Local files, for the block, with the content of those of the files that exist, in order."""
    paths = list(paths)
    if not any(map(is_remote, paths)):
        yield [path for path in paths if path.exists()]
        return
    with tempfile.TemporaryDirectory(prefix="bigforest-in-", dir=local_copies().folder) as folder:
        places = [Path(folder) / str(number) for number in range(len(paths))]

        def take(path: Path, local: Path) -> None:
            with contextlib.suppress(FileNotFoundError):
                _copy(path, local)

        _each(take, paths, places)
        yield [place for place in places if place.exists()]


@contextlib.contextmanager
def made(path: Path) -> Iterator[Path]:
    """A local path for the block to write; what it has written appears as `path` when the block has ended well."""
    if is_remote(path):
        with workshop(path) as folder:
            yield folder / path.name
            _copy(folder / path.name, path)
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def outbox(folder: Path) -> Iterator[Path]:
    """A local folder in which the block makes files; they are in `folder`, under their names, when it has ended well.

    For files that nobody looks for before: on this machine it is the folder itself.
    """
    with workshop(folder) as local:
        yield local
        if local != folder:
            copy_folder(local, folder)


@contextlib.contextmanager
def workshop(folder: Path | None) -> Iterator[Path]:
    """A local folder for temporary files of the block: `folder`, or one of this process where that is elsewhere."""
    if folder is not None and not is_remote(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="bigforest-out-", dir=local_copies().folder) as local:
        yield Path(local)


def copy(path: Path, place: Path) -> None:
    """Copy a file, or a folder in which nothing is missing, to any place where there is none."""
    if path.is_dir():
        copy_folder(path, place)
    else:
        _copy(path, place)


def copy_folder(folder: Path, place: Path) -> None:
    """Copy all files of a folder to another one, the one it is known by last."""
    files = list(folder.rglob("*")) if is_remote(folder) else [file for file in folder.rglob("*") if file.is_file()]
    for last in (False, True):
        some = [file for file in files if (file.name in _LAST) == last]
        _each(_copy, some, [place / file.relative_to(folder) for file in some])


def remove_folder(folder: Path) -> None:
    """Remove all objects of a folder, the one it is known by first."""
    assert isinstance(folder, ObjectPath)
    for name in _LAST:
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        _store().delete_dir(folder.key)


def new_folder(parent: Path, prefix: str) -> Path:
    """A new folder with a name of its own."""
    if not is_remote(parent):
        return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    return parent / f"{prefix}{secrets.token_hex(8)}"


def _each(function: Callable[[Path, Path], None], paths: Sequence[Path], places: Sequence[Path]) -> None:
    if len(paths) == 1:
        function(paths[0], places[0])
        return
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="bigforest-carry") as pool:
        for _ in pool.map(function, paths, places):
            pass


def _copy(path: Path, place: Path) -> None:
    """Copy a file, within the object store where it can do so."""
    if is_remote(place):
        assert isinstance(place, ObjectPath)
        if isinstance(path, ObjectPath) and path.stat().st_size < _COPIED_THERE:
            _store().copy_file(path.key, place.key)
            return
        with path.open("rb") as source:
            _stream(source, place)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with path.open("rb") as source, place.open("wb") as file:
        shutil.copyfileobj(source, file, _PIECE)


def _stream(source: Any, place: ObjectPath) -> None:
    """Put what `source` gives. Closing an object makes it appear, so one that could not be read is removed again."""
    out = _store().open_output_stream(place.key)
    try:
        shutil.copyfileobj(source, out, _PIECE)
    except BaseException:
        with contextlib.suppress(OSError):
            out.close()
            place.unlink(missing_ok=True)
        raise
    out.close()


def text_lines(path: Path, encoding: str) -> io.TextIOWrapper:
    """The file as text, with the ends of lines as they are."""
    return io.TextIOWrapper(path.open("rb"), encoding=encoding, newline="")


@lru_cache(maxsize=1)
def _store() -> Any:
    """Arrow's client. It takes credentials and region from the environment, but not where the store is."""
    from pyarrow.fs import S3FileSystem

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return S3FileSystem(endpoint_override=endpoint, region=region)


@lru_cache(maxsize=1)
def local_copies() -> Copies:
    """The local copies of this process."""
    return Copies()
