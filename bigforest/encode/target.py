"""The target column: which one it is, its classes in ascending order, and the class of every row."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.encode.dataspec import MAX_CLASSES, Label, TargetSpec
from bigforest.encode.ranks import dense_ranks
from bigforest.errors import DataError

USUAL_NAMES = ("target", "label", "class", "y")

# More distinct values than this in a column of floats are taken for measurements: classes as floats are few.
MAX_FLOAT_CLASSES = 100


@dataclass(frozen=True, slots=True)
class Target:
    """codes [rows] uint16 are the classes of the rows that have one; kept [rows] their numbers, None for
    all."""

    spec: TargetSpec
    codes: NDArray[np.uint16]
    kept: NDArray[np.int64] | None
    dropped: int


def find_target(schema: Mapping[str, pl.DataType], wanted: str | None) -> str:
    """The name of the target: `wanted`, or the first usual name that is a column. Raises DataError."""
    if wanted is not None:
        check_column(wanted, schema, "target")
        return wanted
    for name in USUAL_NAMES:
        if name in schema:
            return name
    raise DataError(
        f"no column is named {', '.join(USUAL_NAMES[:-1])} or {USUAL_NAMES[-1]}; "
        f"say which one is the target: {listed(list(schema), 50)}"
    )


def check_column(name: str, columns: Collection[str], role: str) -> None:
    """Raise DataError when `name` is not among `columns`, with the names that look like it."""
    if name not in columns:
        near = get_close_matches(name, list(columns), n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"the columns are {listed(list(columns))}"
        raise DataError(f"there is no column {name!r} for {role}; {hint}")


def listed(names: list[str], most: int = 20) -> str:
    """Names for a message, with the number of those left out."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def encode_target(series: pl.Series) -> Target:
    """Classes of the rows of `series` that have one; null and NaN are rows without. Raises DataError.

    Booleans, integers, strings, categoricals (by their text) and floats of few values are classes.
    """
    name = series.name
    dtype = series.dtype
    if dtype.is_float():
        series = series.fill_nan(None)
    present = series.is_not_null()
    dropped = len(series) - int(present.sum())
    if dropped == len(series):
        raise DataError(f"target {name!r}: every value is missing; choose another column")
    kept = present.arg_true().to_numpy().astype(np.int64) if dropped else None
    series = series.drop_nulls()
    labels, codes = _text_classes(series) if _is_text(dtype) else _number_classes(series)
    if len(labels) < 2:
        raise DataError(f"target {name!r}: all rows are of the one class {labels[0]!r}; two are needed")
    if len(labels) > MAX_CLASSES:
        raise DataError(
            f"target {name!r}: {len(labels)} classes, but at most {MAX_CLASSES} are possible; "
            "is it an identifier or a measurement?"
        )
    spec = TargetSpec(name=name, dtype=str(dtype.base_type()), classes=tuple(labels))
    return Target(spec=spec, codes=codes.astype(np.uint16), kept=kept, dropped=dropped)


def _is_text(dtype: pl.DataType) -> bool:
    return dtype in (pl.String, pl.Categorical, pl.Enum)


def _text_classes(series: pl.Series) -> tuple[list[Label], NDArray[Any]]:
    text = series.cast(pl.String)
    distinct = text.unique().sort()
    return distinct.to_list(), text.cast(pl.Enum(distinct)).to_physical().to_numpy()


def _number_classes(series: pl.Series) -> tuple[list[Label], NDArray[Any]]:
    name, dtype = series.name, series.dtype
    if dtype == pl.Boolean:
        codes, distinct = dense_ranks(series.cast(pl.UInt8).to_numpy())
        return [bool(value) for value in distinct], codes
    if dtype in (pl.Int128, pl.UInt128) or not (dtype.is_integer() or dtype.is_float()):
        raise DataError(
            f"target {name!r} has type {dtype}; classes are booleans, integers, strings, categories or a few "
            "floats: convert it or choose another column"
        )
    codes, distinct = dense_ranks(series.to_numpy())
    if dtype.is_float():
        if len(distinct) > MAX_FLOAT_CLASSES:
            raise DataError(
                f"target {name!r} is {dtype} with {len(distinct)} distinct values: this looks like "
                f"regression, which is not there yet; classes are integers, strings or at most "
                f"{MAX_FLOAT_CLASSES} floats"
            )
        if not np.isfinite(distinct).all():
            raise DataError(f"target {name!r} has infinite values; an infinity is not a class: convert or drop it")
    return distinct.tolist(), codes
