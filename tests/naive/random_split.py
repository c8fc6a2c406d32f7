"""Random splits, one of each feature, as ARCHITECTURE.md says; the best of them by tests/naive/split.py."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bigforest.options.train_config import TrainConfig
from tests.naive import rng
from tests.naive.levels import Level
from tests.naive.split import Cuts, Table

CUTS = 0x2127599BF4325C37
PURPOSE_THRESHOLD = 6
LARGEST = sys.float_info.max


def random_cuts(key: int, table: Table) -> Cuts:
    """Return the cuts of a feature in the node of this key: one order, with one place."""

    def cuts(feature: int, levels: Sequence[Level]) -> list[tuple[list[Level], Sequence[int]]]:
        state = (rng.mix(key ^ CUTS) + (feature + 1) * rng.GOLDEN) & rng.MASK
        if feature in table.categories:
            names = numbered(table, feature)
            order = sorted(levels, key=lambda level: (rng.mix(state ^ rng.mix(names[level])), names[level]))
            return [(order, [1 + ((rng.mix(state) >> 32) * (len(order) - 1) >> 32)])]
        values = sorted(value for value in levels if value is not None)
        if len(values) == 1:
            return [([None, *values], [1])]
        share = (rng.mix(state) >> 11) * 2.0**-53
        threshold = max(values[0], -LARGEST) * (1.0 - share) + min(values[-1], LARGEST) * share
        place = max(1, sum(value <= threshold for value in values[:-1]))
        if None not in levels:
            return [(values, [place])]
        if rng.mix((state + rng.GOLDEN) & rng.MASK) >> 63:
            return [([*values, None], [place])]
        return [([None, *values], [place + 1])]

    return cuts


def drawn_threshold(config: TrainConfig, tree: int, node: int, below: float, above: float) -> float:
    """Return the threshold of a node: uniform between two neighbouring values, or the lower one if rounding fails."""
    key = rng.stream_key(config.seed, PURPOSE_THRESHOLD, tree, 0)
    share = (rng.mix((key + (node + 1) * rng.GOLDEN) & rng.MASK) >> 11) * 2.0**-53
    threshold = max(below, -LARGEST) * (1.0 - share) + min(above, LARGEST) * share
    return threshold if below <= threshold < above else below


def numbered(table: Table, feature: int) -> dict[Level, int]:
    """Return the code of each level of a category. The missing level, if a row has it, has code 0."""
    present = {None if value != value else float(value) for value in table.low[:, feature].tolist()}
    return {level: code for code, level in enumerate(sorted(present, key=lambda level: (level is not None, level)))}
