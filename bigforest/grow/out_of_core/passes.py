"""Grow trees whose rows do not fit in memory: split large nodes by passes, write the rows of small ones to disk by
node, and grow each of those in memory. Oracle: grow/in_memory.py grow_tree, which has all in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigforest.common.memory_estimate import release_freed
from bigforest.execution.executor import Executor
from bigforest.forest.format.nodes import write_part
from bigforest.grow.out_of_core.assemble import remove_subtree
from bigforest.grow.out_of_core.levels import split_large
from bigforest.grow.out_of_core.node_stats import Counts, NodeStats, total_of
from bigforest.grow.out_of_core.requests import SplitRequest, SplitResponse, merged_all, request
from bigforest.grow.out_of_core.row_file import NodeRows, rows_of, write_rows
from bigforest.grow.out_of_core.table import SubtreeTask, TableView, TreeAssembly, subtree_path
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
    requests = [request(top, []) for top in tops]
    small = [top.small() for top in tops]
    spilled = executor.reduce(spill, ranges, merged_spills, (table, requests, small, folder))
    for top, response in zip(tops, spilled.responses, strict=True):
        top.sent(response.below, response.above, {})
    sizes = _grow_all(table, tops, spilled, folder, executor)
    files = {subtree_path(folder, tree, entry): nodes for tree, own in sizes.items() for entry, nodes in own.items()}
    table.finish(files, executor)
    assemblies = {top.tree: TreeAssembly(top, sizes[top.tree], folder) for top in tops}

    splits: dict[int, SplitFiles] = {}

    def end(index: int, written: dict[int, SplitFiles]) -> None:
        for tree in parts[index]:
            for entry in sizes[tree]:
                remove_subtree(assemblies[tree].subtree(entry))
        splits.update(written)
        if not written:
            on_trees(len(parts[index]))

    own = [([assemblies[tree] for tree in part],) for part in parts]
    executor.run(write_assemblies, own, end, (table, directory, folder))
    if splits:
        room = table.context.limits.nodes
        write_left_out(table, parts, splits, directory, folder, ranges, room, executor, on_trees)


class Spilled(NamedTuple):
    """The result of a spill: responses with what went left and right, and the suffixes of the files written, by the
    first block of each run of blocks."""

    responses: list[SplitResponse]
    suffixes: dict[int, str]


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


def spill(
    table: TableView, requests: list[SplitRequest], small: list[list[int]], folder: Path, blocks: range
) -> Spilled:
    """Task: write the rows of the `small` nodes (entries of each request's top) of some blocks into `folder`.

    requests  one per tree, without probes.
    """
    responses = [asked.no_response() for asked in requests]
    rows = ((requests[at].tree, small[at], spread) for at, spread in table.spread(requests, blocks, responses))
    suffix = write_rows(rows, folder, blocks.start)
    return Spilled(responses, {blocks.start: suffix})


def merged_spills(one: Spilled, two: Spilled) -> Spilled:
    """The result of both."""
    return Spilled(merged_all(one.responses, two.responses), one.suffixes | two.suffixes)


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
    """Task: write consecutive trees as one part; gives what they split on, by tree, where rows are out of bag."""
    store, config = table.store, table.sampler.config
    part = range(assemblies[0].top.tree, assemblies[0].top.tree + len(assemblies))
    written = (store.spec, config, store.levels())
    if config.bootstrap:
        with SplitKeeper(store.spec, directory, folder, part) as kept:
            pieces = (
                piece for assembly in assemblies for piece in kept.through(assembly.top.tree, table.pieces(assembly))
            )
            write_part(directory, part.start, pieces, *written)
        kept.write_ballots()
    else:
        write_part(
            directory, part.start, (piece for assembly in assemblies for piece in table.pieces(assembly)), *written
        )
    release_freed()
    return kept.splits if config.bootstrap else {}


def _grow_all(
    table: TableView, tops: Sequence[UpperTree], spilled: Spilled, folder: Path, executor: Executor
) -> dict[int, dict[int, int]]:
    """Grow the subtrees below all small nodes, tree by tree, large ones first; gives their sizes by tree and entry."""
    suffixes = [suffix for _, suffix in sorted(spilled.suffixes.items())]
    tasks = []
    for top in tops:
        own = [
            (
                SubtreeTask(top.tree, entry, int(top.stats.rows(node.total)), node.key, node.depth, node.constant),
                rows_of(folder, top.tree, number, suffixes),
                subtree_path(folder, top.tree, entry),
            )
            for number, entry in enumerate(top.small())
            for node in [top.nodes[entry]]
        ]
        tasks += sorted(own, key=lambda task: -task[0].rows)
    sizes: dict[int, dict[int, int]] = {top.tree: {} for top in tops}
    wanted = Counter(path for _, rows, _ in tasks for path in rows.paths)

    # Removing files may wait for the disk, and this thread hands out the tasks.
    removed: list[Future[None]] = []
    with ThreadPoolExecutor(1, thread_name_prefix="bigforest-remove") as remover:

        def keep(index: int, nodes: int) -> None:
            subtree_task, rows, _ = tasks[index]
            sizes[subtree_task.tree][subtree_task.entry] = nodes
            wanted.subtract(rows.paths)
            over = [path for path in rows.paths if not wanted[path]]
            removed.append(remover.submit(_remove, over))  # only now: before, the task may have to run again

        executor.run(grow_subtree_task, tasks, keep, (table, {top.tree: top.own for top in tops}))
    for done in removed:
        done.result()
    return sizes


def _remove(files: Sequence[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)
