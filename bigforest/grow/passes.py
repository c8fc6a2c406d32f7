"""Grow trees whose rows do not fit in memory: split large nodes by passes, write the rows of small ones to disk by
node, and grow each of those in memory. Oracle: grow/forest.py grow_tree, which has all in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.forest.table import write_part
from bigforest.grow.assemble import assemble, look_up, remove_subtree, write_subtree
from bigforest.grow.level import Question, Reply, block_ranges, merged, no_reply, question, split_large
from bigforest.grow.spill import load, rows_path, spill
from bigforest.grow.top import Ground, TreeTop, root_key
from bigforest.kernels.draw import count_classes
from bigforest.kernels.grow import Rules, grow
from bigforest.kernels.rows import by_rows
from bigforest.sample import Draws, Sampler
from bigforest.schedule.tasks import run
from bigforest.store.store import Store


class Seedling(NamedTuple):
    """A small node: entry in the top of its tree, bag rows, and what `grow` starts from."""

    tree: int
    entry: int
    weight: int
    key: np.uint64
    depth: int
    constant: NDArray[np.bool_]


class Stem(NamedTuple):
    """The upper part of a tree; the codes sent left and right in it (route_block); nodes of each subtree by entry."""

    top: TreeTop
    below: NDArray[np.uint32]
    above: NDArray[np.uint32]
    sizes: dict[int, int]


def grow_by_passes(
    store: Store,
    config: TrainConfig,
    ground: Ground,
    parts: Sequence[range],
    directory: Path,
    folder: Path,
    *,
    workers: int,
    on_trees: Callable[[int], None],
) -> None:
    """Write the parts of some trees, which share the passes over the store; `folder` is empty scratch.

    on_trees is told how many trees are done.
    """
    trees = [tree for part in parts for tree in part]
    sampler = Sampler.of(store, config)
    draws = [sampler.draws(tree) for tree in trees]
    totals = _totals(store, sampler, trees, draws, workers)
    tops = [TreeTop(tree, root_key(config, tree), total, ground) for tree, total in zip(trees, totals, strict=True)]
    split_large(store, sampler, tops, draws, ground.limits.room, workers)
    replies = _spill_all(store, sampler, tops, draws, folder, workers)
    sizes = _grow_all(store, config, ground, tops, folder, workers)
    _look_up_all(store, ground, sizes, folder, workers)
    stems = {
        top.tree: Stem(top, reply.below, reply.above, sizes[top.tree]) for top, reply in zip(tops, replies, strict=True)
    }
    run(
        write_stems,
        [(store, config, directory, folder, [stems[tree] for tree in part]) for part in parts],
        workers=workers,
        on_result=lambda index, _: on_trees(len(parts[index])),
    )


def count_bags(
    store: Store, sampler: Sampler, trees: Sequence[int], draws: Sequence[Draws], blocks: range
) -> NDArray[np.int64]:
    """Task: class weights of the bags of the trees in some blocks, int64 [trees, classes]."""
    totals = np.zeros((len(trees), len(store.spec.target.classes)), np.int64)
    for block in blocks:
        target = store.target[block * store.block_rows : (block + 1) * store.block_rows]
        for at, tree in enumerate(trees):
            count_classes(target, sampler.block(tree, block, draws[at]), totals[at])
    return totals


def grow_seedling(
    store: Store, rules: Rules, table: NDArray[np.int64], seedling: Seedling, files: list[Path], path: Path
) -> int:
    """Task: grow the subtree below a small node from its rows in `files` into the file `path`; gives its nodes."""
    codes, items = load(files, store, seedling.weight)
    classes = len(store.spec.target.classes)
    nodes = grow(codes, by_rows(codes), items, classes, seedling.key, rules, table, seedling.depth, seedling.constant)
    write_subtree(path, nodes)
    for file in files:
        file.unlink(missing_ok=True)
    return nodes.feature.size


def write_stems(store: Store, config: TrainConfig, directory: Path, folder: Path, stems: list[Stem]) -> None:
    """Task: write consecutive trees as one part."""
    trees = (
        assemble(
            stem.top,
            stem.below,
            stem.above,
            {entry: (_subtree_path(folder, stem.top.tree, entry), size) for entry, size in stem.sizes.items()},
            store.dictionaries,
            config.impurity,
        )
        for stem in stems
    )
    write_part(directory, stems[0].top.tree, trees, store.spec, config)
    for stem in stems:
        for entry in stem.sizes:
            remove_subtree(_subtree_path(folder, stem.top.tree, entry))


def _totals(store: Store, sampler: Sampler, trees: list[int], draws: list[Draws], workers: int) -> NDArray[np.int64]:
    totals = np.zeros((len(trees), len(store.spec.target.classes)), np.int64)

    def add(_: int, found: NDArray[np.int64]) -> None:
        np.add(totals, found, out=totals)

    tasks = [(store, sampler, trees, draws, blocks) for blocks in block_ranges(store, workers)]
    run(count_bags, tasks, workers=workers, on_result=add)
    return totals


def _spill_all(
    store: Store, sampler: Sampler, tops: list[TreeTop], draws: list[Draws], folder: Path, workers: int
) -> list[Reply]:
    """Write the rows of all small nodes; the replies know the codes sent left and right in each tree."""
    questions: list[Question] = [question(top, drawn, [], store) for top, drawn in zip(tops, draws, strict=True)]
    replies = [no_reply(asked) for asked in questions]

    def add(_: int, found: list[Reply]) -> None:
        replies[:] = [merged(one, two) for one, two in zip(replies, found, strict=True)]

    small = [top.small() for top in tops]
    tasks = [(store, sampler, questions, small, blocks, folder) for blocks in block_ranges(store, workers)]
    run(spill, tasks, workers=workers, on_result=add)
    return replies


def _grow_all(
    store: Store, config: TrainConfig, ground: Ground, tops: list[TreeTop], folder: Path, workers: int
) -> dict[int, dict[int, int]]:
    """Grow the subtrees below all small nodes, large ones first; gives their sizes by tree and entry."""
    seedlings = [
        Seedling(top.tree, entry, int(node.total.sum()), node.key, node.depth, node.constant)
        for top in tops
        for entry in top.small()
        for node in [top.nodes[entry]]
    ]
    seedlings.sort(key=lambda seedling: -seedling.weight)
    sizes: dict[int, dict[int, int]] = {top.tree: {} for top in tops}

    def keep(index: int, nodes: int) -> None:
        sizes[seedlings[index].tree][seedlings[index].entry] = nodes

    ranges = block_ranges(store, workers)
    tasks = [
        (
            store,
            ground.rules,
            ground.table,
            seedling,
            [rows_path(folder, seedling.tree, seedling.entry, blocks) for blocks in ranges],
            _subtree_path(folder, seedling.tree, seedling.entry),
        )
        for seedling in seedlings
    ]
    run(grow_seedling, tasks, workers=workers, on_result=keep)
    return sizes


def _look_up_all(store: Store, ground: Ground, sizes: dict[int, dict[int, int]], folder: Path, workers: int) -> None:
    """Find the thresholds of all subtrees, as many together as fit: each walk goes over all dictionaries."""
    batches: list[list[Path]] = []
    room = 0
    for tree, subtrees in sizes.items():
        for entry, nodes in subtrees.items():
            if nodes > room:
                batches.append([])
                room = ground.limits.nodes
            batches[-1].append(_subtree_path(folder, tree, entry))
            room -= nodes
    tasks = [(batch, store.dictionaries) for batch in batches]
    run(look_up, tasks, workers=workers, on_result=lambda *_: None)


def _subtree_path(folder: Path, tree: int, entry: int) -> Path:
    return folder / f"subtree-{tree}-{entry}.bin"
