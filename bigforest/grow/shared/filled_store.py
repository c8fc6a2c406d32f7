"""Missing values of tables whose trees split on projections: every feature has a value for them.

It is the mean of the values that are there, each row counting once whatever its weight. If it is one of the values, or
within a bin, it is moved up past it: missing cells can then be told from all others by thresholds. A feature that no
row lacks has the mean of the first rows, as float32, for rows that are predicted. The values are part of the dataspec
of the forest (`FeatureSpec.fill`). The store on disk is as for all families. Oracle: tests/naive/fill.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigforest.common.arrays import read_only
from bigforest.execution.resources import Resources
from bigforest.forest.format.nodes import TreeArrays
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
    """The store with a value for missing cells, if trees of `config` split on projections of values; else as encoded.

    Reads the columns with missing values once. A store with categories stays as it is.
    """
    store, features = store.as_encoded(), store.spec.features
    if not config.fills_missing or any(feature.kind == "category" for feature in features):
        return store
    gaps = [(store, place) for place, feature in enumerate(features) if feature.missing]
    found = iter(resources.executor().gather(fill_of, gaps))
    store.fetch(None, range(1))  # at once
    fills = [next(found) if feature.missing else usual_value(store, place) for place, feature in enumerate(features)]
    return PutFills(tuple(fills))(store)


@dataclass(frozen=True)
class PutFills:
    """From a store to the same with values for missing cells of the features; for other processes too."""

    fills: tuple[float, ...]

    def __call__(self, store: Store) -> Store:
        return store.with_fills(self.fills, self)


def fill_of(store: Store, feature: int) -> float:
    """Task: the value for the missing cells of a feature that some rows lack."""
    low, high, codes = store.low(feature)[1:], store.high(feature)[1:], _finite_codes(store, feature)
    if not codes:
        return 0.0
    fill = float(not low[codes[0] - 1]) if len(codes) == 1 else _mean(store, feature, codes, store.rows)
    at = int(np.searchsorted(high, fill))
    while at < low.size and low[at] <= fill:
        fill = float(np.nextafter(high[at], np.inf))
        at += 1
    return fill if fill < np.inf else float(np.nextafter(low[codes[0] - 1], -np.inf))


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
    """A store with values for missing cells, with codes in the order of the values; for growing in memory.

    Memory: the codes of the widths that features with such cells have, and the values of all codes.
    """
    places = [place for place, feature in enumerate(store.spec.features) if feature.is_filled]
    if not places:
        return store
    features, (offsets, low, high) = store.spec.features, store.dictionaries
    codes = store.codes
    widths = {features[place].width for place in places}
    matrices = {matrix.itemsize: matrix.copy() if matrix.itemsize in widths else matrix for matrix in codes[:3]}
    ends = [low.copy()] if high is low else [low.copy(), high.copy()]
    for place in places:
        own = slice(offsets[place], offsets[place + 1])
        order = np.argsort(low[own], kind="stable")
        for values in ends:
            values[own] = values[own][order]
        column = matrices[features[place].width][features[place].slot]
        np.take(np.argsort(order).astype(column.dtype), column, out=column, mode="clip")
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
