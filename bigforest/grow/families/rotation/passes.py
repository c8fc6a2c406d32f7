"""Rotation trees that do not fit in memory: the table for passes (oblique/passes.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.families.oblique.passes import ProjectionTable, SubtreeScratch
from bigforest.grow.families.rotation.components import Grid, moments, principal_axes
from bigforest.grow.families.rotation.trees import in_terms, with_others
from bigforest.grow.out_of_core.decoded_table import DecodedTable, column_of, places
from bigforest.grow.out_of_core.feature_search import FeatureSearch
from bigforest.grow.out_of_core.node_search import NodeSplit
from bigforest.grow.out_of_core.node_stats import Counts
from bigforest.grow.out_of_core.probes import Histogram, Spans, projection_range, single
from bigforest.grow.out_of_core.requests import SplitRequest, SplitResponse, root_request
from bigforest.grow.out_of_core.split_scorer import SplitScorer
from bigforest.grow.out_of_core.table import TreeOwn
from bigforest.grow.shared.encode_values import code_columns, with_thresholds
from bigforest.grow.shared.feature_kinds import Features
from bigforest.kernels.columns.row_major import by_rows
from bigforest.kernels.oblique.rotation import project_on_axes
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.out_of_core.blocks import BlockValues
from bigforest.kernels.scan.categorical_missing import NUMBER
from bigforest.kernels.tree.builder import CodeTree
from bigforest.kernels.tree.grow import grow
from bigforest.schema.config import TrainConfig


class TreeAxes(NamedTuple):
    """The own data of a tree.

    weight  float64 [axes, features], in units of the table
    spans   of the projections on them
    lost    bool [axes], those on which some row of the bag has no finite projection; they are not used
    """

    weight: NDArray[np.float64]
    spans: Spans
    lost: NDArray[np.bool_]


@dataclass(slots=True)
class AxisSearch(FeatureSearch):
    """The search for a split on a coordinate of a rotated table; spans: of the coordinates."""

    spans: Spans

    def _histogram(self, feature: int, most: int) -> Histogram:
        return Histogram.on(feature, single(feature), self.spans, most)

    def cut(self) -> NodeSplit | None:
        """See HistogramSearch."""
        cut = FeatureSearch.cut(self)
        return None if cut is None else cut._replace(direction=single(cut.feature))


@dataclass(frozen=True)
class RotationTable(ProjectionTable):
    """See ProjectionTable. scale: float64 [features], and axes: see RotationFamily; rotated: positions of the features
    that axes are made of."""

    scale: NDArray[np.float64]
    rotated: NDArray[np.intp]
    axes: Callable[[TrainConfig, int, NDArray[np.float64]], NDArray[np.float64]]

    @property
    def columns(self) -> int:
        """How many axes there are."""
        return self.sampler.config.axis_count(self.scale.size)

    @property
    def sampled(self) -> bool:
        """See ProjectionTable."""
        return self.sampler.config.has_components

    def sample(self, tree: int, rows: range, cells: BlockValues) -> NDArray[np.int64]:
        """See ProjectionTable: the moments of each subset of features."""

        def values(place: int) -> NDArray[np.float64]:
            return column_of(cells, int(self.rotated[place]))[: len(rows)].astype(np.float64, copy=False)

        return moments(self.sampler, tree, rows, self._grid, values)

    def survey(self, tree: int, sample: NDArray[np.int64] | None) -> SplitRequest:
        """See ProjectionTable: whether all projections of the bag are finite."""
        scale = self.scale[self.rotated]
        if sample is None:
            axes = self.axes(self.sampler.config, tree, scale)
        else:
            axes = principal_axes(self.sampler.config, tree, scale, self._grid, sample)
        weight = with_others(axes, self.rotated, self.scale)
        used = [axis != 0.0 for axis in weight]
        parts = zip(weight, used, strict=True)
        table = self.decoded.spans
        ends = [projection_range(axis[here], table.low[here], table.high[here]) for axis, here in parts]
        low, high = np.array(ends).T.copy()
        own = TreeAxes(weight, Spans(low, high), np.zeros(self.columns, np.bool_))
        nowhere = Spans(np.zeros(self.columns), np.zeros(self.columns))
        probes = [Histogram.on(column, single(column), nowhere, 2) for column in range(self.columns)]
        return root_request(tree, self.context.stats, own, probes)

    @property
    def _grid(self) -> Grid:
        spans = self.decoded.spans
        return Grid(spans.low[self.rotated], spans.high[self.rotated])

    def own_of(self, tree: int, total: Counts, request: SplitRequest | None, response: SplitResponse | None) -> TreeOwn:
        """See ProjectionTable."""
        assert request is not None
        assert response is not None
        lost = response.mark != 0
        return request.own._replace(lost=lost), lost

    def search(self, own: TreeAxes, key: np.uint64, scorer: SplitScorer, constant: NDArray[np.bool_]) -> AxisSearch:
        """See TableView."""
        limits = self.context.limits
        features = Features((0,) * self.columns, np.full(self.columns, NUMBER, np.uint8))
        sizes = (limits.keys, limits.cells, limits.room)
        return AxisSearch.start(key, scorer, self.context.rules, features, constant, *sizes, own.spans)

    def needed(self, columns: Collection[int]) -> list[int]:
        """See TableView."""
        found: list[int] = np.flatnonzero(self.scale).tolist()
        return found

    def view(self, own: TreeAxes, cells: BlockValues, rows: int, columns: Collection[int] | None) -> BlockValues:
        """See TableView."""
        axes = np.arange(self.columns) if columns is None else np.array(sorted(columns), np.int64)
        weight = own.weight[axes]
        used = np.flatnonzero(weight.any(axis=0))
        values = np.empty((used.size, rows))
        for at, feature in enumerate(used.tolist()):
            values[at] = column_of(cells, feature)[:rows]
        projections = np.empty((axes.size, rows))
        project_on_axes(values, np.ascontiguousarray(weight[:, used]), projections)
        place = np.zeros((self.columns, 2), np.uint32)
        place[axes] = places(8, axes.size)
        none = np.empty((0, rows))
        return BlockValues(none.astype(np.float32), projections, none.astype(np.uint8), place)

    def layout(self, own: TreeAxes) -> DecodedTable:
        """See ProjectionTable."""
        return self.decoded._replace(place=places(8, self.columns))

    def grow_below(
        self, own: TreeAxes, columns: Sequence[NDArray[Any]], subtree: SubtreeScratch
    ) -> tuple[CodeTree, DirectionExtras]:
        """See ProjectionTable."""
        fit = (np.zeros_like(column) if own.lost[axis] else column for axis, column in enumerate(columns))
        codes, dictionaries = code_columns(fit, len(columns), subtree.items.size)
        nodes, _ = grow(codes, by_rows(codes), *subtree)
        size = np.zeros(nodes.feature.size, np.uint32)
        pool = DirectionExtras(np.empty(size.size), size, np.zeros(0, np.int32), np.zeros(0), np.zeros(1, np.uint64))
        return nodes, with_thresholds(nodes, dictionaries, pool)

    def finished(self, own: TreeAxes, nodes: TreeArrays) -> TreeArrays:
        """See ProjectionTable."""
        return in_terms(nodes, own.weight)
