"""Tables whose trees split on projections: every cell has a value, missing ones and categories too.

The levels of categories have the values of level_values.py. The value of the missing cells of a number is the mean of
the values that are there, each row counting once whatever its weight. If it is one of the values, or within a bin, it
is moved up past it, or below all values: missing cells can then be told from all others by thresholds. Where no number
is free it stays. A feature that no row lacks has the mean of the first rows, as float32, for rows that are predicted.
The values are part of the forest (`FeatureSpec.fill`, `Levels.value`). The store on disk is as for all families.
Oracle: tests/naive/fill.py, tests/naive/level_values.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigforest.common.arrays import read_only
from bigforest.execution.resources import Resources
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.shared.level_values import LevelValues, level_values
from bigforest.kernels.common.layout import Codes
from bigforest.schema.config import TrainConfig
from bigforest.schema.dataspec import DataSpec
from bigforest.store.format import block_count, block_span
from bigforest.store.store import Store

# Values are counted in this many steps of their range, so that their sum is exact.
_STEPS = 2.0**30
# The first rows, for features that no row lacks: reading all would take up to a hundredth of growing.
_FIRST_ROWS = 4_096
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def filled_store(store: Store, config: TrainConfig, resources: Resources) -> Store:
    """The store with values for missing cells and levels, if trees of `config`, which has its min_level, split on
    projections of values; else as encoded.

    Reads the columns with missing values once, and categories with the target twice.
    """
    store, features = store.as_encoded(), store.spec.features
    if not config.fills_missing:
        return store
    categories = [place for place, feature in enumerate(features) if feature.kind == "category"]
    gaps = [place for place, feature in enumerate(features) if feature.missing and feature.kind == "numeric"]
    executor = resources.executor()
    values = executor.gather(level_values, [(store, config, place) for place in categories])
    levels = dict(zip(categories, values, strict=True))
    found = dict(zip(gaps, executor.gather(fill_of, [(store, place) for place in gaps]), strict=True))
    store.fetch(None, range(1))  # at once
    for place, feature in enumerate(features):
        if place in levels:
            own = levels[place]
            found[place] = float(own.by_code()[0]) if feature.missing else own.other
        elif place not in found:
            found[place] = usual_value(store, place)
    fills = tuple(found[place] for place in range(len(features)))
    return PutFills(fills, tuple(levels.items()))(store)


@dataclass(frozen=True)
class PutFills:
    """From a store to the same with values for missing cells of the features, and for the levels of categories; for
    other processes too."""

    fills: tuple[float, ...]
    levels: tuple[tuple[int, LevelValues], ...]

    def __call__(self, store: Store) -> Store:
        values = {place: (own.by_code(), own.other) for place, own in self.levels}
        return store.with_fills(self.fills, values, self)


def fill_of(store: Store, feature: int) -> float:
    """Task: the value for the missing cells of a feature that some rows lack."""
    low, high, codes = store.low(feature)[1:], store.high(feature)[1:], _finite_codes(store, feature)
    if not codes:
        return 0.0
    fill = mean = float(not low[codes[0] - 1]) if len(codes) == 1 else _mean(store, feature, codes, store.rows)
    at = int(np.searchsorted(high, fill))
    with np.errstate(over="ignore"):  # beyond the largest number is infinity
        while at < low.size and low[at] <= fill:
            fill = float(np.nextafter(high[at], np.inf))
            at += 1
        if fill == np.inf:
            fill = float(np.nextafter(low[codes[0] - 1], -np.inf))
    return fill if fill > -np.inf else mean


def usual_value(store: Store, feature: int) -> float:
    """The value for missing cells of a feature that no row lacks."""
    codes = _finite_codes(store, feature)
    mean = _mean(store, feature, codes, min(store.rows, _FIRST_ROWS)) if codes else 0.0
    return float(np.float32(np.clip(mean, -_LARGEST_FLOAT32, _LARGEST_FLOAT32)))


def _finite_codes(store: Store, feature: int) -> range:
    """The codes of the finite values of a feature."""
    first = int(store.spec.features[feature].missing)
    values = store.low(feature)[first:]
    return range(first + int(values.searchsorted(-np.inf, "right")), first + int(values.searchsorted(np.inf)))


def _mean(store: Store, feature: int, codes: range, rows: int) -> float:
    """The mean of a feature over its first rows with some of its codes, to the nearest of _STEPS steps of the range of
    these in each row, whatever the order of rows; the lowest value if there are no such rows."""
    values = store.low(feature)
    low, high = float(values[codes[0]]), float(values[codes[-1]])
    unit = 1.0 if high - low < np.inf else 0.5
    low, span = low * unit, high * unit - low * unit
    total = count = 0
    for block in range(block_count(rows) if span else 0):
        here = block_span(rows, block)
        own = store.feature_codes(feature, range(block, block + 1))[here.start : here.stop]
        present = values[own[(own >= codes.start) & (own < codes.stop)]]
        total += int(np.rint((present * unit - low) / span * _STEPS).sum())
        count += present.size
    return (low + total / (max(count, 1) * int(_STEPS)) * span) / unit


def ordered_store(store: Store) -> Store:
    """A store with values for missing cells and levels, with codes in the order of the values; for growing in memory.

    Equal values become one code; the last codes then have no rows, and the largest value. Memory: the codes of the
    widths that these features have, and the values of all codes.
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
        own = slice(offsets[place], offsets[place + 1])
        _, first, code = np.unique(low[own], return_index=True, return_inverse=True)
        order = np.append(first, np.full(code.size - first.size, first[-1]))
        for values in ends:
            values[own] = values[own][order]
        column = matrices[features[place].width][features[place].slot]
        np.take(code.astype(column.dtype), column, out=column, mode="clip")
    low, high = (read_only(ends[0]), read_only(ends[-1])) if len(ends) == 2 else [read_only(ends[0])] * 2
    return store.with_codes(Codes._make([*map(read_only, matrices.values()), codes.place]), low, high)


def with_defaults(trees: TreeArrays, spec: DataSpec) -> TreeArrays:
    """The trees, whose nodes on a single feature that rows lack say to which side these go with its value."""
    filled = np.array([feature.is_filled for feature in spec.features])
    if not filled.any() or spec.fills is None:
        return trees
    feature = np.maximum(trees.feature, 0)
    goes_left = spec.fills[feature] <= trees.threshold
    return trees._replace(default_left=np.where((trees.feature >= 0) & filled[feature], goes_left, trees.default_left))
