"""Objects of an S3-compatible store as paths: the applicable part of pathlib, on Arrow's client.

An object that is put appears completely or not at all, and is then visible to all processes. It cannot be appended to,
mapped, renamed or locked. A folder is a common prefix of names. An `ObjectPath` is never taken for a local path:
passing it to the system raises TypeError.

Endpoint, region and credentials come from the usual AWS_ variables and files.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shutil
from collections.abc import Generator, Iterator
from functools import lru_cache
from pathlib import Path, PosixPath
from typing import Any, NamedTuple

from bigforest.errors import StorageError

SCHEME = "s3://"
# The scheme as pathlib normalises it.
ROOT = "s3:/"
# Bytes copied at a time.
PIECE = 8 << 20
# Limit of one copy within S3, bytes.
_MAX_SERVER_COPY = 5 << 30


class Stat(NamedTuple):
    """Size of an object in bytes, and time of its last change in nanoseconds."""

    st_size: int
    st_mtime_ns: int


class ObjectPath(PosixPath):
    """An object of a store, or the folder of all objects whose names begin with it and a slash.

    Methods raise StorageError if the store refuses, does not answer, or has no such bucket.
    """

    def __str__(self) -> str:
        return SCHEME + super().__str__().removeprefix(ROOT).lstrip("/")

    def __fspath__(self) -> str:
        raise TypeError(f"{self} is not a local file")

    @property
    def key(self) -> str:
        """Bucket and name, in the form that Arrow expects."""
        return str(self).removeprefix(SCHEME)

    def resolve(self, strict: bool = False) -> ObjectPath:
        """Return itself: there are no links."""
        return self

    def absolute(self) -> ObjectPath:
        return self

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        return bool(self._info().type.name != "NotFound")

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return bool(self._info().type.name == "File")

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return bool(self._info().type.name == "Directory")

    def is_symlink(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> Any:
        """Return size and time of an object. Raises FileNotFoundError."""
        info = self._info()
        if info.type.name != "File":
            raise FileNotFoundError(f"{self}: there is no such object")
        return Stat(info.size, info.mtime_ns)

    def iterdir(self) -> Generator[ObjectPath, None, None]:
        """Yield the entries of the folder, sorted by name; none if there is no folder."""
        yield from (path for path, _ in self._list_entries(recursive=False))

    def glob(self, pattern: str, **_: Any) -> Generator[ObjectPath, None, None]:
        """Yield the entries of the folder whose names match."""
        return (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str, **_: Any) -> Generator[ObjectPath, None, None]:
        """Yield the objects in the folder and its subfolders whose names match."""
        entries = self._list_entries(recursive=True)
        return (path for path, is_file in entries if is_file and fnmatch.fnmatchcase(path.name, pattern))

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Create the folder, without objects in it. Raises FileExistsError unless `exist_ok`."""
        if not exist_ok and self.exists():
            raise FileExistsError(f"{self} already exists")
        with connection_to(self) as store:
            store.create_dir(self.key)

    def rmdir(self) -> None:
        """Remove the folder if it is empty. Raises OSError otherwise."""
        if next(self.iterdir(), None) is not None:
            raise OSError(f"{self} is not empty")
        self.remove_all()

    def remove_all(self) -> None:
        with contextlib.suppress(FileNotFoundError), connection_to(self) as store:
            store.delete_dir(self.key)

    def unlink(self, missing_ok: bool = False) -> None:
        with contextlib.suppress(*[FileNotFoundError] if missing_ok else []), connection_to(self) as store:
            store.delete_file(self.key)

    def open(self, mode: str = "r", buffering: int = -1, *_: Any, **__: Any) -> Any:
        """Open the object for reading bytes. Raises FileNotFoundError."""
        if mode != "rb":
            raise ValueError(f"{self}: objects are opened for reading bytes only")
        with connection_to(self) as store:
            return store.open_input_file(self.key)

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        """Return the text of the object. Raises FileNotFoundError."""
        with connection_to(self), self.open("rb") as file:
            return bytes(file.read()).decode(encoding or "utf-8", errors or "strict")

    def write_text(self, data: str, encoding: str | None = None, errors: str | None = None, *_: Any, **__: Any) -> int:
        with connection_to(self) as store, store.open_output_stream(self.key) as file:
            file.write(data.encode(encoding or "utf-8", errors or "strict"))
        return len(data)

    def get(self, target: Path) -> None:
        """Copy the object to a local file. Raises FileNotFoundError."""
        with connection_to(self), self.open("rb") as content, target.open("wb") as file:
            shutil.copyfileobj(content, file, PIECE)

    def put(self, source: Path) -> None:
        """Put a copy of a file or object. The store itself copies objects below 5 GiB. Raises FileNotFoundError."""
        with connection_to(self) as store:
            if isinstance(source, ObjectPath) and source.stat().st_size < _MAX_SERVER_COPY:
                store.copy_file(source.key, self.key)
                return
            with source.open("rb") as content:
                self._stream(store, content)

    def _stream(self, store: Any, content: Any) -> None:
        """Put the bytes of the file `content`. After an error, remove the object, because closing makes it appear."""
        out = store.open_output_stream(self.key)
        try:
            shutil.copyfileobj(content, out, PIECE)
        except BaseException:
            with contextlib.suppress(OSError, StorageError):
                out.close()
                self.unlink(missing_ok=True)
            raise
        out.close()

    def _info(self) -> Any:
        with connection_to(self) as store:
            info = store.get_file_info(self.key)
            if info.type.name == "NotFound":
                _check_bucket(self.key.split("/")[0])
        return info

    def _list_entries(self, *, recursive: bool) -> list[tuple[ObjectPath, bool]]:
        """Return the entries sorted by name, each with True if it is an object."""
        from pyarrow.fs import FileSelector

        with connection_to(self) as store:
            infos = store.get_file_info(FileSelector(self.key, allow_not_found=True, recursive=recursive))
        return sorted((ObjectPath(SCHEME + info.path), info.is_file) for info in infos)


@contextlib.contextmanager
def connection_to(path: ObjectPath) -> Iterator[Any]:
    """Yield Arrow's client. Raises StorageError if the store refuses or does not answer in the block."""
    try:
        yield _store()
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        raise StorageError(f"{path}: {_error_text(str(error))}") from error


def _error_text(error: str) -> str:
    """Return a message for an error of Amazon's client, with advice if the cause is known."""
    where = endpoint() or "Amazon S3"
    if "NETWORK_CONNECTION" in error:
        return f"{where} does not answer; check AWS_ENDPOINT_URL and the network"
    refused = ("ACCESS_DENIED", "HTTP Status Code: 403", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH")
    if any(sign in error for sign in refused):
        return (
            f"{where} denies access; check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "AWS_PROFILE), which must allow to list, read, write and delete there"
        )
    return f"{where} failed ({' '.join(error.split())})"


@lru_cache(maxsize=16)
def _check_bucket(name: str) -> None:
    """Raise StorageError unless the bucket exists. A bucket that exists is not checked again."""
    if _store().get_file_info(name).type.name == "NotFound":
        where = endpoint() or "Amazon S3"
        raise StorageError(f"{SCHEME}{name}: there is no such bucket at {where}; create it first, or check the name")


def endpoint() -> str | None:
    """Return the address of the store; None for Amazon's own."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


@lru_cache(maxsize=1)
def _store() -> Any:
    """Return Arrow's client, which reads credentials from the environment and files, but not the address."""
    from pyarrow.fs import S3FileSystem

    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return S3FileSystem(endpoint_override=endpoint(), region=region, allow_delayed_open=True)
