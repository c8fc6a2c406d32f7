"""Outputs are complete or absent: they are written to a hidden folder next to their place, and renamed when
complete.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import ConfigError, DiskFullError, OutputExistsError, StorageError, api, reason
from bigforest.options.values import check_flag
from bigforest.storage.locks import LockedDir, create_locked_dir, remove_stale_dirs, remove_tree
from bigforest.storage.paths import (
    as_path,
    copy,
    free_bytes,
    is_folder,
    is_remote,
    known_folder,
    local_workdir,
    remove_folder,
    write_atomically,
)

# A name with such a suffix means another format than what is written: Parquet files, or folders.
_OTHER_KINDS = (".csv", ".tsv", ".json", ".ndjson", ".jsonl", ".arrow", ".feather", ".ipc", ".xlsx")

# Place of a replaced output for a moment, in the hidden folder in which the new one is made.
_REPLACED = "replaced"
# What the names of temporary folders begin with.
_PREFIX = "bigforest-"

# What the message about a full disk begins with.
_NO_SPACE = "no space left on the disk of"

# The temporary folders of this process.
_temporary: set[Path] = set()


@contextmanager
def staged(
    out: str | Path,
    *,
    overwrite: bool,
    kind: str,
    is_ours: Callable[[Path], bool],
    may_end: Collection[str] = (),
) -> Iterator[Path]:
    """Yield a path where the block makes the output, a file or a directory; renamed to `out` at the end.

    Nothing stays behind when the block fails. `kind` names the output in messages ("forest"); `is_ours` says
    whether what is already there is one and so may be overwritten; `may_end` are endings of other kinds of files
    that it may have. All checks happen before the block.
    Raises OutputExistsError or ConfigError when `out` cannot be used or a disk is full.
    """
    path = check_output(out, overwrite=overwrite, kind=kind, is_ours=is_ours, may_end=may_end)
    if is_remote(path):
        with local_workdir(path) as folder:
            yield folder / path.name
            _check_free(out, path, overwrite=overwrite)
            replace_output(folder / path.name, path, folder)
        return
    with naming_refusal(Path(out).parent):
        workspace = create_locked_dir(path.parent, _hidden(path))
    try:
        made = workspace.path / "new" / path.name
        with naming_full_disk(path.parent):
            made.parent.mkdir()
            yield made
            _check_free(out, path, overwrite=overwrite)
            sync_all(made)
            replace_output(made, path, workspace.path / _REPLACED)
    finally:
        workspace.remove()


@contextmanager
def naming_refusal(folder: Path) -> Iterator[None]:
    """Raise ConfigError where the system does not let the block write to a folder."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}; choose another output") from error


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Have a folder for the block; one that did not exist is removed if the block fails and it is still empty.

    Raises ConfigError where it cannot be made.
    """
    made = not is_remote(folder) and not folder.exists()
    if made:
        with naming_refusal(folder.parent):
            folder.mkdir(exist_ok=True)
    try:
        yield
    except BaseException:
        if made:
            with contextlib.suppress(OSError):
                folder.rmdir()  # only if it is empty
        raise


def _hidden(path: Path) -> str:
    """What the names of the hidden folders begin with in which the output is made."""
    return f".{path.name}."


def _recover_output(path: Path) -> None:
    """Remove what killed processes left next to an output, and restore an output that they were replacing."""

    def put_back(folder: Path) -> None:
        if is_there(folder / _REPLACED) and not is_there(path):
            (folder / _REPLACED).rename(path)

    if not is_remote(path):
        remove_stale_dirs(path.parent, _hidden(path), put_back)


def _check_free(out: str | Path, path: Path, *, overwrite: bool) -> None:
    if not overwrite and is_there(path):
        raise OutputExistsError(f"{out} was created by another process during the run; choose another output")


def check_output(
    out: str | Path,
    *,
    overwrite: bool,
    kind: str,
    is_ours: Callable[[Path], bool],
    may_end: Collection[str] = (),
) -> Path:
    """The resolved path of an output that may be written; arguments and errors as in `staged`.

    A link is followed, so its target is replaced and it stays a link. What killed processes left next to the output
    is removed.
    """
    check_flag(overwrite, "overwrite")
    out = as_path(out)
    if out.suffix.lower() in _OTHER_KINDS and out.suffix.lower() not in may_end:
        instead = f" or end it in {' or '.join(sorted(may_end))}" if may_end else ""
        what = f"{out} has the name of another kind of file than a bigforest {kind}"
        raise ConfigError(f"{what}; drop {out.suffix}{instead}")
    try:
        path = out.resolve()
        if path.is_symlink():  # from Python 3.13 on, resolving takes links in a circle for a path
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        check_apart(path)
        _recover_output(path)
        taken = path.exists()
    except (OSError, RuntimeError) as error:  # a name too long, a folder we may not enter, links in a circle
        raise ConfigError(f"{out} cannot be written ({reason(error)}); choose another output") from error
    if not path.name:
        raise ConfigError(f"{out} is the root of all folders and cannot be written; choose another output")
    if not is_folder(path.parent):
        folder = path.parent if out.is_symlink() else out.parent
        raise ConfigError(f"the folder {folder} of the output {out.name} does not exist; create it first")
    if taken:
        if not overwrite:
            raise OutputExistsError(
                f"{out} already exists; choose another output, or replace it with {api('overwrite')}"
            )
        if not is_ours(path):
            raise OutputExistsError(
                f"{out} exists and is not a bigforest {kind}, so it is not overwritten; choose another output"
            )
    return path


def check_apart(path: Path) -> None:
    """Raise ConfigError for an output in the folder of a forest or a store, which holds nothing else.

    In an object store, where every look is a request, only the next folder is looked at.
    """
    for folder in [path.parent] if is_remote(path) else path.parents:
        kind = known_folder(folder)
        if kind in ("a forest", "a store"):
            raise ConfigError(f"{path} is in {folder}, which is {kind} and holds nothing else; choose another output")


@contextmanager
def naming_full_disk(*folders: Path) -> Iterator[None]:
    """Raise ConfigError instead of the system's error where the block finds a disk full.

    `folders` are those the block writes to, besides the temporary ones of this process; the one with least space is
    named. Causes of errors count too: libraries wrap the system's.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, DiskFullError) or str(error).startswith(_NO_SPACE) or not disk_full(error):
            raise  # it is named already, or is another
        places = [folder.resolve() for folder in (*folders, *_temporary) if not is_remote(folder) and folder.exists()]
        where = f" {min(places, key=free_bytes)}" if places else ""
        raise ConfigError(f"{_NO_SPACE}{where}; free some, or choose another folder") from error


class TemporaryFolder:
    """A folder that is removed when this object goes away, or at the end of a `with` block of it.

    Nothing in it outlives this process, so `sync` does not wait for the disk. What processes that were killed left
    in `parent` is removed.
    """

    def __init__(self, parent: Path | None) -> None:
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        held = None
        if is_remote(parent):
            self.path = parent / f"{_PREFIX}{secrets.token_hex(8)}"
        else:
            remove_stale_dirs(parent, _PREFIX)
            held = create_locked_dir(parent, _PREFIX)
            self.path = held.path
        _temporary.add(self.path)
        self.remove = weakref.finalize(self, _remove_temporary, self.path, held)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


def _remove_temporary(path: Path, held: LockedDir | None) -> None:
    remove(path) if held is None else held.remove()
    _temporary.discard(path)


def remove(path: Path) -> None:
    """Remove a folder and everything in it, as far as the system allows."""
    if is_remote(path):
        with contextlib.suppress(StorageError):
            remove_folder(path)
    else:
        remove_tree(path)


@contextmanager
def set_aside(path: Path) -> Iterator[None]:
    """Keep what is at a path in a hidden folder next to it while the block makes another there.

    It is put back when the block fails, and else removed.
    """
    workspace = create_locked_dir(path.parent, _hidden(path))
    aside = workspace.path / _REPLACED
    try:
        path.rename(aside)
        try:
            yield
        except BaseException:
            remove_tree(path)
            aside.rename(path)
            raise
    finally:
        workspace.remove()


def replace_output(made: Path, path: Path, aside: Path) -> None:
    """Rename `made`, whose files are on the disk, to `path`, for good.

    What was there is moved aside first, and back if the renaming fails. An object store knows no renaming: there a
    folder is removed first and the new one put, file by file, the one it is known by last.
    """
    if is_remote(path):
        if path.is_dir():
            remove_folder(path)
        copy(made, path)
        return
    if not path.exists():
        made.rename(path)
    else:
        path.rename(aside)
        try:
            made.rename(path)
        except OSError:
            aside.rename(path)
            raise
    sync(path.parent)


def is_there(path: Path) -> bool:
    """Whether there is something at a path, also a broken link."""
    return path.exists() or (not is_remote(path) and path.is_symlink())


def sync(path: Path) -> None:
    """Return when the content of a file, or the names in a folder, are on the disk: a rename may come first there."""
    if is_remote(path) or not _temporary.isdisjoint((path, *path.parents)):
        return
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return  # Windows does not open folders
    handle = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network disks cannot do this for folders
            raise
    finally:
        os.close(handle)


@contextmanager
def write_durably(path: Path) -> Iterator[Path]:
    """`write_atomically`, and the content is on the disk before the file has its name.

    The name is there for good when the folder has been synced.
    """
    with write_atomically(path) as temporary:
        yield temporary
        sync(temporary)


def sync_all(path: Path) -> None:
    """`sync` for a file, or for a folder and everything in it."""
    for inside in sorted(path.rglob("*")) if path.is_dir() else []:
        sync(inside)
    sync(path)


def sync_names(path: Path) -> None:
    """`sync` for a folder and all folders in it, of which the files have been synced."""
    if not is_remote(path):
        for folder, _, _ in os.walk(path):
            sync(Path(folder))


def write_whole(file: IO[bytes], array: NDArray[Any]) -> None:
    """Write all of an array, in C order, to an unbuffered file, of which one write may take less."""
    left = array.reshape(-1).view(np.uint8)
    while left.size:
        left = left[file.write(left.data) :]


def disk_full(error: BaseException) -> bool:
    """Whether `error`, or what led to it, says that a disk or a quota is full or a file may not grow further."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        # Polars and Arrow report the system's errors by their text.
        if any(sign in str(seen) for sign in ("No space left on device", "File too large", "Disk quota exceeded")):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
