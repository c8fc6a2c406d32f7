"""Regression targets, stored as integers so that their sums are exact in any order.

A target y becomes q = rint((y - offset) / step), and offset + q * step is its value in the forest. The offset is the
multiple of the step in the middle of the range, the step a power of two, the smallest for which |q| < 2**52 and

    |q| * (weight of a bag at most) < 2**61,

so that sums over any node fit 62 bits. The weight is the number of rows, where they have weights at most 2**31. The
value is off by less than a step, which for half the range r and weight W is at most 2 * r * max(2**-52, W * 2**-61):
for a million rows 2**-40 of r. Multiples of the step, such as most whole numbers, are exact. If some values are not,
the store also has the targets themselves (TargetSpec.exact), for the report by row and for quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.common.errors import DataError
from bigforest.schema.columns import numbers
from bigforest.schema.dataspec import LARGEST_NUMBER, TargetSpec, max_number

# The smallest power of two that float64 has.
_LEAST_STEP_BITS = -1074
# Squares of smaller differences lose digits.
_SMALLEST_RANGE = 2.0**-450
# A step up to this share of the quartiles' distance is as good as none.
_FINE_STEP = 1e-6
# Targets that are looked at for the quartiles, at least, where there are as many.
_SAMPLE = 1 << 17


@dataclass(frozen=True, slots=True)
class FoundNumbers:
    """What the target column of a regression holds.

    kept      rows that have a number; the others are null or NaN.
    constant  whether it is the same in all of them.
    coarse    whether the step is larger than it should be beside the distance of the quartiles.
    """

    spec: TargetSpec
    kept: int
    constant: bool
    coarse: bool = False


def find_numbers(
    name: str, dtype: pl.DataType, slices: Iterable[pl.Series], rows: int, *, weighted: bool
) -> FoundNumbers:
    """The target of a regression, which comes slice by slice.

    rows      rows of the table, at least as many as have a target.
    weighted  whether they have weights.

    Raises DataError where it cannot be predicted.
    """
    if not dtype.is_numeric():
        raise DataError(
            f"target {name!r} has type {dtype}; a regression predicts integers, floats or decimals: convert it, choose "
            "another column, or learn classes"
        )
    low, high = math.inf, -math.inf
    kept = 0
    apart = max(1, rows // _SAMPLE)
    sample: list[NDArray[np.float64]] = []
    for series in slices:
        values, _ = present_numbers(series)
        sample.append(values[-kept % apart :: apart])
        kept += values.size
        if values.size:
            low, high = min(low, float(values.min())), max(high, float(values.max()))
    if low > high:
        raise DataError(f"target {name!r}: every value is missing, rows of weight 0 aside; choose another column")
    if max(-low, high) > LARGEST_NUMBER:
        raise DataError(
            f"target {name!r} has values up to {max(-low, high)!r}, too large for a variance; drop or convert them"
        )
    half = high / 2 - low / 2
    if high - low > 0.0 and half < _SMALLEST_RANGE / 2:
        raise DataError(
            f"target {name!r} has values from {low!r} to {high!r}, too close together for a variance; "
            "multiply them by a number"
        )
    least = half / (max_number(rows, weighted=weighted) - 1)
    bits = math.frexp(least)[1] if least > 0.0 else _LEAST_STEP_BITS
    # Half a unit in the last place of the largest value: all values are multiples of that, and so can the offset be.
    step = max(math.ldexp(1.0, max(bits, _LEAST_STEP_BITS)), math.ulp(max(abs(low), abs(high))) / 2)
    offset = float(np.rint((low / 2 + high / 2) / step)) * step
    coarse = step > _FINE_STEP * _typical_distance(np.concatenate(sample))
    spec = TargetSpec(name, str(dtype.base_type()), (), "regression", offset, step)
    return FoundNumbers(spec, kept, low == high, coarse and low < high)


def _typical_distance(sample: NDArray[np.float64]) -> float:
    """The distance of the quartiles, or where there is none the smallest of two different values."""
    first, third = np.quantile(sample, [0.25, 0.75], method="nearest")
    return float(third - first) or float(np.diff(np.unique(sample)).min(initial=math.inf))


def number_codes(values: NDArray[np.float64], spec: TargetSpec) -> NDArray[np.int64]:
    """The whole numbers of some targets."""
    return np.rint((values - spec.offset) / spec.step).astype(np.int64)


def present_numbers(series: pl.Series) -> tuple[NDArray[np.float64], NDArray[np.uint64] | None]:
    """The values of a slice that are neither null nor NaN, and their places in it; None when all are so."""
    values = numbers(series, str(series.dtype)).astype(np.float64)
    present = ~np.isnan(values)
    if present.all():
        return values, None
    return values[present], np.flatnonzero(present).astype(np.uint64)
