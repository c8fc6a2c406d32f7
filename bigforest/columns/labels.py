"""The classes of a target: in the type of the target, as Python values, as text, and as codes.

The dataspec stores booleans, numbers and text unchanged. It stores dates, times and decimals as the physical integers
of Polars: days, counts of the unit, and multiples of 10**-scale.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec, TargetSpec
from bigforest.columns.types import TICKS, is_feature_type, physical, places_of, without_words
from bigforest.errors import DataError, FormatError, listed
from bigforest.options.values import label_text, requested_text

_TEXT = ("String", "Categorical", "Enum")
_WITH_UNIT = re.compile(r"(Datetime|Duration)\(time_unit='(ms|us|ns)'(?:, time_zone=(?:None|'([^']+)'))?\)")
_DECIMAL = re.compile(r"Decimal\(precision=(\d{1,2}), scale=(\d{1,2})\)")
_WITH_PARAMETERS = (pl.Datetime, pl.Duration, pl.Decimal)
_EXACT = decimal.Context(prec=50)  # a decimal has 38 digits at most

# Limits of Python, in days: dates of the years 1 to 9999, without the first and the last day, because a time zone may
# shift a time beyond them; and the length of a timedelta.
_FIRST_DAY, _LAST_DAY = -719_161, 2_932_895
_MAX_DAYS = 999_999_998
_DAY = 86_400

# Code of a label that is not a class.
UNKNOWN = -2


def label_type(target: TargetSpec) -> pl.DataType:
    """Return the Polars type of predictions. Raises FormatError if the classes do not fit the type in the dataspec."""
    if target.is_regression:
        return pl.Float64()
    classes = list(target.classes)
    try:
        dtype = _named_type(target)
        series = _series(target, dtype)
        if series.cast(dtype).null_count() or physical(series).to_list() != classes:
            raise ValueError(f"classes {classes[:3]} are of another type")
        if not python_holds(dtype, classes[0], classes[-1]):
            raise ValueError("classes are out of range")
        label_values(target, series)
    except (ArithmeticError, LookupError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise FormatError(f"the classes do not fit the target's type {target.dtype!r}: {error}") from error
    return dtype


def python_holds(dtype: pl.DataType, least: Any, most: Any) -> bool:
    """Return True if Python can represent the dates, times or durations of the physical integers `least` to `most`."""
    if dtype == pl.Date:
        return bool(least >= _FIRST_DAY and most <= _LAST_DAY)
    if isinstance(dtype, pl.Datetime):
        day = _DAY * TICKS[dtype.time_unit]
        return bool(_FIRST_DAY * day <= least and most < (_LAST_DAY + 1) * day)
    if isinstance(dtype, pl.Duration):
        return bool(max(-least, most) <= _MAX_DAYS * _DAY * TICKS[dtype.time_unit])
    return True


def label_series(target: TargetSpec) -> pl.Series:
    """Return the classes in the type of the target; for String, Categorical and Enum as strings."""
    return _series(target, pl.String() if target.dtype in _TEXT else label_type(target))


def label_values(target: TargetSpec, series: pl.Series | None = None) -> list[Any]:
    """Return the classes as Python values. Times, datetimes and durations are cut to microseconds.

    series  result of `label_series`, if known.
    """
    if type(target.classes[0]) is not int:
        return list(target.classes)
    return (label_series(target) if series is None else series).to_list()


def label_texts(target: TargetSpec) -> list[str]:
    """Return the classes as text, all different: `late`, `true`, `3`, `0.5`, `2026-11-22`, `12:00:00 and 5 ns`."""
    series = label_series(target)
    ticks, below = physical(series), [0] * len(series)
    if series.dtype == pl.Time or getattr(series.dtype, "time_unit", None) == "ns":
        # Round down. Rounding towards zero could give the same text to a label before 1970 and one after it.
        below = (ticks % 1000).to_list()
        series = (ticks - ticks % 1000).cast(series.dtype)
    texts = map(label_text, label_values(target, series))
    return [f"{text} and {rest} ns" if rest else text for text, rest in zip(texts, below, strict=True)]


@lru_cache(maxsize=4)  # the report needs them for every row group
def stored_labels(target: TargetSpec) -> Any:
    """Return the classes as a pyarrow array, in the type of labels in out-of-bag files.

    The array has the type of the target, or string for String, Categorical and Enum. For regression it is empty.
    """
    import pyarrow as pa

    from bigforest.columns.arrow_arrays import arrow_array

    if not target.classes:
        return arrow_array([], pa.float64())
    return arrow_array(target.classes) if target.dtype in _TEXT else label_series(target).to_arrow()


@lru_cache(maxsize=16)  # without a cache, a sixth of the time to predict one row
def proba_names(target: TargetSpec) -> tuple[str, ...]:
    """Return the names of the columns of probabilities, p_<class>, in the order of the classes."""
    return tuple(f"p_{text}" for text in label_texts(target)) if target.classes else ()


def label_codes(series: pl.Series, target: TargetSpec) -> NDArray[np.int32] | None:
    """Return the class code of every row of a target column, -1 for null and NaN; None if a label is not a class."""
    codes = codes_or_unknown(series, target)
    return None if (codes == UNKNOWN).any() else codes


def codes_or_unknown(series: pl.Series, target: TargetSpec) -> NDArray[np.int32]:
    """Return the class code of each label, int32 [rows]: -1 for null and NaN, UNKNOWN if the label is not a class."""
    places = places_of(series, label_series(target))
    codes = places.cast(pl.Int32).fill_null(UNKNOWN).to_numpy().copy()
    missing = series.is_null() | series.is_nan() if series.dtype.is_float() else series.is_null()
    codes[missing.to_numpy()] = -1
    return codes


def requested_codes(labels: Iterable[Any], target: TargetSpec) -> list[int]:
    """Return the class codes of labels that an option names, as values or text; UNKNOWN if a label is not a class."""
    texts = [requested_text(label) for label in labels]
    return [int(code) for code in codes_or_unknown(pl.Series(texts, dtype=pl.String), target)]


def known_codes(series: pl.Series, spec: DataSpec, where: str) -> NDArray[np.int32]:
    """Return `label_codes`, -1 also for words that mean a missing value. Raises DataError if a label is not a class.

    where  name of the table in the error.
    """
    target, series = spec.target, without_words(series, spec.missing_words)
    codes = label_codes(series, target)
    if codes is None:
        raise DataError(f"{where} has labels in {target.name!r} {strange_labels(series, target)}")
    return codes


def strange_labels(series: pl.Series, target: TargetSpec) -> str:
    """Return the part of an error that lists some labels that are not classes, and the classes."""
    classes = [label_text(label) for label in label_series(target).to_list()]
    known_classes = f"its classes are {listed(classes, 10)}"
    if not is_feature_type(series.dtype):
        return f"of type {series.dtype}, and the forest's are {target.dtype}; {known_classes}: convert them"
    distinct = series.drop_nulls().unique(maintain_order=True)
    unknown = distinct.filter(pl.Series(codes_or_unknown(distinct, target) == UNKNOWN)).head(3)
    such = f", such as {', '.join(repr(label_text(label)) for label in unknown)}" if len(unknown) else ""
    return f"that the forest does not know{such}; {known_classes}: correct or drop these rows"


def _named_type(target: TargetSpec) -> pl.DataType:
    """Return the Polars type that the dataspec names. Raises ValueError, or another error, for a wrong name."""
    if match := _WITH_UNIT.fullmatch(target.dtype):
        kind, zone = match[1], match[3]
        unit = cast(Literal["ms", "us", "ns"], match[2])
        return pl.Datetime(unit, zone) if kind == "Datetime" else pl.Duration(unit)
    if match := _DECIMAL.fullmatch(target.dtype):
        precision, scale = map(int, match.groups())
        if not 1 <= precision <= 38 or scale > precision:
            raise ValueError("no decimal has these digits")
        return pl.Decimal(precision, scale)
    polars_type = getattr(pl, target.dtype, None)
    if not (isinstance(polars_type, type) and issubclass(polars_type, pl.DataType)) or polars_type in _WITH_PARAMETERS:
        raise ValueError("there is no such type")
    if polars_type is pl.Enum:
        return pl.Enum(target.categories)
    if target.categories:
        name, namespace, integers = target.categories
        return pl.Categorical(pl.Categories(name, namespace, getattr(pl, integers)))
    return polars_type()


def _series(target: TargetSpec, dtype: pl.DataType) -> pl.Series:
    """Return the classes in the type `dtype`; for String, Categorical and Enum as strings."""
    classes: list[Any] = list(target.classes)
    if target.dtype in _TEXT:
        return pl.Series(classes, dtype=pl.String, strict=True)
    if (dtype.is_temporal() or dtype == pl.Decimal) and type(classes[0]) is not int:
        raise ValueError("dates, times and decimals are kept as integers")
    if isinstance(dtype, pl.Decimal):
        if max(-classes[0], classes[-1]) >= 10**dtype.precision:
            raise ValueError("a class has more digits than the type")
        return pl.Series([decimal.Decimal(number).scaleb(-dtype.scale, _EXACT) for number in classes], dtype=dtype)
    if dtype.is_temporal():
        return pl.Series(classes, dtype=pl.Int64, strict=True).cast(dtype)
    return pl.Series(classes, dtype=dtype, strict=True)
