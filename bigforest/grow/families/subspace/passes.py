"""Trees in subspaces that do not fit in memory: the table for passes (oblique/passes.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.executor import Executor
from bigforest.grow.families.oblique.passes import ProjectionTable
from bigforest.grow.families.subspace.perceptron import Learnt, RowPiece, Trial, pieces_of, train_by_passes, trials_of
from bigforest.grow.families.subspace.search import SubspaceSearch
from bigforest.grow.families.subspace.trees import SubspaceTrees, empty_space, tree_subspace, with_cells
from bigforest.grow.out_of_core.assemble import Subtree
from bigforest.grow.out_of_core.decoded_table import places, tree_columns
from bigforest.grow.out_of_core.node_stats import Counts
from bigforest.grow.out_of_core.requests import SplitRequest, request
from bigforest.grow.out_of_core.split_scorer import SplitScorer
from bigforest.grow.out_of_core.table import SubtreeScratch, TreeOwn
from bigforest.grow.out_of_core.upper_tree import UpperTree
from bigforest.kernels.columns.row_major import NO_ROWS
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.out_of_core.blocks import Steps
from bigforest.kernels.tree.grow import grow


class TreeSpace(NamedTuple):
    """The own data of a tree.

    feature  int64, ascending, the features of its subspace
    drawn    how many of them each node draws
    """

    feature: NDArray[np.int64]
    drawn: int


@dataclass(frozen=True)
class SubspaceTable(ProjectionTable):
    """See ProjectionTable."""

    trees: SubspaceTrees

    @property
    def columns(self) -> int:
        """Features of the table."""
        return self.trees.columns.unit.size

    @property
    def steps(self) -> Steps:
        """See TableView."""
        seen = self.trees.columns
        return Steps(seen.low, np.where(seen.unit > 0.0, 0.0, -1.0), seen.per_step)

    def own(
        self, trees: Sequence[int], totals: Counts, ranges: Sequence[tuple[range]], folder: Path, executor: Executor
    ) -> list[TreeOwn]:
        """See TableView; constant columns are not skipped."""
        config, found = self.sampler.config, []
        for tree in trees:
            feature = tree_subspace(config, self.columns, tree)
            own = TreeSpace(feature, config.subspace_size(self.columns, tree))
            found.append((own, np.zeros(feature.size, np.bool_)))
        return found

    def search(
        self, own: TreeSpace, key: np.uint64, scorer: SplitScorer, constant: NDArray[np.bool_]
    ) -> SubspaceSearch:
        """See TableView."""
        space = empty_space(self.trees.columns, own.feature)
        scratch = partial(self.trees.of, space, own.drawn, scorer.stats.classes, 0)
        return SubspaceSearch(scratch, key, scorer.total, self.context.rules.min_leaf, constant)

    def place(self, own: TreeSpace) -> NDArray[np.uint32]:
        """See TableView."""
        return self.decoded.place[own.feature]

    def grow_below(self, own: TreeSpace, cells: Sequence[NDArray[Any]], subtree: SubtreeScratch) -> Subtree:
        """See TableView."""
        rows = subtree.items.size
        space = with_cells(empty_space(self.trees.columns, own.feature), tree_columns(cells, self.place(own)), rows)
        subspace = self.trees.of(space, own.drawn, subtree.target.number, rows)
        return grow(_no_codes(own.feature.size), NO_ROWS, *subtree, subspace)

    def train_nodes(self, tops: Sequence[UpperTree], executor: Executor) -> None:
        """See TableView: by perceptrons, a task for each tree, or several where there are few."""
        wanted = [(top, trials) for top in tops if (trials := trials_of(top))]
        shares = max(1, executor.size // max(len(wanted), 1))
        tasks = [
            (request(top, [], []), dict(own))
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
            for _, cells, stood, _ in table.route([asked], blocks, [asked.no_response()], [None]):
                yield from pieces_of(cells, stood, own)

    return train_by_passes(trials, rows, table.context.limits.held)


def _no_codes(columns: int) -> Codes:
    """The codes of this many columns, without rows: trees in subspaces use values."""
    u8, u16, u32 = np.empty((columns, 0), np.uint8), np.empty((0, 0), np.uint16), np.empty((0, 0), np.uint32)
    codes = Codes(u8, u16, u32, places(1, columns))
    for array in codes:
        array.flags.writeable = False  # as in a store: with other flags kernels would be compiled again
    return codes
