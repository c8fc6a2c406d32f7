"""Rotation trees that do not fit in memory: the table for passes (projection.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.room import Room
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.families.projection import ProjectionTable
from bigforest.grow.families.rotation.components import Grid, moments, principal_axes
from bigforest.grow.families.rotation.trees import in_terms, project_rows_on, with_others
from bigforest.grow.out_of_core.assemble import Subtree
from bigforest.grow.out_of_core.context import Counts
from bigforest.grow.out_of_core.decoded_table import column_of, tree_columns
from bigforest.grow.out_of_core.feature_search import FeatureSearch
from bigforest.grow.out_of_core.node_search import NodeSplit
from bigforest.grow.out_of_core.probes import Direction, Histogram, Spans, feature_direction
from bigforest.grow.out_of_core.requests import root_request
from bigforest.grow.out_of_core.split_scorer import SplitScorer
from bigforest.grow.out_of_core.table import Passes, SubtreeScratch
from bigforest.grow.out_of_core.upper_tree import UpperTree
from bigforest.grow.shared.encode_values import code_columns, places, with_thresholds
from bigforest.kernels.columns.row_major import by_rows
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.out_of_core.blocks import NOT_FINITE, BlockValues
from bigforest.kernels.tree.grow import grow
from bigforest.schema.config import TrainConfig
from bigforest.store.format import block_span


class TreeAxes(NamedTuple):
    """The data of a tree.

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
        return Histogram.on(feature, feature_direction(feature), self.spans, most)

    def cut(self) -> NodeSplit | None:
        cut = FeatureSearch.cut(self)
        return None if cut is None else cut._replace(direction=feature_direction(cut.feature))


@dataclass(frozen=True)
class RotationTable(ProjectionTable):
    """See ProjectionTable; the features of its context are the axes.

    scale: float64 [features], and axes: see RotationFamily; rotated: positions of the features that axes are made of.
    """

    scale: NDArray[np.float64]
    rotated: NDArray[np.intp]
    axes: Callable[[TrainConfig, int, NDArray[np.float64]], NDArray[np.float64]]

    @property
    def columns(self) -> int:
        """How many axes there are."""
        return self.sampler.config.axis_count(self.scale.size)

    def tree_data(self, trees: Sequence[int], totals: Counts, passes: Passes) -> list[TreeAxes]:
        """See TableView; an axis is lost if not all projections of the bag on it are finite."""
        sums: Sequence[NDArray[np.int64] | None] = [None] * len(trees)
        if self.sampler.config.has_components:
            sums = [*passes.executor.reduce(RotationTable.sum_moments, passes.ranges, np.add, (self, trees))]
        axes = [self._axes(*each) for each in zip(trees, sums, strict=True)]
        nowhere = Spans(np.zeros(self.columns), np.zeros(self.columns))
        probes = [Histogram.on(column, feature_direction(column), nowhere, 2) for column in range(self.columns)]
        requests = [root_request(tree, data, *probes) for tree, data in zip(trees, axes, strict=True)]
        lost = [response.mark & NOT_FINITE != 0 for response in passes.responses(RotationTable.answer, requests)]
        return [data._replace(lost=here) for data, here in zip(axes, lost, strict=True)]

    def constant(self, tree_data: TreeAxes) -> NDArray[np.bool_]:
        return tree_data.lost

    def sum_moments(self, trees: Sequence[int], blocks: range) -> NDArray[np.int64]:
        """Task: the moments of each subset of features over some blocks for each of the trees, [trees, ...]."""
        sums = np.zeros(1, np.int64)
        with self.reader(blocks, range(self.scale.size), False) as reader:
            for block in blocks:
                cells = reader.read(block, range(self.scale.size))
                rows = block_span(self.store.rows, block)

                def values(place: int, cells: BlockValues = cells, size: int = len(rows)) -> NDArray[np.float64]:
                    return column_of(cells, int(self.rotated[place]))[:size].astype(np.float64, copy=False)

                sums = sums + np.stack([moments(self.sampler, tree, rows, self._grid, values) for tree in trees])
        return sums

    def _axes(self, tree: int, sums: NDArray[np.int64] | None) -> TreeAxes:
        """The axes of a tree, from its moments if they are components."""
        scale, table = self.scale[self.rotated], self.decoded.spans
        if sums is None:
            axes = self.axes(self.sampler.config, tree, scale)
        else:
            axes = principal_axes(self.sampler.config, tree, scale, self._grid, sums)
        weight = with_others(axes, self.rotated, self.scale)
        features = [np.flatnonzero(axis).astype(np.uint32) for axis in weight]
        parts = zip(features, weight, strict=True)
        ends = [Direction(feature, axis[feature], line=True).range(table) for feature, axis in parts]
        return TreeAxes(weight, Spans(*np.array(ends).T.copy()), np.zeros(self.columns, np.bool_))

    @property
    def _grid(self) -> Grid:
        spans = self.decoded.spans
        return Grid(spans.low[self.rotated], spans.high[self.rotated])

    def search(self, tree_data: TreeAxes, key: np.uint64, total: Counts, constant: NDArray[np.bool_]) -> AxisSearch:
        return AxisSearch(self.context, SplitScorer(self.context, total), constant.copy(), key, tree_data.spans)

    def needed(self, columns: Collection[int]) -> list[int]:
        return np.flatnonzero(self.scale).tolist()

    def view(self, tree_data: TreeAxes, cells: BlockValues, rows: int, columns: Collection[int] | None) -> BlockValues:
        axes = np.arange(self.columns) if columns is None else np.array(sorted(columns), np.int64)
        projections = project_rows_on(tree_data.weight[axes], rows, lambda feature: column_of(cells, feature)[:rows])
        place = np.zeros((self.columns, 2), np.uint32)
        place[axes] = places(8, axes.size)
        none = np.empty((0, rows))
        return BlockValues(none.astype(np.float32), projections, none.astype(np.uint8), place)

    def place(self, tree_data: TreeAxes) -> NDArray[np.uint32]:
        """See TableView: of the axes."""
        return places(8, self.columns)

    def grow_below(
        self, tree_data: TreeAxes, cells: Sequence[NDArray[Any]], subtree: SubtreeScratch, room: Room
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
