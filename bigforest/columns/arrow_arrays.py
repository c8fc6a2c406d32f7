"""Conversion between numpy and Arrow without pandas, and the declaration of a column of a file.

`pa.array` and `to_numpy` import pandas if it is installed, which takes a quarter of a second and more. Polars converts
arrays on its threads, which a forked process does not have. So the buffers of arrays are wrapped directly, and only
lists are converted by Polars.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray


class Column(NamedTuple):
    """A column of a file. Its writer, its reader and the documentation follow from this declaration.

    meaning  description in the documentation
    null     True if values may be null
    later    True if older files of the same format version lack the column
    """

    name: str
    type: pa.DataType
    meaning: str
    null: bool = False
    later: bool = False


def compute() -> ModuleType:
    """Import pyarrow.compute when it is needed.

    The import takes a twentieth of the time from process start to the first split. A forest that stays in memory does
    not need it.
    """
    import pyarrow.compute

    return pyarrow.compute


def file_schema(columns: Iterable[Column]) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.type, nullable=column.null) for column in columns])


def arrow_array(
    values: NDArray[Any] | Sequence[Any], kind: pa.DataType | None = None, mask: NDArray[np.bool_] | None = None
) -> Any:
    """Return an Arrow array of type `kind`, by default the type of the values.

    mask  True where the result is null. For numpy arrays only: in a list, None becomes null.

    A list may contain values of one type, and None. The result shares the memory of a contiguous numpy array of
    numbers, unless `kind` is another type. Booleans become bits.
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
    """Return booleans as bits, the form of validity masks and of boolean values in Arrow."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def arrow_table(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    """Return a table of the columns. `arrow_array` converts columns that are not Arrow arrays."""
    made = []
    for field in schema:
        column = columns[field.name]
        made.append(column if isinstance(column, pa.Array) else arrow_array(column, field.type))
    return pa.Table.from_arrays(made, schema=schema)


def as_numpy(column: Any, missing: Any = None) -> NDArray[Any]:
    """Return the values of an Arrow array or column of numbers or booleans, read-only; null becomes `missing`.

    Raises ValueError for null if `missing` is None.
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


def is_valid(array: Any) -> NDArray[np.bool_]:
    """Return a mask of the values of an Arrow array that are not null."""
    if array.null_count in (0, len(array)):
        return np.full(len(array), array.null_count == 0)
    return _flags(array.buffers()[0], array)


def _flags(bits: pa.Buffer | None, array: pa.Array) -> NDArray[np.bool_]:
    end = array.offset + len(array)
    return np.unpackbits(np.frombuffer(bits or b"", np.uint8), count=end, bitorder="little")[array.offset :].view(
        np.bool_
    )


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view. Kernels are compiled only for read-only arrays, like those mapped from files."""
    view = array.view()
    view.flags.writeable = False
    return view
