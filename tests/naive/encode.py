"""Encoding as its definition says, a value at a time."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

Value = bool | int | float


def distinct_values(column: list[Value]) -> list[float]:
    """The distinct values as floats, ascending; -0.0 is 0.0."""
    return sorted({float(value) + 0.0 for value in column})


def ranks(column: list[Value]) -> list[int]:
    """How many distinct values are below each cell's."""
    distinct = distinct_values(column)
    return [distinct.index(float(value) + 0.0) for value in column]


def binned(column: list[Value], max_bins: int) -> tuple[list[int], list[float], list[float]]:
    """Codes of the cells, and the smallest and the largest value of each code, with at most `max_bins` codes.

    The sorted rows are cut into `max_bins` stretches of equal length; all rows of a value go where the middle
    of them lies; stretches left empty are not counted.
    """
    distinct = distinct_values(column)
    if len(distinct) <= max_bins:
        return ranks(column), distinct, distinct
    ascending = sorted(float(value) + 0.0 for value in column)
    stretch = {}
    for value in distinct:
        middle = ascending.index(value) + Fraction(ascending.count(value), 2)
        stretch[value] = int(middle * max_bins / len(ascending))
    used = sorted(set(stretch.values()))
    members = [[value for value in distinct if stretch[value] == number] for number in used]
    codes = [used.index(stretch[float(value) + 0.0]) for value in column]
    return codes, [min(group) for group in members], [max(group) for group in members]


def is_missing(value: object) -> bool:
    """Whether a cell has no value."""
    return value is None or value != value


def codes(column: list[Any], max_bins: str | int) -> tuple[list[int], list[float], list[float], bool]:
    """Codes of the cells, smallest and largest value of each code, and whether code 0 is that of missing cells.

    Text has its place among the texts for a value.
    """
    missing = any(map(is_missing, column))
    present = [cell for cell in column if not is_missing(cell)]
    if any(isinstance(cell, str) for cell in present):
        ascending = sorted(set(present), key=str.encode)
        found = [ascending.index(cell) for cell in present]
        low = high = [float(place + missing) for place in range(len(ascending))]
    elif isinstance(max_bins, int):
        found, low, high = binned(present, max_bins - missing)
    else:
        found, low = ranks(present), distinct_values(present)
        high = low
    if not missing:
        return found, low, high, False
    above = iter(found)
    nothing = [float("nan")]
    return [0 if is_missing(cell) else next(above) + 1 for cell in column], nothing + low, nothing + high, True


def classes(column: list[object]) -> tuple[list[object], list[int], list[int]]:
    """The labels ascending, the rows that have one, and the class of each of those; None and NaN are not labels."""
    kept = [row for row, label in enumerate(column) if label is not None and label == label]
    labels = sorted({column[row] for row in kept})  # type: ignore[type-var]
    return labels, kept, [labels.index(column[row]) for row in kept]
