"""Whether other trees are better than plain ones, from the errors of single trees (Breiman 2001, section 11)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations

# Of each tree the errors of the rows that it left out, by row.
Trees = Sequence[Mapping[int, float]]


def loss(trees: Trees, row: int) -> float | None:
    """The mean product of the errors of two different trees; None where no two left the row out."""
    errors = [tree[row] for tree in trees if row in tree]
    products = [one * other for one, other in permutations(errors, 2)]
    return math.fsum(products) / len(products) if products else None


def gain(plain: Trees, other: Trees, weights: Sequence[float]) -> tuple[float, float] | None:
    """By how much the loss of `other` is lower, in the weighted mean over rows, and the standard error of that; None
    where fewer than two rows can be judged. The trees of both have the same bags."""
    pairs = [(loss(plain, row), loss(other, row), weight) for row, weight in enumerate(weights)]
    gains = [(one - other, weight) for one, other, weight in pairs if one is not None and other is not None]
    if len(gains) < 2:
        return None
    total = math.fsum(weight for _, weight in gains)
    mean = math.fsum(own * weight for own, weight in gains) / total
    return mean, math.sqrt(math.fsum(((own - mean) * weight / total) ** 2 for own, weight in gains))
