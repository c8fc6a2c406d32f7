"""Tables of a forest as Polars frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from bigforest.common.forks import check_polars_threads
from bigforest.forest.format.files import check_bytes, declared
from bigforest.storage.arrow import no_rows

# The columns that are requested of a file, in batches; None for all.
Batches = Callable[[Path, list[str] | None], Iterator[Any]]


def scan(paths: list[Path], columns: pa.Schema, batches: Batches, holding: object) -> pl.LazyFrame:
    """The rows of files of the schema `columns`, read when a query runs; every query keeps the object `holding`.

    Polars never sees the files: bytes that are damaged but well checksummed could make it end the process. A query
    that meets damage raises FormatError.
    """
    schema = dict(to_frame(no_rows(columns)).schema)

    def read(
        names: list[str] | None, predicate: pl.Expr | None, rows: int | None, _: int | None, held: object = holding
    ) -> Iterator[pl.DataFrame]:
        # A table without columns has no rows, so there is one at least.
        wanted = list(columns.names) if names is None else names or columns.names[:1]
        kept = pa.schema([columns.field(name) for name in wanted])
        for path in paths:
            check_bytes(path)
            for batch in batches(path, wanted):
                frame = to_frame(declared(batch, kept))
                if rows is not None:
                    frame = frame.head(rows)
                    rows -= frame.height
                yield frame if predicate is None else frame.filter(predicate)
                if rows == 0:
                    return

    return register_io_source(read, schema=schema)


def to_frame(table: Any) -> pl.DataFrame:
    """A pyarrow table or batch as a DataFrame. Raises ConfigError in a forked process."""
    check_polars_threads()
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
