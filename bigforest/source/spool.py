"""Stream a table that cannot be read by column into Parquet files in the scratch folder."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from bigforest.columns.types import columns_named, recast
from bigforest.errors import ConfigError, DataError, naming_file, reason, system_error
from bigforest.planning.memory import BASE_BYTES, MemoryEstimate
from bigforest.source.source import EVERYTHING, POLARS_FAULTS, Reading, places_once
from bigforest.storage.paths import write_atomically

# Batches of a reader are collected up to this size, because many small files are slow to read.
PART_BYTES = 64 << 20
# Anonymous memory of streaming a table into scratch, bytes, without the process itself: 330 to 400 MB measured for CSV
# files of 0.4 and of 0.9 GB on two threads. A small table takes a constant and a multiple of its bytes.
SPOOL_BYTES = 450_000_000
_SMALL_TIMES = 8
_SMALL_BYTES = 30_000_000
# Row groups of a table streamed to scratch hold about PART_BYTES, within these numbers of rows.
_MAX_GROUP_ROWS = 1 << 18
_MIN_GROUP_ROWS = 1 << 12


def spool_bytes(size: int) -> int:
    """Return the anonymous memory, in bytes, of streaming a table of `size` bytes, without the process itself."""
    return min(SPOOL_BYTES, _SMALL_BYTES + _SMALL_TIMES * size)


def check_spool(size: int, memory: int | None, where: str) -> None:
    """Raise ConfigError, naming `where`, if a budget is too small to stream a table of `size` bytes into scratch."""
    try:
        read_estimate(spool_bytes(size)).check(memory)
    except ConfigError as error:
        raise ConfigError(
            f"{where}: {error.text}, or write the table as Parquet first, which is not streamed"
        ) from None


def read_estimate(spooled: int, scratch: int = 0) -> MemoryEstimate:
    """Return the memory and disk for streaming a table into scratch.

    spooled  `Source.spooled`, bytes.
    scratch  bytes of the Parquet files.
    """
    memory = BASE_BYTES + spooled
    return MemoryEstimate("read", memory, memory, scratch)


def spool_lazy(frame: pl.LazyFrame, scratch: Path, where: str, reading: Reading = EVERYTHING) -> list[Path]:
    """Run a query with the streaming engine into one Parquet file in `scratch`, and return it in a list.

    Columns that are not read become nulls: Parquet cannot hold every type. Structs without fields, such as {} in JSON,
    are left out: they have no features.

    Memory: the batches of the engine, SPOOL_BYTES for CSV of any size. A scan of Parquet files holds several row
    groups, whatever their size.

    Raises DataError, naming `where`, if the query fails.
    """
    path = scratch / f"source-{secrets.token_hex(4)}.parquet"
    try:
        names = frame.collect_schema().names()
        frame = frame.with_columns(pl.lit(None).alias(name) for name in names if not reading.needs(name))
        frame = frame.select(_storable(frame.collect_schema(), reading))
        width = max(1, len(names))
        rows = min(_MAX_GROUP_ROWS, max(_MIN_GROUP_ROWS, PART_BYTES // (8 * width)))
        with write_atomically(path) as file:
            frame.sink_parquet(file, compression="lz4", statistics=False, row_group_size=rows)
    except (*POLARS_FAULTS, OSError) as error:
        not_read = isinstance(error, FileNotFoundError | PermissionError) or system_error(error, path) is None
        fault = "cannot be read" if not_read else f"cannot be read, or not copied to {scratch}"
        raise DataError(f"{where}: the table {fault}: {reason(error)}") from error
    return [path]


def spool_batches(reader: Any, scratch: Path, where: str, reading: Reading = EVERYTHING) -> list[Path]:
    """Write the batches of a pyarrow RecordBatchReader to Parquet files in `scratch`, and return the files.

    Holds about 64 MB, or one batch if that is larger. Raises DataError, naming `where`, if a batch is unreadable.
    """
    import pyarrow as pa

    from bigforest.storage.arrow import frame_of, naming_faults, schema_of

    places = places_once(reader.schema.names, where, reading)
    schema_of(reader.schema, where, reading.needs)
    with naming_faults(lambda fault: DataError(f"{where}: the table cannot be read: {fault}")):
        tables = (pa.Table.from_batches(part, reader.schema) for part in _parts(reader, _bytes_of))
        return _write_all((frame_of(table.select(places), where, reading.needs) for table in tables), scratch, reading)


def spool_frames(frames: Iterable[pl.DataFrame], scratch: Path) -> list[Path]:
    """Write frames of the same columns, at least one, to Parquet files in `scratch`, and return the files.

    Holds about 64 MB, or one frame if that is larger.
    """
    return _write_all((pl.concat(part) for part in _parts(frames, pl.DataFrame.estimated_size)), scratch, EVERYTHING)


def _parts(items: Iterable[Any], bytes_of: Callable[[Any], float]) -> Iterator[list[Any]]:
    """Yield the items in lists of about PART_BYTES; one empty list if there are none."""
    held: list[Any] = []
    size, parts = 0.0, 0
    for item in items:
        held.append(item)
        size += bytes_of(item)
        if size >= PART_BYTES:
            yield held
            held, size, parts = [], 0.0, parts + 1
    if held or not parts:
        yield held


def _write_all(frames: Iterable[pl.DataFrame], scratch: Path, reading: Reading) -> list[Path]:
    """Write each frame to a Parquet file in a new folder of `scratch`, and return the files."""
    folder = scratch / f"source-{secrets.token_hex(4)}"
    with naming_file(folder):
        folder.mkdir()
    files: list[Path] = []
    for frame in frames:
        files.append(folder / f"part-{len(files):06}.parquet")
        with write_atomically(files[-1]) as file:
            frame.select(_storable(frame.schema, reading)).write_parquet(file, compression="lz4", statistics=False)
    return files


def _storable(schema: Mapping[str, Any], reading: Reading) -> list[pl.Expr]:
    """Return expressions of the columns, without structs that have no fields: Parquet cannot hold these.

    A column with nothing else is left out if it is read, and null otherwise.
    """
    exprs = []
    for name, dtype in schema.items():
        kind, column = _with_fields(dtype), columns_named([name])
        if kind is not None:
            exprs.append(recast(column, dtype, kind).alias(name))
        elif not reading.needs(name):
            exprs.append(pl.lit(None).alias(name))
    return exprs


def _with_fields(dtype: Any) -> Any:
    """Return a type without structs that have no fields; None if nothing else is in it."""
    if isinstance(dtype, pl.Struct):
        inner = {field.name: _with_fields(field.dtype) for field in dtype.fields}
        fields = [pl.Field(name, kind) for name, kind in inner.items() if kind is not None]
        return pl.Struct(fields) if fields else None
    if isinstance(dtype, pl.List | pl.Array):
        kind = _with_fields(dtype.inner)
        if kind is None:
            return None
        return pl.List(kind) if isinstance(dtype, pl.List) else pl.Array(kind, dtype.size)
    return dtype


def _bytes_of(batch: Any) -> int:
    """Return the bytes of a batch. Before Arrow 24, `nbytes` raises for string views."""
    import pyarrow as pa

    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:
        return int(batch.get_total_buffer_size())
