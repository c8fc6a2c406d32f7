"""The axes of a rotation tree and its trees, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigforest.options.train_config import TrainConfig
from tests.naive import rng
from tests.naive.directions import number
from tests.naive.split import Table

PURPOSE_AXES = 5


def random_axes(seed: int, tree: int, count: int, features: int, orthogonal: bool) -> list[list[float]]:
    """Draw axes of length 1 from the stream of the tree. If `orthogonal`, blocks of up to `features` are orthogonal."""
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
    """Return a normally distributed number in steps of 2**-20."""
    one, two = ((random >> 11) + 1) / 2**53, (rng.mix((random + rng.GOLDEN) & rng.MASK) >> 11) / 2**53
    return round(math.sqrt(-2.0 * math.log(one)) * math.cos(2.0 * math.pi * two) * 2**20) / 2**20


def moments_of(table: Table, config: TrainConfig, tree: int, weights: Sequence[int]) -> list[list[list[int]]]:
    """Return, for each subset of the features, the sums of products over its sample, in steps of the feature's range.

    The constant 1 comes before the features. weights: multiplicity of each row in the bag.
    """
    features = table.low.shape[1]
    stream = rng.stream_key(config.seed, PURPOSE_AXES, tree, 0)
    order = sorted(range(features), key=lambda feature: number(stream, feature + 1))
    size = 3 if config.axis_features is None else config.axis_features
    columns = [in_steps(table.low[:, feature].tolist()) for feature in range(features)]
    found = []
    for subset in range(math.ceil(features / size)):
        own = sorted(order[subset * size : (subset + 1) * size])
        count = sampled(table, config, tree, subset, weights)
        ones = [1] * len(count)
        wide = [ones, *[columns[feature] for feature in own]]
        found.append([[sum(k * a * b for k, a, b in zip(count, i, j, strict=True)) for j in wide] for i in wide])
    return found


def in_steps(column: Sequence[float]) -> list[int]:
    """Return values in 2**15 steps of their range; 0 if a step is 0 or not finite."""
    low, span = min(column), max(column) - min(column)
    if not 0.0 < span / 2**15 < math.inf:
        return [0] * len(column)
    return [round((value - low) / span * 2**15) for value in column]


def sampled(table: Table, config: TrainConfig, tree: int, subset: int, weights: Sequence[int]) -> list[int]:
    """Return the multiplicity of each row in the sample of a subset."""
    stream = rng.stream_key(config.seed, PURPOSE_AXES, tree, subset + 1)
    chosen = [number(stream, row + 1) < 3 * 2**62 for row in range(len(weights))]
    if config.rotation == "pca":
        return [int(one) for one in chosen]
    classes = drawn_classes(config.seed, tree, subset, table.classes)
    return [
        weight if one and of_class in classes else 0
        for one, of_class, weight in zip(chosen, table.target, weights, strict=True)
    ]


def drawn_classes(seed: int, tree: int, subset: int, classes: int) -> set[int]:
    """A random nonempty subset of the classes."""
    stream = rng.stream_key(seed, PURPOSE_AXES, tree, 2**32 + subset)
    draw = 0
    drawn: set[int] = set()
    while not drawn:
        drawn = {one for one in range(classes) if number(stream, draw + one + 1) < 2**63}
        draw += classes
    return drawn


def dot(one: Sequence[float], two: Sequence[float]) -> float:
    """Sum of products, from the first on."""
    total = 0.0
    for a, b in zip(one, two, strict=True):
        total += a * b
    return total


def rotated(table: Table, axes: Sequence[Sequence[float]], bag: Sequence[int]) -> Table:
    """Return the table projected on axes, in units of the table. A projection that is not finite in the bag is 0."""
    columns: list[NDArray[np.float64]] = []
    for axis in axes:
        used = [f for f, weight in enumerate(axis) if weight]
        column = np.array([dot([axis[f] for f in used], [row[f] for f in used]) for row in table.low.tolist()])
        columns.append(column if np.isfinite(column[list(bag)]).all() else np.zeros(column.size))
    values = np.column_stack(columns)
    return Table(values, values, table.target, table.classes)
