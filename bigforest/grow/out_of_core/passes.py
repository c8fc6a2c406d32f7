"""Grow trees whose rows do not fit in memory by passes over the store. Oracle: grow/forest.py grow_tree, which grows
the same trees with all rows in memory.

A group of trees shares the passes. `grow_by_passes`:

1. Sum the statistics of each bag, and make the data of each tree: axes, class means, subspace (`TableView.tree_data`).
2. Split large nodes, breadth first, by passes (`split_large`). A node counts the columns that it draws and opens some
   buckets (node_search.py). Nodes that fit in memory wait.
3. Spill: a last pass writes the rows of the waiting nodes, sorted by node, to scratch (row_file.py).
4. Load the rows of each waiting node, the largest first, and grow its subtree in memory (`grow_subtree_task`).
5. Put upper part and subtrees together in preorder, and write the parts of the forest (`write_assemblies`).
6. Route the out-of-bag rows down the finished trees, block by block (out_of_bag.py).

A pass reads the blocks of the store in order; a task reads one run of blocks. For each block and tree
(`TableView.answer`, with the kernels of kernels/out_of_core/blocks.py):

    rows of the block at their nodes       written by the last pass     0: [r0 r1 r2 r3 r4 r5]
          | route_rows, through the newest splits                       1: [r0 r3 r4]   2: [r1 r2 r5]
          | written for the next pass
          | count_rows, collect_rows, sum_rows, for the probes of nodes 1 and 2
          v
    SplitResponse: histograms, collected rows, sums     added up over all tasks, in integers
          | score_responses, one task for each tree
          v
    searches of nodes 1 and 2: a split, a leaf, or probes for the next pass (SplitRequest)

The responses are integers and sets of rows, so trees do not depend on the division of blocks among tasks. A task may
run twice, so scratch files are removed only after the results of the tasks that read them have arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.process_cache import BufferPool
from bigforest.forest.files import Header
from bigforest.forest.nodes import write_part
from bigforest.grow.out_of_core.context import PROJECTIONS, Counts, NodeStats, total_of
from bigforest.grow.out_of_core.node_search import NodeSearch
from bigforest.grow.out_of_core.out_of_bag import SplitFiles, keeping_splits, split_types, write_left_out
from bigforest.grow.out_of_core.requests import SplitRequest, SplitResponse, choose_nodes, request
from bigforest.grow.out_of_core.row_file import SpilledRows, load_rows, spilled_rows
from bigforest.grow.out_of_core.table import Passes, TableView
from bigforest.grow.out_of_core.upper_tree import UpperNode, UpperTree, files_of_subtree, root_key, write_subtree
from bigforest.grow.trees import TreeRows
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.tree.builder import Roots
from bigforest.planning.memory import release_freed
from bigforest.sampling.bags import Sampler, check_bag
from bigforest.storage.atomic import remove_files
from bigforest.store.format import block_span


def grow_by_passes(passes: Passes, parts: Sequence[range], directory: Path, advance: Callable[[int], None]) -> None:
    """Write the parts of a group of trees. Call `advance` with the number of trees that were finished."""
    tops = _start_trees(passes, [tree for part in parts for tree in part])
    split_large(passes, tops)
    spilled = _spill_small(passes, tops)
    _grow_small(passes, tops, spilled)
    splits = _write_parts(passes, parts, tops, directory, advance)
    if splits:
        write_left_out(passes, parts, splits, directory, advance)


def _start_trees(passes: Passes, trees: Sequence[int]) -> list[UpperTree]:
    """Count the bags of trees, and start the search of each root."""
    table, ranges, _, executor = passes
    stats, config = table.context.stats, table.sampler.config
    totals = executor.reduce(count_bags, ranges, np.add, (table.sampler, trees, stats))
    check_bag(int(stats.weight(totals).max()), table.store.spec)
    tree_data = table.tree_data(trees, totals, passes)
    return [
        UpperTree(tree, root_key(config, tree), total, table.context, table.search, data, len(table.place(data)))
        for tree, total, data in zip(trees, totals, tree_data, strict=True)
    ]


def split_large(passes: Passes, tops: Sequence[UpperTree]) -> None:
    """Make passes over the store until no node searches."""
    while chosen := choose_nodes(tops, passes.table.context.limits.room):
        _ask(passes, chosen)
        passes.table.train_nodes(tops, passes.executor)


def _ask(passes: Passes, chosen: Sequence[tuple[UpperTree, dict[int, NodeSearch]]]) -> None:
    """Make one pass, for some nodes of some trees. Split the nodes whose searches end."""
    table, ranges, folder, executor = passes
    requests = [request(top, searches) for top, searches in chosen]
    tasks = [(number, searches) for number, (_, searches) in enumerate(chosen)]
    scored = executor.reduce_parts(
        TableView.answer, ranges, SplitResponse.merged, score_responses, tasks, (table, requests, folder)
    )
    past: list[Path] = []
    for (top, _), (searches, below, above, row_nodes) in zip(chosen, scored, strict=True):
        past += top.record_routed(below, above, row_nodes)
        for entry, search in searches.items():
            top.settle(entry, search, table.search)
    remove_files(past)


def score_responses(
    table: TableView,
    requests: list[SplitRequest],
    folder: Path,
    number: int,
    searches: dict[int, NodeSearch],
    response: SplitResponse,
) -> tuple[dict[int, NodeSearch], NDArray[Any], NDArray[Any], dict[int, Path]]:
    """Task: pass the response of all blocks to the searches of request `number`.

    Return the searches, and the arguments of UpperTree.record_routed.
    """
    answers = requests[number].answers(response, table.context.stats.slots)
    for search in searches.values():
        search.receive([next(answers[type(probe)]) for probe in search.pending])
    release_freed()
    return searches, response.below, response.above, response.row_nodes


def count_bags(sampler: Sampler, trees: Sequence[int], stats: NodeStats, blocks: range) -> Counts:
    """Task: return the statistics of the bags of the trees in some blocks, int64 [trees, slots]."""
    store = sampler.store
    totals = np.zeros((len(trees), stats.slots), np.int64)
    store.fetch([], blocks)
    for block in blocks:
        span = block_span(store.rows, block)
        target = store.labels(span.start, span.stop)
        for at, tree in enumerate(trees):
            totals[at] += total_of(target, sampler.block_search_weights(tree, block), stats)
    return totals


def spill(table: TableView, requests: list[SplitRequest], folder: Path, blocks: range) -> list[SplitResponse]:
    """Task: write the rows of small nodes. It is a function of its own so that Dask's dashboard shows it by name."""
    return table.answer(requests, folder, blocks)


def grow_subtree_task(
    table: TableView,
    tree_data: dict[int, Any],
    rooms: tuple[BufferPool, BufferPool],
    tree: int,
    node: UpperNode,
    rows: SpilledRows,
    path: Path,
) -> int:
    """Task: grow the subtree below a small node from its rows, and write it to `path`. Return its number of nodes.

    tree_data  TableView.tree_data, by tree
    rooms      buffers for the rows, and for a copy of them
    """
    data, context = tree_data[tree], table.context
    widths, regression = table.place(data)[:, 0].tolist(), context.stats.regression
    kinds = [(kind, widths.count(np.dtype(kind).itemsize)) for kind in context.kind.cell_types]
    most = int(context.stats.rows(node.total))
    cells, items = load_rows(rows, [("<i8", 1), *kinds] if regression else kinds, most, rooms)
    classes = ClassTarget(context.stats.classes, context.criterion.table)
    zero = context.criterion.zero(table.store.spec.target)
    target = RegressionTarget(cells.pop(0)[0], zero) if regression else classes
    roots = Roots.single(items.size, node.key, node.depth, node.constant)
    subtree = TreeRows(items, target, roots, context.rules)
    return write_subtree(path, *table.grow_below(data, cells, subtree, rooms[1]))


def write_assemblies(table: TableView, directory: Path, folder: Path, tops: list[UpperTree]) -> dict[int, SplitFiles]:
    """Task: write consecutive trees as one part. Return the files of their splits, by tree; empty without bootstrap."""
    store, config = table.store, table.sampler.config
    part = range(tops[0].tree, tops[0].tree + len(tops))
    types = split_types(store.spec, projected=table.context.kind == PROJECTIONS)
    with keeping_splits(store.spec, directory, folder, part, types) if config.bootstrap else nullcontext() as kept:
        through = (lambda _, pieces: pieces) if kept is None else kept[0]
        trees = (piece for top in tops for piece in through(top.tree, table.pieces(top, folder)))
        write_part(directory, part.start, trees, Header(store.spec, config, store.levels()))
    release_freed()
    return {} if kept is None else kept[1]


def _spill_small(passes: Passes, tops: Sequence[UpperTree]) -> list[SplitResponse]:
    """Route the rows through the last splits, and write the rows of small nodes. Return responses with the files."""
    written = passes.responses(spill, [request(top, {}, top.small()) for top in tops])
    past: list[Path] = []
    for top, response in zip(tops, written, strict=True):
        past += [*top.record_routed(response.below, response.above, {}), *top.row_nodes.values()]
    remove_files(past)
    return written


def _grow_small(passes: Passes, tops: Sequence[UpperTree], spilled: Sequence[SplitResponse]) -> None:
    """Grow the subtrees below all small nodes, the largest first so that tasks end together. Record their sizes."""
    work: list[tuple[UpperTree, int, SpilledRows]] = []
    for top, response in zip(tops, spilled, strict=True):
        files = [path for _, path in sorted(response.row_nodes.items())]
        work += [(top, entry, spilled_rows(files, number)) for number, entry in enumerate(top.small())]
    work.sort(key=lambda task: -task[0].stats.rows(task[0].nodes[task[1]].total))
    tasks = [(top.tree, top.nodes[entry], rows, top.subtree(passes.folder, entry)) for top, entry, rows in work]
    shared = (passes.table, {top.tree: top.tree_data for top in tops}, (BufferPool(), BufferPool()))
    sizes = passes.executor.gather(grow_subtree_task, tasks, shared=shared)
    for (top, entry, _), nodes in zip(work, sizes, strict=True):
        top.sizes[entry] = nodes
    passes.table.finish(_subtrees(passes, tops), passes.executor)
    remove_files([path for response in spilled for path in response.row_nodes.values()])


def _subtrees(passes: Passes, tops: Sequence[UpperTree]) -> dict[Path, int]:
    """Return the number of nodes of each subtree by its file."""
    return {top.subtree(passes.folder, entry): nodes for top in tops for entry, nodes in top.sizes.items()}


def _write_parts(
    passes: Passes,
    parts: Sequence[range],
    tops: Sequence[UpperTree],
    directory: Path,
    advance: Callable[[int], None],
) -> dict[int, SplitFiles]:
    """Write the parts of the forest, and remove the subtrees. Return the files of splits, by tree."""
    by_tree = {top.tree: top for top in tops}
    splits: dict[int, SplitFiles] = {}

    def end(index: int, kept: dict[int, SplitFiles]) -> None:
        splits.update(kept)
        if not kept:
            advance(len(parts[index]))

    tasks = [([by_tree[tree] for tree in part],) for part in parts]
    passes.executor.run(write_assemblies, tasks, end, (passes.table, directory, passes.folder))
    subtrees = _subtrees(passes, tops)
    remove_files([file for path in subtrees for file in files_of_subtree(path)])
    return splits
