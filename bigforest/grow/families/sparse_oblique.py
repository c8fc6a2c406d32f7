"""The family `sparse-oblique`: splits on sparse random projections of features.

Each node draws some directions: columns of a sparse random matrix (`Sparse`) and, with `mean_difference`, differences
of class means of the tree or of the node. In memory, kernels draw them (kernels/oblique/search.py). By passes, a large
node draws the same directions here (`DirectionSearch`), and passes project its rows on them. Class means need sums,
which are requested one pass earlier: by each node, or once by the tree before it grows. If no direction can be split,
features are tried one by one.

`SparseDraws` has the data for both ways: the random matrix, the scale of features, and the steps in which features are
summed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import ConfigError, api
from bigforest.execution.process_cache import BufferPool
from bigforest.grow.families.projection import (
    MEASURED,
    DecodedTable,
    ProjectionFamily,
    ProjectionTable,
    are_whole,
    code_columns,
    decoded_bytes,
    random_access_bytes,
    tree_columns,
    with_thresholds,
)
from bigforest.grow.filled_store import ordered_store
from bigforest.grow.memory_model import PassMemory, TreeMemory, code_bytes, target_bytes
from bigforest.grow.out_of_core.context import Counts, GrowContext
from bigforest.grow.out_of_core.node_search import HistogramSearch, NodeSplit, SplitScorer
from bigforest.grow.out_of_core.probes import (
    Answer,
    Direction,
    Histogram,
    HistogramCounts,
    Probe,
    Spans,
    StepSums,
    feature_direction,
)
from bigforest.grow.out_of_core.requests import root_request
from bigforest.grow.out_of_core.table import Passes
from bigforest.grow.out_of_core.upper_tree import Subtree
from bigforest.grow.row_codes import by_rows, checked_rows
from bigforest.grow.trees import TreeRows
from bigforest.kernels.columns.project import MOST_WHOLE
from bigforest.kernels.common.layout import CodeValues, RowMajorCodes
from bigforest.kernels.oblique.directions import CHANCE, NORMAL, PLACED, Sparse, make_drawn
from bigforest.kernels.oblique.mean_difference import (
    ALL,
    CONSECUTIVE,
    LARGEST_CLASS,
    NO_PAIRS,
    STEPS,
    Means,
    find_differences,
    make_means,
    max_pairs,
    project_differences,
    sum_root,
)
from bigforest.kernels.oblique.search import Oblique, make_oblique
from bigforest.kernels.out_of_core.blocks import NOT_FINITE, Steps
from bigforest.kernels.out_of_core.node_steps import draw_direction, draw_order, offered_differences
from bigforest.kernels.scan.draw import make_feature_draw
from bigforest.kernels.tree.grow import grow
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape
from bigforest.sampling.bags import Sampler, kept_trees
from bigforest.store.format import BLOCK_ROWS
from bigforest.store.store import Dictionaries, Store

# Most cells of a random matrix that are listed while a node is split.
_MAX_CELLS = 2**28
# Codes counted at a time.
_CHUNK = 1 << 16
# Larger scales would overflow weights; the features are practically constant.
_LARGEST_SCALE = 2.0**500


_PAIRINGS = {"none": NO_PAIRS, "consecutive": CONSECUTIVE, "vs-largest": LARGEST_CLASS, "all": ALL}
# Further bytes of a row of a growing tree: projections on two directions 16, scratch for sorting projections 24.
_PROJECTED = 40
# Default of the option `density`, the share of the features with a weight in a direction, by the number of features.
_DENSITY: dict[str, Callable[[int], float]] = {
    "rerf": lambda features: 1.0 / features,
    "sporf": lambda features: 1.0 / features,
    "gaussian": lambda features: 1.0,
    "very-sparse": lambda features: 1.0 / math.sqrt(features),  # this form, because the bits decide draws
}


class SparseDraws(NamedTuple):
    """Data from which nodes draw directions.

    pairing, by_node, unit  see kernels/oblique/mean_difference.py Means
    span                    float64 [features], range of each feature, divided into STEPS steps, see `step_of`
    """

    sparse: Sparse
    pairing: int
    by_node: bool
    unit: NDArray[np.float64]
    span: NDArray[np.float64]

    @property
    def of_tree(self) -> bool:
        """True if class means are computed on the tree, not on the node."""
        return self.pairing != NO_PAIRS and not self.by_node

    def steps_of(self, columns: Sequence[NDArray[np.float64]], least: Sequence[float]) -> NDArray[np.uint32]:
        """Return the values of all features in steps, one feature after the other; empty without differences of means.

        least  smallest value of each feature in the table
        """
        if self.pairing == NO_PAIRS:
            return np.zeros(0, np.uint32)
        return np.concatenate([in_steps(*each) for each in zip(columns, least, self.span.tolist(), strict=True)])

    def means(self, step: NDArray[np.uint32], classes: int, rows: int) -> Means:
        """Return scratch for class means; step, rows: see Means."""
        return make_means(self.pairing, self.by_node, step, self.unit, classes, rows)


class SparseObliqueTrees(NamedTuple):
    """Data that all trees of a sparse-oblique forest share.

    whole  see `whole_features`
    step   see kernels/oblique/mean_difference.py Means; empty without differences of means, and for passes
    """

    draws: SparseDraws
    values: CodeValues
    whole: NDArray[np.bool_]
    step: NDArray[np.uint32]

    def scratch(self, store: Store, items: NDArray[np.uint64], tree: int) -> Oblique:
        """Return scratch for growing tree number `tree` from the root `items`."""
        classes = len(store.spec.target.classes)
        means = self.draws.means(self.step, classes, store.rows)
        rules = (self.draws.sparse, means)
        oblique = make_oblique(*rules, store.codes, self.values, self.whole, items.size, not classes)
        if self.draws.of_tree:
            total = np.empty(classes, np.int64)
            sum_root(store.codes, self.values, items, total, means, np.empty(items.size, np.uint32))
            find_differences(means, self.draws.sparse.scale, total)
            project_differences(store.codes, self.values, items, means, oblique.value[0])
        return oblique


def sparse_trees(store: Store, config: TrainConfig, most: int | None = None) -> SparseObliqueTrees:
    """Return the data that all trees share. Raise ConfigError if a random matrix would have too many weights to list.

    most  codes of a feature that may be counted at once, for growing by passes. None for growing in memory: count all
          codes, and make the steps of all values
    """
    features = len(store.spec.features)
    offsets, low, _ = store.dictionaries
    values = CodeValues(offsets, low)
    whole = whole_features(values)
    pairing = _PAIRINGS[config.mean_difference]
    ends = [store.ends(feature) for feature in range(features)]
    steps = [step_of(*span_ends, is_whole) for span_ends, is_whole in zip(ends, whole.tolist(), strict=True)]
    span, unit = np.array(steps).T.copy()
    sparse = _sparse(config, features, feature_scale(store, config.normalize, most))
    draws = SparseDraws(sparse, pairing, config.mean_difference_scope == "node", unit, span)
    columns = [] if most is not None else [store.low(feature) for feature in range(features)]
    step = draws.steps_of(columns, [least for least, _ in ends]) if columns else np.zeros(0, np.uint32)
    return SparseObliqueTrees(draws, values, whole, step)


def step_of(least: float, greatest: float, whole: bool) -> tuple[float, float]:
    """Return the range of a feature that is divided into STEPS steps, and the size of a step.

    least, greatest  smallest and largest value of the feature
    whole            True if all values are whole numbers

    If each unit is a step, the range is returned as 0. If it is tiny or not finite, -1 and the size 0 are returned.
    """
    span = greatest - least
    if whole and span <= STEPS:
        return 0.0, 1.0
    if not 1.0 / _LARGEST_SCALE < span < math.inf:
        return -1.0, 0.0
    return span, span / STEPS


def in_steps(values: NDArray[np.float64], least: float, span: float) -> NDArray[np.uint32]:
    """Return the values of a feature in steps above the smallest one, as `add_steps` of kernels/out_of_core/blocks.py.

    least  smallest value of the feature
    span   range of `step_of`
    """
    if span < 0.0:
        return np.zeros(values.size, np.uint32)
    steps = values - least if span == 0.0 else np.rint((values - least) / span * STEPS)
    return steps.astype(np.uint32)


def _sparse(config: TrainConfig, features: int, scale: NDArray[np.float64]) -> Sparse:
    columns, kind = config.drawn_projections(features), config.projection_kind
    density = config.density or _DENSITY[kind](features)
    if kind == "rerf":
        way, cells, chance = PLACED, columns, 0.0
    elif kind == "sporf":
        way, cells, chance = PLACED, max(1, round(density * features * columns)), 0.0
    else:
        way, cells, chance = NORMAL if kind == "gaussian" else CHANCE, 0, density
    if cells > min(_MAX_CELLS, features * columns):
        raise ConfigError(
            f"{columns} projections of {features} features with {cells} weights are too many for the kind {kind}; "
            f"lower {api('projections')} or {api('density')}"
        )
    return Sparse(way, np.uint64(columns), np.uint64(cells), np.uint64(int(chance * 2**53)), scale)


def whole_features(values: CodeValues) -> NDArray[np.bool_]:
    """Return True for each feature whose values are all whole numbers of absolute value up to MOST_WHOLE."""
    offsets, low = values
    return np.array([are_whole(low[start:end], MOST_WHOLE) for start, end in pairwise(offsets)])


def feature_scale(store: Store, normalize: str, most: int | None = None) -> NDArray[np.float64]:
    """Return the factor of the weights of each feature: 1, 1 / deviation, or 1 / range.

    It is 0 if the deviation or range is not finite, or so small that the feature is practically constant.

    most  codes of a feature that may be counted at once; None for all
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
    """Return the standard deviation of a column; nan or inf if a value is infinite, or squares overflow.

    Sums are rounded once, so they do not depend on the order of rows.
    """
    low, high = store.ends(feature)
    if low == high:  # the mean of equal values is rounded, so their deviation would be, too
        return 0.0
    if not (math.isfinite(low) and math.isfinite(high)):
        return math.nan

    def total(of: Callable[[NDArray[np.int64], NDArray[np.float64]], NDArray[np.float64]]) -> float:
        terms = (of(counts, values).tolist() for values, counts in _value_counts(store, feature, most))
        return math.fsum(itertools.chain.from_iterable(terms))

    with np.errstate(over="ignore"):
        try:
            mean = total(lambda counts, values: counts * (values / store.rows))
            return math.sqrt(total(lambda counts, values: counts * ((values - mean) ** 2 / store.rows)))
        except (OverflowError, ValueError):  # the values, or their squares, overflow
            return math.inf


def _value_counts(
    store: Store, feature: int, most: int | None
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Yield the values of a feature, in pieces, and the number of rows of each.

    most  codes that may be counted at once; each count sweeps over the codes of all rows. None for all codes
    """
    low = store.low(feature)
    if store.spec.features[feature].has_level_values:
        # In memory, levels of equal values are one code (filled_store.py `ordered_store`), so the product of count
        # and value is rounded once. Round it once here, too.
        values, code = np.unique(low, return_inverse=True)
        counts = np.zeros(values.size, np.int64)
        np.add.at(counts, code, _count_some(store, feature, 0, low.size))
        yield values, counts
        return
    for start in range(0, low.size, most or low.size):
        size = min(most or low.size, low.size - start)
        counts = store.counts(feature) if most is None else _count_some(store, feature, start, size)
        for first in range(0, counts.size, _CHUNK):
            piece = counts[first : first + _CHUNK]
            yield low[start + first : start + first + piece.size], piece


def _count_some(store: Store, feature: int, start: int, size: int) -> NDArray[np.int64]:
    """Return the number of rows of each of `size` codes from `start` on."""
    counts = np.zeros(size, np.int64)
    column = store.feature_codes(feature)
    for first in range(0, store.rows, _CHUNK):
        codes = column[first : first + _CHUNK]
        inside = codes[(codes >= start) & (codes < start + size)]
        np.add.at(counts, inside - np.int64(start), 1)
    return counts


@dataclass(slots=True)
class DirectionSearch(HistogramSearch):
    """The search for a split on a direction. A node draws the same directions as in kernels/oblique/search.py.

    spans           ranges of the features
    directions      directions that are not requested yet, by number
    max_directions  most directions that a node draws. Features that are tried have larger numbers
    fallback        features in the order in which they are tried if no direction is usable
    means           function that returns directions of class means from the sums of the node; None if the node needs
                    no sums
    """

    spans: Spans
    directions: dict[int, Direction]
    max_directions: int
    fallback: list[int]
    means: Callable[[NDArray[np.int64]], dict[int, Direction]] | None
    _known: dict[int, Direction] = field(default_factory=dict, init=False)  # directions that were requested
    _usable: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.means is not None:
            self.pending.append(StepSums(np.arange(self.spans.low.size, dtype=np.uint32)))
        self._draw()

    def split(self) -> NodeSplit | None:
        split = HistogramSearch.split(self)
        return None if split is None else split._replace(direction=self._known[split.feature])

    def _take(self, probe: Probe, answer: Answer) -> None:
        if isinstance(probe, StepSums):
            assert self.means is not None
            self.directions = self.means(answer)
        else:
            HistogramSearch._take(self, probe, answer)

    def _draw(self) -> None:
        """Request the directions. If none of them is usable, request features one by one until one is usable."""
        self._ask(self.directions)
        self.directions = {}
        while not self.pending and not self._usable and self.fallback:
            feature = self.fallback.pop(0)
            self._ask({self.max_directions + feature: feature_direction(feature)})

    def _ask(self, directions: dict[int, Direction]) -> None:
        most = self._max_buckets(self.scorer.rows)
        for number, direction in directions.items():
            if not (direction.is_feature and self.constant[direction.feature[0]]):
                self.pending.append(Histogram.on(number, direction, self.spans, most))
                self._known[number] = direction

    def _is_usable(self, probe: Histogram, answer: HistogramCounts) -> bool:
        direction = self._known[probe.number]
        if direction.is_feature:
            self.constant[direction.feature[0]] |= answer.low >= answer.high
        elif answer.mark & NOT_FINITE:  # a row without a finite projection: the direction is not used
            return False
        usable = answer.low < answer.high
        self._usable |= usable
        return usable


@dataclass(frozen=True)
class SparseObliqueTable(ProjectionTable):
    """A ProjectionTable. If class means are computed on the tree, the data of a tree are the sums of steps of its bag,
    int64 [features, classes], and its class weights; otherwise None."""

    draws: SparseDraws

    def tree_data(self, trees: Sequence[int], totals: Counts, passes: Passes) -> list[Any]:
        if not self.draws.of_tree:
            return [None] * len(trees)
        step_sums = StepSums(np.arange(self.draws.unit.size, dtype=np.uint32))
        asked = [root_request(tree, None, step_sums) for tree in trees]
        responses = zip(passes.responses(SparseObliqueTable.answer, asked), totals, strict=True)
        return [(response.sums, total[: self.context.stats.classes]) for response, total in responses]

    def search(self, tree_data: Any, key: np.uint64, total: Counts, constant: NDArray[np.bool_]) -> DirectionSearch:
        draws, columns, classes = self.draws, self.draws.sparse.columns, total[: self.context.stats.classes]
        present = int(np.count_nonzero(classes)) if draws.by_node else classes.size
        differences = np.zeros(max_pairs(draws.pairing, present), np.bool_)
        offered_differences(key, columns, np.uint64(draws.unit.size), differences)
        offered = [int(columns) + int(number) for number in np.flatnonzero(differences)]
        directions = drawn_directions(draws.sparse, key)
        if tree_data is not None:
            directions |= mean_differences(draws, offered, tree_data[1], tree_data[0])
        draw = make_feature_draw(draws.unit.size)
        draw_order(key, self.context.rules, draw)
        return DirectionSearch(
            self.context,
            SplitScorer(self.context, total),
            constant.copy(),
            spans=self.decoded.spans,
            directions=directions,
            max_directions=int(columns) + max_pairs(draws.pairing, classes.size),
            fallback=draw.perm.tolist(),
            means=partial(mean_differences, draws, offered, classes) if offered and draws.by_node else None,
        )

    def largest_equivalent(self, column: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        store = self.store
        if store.max_bins == "exact":
            return values
        order = np.argsort(store.low(column), kind="stable")  # `low` begins with the value of missing cells
        largest: NDArray[np.float64] = store.high(column)[order][store.low(column)[order].searchsorted(values)]
        return largest

    def grow_below(self, tree_data: Any, cells: Sequence[NDArray[Any]], subtree: TreeRows, room: BufferPool) -> Subtree:
        items, columns = subtree.items, tree_columns(cells, self.decoded.place)
        codes, (offsets, low, _) = code_columns(columns, len(columns), items.size)
        by_row = by_rows(codes, room.arrays)
        values = CodeValues(offsets, low)
        dictionaries = [low[start:end] for start, end in pairwise(offsets.tolist())]
        step = self.draws.steps_of(dictionaries, self.decoded.spans.low.tolist())
        means = self.draws.means(step, subtree.target.number, items.size)
        regression = subtree.target.value is not None
        rules = (self.draws.sparse, means)
        oblique = make_oblique(*rules, codes, values, whole_features(values), items.size, regression)
        if tree_data is not None:
            means.sums[:] = tree_data[0]
            total = tree_data[1].copy()  # arrays that another process sent may be read-only
            find_differences(means, self.draws.sparse.scale, total)
            project_differences(codes, values, items, means, oblique.value[0])
        nodes, pool = grow(codes, by_row, *subtree, oblique)
        high = [self.largest_equivalent(feature, values) for feature, values in enumerate(dictionaries)]
        return nodes, with_thresholds(nodes, Dictionaries(offsets, low, np.concatenate(high)), pool)


def drawn_directions(sparse: Sparse, key: np.uint64) -> dict[int, Direction]:
    """Return the directions that the node `key` draws, by number."""
    drawn, directions = make_drawn(sparse), {}
    at = np.uint64(0)
    for column in range(int(sparse.columns)):
        size, at = draw_direction(sparse, key, np.uint64(column), np.uint64(at), drawn)
        if size:
            directions[column] = Direction(drawn.feature[0, : int(size)].copy(), drawn.weight[0, : int(size)].copy())
    return directions


def mean_differences(
    draws: SparseDraws, offered: list[int], total: Counts, sums: NDArray[np.int64]
) -> dict[int, Direction]:
    """Return the `offered` differences of class means, by number.

    total, sums  class weights, int64 [classes], and sums of steps, int64 [features, classes]
    """
    means = draws._replace(by_node=False).means(np.zeros(0, np.uint32), total.size, 0)  # with room for all differences
    means.sums[:] = sums
    find_differences(means, draws.sparse.scale, total)
    sizes = enumerate(means.size[: int(means.pairs[0])].tolist(), int(draws.sparse.columns))
    terms = zip(sizes, means.feature, means.weight, strict=False)
    return {
        number: Direction(feature[:size].copy(), weight[:size].copy())
        for (number, size), feature, weight in terms
        if size and number in offered
    }


class SparseObliqueFamily(ProjectionFamily):
    """A family whose nodes draw a sparse random matrix and, with `mean_difference`, differences of class means."""

    name = "sparse-oblique"
    splits_on = (
        "one of about `projections` random sums of features, drawn in the node",
        "Tomita et al., Randomer forests",
    )
    options_of = name
    oracle = "tests/naive/oblique.py"
    compiling = (170, 30.0)
    variants = (
        {"mean_difference": "all", "mean_difference_scope": "tree"},
        {"mean_difference": "all", "mean_difference_scope": "node"},
        {"projection_kind": "gaussian"},
    )

    def max_terms(self, features: int, config: TrainConfig) -> float:
        terms = features * (config.density or _DENSITY[config.projection_kind](features))
        return features if config.mean_difference != "none" else min(features, 2.0 * terms + 1.0)

    def expected_reads(self, features: int, config: TrainConfig) -> float:
        return config.drawn_projections(features) * self.max_terms(features, config)

    def tree_memory(self, shape: Shape, config: TrainConfig, rows: int, splits: int) -> TreeMemory:
        tree = self.grown_term_bytes(shape, config, splits)
        tree += rows * _PROJECTED + 8 * config.drawn_projections(shape.features)
        shared = shape.rows * (shape.row_bytes + MEASURED)
        if shape.extras.filled:
            shared += code_bytes(shape) + 8 * shape.codes
        if config.mean_difference != "none":
            pairs = max_pairs(_PAIRINGS[config.mean_difference], shape.classes)
            shared += 8 * shape.codes
            tree += 8 * shape.features * shape.classes
            tree += pairs * (8 * shape.rows + 12 * shape.features) if config.mean_difference_scope == "tree" else 0
        return TreeMemory(shared, tree, random_access_bytes(shape))

    def pass_memory(self, shape: Shape, config: TrainConfig) -> PassMemory:
        pairs = max_pairs(_PAIRINGS[config.mean_difference], shape.classes)
        of_tree = pairs > 0 and config.mean_difference_scope == "tree"
        drawn = config.drawn_projections(shape.features) + pairs
        terms = self.node_term_bytes(shape, config)
        # For each cell the value, its code by columns and by rows, the distinct values, and their steps.
        row = (24 + (4 if pairs else 0)) * shape.features + _PROJECTED + (8 * pairs if of_tree else 0)
        value, target = decoded_bytes(shape), target_bytes(shape)
        return PassMemory(
            drawn=drawn,
            # The values of a row, and the bytes collected for it on each direction.
            block=BLOCK_ROWS * (8 * shape.features + 68 + (12 + target) * (drawn + 1)),
            picked=BLOCK_ROWS * (8 * shape.features + target),
            row=row + terms + target,
            spilled=value * shape.features,
            node=terms,
            kept=shape.features * (12 * pairs + 8 * shape.classes * of_tree) * kept_trees(shape, config),
            level=2 + (pairs > 0 and not of_tree),
            before=int(of_tree),
            decoded=value * shape.features,
            sweeps=3 if config.normalize == "zscore" else 1,  # a deviation needs the mean first
        )

    def codes(self, store: Store) -> tuple[Store, RowMajorCodes]:
        ordered = ordered_store(store)
        return ordered, checked_rows(ordered)

    def shared(self, store: Store, config: TrainConfig) -> SparseObliqueTrees:
        return sparse_trees(store, config)

    def projection_table(
        self, store: Store, sampler: Sampler, context: GrowContext, decoded: DecodedTable
    ) -> SparseObliqueTable:
        spans = decoded.spans
        draws = sparse_trees(store, sampler.config, context.limits.values).draws
        context = context._replace(steps=Steps(spans.low, draws.span, np.zeros(spans.low.size)))
        return SparseObliqueTable(store, sampler, context, decoded, draws)


FAMILIES = (SparseObliqueFamily(),)
