"""Give every cell of a table a value, for trees that split on projections: missing cells and levels of categories.

Missing cells of a numeric feature (`fill_of`) get the mean of its finite values. A value in a bin counts as the lowest
of the bin, and each row counts once, whatever its weight. A threshold must be able to separate missing cells from all
others. So if the mean is a value of the feature or lies within a bin, missing cells get the next higher free number; if
there is none, the number just below all finite values; if that is not finite, the mean. If only one finite value or bin
occurs, 0 takes the place of the mean, or 1 if its lowest value is 0. Without finite values, missing cells get 0.

    values   1   2   3   missing         mean 2 is a value, so missing cells get the next float64 after 2

A table to predict may have missing values of a feature that has none in the training table. These cells get the mean of
the first training rows, as float32 (`usual_value`).

Each level of a category gets a number (`level_values`), from a mean over its rows. It is the mean target in regression,
the share of the second of two classes, and with more classes the mean coefficient of the class in the first principal
component of the class shares (kernels/scan/level_order.py). The means are scaled: the lowest becomes 0, the highest 1.
A level of fewer than `min_level` rows gets the mean of all rows, because the mean of a few rows would tell trees the
targets of these rows. A level that did not occur gets this mean, too. Missing is one more level. Each row counts once,
whatever its weight; rows that are held out do not count.

The values are part of the forest (`FeatureSpec.fill`, `Levels.value`). The store on disk does not contain them; a
`Store` with values is a view of it. Oracle: tests/naive/fill.py, tests/naive/level_values.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.columns.dataspec import DataSpec
from bigforest.execution.resources import Resources
from bigforest.forest.nodes import TreeArrays
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.common.rng import draw_rows
from bigforest.kernels.scan.level_order import DEVIATION_BITS, DIRECTION_BITS, POWER_STEPS
from bigforest.options.train_config import TrainConfig
from bigforest.sampling.bags import held_out_of
from bigforest.store.format import block_count, block_span
from bigforest.store.store import Store

# Values are counted in this many steps of their range, so that their sum is exact.
_STEPS = 2.0**30
# Rows for the mean of a feature without missing values. Reading all rows would take up to a hundredth of the time of
# growing.
_FIRST_ROWS = 4_096
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


class LevelValues(NamedTuple):
    """The values of a category.

    packed  values of the codes, float32 [codes], as bytes, so that == compares two LevelValues
    other   value of levels that did not occur
    """

    packed: bytes
    other: float

    def by_code(self) -> NDArray[np.float32]:
        """Return the values of the codes."""
        return np.frombuffer(self.packed, np.float32)


def level_values(store: Store, config: TrainConfig, feature: int) -> LevelValues:
    """Task: return the values of the levels of a category.

    Memory: a few numbers for each level, and a count of each class for each level of at least min_level rows.
    """
    sizes = np.zeros(store.spec.features[feature].codes, np.int64)
    for codes, _ in _rows(store, config, feature):
        sizes += np.bincount(codes, minlength=sizes.size)
    large = np.flatnonzero(sizes >= config.min_levels(len(store.spec.features))[feature])
    group = np.full(sizes.size, large.size)  # the last group has all other levels
    group[large] = np.arange(large.size)
    sums = _sums(store, config, feature, group, large.size + 1)
    rows = np.bincount(group, sizes, large.size + 1).astype(np.int64)
    # Sums of whole numbers are exact, so the order of rows does not change a bit.
    means = np.append(sums[:-1] / rows[:-1], sums.sum() / rows.sum())
    least, span = means.min(), np.ptp(means)
    values = ((means - least) / span if span > 0.0 else np.zeros(means.size)).astype(np.float32)
    return LevelValues(values[group].tobytes(), float(values[-1]))


def _rows(store: Store, config: TrainConfig, feature: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield, block by block, the codes of the rows that are not held out, and their classes or target numbers."""
    most = store.spec.features[feature].codes - 1
    for block in range(block_count(store.rows)):
        span = block_span(store.rows, block)
        codes = store.feature_codes(feature, range(block, block + 1))[span.start : span.stop]
        codes = np.minimum(codes, most).astype(np.int64)  # higher only if another process writes to the store meanwhile
        labels = store.labels(span.start, span.stop).astype(np.int64)
        held_out = held_out_of(store, config, span.start, span.stop)
        yield (codes, labels) if held_out is None else (codes[~held_out], labels[~held_out])


def _sums(store: Store, config: TrainConfig, feature: int, group: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """Return the sums over the rows of each group of levels, int64 [groups]: of targets, or of coefficients of classes.

    group  int64 [codes], group of each level
    """
    classes = len(store.spec.target.classes)
    if not classes:
        sums = np.zeros(groups, np.int64)
        for codes, numbers in _rows(store, config, feature):
            np.add.at(sums, group[codes], numbers)
        return sums
    counts = np.zeros((groups, classes), np.int64)
    for codes, labels in _rows(store, config, feature):
        counts += np.bincount(group[codes] * classes + labels, minlength=counts.size).reshape(counts.shape)
    present = counts[counts.any(axis=1)]
    direction = np.arange(classes) if classes <= 2 else principal_component(present)
    return counts @ direction


def principal_component(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first principal component of the class shares of groups of rows, int64 [classes].

    counts  int64 [groups, classes], no group without rows

    It is computed in whole numbers, as in kernels/scan/level_order.py for a node.
    """
    weight = counts.sum(axis=1)
    start = draw_rows(np.uint64(0), np.arange(counts.shape[1], dtype=np.uint64))
    direction = (start >> np.uint64(64 - DIRECTION_BITS)).astype(np.int64)
    for _ in range(POWER_STEPS):
        sums = counts @ direction
        mean = (int(sums.sum()) << DEVIATION_BITS) // int(weight.sum())
        product = ((sums << DEVIATION_BITS) // weight - mean) @ counts
        largest = int(np.abs(product).max())
        if not largest:
            break
        bits = largest.bit_length() - DIRECTION_BITS
        direction = product >> bits if bits > 0 else product << -bits
    return direction


def filled_store(store: Store, config: TrainConfig, resources: Resources) -> Store:
    """Return the store with values for missing cells and levels, if trees of `config` split on projections of values.

    config  with its final min_level

    Reads the columns with missing values once, categories with the target twice, and the first rows of the others.
    """
    store, features = store.as_encoded(), store.spec.features
    if not config.fills_missing:
        return store
    categories = [place for place, feature in enumerate(features) if feature.kind == "category"]
    gaps = [place for place, feature in enumerate(features) if feature.missing and feature.kind == "numeric"]
    executor = resources.executor()
    values = executor.gather(level_values, [(store, config, place) for place in categories])
    levels = dict(zip(categories, values, strict=True))
    fill_values = dict(zip(gaps, executor.gather(fill_of, [(store, place) for place in gaps]), strict=True))
    store.fetch(None, range(1))  # all features at once
    for place, feature in enumerate(features):
        if place in levels:
            category_values = levels[place]
            fill_values[place] = float(category_values.by_code()[0]) if feature.missing else category_values.other
        elif place not in fill_values:
            fill_values[place] = usual_value(store, place)
    fills = tuple(fill_values[place] for place in range(len(features)))
    return PutFills(fills, tuple(levels.items()))(store)


@dataclass(frozen=True)
class PutFills:
    """A function that adds values for missing cells and for levels of categories to a store; can be pickled."""

    fills: tuple[float, ...]
    levels: tuple[tuple[int, LevelValues], ...]

    def __call__(self, store: Store) -> Store:
        values = {place: (category_values.by_code(), category_values.other) for place, category_values in self.levels}
        return store.with_fills(self.fills, values, self)


def fill_of(store: Store, feature: int) -> float:
    """Task: return the value for the missing cells of a feature."""
    low, high, codes = store.low(feature)[1:], store.high(feature)[1:], _finite_codes(store, feature)
    if not codes:
        return 0.0
    other = 1.0 if low[codes[0] - 1] == 0.0 else 0.0
    fill = mean = other if len(codes) == 1 else _mean(store, feature, codes, store.rows)
    at = int(np.searchsorted(high, fill))
    with np.errstate(over="ignore"):  # beyond the largest number is infinity
        while at < low.size and low[at] <= fill:
            fill = float(np.nextafter(high[at], np.inf))
            at += 1
        if fill == np.inf:
            fill = float(np.nextafter(low[codes[0] - 1], -np.inf))
    return fill if fill > -np.inf else mean


def usual_value(store: Store, feature: int) -> float:
    """Return the value for missing cells of a feature that has none in this table."""
    codes = _finite_codes(store, feature)
    mean = _mean(store, feature, codes, min(store.rows, _FIRST_ROWS)) if codes else 0.0
    return float(np.float32(np.clip(mean, -_LARGEST_FLOAT32, _LARGEST_FLOAT32)))


def _finite_codes(store: Store, feature: int) -> range:
    """Return the codes of the finite values of a feature."""
    first = int(store.spec.features[feature].missing)
    values = store.low(feature)[first:]
    return range(first + int(values.searchsorted(-np.inf, "right")), first + int(values.searchsorted(np.inf)))


def _mean(store: Store, feature: int, codes: range, rows: int) -> float:
    """Return the mean of a feature over the rows with a code in `codes`, among the first `rows` rows.

    If no row has such a code, return the lowest value. The range of the codes has _STEPS steps. Each value is rounded
    to the nearest step, so the order of rows does not matter.
    """
    values = store.low(feature)
    low, high = float(values[codes[0]]), float(values[codes[-1]])
    unit = 1.0 if high - low < np.inf else 0.5
    low, reach = low * unit, high * unit - low * unit
    total = count = 0
    for block in range(block_count(rows) if reach else 0):
        span = block_span(rows, block)
        block_codes = store.feature_codes(feature, range(block, block + 1))[span.start : span.stop]
        present = values[block_codes[(block_codes >= codes.start) & (block_codes < codes.stop)]]
        total += int(np.rint((present * unit - low) / reach * _STEPS).sum())
        count += present.size
    return (low + total / (max(count, 1) * int(_STEPS)) * reach) / unit


def ordered_store(store: Store) -> Store:
    """Return the store with new codes: ranks of all values, also of the values put in for missing cells and levels.

    Used for growing in memory. Equal values get the same code. The last codes then occur in no row; their value is the
    largest. Memory: a copy of all codes of each width that a feature with new codes has, and of the dictionaries.
    """
    filled = [feature.is_filled or feature.has_level_values for feature in store.spec.features]
    places = np.flatnonzero(filled).tolist()
    if not places:
        return store
    features, (offsets, low, high) = store.spec.features, store.dictionaries
    codes = store.codes
    widths = {features[place].width for place in places}
    matrices = {matrix.itemsize: matrix.copy() if matrix.itemsize in widths else matrix for matrix in codes[:3]}
    ends = [low.copy()] if high is low else [low.copy(), high.copy()]
    for place in places:
        span = slice(offsets[place], offsets[place + 1])
        _, first, code = np.unique(low[span], return_index=True, return_inverse=True)
        order = np.append(first, np.full(code.size - first.size, first[-1]))
        for values in ends:
            values[span] = values[span][order]
        column = matrices[features[place].width][features[place].slot]
        np.take(code.astype(column.dtype), column, out=column, mode="clip")
    low, high = (read_only(ends[0]), read_only(ends[-1])) if len(ends) == 2 else [read_only(ends[0])] * 2
    return store.with_codes(Codes._make([*map(read_only, matrices.values()), codes.place]), low, high)


def with_defaults(trees: TreeArrays, spec: DataSpec) -> TreeArrays:
    """Set `default_left` of nodes on a single filled feature to the side that the fill of the feature goes to."""
    filled = np.array([feature.is_filled for feature in spec.features])
    if not filled.any() or spec.fills is None:
        return trees
    feature = np.maximum(trees.feature, 0)
    goes_left = spec.fills[feature] <= trees.threshold
    return trees._replace(default_left=np.where((trees.feature >= 0) & filled[feature], goes_left, trees.default_left))
