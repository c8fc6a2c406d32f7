"""Ranks of a column, and of new values among them."""

from __future__ import annotations

import math
from collections.abc import Sequence


def average_ranks(column: Sequence[float]) -> list[float]:
    """Return the rank of every cell, from 1; equal cells have the mean of their ranks."""
    ascending = sorted(column)
    return [ascending.index(value) + (ascending.count(value) + 1) / 2 for value in column]


def rank_of(value: float, column: Sequence[float]) -> float:
    """The rank of a new value: on the line between its neighbours, 0 below all, rows + 1 above all."""
    rank = dict(zip(column, average_ranks(column), strict=True))
    if value in rank:
        return rank[value]
    below, above = [v for v in rank if v < value], [v for v in rank if v > value]
    if not below:
        return 0.0
    if not above:
        return len(column) + 1.0
    lower, upper = max(below), min(above)
    if math.isinf(lower) or math.isinf(upper):
        return rank[lower]
    share = (value / 2 - lower / 2) / (upper / 2 - lower / 2) if upper / 2 > lower / 2 else 0.0
    return rank[lower] + min(share, 1.0) * (rank[upper] - rank[lower])
