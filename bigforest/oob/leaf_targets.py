"""Write the training targets of each leaf, for quantiles, once the trees are grown (read by forest/leaf_targets.py).

For each tree: recompute the bag, route its rows (leaves.py), sort the pairs of leaf and target, and add up the weights
of equal pairs. It does not matter how the trees were grown.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.events import stage
from bigforest.execution.resources import Resources
from bigforest.forest.files import Header, write_tables
from bigforest.forest.format import LEAF_TARGETS
from bigforest.forest.leaf_targets import (
    LEAVES_KIND,
    leaf_targets_path,
    leaves_tables,
    read_values,
    write_values,
)
from bigforest.grow.forest import ForestJob
from bigforest.oob.leaves import leaves_of_rows, load_trees
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import BASE_BYTES, MemoryEstimate, Shape
from bigforest.predict.groups import Trees, loaded_tree_bytes, loading_bytes, outline
from bigforest.predict.packed_trees import PackedTrees
from bigforest.sampling.bags import Sampler, distinct_rows, draws_bytes, max_nodes
from bigforest.store.format import block_count, block_span

# Bytes of a row of the bag while its leaf is found and its target sorted, and further bytes of a row of the table: the
# different targets, and the number of its target among them.
_BAG_ROW = 56
_ROW = 24
# Nodes of a part of several trees, at most (grow/memory.py part_size).
_PART_NODES = 2_000_000
# Bytes of tiles and of a block on its way.
TILES = 32 << 20


def leaf_targets_estimate(shape: Shape, config: TrainConfig, resources: Resources) -> MemoryEstimate:
    """Return the estimate of writing the targets of the leaves."""
    shared, own = task_bytes(shape, config)
    return MemoryEstimate("targets", shared + tasks_at_once((shared, own), resources) * own, shared + own)


def part_nodes(shape: Shape, config: TrainConfig) -> int:
    """Return the most nodes of a part of the forest."""
    tree = max_nodes(shape.rows, config)
    return max(tree, min(config.trees * tree, _PART_NODES))


def task_bytes(shape: Shape, config: TrainConfig) -> tuple[int, int]:
    """Return the bytes that all tasks share, and the bytes of each task."""
    nodes = part_nodes(shape, config)
    trees = loaded_tree_bytes(np.array([nodes]), np.array([nodes // 2 + 1]), np.zeros(1, np.int64), 1)
    own = int(trees[0]) + 8 * nodes + TILES + loading_bytes(nodes, 1) + draws_bytes(shape, config)
    own += _BAG_ROW * distinct_rows(shape.rows, config) + _ROW * shape.rows
    return BASE_BYTES, own


def tasks_at_once(needed: tuple[int, int], resources: Resources) -> int:
    """Return the number of tasks at once in each process; needed: of `task_bytes`."""
    if resources.memory is None:
        return resources.workers
    shared, own = needed
    return max(1, min(resources.workers, (resources.memory - shared) // own))


def write_targets(job: ForestJob) -> None:
    """Write the files of forest/leaf_targets.py of a forest that has been grown.

    They do not depend on the resources. Raises ConfigError if the memory is too little.
    """
    store, config, directory, resources, listener = job
    leaf_targets_estimate(store.shape, config, resources).check(resources.memory)
    trees = outline(directory)
    entries = [range(entry, entry + 1) for entry in range(trees.nodes.size)]
    executor = resources.executor(tasks_at_once(task_bytes(store.shape, config), resources))
    # The different targets, ascending, in the units of the table.
    write_values(directory, np.unique(store.numbers(0, store.rows)), Header(store.spec, config))
    with stage("targets", config.trees, "trees", listener) as progress:
        executor.run(
            write_leaf_targets,
            [(own,) for own in entries],
            lambda index, _: progress.advance(len(trees.numbers(entries[index]))),
            (Sampler(store, config), trees, directory),
        )


def write_leaf_targets(sampler: Sampler, trees: Trees, directory: Path, entries: range) -> None:
    """Task: write the targets of the leaves of the trees of a part."""
    store, config = sampler.store, sampler.config
    packed, numbers = load_trees(store, trees, entries, 1), trees.numbers(entries)
    store.fetch(packed.used.tolist(), range(block_count(store.rows)))
    path = leaf_targets_path(directory, numbers.start)
    header = Header(store.spec, config)
    codes = np.searchsorted(read_values(directory, header), store.numbers(0, store.rows)).astype(np.uint32)
    nodes = packed.leaf_nodes()
    tables = (
        table
        for own, tree in enumerate(numbers)
        for table in leaves_tables(tree, nodes[own], *_leaf_targets(sampler, packed, own, tree, codes, nodes[own]))
    )
    write_tables(LEAF_TARGETS, tables, path, LEAVES_KIND, header)


def _leaf_targets(
    sampler: Sampler,
    packed: PackedTrees,
    place: int,
    tree: int,
    codes: NDArray[np.uint32],
    nodes: NDArray[np.uint32],
) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the targets of each leaf of tree number `tree`: where they begin, the targets, and their weights.

    place  place of the tree among the packed ones
    codes  uint32 [rows], number of the target of each row
    nodes  uint32 [leaves], numbers of the leaves, ascending
    """
    store = sampler.store
    leaf: list[NDArray[np.uint32]] = []
    weight: list[NDArray[np.uint64]] = []
    rows: list[NDArray[np.int64]] = []
    for block in range(block_count(store.rows)):
        bag, span = sampler.block(tree, block).astype(np.uint64), block_span(store.rows, block)
        if store.spec.weight is not None:
            bag *= store.weights_of(span.start, span.stop)
        here = np.flatnonzero(bag)
        leaf.append(leaves_of_rows(store, packed, packed.roots[place : place + 1], span)[here, 0])
        weight.append(bag[here])
        rows.append(span.start + here)
    key = np.concatenate(leaf).astype(np.uint64) << np.uint64(32) | codes[np.concatenate(rows)]
    order = np.argsort(key)
    key = key[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    weights = np.add.reduceat(np.concatenate(weight)[order], first)
    start_of = np.searchsorted(key[first] >> np.uint64(32), np.append(nodes.astype(np.uint64), np.uint64(2**32)))
    return start_of, key[first].astype(np.uint32), _in_proportion(weights, start_of)


def _in_proportion(weights: NDArray[np.uint64], start: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Scale the weights of the targets of a leaf down if their sum reaches 2**32; a share is then off by about 2**-32.

    start  where the weights of each leaf begin, and the last ones end
    """
    total = np.add.reduceat(weights, start[:-1])
    large = total >= np.uint64(2**32)
    if large.any():
        size = np.diff(start)
        divisor = np.where(large, total / (2.0**32 - 1 - 2.0 * size), 1.0)
        weights = np.maximum(np.rint(weights / np.repeat(divisor, size)), 1.0).astype(np.uint64)
    return weights.astype(np.uint32)
