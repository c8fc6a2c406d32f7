"""Grow trees whose rows do not fit in memory: split large nodes by passes, write the rows of small ones to disk by
node, and grow each of those in memory. Oracle: grow/in_memory.py grow_tree, which has all in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bigforest.common.memory_estimate import release_freed
from bigforest.execution.executor import Executor
from bigforest.forest.format.nodes import TreeArrays, write_part
from bigforest.grow.out_of_core.assemble import remove_subtree
from bigforest.grow.out_of_core.levels import split_large
from bigforest.grow.out_of_core.node_stats import Counts, NodeStats, total_of
from bigforest.grow.out_of_core.requests import SplitRequest, SplitResponse, merged_all, request
from bigforest.grow.out_of_core.row_file import NodeRows, rows_of
from bigforest.grow.out_of_core.table import SubtreeTask, TableView, TreeAssembly
from bigforest.grow.out_of_core.upper_tree import UpperTree, root_key
from bigforest.grow.shared.passed_leaves import SplitFiles, SplitKeeper, write_left_out
from bigforest.grow.shared.weighted_bags import check_bag, weighed_block
from bigforest.sampling.bags import Sampler


def grow_by_passes(
    table: TableView,
    parts: Sequence[range],
    directory: Path,
    folder: Path,
    *,
    executor: Executor,
    on_trees: Callable[[int], None],
) -> None:
    """Write the parts of some trees, which share the passes over the store; `folder` is empty scratch.

    on_trees is called with the number of finished trees.
    """
    trees = [tree for part in parts for tree in part]
    ranges = table.ranges(executor.size)
    stats = table.context.stats
    totals = executor.reduce(count_bags, ranges, np.add, (table.sampler, trees, stats))
    if stats.weighted:
        check_bag(int(stats.weight(totals).max()))
    config, context = table.sampler.config, table.context
    owns = table.own(trees, totals, ranges, folder, executor)
    tops = [
        UpperTree(tree, root_key(config, tree), total, context, table.kind, table.search, *own)
        for tree, total, own in zip(trees, totals, owns, strict=True)
    ]
    split_large(table, tops, folder, ranges, executor)
    requests = [request(top, [], top.small()) for top in tops]
    written = executor.reduce(spill, ranges, merged_all, (table, requests, folder))
    for top, response in zip(tops, written, strict=True):
        top.sent(response.below, response.above, {})
    assemblies = {
        top.tree: TreeAssembly(top, {}, folder, [*top.past.values(), *top.row_nodes.values(), *rows.row_nodes.values()])
        for top, rows in zip(tops, written, strict=True)
    }
    _grow_all(table, assemblies, written, executor)
    subtrees = {own.subtree(entry): nodes for own in assemblies.values() for entry, nodes in own.sizes.items()}
    table.finish(subtrees, executor)

    splits: dict[int, SplitFiles] = {}

    def end(index: int, kept: dict[int, SplitFiles]) -> None:
        splits.update(kept)
        if not kept:
            on_trees(len(parts[index]))

    own = [([assemblies[tree] for tree in part],) for part in parts]
    executor.run(write_assemblies, own, end, (table, directory, folder), even=True)
    # Only now: before, a task may have to run again.
    over = [
        ([one.subtree(entry) for tree in part for one in [assemblies[tree]] for entry in one.sizes],) for part in parts
    ]
    executor.run(remove_subtrees, over, lambda *_: None, even=True)
    if splits:
        room = table.context.limits.nodes
        write_left_out(table, parts, splits, directory, folder, ranges, room, executor, on_trees)


def count_bags(sampler: Sampler, trees: Sequence[int], stats: NodeStats, blocks: range) -> Counts:
    """Task: the statistics of the bags of the trees in some blocks, int64 [trees, parts]."""
    store = sampler.store
    totals = np.zeros((len(trees), stats.parts), np.int64)
    store.fetch([], blocks)
    for block in blocks:
        target = store.labels(block * store.block_rows, (block + 1) * store.block_rows)
        for at, tree in enumerate(trees):
            totals[at] += total_of(target, weighed_block(sampler, tree, block), stats)
    return totals


def spill(table: TableView, requests: list[SplitRequest], folder: Path, blocks: range) -> list[SplitResponse]:
    """Task: write the rows of small nodes, see TableView.answer; by name another task, for those who watch."""
    return table.answer(requests, folder, blocks)


def grow_subtree_task(
    table: TableView, own: dict[int, Any], subtree_task: SubtreeTask, rows: NodeRows, path: Path
) -> int:
    """Task: see TableView.grow; `own` by tree."""
    nodes = table.grow(own[subtree_task.tree], subtree_task, rows, path)
    release_freed()
    return nodes


def write_assemblies(
    table: TableView, directory: Path, folder: Path, assemblies: list[TreeAssembly]
) -> dict[int, SplitFiles]:
    """Task: write consecutive trees as one part; gives what they split on, by tree, where rows are out of bag. The rows
    that their subtrees were grown from are removed."""
    for path in (path for assembly in assemblies for path in assembly.rows):
        path.unlink(missing_ok=True)
    store, config = table.store, table.sampler.config
    part = range(assemblies[0].top.tree, assemblies[0].top.tree + len(assemblies))
    with ExitStack() as stack:
        kept = stack.enter_context(SplitKeeper(store.spec, directory, folder, part)) if config.bootstrap else None

        def pieces() -> Iterator[TreeArrays]:
            for assembly in assemblies:
                own = table.pieces(assembly)
                yield from own if kept is None else kept.through(assembly.top.tree, own)

        write_part(directory, part.start, pieces(), store.spec, config, store.levels())
    if kept is not None:
        kept.write_ballots()
    release_freed()
    return {} if kept is None else kept.splits


def _grow_all(
    table: TableView, assemblies: dict[int, TreeAssembly], written: Sequence[SplitResponse], executor: Executor
) -> None:
    """Grow the subtrees below all small nodes, tree by tree, large ones first, and note their sizes."""
    tasks = []
    for assembly, response in zip(assemblies.values(), written, strict=True):
        top, files = assembly.top, [path for _, path in sorted(response.row_nodes.items())]
        own = [
            (
                SubtreeTask(top.tree, entry, int(top.stats.rows(node.total)), node.key, node.depth, node.constant),
                rows_of(files, number),
                assembly.subtree(entry),
            )
            for number, entry in enumerate(top.small())
            for node in [top.nodes[entry]]
        ]
        tasks += sorted(own, key=lambda task: -task[0].rows)

    def keep(index: int, nodes: int) -> None:
        subtree_task = tasks[index][0]
        assemblies[subtree_task.tree].sizes[subtree_task.entry] = nodes

    owns = {tree: assembly.top.own for tree, assembly in assemblies.items()}
    executor.run(grow_subtree_task, tasks, keep, (table, owns))


def remove_subtrees(paths: Sequence[Path]) -> None:
    """Task: remove the files of some subtrees."""
    for path in paths:
        remove_subtree(path)
