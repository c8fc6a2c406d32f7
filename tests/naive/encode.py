"""Encoding as its definition says, a value at a time."""

from __future__ import annotations

from fractions import Fraction

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


def classes(column: list[object]) -> tuple[list[object], list[int], list[int]]:
    """The labels ascending, the rows that have one, and the class of each of those; None and NaN are none."""
    kept = [row for row, label in enumerate(column) if label is not None and label == label]
    labels = sorted({column[row] for row in kept})  # type: ignore[type-var]
    return labels, kept, [labels.index(column[row]) for row in kept]
