"""What every stage sees of a table: its columns one by one, or its rows in bounded batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from bigforest.errors import DataError


@dataclass(frozen=True, slots=True)
class Source:
    """A table that can be read by column and by range of rows, any number of times and from any thread.

    name    short name for default outputs: "flights" for flights.parquet, "data" for tables in memory.
    schema  Polars type of every column, in column order.
    rows    number of rows, at least 1.
    frame   a bare scan of Parquet files or a table in memory, so that projections and slices of it read no
            more than they give.
    """

    name: str
    schema: dict[str, pl.DataType]
    rows: int
    frame: pl.LazyFrame

    def columns(self, names: Sequence[str]) -> pl.DataFrame:
        """All rows of the named columns, each in one chunk. Raises DataError when they cannot be read."""
        return self._read(self.frame.select(names))

    def column(self, name: str) -> pl.Series:
        """All rows of one column, in one chunk. Raises DataError when it cannot be read."""
        return self.columns([name]).to_series()

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """The named columns in frames of `rows` rows, the last perhaps fewer, in order, each in one chunk."""
        chosen = self.frame.select(columns)
        for start in range(0, self.rows, rows):
            yield self._read(chosen.slice(start, rows))

    def _read(self, query: pl.LazyFrame) -> pl.DataFrame:
        try:
            return query.collect().rechunk()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise DataError(f"{self.name}: the table cannot be read: {error}; check its files") from error


def source_of(frame: pl.LazyFrame, name: str) -> Source:
    """The Source of a bare scan of Parquet files or of a table in memory. Raises DataError if it is empty."""
    schema = dict(frame.collect_schema())
    if not schema:
        raise DataError(f"{name}: the table has no columns; check that it is the right one")
    rows = frame.select(pl.len()).collect().item()
    if rows == 0:
        raise DataError(f"{name}: the table has no rows; check that it is the right one")
    return Source(name=name, schema=schema, rows=rows, frame=frame)


def check_names(names: Sequence[str], where: str) -> None:
    """Raise DataError when a column name appears twice; `where` names the table in the message."""
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise DataError(f"{where}: duplicate column names {', '.join(map(repr, twice))}; rename or drop them")
