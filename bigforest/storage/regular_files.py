"""Opening regular files only: an entry of a folder may be a pipe, a device, or a link to something else.

`StateFormat` keeps the state of unfinished work in a file of JSON, which is replaced as a whole and read only if it is
complete.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import IO, Any, TypeVar

from numpy.typing import NDArray

from bigforest.errors import BigForestError, FormatError, StorageError, naming_file
from bigforest.storage.atomic import write_durably, write_whole
from bigforest.storage.paths import is_remote, local_path

# Limit of a file of JSON, bytes: the description of a table of a million columns is smaller.
MAX_JSON = 1 << 28
_PIECE = 1 << 20
_REMEDY = "restore it from a copy"
# Alignment of places, sizes and addresses for reading and writing past the page cache; enough for any disk.
DIRECT_UNIT = 4096


def read_json_text(path: Path) -> str:
    """Return the text of a small file.

    Raises FormatError unless it is a regular file, no link, of at most MAX_JSON bytes, and ValueError if it is no text.
    """
    if is_remote(path):
        return path.read_text(encoding="utf-8")
    with open_regular(path) as file, naming_file(path):
        size = os.fstat(file.fileno()).st_size
        if size > MAX_JSON:
            raise FormatError(f"{path} has {size:,} bytes, more than such a file can have; {_REMEDY}")
        return file.read(size).decode("utf-8")


def copy_regular(path: Path, target: Path) -> None:
    """Copy the present content of a regular file that is no link. Raises FormatError."""
    with open_regular(local_path(path)) as file, target.open("xb") as copy:
        left = os.fstat(file.fileno()).st_size
        while left and (piece := file.read(min(left, _PIECE))):
            copy.write(piece)
            left -= len(piece)


def open_regular(path: Path) -> IO[bytes]:
    """Open a file for reading. Raises FormatError unless it is regular and no link."""
    # Without O_NONBLOCK, opening a pipe would wait for its writer. It changes nothing for files.
    flags = (getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
    if path.is_symlink():  # for systems without O_NOFOLLOW too
        raise FormatError(f"{path} cannot be read: it is a link; {_REMEDY}")
    try:
        with naming_file(path):
            handle = os.open(path, os.O_RDONLY | sum(flags))
    except FileNotFoundError as error:
        raise FormatError(f"{path} is missing; {_REMEDY}") from error
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb", buffering=0)
    os.close(handle)
    raise FormatError(f"{path} cannot be read: it is not a regular file; {_REMEDY}")


def read_at(file: IO[bytes], target: Any, place: int) -> int:
    """Read an unbuffered file from a place on into writable bytes; return how many were read.

    For a file of one thread: a system that cannot read at a place, as Windows cannot, moves the position of the file.
    """
    if hasattr(os, "preadv"):
        return os.preadv(file.fileno(), [target], place)
    file.seek(place)
    return file.readinto(target)  # type: ignore[attr-defined]


def write_past_cache(file: FileIO, array: NDArray[Any]) -> None:
    """Write all of an array to an unbuffered file, without filling the page cache if the file system can do so.

    Address and bytes of the array, and the place in the file, are multiples of DIRECT_UNIT.
    """
    with suppress(ImportError, OSError, AttributeError):
        from fcntl import F_GETFL, F_SETFL, fcntl

        flags = fcntl(file, F_GETFL)
        fcntl(file, F_SETFL, flags | os.O_DIRECT)
        try:
            place = file.tell()
            if file.write(array.data) == array.nbytes:
                return
            file.seek(place)
        finally:
            fcntl(file, F_SETFL, flags)
    write_whole(file, array)


def is_own_folder(path: Path) -> bool:
    """Return True if the path is a folder of this user and no link."""
    if is_remote(path):
        return path.is_dir()
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and (not hasattr(os, "getuid") or status.st_uid == os.getuid())


State = TypeVar("State")
# Errors that damaged entries may raise.
_FAULTS = (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError, BigForestError)


@dataclass(frozen=True, slots=True)
class StateFormat:
    """A kind of state file.

    name     name of the format, in the file.
    version  version of the format, in the file.
    remedy   advice for a file that cannot be read.
    """

    name: str
    version: int
    remedy: str

    def mark(self) -> dict[str, Any]:
        """Return the first entries of each file."""
        return {"format": self.name, "version": self.version}

    def write(self, path: Path, state: Mapping[str, Any]) -> None:
        """Write the entries of a state with a checksum."""
        entries = {**self.mark(), **state}
        with write_durably(path) as temporary:
            text = json.dumps({**entries, "crc32": entries_checksum(entries)}, indent=1)
            temporary.write_text(text + "\n", encoding="utf-8")

    def read(self, path: Path, state_of: Callable[[dict[str, Any]], State]) -> State:
        """Return `state_of(entries)`, a function that may raise any error about a value.

        Raises FormatError when the file is missing, damaged or of another version.
        """
        text = self._text(path)
        try:
            raw: dict[str, Any] = json.loads(text)
            if raw["format"] != self.name:
                raise ValueError("another format")
            if raw["version"] != self.version:
                writer = "a newer bigforest; upgrade, or" if raw["version"] > self.version else "an older bigforest;"
                raise FormatError(f"{path} is of {writer} {self.remedy}")
            if raw.pop("crc32") != entries_checksum(raw):
                raise ValueError("the checksum differs")
            del raw["format"], raw["version"]
            return state_of(raw)
        except (FormatError, StorageError):
            raise
        except _FAULTS as error:
            raise FormatError(f"{path} is damaged ({error}); {self.remedy}") from error

    def _text(self, path: Path) -> str:
        try:
            return read_json_text(path)
        except FormatError as error:
            raise FormatError(f"{error.text}, or {self.remedy}") from error
        except (ValueError, FileNotFoundError) as error:  # no text, or no such object
            raise FormatError(f"{path} is damaged ({error}); {self.remedy}") from error


def entries_checksum(entries: Mapping[str, Any]) -> int:
    """Return the checksum of entries, which does not depend on their order."""
    return zlib.crc32(json.dumps(entries, sort_keys=True).encode())
