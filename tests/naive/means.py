"""Differences of class means, from values in whole steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from tests.naive import rng
from tests.naive.directions import Direction
from tests.naive.split import Table

OFFERS = 0x8EBC6AF09C88C6E3


def differences(
    table: Table, rows: Sequence[int], weights: Sequence[int], pairing: str, scale: Sequence[float]
) -> list[Direction]:
    """Return, for each pair of classes of these rows, the second mean minus the first, as terms."""
    total = [sum(weights[row] for row in rows if table.target[row] == k) for k in range(table.classes)]
    steps = [steps_of(tuple(column)) for column in table.low.T.tolist()]
    sums = [
        [sum(own[row] * weights[row] for row in rows if table.target[row] == k) for k in range(table.classes)]
        for own, _ in steps
    ]
    found = []
    for first, second in pairs(total, pairing):
        terms = []
        for feature, (_, unit) in enumerate(steps):
            one = float(sums[feature][first]) / total[first]
            two = float(sums[feature][second]) / total[second]
            weight = (two - one) * unit * (scale[feature] * scale[feature])
            if weight and math.isfinite(weight):
                terms.append((feature, weight))
        found.append(terms)
    return found


def pairs(total: Sequence[int], pairing: str) -> list[tuple[int, int]]:
    """Return the pairs of the classes with rows."""
    present = [k for k, weight in enumerate(total) if weight]
    if pairing == "consecutive":
        return list(pairwise(present))
    if pairing == "vs-largest":
        largest = list(total).index(max(total))
        return [(largest, k) for k in present if k != largest]
    return [(other, k) for k in present for other in present if other < k]


@lru_cache(maxsize=100)
def steps_of(column: tuple[float, ...]) -> tuple[list[int], float]:
    """Return the values in whole steps from the smallest value, and the size of a step."""
    low, high = min(column), max(column)
    span = high - low
    if all(abs(value) <= 2**31 and value == math.floor(value) for value in column) and span <= 2**30:
        return [int(value - low) for value in column], 1.0
    if not 2.0**-500 < span < math.inf:
        return [0] * len(column), 0.0
    return [round((value - low) / span * 2**30) for value in column], span / 2**30


def is_offered(key: int, number: int, count: int, features: int) -> bool:
    """Return True if the node of this key considers difference `number`."""
    random = rng.mix((rng.mix(key ^ OFFERS) + (number + 1) * rng.GOLDEN) & rng.MASK)
    return (random >> 32) * features >> 32 < count
