"""Tables in files: from a path, folder or glob to a Source of Parquet files.

1. Find the files (find.py), which must be of one kind. Folders may be named by columns: `year=2024/part.parquet`.
2. Parquet files are read in place. Arrow files are first copied to Parquet files in the scratch folder. The type of a
   column is the common type of all files (common_types.py). Columns of folder names have one value for each file.
3. Text is unpacked and scanned. The type of a column is the type that all values of all files have. All rows are copied
   to Parquet files in the scratch folder, with the columns of folder names.
"""

from __future__ import annotations

import contextlib
import secrets
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import polars as pl

from bigforest.columns.types import columns_named, recast
from bigforest.errors import DataError, listed, naming_file, system_error
from bigforest.source.common_types import common_schema, united_type
from bigforest.source.csv_files import CsvFile, without_rows
from bigforest.source.doubts import doubts
from bigforest.source.find import find_files, plain_folder
from bigforest.source.ndjson import check_kinds, has_lines, scan_ndjson
from bigforest.source.source import (
    POLARS_FAULTS,
    Reading,
    Source,
    cast_to,
    of_system,
    reading_file,
    reading_parquet,
    scan_parquet,
    source_of,
    source_of_files,
)
from bigforest.source.spool import check_spool, spool_batches, spool_bytes, spool_lazy, wide_columns
from bigforest.source.text import FORMS, Scan, with_types
from bigforest.storage.file_kinds import CODECS, kind_of_file
from bigforest.storage.file_stamps import FileStamp, unchanged
from bigforest.storage.paths import as_path, known_folder, local_path, readable

# First bytes of zlib data. Polars takes a CSV file that begins with them, such as x^2,y, for a compressed one.
_ZLIB = b"x^"

# Bytes unpacked at a time.
_PIECE = 1 << 20
# Rows copied at a time.
_BATCH_ROWS = 1 << 16
# Value in the name of a Hive folder that means a missing value.
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

# First bytes of an Arrow file, except in the streaming format.
_ARROW = b"ARROW1"


class SeparatedPath(str):
    """A path of CSV files with a given separator.

    separator  the character between values.
    """

    separator: str

    def __new__(cls, path: str | Path, separator: str) -> SeparatedPath:
        separated = super().__new__(cls, path)
        separated.separator = separator
        return separated


def separated(data: Any, separator: str | None) -> Any:
    """Return a path with a separator, unless it has one already. Tables in memory, and None, are returned unchanged."""
    if separator is None or separator_of(data) is not None or not isinstance(data, str | Path):
        return data
    return SeparatedPath(data, separator)


def separator_of(data: Any) -> str | None:
    return data.separator if isinstance(data, SeparatedPath) else None


def may_be_csv(path: str | Path) -> bool:
    """Return True for a path of CSV files, and for a path that cannot be opened, unless bigforest wrote the folder."""
    try:
        files = find_files(path)[1]
    except DataError:
        return known_folder(as_path(path)) is None
    return kind_of_file(files[0]) == "CSV"


def source_of_path(path: str | Path, scratch: Path, memory: int | None, reading: Reading) -> Source:
    """Return the Source of the table at `path` (a file, a folder or a glob).

    Files other than Parquet are streamed into Parquet in `scratch` first. Raises DataError and ConfigError as
    `open_source` does.
    """
    name, files = find_files(path)
    if isinstance(path, SeparatedPath):
        reading = reading._replace(separator=path.separator)
    stamps = _stamps(files)
    with unchanged(stamps), _unpack_files(files, scratch) as unpacked:
        keys = _partitions(files, as_path(path))
        source = _source_of(_Table(str(path), name, unpacked, keys), scratch, memory, reading)
    named = separator_of(path)
    read = {*source.files}
    in_place = tuple(stamp for stamp in stamps if stamp.path in read)
    return replace(source, stamps=in_place, separator=named)


@contextlib.contextmanager
def _unpack_files(files: Sequence[Path], scratch: Path) -> Iterator[list[Path]]:
    """Unpack compressed files in `scratch`, and yield all files. Unpacked files are removed at the end of the block.

    Errors of the block about the content of a file name the compressed file. Errors of the system name the unpacked
    file, which may be on another disk.
    """
    plain = [_unpack(file, scratch) if file.suffix.lower() in CODECS or _is_misread(file) else file for file in files]
    try:
        yield plain
    except DataError as error:
        if error.__cause__ is not None and system_error(error.__cause__, scratch) is not None:
            raise
        message = error.text
        for file, unpacked in zip(files, plain, strict=True):
            message = message.replace(str(unpacked), str(file))
        raise DataError(message) from error
    finally:
        for file, unpacked in zip(files, plain, strict=True):
            if unpacked != file:
                unpacked.unlink()


def _is_misread(file: Path) -> bool:
    """Return True for a file whose first bytes Polars misreads, see `_plain_begin`."""
    with contextlib.suppress(OSError), file.open("rb") as content:
        begin = content.read(len(BOM_UTF8))
        return _plain_begin(file, begin) != begin
    return False


def _plain_begin(file: Path, begin: bytes) -> bytes:
    """Return the first bytes of a text, changed for Polars: NDJSON loses its byte order mark, and text that begins with
    _ZLIB gets one.

    begin  the first bytes, as many as a byte order mark has
    """
    if kind_of_file(file) == "NDJSON":
        return begin.removeprefix(BOM_UTF8)
    return BOM_UTF8 + begin if begin.startswith(_ZLIB) else begin


def _unpack(file: Path, scratch: Path) -> Path:
    codec = CODECS.get(file.suffix.lower())
    unpacked = scratch / f"{secrets.token_hex(4)}-{file.stem if codec else file.name}"
    with naming_file(unpacked), unpacked.open("wb") as content:
        for piece in _unpacked_pieces(file, codec):
            content.write(piece)
    return unpacked


def _unpacked_pieces(file: Path, codec: str | None) -> Iterator[bytes]:
    import pyarrow as pa

    with (
        reading_file(file, "compressed", "; check that it was written to the end"),
        pa.input_stream(readable(file), compression=codec) as packed,
    ):
        yield _plain_begin(file, packed.read(len(BOM_UTF8)))
        while piece := packed.read(_PIECE):
            yield piece


def _stamps(files: Sequence[Path]) -> list[FileStamp]:
    """Return the stamps of files. Raises DataError if one was removed since it was listed."""
    try:
        return [FileStamp.of(file) for file in files]
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}; check the path and its permissions") from error


class _Table(NamedTuple):
    """The files of a table, unpacked.

    path   path, folder or glob of the table, for messages
    name   name of the table, as in `Source`
    keys   for each file, the columns and values in the names of its folders, see `_partitions`
    """

    path: str
    name: str
    files: list[Path]
    keys: list[dict[str, str | None]]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.files)

    def check_spool(self, memory: int | None) -> int:
        """Return the size. Raises ConfigError if copying the files to Parquet needs more than `memory`."""
        size = self.size
        check_spool(size, memory, self.path)
        return size


def _source_of(table: _Table, scratch: Path, memory: int | None, reading: Reading) -> Source:
    """Return the Source of unpacked files. Raises DataError if they are of several kinds."""
    kinds = {kind_of_file(file) or "" for file in table.files}
    if len(kinds) > 1:
        raise DataError(f"{table.path}: files of several kinds ({', '.join(sorted(kinds))}); give a glob of one kind")
    kind = kinds.pop()
    if kind in FORMS:
        return _text_source(table, kind, scratch, memory, reading)
    return _typed_source(table, kind, scratch, memory, reading)


def _text_source(table: _Table, kind: str, scratch: Path, memory: int | None, reading: Reading) -> Source:
    """Return the Source of CSV or NDJSON files, which are copied in the types that their values have."""
    size = table.check_spool(memory)
    path, name, files, keys = table
    if kind == "NDJSON":
        filled = [place for place, file in enumerate(files) if has_lines(file)]
        if not filled and reading.empty and reading.needed is not None:
            return source_of(pl.LazyFrame(schema=dict.fromkeys(sorted(reading.needed), pl.Null)), name)
        filled = filled or list(range(len(files)))
        files, keys = [files[place] for place in filled], [keys[place] for place in filled]
    csv_files = [CsvFile.open(file, reading) for file in files] if kind == "CSV" else []
    scans = [_scan_text(file, reading) for file in csv_files or files]
    notices = []
    if kind == "NDJSON" and (lacking := _complete(scans, reading)):
        notices.append(
            f"some files have these columns in no row, and no values there: {listed([*map(repr, lacking)], 5)}"
        )
    schema = common_schema(files, [types for _, types in scans], lambda place: source_of(scans[place][0], ""), reading)
    scans = [(scan if types == schema else cast_to(scan, schema), schema) for scan, types in scans]
    if list(schema)[-1] and any(file.ends_unnamed(reading) for file in csv_files):
        notices.append("the columns at the end that have neither a name nor a value are left out")
    try:
        typed = with_types(scans, FORMS[kind], reading)
    except (*POLARS_FAULTS, OSError) as error:
        # The error names no file. Unpacked files may be on another disk than the table.
        copied = any(file.parent == scratch for file in files)
        where = files[0] if len(files) == 1 else f"{path}, or a copy in {scratch}," if copied else path
        if (refused := of_system(error, where)) is not None:
            raise refused from error
        raise
    columns = _key_columns(files, typed.scans[0][1], keys, reading, lambda place, _: typed.scans[place][0])

    def spool(of_files: Sequence[Scan]) -> Source:
        names = columns_named(of_files[0][1])
        parts = [
            scan.select(names).with_columns(pl.lit(key[place], key.dtype).alias(key.name) for key in columns)
            for place, (scan, _) in enumerate(of_files)
        ]
        return spool_lazy(pl.concat(parts, how="vertical_relaxed"), scratch, path)

    try:
        source = _spool_csv(csv_files, typed.scans, spool) if kind == "CSV" else spool(typed.scans)
    except DataError:
        if kind == "NDJSON":
            check_kinds(files)
        raise
    notices += doubts(typed, scans, source, reading)
    return replace(source, name=name, spooled=spool_bytes(size), notices=tuple(notices))


def _complete(scans: list[Scan], reading: Reading) -> list[str]:
    """Add missing columns and fields, without values, to NDJSON files. Return the columns that some files lack.

    A row of NDJSON may leave out keys without a value, so a file may lack columns of other files. In prediction, only
    features of `Reading.gaps` are added, even if all files lack them.
    """
    names = dict.fromkeys(name for _, schema in scans for name in schema if reading.needs(name))
    if reading.needed is not None:
        gaps = {name for pair in reading.gaps for name in pair}
        names = {name: None for name in names if name in gaps}
    united = {name: united_type([schema.get(name, pl.Null()) for _, schema in scans]) for name in names}
    whole = {name: dtype for _, schema in scans for name, dtype in schema.items()}
    absent = reading.absent(whole | {name: dtype for name, dtype in united.items() if dtype is not None})
    lacking = [name for name in names if any(name not in schema for _, schema in scans)]
    for place, (scan, schema) in enumerate(scans):
        columns = [pl.lit(None).alias(name) for name in [*names, *absent] if name not in schema]
        for name, dtype in united.items():
            if isinstance(dtype, pl.Struct) and name in schema:
                columns.append(recast(columns_named([name]), schema[name], dtype).alias(name))
        if columns:
            complete = scan.with_columns(columns)
            scans[place] = (complete, dict(complete.collect_schema()))
    return lacking


def _typed_source(table: _Table, kind: str, scratch: Path, memory: int | None, reading: Reading) -> Source:
    """Return the Source of Parquet or Arrow files."""
    files = table.files
    if kind == "Arrow":
        table.check_spool(memory)
        parts = [_spool_arrow(file, scratch, reading) for file in files]
    else:
        parts = [_open_parquet(file, table, scratch, memory, reading) for file in files]
    schema = common_schema(files, [part.schema for part in parts], parts.__getitem__, reading)
    keys = _key_columns(files, schema, table.keys, reading, lambda place, key: parts[place].columns([key]).lazy())
    place_of = [place for place, part in enumerate(parts) for _ in part.files]
    every = tuple(file for part in parts for file in part.files)
    return replace(
        parts[0],
        name=table.name,
        schema=schema | {key.name: key.dtype for key in keys},
        rows=sum(part.rows for part in parts),
        files=every,
        keys=tuple(key.gather(place_of) for key in keys),
        spooled=0 if every == tuple(files) else spool_bytes(table.size),
    )


def _open_parquet(file: Path, table: _Table, scratch: Path, memory: int | None, reading: Reading) -> Source:
    """Return the Source of a Parquet file, which is copied if it has integers of 128 bits: Arrow cannot read these."""
    import pyarrow as pa

    try:
        return source_of_files([file], str(file), reading)
    except DataError as error:
        if not isinstance(error.__cause__, pa.ArrowNotImplementedError):
            raise
        with reading_parquet(file):
            scan = scan_parquet([file])
            if not wide_columns(scan.collect_schema()):
                raise
    table.check_spool(memory)
    return spool_lazy(scan, scratch, str(file), reading)


def _spool_csv(files: Sequence[CsvFile], scans: Sequence[Scan], spool: Callable[[Sequence[Scan]], Source]) -> Source:
    """Copy CSV files to Parquet, without blank lines. Raises DataError naming a line with too few or too many values.

    spool  function that copies scans to Parquet and returns the Source.
    """
    try:
        source = spool(scans)
    except DataError:
        for file in files:
            file.blank_lines(unread=True)
        raise
    if all(file.has_whole_lines() for file in files):
        return source
    last = columns_named({list(schema)[-1] for _, schema in scans})
    with naming_file(source.files[0]):
        # Ends of lines belong to quoted values, or a stray quote has turned several rows into one value.
        line_ends = _has_line_ends(source.files)
        # A line that ends too early lacks a value in the last column of its file.
        missing = any(scan_parquet(source.files).select(last.null_count()).collect().row(0))
    if not (line_ends or missing):
        return source
    blank = [file.blank_lines(unread=line_ends) for file in files]
    if not any(blank):
        return source
    for copy in source.files:
        copy.unlink()
    return spool([(without_rows(scan, rows), schema) for (scan, schema), rows in zip(scans, blank, strict=True)])


def _has_line_ends(copies: Sequence[Path]) -> bool:
    """Return True if a value of text in these Parquet files has an end of a line."""
    rows = scan_parquet(copies)
    texts = [name for name, dtype in rows.collect_schema().items() if dtype == pl.String]
    found = columns_named(texts).str.contains("\n", literal=True).any()
    return bool(texts) and any(rows.select(found).collect(engine="streaming").row(0))


def _partitions(files: Sequence[Path], path: Path) -> list[dict[str, str | None]]:
    """Return, for each file, the columns and values in the names of its folders, such as `year=2024/part.csv`.

    Only folders below the given folder, or below the part of a glob without a pattern, are used.
    """
    folder = path if path.is_dir() else files[0].parent if path.is_file() else plain_folder(path)
    partitions = []
    for file in files:
        parts = file.relative_to(folder).parts[:-1] if file.is_relative_to(folder) else ()
        pairs = [part.partition("=") for part in parts if "=" in part]
        keys = {unquote(key): None if value == _HIVE_NULL else unquote(value) for key, _, value in pairs}
        if len(keys) < len(pairs):
            raise DataError(f"{file}: its folders name a column twice; rename one of these folders")
        partitions.append(keys)
    return partitions


def _key_columns(
    files: Sequence[Path],
    schema: Mapping[str, pl.DataType],
    keys: Sequence[dict[str, str | None]],
    reading: Reading,
    rows: Callable[[int, str], pl.LazyFrame],
) -> list[pl.Series]:
    """Return the columns that are only in names of folders, with a value for each file: numbers, dates or text.

    rows  function that returns a column of a file, from the number of the file and the name of the column.

    Raises DataError if the folders of files name different columns, or a file contradicts its folder.
    """
    names = list(keys[0])
    for file, file_keys in zip(files, keys, strict=True):
        if list(file_keys) != names:
            first, other = (", ".join(columns) or "no columns" for columns in (names, file_keys))
            raise DataError(
                f"{file}: its folders name {other}, the folders of {files[0]} name {first}; give files of one table"
            )
    columns = []
    for name in names:
        texts = pl.Series(name, [file_keys[name] for file_keys in keys], dtype=pl.String)
        values = texts if name in reading.texts or schema.get(name) == pl.String else _infer_type(texts)
        if name not in schema:
            columns.append(values)
        if name not in schema or not reading.needs(name):
            continue
        for place, file in enumerate(files):
            if not _has_only(rows(place, name), name, values[place], schema[name]):
                raise DataError(
                    f"{file}: column {name!r} is in the file, with other values than in the name of its folder; rename "
                    "one"
                )
    return columns


def _has_only(rows: pl.LazyFrame, name: str, value: Any, dtype: pl.DataType) -> bool:
    try:
        expected = pl.lit(value).cast(dtype)
        return bool(rows.select(columns_named([name]).eq_missing(expected).all()).collect(engine="streaming").item())
    except pl.exceptions.PolarsError:
        return False


def _infer_type(values: pl.Series) -> pl.Series:
    """Return texts as integers, floats or dates if all can be, and different texts have different values."""
    for dtype in (pl.Int64, pl.Float64):
        numbers = values.cast(dtype, strict=False)
        if numbers.is_finite().sum() == values.count():
            return numbers if numbers.n_unique() == values.n_unique() else values
    with contextlib.suppress(pl.exceptions.PolarsError):
        return values.str.to_date("%Y-%m-%d")
    return values


def _scan_text(file: CsvFile | Path, reading: Reading) -> Scan:
    path, kind = (file, "NDJSON") if isinstance(file, Path) else (file.path, "CSV")
    with reading_file(path, kind, "; check that it is one"):
        scan = scan_ndjson(file, reading) if isinstance(file, Path) else file.scan(reading)
        return scan, dict(scan.collect_schema())


def _spool_arrow(file: Path, scratch: Path, reading: Reading) -> Source:
    """Copy an Arrow file to Parquet in `scratch`.

    The streaming format has no index to read single columns by. In both formats, arrays are checked before Polars reads
    them.
    """
    with arrow_batches(file) as reader:
        return spool_batches(reader, scratch, str(file), reading)


@contextlib.contextmanager
def arrow_batches(file: Path) -> Iterator[Any]:
    """Yield a RecordBatchReader of an Arrow file, in either format. Raises DataError, also for errors of the block."""
    import pyarrow as pa

    with reading_file(file, "Arrow"):
        with file.open("rb") as begin:
            is_file = begin.read(len(_ARROW)) == _ARROW
        with pa.input_stream(readable(file)) if not is_file else pa.OSFile(str(local_path(file))) as content:
            if not is_file:
                with pa.ipc.open_stream(content) as reader:
                    yield reader
                return
            with pa.ipc.open_file(content) as reader:
                batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
                yield pa.RecordBatchReader.from_batches(reader.schema, batches)
