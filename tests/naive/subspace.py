"""Trees in random subspaces: central axis projection and perceptrons, a row and a class at a time (Ho 1995)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.options.train_config import TrainConfig
from tests.naive import rng
from tests.naive.directions import Direction
from tests.naive.split import Table

COLUMNS = 0x1D8E4E27C47D124F
STEPS = 2**22


class Cut(NamedTuple):
    """Rows with a projection of at most `threshold` go left; left and right are the rows of each class on the sides."""

    terms: Direction
    threshold: float
    left: list[int]
    right: list[int]

    def goes_left(self, rows: NDArray[np.float64]) -> list[bool]:
        """Return True for each of these rows [rows, features] that goes left."""
        features, weights = zip(*self.terms, strict=True)
        return [dot(weights, row) <= self.threshold for row in rows[:, features].tolist()]


class Column(NamedTuple):
    """A feature in steps from its lowest value.

    rate    steps per unit of the values
    unit    size of a step; 0 for a feature that is left out
    scale   1 / s**2 with s the smallest power of two that is not below the range of the values
    binary  True if the values are 0 and 1, or all equal
    """

    low: float
    rate: float
    unit: float
    scale: float
    binary: bool


def tree_sizes(config: TrainConfig, features: int) -> list[int]:
    """The sizes of subspaces, which trees have in turn."""
    if config.subspace is None:
        return [min(100, math.ceil(features / 2))]
    return [int(size) for size in str(config.subspace).split(",")]


def tree_features(config: TrainConfig, features: int, tree: int) -> list[int]:
    """Return the features that a tree sees: all features if nodes draw."""
    sizes = tree_sizes(config, features)
    size = sizes[tree % len(sizes)]
    if config.subspace_per == "node":
        return list(range(features))
    if size == features:
        return list(range(features))
    every = list(combinations(range(features), size))
    half = ((len(every) - 1).bit_length() + 1) // 2
    number = tree // len(sizes)
    key = f"{config.seed} of {size}" if len(sizes) > 1 else f"{config.seed}"
    while True:
        left, right = divmod(number, 2**half)
        for turn in range(4):
            text = f"bigforest subspace {key} {turn} {right}".encode()
            mask = int.from_bytes(hashlib.shake_256(text).digest(half // 8 + 1), "little") % 2**half
            left, right = right, left ^ mask
        number = left * 2**half + right
        if number < len(every):
            return list(every[number])


def node_features(config: TrainConfig, features: int, tree: int, key: int) -> list[int]:
    """Return the features that the node of this key sees, of the features of its tree."""
    seen, sizes = tree_features(config, features, tree), tree_sizes(config, features)
    wanted = sizes[tree % len(sizes)]
    state, drawn = rng.mix(key ^ COLUMNS), []
    for place, feature in enumerate(seen):
        state = (state + rng.GOLDEN) & rng.MASK
        if (rng.mix(state) >> 32) * (len(seen) - place) >> 32 < wanted - len(drawn):
            drawn.append(feature)
    return drawn


def find_cut(table: Table, rows: Sequence[int], key: int, config: TrainConfig, tree: int) -> Cut | None:
    """The cut of a node; None if there is none, even in all features that the tree sees."""
    features = table.low.shape[1]
    own, seen = node_features(config, features, tree, key), tree_features(config, features, tree)
    return cut_in(table, rows, config, own) or (cut_in(table, rows, config, seen) if len(own) < len(seen) else None)


def cut_in(table: Table, rows: Sequence[int], config: TrainConfig, features: Sequence[int]) -> Cut | None:
    """The cut of a node that sees these features; None if there is none."""
    columns = [column_of(column.tobytes()) for column in table.low.T]
    binary = all(column.binary for column in columns)
    space = [f for f in features if columns[f].unit]
    values = dict(zip(rows, table.low[np.ix_(rows, space)].tolist(), strict=True))
    columns = [columns[f] for f in space]
    members = {k: [row for row in rows if table.target[row] == k] for k in range(table.classes)}
    members = {k: own for k, own in members.items() if own}
    means = {k: mean_of([values[row] for row in own], columns) for k, own in members.items()}
    apart = {pair: distance(means[pair[0]], means[pair[1]], columns) for pair in combinations(sorted(means), 2)}
    first, second = max(apart, key=lambda pair: (apart[pair], -pair[0], -pair[1]))
    if apart[first, second] == 0.0:
        return None
    found = None
    if config.family == "subspace-perceptron":
        found = perceptron(values, members, means, columns, first, second, config)
    if found is None:
        found = central_axis(values, members, means, columns, first, second, binary, config, len(features))
    if found is None:
        return None
    weights, threshold = found
    cut = Cut([(f, weight) for f, weight in zip(space, weights, strict=True) if weight], threshold, [], [])
    for k in range(table.classes):
        left = sum(cut.goes_left(table.low[members.get(k, [])]))
        cut.left.append(left)
        cut.right.append(len(members.get(k, [])) - left)
    return cut


@lru_cache(maxsize=1000)
def column_of(column: bytes) -> Column:
    """Return the Column of the values of a feature, the bytes of float64."""
    values = set(np.frombuffer(column).tolist())
    low, high = min(values), max(values)
    if max(-low, high) > 2.0**400 or high - low < 2.0**-400:
        return Column(0.0, 0.0, 0.0, 0.0, low == high)
    power = math.floor(math.log2(high - low)) - 1
    while 2.0**power < high - low:
        power += 1
    scale = 2.0 ** (-2 * power)
    if high - low <= STEPS and all(value == math.floor(value) for value in values):
        return Column(low, 1.0, 1.0, scale, values == {0.0, 1.0})
    return Column(low, STEPS / (high - low), (high - low) / STEPS, scale, False)


def mean_of(rows: Sequence[Sequence[float]], columns: Sequence[Column]) -> list[float]:
    """The mean of rows, above the lowest values, from whole steps."""
    sums = [sum(round((row[place] - column.low) * column.rate) for row in rows) for place, column in enumerate(columns)]
    return [float(total) / len(rows) * column.unit for total, column in zip(sums, columns, strict=True)]


def distance(one: Sequence[float], two: Sequence[float], columns: Sequence[Column]) -> float:
    """Square of the Euclidean distance, with all columns scaled."""
    total = 0.0
    for a, b, column in zip(one, two, columns, strict=True):
        total += (b - a) * (b - a) * column.scale
    return total


def dot(weights: Sequence[float], row: Sequence[float]) -> float:
    """Sum of weight times value, in order."""
    total = 0.0
    for weight, value in zip(weights, row, strict=True):
        total += weight * value
    return total


def central_axis(
    values: dict[int, list[float]],
    members: dict[int, list[int]],
    means: dict[int, list[float]],
    columns: Sequence[Column],
    first: int,
    second: int,
    binary: bool,
    config: TrainConfig,
    features: int,
) -> tuple[list[float], float] | None:
    """The stop between two means that leaves the fewest rows on the wrong sides of their classes."""
    ends = zip(means[first], means[second], columns, strict=True)
    weights = [(b - a) * column.scale for a, b, column in ends]
    if binary:
        weights = whole_numbers(weights, features)
    begin, end = (
        dot(weights, [column.low + above for column, above in zip(columns, means[k], strict=True)])
        for k in (first, second)
    )
    projections = {row: dot(weights, own) for row, own in values.items()}
    if not begin < end or not all(map(math.isfinite, [end - begin, *projections.values()])):
        return None
    best = None
    for step in range(1, config.steps):
        stop = begin + (end - begin) * (step / config.steps)
        sides = [(sum(projections[row] <= stop for row in own), len(own)) for own in members.values()]
        size_l, size = (sum(column) for column in zip(*sides, strict=True))
        error = sum(min(left, total - left) for left, total in sides)
        if min(size_l, size - size_l) >= config.min_leaf and (best is None or error < best[0]):
            best = error, stop
    return best and (weights, best[1])


def whole_numbers(weights: Sequence[float], count: int) -> list[float]:
    """Return rounded weights times a power of two, so that the largest times `count` is in (2**29, 2**30]."""
    bound = max(map(abs, weights)) * count
    power = math.floor(math.log2(2**30 / bound)) + 2
    while bound * 2.0**power > 2**30:
        power -= 1
    return [float(round(weight * 2.0**power)) for weight in weights]


def perceptron(
    values: dict[int, list[float]],
    members: dict[int, list[int]],
    means: dict[int, list[float]],
    columns: Sequence[Column],
    first: int,
    second: int,
    config: TrainConfig,
) -> tuple[list[float], float] | None:
    """Return the best perceptron after any pass; None if a side is too small, or has the majority of every class."""
    far = {second: True, first: False}
    for k in members:
        far.setdefault(k, distance(means[k], means[second], columns) < distance(means[k], means[first], columns))
    wanted = {row: far[k] for k, own in members.items() for row in own}
    rows = sorted(wanted)
    weights, cut = [0.0] * len(means[first]), 0.0
    best = None
    for _ in range(config.max_epochs):
        for row in rows:
            if (dot(weights, values[row]) > cut) != wanted[row]:
                sign = 1.0 if wanted[row] else -1.0
                weights = [
                    weight + sign * value * column.scale
                    for weight, value, column in zip(weights, values[row], columns, strict=True)
                ]
                cut -= sign
        errors = sum((dot(weights, values[row]) > cut) != wanted[row] for row in rows)
        if best is None or errors < best[0]:
            best = errors, weights, cut
        if errors == 0:
            break
    assert best is not None
    _, weights, cut = best
    left = {k: sum(dot(weights, values[row]) <= cut for row in own) for k, own in members.items()}
    size_l = sum(left.values())
    all_left = all(2 * left[k] > len(own) for k, own in members.items())
    all_right = all(2 * left[k] < len(own) for k, own in members.items())
    if min(size_l, len(rows) - size_l) < config.min_leaf or all_left or all_right:
        return None
    return weights, cut
