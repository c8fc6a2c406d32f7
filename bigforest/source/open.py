"""Opening a table: from a path, or a table in memory of any package, to a Source."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from bigforest.errors import ConfigError, DataError, api
from bigforest.execution.forks import check_polars_threads
from bigforest.source.files import KINDS, find_files, may_be_csv, source_of_path
from bigforest.source.in_memory import (
    SparseTable,
    arrow_stream,
    frame_in_memory,
    is_sparse,
    package_of,
    with_columns_beside,
)
from bigforest.source.source import Source, source_of, source_of_files
from bigforest.source.spool import spool_batches, spool_bytes, spool_lazy
from bigforest.source.text import CsvRules
from bigforest.source.unchanged import stamps_behind, unchanged
from bigforest.storage.atomic import naming_full_disk

IN_MEMORY = "data"
# Files other than Parquet of more bytes than this take a while to open.
_QUICK_BYTES = 1 << 24


def open_source(
    data: Any,
    *,
    scratch: Path,
    memory: int | None = None,
    numbers: Collection[str] = (),
    missing: Sequence[str] = (),
    texts: Collection[str] = (),
) -> Source:
    """Open a table for reading, without holding more of it in memory than it already does.

    data     a path (or a folder, or a glob) of Parquet, Arrow/Feather, CSV or NDJSON files; a Polars
             DataFrame or LazyFrame; a pyarrow Table, RecordBatch, RecordBatchReader or Dataset; a pandas
             DataFrame; a numpy array or a list of rows (columns x0, x1, ...), a list of tables, a mapping of
             columns, a sparse matrix of scipy; a pair (X, y) of one of these and the column target; anything else
             that exports an Arrow stream.
    scratch  existing folder. What cannot be read again by column (all but Parquet and tables in memory) is
             streamed once into Parquet files there; they must stay as long as the Source is used.
    memory   the budget of the process, if any. The memory of a lazy query is known only afterwards (Source.spooled).
    numbers, missing, texts  of CSV files, see CsvRules.

    Raises DataError when there is no such table, it cannot be read, is empty, or names a column twice, and ConfigError
    when the disk of `scratch` is full, files would take more memory to stream than the budget, or this is a forked
    process.
    """
    check_polars_threads()
    with naming_full_disk(scratch):
        return _open(data, scratch, memory, CsvRules(None, frozenset(numbers), tuple(missing), frozenset(texts)))


def check_csv(data: Any, missing: Sequence[str]) -> None:
    """Raise ConfigError where texts that mean missing values are given for a table that is not in CSV files."""
    if missing and not (isinstance(data, str | Path) and may_be_csv(data)):
        raise ConfigError(
            f"{api('missing')} applies to CSV files, and the table is not in one; make the cells null, and drop "
            f"{api('missing')}"
        )


def opens_quickly(data: Any) -> bool:
    """Return True if a table opens at once, any number of times. Raises DataError for a path without a table."""
    if isinstance(data, str | Path):
        files = find_files(data)[1]
        return KINDS[files[0].suffix.lower()] == "Parquet" or sum(file.stat().st_size for file in files) < _QUICK_BYTES
    return isinstance(data, pl.DataFrame) or package_of(data) in ("pandas", "numpy")


def _open(data: Any, scratch: Path, memory: int | None, rules: CsvRules) -> Source:
    if isinstance(data, str | Path):
        return source_of_path(data, scratch, memory, rules)
    if isinstance(data, pl.LazyFrame):
        with unchanged(stamps_behind(data)):
            return _spooled(spool_lazy(data, scratch, IN_MEMORY))
    if isinstance(data, tuple) and len(data) == 2:
        data, _ = with_columns_beside(data, {"target": None})
    if is_sparse(data):
        data = SparseTable(data)
    if isinstance(data, SparseTable):
        return _spooled(data.spool(scratch, IN_MEMORY))
    frame = frame_in_memory(data)
    if frame is not None:
        return source_of(frame.lazy(), IN_MEMORY)
    with unchanged(stamps_behind(data)):
        return _spooled(spool_batches(_reader(data), scratch, IN_MEMORY))


def _spooled(files: list[Path]) -> Source:
    """Return the Source of a table that was streamed into these files."""
    source = source_of_files(files, IN_MEMORY)
    return replace(source, spooled=spool_bytes(8 * source.rows * len(source.schema)))


def _reader(data: Any) -> Any:
    """Return a pyarrow RecordBatchReader of a table that comes in batches."""
    if package_of(data) == "pyarrow":
        import pyarrow as pa
        import pyarrow.dataset as ds

        if isinstance(data, ds.Dataset):
            # The defaults read hundreds of megabytes ahead.
            return data.scanner(batch_size=1 << 16, batch_readahead=1, fragment_readahead=1).to_reader()
        if isinstance(data, pa.RecordBatchReader):
            return data
    if (reader := arrow_stream(data)) is not None:
        return reader
    raise DataError(
        f"a table cannot be made of {type(data).__name__}; give a path, a Polars, pyarrow or pandas table, "
        "or a pair (X, y)"
    )
