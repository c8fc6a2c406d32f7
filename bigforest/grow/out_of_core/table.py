"""The table for passes, as trees see it: it answers requests block by block.

Methods of a `TableView` depend on the family, and on whether columns are features (grow/families/axis/passes.py) or
directions (grow/families/oblique/passes.py); it is sent to the workers with each task.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.executor import Executor
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.out_of_core.collected_rows import CollectedRows, Runs, gathered
from bigforest.grow.out_of_core.node_search import NodeSearch
from bigforest.grow.out_of_core.node_stats import Counts
from bigforest.grow.out_of_core.probes import ColumnKind
from bigforest.grow.out_of_core.requests import SplitRequest, SplitResponse
from bigforest.grow.out_of_core.row_file import BlockRows, NodeRows
from bigforest.grow.out_of_core.row_nodes import RowNodes, Stood
from bigforest.grow.out_of_core.split_scorer import SplitScorer
from bigforest.grow.out_of_core.upper_tree import GrowContext, UpperTree
from bigforest.kernels.out_of_core.blocks import (
    Steps,
    collect_rows,
    count_rows,
    route_rows,
    sum_rows,
)
from bigforest.sampling.bags import BLOCK_ROWS, Sampler
from bigforest.store.store import Store

# The own data of a tree, and bool [columns], the columns known to be constant in it.
TreeOwn = tuple[Any, NDArray[np.bool_]]


class CellReader(Protocol):
    """Reads a run of blocks, in order."""

    def read(self, block: int, features: Sequence[int], following: int | None) -> Any:
        """The cells of some features in a block, valid until the next call; following: the next block, if any."""


class SubtreeTask(NamedTuple):
    """A small node: entry in the upper tree, most rows, and the inputs of `grow`."""

    tree: int
    entry: int
    rows: int
    key: np.uint64
    depth: int
    constant: NDArray[np.bool_]


class TreeAssembly(NamedTuple):
    """The upper part of a tree, and the subtrees below it: the nodes of each by entry, in files of `folder`."""

    top: UpperTree
    sizes: dict[int, int]
    folder: Path

    def subtree(self, entry: int) -> Path:
        """The file of a subtree."""
        return subtree_path(self.folder, self.top.tree, entry)


def subtree_path(folder: Path, tree: int, entry: int) -> Path:
    """The file of a subtree."""
    return folder / f"subtree-{tree}-{entry}.bin"


@dataclass(frozen=True)
class TableView(ABC):
    """See above.

    kind  of the columns that trees split on
    """

    store: Store
    sampler: Sampler
    context: GrowContext
    kind: ClassVar[ColumnKind]

    @property
    def steps(self) -> Steps | None:
        """The steps in which features are summed; None if no node requests sums."""
        return None

    @abstractmethod
    def ranges(self, tasks: int) -> list[tuple[range]]:
        """The runs of blocks, for this many tasks."""

    @abstractmethod
    def own(
        self, trees: Sequence[int], totals: Counts, ranges: Sequence[tuple[range]], folder: Path, executor: Executor
    ) -> Sequence[TreeOwn]:
        """The own data of each tree; totals int64 [trees, parts], statistics of their bags."""

    @abstractmethod
    def search(self, own: Any, key: np.uint64, scorer: SplitScorer, constant: NDArray[np.bool_]) -> NodeSearch:
        """The search for the split of a node, see upper_tree.py StartSearch."""

    @abstractmethod
    def reader(self, blocks: range, features: Sequence[int], again: bool) -> AbstractContextManager[CellReader]:
        """Reads these features of some blocks; again: whether a pass has read them before."""

    def needed(self, columns: Collection[int]) -> Collection[int]:
        """Features that are read for these columns."""
        return columns

    def view(self, own: Any, cells: Any, rows: int, columns: Collection[int] | None) -> Any:
        """The columns of a block of this many rows as a tree sees them; these, or all if whole rows are needed."""
        return cells

    def train_nodes(self, tops: Sequence[UpperTree], executor: Executor) -> None:
        """Run the steps that need the rows of nodes in sequence, if nodes request them."""
        return

    @abstractmethod
    def grow(self, own: Any, subtree_task: SubtreeTask, rows: NodeRows, path: Path) -> int:
        """Grow the subtree below a small node from its rows into the file `path`; gives its nodes."""

    def finish(self, sizes: Mapping[Path, int], executor: Executor) -> None:
        """Run the steps that are cheaper for many subtrees together; sizes: number of nodes of each by its file."""
        return

    @abstractmethod
    def pieces(self, assembly: TreeAssembly) -> Iterator[TreeArrays]:
        """The nodes of a tree in preorder, in pieces. Memory: one subtree."""

    def answer(self, requests: Sequence[SplitRequest], folder: Path, blocks: range) -> list[SplitResponse]:
        """The responses of some blocks to the requests; the new nodes of rows are written into `folder`."""
        read = np.empty(BLOCK_ROWS, self.kind.dtype)
        most = max((asked.max_probes() for asked in requests), default=0)
        stats = self.context.stats
        found = CollectedRows.empty(self.kind, most * BLOCK_ROWS + 1, stats.numbers)
        numbers = found.number if stats.numbers else None
        pieces: list[list[Runs]] = [[] for _ in requests]
        responses = [asked.no_response() for asked in requests]
        for at, cells, stood, value in self.route(requests, blocks, responses, folder):
            asked, response = requests[at], responses[at]
            rows = (cells, asked.asked, *stood, value)
            counted = (response.counts, response.low, response.high, response.mark)
            count_rows(*rows, asked.counts, np.uint64(stats.parts), stats.weighted, read, *counted)
            if asked.collects.node.size:
                ends = np.empty(asked.collects.node.size, np.uint64)
                collect_rows(*rows, asked.collects, asked.wanted, read, found.value, found.tag, numbers, ends)
                pieces[at].append(Runs.copied(found, ends))
            if asked.sums.node.size:
                sum_rows(cells, *stood, asked.sums, self.steps, response.sums)
        return [
            response._replace(found=[gathered(of_blocks)] if of_blocks else [])
            for response, of_blocks in zip(responses, pieces, strict=True)
        ]

    def spread(
        self, requests: Sequence[SplitRequest], blocks: range, responses: Sequence[SplitResponse]
    ) -> Iterator[tuple[int, BlockRows]]:
        """For every block and request, without probes, its number, and the rows of the block with all columns that
        trees grow on; responses record what went left and right."""
        for at, cells, stood, value in self.route(requests, blocks, responses, None):
            yield at, BlockRows(cells[:3] if value is None else (value[np.newaxis], *cells[:3]), *stood)

    def route(
        self,
        requests: Sequence[SplitRequest],
        blocks: range,
        responses: Sequence[SplitResponse],
        folder: Path | None,
    ) -> Iterator[tuple[int, Any, Stood, NDArray[np.int64] | None]]:
        """For every block and request, the request's number, the block's cells as its tree sees them, its rows sorted
        by the nodes they fall into, and their regression targets; None for classes.

        responses  record what went left and right, and the new nodes of rows.
        folder   for the files of nodes of rows; None to drop these, if whole rows are needed.
        """
        store, numbers = self.store, self.context.stats.numbers
        items, spare = np.empty(BLOCK_ROWS, np.uint64), np.empty(BLOCK_ROWS, np.uint64)
        read = np.empty(BLOCK_ROWS, self.kind.dtype)
        columns = [None if folder is None else asked.features() for asked in requests]
        needed: Sequence[int] = range(len(store.spec.features))
        if folder is not None:
            needed = sorted(self.needed(set().union(*(asked.features() for asked in requests))))
        again = any(asked.row_nodes for asked in requests)
        with ExitStack() as stack:
            reader = stack.enter_context(self.reader(blocks, needed, again))
            parts = zip(requests, responses, strict=True)
            rows = [stack.enter_context(self._rows_of(*part, blocks.start, folder)) for part in parts]
            for block in blocks:
                store.check_unchanged()
                cells = reader.read(block, needed, block + 1 if block + 1 in blocks else None)
                start = block * store.block_rows
                target = store.labels(start, min(start + store.block_rows, store.rows))
                for at, (asked, response) in enumerate(zip(requests, responses, strict=True)):
                    stood = rows[at].take(block, target.size, None if numbers else target, asked.nodes, items)
                    here, begin, end = stood
                    seen = self.view(asked.own, cells, target.size, columns[at])
                    ends = (begin, end, response.below, response.above)
                    route_rows(seen, asked.ways, here, spare, read, asked.splits, *ends)
                    rows[at].keep(*stood)
                    yield at, seen, stood, target if numbers else None

    def _rows_of(self, asked: SplitRequest, response: SplitResponse, first: int, folder: Path | None) -> RowNodes:
        """The nodes of the rows of a tree in the blocks from `first` on."""
        if folder is not None and asked.splits.node.size:
            response.row_nodes[first] = folder / f"standing-{asked.tree}-{first}-{secrets.token_hex(8)}.bin"
        before, after = asked.row_nodes.get(first), response.row_nodes.get(first)
        return RowNodes(self.sampler, asked.tree, before, after)
