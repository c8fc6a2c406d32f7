"""Encoding by its definition, a value at a time."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

Value = bool | int | float


def distinct_values(column: list[Value]) -> list[float]:
    """The distinct values as floats, ascending; -0.0 is 0.0."""
    return sorted({float(value) + 0.0 for value in column})


def ranks(column: list[Value]) -> list[int]:
    """Return the rank of each cell among the distinct values, from 0."""
    distinct = distinct_values(column)
    return [distinct.index(float(value) + 0.0) for value in column]


def binned(column: list[Value], max_bins: int) -> tuple[list[int], list[float], list[float]]:
    """Codes of the cells, and the smallest and the largest value of each code, with at most `max_bins` codes.

    The sorted rows are cut into `max_bins` stretches of equal length. All rows of a value belong to the stretch with
    their middle. Stretches without a value have no code.
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
    """Return True if a cell has no value."""
    return value is None or value != value


def codes(column: list[Any], max_bins: str | int) -> tuple[list[int], list[float], list[float], bool]:
    """Return codes of the cells, smallest and largest value of each code, and True if code 0 is for missing cells.

    The value of a text is its place among the sorted texts.
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
    """Return the sorted labels, the rows with a label, and the classes of these rows. None and NaN are not labels."""
    kept = [row for row, label in enumerate(column) if label is not None and label == label]
    labels = sorted({column[row] for row in kept})  # type: ignore[type-var]
    return labels, kept, [labels.index(column[row]) for row in kept]
