"""Sparse random projections, prepared for the kernels from a configuration and a store."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import ConfigError
from bigforest.grow.shared.encode_values import are_whole
from bigforest.kernels.columns.decoded import DecodedColumns
from bigforest.kernels.columns.project import MOST_WHOLE, CodeValues
from bigforest.kernels.common.layout import RowMajorCodes
from bigforest.kernels.oblique.directions import CHANCE, NORMAL, PLACED, Sparse
from bigforest.kernels.oblique.mean_difference import (
    ALL,
    CONSECUTIVE,
    LARGEST_CLASS,
    NO_PAIRS,
    STEPS,
    Means,
    find_differences,
    make_means,
    project_differences,
    sum_root,
)
from bigforest.kernels.oblique.search import Oblique, make_oblique
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Store

# Most cells of a random matrix that are listed while a node is split.
_MOST_CELLS = 2**28
# Codes counted at a time.
_CHUNK = 1 << 16
# Larger scales would overflow weights; such features are practically constant.
_LARGEST_SCALE = 2.0**500


_PAIRINGS = {"none": NO_PAIRS, "consecutive": CONSECUTIVE, "vs-largest": LARGEST_CLASS, "all": ALL}


class SparseDraws(NamedTuple):
    """The directions that nodes draw.

    pairing, by_node, unit  see kernels/oblique/mean_difference.py Means
    span  float64 [features], the range of each that has STEPS steps, see `step_of`
    """

    sparse: Sparse
    pairing: int
    by_node: bool
    unit: NDArray[np.float64]
    span: NDArray[np.float64]

    @property
    def of_tree(self) -> bool:
        """Whether class means are those of the tree."""
        return self.pairing != NO_PAIRS and not self.by_node

    def steps_of(self, columns: Sequence[NDArray[np.float64]], least: Sequence[float]) -> NDArray[np.uint32]:
        """The values of all features in steps, one feature after the other; empty where no differences of means are
        wanted. least: the smallest value of each in the table."""
        if self.pairing == NO_PAIRS:
            return np.zeros(0, np.uint32)
        return np.concatenate([in_steps(*each) for each in zip(columns, least, self.span.tolist(), strict=True)])

    def means(self, step: NDArray[np.uint32], classes: int, rows: int) -> Means:
        """Scratch for class means; step, rows: see Means."""
        return make_means(self.pairing, self.by_node, step, self.unit, classes, rows)


class SparseObliqueTrees(NamedTuple):
    """Data that all trees of a sparse-oblique forest share.

    step  see kernels/oblique/mean_difference.py Means; empty where no differences of means are wanted
    """

    draws: SparseDraws
    values: CodeValues
    step: NDArray[np.uint32]

    def scratch(self, store: Store, by_row: RowMajorCodes, items: NDArray[np.uint64], tree: int) -> Oblique:
        """Scratch for growing tree number `tree` from the root `items`."""
        classes = len(store.spec.target.classes)
        means = self.draws.means(self.step, classes, store.rows)
        oblique = make_oblique(self.draws.sparse, means, store.codes, self.values, items.size, not classes)
        if self.draws.of_tree:
            total = np.empty(classes, np.int64)
            sum_root(store.codes, by_row, self.values, items, total, means, np.empty(items.size, np.uint32))
            find_differences(means, self.draws.sparse.scale, total)
            project_differences(store.codes, by_row, self.values, items, means, oblique.value[0])
        return oblique


def sparse_trees(
    store: Store, config: TrainConfig, wide: DecodedColumns, most: int | None = None
) -> SparseObliqueTrees:
    """Data that all trees of a sparse-oblique forest share. Raises ConfigError where its matrices would not fit in
    memory.

    wide  of the store
    most  codes of a feature that may be counted at once, for growing by passes, which does not need the steps of all
          codes; None for all.
    """
    features = len(store.spec.features)
    offsets, low, _ = store.dictionaries
    values = values_of(offsets, low, wide)
    pairing = _PAIRINGS[config.mean_difference]
    ends = [store.ends(feature) for feature in range(features)]
    steps = [step_of(*own, whole) for own, whole in zip(ends, values.whole.tolist(), strict=True)]
    span, unit = np.array(steps).T.copy()
    sparse = _sparse(config, features, feature_scale(store, config.normalize, most))
    draws = SparseDraws(sparse, pairing, config.mean_difference_scope == "node", unit, span)
    columns = [] if most is not None else [store.low(feature) for feature in range(features)]
    step = draws.steps_of(columns, [least for least, _ in ends]) if columns else np.zeros(0, np.uint32)
    return SparseObliqueTrees(draws, values, step)


def step_of(least: float, greatest: float, whole: bool) -> tuple[float, float]:
    """The range of a feature that has STEPS steps, and the size of a step, from its smallest and largest value.

    whole  whether all values are whole numbers. The range is 0 where each unit is a step; -1, and size 0, without a
           range.
    """
    span = greatest - least
    if whole and span <= STEPS:
        return 0.0, 1.0
    if not 1.0 / _LARGEST_SCALE < span < math.inf:
        return -1.0, 0.0
    return span, span / STEPS


def in_steps(values: NDArray[np.float64], least: float, span: float) -> NDArray[np.uint32]:
    """Values of a feature in steps from the smallest on, as kernels/out_of_core/blocks.py sum_rows counts them; span as
    `step_of` gives it."""
    if span < 0.0:
        return np.zeros(values.size, np.uint32)
    steps = values - least if span == 0.0 else np.rint((values - least) / span * STEPS)
    return steps.astype(np.uint32)


def _sparse(config: TrainConfig, features: int, scale: NDArray[np.float64]) -> Sparse:
    columns = config.drawn_projections(features)
    kind, density = config.projection_kind, config.density
    way, cells, chance = PLACED, columns, 0.0
    if kind == "sporf":
        cells = max(1, round((density or 1.0 / features) * features * columns))
    elif kind != "rerf":
        way, cells = (NORMAL, 0) if kind == "gaussian" else (CHANCE, 0)
        chance = density or (1.0 if kind == "gaussian" else 1.0 / math.sqrt(features))
    if cells > min(_MOST_CELLS, features * columns):
        raise ConfigError(
            f"{columns} projections of {features} features with {cells} weights are too many for the kind {kind}; "
            "lower projections or density"
        )
    return Sparse(way, np.uint64(columns), np.uint64(cells), np.uint64(int(chance * 2**53)), scale)


def values_of(offsets: NDArray[np.int64], low: NDArray[np.float64], wide: DecodedColumns) -> CodeValues:
    """The values of all codes and rows, for the kernels."""
    columns = [low[start:end] for start, end in pairwise(offsets)]
    whole = [are_whole(values, MOST_WHOLE) for values in columns]
    return CodeValues(offsets, low, np.array(whole), wide)


def feature_scale(store: Store, normalize: str, most: int | None = None) -> NDArray[np.float64]:
    """The factor of each feature's weight: 1, or 1 / deviation, or 1 / range; 0 if that is not a finite number.

    most  codes of a feature that may be counted at once; None for all.
    """
    features = len(store.spec.features)
    spread = np.ones(features)
    if normalize == "zscore":
        spread = np.array([_deviation(store, feature, most) for feature in range(features)])
    elif normalize == "minmax":
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.array([np.subtract(*store.ends(feature)[::-1]) for feature in range(features)])
    scale = np.zeros(features)
    fit = np.isfinite(spread) & (spread > 1.0 / _LARGEST_SCALE)
    scale[fit] = 1.0 / spread[fit]
    return scale


def _deviation(store: Store, feature: int, most: int | None) -> float:
    """Standard deviation of a column. Sums are rounded once, so they do not depend on the order of the rows."""
    low = store.low(feature)
    if not np.isfinite(store.ends(feature)).all():
        return math.nan

    def total(of: Callable[[NDArray[np.int64], NDArray[np.float64]], NDArray[np.float64]]) -> float:
        pieces = _counts(store, feature, most)
        values = (of(counts, low[first : first + counts.size]).tolist() for first, counts in pieces)
        return math.fsum(itertools.chain.from_iterable(values))

    with np.errstate(over="ignore"):
        try:
            mean = total(lambda counts, values: counts * (values / store.rows))
            return math.sqrt(total(lambda counts, values: counts * ((values - mean) ** 2 / store.rows)))
        except (OverflowError, ValueError):  # the values, or their squares, overflow
            return math.inf


def _counts(store: Store, feature: int, most: int | None) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Rows of each code of a feature in pieces of at most `most` codes, a sweep over the codes for each, cut so that
    what is worked out of them is small: the first code of a piece, and the counts."""
    size = store.low(feature).size
    for start in range(0, size, most or size):
        counts = store.counts(feature) if most is None else _count_some(store, feature, start, min(most, size - start))
        for first in range(0, counts.size, _CHUNK):
            yield start + first, counts[first : first + _CHUNK]


def _count_some(store: Store, feature: int, start: int, size: int) -> NDArray[np.int64]:
    """Rows of `size` codes from `start` on."""
    counts = np.zeros(size, np.int64)
    column = store.feature_codes(feature)
    for first in range(0, store.rows, _CHUNK):
        codes = column[first : first + _CHUNK]
        inside = codes[(codes >= start) & (codes < start + size)]
        np.add.at(counts, inside - np.int64(start), 1)
    return counts
