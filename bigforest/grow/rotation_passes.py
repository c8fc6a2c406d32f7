"""Rotation trees that do not fit in memory: what the passes know of the family (oblique_family.py)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.coded import code_columns, with_thresholds
from bigforest.grow.decoded import Decoded, column_of
from bigforest.grow.directions import AxisSearch, Spans, projection_range
from bigforest.grow.families import feature_scale
from bigforest.grow.features import Features
from bigforest.grow.judge import Judge
from bigforest.grow.oblique_family import Subtree
from bigforest.grow.oblique_question import DirectionQuestion, DirectionReply, range_question
from bigforest.grow.oblique_top import Ends
from bigforest.grow.rotation import Grid, in_sample, in_terms, moments, principal_axes, random_axes, subsets
from bigforest.grow.tally import Counts, Tally
from bigforest.grow.top import Ground
from bigforest.kernels.axis import make_draw
from bigforest.kernels.grow import grow
from bigforest.kernels.level import draw_order
from bigforest.kernels.level_values import Cells, Steps
from bigforest.kernels.mixed import NUMBER
from bigforest.kernels.oblique import Pool
from bigforest.kernels.rotate import project_rows
from bigforest.kernels.rows import by_rows
from bigforest.kernels.tree import CodeTree
from bigforest.store.store import Store


class Axes(NamedTuple):
    """What a tree has of its own.

    weight  float64 [axes, features], in units of the table
    spans   of the projections on them
    lost    bool [axes], those on which a row of the bag has no finite projection: they tell no rows apart
    """

    weight: NDArray[np.float64]
    spans: Spans
    lost: NDArray[np.bool_]


class RotationPasses(NamedTuple):
    """The family. scale: float64 [features], see rotation.tree_axes."""

    config: TrainConfig
    scale: NDArray[np.float64]
    spans: Spans

    @property
    def columns(self) -> int:
        """See Family."""
        return self.config.axes or self.scale.size

    @property
    def steps(self) -> Steps:
        """See Family; no sums are asked for."""
        return Steps(*[np.zeros(0)] * 3)

    @property
    def sampled(self) -> bool:
        """See Family."""
        return self.config.rotation == "pca"

    def sample(self, tree: int, rows: range, cells: Cells) -> NDArray[np.int64]:
        """See Family: the moments of each subset of features, int64 [subsets, moments]."""
        grid = Grid(*self.spans)
        found = []
        for group, own in enumerate(subsets(self.config, tree, self.scale.size)):
            sample = in_sample(self.config, tree, group, rows.start, rows.stop)
            found.append(moments([grid.of(f, column_of(cells, f, len(rows))[sample]) for f in own.tolist()]))
        return np.stack(found)

    def survey(self, tree: int, tally: Tally, sample: NDArray[np.int64] | None) -> DirectionQuestion:
        """See Family: whether all projections of the bag are finite."""
        if sample is None:
            weight = random_axes(self.config, tree, self.scale)
        else:
            weight = principal_axes(self.config, tree, self.scale, Grid(*self.spans), sample)
        used = [axis != 0.0 for axis in weight]
        parts = zip(weight, used, strict=True)
        ends = [projection_range(axis[own], self.spans.low[own], self.spans.high[own]) for axis, own in parts]
        low, high = np.array(ends).T.copy()
        axes = Axes(weight, Spans(low, high), np.zeros(self.columns, np.bool_))
        return range_question(tree, tally, axes, self.columns)

    def own(self, tree: int, question: DirectionQuestion | None, total: Counts, reply: DirectionReply | None) -> Any:
        """See Family."""
        assert question is not None
        assert reply is not None
        lost = reply.unfit > 0
        return question.own._replace(lost=lost), lost

    def search(
        self, own: Axes, key: np.uint64, judge: Judge, constant: NDArray[np.bool_], ground: Ground
    ) -> AxisSearch:
        """See Family."""
        draw = make_draw(self.columns)
        wanted = int(draw_order(key, ground.rules, draw))
        limits = ground.limits
        features = Features((), np.full(self.columns, NUMBER, np.uint8))
        drawn = (ground.rules, features, draw.perm, wanted, limits.room)
        search = AxisSearch(judge, constant.copy(), limits.keys, limits.cells, *drawn, own.spans)
        return search.begin()

    def needed(self, columns: Iterable[int]) -> Iterable[int]:
        """See Family."""
        return np.flatnonzero(self.scale).tolist()

    def view(self, own: Axes, cells: Cells, rows: int, columns: Collection[int] | None) -> Cells:
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
        return Cells(none.astype(np.float32), projections, none.astype(np.uint8), place)

    def layout(self, decoded: Decoded) -> Decoded:
        """See Family."""
        return decoded._replace(place=_place(self.columns))

    def ends(self, store: Store) -> Ends:
        """See Family: every projection is one of its own."""
        return lambda axis, values: values

    def grow(self, own: Axes, columns: Sequence[NDArray[Any]], subtree: Subtree, ends: Ends) -> tuple[CodeTree, Pool]:
        """See Family."""
        fit = (np.zeros_like(column) if own.lost[axis] else column for axis, column in enumerate(columns))
        codes, dictionaries = code_columns(fit, len(columns), subtree.items.size)
        nodes = grow(codes, by_rows(codes), *subtree)
        size = np.zeros(nodes.feature.size, np.uint32)
        pool = Pool(np.empty(size.size), size, np.zeros(0, np.int32), np.zeros(0), np.zeros(1, np.uint64))
        return nodes, with_thresholds(nodes, dictionaries, pool)

    def finished(self, own: Axes, nodes: TreeArrays) -> TreeArrays:
        """See Family."""
        return in_terms(nodes, own.weight)


def rotation_passes(store: Store, config: TrainConfig, spans: Spans, most: int) -> RotationPasses:
    """The family of a rotation forest; see families.feature_scale for `most`."""
    return RotationPasses(config, feature_scale(store, "zscore", most), spans)


def _place(axes: int) -> NDArray[np.uint32]:
    """Where projections are in their cells."""
    return np.array([(8, axis) for axis in range(axes)], np.uint32)
