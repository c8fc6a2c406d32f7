"""Find the files of a table from a path, folder or glob."""

from __future__ import annotations

import glob
from pathlib import Path

from bigforest.errors import DataError
from bigforest.storage.file_kinds import CODECS, KINDS, PACKED, kind_of_file
from bigforest.storage.paths import as_path, expanded, files_in, is_remote, known_folder

# Folders of streams of this process, such as standard input, and the advice for a file there.
_STREAMS = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
_STANDARD_INPUT = "; the command line reads standard input as -"

# Tables whose metadata list the valid files: folder and files of the metadata, and the call that reads the table.
_WITH_METADATA = {
    "a Delta table": ("_delta_log", "*", "pl.scan_delta(folder)"),
    "an Iceberg table": ("metadata", "*.metadata.json", "pl.scan_iceberg(folder)"),
    "a Hudi table": (".hoodie", "*", "the package hudi"),
}

# Advice if a folder of bigforest was given in place of a table.
_ADVICE_ON_OURS = {
    "a forest": "give the rows to learn from or to predict for; resuming the forest adds trees to it",
    "a store": "it is for training only, so give the table it was made of",
    "an unfinished run": "resume it, or give a table",
    "a comparison": "give the table whose candidates it compares",
}


def find_files(path: str | Path) -> tuple[str, list[Path]]:
    """Return the name of the table at `path` and its files, sorted by name. Raises DataError when there is no file."""
    try:
        return _files_of(path)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; check the path and its permissions") from error


def _files_of(path: str | Path) -> tuple[str, list[Path]]:
    location = as_path(path)
    kinds = ", ".join(KINDS)
    if location.is_dir():
        ours = known_folder(location)
        if ours is not None:
            raise DataError(f"{path} is {ours}, not a table; {_ADVICE_ON_OURS[ours]}")
        _check_plain(location, path)
        files, partitions = _tables_in(location), _partition_files(location)
        if files and partitions:
            raise DataError(f"{path}: there are tables in it and in {partitions[0].parent}; give the one or the other")
        files = files or partitions
        if not files:
            raise DataError(f"{path}: the folder has no table files ({kinds}); check the path")
        return location.resolve().name, files
    if location.is_file():
        files, name = [location], Path(location.stem).stem if location.suffix.lower() in CODECS else location.stem
    elif glob.has_magic(str(path)):
        _check_plain(plain_folder(location), path)
        files, name = _checked_files(expanded(path)), plain_folder(location).resolve().name or "data"
        if not files:
            raise DataError(f"{path}: no file matches; check the pattern")
    elif location.exists():
        raise DataError(f"{path}: it is a pipe or a device; copy its content into a file{_STANDARD_INPUT}")
    else:
        raise DataError(f"{path}: there is no such file or folder; check the path")
    for file in files:
        if kind_of_file(file) is None and file.suffix.lower() in PACKED:
            raise DataError(
                f"{file}: the file is compressed in a way that is not read; unpack it (CSV and NDJSON may be "
                f"compressed as {', '.join(CODECS)})"
            )
        if kind_of_file(file) is None:
            advice = _STANDARD_INPUT if file.parent in _STREAMS else ""
            raise DataError(f"{file}: unknown kind of file {file.suffix!r}; it must be one of {kinds}{advice}")
    return name, files


def _check_plain(folder: Path, path: str | Path) -> None:
    """Raise DataError for the folder of a Delta, Iceberg or Hudi table, and for a folder within one.

    Its Parquet files may have rows that are no longer valid. In an object store, the folders above are not checked.
    """
    folders = [folder] if is_remote(folder) else [folder, *folder.resolve().parents]
    for place in folders:
        for kind, (mark, pattern, scan) in _WITH_METADATA.items():
            if (place / mark).is_dir() and files_in(place / mark, pattern):
                raise DataError(
                    f"{path}: {place} is {kind}, whose metadata say which rows of its files are valid; read it with "
                    f"{scan} in Python and give that frame, or write it to Parquet files in another folder"
                )


def _partition_files(folder: Path) -> list[Path]:
    """Return the files in folders named by a column and its value, such as `year=2024`, at any depth."""
    paths: list[Path] = []
    for inner in sorted(at for at in folder.iterdir() if "=" in at.name and (at.is_dir() or not at.exists())):
        _checked_files([inner])
        files = _tables_in(inner) or _partition_files(inner)
        folders = [] if files else sorted(at for at in inner.iterdir() if at.name[:1] not in "._" and at.is_dir())
        if folders:
            raise DataError(
                f"{folders[0]}: the folder is not named by a column and its value; give a glob of the files"
            )
        paths += files
    return paths


def _tables_in(folder: Path) -> list[Path]:
    """Return the table files in a folder, sorted by name. Raises DataError for a file of an unknown compression."""
    files = sorted(file for file in folder.iterdir() if file.name[:1] not in "._" and not file.is_dir())
    tables = _checked_files([file for file in files if kind_of_file(file)])
    packed = [file for file in files if file.suffix.lower() in PACKED and Path(file.stem).suffix.lower() in KINDS]
    if unread := [file for file in packed if file not in tables]:
        raise DataError(f"{unread[0]}: the file is compressed; unpack it, or move it out of the folder")
    return tables


def _checked_files(files: list[Path]) -> list[Path]:
    """Return `files`. Raises DataError for a pipe, a device, a broken link, and a file removed since it was listed.

    Otherwise the rows of these files would be left out.
    """
    for file in files:
        if is_remote(file) or file.is_file() or file.is_dir():
            continue
        if file.exists():
            fault = "is a pipe or a device"
        elif file.is_symlink():
            fault = "is a link to a file that does not exist"
        else:
            fault = "was removed while the folder was read"
        raise DataError(f"{file}: it {fault}, so its rows cannot be read; restore it, or move it out of the folder")
    return files


def plain_folder(pattern: Path) -> Path:
    """Return the deepest folder above all wildcards of a glob: `data` for `data/*/a*.parquet`."""
    return next(parent for parent in pattern.parents if not glob.has_magic(str(parent)))
