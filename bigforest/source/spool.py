"""Copy a table that cannot be read by column, or only slowly, to Parquet files in the scratch folder.

Structs without fields, such as {} in JSON, are left out: Parquet cannot store them, and they have no features. Integers
of 128 bits, which Arrow lacks, are stored as text and cast back when they are read.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from bigforest.columns.types import FlatColumn, columns_named, is_nested, is_wide, recast, types_within
from bigforest.errors import ConfigError, DataError, naming_file, reason, system_error
from bigforest.planning.memory import BASE_BYTES, MemoryEstimate
from bigforest.source.source import EVERYTHING, POLARS_FAULTS, Reading, Source, places_once, source_of_files
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
# Small files are copied if this divides their number by at least _FEWER.
_FEWER = 8


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


def spool_lazy(frame: pl.LazyFrame, scratch: Path, where: str, reading: Reading = EVERYTHING) -> Source:
    """Run a query with the streaming engine into a Parquet file in `scratch`, and return its Source, named `where`.

    Columns that are not read become nulls: Parquet cannot hold every type.

    Memory: the batches of the engine, SPOOL_BYTES for CSV of any size. A scan of Parquet files holds several row
    groups, whatever their size.

    Raises DataError if the query fails.
    """
    path = scratch / f"source-{secrets.token_hex(4)}.parquet"
    try:
        names = frame.collect_schema().names()
        frame = frame.with_columns(pl.lit(None).alias(name) for name in names if not reading.needs(name))
        schema = frame.collect_schema()
        width = max(1, len(names))
        rows = min(_MAX_GROUP_ROWS, max(_MIN_GROUP_ROWS, PART_BYTES // (8 * width)))
        with write_atomically(path) as file:
            stored = frame.select(_storable(schema, reading))
            stored.sink_parquet(file, compression="lz4", statistics=False, row_group_size=rows)
    except (*POLARS_FAULTS, OSError) as error:
        not_read = isinstance(error, FileNotFoundError | PermissionError) or system_error(error, path) is None
        fault = "cannot be read" if not_read else f"cannot be read, or not copied to {scratch}"
        raise DataError(f"{where}: the table {fault}: {reason(error)}") from error
    return _stored([path], where, schema)


def spool_batches(reader: Any, scratch: Path, where: str, reading: Reading = EVERYTHING) -> Source:
    """Write the batches of a pyarrow RecordBatchReader to Parquet files in `scratch`, and return their Source.

    where  name of the Source, and of the table in messages.

    Holds about 64 MB, or one batch if that is larger. Raises DataError if a batch is unreadable.
    """
    import pyarrow as pa

    from bigforest.storage.arrow import frame_of, naming_faults, schema_of

    places = places_once(reader.schema.names, where, reading)
    schema_of(reader.schema, where, reading.needs)
    with naming_faults(lambda fault: DataError(f"{where}: the table cannot be read: {fault}")):
        tables = (pa.Table.from_batches(part, reader.schema) for part in _parts(reader, _bytes_of))
        frames = (frame_of(table.select(places), where, reading.needs) for table in tables)
        return _write_all(frames, scratch, where, reading)


def spool_frames(frames: Iterable[pl.DataFrame], scratch: Path, where: str) -> Source:
    """Write frames of the same columns, at least one, to Parquet files in `scratch`, and return their Source.

    Parameters and memory as for `spool_batches`.
    """
    parts = (pl.concat(part) for part in _parts(frames, pl.DataFrame.estimated_size))
    return _write_all(parts, scratch, where, EVERYTHING)


def repacked(source: Source, flat: Mapping[str, FlatColumn], scratch: Path, cells: int) -> Source:
    """Return a source with the columns `flat`, by name, that is quick to read a column at a time. Raises DataError.

    A table in memory is unnested while it is read. Files are copied to Parquet files in `scratch` if they have nested
    columns, because every read of one feature would otherwise read the whole nested column; or if the copies are at
    least _FEWER times fewer, because opening a small file takes longer than reading a column of it.

    cells  number of cells that are copied at a time, to a file
    """
    columns = list(dict.fromkeys(one.column for one in flat.values()))
    nested = any(is_nested(source.schema[column]) for column in columns)
    rows = max(1, cells // len(flat))
    if not nested and len(source.files) < _FEWER * (1 + source.rows // rows):
        return source
    exprs = [one.expr.alias(name) for name, one in flat.items()]
    if source.frame is not None:
        schema = {name: one.dtype for name, one in flat.items()}
        return replace(source, schema=schema, frame=source.frame.select(exprs))
    no_rows = pl.DataFrame(schema={column: source.schema[column] for column in columns})
    frames = source.batches(columns, rows) if source.rows else iter([no_rows])
    return _write_all((frame.select(exprs) for frame in frames), scratch, source.name, EVERYTHING)


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


def _write_all(frames: Iterable[pl.DataFrame], scratch: Path, where: str, reading: Reading) -> Source:
    """Write frames, at least one, each to a Parquet file in a new folder of `scratch`, and return their Source."""
    folder = scratch / f"source-{secrets.token_hex(4)}"
    with naming_file(folder):
        folder.mkdir()
    files: list[Path] = []
    for frame in frames:
        files.append(folder / f"part-{len(files):06}.parquet")
        with write_atomically(files[-1]) as file:
            frame.select(_storable(frame.schema, reading)).write_parquet(file, compression="lz4", statistics=False)
    return _stored(files, where, frame.schema)


def _stored(files: Sequence[Path], where: str, schema: Mapping[str, Any]) -> Source:
    """Return the Source of Parquet files that have a table of this schema in the types of `_storable`."""
    return source_of_files(files, where).retyped({name: _with_fields(schema[name]) for name in wide_columns(schema)})


def wide_columns(schema: Mapping[str, Any]) -> list[str]:
    """Return the columns that have integers of 128 bits."""
    return [name for name, dtype in schema.items() if any(is_wide(inner) for inner in types_within(dtype))]


def _storable(schema: Mapping[str, Any], reading: Reading) -> list[pl.Expr]:
    """Return expressions of the columns in types that are stored.

    A column of structs without fields is left out; if it is not needed, it is null.
    """
    exprs = []
    for name, dtype in schema.items():
        kind, column = _with_fields(dtype, pl.String()), columns_named([name])
        if kind is not None:
            exprs.append(recast(column, dtype, kind).alias(name))
        elif not reading.needs(name):
            exprs.append(pl.lit(None).alias(name))
    return exprs


def _with_fields(dtype: Any, wide: pl.DataType | None = None) -> Any:
    """Return a type without its structs that have no fields; None if it consists of them.

    wide  type that replaces integers of 128 bits, if any.
    """
    if isinstance(dtype, pl.Struct):
        inner = {field.name: _with_fields(field.dtype, wide) for field in dtype.fields}
        fields = [pl.Field(name, kind) for name, kind in inner.items() if kind is not None]
        return pl.Struct(fields) if fields else None
    if isinstance(dtype, pl.List | pl.Array):
        kind = _with_fields(dtype.inner, wide)
        if kind is None:
            return None
        return pl.List(kind) if isinstance(dtype, pl.List) else pl.Array(kind, dtype.size)
    return wide if wide is not None and is_wide(dtype) else dtype


def _bytes_of(batch: Any) -> int:
    """Return the bytes of a batch. Before Arrow 24, `nbytes` raises for string views."""
    import pyarrow as pa

    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:
        return int(batch.get_total_buffer_size())
