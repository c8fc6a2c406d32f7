"""Trees with the value of every node, loaded in groups; plans of groups, concurrent tasks and time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import as_numpy
from bigforest.errors import DataError
from bigforest.execution.process_cache import ProcessCache
from bigforest.execution.resources import Resources
from bigforest.explain.boosted_stage import WalkedStage
from bigforest.explain.row_table import RowTable
from bigforest.forest.parts import batches
from bigforest.forest.refinement import SEQUENCES, rounds_of
from bigforest.kernels.common.layout import LEAF
from bigforest.planning.memory import BASE_BYTES, MemoryEstimate
from bigforest.predict.groups import LOADING_BYTES, Trees, cut
from bigforest.predict.packed_trees import pack

if TYPE_CHECKING:
    from bigforest.kernels.explain.step import WalkedTrees

# Groups of trees per concurrent task, so that fast tasks take work from slow tasks.
_PIECES = 4
# Bytes of a row while it is routed: its number, leaf, and count in the bag.
ROW_BYTES = 16
# Bytes of a node in addition to those of predict/groups.py, and bytes of its value for a class.
_NODE_BYTES = 16
_ANSWER_BYTES = 16
# Nanoseconds on one thread for loading a tree, a node, and a number of its value, and for a step of a row down a tree.
# Measured on 2 cores of an AMD EPYC; other processors differ by a factor of two and more.
_TREE_NS = 500_000.0
_LOAD_NS = 400.0
_ANSWER_NS = 50.0
_STEP_NS = 10.0


class TreeStock(NamedTuple):
    """Trees of a forest, to be loaded from its files.

    trees    one entry per tree.
    soft     True if leaves predict shares of classes, False if they predict the most frequent class.
    factors  float64 [trees], factors of the values, with which the mean over the trees is the prediction; None if all
             trees vote with the same weight.
    stage    boosted stage that predictions include; None without one, and if trees are explained one by one.
    """

    trees: Trees
    soft: bool
    factors: NDArray[np.float64] | None = None
    stage: WalkedStage | None = None

    @property
    def width(self) -> int:
        """Numbers per prediction."""
        return self.trees.header.spec.target.answer_width

    @property
    def tree_count(self) -> int:
        return self.trees.nodes.size

    @property
    def node_count(self) -> int:
        return int(self.trees.nodes.sum())

    def sizes(self) -> NDArray[np.int64]:
        return self.trees.sizes() + self.trees.nodes * (_NODE_BYTES + _ANSWER_BYTES * self.width)

    @property
    def walked_nodes(self) -> NDArray[np.float64]:
        """Number of nodes of each tree, including the trees of the boosted stage."""
        nodes = self.trees.nodes.astype(np.float64)
        if self.stage is None:
            return nodes
        return np.append(nodes, np.diff(self.stage.trees.starts).astype(np.float64))

    def depths(self) -> NDArray[np.float64]:
        """Return an estimate of the length of the path of a row in each tree."""
        return 1.5 * np.log2(self.walked_nodes + 1.0)

    def load_nanoseconds(self) -> float:
        """Return an estimate of the time of loading all trees on one thread."""
        return self.tree_count * _TREE_NS + self.node_count * (_LOAD_NS + _ANSWER_NS * self.width)

    def walk_nanoseconds(self, rows: float) -> float:
        """Return an estimate of the time of routing rows through all trees on one thread."""
        return rows * float(self.depths().sum()) * _STEP_NS


class LoadedTree(NamedTuple):
    """A tree of a group.

    number      number of the tree in the forest.
    walked      nodes of all trees of the group.
    begin, end  the nodes of the tree are begin to before end.
    weight      float64 [nodes of the tree], bag weight in each node.
    answer      float64 [nodes of the tree, classes], value of each node; for regression [nodes, 1]. An inner node has
                the mean of its leaves over the bag. Unless leaves are shrunk, this is the shares of its classes.
    """

    number: int
    walked: WalkedTrees
    begin: int
    end: int
    weight: NDArray[np.float64]
    answer: NDArray[np.float64]


def load_trees(stock: TreeStock, table: RowTable | None, entries: range) -> list[LoadedTree]:
    """Load the trees of some entries, to route the rows of `table`.

    Raises FormatError for damaged trees, and DataError if values are missing and trees split on projections.
    """
    from bigforest.kernels.explain.step import WalkedTrees, node_answers

    trees = stock.trees
    packed = trees.load(entries, 1)
    columns = (
        batch.column("weight")
        for path, _, start, stop in trees.spans(entries)
        for batch in batches(path, len(trees.header.spec.target.classes), ["weight"], slice(start, stop))
    )
    weight = np.concatenate([as_numpy(column).astype(np.float64) for column in columns])
    pa.default_memory_pool().release_unused()  # Arrow keeps the memory that it read the parts into
    if packed.directions is not None and table is not None and table.missing:
        raise DataError(
            f"missing values in the features {', '.join(map(repr, table.missing[:5]))}: this forest splits on "
            "projections, which need every value; fill or drop these rows"
        )
    mixed = packed.leaf_votes("soft" if stock.soft else "hard")
    packed = packed._replace(counts=packed.counts[:0].copy())
    walked = WalkedTrees(packed.layout, packed.directions, packed.sets)
    ends = [*packed.roots.tolist()[1:], packed.nodes]
    loaded = []
    for number, begin, end in zip(trees.numbers(entries), packed.roots.tolist(), ends, strict=True):
        answer = np.empty((end - begin, stock.width))
        node_answers(walked.layout, np.uint64(begin), np.uint64(end), mixed, weight[begin:end], answer)
        if stock.factors is not None:
            answer *= stock.factors[number]
        loaded.append(LoadedTree(number, walked, begin, end, weight[begin:end], answer))
    return loaded


def leaf_positions(tree: LoadedTree, values: NDArray[np.float64], rows: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the leaf of each row, uint32 [rows], as a position among the nodes of the group."""
    from bigforest.kernels.explain.step import walk_rows

    leaves = np.empty(rows.size, np.uint32)
    walk_rows(tree.walked, np.uint64(tree.begin), values, rows, leaves)
    return leaves


def load_stage(stage: WalkedStage, table: RowTable) -> list[LoadedTree]:
    """Return the trees of a boosted stage, to route the rows of `table`. A tree has the number of its sequence.

    Answers are divided by the number of sequences, so that scores are the sum over all trees.
    """
    from bigforest.kernels.explain.step import WalkedTrees, node_answers

    trees = stage.trees
    assert trees.value is not None
    nodes = trees._replace(value=trees.value[:, 0])  # only the places of leaves are used, not their values
    packed = pack([[nodes]], stage.spec, used=np.array(table.used, np.int64))
    walked = WalkedTrees(packed.layout, packed.directions, packed.sets)
    values = trees.value[trees.feature == LEAF] / SEQUENCES
    outputs = [np.ascontiguousarray(column[:, None]) for column in values.T]
    loaded = []
    for tree, (begin, end) in enumerate(pairwise(trees.starts.tolist())):
        rows, mean = trees.weight[begin:end].astype(np.float64), np.empty((end - begin, 1))
        answer = np.empty((end - begin, len(outputs)))
        for place, mixed in enumerate(outputs):
            node_answers(walked.layout, np.uint64(begin), np.uint64(end), mixed, rows, mean)
            answer[:, place] = mean[:, 0]
        loaded.append(LoadedTree(tree // rounds_of(trees), walked, begin, end, rows, answer))
    return loaded


_loaded_trees: ProcessCache[list[LoadedTree]] = ProcessCache(2)


class Sweep(NamedTuple):
    """All trees, over which each task goes in their order, and the rows that it routes.

    groups   trees that are loaded together.
    classes  codes of the classes whose values are yielded; (0,) for regression.
    """

    stock: TreeStock
    table: RowTable
    groups: list[range]
    classes: tuple[int, ...]

    def trees(self) -> Iterator[tuple[LoadedTree, NDArray[np.float64]]]:
        """Yield the trees, each with the values of its nodes, float64 [nodes, classes].

        If all trees are one group, they stay loaded until `forget_trees`.
        """
        all_classes = self.classes == tuple(range(self.stock.width))
        for tree in chain.from_iterable(map(self._group, self.groups)):
            yield tree, tree.answer if all_classes else tree.answer.take(self.classes, axis=1)

    def stage_trees(self) -> Iterator[tuple[LoadedTree, NDArray[np.float64]]]:
        """Yield the trees of the boosted stage, see `load_stage`, each with the values of its nodes."""
        assert self.stock.stage is not None
        for tree in load_stage(self.stock.stage, self.table):
            yield tree, tree.answer

    def _group(self, entries: range) -> list[LoadedTree]:
        if len(self.groups) > 1:
            return load_trees(self.stock, self.table, entries)
        return _loaded_trees.get(str(self.table.folder), lambda: load_trees(self.stock, self.table, entries))


def forget_trees(key: str) -> None:
    _loaded_trees.forget(key)


class SectionPlan(NamedTuple):
    """Iteration of a section over the trees, and its memory. Results do not depend on it.

    need         estimated memory, under the name of the section.
    groups       groups of trees: one for each task (`plan_groups`), or all of them for every task (`plan_sweep`). Empty
                 if the budget is too small.
    at_once      number of tasks that a process runs at the same time.
    nanoseconds  estimated time on one thread.
    """

    need: MemoryEstimate
    groups: list[range]
    at_once: int
    nanoseconds: float


def plan_groups(
    part: str,
    stock: TreeStock,
    resources: Resources,
    task_bytes: int,
    *,
    work: float,
    shared: int = 0,
    sizes: NDArray[np.int64] | None = None,
    scratch: int = 0,
) -> SectionPlan:
    """Plan a section with one task for each group of trees.

    task_bytes  bytes of a task without its trees.
    work        nanoseconds on one thread, without loading the trees.
    shared      bytes that all tasks share.
    sizes       int64 [trees], bytes of each tree; None for trees of `load_trees`.
    scratch     bytes on disk without the rows and the tables.
    """
    sizes, first, time = stock.sizes() if sizes is None else sizes, stock.trees.first, stock.load_nanoseconds() + work
    largest, whole = int(sizes.max()), int(sizes.sum())
    worker_bytes = task_bytes + LOADING_BYTES
    smallest = BASE_BYTES + shared + worker_bytes + largest
    most, at_once = min(resources.limits.explain_bytes, -(-whole // (_PIECES * resources.workers))), resources.workers
    if resources.memory is not None:
        if resources.memory < smallest:
            return SectionPlan(MemoryEstimate(part, smallest, smallest, scratch), [], 0, time)
        room = resources.memory - BASE_BYTES - shared
        at_once = min(at_once, room // (worker_bytes + largest))
        most = min(most, room // at_once - worker_bytes)
    most = max(most, largest)
    memory = BASE_BYTES + shared + at_once * (worker_bytes + most)
    need = MemoryEstimate(part, memory, smallest, scratch)
    return SectionPlan(need, cut(sizes, first, most, stock.tree_count), at_once, time)


def plan_sweep(
    part: str, stock: TreeStock, resources: Resources, task_bytes: int, *, work: float, scratch: int = 0
) -> SectionPlan:
    """Plan a section whose tasks each load all groups of trees, one after the other.

    task_bytes, work, scratch  as for `plan_groups`. All trees stay loaded if they fit.
    """
    sizes, first, time = stock.sizes(), stock.trees.first, stock.load_nanoseconds() + work
    task_bytes += 0 if stock.stage is None else stock.stage.nbytes
    whole, largest = int(sizes.sum()), int(sizes.max())
    base = BASE_BYTES + LOADING_BYTES
    smallest = base + task_bytes + largest
    groups, at_once, memory = [range(stock.tree_count)], resources.workers, resources.memory
    if memory is not None:
        room = memory - base
        if room < largest + task_bytes:
            return SectionPlan(MemoryEstimate(part, smallest, smallest, scratch), [], 0, time)
        if room < whole + task_bytes:
            groups = cut(sizes, first, room - task_bytes, stock.tree_count)
            return SectionPlan(MemoryEstimate(part, memory, smallest, scratch), groups, 1, time)
        at_once = min(at_once, (room - whole) // task_bytes)
    return SectionPlan(
        MemoryEstimate(part, base + whole + at_once * task_bytes, smallest, scratch), groups, at_once, time
    )
