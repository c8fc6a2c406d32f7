"""Best split of one node: every threshold and subset of the given features, scored in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial, reduce
from math import frexp, inf, isnan, log2, nan
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.naive.levels import Level, level_groups, level_order

# Function that returns the orders of the levels or values of a feature in a node, each with the places of its cuts.
Cuts = Callable[[int, Sequence[Level]], Sequence[tuple[list[Level], Sequence[int]]]]


class Table(NamedTuple):
    """Training rows.

    low, high   [rows, features], smallest and largest value of the code of a cell; equal without bins. NaN is missing
    target      class of each row, or number
    classes     number of classes; 0 for regression
    categories  features whose values are numbers of levels
    min_level   TrainConfig.min_level of each feature; empty for 1
    zero        whole number that represents a target of 0

    The total of some rows is a list of int: their class weights; for regression their weight and weighted sum.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    target: Sequence[int]
    classes: int
    categories: frozenset[int] = frozenset()
    min_level: Sequence[int] = ()
    zero: float = 0.0

    def total(self, rows: Sequence[int], weights: Sequence[int]) -> list[int]:
        """Return the total of the rows, each multiplied by `weights[row]`."""
        if self.classes == 0:
            return [sum(weights[row] for row in rows), sum(weights[row] * self.target[row] for row in rows)]
        counts = [0] * self.classes
        for row in rows:
            counts[self.target[row]] += weights[row]
        return counts

    def cells(self, feature: int, rows: Sequence[int]) -> list[Level]:
        """Return the values of these rows, None for a missing value."""
        return known(self.low[list(rows), feature])

    def varies(self, feature: int, rows: Sequence[int], weights: Sequence[int]) -> bool:
        """Return True if these rows have more than one value, or group of levels."""
        if feature in self.categories:
            return len(self.groups(feature, rows, weights)) > 1
        return len(set(self.cells(feature, rows))) > 1

    def groups(self, feature: int, rows: Sequence[int], weights: Sequence[int]) -> list[list[Level]]:
        """Return the values of these rows in groups: one value, or the levels that are split as one (levels.py)."""
        weight_of: dict[Level, int] = {}
        for row, value in zip(rows, self.cells(feature, rows), strict=True):
            weight_of[value] = weight_of.get(value, 0) + weights[row]
        least = self.min_level[feature] if self.min_level and feature in self.categories else 1
        return level_groups(weight_of, least)

    def weight(self, total: list[int]) -> int:
        """Return the weight in a total."""
        return sum(total) if self.classes else total[0]


class Split(NamedTuple):
    """A split. Rows with a value of at most `threshold` go left.

    left, right   totals of the children
    missing_left  True if missing values go left; None for a category, and without missing values in the node
    levels        for a category: the levels that go left, and the levels that go right; None is the missing level
    """

    feature: int
    threshold: float
    left: list[int]
    right: list[int]
    missing_left: bool | None = None
    levels: tuple[frozenset[Level], frozenset[Level]] | None = None

    @property
    def terms(self) -> list[tuple[int, float]]:
        """Terms of the split as a projection."""
        return [(self.feature, 1.0)]

    def goes_left(self, rows: NDArray[np.float64]) -> list[bool]:
        """Return True for each of these rows [rows, features] that goes left."""
        cells = known(rows[:, self.feature])
        if self.levels is not None:
            return [cell in self.levels[0] for cell in cells]
        return [bool(self.missing_left) if cell is None else cell <= self.threshold for cell in cells]


def known(column: NDArray[np.float64]) -> list[Level]:
    """Return the values of a column, None for a missing value."""
    return [None if isnan(value) else value for value in column.tolist()]


def gini_score(left: list[int], right: list[int]) -> Fraction:
    """Return a score that is larger if the weighted Gini impurity of the children is smaller."""
    return sum((Fraction(sum(n * n for n in side), sum(side)) for side in (left, right)), Fraction(0))


def entropy_score(left: list[int], right: list[int]) -> int:
    """Return a score, at most 0, that is larger if the weighted entropy of the children in fixed point is smaller."""
    return sum(sum(map(n_log2_n, side)) - n_log2_n(sum(side)) for side in (left, right))


def error_score(left: list[int], right: list[int]) -> int:
    """Return the weight of the rows that the majorities of the children predict correctly."""
    return max(left) + max(right)


def variance_score(left: list[int], right: list[int]) -> Fraction:
    """Return a score that is larger if the weighted variance of the children is smaller."""
    return sum((Fraction(total * total, weight) for weight, total in (left, right)), Fraction(0))


def poisson_score(left: list[int], right: list[int], zero: float) -> float | None:
    """Return a float64 score that is larger if the weighted Poisson deviance of the children is smaller.

    Return None if the sum of a child is not above `zero` times its weight.
    """
    weight, total = left[0] + right[0], left[1] + right[1]
    centre = total // weight
    origin = float(centre) - zero
    sums = [float(of_side - centre * w) + float(w) * origin for w, of_side in (left, right)]
    whole = float(total - centre * weight) + float(weight) * origin
    if min(sums) <= 0.0:
        return None
    pairs = zip(sums, (left[0], right[0]), strict=True)
    one, two = (s * logarithm(s * float(weight) / (float(w) * whole)) for s, w in pairs)
    return 1.0 + (one + two) / whole


def logarithm(x: float) -> float:
    """Return log(x) by the additions, multiplications and divisions of fdlibm."""
    share, k = frexp(x)
    if share < _ROOT_OF_HALF:
        share, k = 2 * share, k - 1
    f = share - 1.0
    s = f / (2.0 + f)
    z = s * s
    series = 0.0
    for factor in _LOG:
        series = series * z + factor
    half = 0.5 * f * f
    low = 1.90821492927058770002e-10
    return k * 6.93147180369123816490e-01 - (half - (s * (half + series * z) + k * low) - f)


def n_log2_n(n: int) -> int:
    """Return n log2(n) in units of 2**-20."""
    return int(np.rint(n * np.log2(np.float64(n)) * 2**20)) if n else 0


# The upper half of the bits of sqrt(1/2); factors of z**7, z**6, ...
_ROOT_OF_HALF = 0x16A09E * 2.0**-21
_LOG = (
    1.479819860511658591e-01,
    1.531383769920937332e-01,
    1.818357216161805012e-01,
    2.222219843214978396e-01,
    2.857142874366239149e-01,
    3.999999999940941908e-01,
    6.666666666666735130e-01,
)

SCORES: dict[str, Callable[[list[int], list[int]], Fraction | int]] = {
    "gini": gini_score,
    "entropy": entropy_score,
    "error": error_score,
}


def in_order(terms: Iterable[float]) -> float:
    """Return the sum, each addition rounded."""
    return reduce(add, terms, 0.0)


# Functions that return the impurity of a node from the shares of its classes, each operation rounded.
IMPURITIES: dict[str, Callable[[list[float]], float]] = {
    "gini": lambda shares: 1.0 - in_order(p * p for p in shares),
    "entropy": lambda shares: 0.0 - in_order(p * log2(p) for p in shares if p),
    "error": lambda shares: 1.0 - max(shares),
}


def impurity_of(counts: list[int], impurity: str) -> float:
    """Return the impurity of a node."""
    weight = float(sum(counts))
    return IMPURITIES[impurity]([count / weight for count in counts])


def threshold_between(left: float, right: float) -> float:
    """Return the midpoint of two neighbouring values, or the left value if the midpoint does not separate them."""
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
    cuts: Cuts | None = None,
) -> Split | None:
    """Return the best split whose children weigh at least `min_leaf`, or None if there is no split.

    weights  weight of each row of the table
    cuts     see Cuts; None to cut all `orders` at all places

    Of equal splits, the first is the best: by feature, then by order, then by place.
    """
    best = None
    best_score: Fraction | float | None = None
    score_of: Callable[[list[int], list[int]], Fraction | float | None]
    score_of = SCORES[impurity] if table.classes else variance_score
    if impurity == "poisson":
        score_of = partial(poisson_score, zero=table.zero)
    everything = table.total(rows, weights)
    for feature in features:
        group_of = {group[0]: group for group in table.groups(feature, rows, weights)}
        first_of = {level: first for first, group in group_of.items() for level in group}
        rows_of: dict[Level, list[int]] = {}
        for row, value in zip(rows, table.cells(feature, rows), strict=True):
            rows_of.setdefault(first_of[value], []).append(row)
        total_of = {level: table.total(here, weights) for level, here in rows_of.items()}
        high_of = {level: float(table.high[here[-1], feature]) for level, here in rows_of.items()}
        if cuts is not None:
            offered = cuts(feature, list(total_of)) if len(total_of) > 1 else []
        else:
            all_orders = orders(total_of, feature in table.categories, table.classes)
            offered = [(order, range(1, len(order))) for order in all_orders]
        for order, places in offered:
            left = [0 for _ in everything]
            right = everything
            for place in range(1, len(order)):
                left = [a + b for a, b in zip(left, total_of[order[place - 1]], strict=True)]
                right = [a - b for a, b in zip(right, total_of[order[place - 1]], strict=True)]
                if place not in places:
                    continue
                if min(table.weight(left), table.weight(right)) < min_leaf:
                    continue
                score = score_of(left, right)
                if score is None:
                    continue
                if best_score is None or score > best_score:
                    best_score = score
                    one, two = (
                        [level for first in side for level in group_of[first]]
                        for side in (order[:place], order[place:])
                    )
                    best = as_split(feature, (one, left), (two, right), high_of, feature in table.categories)
    return best


def orders(totals: dict[Level, list[int]], category: bool, classes: int) -> list[list[Level]]:
    """Return the orders to cut: the order of the levels; or the values with missing values first, and last."""
    if category:
        return [level_order(totals, classes)]
    values: list[Level] = sorted(value for value in totals if value is not None)
    return [[None, *values], [*values, None]] if None in totals else [values]


Side = tuple[list[Level], list[int]]


def as_split(feature: int, one: Side, two: Side, high_of: dict[Level, float], category: bool) -> Split:
    """Return the split of an order into two sides, each with its values and its total."""
    if category:
        return Split(feature, nan, one[1], two[1], None, (frozenset(one[0]), frozenset(two[0])))
    if one[0] == [None]:  # the values go left, missing values right
        one, two = two, one
    if two[0] == [None]:
        return Split(feature, inf, one[1], two[1], False)
    missing_left = True if None in one[0] else False if None in two[0] else None
    below = max(value for value in one[0] if value is not None)
    above = min(value for value in two[0] if value is not None)
    return Split(feature, threshold_between(high_of[below], above), one[1], two[1], missing_left)
