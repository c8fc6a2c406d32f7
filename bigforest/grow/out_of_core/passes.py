"""Grow trees whose rows do not fit in memory: split large nodes by passes, write the rows of small ones to disk by
node, and grow each of those in memory. Oracle: grow/forest.py grow_tree, which has all in memory.

Large nodes are split breadth first. A pass reads the blocks once, in order. For every tree it takes the rows of the
block at their nodes (row_nodes.py), routes them through the newest splits, and answers the requests of nodes
(node_search.py). Many nodes and many trees share a pass. Runs of blocks are divided among tasks. The responses of tasks
are added up per tree (requests.py), and scored by one worker for each tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.buffer_pool import BufferPool
from bigforest.forest.files import Header
from bigforest.forest.nodes import write_part
from bigforest.grow.out_of_core.context import PROJECTIONS, Counts, NodeStats, total_of
from bigforest.grow.out_of_core.node_search import NodeSearch
from bigforest.grow.out_of_core.passed_leaves import SplitFiles, keeping_splits, split_types, write_left_out
from bigforest.grow.out_of_core.requests import SplitRequest, SplitResponse, choose_nodes, request
from bigforest.grow.out_of_core.row_file import NodeRows, load_rows, rows_of
from bigforest.grow.out_of_core.table import Passes, SubtreeScratch, TableView
from bigforest.grow.out_of_core.upper_tree import UpperNode, UpperTree, files_of_subtree, root_key, write_subtree
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.tree.builder import Roots
from bigforest.planning.memory import release_freed
from bigforest.sampling.bags import Sampler, check_bag
from bigforest.store.format import block_span


def grow_by_passes(passes: Passes, parts: Sequence[range], directory: Path, on_trees: Callable[[int], None]) -> None:
    """Write the parts of some trees, which share the passes; on_trees is called with the number of finished trees."""
    table, ranges, folder, executor = passes
    trees = [tree for part in parts for tree in part]
    stats = table.context.stats
    totals = executor.reduce(count_bags, ranges, np.add, (table.sampler, trees, stats))
    if stats.weighted:
        check_bag(int(stats.weight(totals).max()))
    config, context = table.sampler.config, table.context
    tree_data = table.tree_data(trees, totals, passes)
    tops = [
        UpperTree(tree, root_key(config, tree), total, context, table.search, data, table.constant(data))
        for tree, total, data in zip(trees, totals, tree_data, strict=True)
    ]
    split_large(passes, tops)
    written = passes.responses(spill, [request(top, {}, top.small()) for top in tops])
    past: list[Path] = []
    for top, response in zip(tops, written, strict=True):
        past += [*top.sent(response.below, response.above, {}), *top.row_nodes.values()]
    executor.discard(past)
    _grow_all(passes, tops, written)
    subtrees = {top.subtree(folder, entry): nodes for top in tops for entry, nodes in top.sizes.items()}
    table.finish(subtrees, executor)
    executor.discard([path for response in written for path in response.row_nodes.values()])

    by_tree, splits = {top.tree: top for top in tops}, {}
    tasks = [([by_tree[tree] for tree in part],) for part in parts]

    def end(index: int, kept: dict[int, SplitFiles]) -> None:
        splits.update(kept)
        if not kept:
            on_trees(len(parts[index]))

    executor.run(write_assemblies, tasks, end, (table, directory, folder), even=True)
    executor.discard([file for path in subtrees for file in files_of_subtree(path)])
    if splits:
        write_left_out(passes, parts, splits, directory, on_trees)


def split_large(passes: Passes, tops: Sequence[UpperTree]) -> None:
    """Make passes over the store until no node of `tops` searches."""
    while chosen := choose_nodes(tops, passes.table.context.limits.room):
        _ask(passes, chosen)
        passes.table.train_nodes(tops, passes.executor)


def _ask(passes: Passes, chosen: Sequence[tuple[UpperTree, dict[int, NodeSearch]]]) -> None:
    """One pass, for these nodes of these trees."""
    table, ranges, folder, executor = passes
    requests = [request(top, searches) for top, searches in chosen]
    tasks = [(number, searches) for number, (_, searches) in enumerate(chosen)]
    release_freed()
    scored = executor.reduce_parts(
        TableView.answer, ranges, SplitResponse.merged, score_responses, tasks, (table, requests, folder)
    )
    past: list[Path] = []
    for (top, _), (searches, below, above, row_nodes) in zip(chosen, scored, strict=True):
        past += top.sent(below, above, row_nodes)
        for entry, search in searches.items():
            top.settle(entry, search, table.search)
    executor.discard(past)


def score_responses(
    table: TableView,
    requests: list[SplitRequest],
    folder: Path,
    number: int,
    searches: dict[int, NodeSearch],
    response: SplitResponse,
) -> tuple[dict[int, NodeSearch], NDArray[Any], NDArray[Any], dict[int, Path]]:
    """Task: give the searches of request `number` the responses of all blocks; gives them back, and the arguments of
    UpperTree.sent."""
    answers = requests[number].answers(response, table.context.stats.parts)
    for search in searches.values():
        search.receive([next(answers[type(probe)]) for probe in search.pending])
    release_freed()
    return searches, response.below, response.above, response.row_nodes


def count_bags(sampler: Sampler, trees: Sequence[int], stats: NodeStats, blocks: range) -> Counts:
    """Task: the statistics of the bags of the trees in some blocks, int64 [trees, parts]."""
    store = sampler.store
    totals = np.zeros((len(trees), stats.parts), np.int64)
    store.fetch([], blocks)
    for block in blocks:
        span = block_span(store.rows, block)
        target = store.labels(span.start, span.stop)
        for at, tree in enumerate(trees):
            totals[at] += total_of(target, sampler.weighed_block(tree, block), stats)
    return totals


def spill(table: TableView, requests: list[SplitRequest], folder: Path, blocks: range) -> list[SplitResponse]:
    """Task: write the rows of small nodes, see TableView.answer; by name another task, for those who watch."""
    return table.answer(requests, folder, blocks)


def grow_subtree_task(
    table: TableView,
    tree_data: dict[int, Any],
    rooms: tuple[BufferPool, BufferPool],
    tree: int,
    node: UpperNode,
    rows: NodeRows,
    path: Path,
) -> int:
    """Task: grow the subtree below a small node from its rows into the file `path`; gives its nodes.

    tree_data: of all trees, by tree; rooms: for the rows, and for a copy of them.
    """
    data, context = tree_data[tree], table.context
    widths, regression = table.place(data)[:, 0].tolist(), context.stats.regression
    kinds = [(kind, widths.count(np.dtype(kind).itemsize)) for kind in context.kind.cells]
    most = int(context.stats.rows(node.total))
    cells, items = load_rows(rows, [("<i8", 1), *kinds] if regression else kinds, most, rooms)
    classes = ClassTarget(context.stats.classes, context.criterion.table)
    zero = context.criterion.zero(table.store.spec.target)
    target = RegressionTarget(cells.pop(0)[0], zero) if regression else classes
    roots = Roots.one(items.size, node.key, node.depth, node.constant)
    subtree = SubtreeScratch(items, target, roots, context.rules)
    nodes = write_subtree(path, *table.grow_below(data, cells, subtree, rooms[1]))
    del cells, items, target, subtree  # before freed memory is given back
    release_freed()
    return nodes


def write_assemblies(table: TableView, directory: Path, folder: Path, tops: list[UpperTree]) -> dict[int, SplitFiles]:
    """Task: write consecutive trees as one part; gives what they split on, by tree, where rows are out of bag."""
    store, config = table.store, table.sampler.config
    part = range(tops[0].tree, tops[0].tree + len(tops))
    split = split_types(store.spec, projected=table.context.kind == PROJECTIONS)
    with keeping_splits(store.spec, directory, folder, part, split) if config.bootstrap else nullcontext() as kept:
        through = (lambda _, pieces: pieces) if kept is None else kept[0]
        trees = (piece for top in tops for piece in through(top.tree, table.pieces(top, folder)))
        write_part(directory, part.start, trees, Header(store.spec, config, store.levels()))
    release_freed()
    return {} if kept is None else kept[1]


def _grow_all(passes: Passes, tops: Sequence[UpperTree], written: Sequence[SplitResponse]) -> None:
    """Grow the subtrees below all small nodes, the largest first, so that tasks end together, and note their sizes."""
    work: list[tuple[UpperTree, int, NodeRows]] = []
    for top, response in zip(tops, written, strict=True):
        files = [path for _, path in sorted(response.row_nodes.items())]
        work += [(top, entry, rows_of(files, number)) for number, entry in enumerate(top.small())]
    work.sort(key=lambda own: -own[0].stats.rows(own[0].nodes[own[1]].total))
    costs = [int(top.stats.rows(top.nodes[entry].total)) for top, entry, _ in work]
    tasks = [(top.tree, top.nodes[entry], rows, top.subtree(passes.folder, entry)) for top, entry, rows in work]
    shared = (passes.table, {top.tree: top.tree_data for top in tops}, (BufferPool(), BufferPool()))
    sizes = passes.executor.gather(grow_subtree_task, tasks, shared=shared, costs=costs)
    for (top, entry, _), nodes in zip(work, sizes, strict=True):
        top.sizes[entry] = nodes
