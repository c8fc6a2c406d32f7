"""Tables that are in memory already: numpy, pyarrow and pandas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.common.errors import DataError, reason
from bigforest.source.source import check_names

TARGET = "target"

_POLARS_FAULTS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


def numbered_names(matrix: Any) -> list[str]:
    """Names x0, x1, ... for the columns of an array without names."""
    return [f"x{column}" for column in range(matrix.shape[1])] if matrix.ndim == 2 else []


def frame_from_numpy(matrix: NDArray[Any], names: Sequence[str]) -> pl.DataFrame:
    """A frame with the columns of `matrix` ([rows, features], booleans or real numbers) under `names`.

    Raises DataError when the array is of another shape or type, or the names do not fit.
    """
    masked, matrix = masked_cells(matrix), np.asarray(matrix)
    if matrix.ndim != 2:
        raise DataError(f"the array of features must have two dimensions, not shape {matrix.shape}; reshape it")
    if matrix.dtype.kind not in "biuf" or matrix.dtype.itemsize > 8:
        raise DataError(f"the array of features has type {matrix.dtype}; convert it to numbers of at most 64 bits")
    if matrix.shape[1] != len(names):
        raise DataError(f"the array has {matrix.shape[1]} columns where {len(names)} are expected")
    if not names:
        raise DataError(
            f"the array of features has no columns, but shape {matrix.shape}; check that it is the right one"
        )
    check_names(names, "the array of features")
    by_column = np.asfortranarray(matrix, dtype=matrix.dtype.newbyteorder("="))
    columns = [pl.Series(name, by_column[:, column]) for column, name in enumerate(names)]
    if masked is not None:
        columns = [series.set(pl.Series(masked[:, place]), None) for place, series in enumerate(columns)]
    return pl.DataFrame(columns)


def masked_cells(array: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Which cells of an array are masked: they are missing. None where no mask says so."""
    return np.asarray(np.ma.getmaskarray(array)) if isinstance(array, np.ma.MaskedArray) else None


def plain_array(array: NDArray[Any]) -> NDArray[Any]:
    """An array of numbers or objects, of any subclass, as a plain one; masked cells become NaN."""
    masked, plain = masked_cells(array), np.asarray(array)
    return plain if masked is None else np.where(masked, np.nan, plain)


def frame_from_arrow(table: Any) -> pl.DataFrame:
    """The frame of a pyarrow Table, RecordBatch or RecordBatchReader. Raises DataError when Polars cannot hold it."""
    from bigforest.storage.arrow import frame_of, schema_of

    where = "the Arrow table"
    check_names(table.schema.names, where)
    schema_of(table.schema, where)
    return frame_of(table.read_all() if hasattr(table, "read_all") else table, where)


def frame_from_pandas(frame: Any) -> pl.DataFrame:
    """The frame of a pandas DataFrame, without its index; DataError when a column is of no one type."""
    if not hasattr(frame, "columns"):
        raise DataError(f"a pandas {type(frame).__name__} is not a table; give a DataFrame")
    names = [str(name) for name in frame.columns]
    check_names(names, "the pandas frame")
    try:
        # Polars would make up a name for an empty one.
        found = pl.from_pandas(frame.set_axis(range(len(names)), axis=1))
    except (ValueError, TypeError, NotImplementedError, *_POLARS_FAULTS) as error:
        raise DataError(f"the pandas frame cannot be read ({reason(error)}); convert or drop the column") from error
    found.columns = names
    ordered = [name for name, dtype in zip(names, frame.dtypes, strict=True) if getattr(dtype, "ordered", False)]
    categories = {name: frame.iloc[:, names.index(name)].cat.categories for name in ordered}
    # Polars would forget the order, and the categories that no row has.
    enums = {name: pl.Enum(list(known)) for name, known in categories.items() if all(type(one) is str for one in known)}
    return found.with_columns(found.get_column(name).cast(dtype) for name, dtype in enums.items())
