"""What the nodes of trees hold, counted again by wide weights (encode/weights.py).

Splits are found by narrower weights, rounded at random. Once a part is grown, the rows of each bag are sent down its
tree again, as for the out-of-bag report, and the weights of the leaves added up, exactly; so it does not matter how
the trees were grown. The part is then written with these, and what follows from them, in the place of what it had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.common.errors import DataError
from bigforest.common.memory_estimate import MemoryEstimate, Shape
from bigforest.execution.resources import Resources
from bigforest.forest.format.files import header_of, read_table
from bigforest.forest.format.nodes import part_path
from bigforest.forest.format.rewrite import write_nodes
from bigforest.forest.format.schema import nodes_schema
from bigforest.forest.load.groups import outline
from bigforest.forest.load.load_plan import check_load_budget
from bigforest.forest.load.vote_rule import answer_width
from bigforest.forest.votes.leaf_files import Ballots, found_leaves, leaves_path, write_ballots
from bigforest.kernels.common.layout import LEAF
from bigforest.kernels.common.limbs import PARTS
from bigforest.kernels.scan.impurity import NUMBERS
from bigforest.oob.leaf_targets import part_nodes, task_bytes, tasks_at_once
from bigforest.oob.vote import CodeTrees, load_group, send_rows
from bigforest.sampling.bags import Sampler, block_count
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Store

# Bytes of a node while its part is read, described and written, beside its classes, and of each of these.
_NODE = 400
_CLASS = 48
# What a bag may weigh.
_MOST_WEIGHT = 2.0**62


def _bytes(shape: Shape, config: TrainConfig) -> tuple[int, int]:
    """Bytes that all tasks take together, and that each takes besides."""
    shared, own = task_bytes(shape, config)
    return shared, own + part_nodes(shape, config) * (_NODE + _CLASS * shape.classes)


def check_weighing(store: Store, config: TrainConfig, resources: Resources) -> None:
    """Raise ConfigError when the memory of `resources` is too little for `weigh_parts`."""
    if resources.memory is not None:
        check_load_budget("weighing what nodes hold", weigh_estimate(store.shape, config), resources.memory)


def weigh_estimate(shape: Shape, config: TrainConfig) -> MemoryEstimate:
    """What `weigh_parts` needs."""
    memory = sum(_bytes(shape, config))
    return MemoryEstimate("weigh", memory, memory)


def weigh_parts(
    store: Store,
    config: TrainConfig,
    light: Path,
    directory: Path,
    parts: Sequence[range],
    resources: Resources,
    advance: Callable[[int], None],
) -> None:
    """Write these parts of the forest in `directory`, which stand in `light` with what the search counted.

    They do not depend on the resources. Raises DataError where a bag weighs too much.
    """
    executor = resources.executor(tasks_at_once(_bytes(store.shape, config), resources))
    shared = (Sampler.of(store, config), light, directory)
    executor.run(weigh_part, [(part,) for part in parts], lambda index, _: advance(len(parts[index])), shared)


def weigh_part(sampler: Sampler, light: Path, directory: Path, part: range) -> None:
    """Task: write a part."""
    from bigforest.kernels.predict.accumulate import add_up

    store, config = sampler.store, sampler.config
    path = part_path(light, part.start)
    group = load_group(sampler, outline(light, [part]), range(1), 1)
    store.fetch(group.packed.used.tolist(), range(block_count(store.rows)))
    held = np.zeros((group.packed.nodes, len(store.spec.target.classes) or PARTS), np.int64)
    for own in range(len(part)):
        _weigh_tree(sampler, group, own, held)
    identity = header_of(store.spec, config).identity
    table = read_table(path, "trees", nodes_schema(store.spec), identity)[1]
    leaf = table["left"].chunk(0).is_null().to_numpy(zero_copy_only=False)
    right = table["right"].chunk(0).fill_null(0).to_numpy()
    starts = np.append(group.packed.roots, group.packed.nodes).astype(np.int64)
    add_up(starts, np.where(leaf, LEAF, 0).astype(np.int32), right, held)
    described = _described(table, store, config, starts, leaf, right, held)
    write_nodes([described], part_path(directory, part.start), store.spec, config)
    _move_leaves(store, light, directory, part, starts, leaf, described, held)


def _move_leaves(
    store: Store,
    light: Path,
    directory: Path,
    part: range,
    starts: NDArray[np.int64],
    leaf: NDArray[np.bool_],
    described: pa.Table,
    held: NDArray[np.int64],
) -> None:
    """Move the files of leaves of a part, which stay as they are, beside ballots by what the nodes hold."""
    from bigforest.kernels.predict.tally import ballots_of

    width = answer_width(store.spec)
    for file in found_leaves(light, store.rows, width, part):  # other tasks move those of other parts
        trees = range(max(file.trees.start, part.start), min(file.trees.stop, part.stop))
        if trees != file.trees:
            continue
        own = slice(*starts[[trees.start - part.start, trees.stop - part.start]].tolist())
        feature = np.where(leaf[own], LEAF, 0).astype(np.int32)
        numbers = store.spec.target.task == "regression"
        ballot, mixed = ballots_of(feature, held[own, : 0 if numbers else width].astype(np.uint64))
        if numbers:
            mixed = described["value"].combine_chunks().to_numpy()[own][leaf[own], None]
        first = starts[trees.start - part.start : trees.stop - part.start + 1] - own.start
        write_ballots(leaves_path(directory, trees.start), Ballots(first, ballot, mixed))
        file.move(directory, ballots=False)


def _weigh_tree(sampler: Sampler, group: CodeTrees, own: int, held: NDArray[np.int64]) -> None:
    """Add what the leaves of the tree in place `own` of a group hold to `held`, see kernels/predict/accumulate.py
    Weighed."""
    from bigforest.kernels.predict.accumulate import Weighed, weigh_classes, weigh_numbers

    store, tree = sampler.store, group.trees[own]
    assert store.weight is not None
    kernel: Any = weigh_numbers if store.spec.target.task == "regression" else weigh_classes
    root = group.packed.roots[own : own + 1]
    total = 0.0
    for block in range(block_count(store.rows)):
        start = block * store.block_rows
        times = sampler.block(tree, block)
        stop = start + times.size
        total += float((times * store.weight[start:stop].astype(np.float64)).sum())
        if total > _MOST_WEIGHT:
            raise DataError("a bag weighs far more than all rows: lower sample_fraction")
        weight = times.astype(np.int64) * store.weight[start:stop].astype(np.int64)
        weighed = Weighed(weight, store.labels(start, stop), held)

        def weigh(way: Any, scratch: Any, here: slice, whole: Weighed = weighed) -> None:
            kernel(way, root, Weighed(whole.weight[here], whole.target[here], whole.held), scratch)

        send_rows(store, group, start, stop, weigh)


def _described(
    table: pa.Table,
    store: Store,
    config: TrainConfig,
    starts: NDArray[np.int64],
    leaf: NDArray[np.bool_],
    right: NDArray[np.uint32],
    held: NDArray[np.int64],
) -> pa.Table:
    """The table of a part, whose nodes hold this."""
    from bigforest.kernels.tree.finalize import describe_classes, describe_numbers

    spec, nodes = store.spec, leaf.size
    weight, value, gain = np.empty(nodes, np.uint64), np.empty(nodes), np.empty(nodes)
    if spec.target.task == "regression":
        describe_numbers(starts, leaf, right, held, np.zeros((1, PARTS), np.int64), weight, value, gain)
        gain = gain * spec.target.step * spec.target.step
        columns = {"value": pa.array(spec.target.offset + value * spec.target.step)}
    else:
        describe_classes(starts, leaf, right, held, NUMBERS[config.criterion], weight, value, gain)
        kind = table.schema.field("counts").type
        ends = pa.array(np.arange(nodes + 1, dtype=np.int64) * held.shape[1], pa.int32())
        columns = {"counts": pa.ListArray.from_arrays(ends, pa.array(held.ravel(), kind.value_type), type=kind)}
    columns |= {
        "weight": pa.array(weight),
        "gain": pa.array(gain, mask=leaf),
        "default_left": _larger_left(table, store, starts, right, weight),
    }
    for name, column in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), column)
    return table


def _larger_left(
    table: pa.Table, store: Store, starts: NDArray[np.int64], right: NDArray[np.uint32], weight: NDArray[np.uint64]
) -> Any:
    """The column default_left: of a feature that no row lacks, whether the left child is no lighter than the right.

    Where some lack it the search has decided, by rows that do, or by its own weights.
    """
    known = [feature.name for feature in store.spec.features if feature.kind == "numeric" and not feature.missing]
    feature, given = table["feature"].chunk(0), table["default_left"].chunk(0)
    found = np.array([name in set(known) for name in feature.dictionary.to_pylist()] + [False])
    decided = found[feature.indices.fill_null(-1).to_numpy()]
    here = np.flatnonzero(decided)
    root = np.repeat(starts[:-1], np.diff(starts))
    column = given.fill_null(False).to_numpy(zero_copy_only=False).copy()
    column[here] = weight[here + 1] >= weight[root[here] + right[here]]
    return pa.array(column, mask=given.is_null().to_numpy(zero_copy_only=False))
