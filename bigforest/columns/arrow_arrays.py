"""Arrow arrays of numbers and text, without pandas, and the columns of files.

To make an array or a scalar, or numpy of them, pyarrow imports pandas where it is installed, in a quarter of a second.

The flags of arrays for which kernels are compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray


class Column(NamedTuple):
    """A column of a file, declared once: its writer, its reader and the documentation follow.

    meaning  in the words of the documentation
    null     whether it may be null
    """

    name: str
    type: pa.DataType
    meaning: str
    null: bool = False


def file_schema(columns: Iterable[Column]) -> pa.Schema:
    """The schema of a file with these columns."""
    return pa.schema([pa.field(column.name, column.type, nullable=column.null) for column in columns])


def arrow_array(
    values: NDArray[Any] | Sequence[Any], kind: pa.DataType | None = None, mask: NDArray[np.bool_] | None = None
) -> Any:
    """Make an array of these values, of `kind`, by default of their own type; null where `mask` is True.

    A list has values of one type, or None. Of an array the memory is shared where it is contiguous.
    """
    if isinstance(values, np.ndarray):
        valid = None if mask is None else bitmap(~mask)
        content = bitmap(values) if values.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(values))
        made = pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [valid, content])
    else:
        made = pl.Series(values=values, strict=False).to_arrow(compat_level=pl.CompatLevel.oldest())
        kind = pa.string() if kind is None and pa.types.is_large_string(made.type) else kind
    return made if kind is None or made.type == kind else made.cast(kind)


def bitmap(flags: NDArray[np.bool_]) -> pa.Buffer:
    """The bits of an Arrow array that say where a value is there, or true."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def arrow_table(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    """A table of these columns: Arrow arrays, or what `arrow_array` takes."""
    made = []
    for field in schema:
        column = columns[field.name]
        made.append(column if isinstance(column, pa.Array) else arrow_array(column, field.type))
    return pa.Table.from_arrays(made, schema=schema)


def as_numpy(column: Any, missing: Any = None) -> NDArray[Any]:
    """The values of an Arrow array or column of numbers or truth values, read-only; `missing` stands for null.

    Polars would ask its threads for them, which a forked process does not have. Raises ValueError where there is null
    and nothing stands for it.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    valid, content = array.buffers()
    if pa.types.is_boolean(array.type):
        values = _flags(content, array)
    else:
        values = np.frombuffer(content or b"", array.type.to_pandas_dtype())[array.offset : array.offset + len(array)]
    if array.null_count:
        if missing is None:
            raise ValueError("values are missing")
        values = np.where(_flags(valid, array), values, missing)
    values.flags.writeable = False
    return values


def _flags(bits: pa.Buffer | None, array: pa.Array) -> NDArray[np.bool_]:
    """The bits of a buffer of the array, as truth values."""
    end = array.offset + len(array)
    return np.unpackbits(np.frombuffer(bits or b"", np.uint8), count=end, bitorder="little")[array.offset :].view(
        np.bool_
    )


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The array as if it were mapped from a file: kernels are compiled for these, and again for other flags."""
    found = array.view()
    found.flags.writeable = False
    return found
