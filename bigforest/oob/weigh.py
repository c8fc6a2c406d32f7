"""Compute the counts and values of grown trees again with exact weights, if rows have wide weights (encode/rows.py).

A wide weight has 64 bits in the store. In an item it has 16 bits, rounded up or down at random, so that its mean over
trees is right. Kernels search for splits with these rounded weights. Counts, values and votes of leaves must be exact,
so once the parts are grown, for each part:

1. Route the rows of each bag through its tree (leaves.py), and add up the exact weights of each leaf, in integers. For
   regression, also add up weight * target in limbs, because it needs more than 64 bits (kernels/common/limbs.py).
2. Add the statistics of the leaves to their ancestors, and compute weight, value and gain of all nodes (`_describe`).
3. Rewrite the part with these numbers, in pieces (`_pieces`), and write the ballots of the leaves of its trees.

Why a separate step: weights of 64 bits in items would double the bytes that every kernel of the split search reads, for
tables that few users have. Rounding in the store would make votes and errors inexact. With a separate step, families
and kernels of the search need no code for wide weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import as_numpy
from bigforest.errors import DataError, api
from bigforest.execution.resources import Resources
from bigforest.forest.files import Header
from bigforest.forest.format import TREES
from bigforest.forest.leaf_votes import found_leaves, leaves_path, write_ballots_of
from bigforest.forest.nodes import TreeArrays, write_part
from bigforest.forest.parts import Span, batches, check_part, read_span
from bigforest.grow.criteria import criterion_of
from bigforest.grow.forest import ForestJob
from bigforest.kernels.common.layout import LEAF
from bigforest.kernels.common.limbs import PARTS
from bigforest.kernels.predict.accumulate import Weighed, add_up, weigh_classes, weigh_numbers
from bigforest.kernels.tree.finalize import describe_classes, describe_numbers
from bigforest.oob.leaf_targets import TILES, part_nodes, tasks_at_once
from bigforest.oob.leaves import load_trees, route_span
from bigforest.oob.plan import FITTING_BYTES
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import BASE_BYTES, MemoryEstimate, Shape
from bigforest.predict.groups import loaded_tree_bytes, loading_bytes, outline
from bigforest.predict.packed_trees import PackedTrees
from bigforest.sampling.bags import Sampler, draws_bytes
from bigforest.storage.array_file import mapped_array
from bigforest.storage.atomic import TemporaryFolder
from bigforest.storage.paths import local_workdir
from bigforest.store.format import block_count, block_span
from bigforest.store.store import Store

# Bytes of a node while its part is written (_Described), and of each of its class counts or limbs.
_NODE_BYTES = 64
_CLASS_BYTES = 8
# Bytes of the pieces in which a part is read and written. Some pieces wait until a row group is full.
_PIECE_BYTES = 48 << 20
# Largest weight of a bag.
_MAX_WEIGHT = 2.0**62


def _weighing_bytes(shape: Shape, config: TrainConfig) -> tuple[int, int]:
    """Return the bytes of a task except for its nodes, and the bytes of its nodes, which may be mapped."""
    nodes = part_nodes(shape, config)
    trees = loaded_tree_bytes(np.array([nodes]), np.array([nodes // 2 + 1]), np.zeros(1, np.int64), 1)
    task = TILES + loading_bytes(nodes, 1) + draws_bytes(shape, config) + _PIECE_BYTES
    return task, int(trees[0]) + nodes * (_NODE_BYTES + _CLASS_BYTES * max(PARTS, shape.classes))


def weigh_estimate(shape: Shape, config: TrainConfig, resources: Resources) -> MemoryEstimate:
    task, nodes = _weighing_bytes(shape, config)
    whole, smallest = task + nodes, BASE_BYTES + task + min(nodes, FITTING_BYTES)
    if resources.memory is not None and BASE_BYTES + whole > resources.memory:
        return MemoryEstimate("weigh", smallest, smallest, nodes)
    return MemoryEstimate("weigh", BASE_BYTES + tasks_at_once(whole, resources) * whole, smallest)


def weigh_parts(job: ForestJob, narrow: Path, parts: Sequence[range], advance: Callable[[int], None]) -> None:
    """Write parts of a forest with exact weights.

    narrow   folder of the same parts as grown, with rounded weights
    parts    the trees of each part
    advance  function that is called with the number of trees of a finished part

    The parts do not depend on the resources. Raises DataError if a bag weighs too much.
    """
    store, config, resources = job.store, job.config, job.resources
    need, whole = weigh_estimate(store.shape, config, resources), sum(_weighing_bytes(store.shape, config))
    mapped = need.scratch > 0
    executor = resources.executor(1 if mapped else tasks_at_once(whole, resources))
    with TemporaryFolder(resources.scratch) as folder:
        shared = (Sampler(store, config), narrow, job.directory, folder, mapped)
        executor.run(weigh_part, [(part,) for part in parts], lambda index, _: advance(len(parts[index])), shared)


def weigh_part(sampler: Sampler, narrow: Path, directory: Path, scratch: Path, mapped: bool, part: range) -> None:
    """Task: write a part; mapped: True if arrays with an entry for each node are mapped files in `scratch`."""
    store, config = sampler.store, sampler.config
    with local_workdir(scratch) as folder:
        zeros: Callable[..., NDArray[Any]] = partial(mapped_array, folder) if mapped else np.zeros
        path = TREES.part(narrow, part.start)
        packed = load_trees(store, outline(narrow, [part]), range(1), 1, zeros)
        store.fetch(packed.used.tolist(), range(block_count(store.rows)))
        sums = zeros((packed.nodes, len(store.spec.target.classes) or PARTS), np.int64)
        for root, tree in zip(packed.roots[:, None], part, strict=True):
            _weigh_tree(sampler, packed, root, tree, sums)
        starts = np.append(packed.roots, len(sums)).astype(np.int64)
        del packed
        described = _describe(starts, path, store, config, sums, zeros)
        header = Header(store.spec, config, store.levels())
        span = check_part(path, part, header)
        written = write_part(directory, part.start, _pieces(read_span(span, header), store, described, sums), header)
        # Leaves do not change, so their files move. Ballots are computed from the new nodes.
        for file in found_leaves(narrow, store.spec, part):
            trees = file.trees
            if trees.stop > part.stop:  # left by a run with other parts; these leaves are computed again
                continue
            nodes = Span(written, trees, *starts[[trees.start - part.start, trees.stop - part.start]].tolist())
            write_ballots_of(leaves_path(directory, trees.start), [nodes], header, folder)
            file.move(directory, ballots=False)


def _weigh_tree(
    sampler: Sampler, packed: PackedTrees, root: NDArray[np.uint64], tree: int, sums: NDArray[np.int64]
) -> None:
    """Add the bag of a tree with this root to `sums` of its leaves, see Weighed in kernels/predict/accumulate.py."""
    store = sampler.store
    kernel: Any = weigh_numbers if store.spec.target.is_regression else weigh_classes
    total = 0.0
    for block in range(block_count(store.rows)):
        times, span = sampler.block(tree, block), block_span(store.rows, block)
        weights = store.weights_of(span.start, span.stop)
        total += float((times * weights.astype(np.float64)).sum())
        if total > _MAX_WEIGHT:
            raise DataError(f"a bag weighs far more than all rows: lower {api('sample_fraction')}")
        weight = times.astype(np.int64) * weights.astype(np.int64)
        weighed = Weighed(weight, store.labels(span.start, span.stop), sums)

        def weigh(inputs: Any, scratch: Any, rows: slice, whole: Weighed = weighed) -> None:
            kernel(inputs, root, Weighed(whole.weight[rows], whole.target[rows], whole.sums), scratch)

        route_span(store, packed, span, weigh)


class _Described(NamedTuple):
    """Columns of the nodes of a part, and the numbers that follow from `sums`.

    starts   int64 [trees + 1], first node of each tree, and the number of nodes
    feature  int32 [nodes], LEAF in a leaf, else 0
    right    uint32 [nodes], number of the right child in the tree
    weight   uint64 [nodes]
    value    float64 [nodes], mean in the units of the targets; for classes the impurity
    gain     float64 [nodes], nan in a leaf
    """

    starts: NDArray[np.int64]
    feature: NDArray[np.int32]
    right: NDArray[np.uint32]
    weight: NDArray[np.uint64]
    value: NDArray[np.float64]
    gain: NDArray[np.float64]


def _describe(
    starts: NDArray[np.int64],
    path: Path,
    store: Store,
    config: TrainConfig,
    sums: NDArray[np.int64],
    zeros: Callable[..., NDArray[Any]],
) -> _Described:
    """Add the statistics of the leaves of the part at `path` to their ancestors in `sums`. Return the columns of the
    nodes.

    starts  int64 [trees + 1], first node of each tree, and the number of nodes
    zeros   function that makes an array of zeros from a shape and a type
    """
    nodes, spec = len(sums), store.spec
    right, feature = zeros(nodes, np.uint32), zeros(nodes, np.int32)
    done = 0
    for batch in batches(path, len(spec.target.classes), ["right"]):
        span = slice(done, done + batch.num_rows)
        right[span] = as_numpy(batch["right"], 0)
        feature[span] = np.where(as_numpy(batch["right"].is_null()), LEAF, 0)
        done = span.stop
    add_up(starts, feature, right, sums)
    weight, value, gain = zeros(nodes, np.uint64), zeros(nodes, np.float64), zeros(nodes, np.float64)
    impurity = criterion_of(config).impurity
    if spec.target.is_regression:
        spare = np.zeros((1, PARTS), np.int64)
        describe_numbers(starts, feature, right, sums, spare, impurity, spec.target.scale, weight, value, gain)
    else:
        describe_classes(starts, feature, right, sums, impurity, weight, value, gain)
    return _Described(starts, feature, right, weight, value, gain)


def _pieces(
    pieces: Iterable[TreeArrays], store: Store, described: _Described, sums: NDArray[np.int64]
) -> Iterator[TreeArrays]:
    """Yield the nodes of a part, some at a time, with exact weights in place of rounded ones.

    Missing values of a feature that has none in training go to the heavier child, by exact weights. For other features
    and for categories, the search has chosen the side.
    """
    complete = np.array([not (feature.splits_on_levels or feature.missing) for feature in store.spec.features])
    numbers, done = store.spec.target.is_regression, 0
    for piece in pieces:
        span = slice(done, done + piece.feature.size)
        done = span.stop
        default_left, weight = piece.default_left.copy(), described.weight[span]
        changed = np.flatnonzero((piece.feature >= 0) & complete[np.maximum(piece.feature, 0)])
        node = span.start + changed
        root = described.starts[np.searchsorted(described.starts, node, side="right") - 1]
        default_left[changed] = described.weight[node + 1] >= described.weight[root + described.right[node]]
        exact = piece._replace(gain=described.gain[span], default_left=default_left, weight=weight)
        yield exact._replace(value=described.value[span]) if numbers else exact._replace(counts=sums[span])
