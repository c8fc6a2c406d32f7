"""Split the nodes that do not fit in memory, breadth first, by passes over the store.

A pass reads the blocks once, in order. For every tree it takes the rows of the block at their nodes (row_nodes.py),
routes them through the newest splits, and answers the requests of nodes (node_search.py). Many nodes and many trees
share a pass. Runs of blocks are divided among tasks. The responses of tasks are added up per tree (requests.py), and
scored by one worker for each tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.memory_estimate import release_freed
from bigforest.execution.executor import Executor
from bigforest.grow.out_of_core.node_search import NodeSearch
from bigforest.grow.out_of_core.requests import (
    SplitRequest,
    SplitResponse,
    choose_nodes,
    request,
)
from bigforest.grow.out_of_core.table import TableView
from bigforest.grow.out_of_core.upper_tree import UpperTree
from bigforest.store.store import Store


class Scored(NamedTuple):
    """The result of a pass for a tree: the searches of its nodes, in the order of their requests, and the arguments of
    UpperTree.sent."""

    searches: list[NodeSearch]
    below: NDArray[Any]
    above: NDArray[Any]
    row_nodes: dict[int, Path]


def split_large(
    table: TableView, tops: Sequence[UpperTree], folder: Path, ranges: Sequence[tuple[range]], executor: Executor
) -> None:
    """Make passes over the store until no node of `tops` searches.

    folder  for files of the nodes of rows.
    ranges  the runs of blocks, the same for all passes over these trees.
    """
    while chosen := choose_nodes(tops, table.context.limits.room):
        _ask(table, tops, chosen, folder, ranges, executor)
        table.train_nodes(tops, executor)


def _ask(
    table: TableView,
    tops: Sequence[UpperTree],
    chosen: Sequence[tuple[int, list[int]]],
    folder: Path,
    ranges: Sequence[tuple[range]],
    executor: Executor,
) -> None:
    """One pass, for these nodes of these trees."""
    requests = [request(tops[at], entries) for at, entries in chosen]
    searches = [(number, [tops[at].search(entry) for entry in entries]) for number, (at, entries) in enumerate(chosen)]
    release_freed()
    scored = executor.reduce_parts(
        TableView.answer, ranges, SplitResponse.merged, score_responses, searches, (table, requests, folder)
    )
    for (at, entries), found in zip(chosen, scored, strict=True):
        tops[at].sent(found.below, found.above, found.row_nodes)
        for entry, search in zip(entries, found.searches, strict=True):
            tops[at].settle(entry, search, table.search)


def score_responses(
    table: TableView,
    requests: list[SplitRequest],
    folder: Path,
    number: int,
    searches: list[NodeSearch],
    response: SplitResponse,
) -> Scored:
    """Task: give the searches of request `number` the responses of all blocks."""
    answered = requests[number].answers(response)
    for search in searches:
        search.receive([answered(probe) for probe in search.pending])
    release_freed()
    return Scored(searches, response.below, response.above, response.row_nodes)


def block_ranges(store: Store, tasks: int) -> list[tuple[range]]:
    """All blocks of the store in `tasks` runs of about equal length, or fewer where there are fewer blocks."""
    blocks = -(-store.rows // store.block_rows)
    cuts = np.linspace(0, blocks, min(tasks, blocks) + 1).astype(int).tolist()
    return [(range(first, stop),) for first, stop in pairwise(cuts)]
