"""Tables in files: the files of a path, all of them as Parquet."""

from __future__ import annotations

import contextlib
import csv
import glob
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import polars as pl

from bigforest.common.errors import DataError, reason
from bigforest.schema.columns import columns_named
from bigforest.source.source import check_names, parquet_schema, scan_parquet
from bigforest.source.spool import check_spool, spool_batches, spool_bytes, spool_lazy
from bigforest.storage.paths import as_path, expanded, known_folder, local_path, readable, text_lines

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

# What separates values in files that are called CSV.
_SEPARATORS = (",", ";", "\t", "|")

# Files that are compressed as a whole.
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")

# What Hive calls the folder of rows without a value.
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

# What a file of Arrow begins with, except for one in the streaming format.
_ARROW = b"ARROW1"

# Where a table belongs, one of bigforest's folders was meant for something else.
_MEANT = {
    "a forest": "give the rows to learn from or to predict for; resuming the forest adds trees to it",
    "a store": "it is for training only, so give the table it was made of",
    "an unfinished run": "resume it, or give a table",
    "a comparison": "give the table whose candidates it compares",
}

Schema = dict[str, pl.DataType]


class SeparatedPath(str):
    """A path of CSV files whose values are separated by a character that was said.

    separator  the character; that of plain paths is found from the header of each file.
    """

    separator: str

    def __new__(cls, path: str | Path, separator: str) -> SeparatedPath:
        """The path as it is."""
        own = super().__new__(cls, path)
        own.separator = separator
        return own


def parquet_files(path: str | Path, scratch: Path, memory: int | None) -> tuple[str, list[Path], int]:
    """A short name for the table at `path` (a file, a folder or a glob), the Parquet files it is in, and the memory it
    took to make them (Source.spooled).

    Files other than Parquet are streamed into Parquet in `scratch` first. Raises DataError and ConfigError as
    `open_source` does.
    """
    name, files = find_files(path)
    mark = path.separator if isinstance(path, SeparatedPath) else None
    kinds = {KINDS[file.suffix.lower()] for file in files}
    if len(kinds) > 1:
        raise DataError(f"{path}: files of several kinds ({', '.join(sorted(kinds))}); give a glob of one kind")
    kind = kinds.pop()
    size = sum(file.stat().st_size for file in files)
    keys = [_partition(file, as_path(path)) for file in files]
    if kind != "Parquet" or any(keys):
        check_spool(size, memory, str(path))
    if kind == "Parquet":
        schemas = [parquet_schema(file) for file in files]
        _check_same_columns(files, schemas, inferred=False)
        if not any(keys):
            return name, files, 0
        scans = [(scan_parquet([file]), schema) for file, schema in zip(files, schemas, strict=True)]
    else:
        scans = [_scan_file(file, kind, scratch, mark) for file in files]
        _check_same_columns(files, [schema for _, schema in scans], inferred=kind in ("CSV", "NDJSON"))
    order = columns_named(scans[0][1])
    parts = [scan.select(order) for scan, _ in scans]
    if any(keys):
        parts = _with_keys(files, parts, keys, scans[0][1])
    try:
        return name, spool_lazy(pl.concat(parts, how="vertical_relaxed"), scratch, str(path)), spool_bytes(size)
    except DataError as error:
        odd = next(filter(None, (_odd_line(file, mark) for file in files if kind == "CSV")), None)
        if odd is None:
            raise
        raise DataError(odd) from error


def _odd_line(file: Path, mark: str | None) -> str | None:
    """What is wrong with the first line of a CSV file that has too many values or a stray quote, if one has."""
    with text_lines(file, "utf-8-sig") as lines:
        reader = csv.reader(lines, delimiter=mark or _separator(file), strict=True)
        try:
            width = len(next(reader, []))
            for row in reader:
                if len(row) > width:
                    return (
                        f"{file}: line {reader.line_num} has {len(row)} values, and the header names {width} columns; "
                        "mend the line, or give the separator"
                    )
        except UnicodeDecodeError:
            return None
        except csv.Error as error:
            return f"{file}: line {reader.line_num} cannot be read ({error}); mend its quotes"
    return None


def _partition(file: Path, folder: Path) -> dict[str, str | None]:
    """The values in the names of the folders between `folder` and a file, as Hive writes them: `year=2024/part.csv`."""
    if not file.is_relative_to(folder):
        return {}
    pairs = (part.partition("=") for part in file.relative_to(folder).parts[:-1])
    return {unquote(key): None if value == _HIVE_NULL else unquote(value) for key, _, value in pairs}


def _with_keys(
    files: Sequence[Path], parts: Sequence[pl.LazyFrame], keys: Sequence[dict[str, str | None]], schema: Schema
) -> list[pl.LazyFrame]:
    """The parts of a table with the columns that the names of their folders hold: integers, dates, else text."""
    names = list(keys[0])
    for file, own in zip(files, keys, strict=True):
        if list(own) != names:
            raise DataError(f"{file}: not in folders for {', '.join(names)} as {files[0]} is; give files of one table")
    twice = sorted(set(names) & set(schema))
    if twice:
        raise DataError(f"{files[0]}: column {twice[0]!r} is in the file and in the name of its folder; rename one")
    columns = {name: _typed(pl.Series([own[name] for own in keys], dtype=pl.String)) for name in names}
    return [
        part.with_columns(pl.lit(column[place], column.dtype).alias(name) for name, column in columns.items())
        for place, part in enumerate(parts)
    ]


def _typed(values: pl.Series) -> pl.Series:
    """Texts as whole numbers or dates where all of them are such."""
    with contextlib.suppress(pl.exceptions.PolarsError):
        return values.cast(pl.Int64)
    with contextlib.suppress(pl.exceptions.PolarsError):
        return values.str.to_date("%Y-%m-%d")
    return values


def find_files(path: str | Path) -> tuple[str, list[Path]]:
    """The name of the table at `path` and its files, sorted by name. Raises DataError when there is no file."""
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
        files, name = expanded(path), _plain_parent(location)
        if not files:
            raise DataError(f"{path}: no file matches; check the pattern")
    else:
        raise DataError(f"{path}: there is no such file or folder; check the path")
    for file in files:
        if file.suffix.lower() not in KINDS:
            raise DataError(f"{file}: unknown kind of file {file.suffix!r}; it must be one of {known}")
    return name, files


def _partitioned(folder: Path) -> list[Path]:
    """The files in the folders that Hive names by a column and its value, such as `year=2024`, to any depth."""
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
    """The files of tables in a folder, sorted by name. Raises DataError where one is compressed as a whole."""
    files = sorted(file for file in folder.iterdir() if file.name[:1] not in "._" and file.is_file())
    packed = [file for file in files if file.suffix.lower() in _PACKED and Path(file.stem).suffix.lower() in KINDS]
    if packed:
        raise DataError(f"{packed[0]}: the file is compressed; unpack it, or move it out of the folder")
    return [file for file in files if file.suffix.lower() in KINDS]


def _plain_parent(pattern: Path) -> str:
    """The name of the deepest folder of a glob that is not a pattern itself."""
    plain = next(parent for parent in pattern.parents if not glob.has_magic(str(parent)))
    return plain.resolve().name or "data"


def _scan_file(file: Path, kind: str, scratch: Path, mark: str | None) -> tuple[pl.LazyFrame, Schema]:
    """The lazy scan of one file and its schema; `mark` separates values in CSV, if it is known."""
    if kind in ("CSV", "NDJSON"):
        _check_filled(file)
    if kind == "CSV":
        mark = mark or _separator(file)
        # Polars would rename the second column of a name silently.
        check_names(_names(file, mark), str(file))
    try:
        scan = _lazy_scan(file, kind, scratch, mark)
        return scan, dict(scan.collect_schema())
    except pl.exceptions.DuplicateError as error:
        raise DataError(f"{file}: duplicate column names ({reason(error)}); rename or drop them") from error
    except pl.exceptions.NoDataError as error:
        raise DataError(f"{file}: the file is empty; check that it was written to the end") from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise DataError(f"{file}: not a readable {kind} file: {reason(error)}") from error


def _check_filled(file: Path) -> None:
    """Raise DataError where a text begins with a zero byte: one that was never filled may claim any size."""
    try:
        with file.open("rb") as content:
            start = content.read(1)
    except OSError as error:
        raise DataError(f"{file}: the file cannot be read: {reason(error)}") from error
    if start == b"\0":
        raise DataError(
            f"{file}: the file begins with zero bytes and is not text; check that it was written completely"
        )


def _lazy_scan(file: Path, kind: str, scratch: Path, mark: str | None) -> pl.LazyFrame:
    if kind == "Arrow":
        return scan_parquet(_spool_arrow(file, scratch))
    # Types are inferred from all rows: it costs a second pass, but a type never depends on where a value
    # stands.
    if kind == "NDJSON":
        return pl.scan_ndjson(str(file), infer_schema_length=None)
    assert mark is not None
    inferred = pl.scan_csv(str(file), glob=False, separator=mark, infer_schema_length=None, try_parse_dates=True)
    found = inferred.collect_schema()
    # A scan that has inferred its types holds all it has read for them until it ends; this one knows them.
    scan = pl.scan_csv(str(file), glob=False, separator=mark, schema=found)
    # Polars leaves quotes within a name doubled.
    names = _names(file, mark)
    return scan.rename(dict(zip(found, names, strict=True))) if len(names) == len(found) else scan


def _separator(file: Path) -> str:
    """What separates values: a tab in .tsv, else a comma; or another mark, where the header would be one name that has
    it."""
    own = "\t" if file.suffix.lower() == ".tsv" else ","
    header = _names(file, own)
    return next((mark for mark in _SEPARATORS if len(header) == 1 and mark in header[0]), own)


def _names(file: Path, separator: str) -> list[str]:
    """The names of the columns of a CSV file. Raises DataError where they cannot be read."""
    try:
        with text_lines(file, "utf-8-sig") as lines:
            return next(csv.reader(lines, delimiter=separator), [])
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise DataError(f"{file}: not a readable CSV file in UTF-8: {error}") from error


def _check_same_columns(files: Sequence[Path], schemas: Sequence[Schema], *, inferred: bool) -> None:
    """Raise DataError unless all files have the same columns, in any order; inferred types may differ in the kind of
    number."""
    first = schemas[0]
    for file, schema in zip(files, schemas, strict=True):
        odd = sorted(set(schema) ^ set(first))
        if odd:
            rest = f" and {len(odd) - 5} more" if len(odd) > 5 else ""
            what = f"{', '.join(map(repr, odd[:5]))}{rest} not in both"
            raise DataError(f"{file}: not the columns of {files[0]} ({what}); give files of one table")
        for name, dtype in schema.items():
            if dtype != first[name] and not (inferred and dtype.is_numeric() and first[name].is_numeric()):
                types = f"type {dtype}, but {first[name]} in {files[0]}"
                raise DataError(f"{file}: column {name!r} has {types}; convert one of them")


def _spool_arrow(file: Path, scratch: Path) -> list[Path]:
    """Parquet in `scratch` of a file of Arrow: in its streaming format it has no index to read columns by, and in both
    arrays are looked at before Polars has them."""
    import pyarrow as pa

    from bigforest.storage.arrow import naming_faults

    with naming_faults(lambda what: DataError(f"{file}: not a readable Arrow file: {what}")):
        with file.open("rb") as begin:
            is_file = begin.read(len(_ARROW)) == _ARROW
        with pa.input_stream(readable(file)) if not is_file else pa.OSFile(str(local_path(file))) as content:
            if not is_file:
                with pa.ipc.open_stream(content) as reader:
                    return spool_batches(reader, scratch, str(file))
            with pa.ipc.open_file(content) as reader:
                batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
                return spool_batches(pa.RecordBatchReader.from_batches(reader.schema, batches), scratch, str(file))
