"""Split the nodes that do not fit in memory, breadth first, by passes over the store.

A pass goes over the blocks once, in order. For every tree it takes the rows of the block where they stand
(row_nodes.py), sends them down the newest splits, and answers what the nodes ask (node_search.py). Many nodes and many
trees share a pass. Runs of blocks are spread over tasks. What tasks find of a tree is added up (requests.py) and scored
where it meets: by one worker for each tree.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigforest.common.memory_estimate import release_freed
from bigforest.execution.executor import Executor
from bigforest.grow.out_of_core.node_search import NodeSearch
from bigforest.grow.out_of_core.requests import choose, merged, searches_of, take
from bigforest.grow.out_of_core.row_nodes import RowNodes, Stood
from bigforest.grow.out_of_core.upper_tree import GrowContext, UpperTree
from bigforest.sampling.bags import BLOCK_ROWS, Sampler
from bigforest.store.store import Store

# What a block of a table holds: its codes, or its values.
Cells = TypeVar("Cells")
# Where the rows of each node begin, or end.
Places = NDArray[np.uint64]


class RowRequest(Protocol):
    """What `walk` needs of a question."""

    @property
    def tree(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def splits(self) -> Any: ...
    @property
    def row_nodes(self) -> Mapping[int, Path]: ...


class RowResponse(Protocol):
    """What `walk` adds to a reply."""

    @property
    def row_nodes(self) -> dict[int, Path]: ...


class Scored(NamedTuple):
    """What a pass has led to in a tree: the searches of the nodes that asked, in the order in which they did, and what
    UpperTree.sent is told."""

    searches: list[NodeSearch]
    below: NDArray[Any]
    above: NDArray[Any]
    row_nodes: dict[int, Path]


class TableView(Protocol):
    """A table that passes go over, as trees see it: those on features (grow/families/axis/passes.py), or on projections
    (grow/families/oblique/passes.py). Their questions and replies are of requests.py or
    grow/families/oblique/requests.py."""

    @property
    def store(self) -> Store: ...
    @property
    def sampler(self) -> Sampler: ...
    @property
    def context(self) -> GrowContext: ...

    def request(self, top: Any, entries: Sequence[int]) -> Any:
        """What the nodes `entries` of a tree ask."""

    def answer(self, questions: list[Any], folder: Path, blocks: range) -> list[Any]:
        """The replies of some blocks to the questions; where rows stand then is written into `folder`."""

    def teach(self, tops: Sequence[Any], executor: Executor) -> None:
        """Hand nodes what follows from their rows in order, not from blocks on their own, where they ask for that."""


def split_large(
    table: TableView, tops: Sequence[UpperTree], folder: Path, ranges: Sequence[tuple[range]], executor: Executor
) -> None:
    """Pass over the store until no node of `tops` searches.

    folder  for files of where rows stand.
    ranges  the runs of blocks, the same for all passes over these trees.
    """
    while chosen := choose(tops, table.context.limits.room):
        _ask(table, tops, chosen, folder, ranges, executor)
        table.teach(tops, executor)


def _ask(
    table: TableView,
    tops: Sequence[UpperTree],
    chosen: Sequence[tuple[int, list[int]]],
    folder: Path,
    ranges: Sequence[tuple[range]],
    executor: Executor,
) -> None:
    """One pass, for these nodes of these trees."""
    questions = [table.request(tops[at], entries) for at, entries in chosen]
    searches = [(number, searches_of(tops[at], entries)) for number, (at, entries) in enumerate(chosen)]
    release_freed()
    scored = executor.reduce_parts(answer, ranges, merged, score, searches, (table, questions, folder))
    for (at, entries), found in zip(chosen, scored, strict=True):
        tops[at].sent(found.below, found.above, found.row_nodes)
        take(tops[at], entries, found.searches)


def answer(table: TableView, questions: list[Any], folder: Path, blocks: range) -> list[Any]:
    """Task: see TableView."""
    return table.answer(questions, folder, blocks)


def score(
    table: TableView, questions: list[Any], folder: Path, number: int, searches: list[NodeSearch], response: Any
) -> Scored:
    """Task: hand the nodes of question `number` what all blocks have answered."""
    answered = questions[number].answers(response)
    for search in searches:
        search.hear([answered(probe) for probe in search.pending])
    release_freed()
    return Scored(searches, response.below, response.above, response.row_nodes)


def block_ranges(store: Store, tasks: int) -> list[tuple[range]]:
    """All blocks of the store in `tasks` runs of about equal length, or fewer where there are fewer blocks."""
    blocks = -(-store.rows // store.block_rows)
    cuts = np.linspace(0, blocks, min(tasks, blocks) + 1).astype(int).tolist()
    return [(range(first, stop),) for first, stop in pairwise(cuts)]


def walk(
    table: TableView,
    questions: Sequence[RowRequest],
    blocks: range,
    replies: Sequence[RowResponse],
    folder: Path | None,
    read: Callable[[int, int | None], Cells],
    send: Callable[[Cells, int, NDArray[np.uint64], Places, Places], Cells],
) -> Iterator[tuple[int, tuple[Stood, NDArray[Any]], Cells]]:
    """For every block and question, the question's number, the block's rows sorted by the nodes they fall into, their
    targets, and the cells of the block.

    replies  learn where the rows stand then.
    folder   for the files of where they stand; None to forget it.
    read  gives a block's cells; its second argument is the block to be read next, if any.
    send  sends the items of a block down the newest splits of the question of this number, and gives the cells as its
          tree sees them.
    """
    store = table.store
    items = np.empty(BLOCK_ROWS, np.uint64)
    with ExitStack() as stack:
        row_nodes = []
        for asked, response in zip(questions, replies, strict=True):
            if folder is not None and asked.splits.node.size:
                name = f"standing-{asked.tree}-{blocks.start}-{secrets.token_hex(8)}.bin"
                response.row_nodes[blocks.start] = folder / name
            out = response.row_nodes.get(blocks.start)
            before = asked.row_nodes.get(blocks.start)
            row_nodes.append(stack.enter_context(RowNodes(table.sampler, asked.tree, before, out)))
        for block in blocks:
            store.check_unchanged()
            cells = read(block, block + 1 if block + 1 in blocks else None)
            start = block * store.block_rows
            target = store.labels(start, min(start + store.block_rows, store.rows))
            for at, asked in enumerate(questions):
                classes = None if store.spec.target.task == "regression" else target
                here, begin, end = row_nodes[at].take(block, target.size, classes, asked.nodes, items)
                seen = send(cells, at, here, begin, end)
                row_nodes[at].keep(here, begin, end)
                yield at, ((here, begin, end), target), seen
