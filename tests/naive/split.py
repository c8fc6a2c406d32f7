"""Best split of one node: every threshold of the given features, scored in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Table(NamedTuple):
    """Rows to learn from. `low` and `high` [rows, features]: the range of values that share the cell's code.

    They are one and the same array unless the codes are capped.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    target: Sequence[int]
    classes: int


class Split(NamedTuple):
    """Rows with a value of at most `threshold` go left; `left` and `right` are the class counts there."""

    feature: int
    threshold: float
    left: list[int]
    right: list[int]


def gini_score(left: list[int], right: list[int]) -> Fraction:
    """Largest where the weighted Gini impurity of the children is smallest."""
    return sum((Fraction(sum(n * n for n in side), sum(side)) for side in (left, right)), Fraction(0))


def entropy_score(left: list[int], right: list[int]) -> int:
    """Largest where the weighted entropy of the children is smallest, in fixed point; never above zero."""
    return sum(sum(map(n_log2_n, side)) - n_log2_n(sum(side)) for side in (left, right))


def error_score(left: list[int], right: list[int]) -> int:
    """Rows that the majorities of the children get right."""
    return max(left) + max(right)


def n_log2_n(n: int) -> int:
    """n log2(n) in units of 2**-20."""
    return int(np.rint(n * np.log2(np.float64(n)) * 2**20)) if n else 0


SCORES: dict[str, Callable[[list[int], list[int]], Fraction | int]] = {
    "gini": gini_score,
    "entropy": entropy_score,
    "error": error_score,
}


def threshold_between(left: float, right: float) -> float:
    """The midpoint of two neighbouring values, or the left one where the midpoint does not separate them."""
    with np.errstate(invalid="ignore"):
        middle = left / 2 + right / 2
    return middle if left <= middle < right else left


def best_split(
    table: Table,
    rows: Sequence[int],
    weights: Sequence[int],
    features: Sequence[int],
    impurity: str,
    min_leaf: int,
) -> Split | None:
    """The best of all admissible splits; ties to the lowest feature, then the lowest threshold.

    `weights[row]` counts the row; a child of less than `min_leaf` is not admissible. None: there is no split.
    """
    best = None
    best_score: Fraction | int | None = None
    for feature in sorted(features):
        counts_of: dict[float, list[int]] = {}
        high_of: dict[float, float] = {}
        for row, low, high in zip(
            rows, table.low[rows, feature].tolist(), table.high[rows, feature].tolist(), strict=True
        ):
            counts_of.setdefault(low, [0] * table.classes)[table.target[row]] += weights[row]
            high_of[low] = high
        left = [0] * table.classes
        right = [sum(column) for column in zip(*counts_of.values(), strict=True)]
        for value, following in pairwise(sorted(counts_of)):
            left = [a + b for a, b in zip(left, counts_of[value], strict=True)]
            right = [a - b for a, b in zip(right, counts_of[value], strict=True)]
            if min(sum(left), sum(right)) < min_leaf:
                continue
            score = SCORES[impurity](left, right)
            if best_score is None or score > best_score:
                best_score = score
                best = Split(feature, threshold_between(high_of[value], following), left, right)
    return best
