"""The values of the levels of a category where trees split on projections, from their definition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.naive import rng
from tests.naive.levels import Level, principal_component


def level_values(
    cells: Sequence[Level], targets: Sequence[int], classes: int, least: int
) -> tuple[dict[Level, float], float]:
    """Return the value of each level, and the value for levels that do not occur.

    cells    level of each row that is not held out; None for missing
    targets  class of each of these rows; for regression (0 classes) a whole number
    least    a level with fewer rows has the value of levels that do not occur
    """
    pairs = list(zip(cells, targets, strict=True))
    sizes = {level: cells.count(level) for level in set(cells)}
    rare = {level for level, size in sizes.items() if size < least}
    parts = [[target for cell, target in pairs if cell == level] for level in sizes if level not in rare]
    rest = [target for cell, target in pairs if cell in rare]
    if classes == 0:
        entry = None
    elif classes <= 2:
        entry = [0, 1]
    else:
        counts = [[part.count(k) for k in range(classes)] for part in [*parts, rest] if part]
        entry = principal_component(counts, [rng.mix((k + 1) * rng.GOLDEN & rng.MASK) >> 48 for k in range(classes)])

    def mean(some: Sequence[int]) -> float:
        """Return the mean as float64, from an exact sum."""
        return float(sum(some if entry is None else (entry[k] for k in some))) / float(len(some))

    own = {level: mean([target for cell, target in pairs if cell == level]) for level in sizes if level not in rare}
    every = mean(targets)
    low, high = min([*own.values(), every]), max([*own.values(), every])

    def value(middle: float) -> float:
        return float(np.float32((middle - low) / (high - low))) if high > low else 0.0

    return {level: value(own.get(level, every)) for level in sizes}, value(every)
