"""The directions a node of the sparse-oblique family draws, cell by cell in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.naive import rng

PLACES = 0xA0761D6478BD642F
WEIGHTS = 0xE7037ED1A0B428DB

Direction = list[tuple[int, float]]


def columns(
    kind: str, features: int, count: int, density: float | None, scale: Sequence[float], key: int
) -> list[Direction]:
    """Return the `count` directions that the node of this key draws, some maybe empty, with features ascending."""
    cells = chosen_cells(kind, features, count, density, key)
    drawn: list[Direction] = [[] for _ in range(count)]
    for cell in sorted(cells):
        column, feature = divmod(cell, features)
        weight = weight_of(kind, key, cell) * scale[feature]
        if weight:
            drawn[column].append((feature, weight))
    return drawn


def chosen_cells(kind: str, features: int, count: int, density: float | None, key: int) -> set[int]:
    """Return the cells with a weight. Cell c is for feature c % features of direction c // features."""
    total = features * count
    stream = rng.mix(key ^ PLACES)
    if kind in ("gaussian", "very-sparse"):
        chance = int((density or (1.0 if kind == "gaussian" else 1.0 / math.sqrt(features))) * 2**53)
        return {cell for cell in range(total) if number(stream, cell + 1) >> 11 < chance}
    wanted = count if kind == "rerf" else max(1, round((density or 1.0 / features) * total))
    cells: set[int] = set()
    draw = 0
    if 2 * wanted > total:
        for cell in range(total):
            if (number(stream, cell + 1) >> 32) * (total - cell) >> 32 < wanted - len(cells):
                cells.add(cell)
    while len(cells) < wanted:
        draw += 1
        random = number(stream, draw)
        column, feature = (random >> 32) * count >> 32, (random & 0xFFFFFFFF) * features >> 32
        cells.add(column * features + feature)
    return cells


def weight_of(kind: str, key: int, cell: int) -> float:
    """Return the weight of a chosen cell."""
    random = number(rng.mix(key ^ WEIGHTS), cell + 1)
    if kind != "gaussian":
        return 1.0 if random >> 63 else -1.0
    one, two = ((random >> 11) + 1) / 2**53, (rng.mix((random + rng.GOLDEN) & rng.MASK) >> 11) / 2**53
    normal = math.sqrt(-2.0 * math.log(one)) * math.cos(2.0 * math.pi * two)
    return round(normal * 2**20) / 2**20


def number(stream: int, counter: int) -> int:
    """Number `counter` of a stream, from 1."""
    return rng.mix((stream + counter * rng.GOLDEN) & rng.MASK)
