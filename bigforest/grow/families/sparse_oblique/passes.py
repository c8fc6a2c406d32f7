"""Sparse-oblique trees that do not fit in memory: the table for passes (projection.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.common.room import Room
from bigforest.grow.families.projection import ProjectionTable
from bigforest.grow.families.sparse_oblique.trees import SparseDraws, values_of
from bigforest.grow.out_of_core.assemble import Subtree
from bigforest.grow.out_of_core.context import Counts
from bigforest.grow.out_of_core.decoded_table import tree_columns
from bigforest.grow.out_of_core.node_search import HistogramSearch, NodeSplit
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
from bigforest.grow.out_of_core.split_scorer import SplitScorer
from bigforest.grow.out_of_core.table import Passes, SubtreeScratch
from bigforest.grow.shared.encode_values import code_columns, with_thresholds
from bigforest.kernels.columns.decoded import no_decoded_columns
from bigforest.kernels.columns.row_major import by_rows
from bigforest.kernels.oblique.directions import Sparse, make_drawn
from bigforest.kernels.oblique.mean_difference import find_differences, max_pairs, project_differences
from bigforest.kernels.oblique.search import make_oblique
from bigforest.kernels.out_of_core.blocks import NOT_FINITE
from bigforest.kernels.out_of_core.draws import draw_direction, draw_order, offered_differences
from bigforest.kernels.scan.draw import make_feature_draw
from bigforest.kernels.tree.grow import grow
from bigforest.store.store import Dictionaries


@dataclass(slots=True)
class DirectionSearch(HistogramSearch):
    """The search for a split on a direction; nodes draw those that kernels/oblique/search.py draws.

    spans           of the features
    directions      by number, that are not requested yet
    max_directions  most directions that a node draws; features have the numbers after them
    fallback        features in the order in which they are drawn if all directions are constant
    means           gives directions of class means from the sums of the node; None without such directions
    """

    spans: Spans
    directions: dict[int, Direction]
    max_directions: int
    fallback: list[int]
    means: Callable[[NDArray[np.int64]], dict[int, Direction]] | None
    _known: dict[int, Direction] = field(default_factory=dict, init=False)  # those that were requested
    _usable: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.means is not None:
            self.pending.append(StepSums(np.arange(self.spans.low.size, dtype=np.uint32)))
        self._draw()

    def cut(self) -> NodeSplit | None:
        cut = HistogramSearch.cut(self)
        return None if cut is None else cut._replace(direction=self._known[cut.feature])

    def _take(self, probe: Probe, answer: Answer) -> None:
        if isinstance(probe, StepSums):
            assert self.means is not None
            self.directions = self.means(answer)
        else:
            HistogramSearch._take(self, probe, answer)

    def _draw(self) -> None:
        """Request all directions and, if none of them is usable, features one by one, until one is."""
        self._ask(self.directions)
        self.directions = {}
        while not self.pending and not self._usable and self.fallback:
            feature = self.fallback.pop(0)
            self._ask({self.max_directions + feature: feature_direction(feature)})

    def _ask(self, directions: dict[int, Direction]) -> None:
        most = self._most(self.scorer.rows)
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
    """See ProjectionTable. The data of a tree are the sums of steps of its bag, int64 [features, classes], and its
    class weights, if class means are those of the tree."""

    draws: SparseDraws

    def tree_data(self, trees: Sequence[int], totals: Counts, passes: Passes) -> list[Any]:
        if not self.draws.of_tree:
            return [None] * len(trees)
        every = StepSums(np.arange(self.draws.unit.size, dtype=np.uint32))
        asked = [root_request(tree, None, every) for tree in trees]
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
        order = np.argsort(store.low(column), kind="stable")  # the value of missing cells comes first
        largest: NDArray[np.float64] = store.high(column)[order][store.low(column)[order].searchsorted(values)]
        return largest

    def grow_below(self, tree_data: Any, cells: Sequence[NDArray[Any]], subtree: SubtreeScratch, room: Room) -> Subtree:
        items, columns = subtree.items, tree_columns(cells, self.decoded.place)
        codes, (offsets, low, _) = code_columns(columns, len(columns), items.size)
        by_row = by_rows(codes, room.arrays)
        values = values_of(offsets, low, no_decoded_columns(len(columns)))
        dictionaries = [low[start:end] for start, end in pairwise(offsets.tolist())]
        step = self.draws.steps_of(dictionaries, self.decoded.spans.low.tolist())
        means = self.draws.means(step, subtree.target.number, items.size)
        regression = subtree.target.value is not None
        oblique = make_oblique(self.draws.sparse, means, codes, values, items.size, regression)
        if tree_data is not None:
            means.sums[:] = tree_data[0]
            find_differences(
                means, self.draws.sparse.scale, tree_data[1].copy()
            )  # not read-only, as it may be when received
            project_differences(codes, by_row, values, items, means, oblique.value[0])
        nodes, pool = grow(codes, by_row, *subtree, oblique)
        high = [self.largest_equivalent(feature, values) for feature, values in enumerate(dictionaries)]
        return nodes, with_thresholds(nodes, Dictionaries(offsets, low, np.concatenate(high)), pool)


def drawn_directions(sparse: Sparse, key: np.uint64) -> dict[int, Direction]:
    """The directions that the node `key` draws, by number."""
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
    """The `offered` differences of class means by number, from class weights and sums of steps, int64 [features,
    classes]."""
    means = draws._replace(by_node=False).means(np.zeros(0, np.uint32), total.size, 0)
    means.sums[:] = sums
    find_differences(means, draws.sparse.scale, total)
    sizes = enumerate(means.size[: int(means.pairs[0])].tolist(), int(draws.sparse.columns))
    terms = zip(sizes, means.feature, means.weight, strict=False)
    return {
        number: Direction(feature[:size].copy(), weight[:size].copy())
        for (number, size), feature, weight in terms
        if size and number in offered
    }
