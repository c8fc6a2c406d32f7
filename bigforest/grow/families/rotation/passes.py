"""Rotation trees that do not fit in memory: what the passes know of the family (oblique/base.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.families.oblique.base import SubtreeScratch
from bigforest.grow.families.oblique.requests import ProjectionRequest, ProjectionResponse, range_question
from bigforest.grow.families.oblique.upper_tree import Ends
from bigforest.grow.families.rotation.components import Grid, moments, principal_axes
from bigforest.grow.families.rotation.trees import in_terms, with_others
from bigforest.grow.out_of_core.decoded_table import DecodedTable, column_of
from bigforest.grow.out_of_core.node_stats import Counts, NodeStats
from bigforest.grow.out_of_core.projection_search import AxisSearch, Spans, projection_range
from bigforest.grow.out_of_core.split_scorer import SplitScorer
from bigforest.grow.out_of_core.upper_tree import GrowContext
from bigforest.grow.shared.encode_values import code_columns, with_thresholds
from bigforest.grow.shared.feature_kinds import Features
from bigforest.kernels.columns.row_major import by_rows
from bigforest.kernels.oblique.rotation import project_rows
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.out_of_core.codes import draw_order
from bigforest.kernels.out_of_core.projections import BlockValues, Steps
from bigforest.kernels.scan.categorical_missing import NUMBER
from bigforest.kernels.scan.features import make_feature_draw
from bigforest.kernels.tree.builder import CodeTree
from bigforest.kernels.tree.grow import grow
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Store


class TreeAxes(NamedTuple):
    """What a tree has of its own.

    weight  float64 [axes, features], in units of the table
    spans   of the projections on them
    lost    bool [axes], those on which a row of the bag has no finite projection: they tell no rows apart
    """

    weight: NDArray[np.float64]
    spans: Spans
    lost: NDArray[np.bool_]


class RotationPasses(NamedTuple):
    """The family. scale: float64 [features], and axes: see RotationFamily; rotated: positions of the features that axes
    are made of."""

    config: TrainConfig
    scale: NDArray[np.float64]
    spans: Spans
    rotated: NDArray[np.intp]
    axes: Callable[[TrainConfig, int, NDArray[np.float64]], NDArray[np.float64]]

    @property
    def columns(self) -> int:
        """See Family."""
        return self.config.axis_count(self.scale.size)

    @property
    def steps(self) -> Steps:
        """See Family; no sums are asked for."""
        return Steps(*[np.zeros(0)] * 3)

    @property
    def sampled(self) -> bool:
        """See Family."""
        return self.config.has_components

    def sample(self, sampler: Sampler, tree: int, rows: range, cells: BlockValues) -> NDArray[np.int64]:
        """See Family: the moments of each subset of features."""
        features = self.rotated.tolist()
        return moments(sampler, tree, rows, self._grid, lambda place: column_of(cells, features[place], len(rows)))

    def survey(self, tree: int, stats: NodeStats, sample: NDArray[np.int64] | None) -> ProjectionRequest:
        """See Family: whether all projections of the bag are finite."""
        scale = self.scale[self.rotated]
        if sample is None:
            axes = self.axes(self.config, tree, scale)
        else:
            axes = principal_axes(self.config, tree, scale, self._grid, sample)
        weight = with_others(axes, self.rotated, self.scale)
        used = [axis != 0.0 for axis in weight]
        parts = zip(weight, used, strict=True)
        ends = [projection_range(axis[here], self.spans.low[here], self.spans.high[here]) for axis, here in parts]
        low, high = np.array(ends).T.copy()
        own = TreeAxes(weight, Spans(low, high), np.zeros(self.columns, np.bool_))
        return range_question(tree, stats, own, self.columns)

    @property
    def _grid(self) -> Grid:
        return Grid(self.spans.low[self.rotated], self.spans.high[self.rotated])

    def own(
        self, tree: int, request: ProjectionRequest | None, total: Counts, response: ProjectionResponse | None
    ) -> Any:
        """See Family."""
        assert request is not None
        assert response is not None
        lost = response.unfit > 0
        return request.own._replace(lost=lost), lost

    def search(
        self, own: TreeAxes, key: np.uint64, scorer: SplitScorer, constant: NDArray[np.bool_], context: GrowContext
    ) -> AxisSearch:
        """See Family."""
        draw = make_feature_draw(self.columns)
        wanted = int(draw_order(key, context.rules, draw))
        limits = context.limits
        features = Features((), np.full(self.columns, NUMBER, np.uint8))
        drawn = (context.rules, features, draw.perm, wanted, limits.room)
        search = AxisSearch(scorer, constant.copy(), limits.keys, limits.cells, *drawn, own.spans)
        return search.begin()

    def needed(self, columns: Iterable[int]) -> Iterable[int]:
        """See Family."""
        return np.flatnonzero(self.scale).tolist()

    def view(self, own: TreeAxes, cells: BlockValues, rows: int, columns: Collection[int] | None) -> BlockValues:
        """See Family."""
        axes = np.arange(self.columns) if columns is None else np.array(sorted(columns), np.int64)
        weight = own.weight[axes]
        used = np.flatnonzero(weight.any(axis=0))
        values = np.empty((used.size, rows))
        for at, feature in enumerate(used.tolist()):
            values[at] = column_of(cells, feature, rows)
        projections = np.empty((axes.size, rows))
        project_rows(values, np.ascontiguousarray(weight[:, used]), projections)
        place = np.zeros((self.columns, 2), np.uint32)
        place[axes] = _place(axes.size)
        none = np.empty((0, rows))
        return BlockValues(none.astype(np.float32), projections, none.astype(np.uint8), place)

    def layout(self, own: TreeAxes, decoded: DecodedTable) -> DecodedTable:
        """See Family."""
        return decoded._replace(place=_place(self.columns))

    def ends(self, store: Store) -> Ends:
        """See Family: every projection is one of its own."""
        return lambda axis, values: values

    def grow(
        self, own: TreeAxes, columns: Sequence[NDArray[Any]], subtree: SubtreeScratch, ends: Ends
    ) -> tuple[CodeTree, DirectionExtras]:
        """See Family."""
        fit = (np.zeros_like(column) if own.lost[axis] else column for axis, column in enumerate(columns))
        codes, dictionaries = code_columns(fit, len(columns), subtree.items.size)
        nodes = grow(codes, by_rows(codes), *subtree)
        size = np.zeros(nodes.feature.size, np.uint32)
        pool = DirectionExtras(np.empty(size.size), size, np.zeros(0, np.int32), np.zeros(0), np.zeros(1, np.uint64))
        return nodes, with_thresholds(nodes, dictionaries, pool)

    def finished(self, own: TreeAxes, nodes: TreeArrays) -> TreeArrays:
        """See Family."""
        return in_terms(nodes, own.weight)


def _place(axes: int) -> NDArray[np.uint32]:
    """Where projections are in their cells."""
    return np.array([(8, axis) for axis in range(axes)], np.uint32)
