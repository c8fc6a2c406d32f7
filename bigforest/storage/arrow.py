"""Conversion of untrusted bytes from Arrow to Polars: faults become errors that name file and column.

If a damaged page needs more memory than there is, Polars ends the process and Arrow raises; Polars panics at unknown
types. So files are read by Arrow, and types and arrays are validated before Polars gets them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from bigforest.columns.arrow_arrays import arrow_array, as_numpy
from bigforest.errors import BigForestError, DataError, reason

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


@contextmanager
def naming_faults(make: Callable[[str], BigForestError]) -> Iterator[None]:
    """Raise make(reason) if the block finds bytes that cannot be read."""
    try:
        yield
    except DataError:  # which says what is wrong already, although it is a ValueError
        raise
    except FAULTS as error:
        raise make(reason(error)) from error


def schema_of(schema: pa.Schema, where: str) -> dict[str, pl.DataType]:
    """Return the Polars types of the columns of an Arrow schema. Raises DataError, naming `where` and the column."""
    for field in schema:
        with naming_faults(lambda what, field=field: _of_column(where, field.name, what)):  # type: ignore[misc]
            _check_type(field)
    try:
        return dict(_frame(no_rows(schema)).schema)
    except FAULTS:  # of some column
        found = {}
        for field in schema:
            with naming_faults(lambda what, field=field: _of_column(where, field.name, what)):  # type: ignore[misc]
                found[field.name] = _frame(no_rows(pa.schema([field]))).dtypes[0]
        return found


def frame_of(table: Any, where: str) -> pl.DataFrame:
    """Convert a pyarrow Table or RecordBatch, whose types `schema_of` has checked, to a frame.

    Arrays are validated, including text. Raises DataError, naming `where` and the column.
    """
    columns = []
    with naming_faults(lambda what: DataError(f"{where}: the table cannot be read ({what}); check its files")):
        for name, column in zip(table.schema.names, table.columns, strict=True):
            with naming_faults(lambda what, name=name: _of_column(where, name, what)):  # type: ignore[misc]
                column.validate(full=True)
                columns.append(_sound(column))
        return _frame(type(table).from_arrays(columns, schema=table.schema))


def _sound(column: Any) -> Any:
    """Return the column with empty views where text is missing.

    Arrow's validation skips these views, and Polars follows them; so do casts of pyarrow, which end the process.
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
        begins = arrow_array(as_numpy(array.offsets).copy())  # no part of longer ones
        return type(array).from_arrays(begins, _sound(array.values), type=kind, mask=array.is_null())
    raise ValueError(f"the type {kind} is not supported")


def _with_empty_views(array: Any) -> Any:
    """Set missing views to zero. A view has 16 bytes; one of zeros is empty."""
    _, views, *texts = array.buffers()
    rows = slice(array.offset, array.offset + len(array))
    valid = as_numpy(array.is_valid())
    sound = np.frombuffer(views, np.uint64).reshape(-1, 2)[rows] * valid[:, np.newaxis]
    bits = np.packbits(valid, bitorder="little")
    return pa.Array.from_buffers(array.type, len(array), [pa.py_buffer(bits), pa.py_buffer(sound), *texts])


def no_rows(schema: pa.Schema) -> pa.Table:
    """Return a table without rows. Schema.empty_table would import pandas, if installed, in half a second."""
    return pa.Table.from_batches([], schema)


def _frame(table: Any) -> pl.DataFrame:
    """Convert a Table or RecordBatch, keeping its names: Polars would replace an empty one."""
    names = table.schema.names
    frame = pl.from_arrow(table.rename_columns([str(place) for place in range(len(names))]))
    assert isinstance(frame, pl.DataFrame)
    frame.columns = names
    return frame


def _of_column(where: str, name: str, what: str) -> DataError:
    return DataError(f"{where}: column {name!r} cannot be read ({what}); drop or convert the column")


def _check_type(field: pa.Field) -> None:
    """Raise ValueError for a type at which Polars panics, and writes to the terminal."""
    kind = field.type
    if "\0" in field.name:
        raise ValueError("there is a zero byte in its name")
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        pl.Series([], dtype=pl.Datetime("us", kind.tz))
    if pa.types.is_decimal256(kind):
        raise ValueError("decimals of 256 bits are not supported")
    if pa.types.is_interval(kind):
        raise ValueError(f"the type {kind} is not supported")
    if pa.types.is_fixed_size_list(kind) and kind.list_size == 0:
        raise ValueError("it holds lists of no elements")
    if pa.types.is_dictionary(kind):
        _check_type(pa.field("", kind.value_type))
    elif isinstance(kind, pa.BaseExtensionType):
        _check_type(pa.field("", kind.storage_type))
    for number in range(kind.num_fields):
        _check_type(kind.field(number))
