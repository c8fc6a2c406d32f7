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

# The orders of a feature's levels or values in a node, each with the places at which it is cut.
Cuts = Callable[[int, Sequence[Level]], Sequence[tuple[list[Level], Sequence[int]]]]


class Table(NamedTuple):
    """Rows to learn from. `low` and `high` [rows, features]: the range of values that share the cell's code.

    They are one and the same array unless the codes are capped. NaN is missing. In `categories` numbers are levels.
    classes: 0 for regression. A total, a list of int, is what rows hold: class weights, or of
    numbers the weight and the sum by weight. min_level: of each feature, as in TrainConfig; 1 where there is none.
    zero: the whole number that stands for a target of 0.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    target: Sequence[int]
    classes: int
    categories: frozenset[int] = frozenset()
    min_level: Sequence[int] = ()
    zero: float = 0.0

    def total(self, rows: Sequence[int], weights: Sequence[int]) -> list[int]:
        """What the rows hold; `weights[row]` counts the row."""
        if self.classes == 0:
            return [sum(weights[row] for row in rows), sum(weights[row] * self.target[row] for row in rows)]
        counts = [0] * self.classes
        for row in rows:
            counts[self.target[row]] += weights[row]
        return counts

    def cells(self, feature: int, rows: Sequence[int]) -> list[Level]:
        """The values of these rows, None where one is missing."""
        return known(self.low[list(rows), feature])

    def varies(self, feature: int, rows: Sequence[int], weights: Sequence[int]) -> bool:
        """Whether these rows have more than one value, or group of levels."""
        if feature in self.categories:
            return len(self.groups(feature, rows, weights)) > 1
        return len(set(self.cells(feature, rows))) > 1

    def groups(self, feature: int, rows: Sequence[int], weights: Sequence[int]) -> list[list[Level]]:
        """The values of these rows, each by itself, and the levels that are taken together (levels.py)."""
        weight_of: dict[Level, int] = {}
        for row, value in zip(rows, self.cells(feature, rows), strict=True):
            weight_of[value] = weight_of.get(value, 0) + weights[row]
        least = self.min_level[feature] if self.min_level and feature in self.categories else 1
        return level_groups(weight_of, least)

    def weight(self, total: list[int]) -> int:
        """The weight of what rows hold."""
        return sum(total) if self.classes else total[0]


class Split(NamedTuple):
    """Rows with a value of at most `threshold` go left; `left` and `right` are the totals there.

    missing_left  whether rows without a value go left; None where the node has none, and in a category.
    levels        of a category: the levels that go left, and those that go right; None (missing) may be one of them.
    """

    feature: int
    threshold: float
    left: list[int]
    right: list[int]
    missing_left: bool | None = None
    levels: tuple[frozenset[Level], frozenset[Level]] | None = None

    @property
    def terms(self) -> list[tuple[int, float]]:
        """The split as one on a projection."""
        return [(self.feature, 1.0)]

    def goes_left(self, rows: NDArray[np.float64]) -> list[bool]:
        """Whether each of these rows [rows, features] goes left."""
        cells = known(rows[:, self.feature])
        if self.levels is not None:
            return [cell in self.levels[0] for cell in cells]
        return [bool(self.missing_left) if cell is None else cell <= self.threshold for cell in cells]


def known(column: NDArray[np.float64]) -> list[Level]:
    """The values of a column, None where one is missing."""
    return [None if isnan(value) else value for value in column.tolist()]


def gini_score(left: list[int], right: list[int]) -> Fraction:
    """Largest where the weighted Gini impurity of the children is smallest."""
    return sum((Fraction(sum(n * n for n in side), sum(side)) for side in (left, right)), Fraction(0))


def entropy_score(left: list[int], right: list[int]) -> int:
    """Largest where the weighted entropy of the children is smallest, in fixed point; never above zero."""
    return sum(sum(map(n_log2_n, side)) - n_log2_n(sum(side)) for side in (left, right))


def error_score(left: list[int], right: list[int]) -> int:
    """Rows that the majorities of the children get right."""
    return max(left) + max(right)


def variance_score(left: list[int], right: list[int]) -> Fraction:
    """Largest where the weighted variance of the children is smallest."""
    return sum((Fraction(total * total, weight) for weight, total in (left, right)), Fraction(0))


def poisson_score(left: list[int], right: list[int], zero: float) -> float | None:
    """Largest where the weighted Poisson deviance of the children is smallest, as float64 computes it; None where the
    sum of a child is not above `zero` times its weight."""
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
    """log(x) by the additions, multiplications and divisions of fdlibm."""
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
    """n log2(n) in units of 2**-20."""
    return int(np.rint(n * np.log2(np.float64(n)) * 2**20)) if n else 0


# The root of 1/2, without its lower half; factors of z**7, z**6, ...
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
    """The sum, each addition rounded."""
    return reduce(add, terms, 0.0)


# The impurity of a node by the shares of its classes, each operation rounded.
IMPURITIES: dict[str, Callable[[list[float]], float]] = {
    "gini": lambda shares: 1.0 - in_order(p * p for p in shares),
    "entropy": lambda shares: 0.0 - in_order(p * log2(p) for p in shares if p),
    "error": lambda shares: 1.0 - max(shares),
}


def impurity_of(counts: list[int], impurity: str) -> float:
    """The impurity of a node."""
    weight = float(sum(counts))
    return IMPURITIES[impurity]([count / weight for count in counts])


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
    cuts: Cuts | None = None,
) -> Split | None:
    """The best of all admissible splits; ties to the first of `features`, of its `orders`, and the lowest place in it.

    `weights[row]` counts the row; a child of less than `min_leaf` is not admissible. cuts: the orders of a feature with
    the places at which they are cut; None: all. None: there is no split.
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
    """The orders that are cut in two at every place: of levels, or of values with those missing first, and last."""
    if category:
        return [level_order(totals, classes)]
    values: list[Level] = sorted(value for value in totals if value is not None)
    return [[None, *values], [*values, None]] if None in totals else [values]


Side = tuple[list[Level], list[int]]


def as_split(feature: int, one: Side, two: Side, high_of: dict[Level, float], category: bool) -> Split:
    """The split of an order in two: the values, and the total, of both sides."""
    if category:
        return Split(feature, nan, one[1], two[1], None, (frozenset(one[0]), frozenset(two[0])))
    if one[0] == [None]:  # all values go left, whichever came first
        one, two = two, one
    if two[0] == [None]:
        return Split(feature, inf, one[1], two[1], False)
    missing_left = True if None in one[0] else False if None in two[0] else None
    below = max(value for value in one[0] if value is not None)
    above = min(value for value in two[0] if value is not None)
    return Split(feature, threshold_between(high_of[below], above), one[1], two[1], missing_left)
