"""The best split of a node among directions, each projected row by row and searched like a feature."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from bigforest.options.train_config import TrainConfig
from tests.naive import directions, means, rng
from tests.naive.directions import Direction
from tests.naive.split import Split, Table


class ObliqueSplit(NamedTuple):
    """A split on a projection; of a single feature, if there is one term, whose weight is forgotten."""

    terms: Direction
    threshold: float
    left: list[int]
    right: list[int]

    def goes_left(self, row: Sequence[float]) -> bool:
        """Whether a row of the node goes left."""
        return project(self.terms, row) <= self.threshold


def project(terms: Direction, row: Sequence[float]) -> float:
    """The projection of a row; for one term the value of its feature."""
    if len(terms) == 1:
        return float(row[terms[0][0]])
    total = 0.0
    for feature, weight in terms:
        total += weight * float(row[feature])
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
    offered = [direction for direction in offered if direction]
    usable = [direction for direction in offered if tells_apart(table, rows, direction)]
    if not usable:
        usable = [
            [(feature, 1.0)]
            for feature in rng.shuffled(key, table.low.shape[1])
            if tells_apart(table, rows, [(feature, 1.0)])
        ][:1]
    if not usable:
        return None
    low, high = (
        np.array([[project(terms, row) for terms in usable] for row in part[rows].tolist()])
        for part in (table.low, table.high)
    )
    for place, terms in enumerate(usable):
        if len(terms) > 1:  # the value of a code is its smallest
            high[:, place] = low[:, place]
    target = [table.target[row] for row in rows]
    projected = Table(low, high, target, table.classes)
    own = [weights[row] for row in rows]
    found = split(projected, range(len(rows)), own, range(len(usable)), config.criterion, config.min_leaf)
    return found and ObliqueSplit(usable[found.feature], found.threshold, found.left, found.right)


def tells_apart(table: Table, rows: Sequence[int], terms: Direction) -> bool:
    """Whether the projections are not all equal and, where several features are summed, all finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = [project(terms, row) for row in table.low[rows].tolist()]
    return (len(terms) == 1 or all(map(math.isfinite, values))) and min(values) != max(values)


def scales(table: Table, normalize: str) -> list[float]:
    """What the weight of each feature is multiplied by."""
    return [scale_of(tuple(column), normalize) for column in table.low.T.tolist()]


@lru_cache(maxsize=100)
def scale_of(column: tuple[float, ...], normalize: str) -> float:
    """1, or 1 / deviation or range of all rows; 0 where that is no number, or hardly more than 0."""
    if normalize == "none":
        return 1.0
    if not all(map(math.isfinite, column)):
        return 0.0
    spread = max(column) - min(column)
    if normalize == "zscore":
        rows = len(column)
        counts = Counter(sorted(column))
        try:
            mean = math.fsum(count * (value / rows) for value, count in counts.items())
            spread = math.sqrt(math.fsum(count * ((value - mean) ** 2 / rows) for value, count in counts.items()))
        except (OverflowError, ValueError):
            return 0.0
    return 1.0 / spread if 2.0**-500 < spread < math.inf else 0.0
