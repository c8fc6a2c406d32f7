"""Tables in files: from a path, folder or glob to a Source of Parquet files.

1. Find the files; they are of one kind. Folders may be named by columns, as Hive does: `year=2024/part.parquet`.
2. Scan them, infer types of text, and check that all have the same columns.
3. Parquet files of one type are read in place. Others, and columns from folder names, are streamed to Parquet files in
   the scratch folder.
"""

from __future__ import annotations

import contextlib
import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import polars as pl

from bigforest.columns.types import columns_named
from bigforest.errors import DataError, listed, reason
from bigforest.source.source import POLARS_FAULTS, Source, not_readable, parquet_shape, scan_parquet, source_of_files
from bigforest.source.spool import check_spool, spool_batches, spool_bytes, spool_lazy
from bigforest.source.text import (
    FORMS,
    CsvRules,
    Scan,
    blank_lines,
    has_whole_lines,
    scan_csv,
    scan_ndjson,
    with_types,
    without_rows,
)
from bigforest.source.unchanged import FileStamp, unchanged
from bigforest.storage.paths import as_path, expanded, known_folder, local_path, readable

KINDS = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".ipc": "Arrow",
    ".csv": "CSV",
    ".tsv": "CSV",
    ".ndjson": "NDJSON",
    ".jsonl": "NDJSON",
}

# Files that are compressed as a whole.
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")

# Name of Hive for the folder of rows without a value.
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

# First bytes of an Arrow file, except in the streaming format.
_ARROW = b"ARROW1"

# Advice if a folder of bigforest was given in place of a table.
_MEANT = {
    "a forest": "give the rows to learn from or to predict for; resuming the forest adds trees to it",
    "a store": "it is for training only, so give the table it was made of",
    "an unfinished run": "resume it, or give a table",
    "a comparison": "give the table whose candidates it compares",
}


class SeparatedPath(str):
    """A path of CSV files with a given separator. For other paths it is found in the header of each file.

    separator  the character between values.
    """

    separator: str

    def __new__(cls, path: str | Path, separator: str) -> SeparatedPath:
        """Return the path, with its separator."""
        own = super().__new__(cls, path)
        own.separator = separator
        return own


def may_be_csv(path: str | Path) -> bool:
    """Return True if the files at a path are CSV, or if there is no table, so that opening it raises the error."""
    try:
        files = find_files(path)[1]
    except DataError:
        return known_folder(as_path(path)) is None
    return KINDS[files[0].suffix.lower()] == "CSV"


def source_of_path(path: str | Path, scratch: Path, memory: int | None, rules: CsvRules) -> Source:
    """Return the Source of the table at `path` (a file, a folder or a glob).

    Files other than Parquet are streamed into Parquet in `scratch` first. Raises DataError and ConfigError as
    `open_source` does.
    """
    name, files = find_files(path)
    if isinstance(path, SeparatedPath):
        rules = rules._replace(separator=path.separator)
    stamps = _stamps(files)
    with unchanged(stamps):
        source = _source_of(path, name, files, scratch, memory, rules)
    return replace(source, stamps=tuple(stamps)) if source.files == tuple(files) else source


def _stamps(files: Sequence[Path]) -> list[FileStamp]:
    """Return the stamps of files. Raises DataError if one was removed since it was listed."""
    try:
        return [FileStamp.of(file) for file in files]
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}; check the path and its permissions") from error


def _source_of(
    path: str | Path, name: str, files: list[Path], scratch: Path, memory: int | None, rules: CsvRules
) -> Source:
    kinds = {KINDS[file.suffix.lower()] for file in files}
    if len(kinds) > 1:
        raise DataError(f"{path}: files of several kinds ({', '.join(sorted(kinds))}); give a glob of one kind")
    kind = kinds.pop()
    size = sum(file.stat().st_size for file in files)
    keys = _partitions(files, as_path(path))
    if kind != "Parquet":
        check_spool(size, memory, str(path))
    if kind == "Parquet":
        shapes = [parquet_shape(file) for file in files]
        schemas = [shape.schema for shape in shapes]
        _check_same_columns(files, schemas, inferred=False)
        scans = [(scan_parquet([file]), schema) for file, schema in zip(files, schemas, strict=True)]
    else:
        scans = [_scan_file(file, kind, scratch, rules) for file in files]
        _check_same_columns(files, [schema for _, schema in scans], inferred=kind == "NDJSON")
        scans = with_types(scans, FORMS[kind], rules) if kind in FORMS else scans
    columns = _key_columns(files, scans, keys)
    if kind == "Parquet":
        if not columns and all(schema == schemas[0] for schema in schemas):
            return source_of_files(files, name, 0, str(path), shapes)
        check_spool(size, memory, str(path))

    def spooled(scans: Sequence[Scan]) -> list[Path]:
        parts = [scan.select(columns_named(scans[0][1])) for scan, _ in scans]
        for place, part in enumerate(parts):
            parts[place] = part.with_columns(pl.lit(own[place], own.dtype).alias(own.name) for own in columns)
        return spool_lazy(pl.concat(parts, how="vertical_relaxed"), scratch, str(path))

    found = _spooled_csv(files, scans, rules.separator, spooled) if kind == "CSV" else spooled(scans)
    return source_of_files(found, name, spool_bytes(size), str(path))


def _spooled_csv(
    files: Sequence[Path], scans: Sequence[Scan], mark: str | None, spooled: Callable[[Sequence[Scan]], list[Path]]
) -> list[Path]:
    """Return CSV files as Parquet. Raises DataError naming a line with too few or too many values."""
    try:
        found = spooled(scans)
    except DataError:
        for file in files:
            blank_lines(file, mark, unread=True)
        raise
    last = columns_named({list(schema)[-1] for _, schema in scans})
    if not sum(scan_parquet(found).select(last).null_count().collect().row(0)):
        return found  # a line that ends too early would lack a value there
    if all(has_whole_lines(file, mark) for file in files):
        return found
    blank = [blank_lines(file, mark, unread=False) for file in files]
    if not any(blank):
        return found
    for file in found:
        file.unlink()
    return spooled([(without_rows(scan, own), schema) for (scan, schema), own in zip(scans, blank, strict=True)])


def _partitions(files: Sequence[Path], path: Path) -> list[dict[str, str | None]]:
    """Return for each file the values in names of its folders, such as `year=2024/part.csv`.

    Only folders below the given folder, or below the part of a glob without a pattern, are used.
    """
    folder = path if path.is_dir() else files[0].parent if path.is_file() else _plain_folder(path)
    found = []
    for file in files:
        parts = file.relative_to(folder).parts[:-1] if file.is_relative_to(folder) else ()
        pairs = [part.partition("=") for part in parts if "=" in part]
        found.append({unquote(key): None if value == _HIVE_NULL else unquote(value) for key, _, value in pairs})
    return found


def _key_columns(
    files: Sequence[Path], scans: Sequence[Scan], keys: Sequence[dict[str, str | None]]
) -> list[pl.Series]:
    """Return the columns that are only in names of folders, with a value for each file: integers, dates or text.

    Raises DataError if the folders of files name different columns, or a file contradicts its folder.
    """
    names = list(keys[0])
    for file, own in zip(files, keys, strict=True):
        if list(own) != names:
            told = ", ".join(names or own)
            one, other = (file, files[0]) if names else (files[0], file)
            raise DataError(f"{one}: not in folders for {told} as {other} is; give files of one table")
    columns = [_typed(pl.Series(name, [own[name] for own in keys], dtype=pl.String)) for name in names]
    for column in columns:
        if column.name in scans[0][1]:
            texts = pl.Series([own[column.name] for own in keys], dtype=pl.String)
            _check_same_values(files, scans, texts if scans[0][1][column.name] == pl.String else column, column.name)
    return [column for column in columns if column.name not in scans[0][1]]


def _check_same_values(files: Sequence[Path], scans: Sequence[Scan], values: pl.Series, name: str) -> None:
    """Raise DataError unless a column of the files has the values that the names of their folders say."""
    for file, (scan, schema), value in zip(files, scans, values, strict=True):
        try:
            told = pl.lit(value, values.dtype).cast(schema[name])
            same = scan.select(columns_named([name]).eq_missing(told).all()).collect(engine="streaming").item()
        except pl.exceptions.PolarsError:
            same = False
        if not same:
            raise DataError(
                f"{file}: column {name!r} is in the file, with other values than in the name of its folder; rename one"
            )


def _typed(values: pl.Series) -> pl.Series:
    """Return texts as integers or dates if all of them are."""
    with contextlib.suppress(pl.exceptions.PolarsError):
        return values.cast(pl.Int64)
    with contextlib.suppress(pl.exceptions.PolarsError):
        return values.str.to_date("%Y-%m-%d")
    return values


def find_files(path: str | Path) -> tuple[str, list[Path]]:
    """Return the name of the table at `path` and its files, sorted by name. Raises DataError when there is no file."""
    try:
        return _files_of(path)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; check the path and its permissions") from error


def _files_of(path: str | Path) -> tuple[str, list[Path]]:
    location = as_path(path)
    known = ", ".join(KINDS)
    if location.is_dir():
        ours = known_folder(location)
        if ours is not None:
            raise DataError(f"{path} is {ours}, not a table; {_MEANT[ours]}")
        files, partitions = _tables_in(location), _partitioned(location)
        if files and partitions:
            raise DataError(f"{path}: there are tables in it and in {partitions[0].parent}; give the one or the other")
        files = files or partitions
        if not files:
            raise DataError(f"{path}: the folder has no table files ({known}); check the path")
        return location.resolve().name, files
    if location.is_file():
        files, name = [location], location.stem
    elif glob.has_magic(str(path)):
        files, name = expanded(path), _plain_folder(location).resolve().name or "data"
        if not files:
            raise DataError(f"{path}: no file matches; check the pattern")
    else:
        raise DataError(f"{path}: there is no such file or folder; check the path")
    for file in files:
        if file.suffix.lower() in _PACKED:
            raise DataError(
                f"{file}: the file is compressed; unpack it, or pipe its content in and give - as the table"
            )
        if file.suffix.lower() not in KINDS:
            raise DataError(f"{file}: unknown kind of file {file.suffix!r}; it must be one of {known}")
    return name, files


def _partitioned(folder: Path) -> list[Path]:
    """Return the files in folders named by a column and its value, such as `year=2024`, at any depth."""
    found: list[Path] = []
    for inner in sorted(one for one in folder.iterdir() if "=" in one.name and one.is_dir()):
        files = _tables_in(inner) or _partitioned(inner)
        folders = [] if files else sorted(one for one in inner.iterdir() if one.name[:1] not in "._" and one.is_dir())
        if folders:
            raise DataError(
                f"{folders[0]}: the folder is not named by a column and its value; give a glob of the files"
            )
        found += files
    return found


def _tables_in(folder: Path) -> list[Path]:
    """Return the files of tables in a folder, sorted by name. Raises DataError where one is compressed as a whole."""
    files = sorted(file for file in folder.iterdir() if file.name[:1] not in "._" and file.is_file())
    packed = [file for file in files if file.suffix.lower() in _PACKED and Path(file.stem).suffix.lower() in KINDS]
    if packed:
        raise DataError(f"{packed[0]}: the file is compressed; unpack it, or move it out of the folder")
    return [file for file in files if file.suffix.lower() in KINDS]


def _plain_folder(pattern: Path) -> Path:
    """Return the deepest folder of a glob that is not a pattern itself."""
    return next(parent for parent in pattern.parents if not glob.has_magic(str(parent)))


def _scan_file(file: Path, kind: str, scratch: Path, rules: CsvRules) -> Scan:
    """Return the lazy scan of one file and its schema."""
    try:
        scan = _lazy_scan(file, kind, scratch, rules)
        return scan, dict(scan.collect_schema())
    except (*POLARS_FAULTS, OSError) as error:
        raise not_readable(file, kind, reason(error), "; check that it is one") from error


def _lazy_scan(file: Path, kind: str, scratch: Path, rules: CsvRules) -> pl.LazyFrame:
    if kind == "Arrow":
        return scan_parquet(_spool_arrow(file, scratch))
    return scan_ndjson(file) if kind == "NDJSON" else scan_csv(file, rules)


def _check_same_columns(files: Sequence[Path], schemas: Sequence[Mapping[str, pl.DataType]], *, inferred: bool) -> None:
    """Raise DataError unless all files have the same columns, in any order; inferred types may differ in the kind of
    number, and a column without values, of type Null, goes with any."""
    first = schemas[0]
    known: dict[str, tuple[pl.DataType, Path]] = {}
    for file, schema in zip(files, schemas, strict=True):
        odd = sorted(set(schema) ^ set(first))
        if odd:
            raise DataError(
                f"{file}: not the columns of {files[0]} ({listed(list(map(repr, odd)), 5)} not in both); give files of "
                "one table"
            )
        for name, dtype in schema.items():
            if dtype == pl.Null:
                continue
            other, before = known.setdefault(name, (dtype, file))
            if dtype != other and not (inferred and dtype.is_numeric() and other.is_numeric()):
                types = f"type {dtype}, but {other} in {before}"
                raise DataError(f"{file}: column {name!r} has {types}; convert one of them")


def _spool_arrow(file: Path, scratch: Path) -> list[Path]:
    """Copy an Arrow file to Parquet in `scratch`: the streaming format has no index to read single columns by, and in
    both formats arrays are checked before Polars reads them."""
    import pyarrow as pa

    from bigforest.storage.arrow import naming_faults

    with naming_faults(lambda what: not_readable(file, "Arrow", what)):
        with file.open("rb") as begin:
            is_file = begin.read(len(_ARROW)) == _ARROW
        with pa.input_stream(readable(file)) if not is_file else pa.OSFile(str(local_path(file))) as content:
            if not is_file:
                with pa.ipc.open_stream(content) as reader:
                    return spool_batches(reader, scratch, str(file))
            with pa.ipc.open_file(content) as reader:
                batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
                return spool_batches(pa.RecordBatchReader.from_batches(reader.schema, batches), scratch, str(file))
