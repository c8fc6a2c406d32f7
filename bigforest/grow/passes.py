"""Grow trees whose rows do not fit in memory: split large nodes by passes, write the rows of small ones to disk by
node, and grow each of those in memory. Oracle: grow/forest.py grow_tree, which has all in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.forest.nodes import write_part
from bigforest.grow.assemble import assemble, look_up, remove_subtree, write_subtree
from bigforest.grow.bag import check_bag, total_of, weighed_block
from bigforest.grow.features import grow_on_features
from bigforest.grow.level import block_ranges, split_large
from bigforest.grow.question import question
from bigforest.grow.random_search import own_codes
from bigforest.grow.spill import Spilled, load, rows_path, spill, spilled_both
from bigforest.grow.tally import Counts, Tally
from bigforest.grow.top import Ground, TreeTop, root_key
from bigforest.kernels.rows import by_rows
from bigforest.kernels.target import Classes, Numbers
from bigforest.memory import release_freed
from bigforest.sample import Sampler
from bigforest.schedule.crew import Crew
from bigforest.store.store import Store


class Seedling(NamedTuple):
    """A small node: entry in the top of its tree, rows at most, and what `grow` starts from."""

    tree: int
    entry: int
    rows: int
    key: np.uint64
    depth: int
    constant: NDArray[np.bool_]


class Stem(NamedTuple):
    """The upper part of a tree, and the nodes of each subtree by entry."""

    top: TreeTop
    sizes: dict[int, int]


def grow_by_passes(
    store: Store,
    ground: Ground,
    config: TrainConfig,
    parts: Sequence[range],
    directory: Path,
    folder: Path,
    *,
    crew: Crew,
    on_trees: Callable[[int], None],
) -> None:
    """Write the parts of some trees, which share the passes over the store; `folder` is empty scratch.

    on_trees is told how many trees are done.
    """
    trees = [tree for part in parts for tree in part]
    sampler = Sampler.of(store, config)
    ranges = [(blocks,) for blocks in block_ranges(store, crew.size)]
    totals = crew.reduce(count_bags, ranges, np.add, (sampler, trees, ground.tally))
    if ground.tally.weighted:
        check_bag(int(ground.tally.weight(totals).max()))
    tops = [TreeTop(tree, root_key(config, tree), total, ground) for tree, total in zip(trees, totals, strict=True)]
    split_large(store, sampler, tops, ground.limits.room, folder, ranges, crew)
    questions = [question(top, []) for top in tops]
    small = [top.small() for top in tops]
    spilled = crew.reduce(spill, ranges, spilled_both, (store, sampler, questions, small, folder))
    for top, reply in zip(tops, spilled.replies, strict=True):
        top.sent(reply.below, reply.above, {})
    sizes = grow_all(tops, spilled, folder, crew, grow_seedling, (store, ground))
    crew.run(look_up_some, _batches(ground, sizes, folder), lambda *_: None, (store,))
    stems = {top.tree: Stem(top, sizes[top.tree]) for top in tops}

    def end(index: int, _: None) -> None:
        for tree in parts[index]:
            for entry in sizes[tree]:
                remove_subtree(subtree_path(folder, tree, entry))
        on_trees(len(parts[index]))

    own = [([stems[tree] for tree in part],) for part in parts]
    crew.run(write_stems, own, end, (store, config, directory, folder))


def count_bags(sampler: Sampler, trees: Sequence[int], tally: Tally, blocks: range) -> Counts:
    """Task: what the bags of the trees hold in some blocks, int64 [trees, parts]."""
    store = sampler.store
    totals = np.zeros((len(trees), tally.parts), np.int64)
    store.fetch([], blocks)
    for block in blocks:
        target = store.labels(block * store.block_rows, (block + 1) * store.block_rows)
        for at, tree in enumerate(trees):
            totals[at] += total_of(target, weighed_block(sampler, tree, block), tally)
    return totals


def grow_seedling(store: Store, ground: Ground, seedling: Seedling, files: list[Path], path: Path) -> int:
    """Task: grow the subtree below a small node from its rows in `files` into the file `path`; gives its nodes."""
    codes, items, value = load(files, store, seedling.rows)
    target = Classes(ground.tally.classes, ground.table) if value is None else Numbers(value)
    own = None if ground.values is None else own_codes(codes, store, ground.features)
    codes, dictionary = (codes, None) if own is None else (own.codes, own.dictionary)
    above = (seedling.depth, seedling.constant)
    nodes, subsets = grow_on_features(
        codes, by_rows(codes), items, target, seedling.key, ground.rules, ground.features, dictionary, *above
    )
    write_subtree(path, (nodes if own is None else own.known_again(nodes), subsets))
    del codes, items, value, target, own, dictionary
    release_freed()
    return nodes.feature.size


def write_stems(store: Store, config: TrainConfig, directory: Path, folder: Path, stems: list[Stem]) -> None:
    """Task: write consecutive trees as one part."""
    trees = (
        assemble(
            stem.top,
            {entry: (subtree_path(folder, stem.top.tree, entry), size) for entry, size in stem.sizes.items()},
            store,
            config,
        )
        for stem in stems
    )
    write_part(directory, stems[0].top.tree, trees, store.spec, config, store.levels())
    release_freed()


def grow_all(
    tops: Sequence[TreeTop],
    spilled: Spilled[Any],
    folder: Path,
    crew: Crew,
    grow_one: Callable[..., int],
    shared: tuple[Any, ...],
) -> dict[int, dict[int, int]]:
    """Grow the subtrees below all small nodes, large ones first; gives their sizes by tree and entry.

    grow_one  the task; its arguments are `shared`, and a seedling with its files and the path for the subtree.
    """
    seedlings = [
        Seedling(top.tree, entry, int(top.tally.rows(node.total)), node.key, node.depth, node.constant)
        for top in tops
        for entry in top.small()
        for node in [top.nodes[entry]]
    ]
    seedlings.sort(key=lambda seedling: -seedling.rows)
    sizes: dict[int, dict[int, int]] = {top.tree: {} for top in tops}

    suffixes = [suffix for _, suffix in sorted(spilled.suffixes.items())]
    own = [
        (
            seedling,
            [rows_path(folder, seedling.tree, seedling.entry, suffix) for suffix in suffixes],
            subtree_path(folder, seedling.tree, seedling.entry),
        )
        for seedling in seedlings
    ]

    def keep(index: int, nodes: int) -> None:
        seedling, files, _ = own[index]
        sizes[seedling.tree][seedling.entry] = nodes
        for file in files:  # only now: until here the task may have to be done again
            file.unlink(missing_ok=True)

    crew.run(grow_one, own, keep, shared)
    return sizes


def _batches(ground: Ground, sizes: dict[int, dict[int, int]], folder: Path) -> list[tuple[list[Path]]]:
    """The subtrees whose thresholds are found together, as many as fit: each walk goes over all dictionaries."""
    batches: list[list[Path]] = []
    room = 0
    for tree, subtrees in sizes.items():
        for entry, nodes in subtrees.items():
            if nodes > room:
                batches.append([])
                room = ground.limits.nodes
            batches[-1].append(subtree_path(folder, tree, entry))
            room -= nodes
    return [(batch,) for batch in batches]


def look_up_some(store: Store, paths: list[Path]) -> None:
    """Task: find the ends of the thresholds of some subtrees (assemble.py)."""
    look_up(paths, store.dictionaries)


def subtree_path(folder: Path, tree: int, entry: int) -> Path:
    """The file of a subtree."""
    return folder / f"subtree-{tree}-{entry}.bin"
