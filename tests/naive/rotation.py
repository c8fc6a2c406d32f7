"""The axes of a rotation tree and its trees, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.naive import rng
from tests.naive.directions import number
from tests.naive.split import Table

PURPOSE_AXES = 5


def random_axes(seed: int, tree: int, count: int, features: int, orthogonal: bool) -> list[list[float]]:
    """Axes of length one, drawn from the tree's stream and made orthogonal to those before them if asked."""
    stream = rng.stream_key(seed, PURPOSE_AXES, tree, 0)
    axes: list[list[float]] = []
    draw = 0
    while len(axes) < count:
        axis = []
        for _ in range(features):
            draw += 1
            axis.append(normal(number(stream, draw)))
        first = len(axes) - len(axes) % features if orthogonal else len(axes)
        for other in axes[first:]:
            shadow = dot(axis, other)
            axis = [a - shadow * b for a, b in zip(axis, other, strict=True)]
        length = math.sqrt(dot(axis, axis))
        if length >= 2.0**-20:
            axes.append([a / length for a in axis])
    return axes


def normal(random: int) -> float:
    """A number of normal distribution in steps of 2**-20."""
    one, two = ((random >> 11) + 1) / 2**53, (rng.mix((random + rng.GOLDEN) & rng.MASK) >> 11) / 2**53
    return round(math.sqrt(-2.0 * math.log(one)) * math.cos(2.0 * math.pi * two) * 2**20) / 2**20


def dot(one: Sequence[float], two: Sequence[float]) -> float:
    """Sum of products, from the first on."""
    total = 0.0
    for a, b in zip(one, two, strict=True):
        total += a * b
    return total


def rotated(table: Table, axes: Sequence[Sequence[float]], bag: Sequence[int]) -> Table:
    """The table in the coordinates of the axes (in its units); an axis that leaves the numbers for a row of the bag
    is constant."""
    columns: list[NDArray[np.float64]] = []
    for axis in axes:
        used = [f for f, weight in enumerate(axis) if weight]
        column = np.array([dot([axis[f] for f in used], [row[f] for f in used]) for row in table.low.tolist()])
        columns.append(column if np.isfinite(column[list(bag)]).all() else np.zeros(column.size))
    values = np.column_stack(columns)
    return Table(values, values, table.target, table.classes)
