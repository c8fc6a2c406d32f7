"""Values of the levels of a category, for trees that split on projections: one number for each level.

Levels are compared by their means, as where nodes split on sets of levels: of the regression target; for two classes of
the share of the second; for more of the first principal component of the class shares (kernels/categories/principal.py,
of the whole table here). 0 stands for the lowest mean and 1 for the highest, and the others are between in proportion.
A level of fewer than `min_level` rows has the mean of all rows, and so has one that did not occur: the mean of a few
rows would tell trees the targets of these rows. Missing is one more level. Each row counts once, whatever its weight;
rows that are held out do not count. Oracle: tests/naive/level_values.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.categories.principal import DEVIATION_BITS, DIRECTION_BITS, STEPS
from bigforest.kernels.common.rng import draw_rows
from bigforest.sampling.bags import held_out_of
from bigforest.schema.config import TrainConfig
from bigforest.store.format import block_count, block_span
from bigforest.store.store import Store


class LevelValues(NamedTuple):
    """The values of a category.

    codes  float32 [codes] as bytes, which can be compared
    other  of levels that did not occur
    """

    codes: bytes
    other: float

    def by_code(self) -> NDArray[np.float32]:
        """Those of the codes."""
        return np.frombuffer(self.codes, np.float32)


def level_values(store: Store, config: TrainConfig, feature: int) -> LevelValues:
    """Task: the values of the levels of a category. Memory: a few numbers for each level, and a count of each class for
    those of at least min_level rows."""
    sizes = np.zeros(store.spec.features[feature].codes, np.int64)
    for codes, _ in _rows(store, config, feature):
        sizes += np.bincount(codes, minlength=sizes.size)
    large = np.flatnonzero(sizes >= config.min_levels(len(store.spec.features))[feature])
    group = np.full(sizes.size, large.size)  # the last is that of all other levels
    group[large] = np.arange(large.size)
    sums = _sums(store, config, feature, group, large.size + 1)
    rows = np.bincount(group, sizes, large.size + 1).astype(np.int64)
    # Sums of whole numbers are exact, so that no order of rows changes a bit.
    means = np.append(sums[:-1] / rows[:-1], sums.sum() / rows.sum())
    least, span = means.min(), np.ptp(means)
    values = ((means - least) / span if span > 0.0 else np.zeros(means.size)).astype(np.float32)
    return LevelValues(values[group].tobytes(), float(values[-1]))


def _rows(store: Store, config: TrainConfig, feature: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The codes of the rows that are not held out, and their classes or the whole numbers of their targets, by
    blocks."""
    most = store.spec.features[feature].codes - 1
    for block in range(block_count(store.rows)):
        span = block_span(store.rows, block)
        codes = store.feature_codes(feature, range(block, block + 1))[span.start : span.stop]
        codes = np.minimum(codes, most).astype(np.int64)  # higher only if another process writes to the store meanwhile
        labels = store.labels(span.start, span.stop).astype(np.int64)
        held_out = held_out_of(store, config, span.start, span.stop)
        yield (codes, labels) if held_out is None else (codes[~held_out], labels[~held_out])


def _sums(store: Store, config: TrainConfig, feature: int, group: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """The sum over the rows of each group of levels of what levels are compared by, int64 [groups]."""
    classes = len(store.spec.target.classes)
    if not classes:
        sums = np.zeros(groups, np.int64)
        for codes, numbers in _rows(store, config, feature):
            np.add.at(sums, group[codes], numbers)
        return sums
    counts = np.zeros((groups, classes), np.int64)
    for codes, labels in _rows(store, config, feature):
        counts += np.bincount(group[codes] * classes + labels, minlength=counts.size).reshape(counts.shape)
    own = counts[counts.any(axis=1)]
    direction = np.arange(classes) if classes <= 2 else principal_component(own)
    return counts @ direction


def principal_component(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first principal component of the class shares of groups of rows, int64 [classes], in whole numbers as
    kernels/categories/principal.py finds it in a node; counts: [groups, classes], no group without rows."""
    weight, start = counts.sum(axis=1), np.empty(counts.shape[1], np.uint64)
    with np.errstate(over="ignore"):
        draw_rows(np.uint64(0), np.arange(start.size, dtype=np.uint64), start)
    direction = (start >> np.uint64(64 - DIRECTION_BITS)).astype(np.int64)
    for _ in range(STEPS):
        sums = counts @ direction
        mean = (int(sums.sum()) << DEVIATION_BITS) // int(weight.sum())
        product = ((sums << DEVIATION_BITS) // weight - mean) @ counts
        largest = int(np.abs(product).max())
        if not largest:
            break
        bits = largest.bit_length() - DIRECTION_BITS
        direction = product >> bits if bits > 0 else product << -bits
    return direction
