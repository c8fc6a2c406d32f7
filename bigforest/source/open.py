"""Open tables of any kind: `open_source` returns a Source, and `table_in_memory` a frame."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl

from bigforest.columns.types import cells, divisor_of, is_wide, nearest_floats, physical
from bigforest.errors import ConfigError, DataError, api, reason
from bigforest.execution.forks import check_polars_threads
from bigforest.source.files import arrow_batches, may_be_csv, source_of_path
from bigforest.source.find import find_files
from bigforest.source.in_memory import (
    SparseTable,
    arrow_stream,
    float_dictionaries,
    frame_from_arrow,
    frame_from_numpy,
    frame_in_memory,
    is_sparse,
    numbered_names,
    numeric_categories,
    package_of,
    with_columns_beside,
)
from bigforest.source.source import (
    EVERYTHING,
    POLARS_FAULTS,
    Reading,
    Source,
    source_of,
)
from bigforest.source.spool import spool_batches, spool_bytes, spool_lazy
from bigforest.storage.atomic import naming_full_disk
from bigforest.storage.file_kinds import kind_of_file
from bigforest.storage.file_stamps import FileStamp, unchanged
from bigforest.storage.paths import as_path

IN_MEMORY = "data"
# Decimals of up to so many digits fit in 64 bits.
_DIGITS = 18
# Rows read at a time.
_BATCH_ROWS = 1 << 16
# Tables in files of fewer bytes open quickly, even if they are not Parquet.
_QUICK_BYTES = 1 << 24


def open_source(
    data: Any,
    *,
    scratch: Path,
    memory: int | None = None,
    reading: Reading = EVERYTHING,
) -> Source:
    """Open a table for reading, without loading it into memory.

    data     a path (or a folder, or a glob) of Parquet, Arrow/Feather, CSV or NDJSON files; a Polars
             DataFrame or LazyFrame; a pyarrow Table, RecordBatch, RecordBatchReader or Dataset; a pandas
             DataFrame; a numpy array or a list of rows (columns x0, x1, ...), a list of tables, a mapping of
             columns, a sparse matrix of scipy; a pair (X, y) of one of these and the target column; anything else
             that exports an Arrow stream.
    scratch  existing folder. A table neither in Parquet files nor in memory is streamed once into Parquet files in
             this folder, and so is a sparse matrix. Keep these files as long as the Source is used.
    memory   memory budget of the process, bytes, or None. Only the streaming of files is checked against it here; for
             other tables, see Source.spooled.
    reading  how columns are read.

    Raises
    DataError    for a table that does not exist, cannot be read, has no rows (unless reading.empty), or has two columns
                 of one name
    ConfigError  if the disk of `scratch` is full, if streaming the files needs more memory than the budget, or in a
                 forked process
    """
    check_polars_threads()
    with naming_full_disk(scratch):
        source = _open(data, scratch, memory, reading)
    if not source.rows and not reading.empty:
        where = data if isinstance(data, str | Path) else source.name
        raise DataError(f"{where}: the table has no rows; check that it is the right one")
    compared = (name for name in source.schema if reading.needs(name) and name not in reading.kept)
    narrowed = {name: _narrowed(source, name) for name in compared}
    # Other libraries hold integers with missing values as floats, and databases as decimals.
    coded = [
        name
        for name, dtype in source.schema.items()
        if name in reading.categories and (dtype.is_float() or dtype == pl.Decimal) and source.is_whole(name)
    ]
    return source.retyped(
        {name: dtype for name, dtype in narrowed.items() if dtype is not None} | dict.fromkeys(coded, pl.Int64())
    )


def _narrowed(source: Source, name: str) -> pl.DataType | None:
    """Return a type of 64 bits that holds all values of a column of long decimals or of integers of 128 bits.

    The type is UInt64 or Float64. A float holds a value that is equal, and a decimal that is its shortest text, such as
    0.1. Return None for columns of other types, if no value has more than 63 bits, or if neither type holds all values.
    """
    dtype = source.schema[name]
    whole = is_wide(dtype)
    if not (whole or (isinstance(dtype, pl.Decimal) and dtype.precision > _DIGITS)):
        return None
    if not source.exceeds(name, 2**63 - 1):
        return None

    def distinct() -> Iterator[pl.Series]:
        for batch in source.batches([name], _BATCH_ROWS):
            yield physical(cells(batch, name)).drop_nulls().unique()

    if whole and all(not values.cast(pl.UInt64, strict=False).null_count() for values in distinct()):
        return pl.UInt64()
    divisor = divisor_of(dtype)
    exact = all(
        Fraction(number) * divisor == value or Fraction(repr(number)) * divisor == value
        for values in distinct()
        for value, number in zip(values.to_list(), nearest_floats(values, divisor).tolist(), strict=True)
    )
    return pl.Float64() if exact else None


def table_in_memory(data: Any, reading: Reading = EVERYTHING) -> pl.DataFrame:
    """Return a table other than a path as a frame. Run a lazy query, and read all batches of a stream or dataset.

    Raises DataError, and ConfigError in a forked process.
    """
    check_polars_threads()
    if isinstance(data, str | Path):
        raise DataError(f"{str(data)!r} is a path; use {api('predict_file')} for files, or give a table in memory")
    if is_sparse(data):
        return frame_from_numpy(data.toarray(), numbered_names(data))
    if isinstance(data, pl.LazyFrame):
        return collected(data)
    frame = frame_in_memory(data, reading)
    if frame is None:
        from bigforest.storage.arrow import naming_faults

        with unchanged(stamps_behind(data)), naming_faults(_unreadable):
            frame = frame_from_arrow(_reader(data), reading)
    return frame


def collected(query: pl.LazyFrame) -> pl.DataFrame:
    """Return the result of a lazy query. Raises DataError when it fails, or a file changes meanwhile."""
    try:
        with unchanged(stamps_behind(query)):
            return query.collect()
    except (*POLARS_FAULTS, OSError) as error:
        raise _unreadable(reason(error)) from error


def schema_of_query(query: pl.LazyFrame) -> pl.Schema:
    """Return the columns of a lazy query and their types. Raises DataError when they cannot be found."""
    try:
        return query.collect_schema()
    except (*POLARS_FAULTS, OSError) as error:
        raise _unreadable(reason(error)) from error


def _unreadable(fault: str) -> DataError:
    return DataError(f"{IN_MEMORY}: the table cannot be read: {fault}")


def declared_categories(data: Any) -> dict[str, bool]:
    """Return `numeric_categories` of a table. For a path of Arrow files, use the first batch of the first file."""
    if not isinstance(data, str | os.PathLike):
        return numeric_categories(data)
    with suppress(DataError):  # opening the table raises it again
        file = find_files(as_path(data))[1][0]
        if kind_of_file(file) == "Arrow":
            with arrow_batches(file) as reader:
                return numeric_categories(next(reader, reader))
    return {}


def check_csv(data: Any, missing: Sequence[str]) -> None:
    """Raise ConfigError if the option `missing` is given for a table that is not in CSV files."""
    if missing and not (isinstance(data, str | Path) and may_be_csv(data)):
        raise ConfigError(
            f"{api('missing')} applies to CSV files, and the table is not in one; make the cells null, and drop "
            f"{api('missing')}"
        )


def opens_quickly(data: Any) -> bool:
    """Return True if a table can be opened quickly and again. Raises DataError for a path without a table."""
    if isinstance(data, str | Path):
        files = find_files(data)[1]
        return kind_of_file(files[0]) == "Parquet" or sum(file.stat().st_size for file in files) < _QUICK_BYTES
    return isinstance(data, pl.DataFrame) or package_of(data) in ("pandas", "numpy")


def _open(data: Any, scratch: Path, memory: int | None, reading: Reading) -> Source:
    if isinstance(data, os.PathLike):
        data = as_path(data)
    if isinstance(data, str | Path):
        return source_of_path(data, scratch, memory, reading)
    if isinstance(data, pl.LazyFrame):
        with unchanged(stamps_behind(data)):
            return _spooled(spool_lazy(data, scratch, IN_MEMORY, reading))
    if isinstance(data, tuple) and len(data) == 2:
        data, _ = with_columns_beside(data, {"target": reading.target}, reading)
    if is_sparse(data):
        data = SparseTable(data, numbered_names(data))
    if isinstance(data, SparseTable):
        return _spooled(data.spool(scratch, IN_MEMORY))
    frame = frame_in_memory(data, reading)
    if frame is not None:
        return source_of(frame.lazy(), IN_MEMORY)
    with unchanged(stamps_behind(data)):
        reader = _reader(data)
        source = _spooled(spool_batches(reader, scratch, IN_MEMORY, reading))
        # The levels are known only now, too late for `numeric_categories`.
        floats = [name for name in float_dictionaries(reader.schema) if name in source.schema and source.is_whole(name)]
        return replace(source, coded=tuple(floats))


def _spooled(source: Source) -> Source:
    """Return the Source of a streamed table with `spooled`, the memory of streaming it."""
    return replace(source, spooled=spool_bytes(8 * source.rows * len(source.schema)))


def _reader(data: Any) -> Any:
    """Return a pyarrow RecordBatchReader of a table that comes in batches."""
    if package_of(data) == "pyarrow":
        import pyarrow as pa
        import pyarrow.dataset as ds

        if isinstance(data, ds.Dataset):
            # The defaults read hundreds of megabytes ahead.
            return data.scanner(batch_size=_BATCH_ROWS, batch_readahead=1, fragment_readahead=1).to_reader()
        if isinstance(data, pa.RecordBatchReader):
            return data
    if (reader := arrow_stream(data)) is not None:
        return reader
    raise DataError(
        f"a table cannot be made of {type(data).__name__}; give a table of Polars, pandas, pyarrow or DuckDB, an "
        "array, a list of rows, a mapping of columns or a sparse matrix; functions that read files take a path, too"
    )


def stamps_behind(data: Any) -> list[FileStamp]:
    """Return stamps of the files that a lazy query or a pyarrow dataset names.

    Of three or more files, a query names only the first.
    """
    names: list[str] = []
    if isinstance(data, pl.LazyFrame):
        with suppress(pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
            for paths in re.findall(r"SCAN \[(.*?)\]$", data.explain(optimized=False), re.MULTILINE):
                names += re.split(r", ", re.sub(r", \.\.\. \d+ other .*$", "", paths))
    elif isinstance(files := getattr(data, "files", None), list):  # of a dataset, not of a forest
        names += files
    stamps = []
    for name in names:
        with suppress(OSError, ValueError):
            if "://" not in name and Path(name).is_file():
                stamps.append(FileStamp.of(as_path(name)))
    return stamps
