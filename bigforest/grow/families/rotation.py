"""The family `rotation`: splits on the coordinates of a table that is rotated for every tree.

For each tree:

1. Divide the columns by their standard deviation, and draw axes: random directions, or principal components.
2. Project the rows of the bag on the axes, and presort the projections on each axis into codes (`rotate`).
3. Grow the tree on these codes as on features.
4. Write its nodes as terms in the units of the table (`in_terms`).

If `axes_from` names some features, each other feature is an axis of its own (`with_others`).

By passes a block of values is projected on the axes of each tree (`RotationTable.view`). Families with other axes
override `RotationFamily.axes`.

Principal components (Rodriguez, Kuncheva and Alonso 2006): the features of a tree are divided at random into disjoint
subsets. The components of a subset are computed from a sample of the rows. All components are kept, so a tree has as
many axes as features. With rotation "pca" the sample is about three quarters of all rows. With "pca-classes" it is
about three quarters of the rows of some classes in the tree's bag; the classes are drawn again for each subset, and a
row counts as often as it is in the bag. Values are counted in whole steps, so sums do not depend on batches of rows,
and the sums of blocks are added, in memory and by passes alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.columns.dataspec import DataSpec
from bigforest.errors import ConfigError
from bigforest.execution.process_cache import BufferPool
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.criteria import criterion_of
from bigforest.grow.families.family import TreeCall
from bigforest.grow.families.projection import (
    MEASURED,
    DecodedTable,
    ProjectionFamily,
    ProjectionTable,
    code_columns,
    column_of,
    decoded_bytes,
    places,
    random_access_bytes,
    tree_columns,
    with_thresholds,
)
from bigforest.grow.families.sparse_oblique import feature_scale
from bigforest.grow.feature_kinds import Features
from bigforest.grow.memory_model import PassMemory, TreeMemory, target_bytes
from bigforest.grow.out_of_core.context import Counts, GrowContext
from bigforest.grow.out_of_core.node_search import FeatureSearch, NodeSplit, SplitScorer
from bigforest.grow.out_of_core.probes import Direction, Histogram, Spans, feature_direction
from bigforest.grow.out_of_core.requests import root_request
from bigforest.grow.out_of_core.table import Passes
from bigforest.grow.out_of_core.upper_tree import Subtree, UpperTree
from bigforest.grow.row_codes import by_rows
from bigforest.grow.trees import TreeRows, tree_arrays
from bigforest.kernels.common.layout import LEAF, NUMBER, OBLIQUE, Codes, Terms
from bigforest.kernels.common.rng import PURPOSE_AXES, draw_rows, stream_key
from bigforest.kernels.oblique.directions import draw_axes, project_on_axes
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.out_of_core.blocks import NOT_FINITE, BlockValues
from bigforest.kernels.tree.grow import grow
from bigforest.options.train_config import TrainConfig, check_axes_from
from bigforest.planning.memory import Shape
from bigforest.sampling.bags import Sampler, kept_trees
from bigforest.store.format import BLOCK_ROWS, block_count, block_span
from bigforest.store.store import Dictionaries, Store

# Rows that are decoded and projected at a time, so that their values stay in the cache.
_BLOCK = 4096
# Rodriguez 2006, section 5: components of 75% of the rows.
_SAMPLE = 0.75
# Values are counted in this many steps of their column's range, so that sums of products are exact in 64 bits.
_STEPS = 2.0**15
_MAX_SWEEPS = 60
# Streams of random numbers of a tree: 0 divides the features (or draws random axes), 1 + subset samples rows, and
# _CLASSES + subset draws classes.
_CLASSES = 2**32


def rotated_features(spec: DataSpec, config: TrainConfig) -> NDArray[np.intp]:
    """Return the positions of the features that axes are made of, ascending. Raise ConfigError for a missing one."""
    if not config.axes_from:
        return np.arange(len(spec.features))
    place_of = {feature.name: place for place, feature in enumerate(spec.features)}
    check_axes_from(config, place_of)
    return np.sort([place_of[name] for name in config.axes_from])


def with_others(
    config: TrainConfig, axes: NDArray[np.float64], rotated: NDArray[np.intp], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Extend axes of the rotated features, float64 [axes, rotated], to all features.

    Each feature that is not rotated gets an axis of its own, after the others.

    scale  float64 [features], see RotationFamily.tree_axes

    Raise ConfigError if the method `axes` of the family returned another shape.
    """
    shape = config.axis_count(scale.size) - (scale.size - rotated.size), rotated.size
    if axes.shape != shape:
        raise ConfigError(
            f"the family {config.family} made axes of shape {list(axes.shape)}; its method `axes` must return "
            f"{shape[0]} axes of {shape[1]} features each"
        )
    if rotated.size == scale.size:
        return axes
    others = np.setdiff1d(np.arange(scale.size), rotated)
    all_axes = np.zeros((len(axes) + others.size, scale.size))
    all_axes[: len(axes), rotated] = axes
    all_axes[len(axes) + np.arange(others.size), others] = scale[others]
    return all_axes


def random_axes(config: TrainConfig, tree: int, scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return random directions, float64 [axes, features], each weight multiplied by the scale of its feature."""
    axes = np.empty((config.axes or scale.size, scale.size))
    with np.errstate(over="ignore"):
        draw_axes(axes_key(config.seed, tree, 0), config.orthogonal, axes)
    return axes * scale


def rotate(store: Store, axes: NDArray[np.float64], rows: NDArray[np.int64]) -> tuple[Codes, Dictionaries]:
    """Return the projections of `rows` on axes: codes of all rows of the store, and values of the codes.

    `rows` ascend. All other rows have code 0. An axis with a projection that is not finite has a single code.
    """
    projections = np.empty((len(axes), rows.size))
    for start in range(0, rows.size, _BLOCK):
        piece = rows[start : start + _BLOCK]
        projections[:, start : start + piece.size] = project_rows_on(axes, piece.size, partial(_values, store, piece))
    projections[~np.isfinite(projections).all(axis=1)] = 0.0
    return code_columns(projections, len(axes), store.rows, rows)


def _values(store: Store, rows: Any, feature: int) -> NDArray[np.float64]:
    """Return the values of a feature in some rows."""
    values: NDArray[np.float64] = store.low(feature)[store.feature_codes(feature)[rows]]
    return values


def project_rows_on(
    axes: NDArray[np.float64], rows: int, values_of: Callable[[int], NDArray[Any]]
) -> NDArray[np.float64]:
    """Return the projections of some rows on axes, float64 [axes, rows].

    values_of  returns the values of a feature in these rows
    """
    used = np.flatnonzero(axes.any(axis=0))
    values, projections = np.empty((used.size, rows)), np.empty((len(axes), rows))
    for place, feature in enumerate(used.tolist()):
        values[place] = values_of(feature)
    project_on_axes(values, np.ascontiguousarray(axes[:, used]), projections)
    return projections


def in_terms(tree: TreeArrays, axes: NDArray[np.float64]) -> TreeArrays:
    """Replace the numbers of axes in a tree by their terms."""
    inner = tree.feature != LEAF
    if not inner.any():
        return tree
    used = tree.feature[inner]
    features = [np.flatnonzero(axis).astype(np.int32) for axis in axes]
    size = np.zeros(inner.size, np.int64)
    size[inner] = np.count_nonzero(axes, axis=1)[used]
    feature = np.concatenate([features[axis] for axis in used])
    weight = np.concatenate([axes[axis, features[axis]] for axis in used])
    start = np.concatenate([[0], np.cumsum(size)])
    return tree._replace(feature=np.where(inner, np.int32(OBLIQUE), tree.feature), terms=Terms(start, feature, weight))


def axes_key(seed: int, tree: int, stream: int) -> np.uint64:
    """Return the key of a stream of random numbers for the axes of a tree."""
    return stream_key(seed, PURPOSE_AXES, tree, stream)


def in_steps(spans: Spans, feature: int, values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return values of a feature in whole steps above the smallest value; zeros if the size of a step is 0."""
    if not step_size(spans, feature):
        return np.zeros(values.size, np.int64)
    low = spans.low[feature]
    steps: NDArray[np.int64] = np.rint((values - low) / (spans.high[feature] - low) * _STEPS).astype(np.int64)
    return steps


def step_size(spans: Spans, feature: int) -> float:
    """Return the size of a step of a feature; 0 if its range is 0 or not finite."""
    span = float(spans.high[feature]) - float(spans.low[feature])
    return span / _STEPS if 0.0 < span < math.inf else 0.0


def principal_axes_of(
    sampler: Sampler, tree: int, rotated: NDArray[np.intp], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the principal components of the rows of a store as axes.

    rotated, scale  positions of the features that the axes are made of, and the scale of each
    """
    store, features = sampler.store, rotated.tolist()
    ends = [store.ends(feature) for feature in features]
    spans = Spans(*np.array(ends).T)
    sums = np.zeros(moments_shape(sampler.config, scale.size), np.int64)
    for block in range(block_count(store.rows)):
        rows = block_span(store.rows, block)

        def values(place: int, rows: range = rows) -> NDArray[np.float64]:
            return _values(store, slice(rows.start, rows.stop), features[place])

        sums += moments(sampler, tree, rows, spans, values)
    return principal_axes(sampler.config, tree, scale, spans, sums)


def moments_shape(config: TrainConfig, features: int) -> tuple[int, int, int]:
    """Return the shape of `moments`: [subsets, 1 + features of a subset, the same again]."""
    size = min(config.subset_features, features)
    return -(-features // size), 1 + size, 1 + size


def subsets(config: TrainConfig, tree: int, features: int) -> list[NDArray[np.int64]]:
    """Divide the features into disjoint random subsets, each with principal components of its own."""
    order = np.argsort(_random(axes_key(config.seed, tree, 0), 0, features), kind="stable")
    size = config.subset_features
    return [np.sort(order[start : start + size]) for start in range(0, features, size)]


def drawn_classes(config: TrainConfig, tree: int, subset: int, classes: int) -> NDArray[np.bool_]:
    """Draw the classes whose rows the components of a subset use, each with probability 1/2. Repeat while none is
    drawn."""
    key, begin = axes_key(config.seed, tree, _CLASSES + subset), 0
    while True:
        drawn: NDArray[np.bool_] = _random(key, begin, begin + classes) < np.uint64(2**63)
        if drawn.any():
            return drawn
        begin += classes


def moments(
    sampler: Sampler, tree: int, rows: range, spans: Spans, values: Callable[[int], NDArray[np.float64]]
) -> NDArray[np.int64]:
    """Sum the products of the features of each subset, in steps, over its sample of the rows of a block.

        rows    sum a     sum b             first row and column: products with the constant 1
        sum a   sum a*a   sum a*b
        sum b   sum a*b   sum b*b

    spans   ranges of the features that axes are made of
    values  returns the values of one of these features, by its place among them, in these rows

    Returns int64 `moments_shape`. The moments of blocks can be added.
    """
    config, features = sampler.config, spans.low.size
    sums = np.zeros(moments_shape(config, features), np.int64)
    bag, target = np.ones(len(rows), np.int64), None
    if config.rotation == "pca-classes":
        bag = sampler.block(tree, rows.start // BLOCK_ROWS).astype(np.int64)
        target = sampler.store.labels(rows.start, rows.stop)
    for subset, members in enumerate(subsets(config, tree, features)):
        sample = _random(axes_key(config.seed, tree, subset + 1), rows.start, rows.stop) < np.uint64(_SAMPLE * 2**64)
        if target is not None:
            classes = len(sampler.store.spec.target.classes)
            sample &= drawn_classes(config, tree, subset, classes)[target] & (bag > 0)
        columns = np.ones((1 + members.size, np.count_nonzero(sample)), np.int64)
        for place, feature in enumerate(members.tolist()):
            columns[1 + place] = in_steps(spans, feature, values(feature)[sample])
        sums[subset, : 1 + members.size, : 1 + members.size] = (columns * bag[sample]) @ columns.T
    return sums


def principal_axes(
    config: TrainConfig, tree: int, scale: NDArray[np.float64], spans: Spans, sums: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the principal components of the subsets as axes, from the `moments` of all rows.

    A subset without rows in its sample keeps its features as they are.
    """
    axes = np.zeros((scale.size, scale.size))
    start = 0
    for members, total in zip(subsets(config, tree, scale.size), sums, strict=True):
        unit = np.array([step_size(spans, int(feature)) for feature in members]) * scale[members]
        axes[start : start + members.size][:, members] = _eigenvectors(
            _covariance(total, members.size) * np.outer(unit, unit)
        )
        start += members.size
    return axes * scale


def _random(key: np.uint64, begin: int, end: int) -> NDArray[np.uint64]:
    """Return the random numbers of a stream from number `begin` to before number `end`."""
    return draw_rows(key, np.arange(begin, end, dtype=np.uint64))


def _covariance(total: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    """Return covariances from exact sums, see `moments`."""
    (rows, *sums), *products = total.tolist()
    rows = max(rows, 1)
    return np.array(
        [[(rows * products[i][1 + j] - sums[i] * sums[j]) / rows**2 for j in range(size)] for i in range(size)]
    )


def _eigenvectors(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the eigenvectors of a small symmetric matrix as rows, by Jacobi's rotations in a fixed order."""
    rest, vectors = matrix.copy(), np.eye(len(matrix))
    pairs = [(j, i) for i in range(len(matrix)) for j in range(i)]
    with np.errstate(all="ignore"):
        for _ in range(_MAX_SWEEPS):
            sizes = np.diag(rest)
            if (np.tril(np.abs(rest), -1) <= 1e-14 * np.sqrt(np.abs(np.outer(sizes, sizes)))).all():
                break
            for p, q in pairs:
                _rotate_pair(rest, vectors, p, q)
    return vectors


def _rotate_pair(rest: NDArray[np.float64], vectors: NDArray[np.float64], p: int, q: int) -> None:
    """Make entry (p, q) of `rest` zero by a rotation of rows and columns p and q. Rotate `vectors` likewise."""
    if rest[p, q] == 0.0:
        return
    theta = float(rest[q, q] - rest[p, p]) / (2.0 * float(rest[p, q]))
    t = math.copysign(1.0, theta) / (abs(theta) + math.sqrt(theta * theta + 1.0)) if abs(theta) < 1e150 else 0.5 / theta
    c = 1.0 / math.sqrt(t * t + 1.0)
    s = t * c
    for first, second in ((rest[:, p], rest[:, q]), (rest[p], rest[q]), (vectors[p], vectors[q])):
        first[:], second[:] = c * first - s * second, s * first + c * second


class TreeAxes(NamedTuple):
    """The axes of a tree.

    weight  float64 [axes, features], in units of the table
    spans   bounds of the finite projections on each axis
    lost    bool [axes], axes that are not used: some row of the bag has no finite projection
    """

    weight: NDArray[np.float64]
    spans: Spans
    lost: NDArray[np.bool_]


@dataclass(slots=True)
class AxisSearch(FeatureSearch):
    """The search for a split on a coordinate of a rotated table; spans: of the coordinates."""

    spans: Spans

    def _histogram(self, feature: int, most: int) -> Histogram:
        return Histogram.on(feature, feature_direction(feature), self.spans, most)

    def split(self) -> NodeSplit | None:
        split = FeatureSearch.split(self)
        return None if split is None else split._replace(direction=feature_direction(split.feature))


@dataclass(frozen=True)
class RotationTable(ProjectionTable):
    """A ProjectionTable whose columns are the axes of a tree.

    scale    float64 [features], see RotationFamily.tree_axes
    rotated  positions of the features that axes are made of
    axes     RotationFamily.axes
    """

    scale: NDArray[np.float64]
    rotated: NDArray[np.intp]
    axes: Callable[[TrainConfig, int, NDArray[np.float64]], NDArray[np.float64]]

    @property
    def columns(self) -> int:
        """Number of axes."""
        return self.sampler.config.axis_count(self.scale.size)

    def tree_data(self, trees: Sequence[int], totals: Counts, passes: Passes) -> list[TreeAxes]:
        """Return the axes of each tree. An axis is lost if not all projections of the bag on it are finite."""
        sums: Sequence[NDArray[np.int64] | None] = [None] * len(trees)
        if self.sampler.config.has_components:
            sums = [*passes.executor.reduce(RotationTable.sum_moments, passes.ranges, np.add, (self, trees))]
        axes = [self._axes(*each) for each in zip(trees, sums, strict=True)]
        nowhere = Spans(np.zeros(self.columns), np.zeros(self.columns))
        probes = [Histogram.on(column, feature_direction(column), nowhere, 2) for column in range(self.columns)]
        requests = [root_request(tree, data, *probes) for tree, data in zip(trees, axes, strict=True)]
        lost = [response.mark & NOT_FINITE != 0 for response in passes.responses(RotationTable.answer, requests)]
        return [data._replace(lost=tree_lost) for data, tree_lost in zip(axes, lost, strict=True)]

    def sum_moments(self, trees: Sequence[int], blocks: range) -> NDArray[np.int64]:
        """Task: return the moments of the subsets of each tree over some blocks, [trees, *moments_shape]."""
        sums = np.zeros(1, np.int64)
        with self.reader(blocks, range(self.scale.size), False) as reader:
            for block in blocks:
                cells = reader.read(block, range(self.scale.size))
                rows = block_span(self.store.rows, block)

                def values(place: int, cells: BlockValues = cells, size: int = len(rows)) -> NDArray[np.float64]:
                    return column_of(cells, int(self.rotated[place]))[:size].astype(np.float64, copy=False)

                sums = sums + np.stack(
                    [moments(self.sampler, tree, rows, self._rotated_spans, values) for tree in trees]
                )
        return sums

    def _axes(self, tree: int, sums: NDArray[np.int64] | None) -> TreeAxes:
        """Return the axes of a tree, from its moments if they are principal components."""
        scale, table = self.scale[self.rotated], self.decoded.spans
        if sums is None:
            axes = self.axes(self.sampler.config, tree, scale)
        else:
            axes = principal_axes(self.sampler.config, tree, scale, self._rotated_spans, sums)
        weight = with_others(self.sampler.config, axes, self.rotated, self.scale)
        features = [np.flatnonzero(axis).astype(np.uint32) for axis in weight]
        parts = zip(features, weight, strict=True)
        ends = [Direction(feature, axis[feature], line=True).range(table) for feature, axis in parts]
        return TreeAxes(weight, Spans(*np.array(ends).T.copy()), np.zeros(self.columns, np.bool_))

    @property
    def _rotated_spans(self) -> Spans:
        spans = self.decoded.spans
        return Spans(spans.low[self.rotated], spans.high[self.rotated])

    def search(self, tree_data: TreeAxes, key: np.uint64, total: Counts, constant: NDArray[np.bool_]) -> AxisSearch:
        constant = constant | tree_data.lost
        return AxisSearch(self.context, SplitScorer(self.context, total), constant, key, tree_data.spans)

    def needed(self, columns: Collection[int]) -> list[int]:
        return np.flatnonzero(self.scale).tolist()

    def view(self, tree_data: TreeAxes, cells: BlockValues, rows: int, columns: Collection[int] | None) -> BlockValues:
        axes = np.arange(self.columns) if columns is None else np.array(sorted(columns), np.int64)
        projections = project_rows_on(tree_data.weight[axes], rows, lambda feature: column_of(cells, feature)[:rows])
        place = np.zeros((self.columns, 2), np.uint32)
        place[axes] = places(8, axes.size)
        none = np.empty((0, rows))
        narrow, bits = none.astype(np.float32), none.astype(np.uint8)
        return BlockValues(read_only(narrow), read_only(projections), read_only(bits), place)

    def place(self, tree_data: TreeAxes) -> NDArray[np.uint32]:
        return places(8, self.columns)

    def grow_below(
        self, tree_data: TreeAxes, cells: Sequence[NDArray[Any]], subtree: TreeRows, room: BufferPool
    ) -> Subtree:
        columns = tree_columns(cells, self.place(tree_data))
        fit = (np.zeros_like(column) if tree_data.lost[axis] else column for axis, column in enumerate(columns))
        codes, dictionaries = code_columns(fit, len(columns), subtree.items.size)
        nodes, _ = grow(codes, by_rows(codes, room.arrays), *subtree)
        size = np.zeros(nodes.feature.size, np.uint32)
        pool = DirectionExtras(np.empty(size.size), size, np.zeros(0, np.int32), np.zeros(0), np.zeros(1, np.uint64))
        return nodes, with_thresholds(nodes, dictionaries, pool)

    def pieces(self, top: UpperTree, folder: Path) -> Iterator[TreeArrays]:
        return (in_terms(nodes, top.tree_data.weight) for nodes in super().pieces(top, folder))


class RotationFamily(ProjectionFamily):
    """A family of trees that split on projections on axes, as on features. Each tree has its own axes."""

    name = "rotation"
    splits_on = ("one coordinate of the table, standardised and rotated for every tree", "Rodriguez et al. 2006")
    options_of = name
    oracle = "tests/naive/rotation.py"
    compiling = (142, 15.0)
    variants = ({"rotation": "pca"}, {"rotation": "pca-classes"})

    def axes(self, config: TrainConfig, tree: int, scale: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the axes of a tree, float64 [config.axes or features, features], if they do not depend on the rows.

        scale  float64 [features], see `tree_axes`; here of the features that axes are made of
        """
        return random_axes(config, tree, scale)

    def tree_axes(self, sampler: Sampler, tree: int, scale: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the axes of a tree in units of the table, float64 [axes, features]; 0 if a feature is not used.

        scale  float64 [features], 1 / deviation of each feature, or 0 (`feature_scale`)
        """
        config = sampler.config
        rotated = rotated_features(sampler.store.spec, config)
        if config.has_components:
            axes = principal_axes_of(sampler, tree, rotated, scale[rotated])
        else:
            axes = self.axes(config, tree, scale[rotated])
        return with_others(config, axes, rotated, scale)

    def drawn_from(self, features: int, config: TrainConfig) -> int:
        return config.axis_count(features)

    def max_terms(self, features: int, config: TrainConfig) -> float:
        rotated = config.rotated_count(features)
        return min(config.subset_features, rotated) if config.has_components else rotated

    def tree_memory(self, shape: Shape, config: TrainConfig, rows: int, splits: int) -> TreeMemory:
        axes = self.drawn_from(shape.features, config)
        codes = 2 * 4 * axes * shape.rows  # by columns and by rows
        tree = self.grown_term_bytes(shape, config, splits) + codes + 24 * axes * rows + shape.rows * MEASURED
        tree += sum(_component_bytes(shape, config))
        return TreeMemory(shape.rows * (shape.row_bytes + MEASURED), tree, random_access_bytes(shape))

    def pass_memory(self, shape: Shape, config: TrainConfig) -> PassMemory:
        axes = self.drawn_from(shape.features, config)
        drawn = axes if config.feature_fraction is not None else config.drawn_features(axes)
        sums, sampled = _component_bytes(shape, config)
        target = target_bytes(shape)
        return PassMemory(
            drawn=drawn,
            # Values of a row three times, and its projections; `picked` has the copy that is written.
            block=BLOCK_ROWS * (24 * shape.features + 8 * axes + 68 + (12 + target) * (drawn + 1)) + sampled,
            picked=BLOCK_ROWS * (8 * axes + target),
            row=24 * axes + target,
            spilled=8 * axes,
            node=self.node_term_bytes(shape, config),
            kept=(24 * axes * shape.features + sums) * kept_trees(shape, config),
            before=1 + config.has_components,  # lost axes; moments, if axes depend on rows
            decoded=decoded_bytes(shape) * shape.features,
            sweeps=3,  # a deviation needs the mean first
        )

    def shared(self, store: Store, config: TrainConfig) -> NDArray[np.float64]:
        """Return the scale of the features, see `tree_axes`."""
        return feature_scale(store, "zscore")

    def grow(self, call: TreeCall, shared: NDArray[np.float64]) -> TreeArrays:
        store, config = call.sampler.store, call.sampler.config
        axes = self.tree_axes(call.sampler, call.first, shared)
        codes, dictionaries = rotate(store, axes, (call.rows.items >> np.uint64(32)).astype(np.intp))
        nodes, _ = grow(codes, by_rows(codes), *call.rows)
        scale = store.spec.target.scale
        return in_terms(tree_arrays(nodes, dictionaries, criterion_of(config), scale=scale), axes)

    def projection_table(
        self, store: Store, sampler: Sampler, context: GrowContext, decoded: DecodedTable
    ) -> RotationTable:
        scale = feature_scale(store, "zscore", context.limits.values)
        rotated, axes = rotated_features(store.spec, sampler.config), sampler.config.axis_count(scale.size)
        context = context._replace(
            features=Features((0,) * axes, np.full(axes, NUMBER, np.uint8), np.ones(axes, np.int64))
        )
        return RotationTable(store, sampler, context, decoded, scale, rotated, self.axes)


def _component_bytes(shape: Shape, config: TrainConfig) -> tuple[int, int]:
    """Return the bytes of the moments, and of a block of rows while its moments are computed.

    The moments count twice because the moments of blocks are added to them. A block needs the values of a subset twice,
    and the sample. Both numbers are 0 for random axes.
    """
    if not config.has_components:
        return 0, 0
    sums = 2 * 8 * math.prod(moments_shape(config, config.rotated_count(shape.features)))
    return sums, min(shape.rows, BLOCK_ROWS) * (16 * min(config.subset_features, shape.features) + 48)


FAMILIES = (RotationFamily(),)
