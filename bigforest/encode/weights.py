"""Weights of rows as small whole numbers, so that sums of them, and of targets times them, are exact in any order.

A weight w, times that of its class, becomes max(1, rint(w / step)), MOST_WEIGHT at most. The step is the greatest
common divisor of the weights where that does it, which is exact for whole numbers up to 1,023 and for the likes of
0.25 and 1.5. Else it makes the largest weight MOST_WEIGHT, or less where there are so many rows that a bag might weigh
2**31: weights are then rounded by half a step at most, and to a step where they are less. Only their proportions count,
and these are so kept to a thousandth of the largest, or, of 100 million rows, to a tenth of the mean.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns import numbers
from bigforest.encode.dataspec import MOST_WEIGHT, DataSpec, TargetSpec, WeightSpec
from bigforest.errors import ConfigError, DataError
from bigforest.options import ClassWeight, label_text

# What all rows weigh together, at most: the rows of a bag then stay below 2**31 for all bags we shall ever see.
_MOST_TOTAL = 1 << 30
# Weights that are multiples of this can have a greatest common divisor, others are taken for measurements.
_FINEST = 2.0**-20
_LARGEST_WHOLE = 2.0**53
# Steps below this are not exact to 53 bits.
_LEAST_STEP = sys.float_info.min

Weights = Callable[[], Iterator[NDArray[np.float64]]]


def check_weight(name: str, dtype: pl.DataType) -> None:
    """Raise DataError unless a column of this type can hold weights."""
    if not dtype.is_numeric():
        raise DataError(f"weight {name!r} has type {dtype}; weights are integers, floats or decimals")


def row_weights(series: pl.Series, name: str) -> NDArray[np.float64]:
    """The weights in a slice of their column `name`, float64 [rows]. Raises DataError for one that is none."""
    values = numbers(series, str(series.dtype)).astype(np.float64)
    wrong = ~((values >= 0.0) & (values < math.inf))
    if wrong.any():
        raise DataError(
            f"weight {name!r} has {wrong.sum()} values such as {series[int(wrong.argmax())]}; weights are "
            "numbers from 0 on: fill or drop these rows"
        )
    return values


def class_weights(target: TargetSpec, told: ClassWeight, counts: NDArray[np.int64]) -> tuple[float, ...]:
    """The weight of each class, which has so many rows; none where nothing is told. Raises ConfigError."""
    if told is None:
        return ()
    if isinstance(told, str):
        rows, classes = int(counts.sum()), len(counts)
        return tuple(rows / (classes * count) for count in counts.tolist())
    return tuple(_by_class(target, told).values())


def class_weight_of(spec: DataSpec) -> ClassWeight:
    """The weights of classes that a table was encoded with, as an option says them."""
    if spec.weight is None or not spec.weight.classes:
        return None
    if spec.weight.balanced:
        return "balanced"
    return tuple(sorted(zip(map(label_text, spec.target.classes), spec.weight.classes, strict=True)))


def for_all_classes(target: TargetSpec, told: ClassWeight) -> ClassWeight:
    """The same weights of classes, said of every class. Raises ConfigError where one is no class."""
    if told is None or isinstance(told, str):
        return told
    return tuple(sorted(_by_class(target, told).items()))


def encode_weights(
    name: str | None,
    classes: tuple[float, ...],
    balanced: bool,
    weights: Weights,
    rows: int,
    write: Callable[[NDArray[np.int64]], None],
) -> WeightSpec:
    """Write the whole number of each row's weight, and say what they are.

    weights  gives the weights of all rows, above 0, from the first, slice by slice. It is called two or three times.

    Raises DataError where there are too many rows to be weighed.
    """
    step = _step(weights, rows)
    largest = total = 0
    for slice_ in weights():
        whole = np.maximum(np.rint(slice_ / step), 1.0).astype(np.int64)
        largest, total = max(largest, int(whole.max())), total + int(whole.sum())
        write(whole)
    return WeightSpec(name, classes, balanced, step, largest, total)


def _step(weights: Weights, rows: int) -> float:
    found = _measure(weights())
    if found.divisor and found.largest <= MOST_WEIGHT * found.divisor and found.total <= _MOST_TOTAL * found.divisor:
        return found.divisor
    most = MOST_WEIGHT
    if rows * MOST_WEIGHT > _MOST_TOTAL:
        # Rounded row by row, the sum does not depend on how the rows are cut into slices.
        parts = sum(int(np.rint(slice_ * (2.0**20 / found.largest)).sum()) for slice_ in weights())
        most = min(most, ((_MOST_TOTAL - rows) << 20) // max(parts, 1))
    if not _LEAST_STEP <= found.largest / MOST_WEIGHT < math.inf:
        raise DataError(f"the largest weight of a row is {found.largest}, too far from 1; multiply all by a number")
    if most < 1:
        raise DataError(
            f"{rows} rows are too many for weights, of which all together may be {_MOST_TOTAL}; sample some"
        )
    return found.largest / most


class _Measured(NamedTuple):
    """The largest weight, the greatest common divisor of all, 0.0 if there is none, and in that case not their sum."""

    largest: float
    divisor: float
    total: float


def _measure(slices: Iterable[NDArray[np.float64]]) -> _Measured:
    largest, divisor, total = 0.0, 0, 0
    whole = True
    for slice_ in slices:
        largest = max(largest, float(slice_.max()))
        with np.errstate(over="ignore"):  # there is no divisor then
            parts = slice_ / _FINEST
        whole = whole and bool(((parts == np.rint(parts)) & (parts < _LARGEST_WHOLE)).all())
        if whole:
            distinct, counts = np.unique(parts.astype(np.int64), return_counts=True)
            divisor = math.gcd(divisor, int(np.gcd.reduce(distinct)))
            total += sum(map(int.__mul__, distinct.tolist(), counts.tolist()))
    return _Measured(largest, divisor * _FINEST if whole else 0.0, total * _FINEST)


def _by_class(target: TargetSpec, told: tuple[tuple[str, float], ...]) -> dict[str, float]:
    """The weight of each class, 1 of those that are not told of, in the order of the classes."""
    weight = dict.fromkeys(map(label_text, target.classes), 1.0)
    unknown = [label for label, _ in told if label not in weight]
    if unknown:
        raise ConfigError(
            f"class_weight names {unknown[0]!r}, which is no class; these are {', '.join(list(weight)[:20])}"
        )
    return {**weight, **dict(told)}
