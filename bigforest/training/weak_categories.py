"""The default of min_level: larger for categories whose levels differ little more than by chance.

The mean of n rows of a level estimates the level better than the mean of all rows does once n is above k, the ratio of
the variance within levels to that between levels (Buehlmann 1967: the credibility n / (n + k) is then above one half).
Both are estimated by analysis of variance with levels of different sizes (Searle, Casella and McCulloch 1992, section
3.6); for classes, of the shares of all classes together. It is about the means of levels, also of counts, so it goes by
variances with the impurity poisson too. min_level is half of k: a forest averages many trees, so noise harms less than
it would in one. benchmarks/columns.md has how that was chosen. Oracle: tests/naive/weak_categories.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bigforest.sampling.bags import held_out_of
from bigforest.schema.config import TrainConfig
from bigforest.schema.options import MIN_LEVEL
from bigforest.store.format import BLOCK_ROWS, block_count, block_span
from bigforest.store.store import Store

# Levels of more bag rows than this are always split by themselves.
_MOST = 1_000
_SHARE_OF_K = 0.5
# Large tables are looked at in this many of their blocks, evenly apart.
_BLOCKS = 4


def choose_min_level(store: Store, config: TrainConfig) -> TrainConfig:
    """The configuration with min_level, if it was not given: one number, or one for each feature if some have more."""
    if config.min_level is not None:
        return config
    features = store.spec.features
    categories = [place for place, feature in enumerate(features) if feature.kind == "category"]
    if not categories:
        return replace(config, min_level=MIN_LEVEL)
    rows = _Rows(store, config)
    chosen = [MIN_LEVEL] * len(features)
    for place in categories:
        ratio = variance_ratio(rows.codes(place), rows.outputs, rows.weight)
        chosen[place] = round(min(max(_SHARE_OF_K * ratio, MIN_LEVEL), _MOST))
    return replace(config, min_level=",".join(map(str, chosen)) if max(chosen) > MIN_LEVEL else MIN_LEVEL)


class _Rows:
    """Rows of a table that are not held out: of all blocks, or of some.

    outputs  of each class the rows in it and their weights; or all rows, and the weighted targets, from 0 to 1
    weight   float64 [rows], 1 on average
    """

    def __init__(self, store: Store, config: TrainConfig) -> None:
        self._store = store
        blocks = block_count(store.rows)
        spans = [block_span(store.rows, block) for block in range(0, blocks, -(-blocks // _BLOCKS))]
        held_out = [held_out_of(store, config, span.start, span.stop) for span in spans]
        self._kept = [
            (span, np.arange(len(span)) if held is None else np.flatnonzero(~held))
            for span, held in zip(spans, held_out, strict=True)
        ]
        target = np.concatenate([store.labels(span.start, span.stop)[kept] for span, kept in self._kept])
        self.weight = np.ones(target.size)
        if store.weight is not None:
            parts = [store.weights_of(span.start, span.stop)[kept] for span, kept in self._kept]
            self.weight = np.concatenate(parts).astype(np.float64)
            self.weight /= math.fsum(self.weight) / target.size
        if store.spec.target.is_regression:
            numbers = target.astype(np.float64) - float(target.min())
            self.outputs = [(np.arange(target.size), self.weight * (numbers / (numbers.max() or 1.0)))]
        else:
            order = np.argsort(target, kind="stable")
            ends = np.searchsorted(target[order], np.arange(1, len(store.spec.target.classes)))
            self.outputs = [(rows, self.weight[rows]) for rows in np.split(order, ends)]

    def codes(self, feature: int) -> NDArray[np.int64]:
        """The levels of a category in these rows."""
        found: NDArray[np.int64] = np.empty(self.weight.size, np.int64)
        most, end = self._store.spec.features[feature].codes - 1, 0
        for span, kept in self._kept:
            block = span.start // BLOCK_ROWS
            column = self._store.feature_codes(feature, range(block, block + 1))[span.start : span.stop]
            begin, end = end, end + kept.size
            found[begin:end] = column[kept]
        return np.minimum(found, most)  # higher only if another process writes to the store meanwhile


def variance_ratio(
    codes: NDArray[np.int64],
    outputs: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]],
    weight: NDArray[np.float64],
) -> float:
    """The variance within levels divided by that between them; inf where the latter is not above 0 or not known.

    codes    [rows], the levels, from 0 on
    outputs  of each the rows where it is not 0, and its value there times the weight; the values are from 0 to 1
    weight   [rows], 1 on average
    """
    sizes, rows = np.bincount(codes, weight), codes.size
    present = np.flatnonzero(sizes)
    levels = present.size
    if levels == 1 or levels == rows:
        return math.inf
    sums = [np.bincount(codes[places], values, sizes.size)[present] for places, values in outputs]
    sizes = sizes[present]
    explained = math.fsum(math.fsum(each**2 / sizes) for each in sums)
    mean = math.fsum(math.fsum(each) ** 2 for each in sums) / rows
    total = math.fsum(math.fsum(values**2 / weight[places]) for places, values in outputs)
    within = max(total - explained, 0.0) / (rows - levels)
    size = (rows - math.fsum(sizes**2) / rows) / (levels - 1)
    between = ((explained - mean) / (levels - 1) - within) / size
    return within / between if between > 0.0 else math.inf
