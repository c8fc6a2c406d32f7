"""Trees in subspaces that do not fit in memory: the table for passes (projection.py)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.arrays import read_only
from bigforest.common.room import Room
from bigforest.execution.executor import Executor
from bigforest.grow.families.projection import ProjectionTable
from bigforest.grow.families.subspace.perceptron import (
    PerceptronRequest,
    RowPiece,
    TrainedPerceptron,
    row_pieces,
    train_by_passes,
)
from bigforest.grow.families.subspace.trees import SubspaceTrees, some_columns, tree_subspace, with_cells
from bigforest.grow.out_of_core.assemble import Subtree
from bigforest.grow.out_of_core.context import Counts
from bigforest.grow.out_of_core.decoded_table import tree_columns
from bigforest.grow.out_of_core.node_search import NodeSearch, NodeSplit
from bigforest.grow.out_of_core.probes import Answer, Direction, Histogram, Probe, StepSums
from bigforest.grow.out_of_core.requests import SplitRequest, request
from bigforest.grow.out_of_core.table import Passes, SubtreeScratch
from bigforest.grow.out_of_core.upper_tree import UpperTree
from bigforest.grow.shared.encode_values import places
from bigforest.kernels.columns.project import LARGEST
from bigforest.kernels.columns.row_major import NO_ROWS
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.out_of_core.subspace import aim_node, choose_columns, choose_stop, is_split
from bigforest.kernels.subspace.columns import Subspace
from bigforest.kernels.tree.grow import grow


class TreeSpace(NamedTuple):
    """The data of a tree.

    feature  int64, ascending, the features of its subspace
    drawn    how many of them each node draws
    """

    feature: NDArray[np.int64]
    drawn: int


class SubspaceSearch(NodeSearch):
    """The search for the cut of one node: in the columns that the node draws, then in all.

    It requests the sums for its class means, then a perceptron, or the class counts between the stops from mean to
    mean, and takes the same cut as kernels/subspace/split.py.
    """

    def __init__(
        self,
        scratch: Callable[[], Subspace],
        key: np.uint64,
        total: Counts,
        min_leaf: int,
        constant: NDArray[np.bool_],
    ) -> None:
        """scratch: gives a Subspace without rows for the tree, whose content is not kept between requests; total: int64
        [classes]."""
        self.constant = constant
        self._given = scratch, key, total, min_leaf, constant
        self._received: list[Answer] = []
        self._found: NodeSplit | None = None
        self._finding = self._find(scratch, key, total, min_leaf)
        self.pending: list[Probe] = [next(self._finding)]

    def __reduce__(self) -> tuple[Callable[..., SubspaceSearch], tuple[Any, ...]]:
        """Sent as its answers, which are few and small, and which the other process replays."""
        return search_again, (self._given, self._received)

    def receive(self, answers: Sequence[Answer]) -> None:
        [answer] = answers
        self._received.append(answer)
        try:
            self.pending = [self._finding.send(answer)]
        except StopIteration as end:
            self.pending, self._found = [], end.value

    def cut(self) -> NodeSplit | None:
        return self._found

    @staticmethod
    def _find(
        scratch: Callable[[], Subspace], key: np.uint64, total: Counts, min_leaf: int
    ) -> Generator[Probe, Answer, NodeSplit | None]:
        """Yields requests; see kernels/subspace/split.py find_cut."""
        subspace = scratch()
        epochs = subspace.epochs
        for wanted in sorted({int(subspace.drawn), subspace.column.size}):
            subspace = scratch()
            choose_columns(subspace, key, np.uint64(wanted))
            column = subspace.column[:wanted].astype(np.int64)
            space = some_columns(subspace.space, column)
            del subspace  # not to hold as many as there are nodes
            sums = yield StepSums(space.feature.astype(np.uint32))
            subspace = scratch()
            differ, begin, end = aim_node(subspace, key, np.uint64(wanted), total, sums)
            line, stop, far = _line(space.feature, subspace.weight[column]), subspace.stop, subspace.far
            del subspace
            if not differ:  # all means are equal
                continue
            if epochs:
                trained = yield PerceptronRequest(space, far, total, epochs)
                if is_split(trained.left, total, total.sum(), min_leaf):
                    return NodeSplit(0, trained.cut, trained.left, direction=_line(space.feature, trained.weight))
            if not (begin < end and end - begin <= LARGEST):  # the means have the same projection
                continue
            edge = np.nextafter(stop[:-1], np.inf)  # the rows above a stop and up to the next are in one bucket
            edge[0] = -LARGEST
            counted = yield Histogram(0, line, -LARGEST, LARGEST, 0.0, edge.size, edge)
            subspace = scratch()
            subspace.hist[1:] = counted.counts
            if at := int(choose_stop(subspace, total, total.sum(), min_leaf)):
                return NodeSplit(0, float(stop[at]), counted.counts[:at].sum(axis=0), direction=line)
        return None


def search_again(given: tuple[Any, ...], received: Sequence[Answer]) -> SubspaceSearch:
    """A search that has had these answers."""
    search = SubspaceSearch(*given)
    for answer in received:
        search.receive([answer])
    return search


def _line(feature: NDArray[np.int32], weight: NDArray[np.float64]) -> Direction:
    used = weight != 0.0
    return Direction(feature[used].astype(np.uint32), weight[used], line=True)


@dataclass(frozen=True)
class SubspaceTable(ProjectionTable):
    """See ProjectionTable."""

    trees: SubspaceTrees

    def tree_data(self, trees: Sequence[int], totals: Counts, passes: Passes) -> list[TreeSpace]:
        config, columns = self.sampler.config, self.trees.columns.unit.size
        return [TreeSpace(tree_subspace(config, columns, tree), config.subspace_size(columns, tree)) for tree in trees]

    def search(
        self, tree_data: TreeSpace, key: np.uint64, total: Counts, constant: NDArray[np.bool_]
    ) -> SubspaceSearch:
        space = some_columns(self.trees.columns, tree_data.feature)
        scratch = partial(self.trees.of, space, tree_data.drawn, total.size, 0)
        return SubspaceSearch(scratch, key, total, self.context.rules.min_leaf, constant)

    def place(self, tree_data: TreeSpace) -> NDArray[np.uint32]:
        return self.decoded.place[tree_data.feature]

    def grow_below(
        self, tree_data: TreeSpace, cells: Sequence[NDArray[Any]], subtree: SubtreeScratch, room: Room
    ) -> Subtree:
        rows = subtree.items.size
        space = with_cells(
            some_columns(self.trees.columns, tree_data.feature), tree_columns(cells, self.place(tree_data)), rows
        )
        subspace = self.trees.of(space, tree_data.drawn, subtree.target.number, rows)
        return grow(_no_codes(tree_data.feature.size), NO_ROWS, *subtree, subspace)

    def train_nodes(self, tops: Sequence[UpperTree], executor: Executor) -> None:
        """See TableView: by perceptrons, a task for each tree, or several where there are few."""
        wanted = []
        for top in tops:
            pending = [(entry, probe) for entry, search in top.searching() for probe in search.pending]
            if requests := [(entry, probe) for entry, probe in pending if isinstance(probe, PerceptronRequest)]:
                wanted.append((top, requests))
        shares = max(1, executor.size // max(len(wanted), 1))
        tasks = [
            (request(top, {}, []), dict(some))
            for top, requests in wanted
            for share in range(shares)
            if (some := requests[share::shares])
        ]
        trained: dict[tuple[int, int], TrainedPerceptron] = {}
        executor.run(train_perceptrons, tasks, lambda _, perceptrons: trained.update(perceptrons), (self,))
        waiting = [(top, *node_search) for top, _ in wanted for node_search in top.searching()]
        for top, entry, search in waiting:
            if (top.tree, entry) in trained:
                search.receive([trained[top.tree, entry]])
                top.settle(entry, search, self.search)


def train_perceptrons(
    table: SubspaceTable, asked: SplitRequest, wanted: dict[int, PerceptronRequest]
) -> dict[tuple[int, int], TrainedPerceptron]:
    """Task: train the perceptrons of nodes of a tree; returns them by tree and node. asked: without probes."""

    def rows(entries: Sequence[int]) -> Iterator[tuple[int, RowPiece]]:
        chosen = {entry: wanted[entry] for entry in entries}
        for blocks in table.decoded.runs:
            for _, cells, node_items, _ in table.route([asked], blocks, [asked.no_response(table.context)]):
                yield from row_pieces(cells, node_items, chosen)

    trained = train_by_passes(wanted, rows, table.context.limits.training)
    return {(asked.tree, entry): perceptron for entry, perceptron in trained.items()}


def _no_codes(columns: int) -> Codes:
    """The codes of this many columns, without rows: trees in subspaces use values."""
    u8, u16, u32 = np.empty((columns, 0), np.uint8), np.empty((0, 0), np.uint16), np.empty((0, 0), np.uint32)
    return Codes._make([read_only(array) for array in (u8, u16, u32, places(1, columns))])
