"""The target column: its task, and one integer per row: a class code, or a number in steps.

Classification: the classes are the distinct values, ascending; class k has code k.

Regression: the store holds a target y as the integer q = rint((y - offset) / step), so that sums are exact in any
order. The forest uses offset + q * step. The offset is the multiple of the step in the middle of the range. The step is
the smallest power of two with

    |q| < 2**52 and |q| * W < 2**61, so that sums over any node fit 62 bits,

where W is the largest weight of a bag with `sample_fraction` 1. Without weights of rows, it is the number of rows.
Otherwise it is MAX_WEIGHT times the number of rows, at most 2**31 - 1. Bags of more than twice this weight are refused.

The error of a value is at most half a step. A step is at most about 2 * r * max(2**-52, W * 2**-61), where r is half
the range: 2**-40 of r for a million rows. If the range is narrow and far from 0, the step is half the distance between
neighbouring float64 numbers there instead. Multiples of the step, such as most whole numbers, are exact. If some values
are not multiples, the store also holds the targets themselves (TargetSpec.exact), for the report by row and for
quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.dataspec import LARGEST_NUMBER, MAX_CLASSES, Label, TargetSpec, max_number
from bigforest.columns.labels import python_holds
from bigforest.columns.types import (
    FlatColumn,
    divisor_of,
    is_feature_type,
    is_text_type,
    is_wide,
    level_codes,
    level_text,
    nearest_floats,
    numbers,
    physical,
    places_among,
    type_name,
)
from bigforest.errors import DataError, api
from bigforest.options.values import Task
from bigforest.source.source import Source

# Floats, dates or times with more distinct values than this are measurements. Floats or decimals with at most this many
# distinct values, all whole, may be meant as classes.
MAX_UNUSUAL_CLASSES = 100
# Limits of `_task_of_integers`: most distinct values (letters of an alphabet), and the largest value (digits and
# grades) if there are gaps between the values, or if they do not begin with 0 or 1.
MOST_NUMBERED = 30
_LARGEST_CODE = 10
# Each class must have _OFTEN rows. In small tables, _SHARE_OF_MEAN of the mean number of rows of a value is enough, but
# at least _LEAST_OFTEN. Classes are about equally frequent, whereas the largest values of counts are rare.
_OFTEN, _LEAST_OFTEN, _SHARE_OF_MEAN = 5, 3, 0.25

_SLICE_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class FoundClasses:
    """Classes found in a target column.

    kept     number of rows with a class. The other rows are null or NaN.
    labels   the classes, as `present_values` returns them.
    """

    spec: TargetSpec
    kept: int
    labels: pl.Series

    @property
    def constant(self) -> bool:
        return len(self.labels) == 1


class TargetTask(NamedTuple):
    """The task of a target.

    why  reason for the task, if the other task is possible too; otherwise None.
    """

    task: Task
    why: str | None = None


def find_task(source: Source, target: FlatColumn, requested: Task | None, possible: Task | None = None) -> TargetTask:
    """Return the task of a target: `requested`, or the task that its type determines.

    possible  the only task that the other options allow, used for whole numbers; None if both are allowed.

    Text, booleans, dates and times are classes; floats and decimals are numbers. Whole numbers may be classes or
    numbers: their values decide (`_task_of_integers`). Decimals of scale 0 are whole numbers: some databases have no
    other integers. Raises DataError for dates and times with many values.
    """
    dtype = target.dtype
    if requested is not None:
        return TargetTask(requested)
    if dtype.is_integer() or (isinstance(dtype, pl.Decimal) and not dtype.scale):
        return _task_of_integers(source, target) if possible is None else TargetTask(possible)
    if dtype.is_float() or dtype == pl.Decimal:
        return TargetTask("regression")
    if not dtype.is_temporal():
        return TargetTask("classification")
    if len(distinct_values(source, target, MAX_UNUSUAL_CLASSES)) > MAX_UNUSUAL_CLASSES:
        raise DataError(
            f"target {target.column!r} has type {dtype} and more than {MAX_UNUSUAL_CLASSES} different values, "
            "which are too many for classes: convert it to a number, such as days since a date, or choose the "
            f"{api('task')} classification"
        )
    return TargetTask("classification")


def _task_of_integers(source: Source, target: FlatColumn) -> TargetTask:
    """Return the task of a target of whole numbers.

    At most two distinct values are classes. Up to MOST_NUMBERED are classes if they lie in -1 .. 10, or begin with 0 or
    1 and have no gap, and if each has at least _OFTEN rows (fewer in small tables). Counts and measurements do not
    satisfy the last condition in tables of any size, because their largest values are rare.
    """
    counts, kept = pl.DataFrame(schema={"value": target.dtype, "rows": pl.UInt32}), 0
    for frame in source.batches([target.column], _SLICE_ROWS):
        values = present_values(frame.select(target.expr).to_series().alias("value"))
        kept += len(values)
        rows = values.to_frame().group_by("value").len("rows")
        counts = pl.concat([counts, rows.cast(counts.schema)]).group_by("value").sum().sort("value")
        if counts.height > MOST_NUMBERED:
            return TargetTask("regression", f"more than {MOST_NUMBERED} different whole numbers")
    if not kept:  # a target without values is refused when it is encoded
        return TargetTask("classification")
    least, most, fewest = int(counts["value"][0]), int(counts["value"][-1]), min(counts["rows"].to_list())
    span = f"{counts.height} different whole numbers" if counts.height > 1 else f"no whole number but {least}"
    if counts.height <= 2:
        return TargetTask("classification", span)
    span += f" from {least} to {most}"
    in_order = least in (0, 1) and most - least + 1 == counts.height
    if not in_order and not (least >= -1 and most <= _LARGEST_CODE):
        return TargetTask("regression", f"{span}, which are not numbered from 0 or 1")
    often = min(_OFTEN, max(_LEAST_OFTEN, math.ceil(_SHARE_OF_MEAN * kept / counts.height)))
    if fewest < often:
        return TargetTask("regression", f"{span}, some of them in fewer than {often} rows")
    return TargetTask("classification", f"{span}, each in at least {often} rows")


def why_regression(source: Source, target: FlatColumn) -> str | None:
    """Return the reason why the floats or decimals of a regression target may be meant as classes.

    None if there is no reason, and for a constant target, which has another notice.
    """
    if not (target.dtype.is_float() or target.dtype == pl.Decimal):
        return None
    values = distinct_values(source, target, MAX_UNUSUAL_CLASSES)
    numbers = values.to_numpy() if target.dtype.is_float() else nearest_floats(values, divisor_of(target.dtype))
    if not 1 < len(numbers) <= MAX_UNUSUAL_CLASSES or not (np.isfinite(numbers) & (numbers == np.rint(numbers))).all():
        return None
    kind = "floats" if target.dtype.is_float() else "decimals"
    return f"{kind} that are {len(numbers)} different whole numbers"


def distinct_values(source: Source, target: FlatColumn, most: int = MAX_CLASSES) -> pl.Series:
    """Return the distinct values of a target, ascending. Stop reading when there are more than `most`."""
    distinct: pl.Series | None = None
    for frame in source.batches([target.column], _SLICE_ROWS):
        distinct = _merge_values(distinct, present_values(frame.select(target.expr).to_series().alias("")))
        if len(distinct) > most:
            break
    assert distinct is not None  # a source has rows
    return distinct


def _no_value(name: str, weighted: bool) -> DataError:
    """Return the error of a target without values; weighted: True if rows have weights."""
    rows = " in the rows with a weight above 0" if weighted else ""
    return DataError(f"target {name!r}: every value is missing{rows}; choose another column")


def check_classes(name: str, dtype: pl.DataType) -> None:
    """Raise DataError for a target whose values cannot be classes."""
    if is_wide(dtype):
        raise DataError(
            f"target {name!r} has type {dtype}; classes are integers of at most 64 bits: cast it to Int64 or String, "
            f"or choose the {api('task')} regression"
        )
    if not is_feature_type(dtype):
        raise DataError(
            f"target {name!r} has type {dtype}; classes are booleans, integers of at most 64 bits, decimals, strings, "
            "categories, dates, times or a few floats: convert it or choose another column"
        )


def find_classes(name: str, dtype: pl.DataType, slices: Iterable[pl.Series], *, weighted: bool) -> FoundClasses:
    """Return the classes of a target, from its slices.

    weighted  True if rows have weights.

    Classes may be booleans, integers, decimals, dates, times, strings, categoricals (by their text) and, if requested,
    floats of few values. Memory: a slice and the distinct values. Raises DataError, also for too many distinct values.
    """
    check_classes(name, dtype)
    kept = 0
    distinct_labels: pl.Series | None = None
    for series in slices:
        values = present_values(series)
        kept += len(values)
        distinct_labels = _merge_values(distinct_labels, values)
        _check_class_count(name, dtype, len(distinct_labels))
    if distinct_labels is None or not len(distinct_labels):
        raise _no_value(name, weighted)
    labels: list[Label] = distinct_labels.to_list()
    if dtype.is_float() and not all(map(math.isfinite, labels)):  # type: ignore[arg-type]
        raise DataError(
            f"target {name!r} has infinite values; infinity cannot be a class: convert or drop these values"
        )
    if not python_holds(dtype, labels[0], labels[-1]):
        raise DataError(f"target {name!r} has values that Python cannot represent, such as years after 9999; drop them")
    if cut := [label for label in labels if isinstance(label, str) and "\0" in label]:
        raise DataError(
            f"target {name!r} has the class {cut[0]!r}; a character of code 0 ends names of columns in files, and "
            "probabilities have columns named by classes: replace it"
        )
    spec = TargetSpec(name, type_name(dtype), tuple(labels), categories=_categories(dtype))
    return FoundClasses(spec, kept, distinct_labels)


def class_codes(series: pl.Series, classes: FoundClasses) -> tuple[NDArray[np.uint16], NDArray[np.uint64] | None]:
    """Return the codes of the rows with a class in a slice, and the places of these rows, None if all have a class."""
    values, labels = present_values(series), classes.labels
    text = labels.dtype == pl.String
    codes = level_codes(values, labels, 0) if text else places_among(values, labels).to_numpy()
    places = None
    if len(codes) < len(series):
        series = series.fill_nan(None) if series.dtype.is_float() else series
        places = series.is_not_null().arg_true().to_numpy().astype(np.uint64)
    return codes.astype(np.uint16), places


def present_values(series: pl.Series) -> pl.Series:
    """Return the present values of a slice: text, numbers, or the integers of dates, times and decimals."""
    if series.dtype.is_float():
        series = series.fill_nan(None).cast(pl.Float64) + 0.0  # -0.0 is 0.0
    series = series.drop_nulls()
    if series.dtype == pl.Enum or (
        isinstance(series.dtype, pl.Categorical) and not series.dtype.categories.is_global()
    ):
        return series.cast(pl.String)  # spaces stay: predictions are categories of this type
    return level_text(series) if is_text_type(series.dtype) else physical(series)


def _merge_values(earlier: pl.Series | None, values: pl.Series) -> pl.Series:
    """Return the union of the distinct values of earlier slices and the values of another slice, ascending."""
    distinct = values.unique()
    return (distinct if earlier is None else pl.concat([earlier, distinct]).unique()).sort()


def _check_class_count(name: str, dtype: pl.DataType, classes: int) -> None:
    """Raise DataError if there are too many distinct values for classes."""
    if dtype.is_float() and classes > MAX_UNUSUAL_CLASSES:
        raise DataError(
            f"target {name!r} is {dtype} with more than {MAX_UNUSUAL_CLASSES} distinct values: drop {api('task')}, "
            "or make it regression, to predict numbers; classes are integers, strings or at most "
            f"{MAX_UNUSUAL_CLASSES} floats"
        )
    if classes > MAX_CLASSES:
        raise DataError(
            f"target {name!r}: more than the {MAX_CLASSES} classes that are possible; "
            "use another column if it is an identifier or a measurement"
        )


def _categories(dtype: pl.DataType) -> tuple[str, ...]:
    """Return `TargetSpec.categories`, which determines the type of predictions."""
    if isinstance(dtype, pl.Enum):
        return tuple(dtype.categories.to_list())
    if isinstance(dtype, pl.Categorical) and not dtype.categories.is_global():
        categories = dtype.categories
        return categories.name(), categories.namespace(), str(categories.physical())
    return ()


# Exponent of the smallest power of two in float64.
_MIN_STEP_BITS = -1074
# Smallest range of targets: squares of smaller differences lose digits.
_SMALLEST_RANGE = 2.0**-450
# A step is fine up to this share of the interquartile range.
_FINE_STEP = 1e-6
# Relative changes up to _SMALL_CHANGE are small. A notice is sent if at least _CHANGED_SHARE of the values change by
# more. In a normal distribution fewer values are near enough to 0 to change by more.
_SMALL_CHANGE, _CHANGED_SHARE = 1e-3, 1e-4
# If every row has a target, the sample for the quartiles has at least this many numbers, or all rows of the table.
_SAMPLE = 1 << 17


@dataclass(frozen=True, slots=True)
class FoundNumbers:
    """Numbers found in the target column of a regression.

    kept      number of rows with a number. The other rows are null or NaN.
    constant  True if all numbers are equal.
    lost      notice about digits that the steps lose; None if they do not matter.
    """

    spec: TargetSpec
    kept: int
    constant: bool
    lost: str | None = None


def find_numbers(
    name: str, dtype: pl.DataType, slices: Iterable[pl.Series], rows: int, *, weighted: bool
) -> FoundNumbers:
    """Return the target of a regression, from its slices. Raises DataError for values that cannot be predicted.

    rows      number of rows of the table, including rows without a target.
    weighted  True if rows have weights.
    """
    if not dtype.is_numeric():
        raise DataError(
            f"target {name!r} has type {dtype}; a regression predicts integers, floats or decimals: convert it, choose "
            "another column, or learn classes"
        )
    low, high = math.inf, -math.inf
    extremes: set[int] = set()  # least and largest integers or decimals, while all values are the same float64
    kept, rounded = 0, False
    apart = max(1, rows // _SAMPLE)
    sample: list[NDArray[np.float64]] = []
    for series in slices:
        values, _ = present_numbers(series)
        sample.append(values[-kept % apart :: apart])
        kept += values.size
        if values.size:
            low, high = min(low, float(values.min())), max(high, float(values.max()))
            if low == high and not dtype.is_float():
                extremes |= {int(extreme) for extreme in (physical(series).min(), physical(series).max())}  # type: ignore[arg-type]
            rounded = rounded or (not dtype.is_float() and _exceeds_floats(physical(series)))
    if low == high and len(extremes) > 1:
        raise DataError(
            f"target {name!r} has different values that are one float64, {low!r}; subtract their mean, or cast "
            "them to text to predict classes"
        )
    if low > high:
        raise _no_value(name, weighted)
    if max(-low, high) > LARGEST_NUMBER:
        raise DataError(
            f"target {name!r} has values up to {max(-low, high)!r}, too large for a variance; drop or convert them"
        )
    if 0.0 < high - low < _SMALLEST_RANGE:
        raise DataError(
            f"target {name!r} has values from {low!r} to {high!r}, too close together for a variance; "
            "multiply them by a number"
        )
    offset, step = _offset_and_step(low, high, max_number(rows, weighted=weighted))
    spec = TargetSpec(name, str(dtype.base_type()), (), "regression", offset, step)
    lost = _lost_digits(spec, np.concatenate(sample), rounded) if low < high else None
    return FoundNumbers(spec, kept, low == high, lost)


def _exceeds_floats(whole: pl.Series) -> bool:
    """Return True if float64 does not represent some of these integers."""
    return not (whole.cast(pl.Float64).cast(pl.Int128, strict=False) == whole.cast(pl.Int128, strict=False)).all()


def _lost_digits(spec: TargetSpec, sample: NDArray[np.float64], rounded: bool) -> str | None:
    """Return a notice if a sample of the targets loses digits that matter; None otherwise.

    rounded  True if some targets lost digits when they became float64.

    Digits matter if the step is large compared with the interquartile range (_FINE_STEP), or if many values change by
    more than _SMALL_CHANGE of themselves (_CHANGED_SHARE).
    """
    kept = spec.values(spec.steps(sample))
    change, size = np.abs(kept - sample), np.abs(sample)
    changed = change > _SMALL_CHANGE * size
    coarse = (rounded or (kept != sample).any()) and spec.step > _FINE_STEP * _typical_distance(sample)
    if not coarse and changed.mean() < _CHANGED_SHARE:
        return None
    if np.ptp(sample) < size.max() / 2:
        why, advice = "large compared with their differences", "subtract a constant, such as their mean"
    else:
        why, advice = "far apart", "drop or transform outliers"
    example = ""
    if changed.any():  # the largest of the values that change most
        place = np.flatnonzero(changed)[np.lexsort((size[changed], change[changed] / size[changed]))[-1]]
        example = f", as in {float(sample[place])!r}, which becomes {float(kept[place])!r}"
    return (
        f"the values of {spec.name!r} are so {why} that they are kept in steps of {spec.step:.3g}, and smaller "
        f"differences are lost{example}; {advice}"
    )


def _offset_and_step(low: float, high: float, most: int) -> tuple[float, float]:
    """Return offset and step (see the head of the module) for targets in this range, with |q| < most."""
    least = (high / 2 - low / 2) / (most - 1)
    bits = math.frexp(least)[1] if least > 0.0 else _MIN_STEP_BITS
    # At least half a unit in the last place of the largest value, so that the offset can be a multiple of the step.
    step = max(math.ldexp(1.0, max(bits, _MIN_STEP_BITS)), math.ulp(max(abs(low), abs(high))) / 2)
    return float(np.rint((low / 2 + high / 2) / step)) * step, step


def _typical_distance(sample: NDArray[np.float64]) -> float:
    """Return the interquartile range; if it is 0, the smallest distance of two distinct values."""
    first, third = np.quantile(sample, [0.25, 0.75], method="nearest")
    return float(third - first) or float(np.diff(np.unique(sample)).min(initial=math.inf))


def present_numbers(series: pl.Series) -> tuple[NDArray[np.float64], NDArray[np.uint64] | None]:
    """Return the values of a slice without null and NaN, and their places (None if no value is missing)."""
    values = numbers(series, str(series.dtype)).astype(np.float64)
    present = ~np.isnan(values)
    if present.all():
        return values, None
    return values[present], np.flatnonzero(present).astype(np.uint64)
