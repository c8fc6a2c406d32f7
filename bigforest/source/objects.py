"""Columns from numpy arrays, and from lists of Python, numpy and pandas objects.

Polars converts most lists, but misreads some (`_suit_polars`). Values that would change silently are refused.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from decimal import Decimal
from numbers import Integral, Number
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.errors import DataError, shown
from bigforest.source.source import POLARS_FAULTS

# Errors of Polars and Python for values that no column holds.
OBJECT_FAULTS = (TypeError, ValueError, OverflowError, RuntimeError, AttributeError, *POLARS_FAULTS)

# Types of times of numpy that Polars lacks, and the types that replace them.
_POLARS_UNITS = {
    **{f"M8[{unit}]": "M8[D]" for unit in "YMW"},
    **{f"{kind}8[{unit}]": f"{kind}8[ms]" for kind in "Mm" for unit in "hms"},
    **{f"m8[{unit}]": "m8[ms]" for unit in "WD"},
}

_BEYOND = "some of its times are beyond the range of the unit that holds them"

# Least and largest integers of types, from narrow to wide.
_LIMITS = {pl.Int64: (-(2**63), 2**63 - 1), pl.UInt64: (0, 2**64 - 1), pl.Int128: (-(2**127), 2**127 - 1)}


def masked_cells(array: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Return the mask of missing cells of a masked array; None for other arrays."""
    return np.asarray(np.ma.getmaskarray(array)) if isinstance(array, np.ma.MaskedArray) else None


def plain_array(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of any subclass, such as a masked array, as a plain array.

    Masked cells become NaN; if there are any, an array of text or dates becomes an array of objects. Raises DataError
    as `as_doubles` does.
    """
    if type(array) is np.ndarray:
        return as_doubles(array)
    masked, plain = masked_cells(array), as_doubles(np.asarray(array))
    if masked is None or not masked.any():
        return plain
    return np.where(masked, np.nan, plain if plain.dtype.kind in "biufc" else plain.astype(object))


def as_doubles(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of long doubles as float64, others unchanged. Raises DataError if float64 lacks a value."""
    if array.dtype.kind != "f" or array.dtype.itemsize <= 8:
        return array
    with np.errstate(over="ignore"):
        doubles = array.astype(np.float64)
    if not np.array_equal(doubles, array, equal_nan=True):
        raise DataError(f"an array of type {array.dtype} has values that float64 does not hold; round it to float64")
    return doubles


def column_of_array(array: Any) -> pl.Series:
    """Return an array of numpy, [rows] or [rows, 1], as a column; masked cells are null.

    Raises DataError for another shape or type, ValueError for times beyond the range of their unit, and errors as
    `column_of_objects`.
    """
    masked, plain = masked_cells(array), as_doubles(np.asarray(array))
    if plain.ndim == 2 and plain.shape[1] == 1:
        plain, masked = plain[:, 0], None if masked is None else masked[:, 0]
    if plain.ndim != 1:
        raise DataError(f"a column was expected, not an array of shape {plain.shape}; reshape it")
    if plain.dtype.kind in "mM":
        plain = _in_unit(plain, _POLARS_UNITS.get(plain.dtype.str[1:], plain.dtype.str))
    if plain.dtype.kind not in "biufUOMmT":
        raise DataError(f"an array of type {plain.dtype} cannot be a column; convert it to booleans, numbers or text")
    if plain.dtype.kind in "OT":  # T: text of any length, of numpy 2
        column = column_of_objects(plain.tolist())
    else:
        column = pl.Series(values=plain.tolist() if plain.dtype.kind == "U" else plain)
        if column.dtype == pl.Date and column.null_count() > np.isnat(plain).sum():  # days beyond 32 bits
            raise ValueError(_BEYOND)
    return column if masked is None else column.set(pl.Series(masked), None)


def column_of_objects(values: list[Any]) -> pl.Series:
    """Return objects of Python, numpy or pandas as a column, if they are of one kind.

    Whole numbers become the first of Int64, UInt64 and Int128 that holds them all; see `_from_numbers`. Raises
    TypeError, ValueError, OverflowError and errors of Polars for objects of several kinds.
    """
    column: pl.Series | None = None
    if _suit_polars(values):
        with contextlib.suppress(*OBJECT_FAULTS):
            column = pl.Series(values=values)
    if column is not None and column.dtype.is_temporal():
        check_times(values)
    if column is not None and column.dtype != pl.Object and not (column.dtype.is_float() and _may_differ(values)):
        return column
    plain = (cell.item() if isinstance(cell, np.bool_ | np.str_) else cell for cell in values)
    cells = [None if is_missing(cell) else cell for cell in plain]
    present = [cell for cell in cells if cell is not None]
    if present and all(type(cell) is bool for cell in present):
        return pl.Series(values=cells, dtype=pl.Boolean)
    if present and all(isinstance(cell, dict) for cell in present):
        return _from_dicts(cells)
    for moment in (np.datetime64, np.timedelta64):  # Python counts timedelta64 as a Number
        if present and all(isinstance(cell, moment) for cell in present):
            return column_of_array(_common_times(cells))
    if present and all(isinstance(cell, Number) for cell in present):
        return _from_numbers(cells)
    column = pl.Series(values=cells) if present else pl.Series(values=cells, dtype=pl.Null)
    if column.dtype.is_temporal():
        check_times(present)
    if column.dtype == pl.Object or not _suit_polars(present):
        raise TypeError(f"its values are of {' and '.join(sorted({type(cell).__name__ for cell in present}))}")
    return column


def _may_differ(values: list[Any]) -> bool:
    """Return True if Polars may make other floats of values: NaN, which means missing, or large integers."""
    # An expression of Polars takes as long as reading a row of twenty columns.
    return any(type(cell) is int or cell != cell for cell in values)


def _in_unit(times: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return times of numpy in another unit. Raises ValueError for times beyond its range.

    Until version 2.5 numpy wraps such times without a word.
    """
    with contextlib.suppress(OverflowError):
        converted = times.astype(dtype)
        if np.array_equal(converted.astype(times.dtype), times, equal_nan=True):
            return converted
    raise ValueError(_BEYOND)


def _common_times(cells: list[Any]) -> NDArray[Any]:
    """Return times of numpy, or None for missing times, as an array in the finest of their units.

    Raises ValueError as `_in_unit`.
    """
    present = [cell for cell in cells if cell is not None]
    with contextlib.suppress(OverflowError):
        times = np.array(present)
        pairs = zip(times, present, strict=True)
        if all(time.astype(cell.dtype) == cell for time, cell in pairs if cell.dtype != times.dtype):
            column = np.full(len(cells), "NaT", times.dtype)
            column[[cell is not None for cell in cells]] = times
            return column
    raise ValueError(_BEYOND)


def check_times(values: list[Any]) -> None:
    """Raise ValueError for a mixture that libraries convert silently.

    Polars reads times without a zone among times with a zone as UTC. Arrow turns datetimes among dates into dates.
    """
    present = [cell for cell in values if not is_missing(cell)]
    if len({(isinstance(cell, datetime), getattr(cell, "tzinfo", None) is None) for cell in present}) > 1:
        raise ValueError("some of its times have a time zone and others have none, or some are dates alone")


def _suit_polars(values: list[Any]) -> bool:
    """Return False if Polars would misread some values.

    Polars confuses the units of numpy times. If the first value is a numpy scalar, Polars converts the others to its
    type, so NaN may become true. Of dicts, it reads only the keys of the first. It panics at infinite and NaN decimals.
    """
    kinds = {type(cell) for cell in values if cell is not None}
    if any(issubclass(kind, dict | np.datetime64 | np.timedelta64) for kind in kinds):
        return False
    return (len(kinds) == 1 or not any(issubclass(kind, np.generic) for kind in kinds)) and _are_finite(values)


def _are_finite(values: list[Any]) -> bool:
    return all(cell.is_finite() for cell in values if isinstance(cell, Decimal))


def _from_dicts(cells: list[Any]) -> pl.Series:
    """Return dicts, or None for missing ones, as structs that have the keys of all dicts.

    Raises errors as `column_of_objects`.
    """
    keys = dict.fromkeys(key for cell in cells if cell is not None for key in cell)
    fields = {str(key): column_of_objects([None if cell is None else cell.get(key) for cell in cells]) for key in keys}
    if len(fields) < len(keys):
        raise ValueError("some of its keys are the same as text")
    if not fields:
        return pl.Series(values=cells, dtype=pl.Struct([]))
    present = pl.lit(pl.Series([cell is not None for cell in cells]))
    return pl.DataFrame(fields).select(pl.when(present).then(pl.struct(pl.all()))).to_series().alias("")


def _from_numbers(values: list[Any]) -> pl.Series:
    """Return numbers, or None for missing ones, as a column of integers, of decimals, or otherwise of floats.

    Raises ValueError for an integer, decimal or long double that would change as a float. A decimal does not change if
    it is the shortest text of the float, such as 0.1.
    """
    kinds = {type(cell) for cell in values if cell is not None}
    if all(issubclass(kind, Integral) for kind in kinds):
        whole = [None if cell is None else int(cell) for cell in values]
        least, most = (f(cell for cell in whole if cell is not None) for f in (min, max))
        for dtype, (low, high) in _LIMITS.items():
            if low <= least and most <= high:
                return pl.Series(values=whole, dtype=dtype)
    elif all(issubclass(kind, Integral | Decimal) for kind in kinds) and _are_finite(values):
        with contextlib.suppress(*OBJECT_FAULTS):
            return pl.Series(values=[None if cell is None else Decimal(cell) for cell in values], strict=True)
    return pl.Series(values=[None if cell is None else _as_float(cell) for cell in values], dtype=pl.Float64)


def _as_float(number: Any) -> float:
    rounded = float(number)
    exact = isinstance(number, Integral | Decimal | np.longdouble)
    if exact and rounded != number and Decimal(repr(rounded)) != number:
        raise ValueError(f"{shown(number)} is not exact in float64")
    return rounded


def is_missing(cell: Any) -> bool:
    """Return True for a missing value of Python, numpy or pandas in an array of objects."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(cell, Decimal):
        return cell.is_nan()
    return isinstance(cell, float | np.floating | np.datetime64 | np.timedelta64) and bool(cell != cell)
