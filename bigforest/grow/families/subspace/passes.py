"""Trees in subspaces that do not fit in memory: the table for passes (oblique/passes.py)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.executor import Executor
from bigforest.grow.families.oblique.passes import ProjectionTable, SubtreeScratch
from bigforest.grow.families.subspace.perceptron import Learnt, RowPiece, Trial, pieces_of, train_by_passes, trials_of
from bigforest.grow.families.subspace.search import SubspaceAim, SubspaceSearch
from bigforest.grow.families.subspace.trees import Columns, empty_space, tree_subspace, with_cells
from bigforest.grow.out_of_core.decoded_table import DecodedTable, column_of, places
from bigforest.grow.out_of_core.node_stats import Counts
from bigforest.grow.out_of_core.requests import SplitRequest, SplitResponse, request
from bigforest.grow.out_of_core.split_scorer import SplitScorer
from bigforest.grow.out_of_core.table import TreeOwn
from bigforest.grow.out_of_core.upper_tree import UpperTree
from bigforest.kernels.columns.row_major import NO_ROWS
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.out_of_core.blocks import BlockValues, Steps
from bigforest.kernels.subspace.columns import Subspace, SubspaceColumns, make_subspace
from bigforest.kernels.tree.builder import CodeTree
from bigforest.kernels.tree.grow import grow
from bigforest.schema.config import TrainConfig


class TreeSpace(NamedTuple):
    """The own data of a tree.

    feature  int64, ascending, the features of its subspace
    drawn    how many of them each node draws
    """

    feature: NDArray[np.int64]
    drawn: int


class SubspaceScratch(NamedTuple):
    """Makes scratch for nodes; sent with a search between processes.

    epochs  see SubspaceTrees
    seen    the columns of all features
    """

    config: TrainConfig
    epochs: int
    seen: Columns

    def of(self, space: SubspaceColumns, own: TreeSpace, classes: int, rows: int) -> Subspace:
        """Scratch for nodes of a tree of up to this many rows."""
        return make_subspace(space, own.drawn, self.config.steps, self.epochs, classes, rows)

    def of_no_rows(self, own: TreeSpace, classes: int) -> Subspace:
        """Scratch for a node of a tree, without rows."""
        return self.of(empty_space(self.seen, own.feature), own, classes, 0)


@dataclass(frozen=True)
class SubspaceTable(ProjectionTable):
    """See ProjectionTable."""

    scratch: SubspaceScratch

    @property
    def columns(self) -> int:
        """Features of the table."""
        return self.scratch.seen.unit.size

    @property
    def steps(self) -> Steps:
        """See TableView."""
        seen = self.scratch.seen
        return Steps(seen.low, np.where(seen.unit > 0.0, 0.0, -1.0), seen.per_step)

    def own_of(self, tree: int, total: Counts, request: SplitRequest | None, response: SplitResponse | None) -> TreeOwn:
        """See ProjectionTable; constant columns are not skipped."""
        config = self.sampler.config
        feature = tree_subspace(config, self.columns, tree)
        return TreeSpace(feature, config.subspace_size(self.columns, tree)), np.zeros(feature.size, np.bool_)

    def search(
        self, own: TreeSpace, key: np.uint64, scorer: SplitScorer, constant: NDArray[np.bool_]
    ) -> SubspaceSearch:
        """See TableView."""
        scratch = partial(self.scratch.of_no_rows, own, scorer.stats.classes)
        return SubspaceSearch(SubspaceAim(scratch, key, scorer.total, self.context.rules.min_leaf), constant)

    def view(self, own: TreeSpace, cells: BlockValues, rows: int, columns: Collection[int] | None) -> BlockValues:
        """See TableView: a copy of the subspace, if whole rows are needed."""
        feature = own.feature
        if columns is not None or feature.size == self.columns:
            return cells
        width = self._width(cells.place)
        kinds = {4: np.float32, 8: np.float64, 1: np.uint8}
        f32, f64, u8 = (np.zeros((feature.size * (each == width), rows), kind) for each, kind in kinds.items())
        place = np.zeros((self.columns, 2), np.uint32)
        place[feature] = places(width, feature.size)
        seen = BlockValues(f32, f64, u8, place)
        for own_feature in feature[self.scratch.seen.unit[feature] > 0.0].tolist():
            column_of(seen, own_feature)[:] = column_of(cells, own_feature)[:rows]
        for matrix in (f32, f64, u8):
            matrix.flags.writeable = False  # as they are read: with other flags kernels would be compiled again
        return seen

    def layout(self, own: TreeSpace) -> DecodedTable:
        """See ProjectionTable."""
        if own.feature.size == self.columns:
            return self.decoded
        return self.decoded._replace(place=places(self._width(self.decoded.place), own.feature.size))

    def _width(self, place: NDArray[np.uint32]) -> int:
        """Bytes of a value in copies of any of the columns that take part; the copies are of one type."""
        return int(place[self.scratch.seen.unit > 0.0, 0].max(initial=1))

    def grow_below(
        self, own: TreeSpace, columns: Sequence[NDArray[Any]], subtree: SubtreeScratch
    ) -> tuple[CodeTree, DirectionExtras]:
        """See ProjectionTable."""
        rows = subtree.items.size
        space = with_cells(empty_space(self.scratch.seen, own.feature), columns, rows)
        subspace = self.scratch.of(space, own, subtree.target.number, rows)
        return grow(_no_codes(own.feature.size), NO_ROWS, *subtree, subspace)

    def train_nodes(self, tops: Sequence[UpperTree], executor: Executor) -> None:
        """See TableView: by perceptrons, a task for each tree, or several where there are few."""
        wanted = [(top, trials) for top in tops if (trials := trials_of(top))]
        shares = max(1, executor.size // max(len(wanted), 1))
        tasks = [
            (request(top, []), dict(own))
            for top, trials in wanted
            for share in range(shares)
            if (own := trials[share::shares])
        ]
        learnt: dict[int, dict[int, Learnt]] = {top.tree: {} for top, _ in wanted}
        executor.run(learn, tasks, lambda index, found: learnt[tasks[index][0].tree].update(found), (self,))
        for top, trials in wanted:
            for entry, _ in trials:
                search = top.search(entry)
                search.receive([learnt[top.tree][entry]])
                top.settle(entry, search, self.search)


def learn(table: SubspaceTable, asked: SplitRequest, trials: dict[int, Trial]) -> dict[int, Learnt]:
    """Task: train the perceptrons of nodes of a tree; returns them by node. asked: without probes."""

    def rows(entries: Sequence[int]) -> Iterator[tuple[int, RowPiece]]:
        own = {entry: trials[entry] for entry in entries}
        for blocks in table.decoded.runs:
            for _, cells, stood, _ in table.route([asked], blocks, [asked.no_response()], None):
                yield from pieces_of(cells, stood, own)

    return train_by_passes(trials, rows, table.context.limits.held)


def _no_codes(columns: int) -> Codes:
    """The codes of this many columns, without rows: trees in subspaces use values."""
    u8, u16, u32 = np.empty((columns, 0), np.uint8), np.empty((0, 0), np.uint16), np.empty((0, 0), np.uint32)
    codes = Codes(u8, u16, u32, places(1, columns))
    for array in codes:
        array.flags.writeable = False  # as in a store: with other flags kernels would be compiled again
    return codes
