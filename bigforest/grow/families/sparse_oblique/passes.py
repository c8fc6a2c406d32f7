"""Sparse-oblique trees that do not fit in memory: the table for passes (oblique/passes.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.executor import Executor
from bigforest.grow.families.oblique.passes import ProjectionTable
from bigforest.grow.families.sparse_oblique.trees import in_steps, sparse_trees, step_of, values_of
from bigforest.grow.out_of_core.assemble import Subtree
from bigforest.grow.out_of_core.decoded_table import DecodedTable, tree_columns
from bigforest.grow.out_of_core.node_search import HistogramSearch, NodeSplit
from bigforest.grow.out_of_core.node_stats import Counts
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
from bigforest.grow.out_of_core.table import SubtreeScratch, TreeOwn
from bigforest.grow.out_of_core.upper_tree import GrowContext
from bigforest.grow.shared.encode_values import code_columns, with_thresholds
from bigforest.kernels.columns.decoded import no_decoded_columns
from bigforest.kernels.columns.row_major import by_rows
from bigforest.kernels.oblique.directions import Sparse, make_drawn
from bigforest.kernels.oblique.mean_difference import (
    NO_PAIRS,
    Means,
    find_differences,
    make_means,
    max_pairs,
    project_differences,
)
from bigforest.kernels.oblique.search import make_oblique
from bigforest.kernels.out_of_core.blocks import Steps
from bigforest.kernels.out_of_core.draws import draw_direction, draw_order, offered_differences
from bigforest.kernels.scan.draw import make_feature_draw
from bigforest.kernels.tree.grow import grow
from bigforest.sampling.bags import Sampler
from bigforest.store.store import Dictionaries, Store


class SparseDraws(NamedTuple):
    """The directions that nodes draw; sent with a search between processes.

    steps, unit  see kernels/oblique/mean_difference.py
    """

    sparse: Sparse
    pairing: int
    by_node: bool
    steps: Steps
    unit: NDArray[np.float64]

    @property
    def of_tree(self) -> bool:
        """Whether class means are those of the tree."""
        return self.pairing != NO_PAIRS and not self.by_node

    def drawn(self, key: np.uint64) -> dict[int, Direction]:
        """The directions that the node `key` draws, by number."""
        drawn, found = make_drawn(self.sparse), {}
        at = np.uint64(0)
        for column in range(int(self.sparse.columns)):
            size, at = draw_direction(self.sparse, key, np.uint64(column), np.uint64(at), drawn)
            if size:
                found[column] = Direction(drawn.feature[0, : int(size)].copy(), drawn.weight[0, : int(size)].copy())
        return found

    def offered(self, key: np.uint64, total: Counts) -> list[int]:
        """Numbers of the differences of class means that are offered in the node `key`."""
        if self.pairing == NO_PAIRS:
            return []
        columns = self.sparse.columns
        classes = int(np.count_nonzero(total)) if self.by_node else total.size
        offered = np.zeros(max_pairs(self.pairing, classes), np.bool_)
        offered_differences(key, columns, np.uint64(self.unit.size), offered)
        return [int(columns) + int(number) for number in np.flatnonzero(offered)]

    def differences(
        self, sums: NDArray[np.int64], total: Counts, offered: list[int] | None = None
    ) -> dict[int, Direction]:
        """The differences of class means by number, those that are `offered` or all, from sums of steps, int64
        [features, classes]; total of classes."""
        means = make_means(self.pairing, False, np.zeros(0, np.uint32), self.unit, total.size, 0)
        means.sums[:] = sums
        find_differences(means, self.sparse.scale, total)
        sizes = enumerate(means.size[: int(means.pairs[0])].tolist(), int(self.sparse.columns))
        terms = zip(sizes, means.feature, means.weight, strict=False)
        return {
            number: Direction(feature[:size].copy(), weight[:size].copy())
            for (number, size), feature, weight in terms
            if size and (offered is None or number in offered)
        }


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

    def begin(self) -> DirectionSearch:
        """Make the first requests."""
        if self.means is not None:
            self.pending.append(StepSums(np.arange(self.spans.low.size, dtype=np.uint32)))
        self._draw()
        return self

    def cut(self) -> NodeSplit | None:
        """See HistogramSearch."""
        cut = HistogramSearch.cut(self)
        return None if cut is None else cut._replace(direction=self._known[cut.feature])

    def _take(self, probe: Probe, answer: Answer) -> None:
        if isinstance(probe, StepSums):
            assert self.means is not None
            assert isinstance(answer, np.ndarray)
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
        elif answer.mark:  # a row without a finite projection: the direction is not used
            return False
        usable = answer.low < answer.high
        self._usable |= usable
        return usable


@dataclass(frozen=True)
class SparseObliqueTable(ProjectionTable):
    """See ProjectionTable. The own data of a tree are the differences of its class means, if means are those of the
    tree."""

    draws: SparseDraws

    @property
    def steps(self) -> Steps:
        """See TableView."""
        return self.draws.steps

    def own(
        self, trees: Sequence[int], totals: Counts, ranges: Sequence[tuple[range]], folder: Path, executor: Executor
    ) -> list[TreeOwn]:
        """See TableView; from the sums of the bags."""
        features, stats = self.draws.unit.size, self.context.stats
        means: list[dict[int, Direction]] = [{} for _ in trees]
        if self.draws.of_tree:
            every = StepSums(np.arange(features, dtype=np.uint32))
            asked = [root_request(tree, stats, None, every) for tree in trees]
            responses = zip(self.answer_roots(asked, ranges, folder, executor), totals, strict=True)
            means = [self.draws.differences(own.sums, total[: stats.classes]) for own, total in responses]
        return [(own, np.zeros(features, np.bool_)) for own in means]

    def search(
        self, own: dict[int, Direction], key: np.uint64, scorer: SplitScorer, constant: NDArray[np.bool_]
    ) -> DirectionSearch:
        """See TableView."""
        draws, limits = self.draws, self.context.limits
        directions = draws.drawn(key)
        total = scorer.total[: scorer.stats.classes]
        offered = draws.offered(key, total)
        directions |= {number: own[number] for number in offered if number in own}  # none where means are of nodes
        draw = make_feature_draw(draws.unit.size)
        draw_order(key, self.context.rules, draw)
        return DirectionSearch(
            scorer,
            constant.copy(),
            limits.keys,
            limits.cells,
            spans=self.decoded.spans,
            directions=directions,
            max_directions=int(draws.sparse.columns) + max_pairs(draws.pairing, total.size),
            fallback=draw.perm.tolist(),
            means=partial(draws.differences, total=total, offered=offered) if offered and draws.by_node else None,
        ).begin()

    def largest_equivalent(self, column: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """See ProjectionTable."""
        store = self.store
        return values if store.max_bins == "exact" else store.high(column)[store.low(column).searchsorted(values)]

    def grow_below(self, own: dict[int, Direction], cells: Sequence[NDArray[Any]], subtree: SubtreeScratch) -> Subtree:
        """See TableView."""
        items, columns = subtree.items, tree_columns(cells, self.decoded.place)
        codes, (offsets, low, _) = code_columns(columns, len(columns), items.size)
        by_row = by_rows(codes)
        values = values_of(offsets, low, no_decoded_columns(len(columns)))
        means = self._means(offsets, low, subtree.target.number, items.size)
        oblique = make_oblique(self.draws.sparse, means, codes, values, items.size)
        if self.draws.of_tree:
            _put_own(own, int(self.draws.sparse.columns), oblique.means)
            project_differences(codes, by_row, values, items, oblique.means, oblique.value[0])
        nodes, pool = grow(codes, by_row, *subtree, oblique)
        cuts = enumerate(pairwise(offsets.tolist()))
        high = [self.largest_equivalent(feature, low[start:stop]) for feature, (start, stop) in cuts]
        return nodes, with_thresholds(nodes, Dictionaries(offsets, low, np.concatenate(high)), pool)

    def _means(self, offsets: NDArray[np.int64], low: NDArray[np.float64], classes: int, rows: int) -> Means:
        """Scratch for the differences of class means of a table of these values."""
        step = np.zeros(0, np.uint32)
        if self.draws.pairing != NO_PAIRS:
            origin, span, _ = self.draws.steps
            own = enumerate(pairwise(offsets.tolist()))
            parts = [in_steps(low[start:stop], float(origin[f]), float(span[f])) for f, (start, stop) in own]
            step = np.concatenate(parts)
        return make_means(self.draws.pairing, self.draws.by_node, step, self.draws.unit, classes, rows)


def _put_own(own: dict[int, Direction], first: int, means: Means) -> None:
    """Make the directions of a tree, by number from `first` on, its differences of class means."""
    means.pairs[0] = means.size.size
    means.size[:] = 0
    for number, (feature, weight, _) in own.items():
        pair = number - first
        means.size[pair] = feature.size
        means.feature[pair, : feature.size] = feature
        means.weight[pair, : feature.size] = weight


def sparse_table(store: Store, sampler: Sampler, context: GrowContext, decoded: DecodedTable) -> SparseObliqueTable:
    """The table of a sparse-oblique forest; see sparse_trees for how many values are held."""
    spans = decoded.spans
    shared = sparse_trees(store, sampler.config, no_decoded_columns(spans.low.size), context.limits.values)
    ranges = zip(spans.low.tolist(), spans.high.tolist(), shared.values.whole.tolist(), strict=True)
    span, unit = np.array([step_of(*each) for each in ranges]).T.copy()
    steps = Steps(spans.low, span, np.zeros(span.size))
    draws = SparseDraws(shared.sparse, shared.pairing, shared.by_node, steps, unit)
    return SparseObliqueTable(store, sampler, context, decoded, draws)
