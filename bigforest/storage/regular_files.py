"""Opening regular files only, as an entry of a folder may be a pipe, a device, or a link; reading and writing them."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import IO, Any

from numpy.typing import NDArray

from bigforest.errors import FormatError, naming_file
from bigforest.storage.atomic import write_whole
from bigforest.storage.paths import is_remote, local_path

# Limit of a file of JSON, bytes: the description of a table of a million columns is smaller.
MAX_JSON = 1 << 28
_PIECE = 1 << 20
_REMEDY = "restore it from a copy"
# Bytes. For reading and writing past the page cache, positions in files, sizes and addresses are multiples of this,
# which is enough for any disk.
DIRECT_UNIT = 4096


def read_json_text(path: Path) -> str:
    """Return the text of a small file.

    Raises FormatError unless it is a regular file of at most MAX_JSON bytes and no link (objects are not checked), and
    ValueError if it is not UTF-8.
    """
    if is_remote(path):
        return path.read_text(encoding="utf-8")
    with open_regular(path) as file, naming_file(path):
        size = os.fstat(file.fileno()).st_size
        if size > MAX_JSON:
            raise FormatError(f"{path} has {size:,} bytes, more than such a file can have; {_REMEDY}")
        return file.read(size).decode("utf-8")


def copy_regular(path: Path, target: Path) -> None:
    """Copy the present content of a file. Raises FormatError unless it is regular and no link."""
    with open_regular(local_path(path)) as file, target.open("xb") as copy:
        left = os.fstat(file.fileno()).st_size
        while left and (piece := file.read(min(left, _PIECE))):
            copy.write(piece)
            left -= len(piece)


def open_regular(path: Path) -> IO[bytes]:
    """Open a file for reading. Raises FormatError unless it is regular and no link."""
    # Without O_NONBLOCK, opening a pipe would wait for its writer. For files the flag changes nothing.
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
    """Read an unbuffered file, from the byte `place` on, into the writable buffer `target`. Return the bytes read.

    Only one thread may use the file: on Windows, which has no preadv, this moves the position of the file.
    """
    if hasattr(os, "preadv"):
        return os.preadv(file.fileno(), [target], place)
    file.seek(place)
    return file.readinto(target)  # type: ignore[attr-defined]


def write_past_cache(file: FileIO, array: NDArray[Any]) -> None:
    """Write a whole array to an unbuffered file, past the page cache if the file system can do so.

    The address and the size of the array, and the position in the file, are multiples of DIRECT_UNIT.
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
    """Return True if the path is a folder of this user and no link; in an object store, if it is a folder."""
    if is_remote(path):
        return path.is_dir()
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and (not hasattr(os, "getuid") or status.st_uid == os.getuid())
