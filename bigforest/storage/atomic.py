"""Outputs that are complete or absent: they are written to a hidden sibling folder, and renamed when complete.

An object store cannot rename. An output there is written to a local folder, and uploaded when complete.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import (
    ConfigError,
    DiskFullError,
    OutputExistsError,
    StorageError,
    api,
    naming_file,
    reason,
)
from bigforest.options.values import check_flag
from bigforest.storage.file_kinds import OTHERS
from bigforest.storage.locks import LockedDir, create_locked_dir, finalize, remove_stale_dirs, remove_tree
from bigforest.storage.paths import (
    as_path,
    copy,
    free_bytes,
    is_folder,
    is_remote,
    known_folder,
    local_workdir,
    remove_folder,
    walk,
    write_atomically,
)

# Name of the old output in the hidden folder of the new one, while the new one takes its place.
_REPLACED = "replaced"
# Prefix of the names of temporary folders.
_PREFIX = "bigforest-"

# Files that are removed at a time: each takes a request in an object store.
_REMOVED_AT_ONCE = 8

# Beginnings of messages about a full disk or a file limit. `naming_full_disk` lets errors with such a message pass.
_NO_SPACE = "no space left on the disk of"
_NO_SIZE = "a file has the largest size that the system allows (ulimit -f); raise the limit"

# The temporary folders of this process.
_temporary: set[Path] = set()


class OutputKind(NamedTuple):
    """Kind of an output.

    name     name in messages, such as "forest"
    is_ours  function that returns True for a file or folder of this kind, which may be overwritten
    may_end  suffixes of other formats that the output may have
    """

    name: str
    is_ours: Callable[[Path], bool] = Path.is_file
    may_end: Collection[str] = ()


@contextmanager
def staged(out: str | Path, kind: OutputKind, *, overwrite: bool) -> Iterator[Path]:
    """Yield a path at which the block makes the output, a file or a directory. Rename it to `out` at the end.

    Nothing is left if the block fails. `out` is checked before the block. Raises OutputExistsError or ConfigError if
    `out` cannot be used or a disk is full.
    """
    path = check_output(out, kind, overwrite=overwrite)
    if is_remote(path):
        with local_workdir(path) as folder:
            yield folder / path.name
            _check_still_absent(out, path, overwrite=overwrite)
            replace_output(folder / path.name, path, folder)
        return
    with naming_refusal(Path(out).parent):
        workspace = create_locked_dir(path.parent, f".{path.name}.")
    try:
        made = workspace.path / "new" / path.name
        with naming_full_disk(path.parent), naming_file(path):
            made.parent.mkdir()
            yield made
            _check_still_absent(out, path, overwrite=overwrite)
            sync_all(made)
            replace_output(made, path, workspace.path / _REPLACED)
    finally:
        _remove_workspace(workspace, path)


@contextmanager
def naming_refusal(folder: Path) -> Iterator[None]:
    """Raise ConfigError that names `folder` if the block raises OSError."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}; choose another output") from error


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Create a folder for the block, if it does not exist. If the block fails, remove the new folder if it is empty.

    Raises ConfigError if the folder cannot be created.
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


def _recover_output(path: Path) -> None:
    """Remove hidden folders of killed processes next to an output. Restore an output that was being replaced."""

    def put_back(folder: Path) -> None:
        if is_there(folder / _REPLACED) and not is_there(path):
            (folder / _REPLACED).rename(path)

    if not is_remote(path):
        remove_stale_dirs(path.parent, f".{path.name}.", put_back)


def _check_still_absent(out: str | Path, path: Path, *, overwrite: bool) -> None:
    """Raise OutputExistsError if the output was created since `check_output`, unless it may be overwritten."""
    if not overwrite and is_there(path):
        raise OutputExistsError(f"{out} was created by another process during the run; choose another output")


def check_output(out: str | Path, kind: OutputKind, *, overwrite: bool) -> Path:
    """Return the resolved path of an output that may be written. Raises OutputExistsError and ConfigError as `staged`.

    If `out` is a link, its target is replaced and the link stays. Hidden folders of killed processes next to the output
    are removed, and an output that such a process was replacing is restored.
    """
    check_flag(overwrite, "overwrite")
    out = as_path(out)
    if out.suffix.lower() in OTHERS and out.suffix.lower() not in kind.may_end:
        instead = f" or end it in {' or '.join(sorted(kind.may_end))}" if kind.may_end else ""
        problem = f"{out} has the name of another kind of file than a bigforest {kind.name}"
        raise ConfigError(f"{problem}; drop {out.suffix}{instead}")
    try:
        path = out.resolve()
        if path.is_symlink():  # from Python 3.13 on, `resolve` accepts a circle of links
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
        if not kind.is_ours(path):
            raise OutputExistsError(
                f"{out} exists and is not a bigforest {kind.name}, so it is not overwritten; choose another output"
            )
    return path


def check_apart(path: Path) -> None:
    """Raise ConfigError for an output within the folder of a forest or a store.

    In an object store, where every check is a request, only the parent folder is checked.
    """
    for folder in [path.parent] if is_remote(path) else path.parents:
        kind = known_folder(folder)
        if kind in ("a forest", "a store"):
            raise ConfigError(f"{path} is in {folder}, which is {kind} and holds nothing else; choose another output")


@contextmanager
def naming_full_disk(*folders: Path) -> Iterator[None]:
    """Raise ConfigError instead of the system's error if the block fails because a disk is full; see `no_room`."""
    try:
        yield
    except Exception as error:
        told = isinstance(error, DiskFullError) or str(error).startswith((_NO_SPACE, _NO_SIZE))
        if told or (full := no_room(error, *folders)) is None:
            raise
        raise ConfigError(f"{full}, or choose another folder") from error


class TemporaryFolder:
    """A folder that is removed with this object, or at the end of its `with` block.

    Its content is not needed after this process, so `sync` does not wait for the disk. Folders of killed processes in
    `parent` are removed.

    parent  folder in which it is created; None for the temporary folder of the system.
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
        self.remove = finalize(self, _remove_temporary, self.path, held)

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


def remove_files(files: Collection[Path]) -> None:
    """Remove files, as far as the system allows."""
    if len(files) == 1:  # starting threads takes milliseconds
        _remove_file(*files)
        return
    with ThreadPoolExecutor(_REMOVED_AT_ONCE, thread_name_prefix="bigforest-remove") as pool:
        list(pool.map(_remove_file, files))


def _remove_file(file: Path) -> None:
    with contextlib.suppress(OSError, StorageError):
        file.unlink(missing_ok=True)


@contextmanager
def set_aside(path: Path) -> Iterator[None]:
    """Move a file or folder to a hidden sibling folder while the block creates another one in its place.

    Move the old one back if the block fails; otherwise remove it. Raises ConfigError if no folder can be created there.
    """
    with naming_refusal(path.parent):
        workspace = create_locked_dir(path.parent, f".{path.name}.")
    try:
        path.rename(workspace.path / _REPLACED)
        try:
            yield
        except BaseException:
            remove_tree(path)
            raise
    finally:
        _remove_workspace(workspace, path)


def _remove_workspace(workspace: LockedDir, path: Path) -> None:
    """Remove the hidden folder of an output. If no new output took the place of the old one, move the old one back.

    If a broken or full disk refuses to move it, the folder stays, and `_recover_output` moves the output back later.
    """
    aside = workspace.path / _REPLACED
    if is_there(aside) and not is_there(path):
        try:
            aside.rename(path)
        except OSError as error:
            workspace.lock.close()
            error.add_note(f"the old output is in {aside}; move it back")
            raise
    workspace.remove()


def replace_output(made: Path, path: Path, aside: Path) -> None:
    """Rename `made`, whose files have been synced, to `path`, and sync the new name.

    An existing output is moved to `aside` first, and back if the renaming fails. In an object store, which cannot
    rename, an existing folder is removed and the new one is uploaded file by file, its main file last.
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
    """Return True if a path exists, even as a broken link."""
    return path.exists() or (not is_remote(path) and path.is_symlink())


def is_temporary(path: Path) -> bool:
    """Return True if a path is a `TemporaryFolder` of this process, or in one."""
    folders = tuple(_temporary)  # other threads add some
    return any(f"{path}{os.sep}".startswith(f"{folder}{os.sep}") for folder in folders)


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk.

    Otherwise, a later rename may reach the disk before the content. Objects and temporary folders need no waiting.
    """
    if is_remote(path) or is_temporary(path):
        return
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return  # Windows does not open folders
    handle = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network disks cannot sync folders
            error.filename = str(path)
            raise
    finally:
        os.close(handle)


@contextmanager
def write_durably(path: Path) -> Iterator[Path]:
    """Write a file as `write_atomically` does, and sync its content before it gets its name.

    The name is durable once the folder is synced.
    """
    with write_atomically(path) as temporary:
        yield temporary
        sync(temporary)


def sync_all(path: Path) -> None:
    """Call `sync` for a file, or for a folder and everything in it."""
    if not path.is_dir():
        sync(path)
    for folder, _, names in walk(path) if path.is_dir() else ():
        for name in names:
            sync(folder / name)
        sync(folder)


def sync_names(path: Path) -> None:
    """Call `sync` for a folder and its subfolders, not for their files."""
    if not is_remote(path):
        for folder, _, _ in walk(path):
            sync(folder)


def write_whole(file: IO[bytes], array: NDArray[Any]) -> None:
    """Write a whole array, in C order, to an unbuffered file. A single `write` may write only a part of it."""
    left = array.reshape(-1).view(np.uint8)
    with naming_file(file.name):
        while left.size:
            left = left[file.write(left.data) :]


def no_room(error: BaseException, *folders: Path) -> str | None:
    """Return a message if an error, or one of its causes, is a full disk or a file size limit; otherwise None.

    folders  folders to which the failed call writes

    The message names the folder with the least free space among `folders` and the temporary folders of this process.
    """
    seen: BaseException | None = error
    while seen is not None:
        number = seen.errno if isinstance(seen, OSError) else None
        # Polars and Arrow report the system's errors by their text.
        if number == errno.EFBIG or "File too large" in str(seen):
            return _NO_SIZE
        signs = ("No space left on device", "Disk quota exceeded")
        if number in (errno.ENOSPC, errno.EDQUOT) or any(sign in str(seen) for sign in signs):
            places = [path.resolve() for path in (*folders, *_temporary) if not is_remote(path) and path.exists()]
            if not places:
                return "the disk is full; free some space"
            return f"{_NO_SPACE} {min(places, key=free_bytes)}; free some space"
        seen = seen.__cause__ or seen.__context__
    return None
