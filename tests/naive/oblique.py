"""The best split of a node among directions, each projected row by row and searched like a feature."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.options.train_config import TrainConfig
from tests.naive import directions, means, rng
from tests.naive.directions import Direction
from tests.naive.split import Split, Table


class ObliqueSplit(NamedTuple):
    """A split on a projection. A single term is a split on its feature, without the weight."""

    terms: Direction
    threshold: float
    left: list[int]
    right: list[int]

    def goes_left(self, rows: NDArray[np.float64]) -> list[bool]:
        """Return True for each of these rows [rows, features] that goes left."""
        return (project(self.terms, rows) <= self.threshold).tolist()


def project(terms: Direction, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The projections of rows [rows, features], term by term; for one term the values of its feature."""
    if len(terms) == 1:
        return rows[:, terms[0][0]]
    total = np.zeros(len(rows))
    with np.errstate(over="ignore", invalid="ignore"):
        for feature, weight in terms:
            total += weight * rows[:, feature]
    return total


def find_oblique(
    table: Table,
    rows: Sequence[int],
    weights: Sequence[int],
    key: int,
    config: TrainConfig,
    split: Callable[..., Split | None],
) -> ObliqueSplit | None:
    """The best split of a node of this key among its directions; None if there is none."""
    scale = scales(table, config.normalize)
    features = table.low.shape[1]
    count = config.drawn_projections(features)
    offered = directions.columns(config.projection_kind, features, count, config.density, scale, key)
    if config.mean_difference != "none":
        scope = rows if config.mean_difference_scope == "node" else np.flatnonzero(weights).tolist()
        differences = means.differences(table, scope, weights, config.mean_difference, scale)
        offered += [terms for number, terms in enumerate(differences) if means.is_offered(key, number, count, features)]
    own_low, own_high = table.low[rows], table.high[rows]
    usable = [direction for direction in offered if direction and tells_apart(project(direction, own_low), direction)]
    if not usable:
        single: list[Direction] = [[(feature, 1.0)] for feature in rng.shuffled(key, features)]
        usable = [direction for direction in single if tells_apart(project(direction, own_low), direction)][:1]
    if not usable:
        return None
    low = [project(terms, own_low) for terms in usable]
    # Sums of terms use the smallest value of a code.
    high = [project(terms, own_high if len(terms) == 1 else own_low) for terms in usable]
    target = [table.target[row] for row in rows]
    projected = Table(np.column_stack(low), np.column_stack(high), target, table.classes)
    own = [weights[row] for row in rows]
    found = split(projected, range(len(rows)), own, range(len(usable)), config.criterion, config.min_leaf)
    return found and ObliqueSplit(usable[found.feature], found.threshold, found.left, found.right)


def tells_apart(values: NDArray[np.float64], terms: Direction) -> bool:
    """Return True if projections are not all equal and, with several terms, all finite."""
    return bool((len(terms) == 1 or np.isfinite(values).all()) and values.min() != values.max())


def scales(table: Table, normalize: str) -> list[float]:
    """Return the factor of the weights of each feature."""
    if normalize == "none":
        return [1.0] * table.low.shape[1]
    return [scale_of(column.tobytes(), normalize) for column in table.low.T]


@lru_cache(maxsize=100)
def scale_of(values: bytes, normalize: str) -> float:
    """Return 1 / deviation, or 1 / range, of all values; 0 if the divisor is not finite or hardly above 0."""
    column = np.frombuffer(values).tolist()
    if not all(map(math.isfinite, column)):
        return 0.0
    spread = max(column) - min(column)
    if normalize == "zscore" and spread > 0.0:
        rows = len(column)
        counts = Counter(sorted(column))
        try:
            mean = math.fsum(count * (value / rows) for value, count in counts.items())
            spread = math.sqrt(math.fsum(count * ((value - mean) ** 2 / rows) for value, count in counts.items()))
        except (OverflowError, ValueError):
            return 0.0
    return 1.0 / spread if 2.0**-500 < spread < math.inf else 0.0
