"""Conversion of untrusted bytes from Arrow to Polars: faults become errors that name file and column.

If a damaged page asks for more memory than there is, Arrow raises an error, but Polars ends the process; Polars panics
at unknown types. So Arrow reads the files, and types and arrays are validated before Polars gets them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from bigforest.columns.arrow_arrays import arrow_array, as_numpy, compute, is_valid
from bigforest.errors import BigForestError, DataError, names_other_file, reason, system_error

# Errors of Arrow, Polars and Python for damaged bytes. A panic is not an Exception.
FAULTS = (
    pa.ArrowException,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    NotImplementedError,
    MemoryError,
    OverflowError,
    RuntimeError,
)
# Offset from UTC that is no whole number of hours, such as +05:30. Polars has zones for whole hours only.
_OFFSET = re.compile(r"[+-][01]\d:(?!00)[0-5]\d")


@contextmanager
def naming_faults(make: Callable[[str], BigForestError], file: Path | None = None) -> Iterator[None]:
    """Raise make(reason) if the block finds bytes that cannot be read.

    file  the file that is read, or None. An error of the system is not about the bytes: it is raised with the name of
          the file.
    """
    try:
        yield
    except DataError:  # a ValueError, but its message already names the fault
        raise
    except FAULTS as error:
        if names_other_file(error, file):
            raise
        raise (file and system_error(error, file)) or make(reason(error)) from error


def _all(name: str) -> bool:
    return True


def schema_of(schema: pa.Schema, where: str, needs: Callable[[str], bool] = _all) -> dict[str, pl.DataType]:
    """Return the Polars types of the columns of an Arrow schema. Raises DataError, naming `where` and the column.

    needs  function that returns True for the name of a column that is read. The type of another column is Null if
           Polars has no type for it.
    """
    schema = pa.schema([field.with_type(_readable_type(field.type)) for field in schema])
    try:
        for field in schema:
            _check_type(field)
        return dict(_frame(no_rows(schema)).schema)
    except FAULTS:  # column by column, to name the one at fault
        return {field.name: _type_of(field, where, needs) for field in schema}


def _type_of(field: pa.Field, where: str, needs: Callable[[str], bool]) -> pl.DataType:
    try:
        with naming_faults(lambda fault: _column_error(where, field.name, fault)):
            _check_type(field)
            return _frame(no_rows(pa.schema([field]))).dtypes[0]
    except DataError:
        if needs(field.name):
            raise
        return pl.Null()


def frame_of(table: Any, where: str, needs: Callable[[str], bool] = _all) -> pl.DataFrame:
    """Convert a pyarrow Table or RecordBatch, whose types `schema_of` has checked, to a frame.

    needs  as in `schema_of`. A column that is not read becomes a column of nulls if it is not sound.

    Arrays are validated, including text. Raises DataError, naming `where` and the column.
    """
    columns, fields = [], []
    with naming_faults(lambda fault: DataError(f"{where}: the table cannot be read ({fault}); check its files")):
        for field, column in zip(table.schema, table.columns, strict=True):
            try:
                with naming_faults(lambda fault, name=field.name: _column_error(where, name, fault)):  # type: ignore[misc]
                    if not needs(field.name):
                        _type_of(field, where, _all)  # raises for a type that Polars lacks
                    column.validate(full=True)
                    columns.append(_sound(as_readable(column)))
                    fields.append(field.with_type(columns[-1].type))
            except DataError:
                if needs(field.name):
                    raise
                columns.append(pa.nulls(table.num_rows))
                fields.append(pa.field(field.name, pa.null()))
        return _frame(type(table).from_arrays(columns, schema=pa.schema(fields)))


def as_readable(column: Any) -> Any:
    """Return an array in a type that Polars reads. Raises ArrowInvalid for times that milliseconds do not hold.

    Run-length encoding is undone. Times at an offset with minutes, such as +05:30, become times in UTC, seconds become
    milliseconds, and intervals durations.
    """
    if pa.types.is_run_end_encoded(column.type):
        column = compute().run_end_decode(column)
    if pa.types.is_interval(column.type):
        return _durations(column)
    kind = _readable_type(column.type)
    return column if kind == column.type else column.cast(kind)


def _readable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_run_end_encoded(kind):
        return _readable_type(kind.value_type)
    # Polars has no seconds. For times beyond the range, its conversion wraps; that of Arrow raises.
    unit = "ms" if getattr(kind, "unit", None) == "s" else getattr(kind, "unit", None)
    if pa.types.is_timestamp(kind):
        offset = kind.tz is not None and _OFFSET.fullmatch(kind.tz)
        return pa.timestamp(unit, "UTC" if offset else kind.tz)
    if pa.types.is_interval(kind):
        return pa.duration("us")
    return pa.duration(unit) if pa.types.is_duration(kind) else kind


# Parts of an interval of Arrow.
_INTERVAL = np.dtype([("months", np.int32), ("days", np.int32), ("nanoseconds", np.int64)])
_DAY_MICROSECONDS = 86_400_000_000
_MAX_DAYS = 10**8


def _durations(column: Any) -> Any:
    """Return intervals, which DuckDB has for differences of times, as durations in microseconds.

    Raises ValueError for months, which differ in length, for parts of a microsecond, and for more days than fit.
    """
    kind = pa.duration("us")
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_durations(chunk) for chunk in column.chunks], kind)
    valid = is_valid(column)
    if not valid.any():
        return pa.nulls(len(column), kind)
    parts = np.frombuffer(column.buffers()[1], _INTERVAL, len(column), column.offset * _INTERVAL.itemsize)
    months, days, rest = (parts[name][valid].astype(np.int64) for name in ("months", "days", "nanoseconds"))
    if months.any() or (rest % 1000).any() or (np.abs(days) > _MAX_DAYS).any():
        raise ValueError("it has intervals of months, of nanoseconds or of too many days, which no duration holds")
    lengths = np.zeros(len(column), np.int64)
    lengths[valid] = days * _DAY_MICROSECONDS + rest // 1000
    return arrow_array(lengths, kind, mask=~valid)


def _sound(column: Any) -> Any:
    """Return the column with empty views in place of missing text. A view holds a text, or refers to one.

    Arrow's validation skips the views of missing text. Polars follows them, and so do casts of pyarrow, which would end
    the process.
    """
    if not _has_views(column.type):
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_sound(chunk) for chunk in column.chunks], column.type)
    return _with_sound_views(column)


def _has_views(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_views(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _has_views(kind.storage_type)
    fields = (kind.field(number) for number in range(kind.num_fields))
    return _is_view(kind) or any(_has_views(field.type) for field in fields)


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _with_sound_views(array: Any) -> Any:
    kind = array.type
    if _is_view(kind):
        return _with_empty_views(array) if array.null_count else array
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _sound(array.storage))
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(array.indices, _sound(array.dictionary), ordered=kind.ordered)
    if pa.types.is_struct(kind):
        parts = [_sound(array.field(number)) for number in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    if pa.types.is_fixed_size_list(kind):
        values = array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
        return pa.FixedSizeListArray.from_arrays(_sound(values), type=kind, mask=array.is_null())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        begins = arrow_array(as_numpy(array.offsets).copy())  # a copy: with a mask, Arrow refuses a slice of offsets
        return type(array).from_arrays(begins, _sound(array.values), type=kind, mask=array.is_null())
    raise ValueError(f"the type {kind} is not supported")


def _with_empty_views(array: Any) -> Any:
    """Set missing views to zero. A view has 16 bytes; one of zeros is empty."""
    _, views, *texts = array.buffers()
    rows = slice(array.offset, array.offset + len(array))
    valid = is_valid(array)
    sound = np.frombuffer(views, np.uint64).reshape(-1, 2)[rows] * valid[:, np.newaxis]
    bits = np.packbits(valid, bitorder="little")
    return pa.Array.from_buffers(array.type, len(array), [pa.py_buffer(bits), pa.py_buffer(sound), *texts])


def no_rows(schema: pa.Schema) -> pa.Table:
    """Return a table without rows. Schema.empty_table would import pandas, if installed, in half a second."""
    return pa.Table.from_batches([], schema)


def _frame(table: Any) -> pl.DataFrame:
    """Convert a Table or RecordBatch, keeping its names: Polars would replace an empty name."""
    names = table.schema.names
    frame = pl.from_arrow(table.rename_columns([str(place) for place in range(len(names))]))
    assert isinstance(frame, pl.DataFrame)
    frame.columns = names
    return frame


def _column_error(where: str, name: str, fault: str) -> DataError:
    return DataError(f"{where}: column {name!r} cannot be read ({fault}); drop, rename or convert the column")


def _check_type(field: pa.Field) -> None:
    """Raise ValueError for a type at which Polars would panic and write to the terminal."""
    kind = field.type
    if "\0" in field.name:
        raise ValueError("there is a zero byte in its name")
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        pl.Series([], dtype=pl.Datetime("us", kind.tz))
    if pa.types.is_decimal256(kind):
        raise ValueError("decimals of 256 bits are not supported")
    if pa.types.is_interval(kind) or pa.types.is_union(kind) or pa.types.is_run_end_encoded(kind):  # runs within others
        raise ValueError(f"the type {kind} is not supported")
    if pa.types.is_fixed_size_list(kind) and kind.list_size == 0:
        raise ValueError("it holds lists of no elements")
    if pa.types.is_dictionary(kind):
        _check_type(pa.field("", kind.value_type))
    elif isinstance(kind, pa.BaseExtensionType):
        _check_type(pa.field("", kind.storage_type))
    for number in range(kind.num_fields):
        _check_type(kind.field(number))
