"""Write the training targets of each leaf, for quantiles, once the trees are grown (read by forest/leaf_targets.py).

1. Sort the different targets of the table. The number of a target is its place among them.
2. For each tree, recompute the bag and route its rows (leaves.py). The key of a row is leaf << 32 | target number.
3. Sort the keys, and add up the weights of equal keys. Keys come in windows that fit in memory (`_windows`).

Arrays with an entry for each row or node are mapped if they do not fit into the budget. The files do not depend on how
the trees were grown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise, starmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.events import stage
from bigforest.execution.resources import Resources
from bigforest.forest.files import Header, write_tables
from bigforest.forest.format import LEAF_TARGETS
from bigforest.forest.leaf_targets import (
    LeavesOfTree,
    leaves_tables,
    write_values,
)
from bigforest.grow.forest import ForestJob
from bigforest.oob.leaves import leaves_of_rows, load_trees
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import BASE_BYTES, MemoryEstimate, Shape
from bigforest.predict.groups import Trees, loaded_tree_bytes, loading_bytes, outline
from bigforest.predict.packed_trees import PackedTrees
from bigforest.sampling.bags import Sampler, distinct_rows, draws_bytes, max_nodes
from bigforest.storage.array_file import mapped_array
from bigforest.storage.atomic import TemporaryFolder
from bigforest.storage.paths import local_workdir
from bigforest.store.format import BLOCK_ROWS, block_count, block_span
from bigforest.store.store import Store

# Bytes of a key while keys are sorted and their weights added up.
_KEY = 56
# Bytes in arrays that may be mapped: of a row of the table (targets and their numbers), of a row of a bag (keys and
# weights).
_ROW = 24
_BAG_ROW = 16
# The sample of keys that divides keys into windows is at most a window divided by this number.
_SAMPLED = 8
# Targets in a row group of their file, as many as pyarrow writes for a large table.
_GROUP = 1 << 20
# Most nodes of a part of several trees: two for each row of their bags (grow/memory.py part_size).
_PART_NODES = 2_000_000
# Bytes of tiles, and of a block that is being routed.
TILES = 32 << 20


def leaf_targets_estimate(shape: Shape, config: TrainConfig, resources: Resources) -> MemoryEstimate:
    """Return the estimate of writing the targets of the leaves.

    The estimate leaves out leaves with more different targets than `target_window`. Within a budget, such a leaf takes
    some 70 bytes for each target.
    """
    task, arrays, keys = task_bytes(shape, config)
    whole = task + arrays + keys
    smallest = BASE_BYTES + task + min(arrays + keys, _KEY * resources.limits.target_window)
    if resources.memory is not None and BASE_BYTES + whole > resources.memory:
        return MemoryEstimate("targets", smallest, smallest, arrays)
    return MemoryEstimate("targets", BASE_BYTES + tasks_at_once(whole, resources) * whole, smallest)


def part_nodes(shape: Shape, config: TrainConfig) -> int:
    tree = max_nodes(shape.rows, config)
    return max(tree, min(config.trees * tree, _PART_NODES))


def task_bytes(shape: Shape, config: TrainConfig) -> tuple[int, int, int]:
    """Return the bytes of a task in three parts: what is always in memory; arrays of nodes and rows; all keys."""
    nodes = part_nodes(shape, config)
    trees = loaded_tree_bytes(np.array([nodes]), np.array([nodes // 2 + 1]), np.zeros(1, np.int64), 1)
    bag = distinct_rows(shape.rows, config)
    arrays = int(trees[0]) + 8 * nodes + _BAG_ROW * bag + _ROW * shape.rows
    return TILES + loading_bytes(nodes, 1) + draws_bytes(shape, config), arrays, _KEY * bag


def tasks_at_once(task: int, resources: Resources) -> int:
    """Return the number of tasks at once in each process; task: bytes of each."""
    if resources.memory is None:
        return resources.workers
    return max(1, min(resources.workers, (resources.memory - BASE_BYTES) // task))


def write_targets(job: ForestJob) -> None:
    """Write the training targets of the leaves of a grown forest, in the files of forest/leaf_targets.py.

    The files do not depend on the resources. Raises ConfigError if the memory is too little.
    """
    store, config, directory, resources, listener = job
    need = leaf_targets_estimate(store.shape, config, resources)
    need.check(resources.memory)
    window = resources.limits.target_window if need.scratch else None
    trees = outline(directory)
    entries = [range(entry, entry + 1) for entry in range(trees.nodes.size)]
    executor = resources.executor(1 if window else tasks_at_once(sum(task_bytes(store.shape, config)), resources))
    header = Header(store.spec, config)
    with stage("targets", config.trees, "trees", listener) as progress, TemporaryFolder(resources.scratch) as scratch:
        with local_workdir(scratch) as folder:
            values = _different_targets(store, _Room.of(folder, window))
            groups = (values[start : start + _GROUP] for start in range(0, values.size, _GROUP))
            write_values(directory, groups, header)
        executor.run(
            write_leaf_targets,
            [(entry,) for entry in entries],
            lambda index, _: progress.advance(len(trees.numbers(entries[index]))),
            (Sampler(store, config), trees, directory, scratch, window),
        )


class _Room(NamedTuple):
    """Memory of a task.

    make    function that makes an array of zeros from a shape and a type
    window  most targets or keys in memory
    """

    make: Callable[..., NDArray[Any]]
    window: int

    @classmethod
    def of(cls, folder: Path, window: int | None) -> _Room:
        """Return the room: arrays are files in `folder`, read by windows; without a window, all are in memory."""
        return cls(np.zeros, sys.maxsize) if window is None else cls(partial(mapped_array, folder), window)


def _different_targets(store: Store, room: _Room) -> NDArray[np.float64]:
    values = room.make(store.rows, np.float64)
    for block in range(block_count(store.rows)):
        span = block_span(store.rows, block)
        values[span.start : span.stop] = store.numbers(span.start, span.stop)
    values.sort()
    different = 0
    for start in range(0, store.rows, BLOCK_ROWS):
        window = values[start : start + BLOCK_ROWS]
        new = window[np.append(start == 0 or window[0] != values[different - 1], window[1:] != window[:-1])]
        values[different : different + new.size] = new
        different += new.size
    return values[:different]


def _target_places(store: Store, values: NDArray[np.float64], room: _Room) -> NDArray[np.uint32]:
    """Return the place of each row's target among the different targets `values`, uint32 [rows].

    Values are looked up in one window after the other, so a mapped array of values is read in order.
    """
    codes = room.make(store.rows, np.uint32)
    for begin in range(0, values.size, min(room.window, values.size)):
        window = values[begin : begin + room.window]
        for block in range(block_count(store.rows)):
            span = block_span(store.rows, block)
            numbers = store.numbers(span.start, span.stop)
            inside = np.flatnonzero((numbers >= window[0]) & (numbers <= window[-1]))
            codes[span.start : span.stop][inside] = np.searchsorted(window, numbers[inside]) + begin
    return codes


def write_leaf_targets(
    sampler: Sampler, trees: Trees, directory: Path, scratch: Path, window: int | None, entries: range
) -> None:
    """Task: write the targets of the leaves of the trees of a part.

    window  most keys in memory, with large arrays as files in `scratch`; None if all arrays fit in memory
    """
    store, config = sampler.store, sampler.config
    with local_workdir(scratch) as folder:
        room = _Room.of(folder, window)
        packed, numbers = load_trees(store, trees, entries, 1, room.make), trees.numbers(entries)
        store.fetch(packed.used.tolist(), range(block_count(store.rows)))
        path = LEAF_TARGETS.part(directory, numbers.start)
        codes = _target_places(store, _different_targets(store, room), room)
        tables = (
            table
            for entry, tree in enumerate(numbers)
            for table in leaves_tables(
                tree, starmap(_leaves, _windows(*_keys(sampler, packed, entry, tree, codes, room), room.window))
            )
        )
        write_tables(tables, path, LEAF_TARGETS, Header(store.spec, config))


def _leaves(key: NDArray[np.uint64], weight: NDArray[np.uint64]) -> LeavesOfTree:
    """Return leaves of a tree from their keys, ascending and different, and the weight of each key."""
    leaf = key >> np.uint64(32)
    first = np.flatnonzero(np.append(True, leaf[1:] != leaf[:-1]))
    start = np.append(first, key.size)
    return LeavesOfTree(leaf[first].astype(np.uint32), start, key.astype(np.uint32), _scale_weights(weight, start))


def _keys(
    sampler: Sampler, packed: PackedTrees, place: int, tree: int, codes: NDArray[np.uint32], room: _Room
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the key, leaf << 32 | number of the target, and the weight of each row in the bag of a tree."""
    store = sampler.store
    blocks = range(block_count(store.rows))
    rows = sum(int(np.count_nonzero(sampler.block(tree, block))) for block in blocks)
    key, weight = room.make(rows, np.uint64), room.make(rows, np.uint64)
    done = 0
    for block in blocks:
        bag, span = sampler.block(tree, block).astype(np.uint64), block_span(store.rows, block)
        if store.spec.weight is not None:
            bag *= store.weights_of(span.start, span.stop)
        rows_in_bag = np.flatnonzero(bag)
        leaf = leaves_of_rows(store, packed, packed.roots[place : place + 1], span)[rows_in_bag, 0]
        written = slice(done, done + rows_in_bag.size)
        key[written] = leaf.astype(np.uint64) << np.uint64(32) | codes[span.start : span.stop][rows_in_bag]
        weight[written] = bag[rows_in_bag]
        done = written.stop
    return key, weight


def _windows(
    key: NDArray[np.uint64], weight: NDArray[np.uint64], window: int
) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
    """Yield the different keys of some leaves at a time, ascending, and the sum of the weights of each key."""
    count = -(-key.size // window)
    sample = np.sort(key[:: -(-_SAMPLED * key.size // window)]) if count > 1 else key[:0]
    ends = np.unique(sample[sample.size * np.arange(1, count) // count] >> np.uint64(32) << np.uint64(32))
    for low, high in pairwise([0, *ends.tolist(), 2**64]):
        held = [(key[:0], weight[:0])]
        for begin in range(0, key.size, min(window, key.size)):
            keys, weights = key[begin : begin + window], weight[begin : begin + window]
            inside = np.flatnonzero((keys >= low) & (keys < high)) if high < 2**64 else np.flatnonzero(keys >= low)
            held.append((keys[inside], weights[inside]))
            if sum(part.size for part, _ in held) > window:
                held = [_add_weights(held)]
        window_keys = _add_weights(held)
        if window_keys[0].size:
            yield window_keys


def _add_weights(
    parts: Sequence[tuple[NDArray[np.uint64], NDArray[np.uint64]]],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the different keys of some parts, ascending, and the sums of their weights."""
    key, weight = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(key)
    key = key[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: key.size])
    return key[first], np.add.reduceat(weight[order], first) if key.size else weight


def _scale_weights(weights: NDArray[np.uint64], start: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Scale down the weights of a leaf if their sum reaches 2**32. A share is then off by about 2**-32.

    start  the weights of leaf i are weights[start[i] : start[i + 1]]
    """
    total = np.add.reduceat(weights, start[:-1])
    large = total >= np.uint64(2**32)
    if large.any():
        size = np.diff(start)
        divisor = np.where(large, total / (2.0**32 - 1 - 2.0 * size), 1.0)
        weights = np.maximum(np.rint(weights / np.repeat(divisor, size)), 1.0).astype(np.uint64)
    return weights.astype(np.uint32)
