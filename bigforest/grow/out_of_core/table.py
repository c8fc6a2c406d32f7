"""The table that passes read, as trees see it. `TableView.answer` answers requests block by block.

A `TableView` depends on the family: the columns of a block may be codes of features (families/axis.py), values, or
projections on the axes of a tree (families/projection.py and its families). It is sent to the workers with each task.
passes.py draws a pass.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.execution.executor import Executor
from bigforest.execution.process_cache import BufferPool
from bigforest.execution.resources import allow_many_files
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.cut import cut_rules
from bigforest.grow.out_of_core.context import Counts, GrowContext
from bigforest.grow.out_of_core.node_search import NodeSearch
from bigforest.grow.out_of_core.probes import CollectedRows
from bigforest.grow.out_of_core.requests import SplitRequest, SplitResponse, merged_all
from bigforest.grow.out_of_core.row_file import NodeItems, row_nodes, writing_rows
from bigforest.grow.out_of_core.upper_tree import Subtree, UpperTree, cut_pieces, renumbered
from bigforest.grow.trees import TreeRows
from bigforest.kernels.out_of_core.blocks import collect_rows, count_rows, route_rows, sum_rows
from bigforest.sampling.bags import Sampler
from bigforest.store.blocks import MatrixReader
from bigforest.store.format import BLOCK_ROWS, block_count, block_span
from bigforest.store.store import Store


@dataclass(frozen=True)
class TableView(ABC):
    """The table of a forest as passes read it.

    The argument `tree_data` of the methods is the data that a family keeps for a tree, made by the method `tree_data`.
    """

    store: Store
    sampler: Sampler
    context: GrowContext

    def ranges(self, tasks: int) -> list[tuple[range]]:
        """Return the runs of blocks for this many tasks."""
        return block_ranges(self.store, tasks)

    def tree_data(self, trees: Sequence[int], totals: Counts, passes: Passes) -> Sequence[Any]:
        """Return the data that the family keeps for each tree; totals: statistics of the bags, int64 [trees, slots]."""
        return [None] * len(trees)

    @abstractmethod
    def search(self, tree_data: Any, key: np.uint64, total: Counts, constant: NDArray[np.bool_]) -> NodeSearch:
        """Start the search for the split of a node; constant: bool [columns], True if known to be constant in it."""

    @abstractmethod
    def reader(self, blocks: range, features: Sequence[int], again: bool) -> MatrixReader:
        """Return a reader of these features of some blocks; again: True if a pass has read the blocks before."""

    def needed(self, columns: Collection[int]) -> Collection[int]:
        """Return the features that are read for these columns."""
        return columns

    def view(self, tree_data: Any, cells: Any, rows: int, columns: Collection[int] | None) -> Any:
        """Return the columns of a block of this many rows as a tree sees them.

        columns  the columns that are needed; None for all
        """
        return cells

    def train_nodes(self, tops: Sequence[UpperTree], executor: Executor) -> None:
        """Run the trainings that nodes request, which need the rows of a node in sequence."""
        return

    @abstractmethod
    def place(self, tree_data: Any) -> NDArray[np.uint32]:
        """Return for each column of a tree the bytes of a cell, and the row in the matrix of cells of this size,
        uint32 [columns, 2]."""

    @abstractmethod
    def grow_below(self, tree_data: Any, cells: Sequence[NDArray[Any]], subtree: TreeRows, room: BufferPool) -> Subtree:
        """Grow the subtree below a small node in memory.

        cells  matrices [columns, rows] of the rows of the node, one for each type of cells
        room   buffers for a copy of the matrices
        """

    def finish(self, sizes: Mapping[Path, int], executor: Executor) -> None:
        """Run steps that are cheaper for many subtrees together; sizes: numbers of nodes of subtrees, by file."""
        return

    @abstractmethod
    def finished(self, top: UpperTree, path: Path | None, numbers: NDArray[np.int64]) -> TreeArrays:
        """Return some nodes of a tree in the form of the forest table.

        path     file of the subtree of these nodes; None for the upper part of the tree
        numbers  numbers of the nodes in the tree
        """

    # Shared by the families; RotationTable extends `pieces`.

    def pieces(self, top: UpperTree, folder: Path) -> Iterator[TreeArrays]:
        """Yield the nodes of a tree in preorder, in pieces; folder: of the subtree files. Memory: one subtree, twice
        if the tree is cut."""
        rules, whole = cut_rules(self.sampler.config), partial(self._grown_pieces, top, folder)
        return whole() if rules is None else cut_pieces(whole, top.node_count, rules, folder)

    def _grown_pieces(self, top: UpperTree, folder: Path) -> Iterator[TreeArrays]:
        """Yield the pieces of a tree before it is cut.

        entries of the upper part, in preorder     0  1  3  4  2       3 and 2 are subtrees of 3 and 9 nodes
        numbers in the whole tree                  0  1  2  5  6
        pieces, as numbers                         [0 1] [2 3 4] [5] [6 ... 14]
        """
        order = list(top.preorder())
        sizes = np.array([top.sizes.get(entry, 1) for entry in order], np.int64)
        numbers = np.cumsum(sizes) - sizes
        upper, begin = self.finished(top, None, numbers), 0
        upper = renumbered(upper, numbers[upper.right])
        for place, entry in enumerate(order):
            if entry in top.sizes:
                yield upper.rows(begin, place)
                below = self.finished(top, top.subtree(folder, entry), numbers[place] + np.arange(sizes[place]))
                yield renumbered(below, below.right + numbers[place])
                begin = place + 1
        yield upper.rows(begin, len(order))

    def answer(self, requests: Sequence[SplitRequest], folder: Path, blocks: range) -> list[SplitResponse]:
        """Task: return the responses of some blocks to the requests. Write the new nodes of rows, and the rows of small
        nodes, into `folder`."""
        read = np.empty(BLOCK_ROWS, self.context.kind.dtype)
        most = max((asked.max_collects() for asked in requests), default=0)
        stats = self.context.stats
        collected = CollectedRows.empty(self.context.kind, most * BLOCK_ROWS + 1, stats.regression)
        numbers = collected.number if stats.regression else None
        responses = [asked.no_response(self.context) for asked in requests]
        room = BufferPool()
        with ExitStack() as stack:
            sinks: list[Any] = []
            for asked, response in zip(requests, responses, strict=True):
                if asked.splits.node.size if asked.small is None else asked.small:
                    name = f"{'nodes' if asked.small is None else 'rows'}-{asked.tree}-{blocks.start}"
                    response.row_nodes[blocks.start] = path = folder / f"{name}-{secrets.token_hex(8)}.bin"
                sinks.append(stack.enter_context(writing_rows(path, asked.small, room)) if asked.small else None)
            for at, cells, node_items, value in self.route(requests, blocks, responses):
                asked, response, sink = requests[at], responses[at], sinks[at]
                rows = (cells, asked.probe_directions, *node_items, value)
                if asked.counts.node.size:
                    counted = (response.counts, response.low, response.high, response.mark)
                    count_rows(*rows, asked.counts, np.uint64(stats.slots), stats.weighted, read, *counted)
                if asked.collects.node.size:
                    ends = np.empty(asked.collects.node.size, np.uint64)
                    collect_rows(*rows, asked.collects, asked.wanted, read, *collected[:2], numbers, ends)
                    response.collected.append(collected.copied(ends))
                if asked.sums.node.size:
                    sum_rows(cells, *node_items, asked.sums, self.context.steps, response.sums)
                if sink is not None:
                    targets = [] if value is None else [value[np.newaxis]]
                    sink([*targets, *self._columns(asked.tree_data, cells)], node_items)
        return responses

    def route(
        self, requests: Sequence[SplitRequest], blocks: range, responses: Sequence[SplitResponse]
    ) -> Iterator[tuple[int, Any, NodeItems, NDArray[np.int64] | None]]:
        """Read blocks and route their rows through the newest splits of each request.

        responses  `below` and `above` are updated; `row_nodes` has the files to write the new nodes of rows into

        Yields for every block and request: number of the request, cells of the block as the tree of the request sees
        them, items of the block sorted by node, and regression targets of the block; None for classes.
        """
        allow_many_files()  # two for each tree, on each thread
        store, regression = self.store, self.context.stats.regression
        items, spare = np.empty(BLOCK_ROWS, np.uint64), np.empty(BLOCK_ROWS, np.uint64)
        read = np.empty(BLOCK_ROWS, self.context.kind.dtype)
        columns = [asked.needed_columns() for asked in requests]
        known = [numbers for numbers in columns if numbers is not None]
        all_features = range(len(store.spec.features))
        needed = sorted(self.needed(set().union(*known))) if len(known) == len(columns) else all_features
        again = any(asked.row_nodes for asked in requests)
        with ExitStack() as stack:
            reader = stack.enter_context(self.reader(blocks, needed, again))
            rows = []
            for asked, response in zip(requests, responses, strict=True):
                kept, out = (files.row_nodes.get(blocks.start) for files in (asked, response))
                opened = row_nodes(self.sampler, asked.tree, kept, None if asked.small else out)
                rows.append(stack.enter_context(opened))
            for block, cells in reader.each(blocks, needed):
                store.check_unchanged()
                span = block_span(store.rows, block)
                target = store.labels(span.start, span.stop)
                for at, (asked, response) in enumerate(zip(requests, responses, strict=True)):
                    take, keep = rows[at]
                    node_items = take(block, target.size, None if regression else target, asked.nodes, items)
                    node_rows, begin, end = node_items
                    seen = self.view(asked.tree_data, cells, target.size, columns[at])
                    if asked.splits.node.size:
                        ends = (begin, end, response.below, response.above)
                        route_rows(seen, asked.split_directions, node_rows, spare, read, asked.splits, *ends)
                        keep(*node_items)
                    yield at, seen, node_items, target if regression else None

    def _columns(self, tree_data: Any, cells: Any) -> Iterator[NDArray[Any]]:
        """Yield the columns that a tree grows on, one matrix for each matrix of a block."""
        place = self.place(tree_data)
        for matrix in cells[:3]:
            slots = place[place[:, 0] == matrix.itemsize, 1]
            yield read_only(matrix if slots.size == len(matrix) else matrix[slots])


class Passes(NamedTuple):
    """The passes of a group of trees over a table.

    ranges  runs of blocks, one task each, the same for all passes
    folder  scratch of these trees
    """

    table: TableView
    ranges: Sequence[tuple[range]]
    folder: Path
    executor: Executor

    @classmethod
    def of(cls, table: TableView, folder: Path, executor: Executor) -> Passes:
        """Return passes with as many tasks as run at once."""
        return cls(table, table.ranges(executor.size), folder, executor)

    def responses(
        self, task: Callable[..., list[SplitResponse]], requests: Sequence[SplitRequest]
    ) -> list[SplitResponse]:
        """Return the responses of all blocks to the requests; task: TableView.answer, or a function that calls it."""
        return self.executor.reduce(task, self.ranges, merged_all, (self.table, requests, self.folder))


def block_ranges(store: Store, tasks: int) -> list[tuple[range]]:
    """Divide the blocks of the store into `tasks` runs of about equal length, or fewer if there are fewer blocks."""
    blocks = block_count(store.rows)
    cuts = np.linspace(0, blocks, min(tasks, blocks) + 1).astype(int).tolist()
    return [(range(first, stop),) for first, stop in pairwise(cuts)]
