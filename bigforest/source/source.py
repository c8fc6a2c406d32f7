"""What every stage sees of a table: its columns one by one, or its rows in bounded batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from bigforest.columns import columns_named
from bigforest.errors import DataError, reason
from bigforest.places import is_remote, readable

# Read ahead in a Parquet file.
PAGE_BYTES = 1 << 16
# And in one of an object store, where every page is a request.
_FAR_PAGE_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class Source:
    """A table that can be read by column and by range of rows, any number of times and from any thread.

    name     short name for default outputs: "flights" for flights.parquet, "data" for tables in memory.
    schema   Polars type of every column, in column order.
    rows     number of rows, at least 1.
    frame    a bare scan of Parquet files or a table in memory, so that projections and slices of it read no
             more than they give.
    files    those Parquet files, in order; none for a table in memory.
    spooled  anonymous memory of streaming it into those files, in bytes, beside that of the process; 0 where it was
             there as it is.
    """

    name: str
    schema: dict[str, pl.DataType]
    rows: int
    frame: pl.LazyFrame
    files: tuple[Path, ...] = ()
    spooled: int = 0

    def __reduce__(self) -> tuple[Callable[..., Source], tuple[Any, ...]]:
        """The source of files is handed to other processes as the places of these."""
        if not self.files:
            return Source, (self.name, self.schema, self.rows, self.frame)
        return _again, (self.name, self.schema, self.rows, tuple(file.absolute() for file in self.files))

    def columns(self, names: Sequence[str]) -> pl.DataFrame:
        """All rows of the named columns, each in one chunk. Raises DataError when they cannot be read."""
        return self._read(self.frame.select(columns_named(names)))

    def column(self, name: str) -> pl.Series:
        """All rows of one column, in one chunk. Raises DataError when it cannot be read."""
        return self.columns([name]).to_series()

    def slices(self, names: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """The named columns in frames of at most `rows` rows, in order, each in one chunk.

        Holds a slice and a page or two of each column and file, however large the row groups of the files are. Polars,
        which `batches` uses, holds whole row groups, and reads one again for every slice of it. Raises DataError when
        the columns cannot be read.
        """
        if self.rows <= rows:
            yield self.columns(names)
        elif self.files:
            yield from self._paged(names, rows)
        else:
            yield from self.batches(names, rows)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """The named columns in frames of `rows` rows, the last perhaps fewer, in order, each in one chunk."""
        chosen = self.frame.select(columns_named(columns))
        for start in range(0, self.rows, rows):
            yield self._read(chosen.slice(start, rows))

    def _paged(self, names: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        types = {name: self.schema[name] for name in names}
        try:
            for path in self.files:
                # With a buffer the file is read a page at a time instead of a column of a row group.
                page = _FAR_PAGE_BYTES if is_remote(path) else PAGE_BYTES
                with pq.ParquetFile(readable(path), pre_buffer=False, buffer_size=page) as file:
                    for batch in file.iter_batches(rows, columns=list(names), use_threads=False):
                        frame = frame_of_arrow(batch)
                        yield pl.DataFrame({name: frame[name].cast(dtype) for name, dtype in types.items()}).rechunk()
        except (pa.ArrowException, pl.exceptions.PolarsError, OSError) as error:
            raise self._unreadable(error) from error

    def _read(self, query: pl.LazyFrame) -> pl.DataFrame:
        try:
            return query.collect().rechunk()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> DataError:
        return DataError(f"{self.name}: the table cannot be read: {reason(error)}; check its files")


def _again(name: str, schema: dict[str, pl.DataType], rows: int, files: tuple[Path, ...]) -> Source:
    return Source(name, schema, rows, scan_parquet(files), files)


def frame_of_arrow(table: Any) -> pl.DataFrame:
    """A pyarrow Table or RecordBatch as a frame, with its names: Polars would make one up for an empty one."""
    names = table.schema.names
    frame = pl.from_arrow(table.rename_columns([str(place) for place in range(len(names))]))
    assert isinstance(frame, pl.DataFrame)
    frame.columns = names
    return frame


def source_of_files(files: Sequence[Path], name: str, spooled: int = 0) -> Source:
    """The Source of Parquet files of one table, in the order given. Raises DataError if it is empty."""
    return replace(source_of(scan_parquet(files), name, files), spooled=spooled)


def scan_parquet(files: Sequence[Path]) -> pl.LazyFrame:
    """The bare scan of Parquet files, in the order given."""
    return pl.scan_parquet([str(file) for file in files], glob=False, hive_partitioning=False)


def source_of(frame: pl.LazyFrame, name: str, files: Sequence[Path] = ()) -> Source:
    """The Source of a table in memory, or of the scan of Parquet `files`. Raises DataError if it is empty."""
    schema = dict(frame.collect_schema())
    if not schema:
        raise DataError(f"{name}: the table has no columns; check that it is the right one")
    rows = frame.select(pl.len()).collect().item()
    if rows == 0:
        raise DataError(f"{name}: the table has no rows; check that it is the right one")
    return Source(name=name, schema=schema, rows=rows, frame=frame, files=tuple(files))


def check_names(names: Sequence[str], where: str) -> None:
    """Raise DataError when a column name appears twice; `where` names the table in the message."""
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise DataError(f"{where}: duplicate column names {', '.join(map(repr, twice))}; rename or drop them")
