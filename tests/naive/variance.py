"""One whole tree that predicts numbers, in plain Python and exact arithmetic, by the rules of ARCHITECTURE.md."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from tests.naive import rng
from tests.naive.split import Table, threshold_between
from tests.naive.tree import seen_features


class Numbers(NamedTuple):
    """Rows to learn from: `low` and `high` as in split.py Table, whole targets, how often and how heavy each row is."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    target: Sequence[int]
    repeats: Sequence[int]
    weights: Sequence[int]

    def weight(self, rows: Sequence[int]) -> int:
        return sum(self.repeats[row] * self.weights[row] for row in rows)

    def sum(self, rows: Sequence[int]) -> int:
        return sum(self.repeats[row] * self.weights[row] * self.target[row] for row in rows)

    def count(self, rows: Sequence[int]) -> int:
        return sum(self.repeats[row] for row in rows)


class NumberNode(NamedTuple):
    """One node. A leaf has feature -1 and no children (-1); its threshold says nothing."""

    feature: int
    threshold: float
    right: int
    depth: int
    weight: int
    sum: int


def decrease(sum_l: int, w_l: int, sum_r: int, w_r: int) -> Fraction:
    """Decrease of variance by a split, from sum and weight of its sides: that of the means about their own mean."""
    return Fraction(w_l * w_r, (w_l + w_r) ** 2) * (Fraction(sum_l, w_l) - Fraction(sum_r, w_r)) ** 2


def grow_numbers(table: Numbers, config: TrainConfig, tree: int) -> list[NumberNode]:
    """The nodes in preorder."""
    nodes: list[NumberNode] = []
    everyone = [row for row, repeats in enumerate(table.repeats) if repeats]
    waiting = [(everyone, rng.stream_key(config.seed, rng.PURPOSE_GROW, tree, 0), 0, -1)]
    while waiting:
        rows, key, depth, parent = waiting.pop()
        if parent >= 0:
            nodes[parent] = nodes[parent]._replace(right=len(nodes))
        leaf = NumberNode(-1, 0.0, -1, depth, table.weight(rows), table.sum(rows))
        found = None
        count = table.count(rows)
        alike = len({table.target[row] for row in rows}) == 1
        if not (alike or count < config.min_split or count < 2 * config.min_leaf or depth == config.max_depth):
            found = best_split(table, rows, key, config)
        if found is None:
            nodes.append(leaf)
            continue
        feature, threshold, left, right = found
        waiting.append((right, rng.mix(key ^ rng.RIGHT), depth + 1, len(nodes)))
        waiting.append((left, rng.mix(key ^ rng.LEFT), depth + 1, -1))
        nodes.append(leaf._replace(feature=feature, threshold=threshold))
    return nodes


def best_split(
    table: Numbers, rows: Sequence[int], key: int, config: TrainConfig
) -> tuple[int, float, list[int], list[int]] | None:
    """Feature, threshold and sides of the best split; ties to the lowest feature, then the lowest threshold."""
    best = None
    best_score = Fraction(-1)
    for feature in sorted(seen_features(Table(table.low, table.high, [], 0), rows, key, config)):
        alike: dict[float, list[int]] = {}
        for row in rows:
            alike.setdefault(float(table.low[row, feature]), []).append(row)
        left = [0, 0, 0]
        right = [table.sum(rows), table.weight(rows), table.count(rows)]
        for value, following in pairwise(sorted(alike)):
            moved = alike[value]
            here = [table.sum(moved), table.weight(moved), table.count(moved)]
            left = [a + b for a, b in zip(left, here, strict=True)]
            right = [a - b for a, b in zip(right, here, strict=True)]
            if min(left[2], right[2]) < config.min_leaf:
                continue
            score = decrease(left[0], left[1], right[0], right[1])
            if score > best_score:
                best_score = score
                best = (feature, value, threshold_between(float(table.high[moved[0], feature]), following))
    if best is None:
        return None
    feature, value, threshold = best
    left_rows = [row for row in rows if table.low[row, feature] <= value]
    return feature, threshold, left_rows, [row for row in rows if table.low[row, feature] > value]
