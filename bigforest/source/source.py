"""The interface of a table for every stage: schema, number of rows, single columns, and rows in bounded batches.

A table is in memory, or in Parquet files, which Arrow reads, a page of each column at a time. Arrays that Arrow reads
are validated before Polars gets them (storage/arrow.py).

A table is read in several passes, a column at a time. If a file were replaced or written to between two passes, columns
of the old and the new content would be combined. So a `FileStamp` of each file is made before it is first opened
(storage/file_stamps.py). The stamp is compared
1. with the open file, whenever a Parquet file that is read in place is opened again;
2. with the file at the same path, at the end of each stage that reads the table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from bigforest.columns.types import (
    cells,
    columns_named,
    is_nested,
    locate_columns,
    numbers,
    physical,
)
from bigforest.errors import DataError, advice_on, names_other_file, reason, similar_names, system_error
from bigforest.storage.file_kinds import what_it_is
from bigforest.storage.file_stamps import FileStamp, unchanged
from bigforest.storage.paths import is_remote, readable


class Reading(NamedTuple):
    """Options of reading a table.

    separator  character between the values of CSV files; None to find it in the header.
    numbers    columns of numbers in CSV and NDJSON files: texts are parsed, and a column that has only words such as
               "NA" becomes a column without values, not a column of text.
    missing    texts that mean a missing value in every column of CSV files.
    texts      columns of text, even if all their values are numbers or dates, such as 001.
    needed     columns that are read; None for all.
    excluded   columns that are not read.
    categories columns of whole numbers that are categories: floats are read as integers, if all of them are whole.
    empty      True if a table may have no rows.
    target     name of the column of y in a pair (X, y); None for the name that y has, or "target" if it has none.
    kept       columns that are copied to the output, with their types. Columns of CSV and NDJSON are copied as text: if
               their values are parsed, a column of the original text is added, named by `text_name`.
    usual      separator of the training table, used for new files if it divides their header; None if not known.
    gaps       features with missing values in training: pairs of the feature and its column of the training table. If
               no row of NDJSON files, or of a list of mappings, has the feature, it is a column without values.

    A column that is not read may have any values. If reading it fails, it becomes a column without values.
    """

    separator: str | None = None
    numbers: frozenset[str] = frozenset()
    missing: tuple[str, ...] = ()
    texts: frozenset[str] = frozenset()
    needed: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    empty: bool = False
    target: str | None = None
    kept: frozenset[str] = frozenset()
    usual: str | None = None
    gaps: tuple[tuple[str, str], ...] = ()

    def needs(self, name: str) -> bool:
        return name not in self.excluded and (self.needed is None or name in self.needed)

    def absent(self, schema: Mapping[str, pl.DataType]) -> list[str]:
        """Return the features of `gaps` that a table lacks; none if another column may be one of them, misspelt."""
        if all(name in schema for name, _ in self.gaps):
            return []
        located = zip(self.gaps, locate_columns(schema, self.gaps), strict=True)
        absent = [name for (name, _), found in located if found is None]
        others = [name for name in schema if not self.needs(name)]
        return [] if any(similar_names(name, others) for name in absent) else absent


EVERYTHING = Reading()


def text_name(name: str) -> str:
    """Return the name of the added column that has the original text of the parsed column `name`."""
    return f"\1text of {name}"


# Errors of Polars for an unreadable table.
POLARS_FAULTS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
# Bytes read ahead in a Parquet file.
PAGE_BYTES = 1 << 16
# Bytes read ahead in an object store, where every page is a request.
_FAR_PAGE_BYTES = 1 << 22
# Columns whose values may be long are decoded by this many rows, into frames of about this many bytes.
_LONG_ROWS, _LONG_BYTES = 1 << 12, 1 << 24
_LONG_TYPES = (pl.String(), pl.Binary())
# Rows that methods such as `has_values` read at a time.
_BATCH_ROWS = 1 << 16
_COMPLETE = "; check that it was written to the end"


@dataclass(frozen=True, slots=True)
class Source:
    """A table that can be read by column and by range of rows, any number of times and from any thread.

    name     short name for default outputs: "flights" for flights.parquet, "data" for tables in memory.
    schema   Polars type of every column, in column order.
    rows     number of rows.
    frame    a table in memory; None for a table in files.
    files    Parquet files, in order; none for a table in memory.
    keys     columns that are not in the files, from the names of their folders: Series with a value for each file.
    spooled  estimated anonymous memory of streaming the table into `files`, bytes; 0 for a table read in place.
    stamps   stamps of the files, made before they were first opened; copies in the scratch folder have none.
    separator  character between the values of CSV files, if the user named one; else None.
    notices  messages about how columns of CSV files are read.
    coded    columns of numbers or booleans that were categories in pandas or Arrow, before they were written to a file
             or stream.
    """

    name: str
    schema: dict[str, pl.DataType]
    rows: int
    frame: pl.LazyFrame | None
    files: tuple[Path, ...] = ()
    keys: tuple[pl.Series, ...] = ()
    spooled: int = 0
    stamps: tuple[FileStamp, ...] = ()
    separator: str | None = None
    notices: tuple[str, ...] = ()
    coded: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[Callable[..., Source], tuple[Any, ...]]:
        """Pickle files as paths, stamps and schema, and a table in memory with its content.

        Reading does not need `spooled`, `separator`, `notices` and `coded`, so they are left out.
        """
        # The place of a file differs between machines.
        stamps = tuple(stamp._replace(path=stamp.path.absolute(), place=None) for stamp in self.stamps)
        files = tuple(file.absolute() for file in self.files)
        return Source, (self.name, self.schema, self.rows, self.frame, files, self.keys, 0, stamps)

    def retyped(self, types: Mapping[str, pl.DataType]) -> Source:
        """Return the source with some columns cast: a table in memory now, files when they are read."""
        schema = self.schema | dict(types)
        frame = self.frame if self.frame is None or not types else cast_to(self.frame, schema).collect().lazy()
        return replace(self, schema=schema, frame=frame)

    def has_values(self, name: str) -> bool:
        """Return True if a column has a value other than null and NaN. Raises DataError."""
        columns = (cells(batch, name) for batch in self.batches([name], _BATCH_ROWS))
        return any(len((one.fill_nan(None) if one.dtype.is_float() else one).drop_nulls()) for one in columns)

    def is_whole(self, name: str) -> bool:
        """Return True if all values of a column of floats or decimals are integers of 64 bits. Raises DataError."""
        for batch in self.batches([name], _BATCH_ROWS):
            column = cells(batch, name)
            present = (column.fill_nan(None) if column.dtype.is_float() else column).drop_nulls()
            whole = present.cast(pl.Int64, strict=False)
            if whole.null_count() or not (whole.cast(present.dtype) == present).all():
                return False
        return True

    def exceeds(self, name: str, most: int) -> bool:
        """Return True if a column of integers has a value above `most` or below -`most`. Raises DataError.

        A decimal is compared as the integer that stores it.
        """
        for batch in self.batches([name], _BATCH_ROWS):
            present = physical(batch.to_series()).drop_nulls()
            if len(present) and not -most <= int(present.min()) <= int(present.max()) <= most:  # type: ignore[arg-type]
                return True
        return False

    def unchanged(self) -> AbstractContextManager[None]:
        """Raise DataError if a file of the table changes before the end of the block."""
        return unchanged(self.stamps)

    def columns(self, names: Sequence[str]) -> pl.DataFrame:
        """Return all rows of the named columns, each in one chunk. Raises DataError if they cannot be read."""
        if not self.rows:
            return pl.DataFrame(schema={name: self.schema[name] for name in names})
        return pl.concat(self.batches(names, self.rows), rechunk=True)

    def column(self, name: str) -> pl.Series:
        """Return all rows of one column, in one chunk. Raises DataError if it cannot be read."""
        return self.columns([name]).to_series()

    def batches(
        self, columns: Sequence[str], rows: int, first: int = 0, stop: int | None = None
    ) -> Iterator[pl.DataFrame]:
        """Yield the named columns of the rows first .. stop - 1, in order, in frames of `rows` rows and one chunk.

        The last frame may be shorter, and so may frames of files with long text. `stop` None means all rows from
        `first` on. Memory: a frame or two, and a page or two of each column, for row groups and text of any size.
        Raises DataError if the columns cannot be read.
        """
        stop = self.rows if stop is None else min(stop, self.rows)
        if self.frame is None:
            is_long = any(self.schema[name] in _LONG_TYPES or is_nested(self.schema[name]) for name in columns)
            size = _LONG_BYTES if is_long else math.inf
            yield from _regroup(self._read_pages(columns, rows, size, first, stop), rows, size)
            return
        chosen = self.frame.select(columns_named(columns))
        for start in range(first, stop, rows):
            yield self._read(chosen.slice(start, min(rows, stop - start)))

    def _read_pages(
        self, names: Sequence[str], rows: int, size: float, first: int, stop: int
    ) -> Iterator[pl.DataFrame]:
        """Yield the frames of `batches` from files, a page of each column at a time. Frames may have fewer rows.

        size  about how many bytes a frame has at most
        """
        from bigforest.storage.arrow import frame_of, naming_faults

        begin = 0  # row of the table with which the next file begins
        stamps = {stamp.path: stamp for stamp in self.stamps}
        keys = [column for column in self.keys if column.name in names]
        stored = [name for name in names if name not in {column.name for column in keys}]
        for place, path in enumerate(self.files):
            with (
                naming_faults(lambda fault, path=path: _unreadable(f"{path}", fault)),  # type: ignore[misc]
                _open(path, stamps.get(path)) as file,
            ):
                groups_rows = (file.metadata.row_group(number).num_rows for number in range(file.num_row_groups))
                ends = list(accumulate(groups_rows, initial=begin))  # the first row of each row group, and the end
                if ends[-1] - begin != file.metadata.num_rows:
                    raise _unreadable(str(path), "its row groups have another number of rows than it says")
                groups = [number for number, (start, end) in enumerate(pairwise(ends)) if start < stop and end > first]
                # The next row to read, and the end of the row groups that are read.
                at, end = (ends[groups[0]], ends[groups[-1] + 1]) if groups else (ends[-1], ends[-1])
                decoded_rows = rows if size == math.inf else min(rows, _LONG_ROWS)
                batches = file.iter_batches(decoded_rows, row_groups=groups, columns=stored, use_threads=False)
                for batch in _joined(batches, rows, size) if groups else ():
                    requested = batch.slice(max(0, first - at))[: max(0, stop - max(at, first))]
                    at += batch.num_rows
                    if requested.num_rows:
                        columns = frame_of(requested.select(stored), str(path)).to_dict()
                        for key in keys:
                            columns[key.name] = key.new_from_index(place, requested.num_rows)
                        yield pl.DataFrame({name: _cast(columns[name], self.schema[name]) for name in names}).rechunk()
                    if stop <= at < end:  # the rest is not decoded
                        break
                if at > end or at < min(stop, end):
                    raise _unreadable(str(path), "it has fewer rows than it says")
                begin = ends[-1]

    def _read(self, query: pl.LazyFrame) -> pl.DataFrame:
        try:
            return query.collect().rechunk()
        except (*POLARS_FAULTS, OSError) as error:
            raise _unreadable(self.name, reason(error)) from error


def _joined(batches: Iterator[Any], rows: int, size: float) -> Iterator[Any]:
    """Yield record batches in tables of at most `rows` rows, and `size` bytes or a little more.

    Converting a batch to a frame takes about as long for few rows as for many, so batches are joined first.
    """
    import pyarrow as pa

    held: list[Any] = []
    lacking, room = rows, size
    for batch in batches:
        if batch.num_rows > lacking:
            yield pa.Table.from_batches(held)
            held, lacking, room = [], rows, size
        held.append(batch)
        lacking, room = lacking - batch.num_rows, room - batch.get_total_buffer_size()
        if lacking == 0 or room <= 0:
            yield pa.Table.from_batches(held)
            held, lacking, room = [], rows, size
    if held:
        yield pa.Table.from_batches(held)


def _regroup(frames: Iterator[pl.DataFrame], rows: int, size: float) -> Iterator[pl.DataFrame]:
    """Yield the rows of frames of at most `rows` rows in frames of exactly `rows`, or of `size` bytes if that is less.

    The last frame may be shorter.
    """
    held: list[pl.DataFrame] = []
    lacking, room = rows, size
    for frame in frames:
        held.append(frame.head(lacking))
        lacking, room = lacking - frame.height, room - frame.estimated_size()
        if lacking <= 0 or room <= 0:
            yield pl.concat(held, rechunk=True)
            held = [frame.tail(-lacking)] if lacking < 0 else []
            lacking, room = rows + min(lacking, 0), size
    if held:
        yield pl.concat(held, rechunk=True)


def _unreadable(where: str, fault: str) -> DataError:
    return DataError(f"{where}: the table cannot be read: {fault}; check its files")


@contextmanager
def _open(path: Path, stamp: FileStamp | None = None) -> Iterator[Any]:
    """Open a Parquet file with a buffer: it is read a page of each column at a time, not a row group.

    Raises DataError if the file has another stamp.
    """
    import pyarrow.parquet as pq

    if is_remote(path):
        if stamp is not None:
            stamp.check()
        with pq.ParquetFile(readable(path), pre_buffer=False, buffer_size=_FAR_PAGE_BYTES) as file:
            yield file
        return
    with Path(path).open("rb", buffering=0) as content:  # pa.OSFile has no fileno in pyarrow 21
        if stamp is not None:
            stamp.check_open(content.fileno())
        with pq.ParquetFile(content, pre_buffer=False, buffer_size=PAGE_BYTES) as file:
            yield file


def source_of_files(files: Sequence[Path], name: str, reading: Reading = EVERYTHING) -> Source:
    """Return the Source of Parquet files of one table, in order, all with the columns of the first.

    Raises DataError for a file that Arrow cannot read, and for a table without columns.
    """
    import pyarrow as pa

    from bigforest.storage.arrow import schema_of

    with reading_parquet(files[0]), _open(files[0]) as file:
        schema, rows, coded = file.schema_arrow, int(file.metadata.num_rows), _coded_by_pandas(file.schema_arrow)
        places = places_once(schema.names, str(files[0]), reading)
    counts = Counter(schema.names)
    fields = [schema.field(place) for place in places]
    # Columns that share a name are not read, so no type of theirs is refused.
    once = [field if counts[field.name] == 1 else field.with_type(pa.null()) for field in fields]
    types = schema_of(pa.schema(once), str(files[0]), reading.needs)
    _check_columns(name, types)
    return Source(name, types, rows + sum(map(_rows_of, files[1:])), None, tuple(files), coded=coded)


def _rows_of(path: Path) -> int:
    with reading_parquet(path), _open(path) as file:
        return int(file.metadata.num_rows)


def _coded_by_pandas(schema: Any) -> tuple[str, ...]:
    """Return the columns of numbers or booleans that were unordered categories in pandas, by the metadata it wrote."""
    import pyarrow as pa

    columns = []
    with suppress(ValueError, TypeError, LookupError, RecursionError):  # metadata of other programs, or damaged
        for column in (schema.pandas_metadata or {})["columns"]:
            if column["pandas_type"] == "categorical" and not column["metadata"]["ordered"]:
                columns.append(schema.field(column["field_name"]))
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return tuple(field.name for field in columns if any(is_one(field.type) for is_one in kinds))


@contextmanager
def reading_file(file: Path, kind: str, advice: str = "") -> Iterator[None]:
    """Turn errors of the block, which reads a file, into DataError.

    kind    name of the format of the file.
    advice  end of the message about a file that is not readable.
    """
    from bigforest.storage.arrow import FAULTS

    try:
        yield
    except DataError:  # its message already names the fault
        raise
    except FAULTS as error:
        if names_other_file(error, file):
            raise
        raise not_readable(file, kind, error, advice) from error


def reading_parquet(path: Path) -> AbstractContextManager[None]:
    """Turn errors of the block, which reads a Parquet file, into DataError."""
    return reading_file(path, "Parquet", _COMPLETE)


def of_system(error: BaseException, where: str | Path) -> DataError | None:
    """Return the error for a table that the system refuses to read; None if `error` is about the content."""
    if (named := system_error(error, where)) is None:
        return None
    return DataError(f"{where} cannot be read: {named.strerror}; {advice_on(named.errno)}")


def not_readable(file: Path, kind: str, error: BaseException, advice: str = "") -> DataError:
    """Return the error for a file that a library cannot read. Parameters as for `reading_file`.

    error  error of the library.
    """
    if (refused := of_system(error, file)) is not None:
        return refused
    fault = reason(error).rstrip(".")
    with suppress(OSError):
        if (content := what_it_is(file)) and kind not in content:
            return DataError(f"{file}: the file {content}")
        if not file.stat().st_size:
            return DataError(f"{file}: the file is empty{_COMPLETE}")
    return DataError(f"{file}: not a readable {kind} file: {fault}{advice}")


def check_is_text(file: Path) -> None:
    """Raise DataError if a file does not begin like text, before all of it is read."""
    try:
        content = what_it_is(file)
    except OSError as error:
        raise not_readable(file, "text", error) from error
    if content:
        raise DataError(f"{file}: the file {content}")


def scan_parquet(files: Sequence[Path]) -> pl.LazyFrame:
    """Return the lazy scan of Parquet files, in the order given. Polars would read a relative path file:a as a URL."""
    return pl.scan_parquet([str(file.absolute()) for file in files], glob=False, hive_partitioning=False)


def source_of(frame: pl.LazyFrame, name: str) -> Source:
    """Return the Source of a table in memory. Raises DataError if it has no columns."""
    schema = dict(frame.collect_schema())
    _check_columns(name, schema)
    return Source(name, schema, frame.select(pl.len()).collect().item(), frame)


def _check_columns(name: str, schema: Mapping[str, pl.DataType]) -> None:
    if not schema:
        raise DataError(f"{name}: the table has no columns; check that it is the right one")


def _cast(series: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return part of a column, cast to the type of the column in the table.

    If this type is Null, the result has no values. Floats that are all NaN can be cast to any type.
    """
    if series.dtype == dtype:
        return series
    if dtype == pl.Null:
        return pl.Series(series.name, [None] * len(series), dtype)
    if dtype == pl.Float64 and series.dtype.is_numeric():  # Polars rounds decimals twice
        return pl.Series(series.name, numbers(series, "Float64"), dtype, nan_to_null=True)
    if series.dtype.is_float() and not dtype.is_float():
        return series.alias("").fill_nan(None).cast(dtype).alias(series.name)
    return series.cast(dtype)


def cast_to(frame: pl.LazyFrame, schema: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    """Return a query with the columns and types of a schema. Columns that `frame` lacks become nulls."""
    types = frame.collect_schema()
    columns = [
        columns_named([name]).map_batches(partial(_cast, dtype=dtype), dtype, is_elementwise=True)
        if name in types
        else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
        if types.get(name) != dtype
    ]
    return frame.with_columns(columns).select(columns_named(schema))


def places_once(
    names: Sequence[str], where: str, reading: Reading = EVERYTHING, advice: str = "rename or drop them"
) -> list[int]:
    """Return the places of columns, ascending. Of columns that share a name, only the last is returned.

    Raises DataError, naming the table `where` and ending with `advice`, if columns that are read share a name.
    """
    last = {name: place for place, name in enumerate(names)}
    if len(last) < len(names):
        twice = [name for name, count in Counter(names).items() if count > 1 and reading.needs(name)]
        if twice:
            raise DataError(f"{where}: duplicate column names {', '.join(map(repr, sorted(twice)))}; {advice}")
    return sorted(last.values())
