"""Statistics of the nodes of trees, counted again with wide weights (encode/weights.py).

Splits are found with narrower weights, rounded at random. Once a part is grown, the rows of each bag are routed through
its tree, as for the out-of-bag report, and the weights of the leaves added up exactly; so it does not matter how the
trees were grown. The part is then rewritten with these weights and the values that follow from them. Its nodes are read
in batches, so only these numbers are in memory for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import arrow_array, as_numpy
from bigforest.errors import DataError, api
from bigforest.execution.resources import Resources
from bigforest.forest.ballots import ballots_of
from bigforest.forest.files import Header
from bigforest.forest.leaf_votes import found_leaves, leaves_path, write_ballots
from bigforest.forest.nodes import counts_column, part_path
from bigforest.forest.parts import Span, batches
from bigforest.forest.rewrite import as_written, with_columns, write_nodes
from bigforest.grow.criteria import criterion_of
from bigforest.grow.forest import ForestJob
from bigforest.kernels.common.layout import LEAF
from bigforest.kernels.common.limbs import PARTS
from bigforest.kernels.predict.accumulate import Weighed, add_up, weigh_classes, weigh_numbers
from bigforest.kernels.tree.finalize import describe_classes, describe_numbers
from bigforest.oob.leaf_targets import part_nodes, task_bytes, tasks_at_once
from bigforest.oob.vote import CodeTrees, load_group, route_span
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import MemoryEstimate, Shape
from bigforest.predict.groups import outline
from bigforest.sampling.bags import Sampler
from bigforest.store.format import block_count, block_span
from bigforest.store.store import Store

# Bytes of a node while its part is written (_Described), besides its classes, and of each class.
_NODE = 64
_CLASS = 8
# Bytes of the batches in which a part is read and written, some of which wait for a row group.
_PIECES = 48 << 20
# Largest weight of a bag.
_MAX_WEIGHT = 2.0**62


def _bytes(shape: Shape, config: TrainConfig) -> tuple[int, int]:
    """Bytes of all tasks together, and of each task."""
    shared, own = task_bytes(shape, config)
    return shared, own + _PIECES + part_nodes(shape, config) * (_NODE + _CLASS * max(PARTS, shape.classes))


def weigh_estimate(shape: Shape, config: TrainConfig, resources: Resources) -> MemoryEstimate:
    """The estimate of `weigh_parts`, one task at a time."""
    memory = sum(_bytes(shape, config))
    return MemoryEstimate("weigh", memory, memory)


def weigh_parts(job: ForestJob, light: Path, parts: Sequence[range], advance: Callable[[int], None]) -> None:
    """Write these parts of a forest, which are in `light` with the weights of the search.

    They do not depend on the resources. Raises DataError where a bag weighs too much.
    """
    executor = job.resources.executor(tasks_at_once(_bytes(job.store.shape, job.config), job.resources))
    shared = (Sampler(job.store, job.config), light, job.directory)
    executor.run(
        weigh_part, [(part,) for part in parts], lambda index, _: advance(len(parts[index])), shared, even=True
    )


def weigh_part(sampler: Sampler, light: Path, directory: Path, part: range) -> None:
    """Task: write a part."""
    store, config = sampler.store, sampler.config
    path = part_path(light, part.start)
    group = load_group(sampler, outline(light, [part]), range(1), 1)
    store.fetch(group.packed.used.tolist(), range(block_count(store.rows)))
    held = np.zeros((group.packed.nodes, len(store.spec.target.classes) or PARTS), np.int64)
    for place in range(len(part)):
        _weigh_tree(sampler, group, place, held)
    found = _describe(group, path, store, config, held)
    write_nodes(_pieces(path, store, found, held), part_path(directory, part.start), Header(store.spec, config))
    # The files of leaves move unchanged, and ballots follow from the statistics of the nodes.
    width, numbers = store.spec.target.answer_width, store.spec.target.is_regression
    starts = np.append(group.packed.roots, len(held)).astype(np.int64)
    for file in found_leaves(light, store.rows, width, part):  # other tasks move those of other parts
        trees = range(max(file.trees.start, part.start), min(file.trees.stop, part.stop))
        if trees != file.trees:
            continue
        own = slice(*starts[[trees.start - part.start, trees.stop - part.start]].tolist())
        feature = np.where(found.leaf[own], LEAF, 0).astype(np.int32)
        first = starts[trees.start - part.start : trees.stop - part.start + 1] - own.start
        counts = held[own, : 0 if numbers else width].astype(np.uint64)
        value = found.value[own] if numbers else None
        ballots = ballots_of(first, feature, found.weight[own], counts, value, wide=True)
        write_ballots(leaves_path(directory, trees.start), ballots)
        file.move(directory, ballots=False)


def _weigh_tree(sampler: Sampler, group: CodeTrees, own: int, held: NDArray[np.int64]) -> None:
    """Add the statistics of the leaves of the tree in place `own` of a group to `held`, see
    kernels/predict/accumulate.py Weighed."""
    store, tree = sampler.store, group.trees[own]
    kernel: Any = weigh_numbers if store.spec.target.is_regression else weigh_classes
    root = group.packed.roots[own : own + 1]
    total = 0.0
    for block in range(block_count(store.rows)):
        times, span = sampler.block(tree, block), block_span(store.rows, block)
        weights = store.weights_of(span.start, span.stop)
        total += float((times * weights.astype(np.float64)).sum())
        if total > _MAX_WEIGHT:
            raise DataError(f"a bag weighs far more than all rows: lower {api('sample_fraction')}")
        weight = times.astype(np.int64) * weights.astype(np.int64)
        weighed = Weighed(weight, store.labels(span.start, span.stop), held)

        def weigh(inputs: Any, scratch: Any, here: slice, whole: Weighed = weighed) -> None:
            kernel(inputs, root, Weighed(whole.weight[here], whole.target[here], whole.sums), scratch)

        route_span(store, group, span, weigh)


class _Described(NamedTuple):
    """Columns that follow from the statistics of the nodes of a part.

    root    int64 [nodes], the root of the tree of each
    right   uint32 [nodes], number of the right child in the tree
    leaf    bool [nodes]
    weight  uint64 [nodes]
    value   float64 [nodes], for regression the mean, in the units of the targets
    gain    float64 [nodes], nan in a leaf
    """

    root: NDArray[np.int64]
    right: NDArray[np.uint32]
    leaf: NDArray[np.bool_]
    weight: NDArray[np.uint64]
    value: NDArray[np.float64]
    gain: NDArray[np.float64]


def _describe(group: CodeTrees, path: Path, store: Store, config: TrainConfig, held: NDArray[np.int64]) -> _Described:
    """Add the statistics of the leaves of the part at `path` to their ancestors in `held`; returns the columns that
    follow."""
    nodes, spec = len(held), store.spec
    leaf, right = np.empty(nodes, np.bool_), np.empty(nodes, np.uint32)
    done = 0
    for batch in batches(Span(path), len(spec.target.classes), ["left", "right"]):
        here = slice(done, done + batch.num_rows)
        leaf[here] = as_numpy(batch["left"].is_null())
        right[here] = as_numpy(batch["right"], 0)
        done = here.stop
    starts = np.append(group.packed.roots, nodes).astype(np.int64)
    add_up(starts, np.where(leaf, LEAF, 0).astype(np.int32), right, held)
    weight, value, gain = np.empty(nodes, np.uint64), np.empty(nodes), np.empty(nodes)
    impurity = criterion_of(config).impurity
    if spec.target.is_regression:
        spare = np.zeros((1, PARTS), np.int64)
        describe_numbers(starts, leaf, right, held, spare, impurity, spec.target.scale, weight, value, gain)
    else:
        describe_classes(starts, leaf, right, held, impurity, weight, value, gain)
    return _Described(np.repeat(starts[:-1], np.diff(starts)), right, leaf, weight, value, gain)


def _pieces(path: Path, store: Store, found: _Described, held: NDArray[np.int64]) -> Iterator[pa.Table]:
    """The nodes of the part at `path`, some at a time, with the exact weights in place of those of the search."""
    names = store.spec.feature_names
    done = 0
    for batch in batches(Span(path), len(store.spec.target.classes)):
        table = as_written(pa.Table.from_batches([batch]), names, 0)
        here = slice(done, done + table.num_rows)
        done = here.stop
        columns = {
            "weight": arrow_array(found.weight[here]),
            "gain": arrow_array(found.gain[here], mask=found.leaf[here]),
            "default_left": _larger_left(table, store, found, here),
        }
        if store.spec.target.is_regression:
            columns["value"] = arrow_array(found.value[here])
        else:
            columns["counts"] = counts_column(held[here], table.schema.field("counts").type)
        yield with_columns(table, columns)


def _larger_left(table: pa.Table, store: Store, found: _Described, rows: slice) -> Any:
    """The column default_left of these rows of a part: of a feature that no row lacks, whether the left child is no
    lighter than the right.

    Where some lack it the search has decided, by rows that do, or by its own weights.
    """
    known = {feature.name for feature in store.spec.features if not (feature.splits_on_levels or feature.missing)}
    feature, given = table["feature"].chunk(0), table["default_left"].chunk(0)
    is_known = np.array([name in known for name in feature.dictionary.to_pylist()] + [False])
    here = np.flatnonzero(is_known[as_numpy(feature.indices, -1)])
    node = rows.start + here
    column = as_numpy(given, False).copy()
    column[here] = found.weight[node + 1] >= found.weight[found.root[node] + found.right[node]]
    return arrow_array(column, mask=as_numpy(given.is_null()))
