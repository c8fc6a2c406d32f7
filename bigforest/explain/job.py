"""`ExplainJob`: the inputs of all sections of an explanation, its trees in groups, and methods that run tasks.

Trees are loaded with the value of every node. A section plans its groups of trees, concurrent tasks and time
(`plan_groups`, `plan_sweep`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import as_numpy, read_only
from bigforest.columns.dataspec import WeightSpec
from bigforest.columns.labels import label_codes
from bigforest.encode.rows import whole_weights
from bigforest.errors import ConfigError, DataError, api, counted
from bigforest.events import Listener, stage
from bigforest.execution.process_cache import ProcessCache
from bigforest.execution.resources import Resources
from bigforest.explain.options import ExplainOptions
from bigforest.explain.refine import WalkedStage, determining_classes
from bigforest.explain.row_table import RowTable, describe_rows, sampled, write_row_table
from bigforest.explain.tables import ExplanationFolder
from bigforest.forest.format import CALIBRATED
from bigforest.forest.oob_report import oob_row_batches
from bigforest.forest.parts import batches
from bigforest.forest.refinement import SEQUENCES, Link, rounds_of
from bigforest.planning.memory import BASE_BYTES, MemoryEstimate
from bigforest.planning.sizes import fitting
from bigforest.predict.forest import Forest, read_forest
from bigforest.predict.groups import LOADING_BYTES, Trees
from bigforest.predict.inbag import BagInputs, TreeBags, group_codes
from bigforest.predict.packed_trees import PackedTrees, pack
from bigforest.source.source import Source

if TYPE_CHECKING:
    from bigforest.kernels.explain.step import WalkedTrees

# Least number of groups of trees per worker, so that workers which finish early can take further groups.
_PIECES = 4
# Weights with at most this relative difference count as equal, because tables may have them as float32.
_SAME_WEIGHT = 1e-6
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
    """Trees of a forest, to be loaded from its files in groups. A group is a range of positions among these trees.

    trees    files and sizes of the trees; each entry is one tree.
    soft     True if leaves predict shares of classes, False if they predict the most frequent class.
    factors  float64 [trees], factor of the values of each tree, so that the mean over the trees is the prediction; None
             if all trees vote with the same weight.
    stage    boosted stage of the predictions; None without one, and for sections about single trees.
    """

    trees: Trees
    soft: bool
    factors: NDArray[np.float64] | None = None
    stage: WalkedStage | None = None

    @property
    def width(self) -> int:
        """Number of values of a node: the number of classes, or 1 for regression."""
        return self.trees.header.spec.target.answer_width

    @property
    def tree_count(self) -> int:
        return self.trees.nodes.size

    @property
    def node_count(self) -> int:
        return int(self.trees.nodes.sum())

    def sizes(self) -> NDArray[np.int64]:
        """Return the bytes of each tree while it is loaded."""
        return self.trees.sizes() + self.trees.nodes * (_NODE_BYTES + _ANSWER_BYTES * self.width)

    @property
    def walked_nodes(self) -> NDArray[np.float64]:
        """Number of nodes of each tree through which rows are routed, trees of the boosted stage included, float64."""
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
    begin, end  the nodes of the tree are begin:end among the nodes of the group.
    weight      float64 [nodes of the tree], bag weight in each node.
    answer      float64 [nodes of the tree, classes], value of each node; for regression [nodes, 1]. The value of an
                inner node is the mean over its bag rows of the values of their leaves. These means are the class shares
                of the node, unless leaves are shrunk or vote for one class.
    """

    number: int
    walked: WalkedTrees
    begin: int
    end: int
    weight: NDArray[np.float64]
    answer: NDArray[np.float64]


def load_trees(stock: TreeStock, table: RowTable, entries: range) -> list[LoadedTree]:
    """Load a group of trees, to route the rows of `table`.

    entries  positions of the trees in the stock.

    Raises FormatError for damaged trees, and DataError if values are missing and trees split on projections.
    """
    trees = stock.trees._replace(used=np.array(table.used, np.int64))  # a boosted stage may use more features
    packed = trees.load(entries, 1)
    columns = (
        batch.column("weight")
        for path, _, start, stop in trees.spans(entries)
        for batch in batches(path, len(trees.header.spec.target.classes), ["weight"], slice(start, stop))
    )
    weight = np.concatenate([as_numpy(column).astype(np.float64) for column in columns])
    pa.default_memory_pool().release_unused()  # Arrow keeps the memory that it read the parts into
    if packed.directions is not None and table.missing:
        raise DataError(
            f"missing values in the features {', '.join(map(repr, table.missing[:5]))}: this forest splits on "
            "projections, which need every value; fill or drop these rows"
        )
    leaf_values = packed.leaf_votes("soft" if stock.soft else "hard")
    packed = packed._replace(counts=packed.counts[:0].copy())  # frees the counts
    loaded = _with_answers(packed, leaf_values, weight, trees.numbers(entries))
    if stock.factors is not None:
        loaded = [tree._replace(answer=tree.answer * stock.factors[tree.number]) for tree in loaded]
    return loaded


def load_stage(stage: WalkedStage, table: RowTable) -> list[LoadedTree]:
    """Return the trees of a boosted stage, to route the rows of `table`. They form SEQUENCES sequences.

    LoadedTree.number is the number of the sequence. Answers are divided by the number of sequences, so that scores are
    the sum over all trees.
    """
    packed = pack([[stage.trees]], stage.spec, used=np.array(table.used, np.int64))
    sequences = np.arange(packed.roots.size) // rounds_of(stage.trees)
    weight = stage.trees.weight.astype(np.float64)
    return _with_answers(packed, packed.counts / SEQUENCES, weight, sequences.tolist())


def _with_answers(
    packed: PackedTrees, leaf_values: NDArray[np.float64], weight: NDArray[np.float64], numbers: Sequence[int]
) -> list[LoadedTree]:
    """Return packed trees with a value for every node.

    leaf_values  float64, values of the leaves that have a row in `counts` of PackedTrees, in the order of the rows
    weight       float64 [nodes], weight of the rows in each node
    numbers      number of each tree
    """
    from bigforest.kernels.explain.step import WalkedTrees, node_answers

    walked, roots = WalkedTrees(packed.layout, packed.directions, packed.sets), packed.roots.tolist()
    loaded = []
    for number, (begin, end) in zip(numbers, pairwise([*roots, packed.nodes]), strict=True):
        answer = np.empty((end - begin, leaf_values.shape[1]))
        node_answers(walked.layout, np.uint64(begin), np.uint64(end), leaf_values, weight[begin:end], answer)
        loaded.append(LoadedTree(number, walked, begin, end, weight[begin:end], answer))
    return loaded


def leaf_positions(tree: LoadedTree, values: NDArray[np.float64], rows: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the leaf of each row, uint32 [rows], as a position among the nodes of the group."""
    from bigforest.kernels.explain.step import walk_rows

    leaves = np.empty(rows.size, np.uint32)
    walk_rows(tree.walked, np.uint64(tree.begin), values, read_only(rows), leaves)
    return leaves


# Trees of the last two explanations that load all trees at once, by the folder of their rows.
_loaded_trees: ProcessCache[list[LoadedTree]] = ProcessCache(2)


class Sweep(NamedTuple):
    """All trees in order. Each task routes its rows through all of them.

    groups   groups of trees that are loaded together.
    classes  codes of the classes whose values are yielded; (0,) for regression.
    """

    stock: TreeStock
    table: RowTable
    groups: list[range]
    classes: tuple[int, ...]

    def trees(self) -> Iterator[tuple[LoadedTree, NDArray[np.float64]]]:
        """Yield the trees, each with the values of its nodes, float64 [nodes, classes].

        If all trees are one group, they stay loaded until `forget_trees`, or until two later runs have loaded theirs.
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
    """How a section iterates over the trees, with its memory and time. Its results do not depend on the plan.

    need         estimated memory; its stage is the name of the section.
    groups       groups of trees. Each task has one group (`plan_groups`), or goes over all groups (`plan_sweep`).
    at_once      number of tasks that a process runs at the same time.
    nanoseconds  estimated time on one thread.
    """

    need: MemoryEstimate
    groups: list[range]
    at_once: int
    nanoseconds: float


def plan_groups(
    name: str,
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
    sizes       int64 [trees], bytes of each tree while it is loaded; None if `load_trees` loads it.
    scratch     bytes on disk, without those of the rows and the tables.
    """
    sizes = stock.sizes() if sizes is None else sizes
    time = stock.load_nanoseconds() + work
    largest, whole = int(sizes.max()), int(sizes.sum())
    worker_bytes = task_bytes + LOADING_BYTES
    smallest = BASE_BYTES + shared + worker_bytes + largest
    most = min(resources.limits.explain_bytes, -(-whole // (_PIECES * resources.workers)))
    at_once = resources.workers
    if resources.memory is not None:
        room = max(resources.memory, smallest) - BASE_BYTES - shared  # a budget below `smallest` is refused later
        at_once = min(at_once, room // (worker_bytes + largest))
        most = min(most, room // at_once - worker_bytes)
    most = max(most, largest)
    memory = BASE_BYTES + shared + at_once * (worker_bytes + most)
    need = MemoryEstimate(name, memory, smallest, scratch)
    return SectionPlan(need, fitting(range(sizes.size), sizes.tolist(), most), at_once, time)


def plan_sweep(
    name: str, stock: TreeStock, resources: Resources, task_bytes: int, *, work: float, scratch: int = 0
) -> SectionPlan:
    """Plan a section whose tasks each load all groups of trees, one after the other.

    task_bytes, work, scratch  as for `plan_groups`. All trees stay loaded if they fit.
    """
    sizes, time = stock.sizes(), stock.load_nanoseconds() + work
    task_bytes += 0 if stock.stage is None else stock.stage.nbytes
    whole, largest = int(sizes.sum()), int(sizes.max())
    base = BASE_BYTES + LOADING_BYTES
    smallest = base + task_bytes + largest
    groups, at_once = [range(stock.tree_count)], resources.workers
    if resources.memory is not None:
        budget = max(resources.memory, smallest)  # a budget below `smallest` is refused later
        at_once = min(at_once, (budget - base - whole) // task_bytes)
        if at_once < 1:
            groups = fitting(range(sizes.size), sizes.tolist(), budget - base - task_bytes)
            return SectionPlan(MemoryEstimate(name, budget, smallest, scratch), groups, 1, time)
    need = MemoryEstimate(name, base + whole + at_once * task_bytes, smallest, scratch)
    return SectionPlan(need, groups, at_once, time)


# Rows that are routed at a time to check that a table is the training table.
_CHECKED_ROWS = 1 << 16
_ADVICE = f"give the table the forest was grown on; {api('explain_forest')} takes other rows with {api('new_rows')}"


class OutOfBagRows(NamedTuple):
    """Rows with their targets, and the bags of the trees.

    bags  bags of the rows `table.labelled_rows`; None if all rows are out of bag of all trees.
    """

    table: RowTable
    bags: TreeBags | None

    def out_of_bag(self, tree: int) -> NDArray[np.uint32]:
        """Return the numbers of the out-of-bag rows of the tree, ascending."""
        labelled = self.table.labelled_rows()
        return labelled if self.bags is None else np.ascontiguousarray(labelled[self.bags.bag(tree) == 0])


@dataclass(frozen=True)
class ExplainJob:
    """One call of `explain_forest`. Inputs of sections are made when the first section uses them.

    source  the rows; None without rows.
    folder  folder of the tables.
    work    temporary folder.
    """

    forest: Forest
    source: Source | None
    options: ExplainOptions
    resources: Resources
    listener: Listener
    folder: ExplanationFolder
    work: Path

    @cached_property
    def stock(self) -> TreeStock:
        """The trees without shrinkage. Leaves predict shares of classes, or means."""
        forest = self.forest
        if self.resources.cluster is not None and forest.is_temporary:
            forest.write(self.work / "forest")
            forest = read_forest(self.work / "forest")
        votes = self.forest.files.tree_votes
        factors = None if votes is None else votes * (votes.size / math.fsum(votes.tolist()))
        workers = self.resources.workers
        if self.resources.memory is not None:  # the plan of each section refuses a budget that is too small
            workers = min(workers, max(1, (self.resources.memory - BASE_BYTES) // LOADING_BYTES))
        return TreeStock(forest.loader.survey(workers), True, factors)

    @cached_property
    def stage(self) -> WalkedStage | None:
        """The boosted stage; None for a forest without one."""
        forest = self.forest
        if not forest.files.is_refined:
            return None
        link = Link(forest.spec, forest.config)
        return WalkedStage(forest.files.read_refinement(), link, forest.power.amount, forest.spec)

    @property
    def power(self) -> float:
        """Power of the shares of votes in class probabilities; 1.0 for a single class and for regression."""
        return self.forest.power.amount if self.forest.spec.target.answer_width > 1 else 1.0

    @property
    def shrunk(self) -> TreeStock:
        """The trees with leaves shrunk by the lambda of the forest. Leaves predict shares of classes, or means."""
        amount = self.forest.shrinkage.amount
        return self.stock._replace(trees=self.stock.trees._replace(lambdas=(amount,))) if amount else self.stock

    @property
    def voting(self) -> TreeStock:
        """The trees with the leaves that the forest predicts by, and its boosted stage."""
        soft = self.forest.is_regression or self.forest.config.vote != "hard"
        return self.shrunk._replace(soft=soft, stage=self.stage)

    @cached_property
    def described(self) -> RowTable:
        """Description of the rows before they are read.

        Raises ConfigError without rows, and the errors of `describe_rows`.
        """
        if self.source is None:
            raise ConfigError(f"this needs rows: set {api('data')} to a table with the features of the forest")
        used = self.stock.trees.used
        assert used is not None
        if self.stage is not None:
            used = np.union1d(used, self.stage.trees.used)
        return describe_rows(self.forest, self.source, used, self.work)

    @cached_property
    def table(self) -> RowTable:
        """The rows, read at the first access. Raises DataError, and the errors of `described`."""
        described = self.described
        assert self.source is not None
        return write_row_table(self.forest, self.source, described, self.listener)

    @property
    def out_of_bag_share(self) -> float:
        """Share of the rows that a tree is evaluated on, for estimates of time.

        Bags are assumed to be uniform. Balanced bags leave out more rows, but classes are counted only after planning.
        """
        config = self.forest.config
        if self.options.new_rows or not config.bootstrap:
            return 1.0
        return math.exp(-config.sample_fraction) if config.replace else 1.0 - config.sample_fraction

    def requested(self, default_sample: int) -> int:
        """Return an upper bound of the number of rows to explain: the requested rows, or a sample.

        default_sample  rows of the sample without the option `sample`.

        Raises ConfigError for a requested row that the table does not have.
        """
        requested, rows = set(self.options.rows), self.described.rows
        if strange := sorted(row for row in requested if not 0 <= row < rows):
            last = rows - 1
            raise ConfigError(f"{api('rows')} must be numbers of rows of the table, from 0 to {last}, not {strange[0]}")
        return min(len(requested) or self.options.sample or default_sample, rows)

    @cached_property
    def oob(self) -> OutOfBagRows:
        """The rows with targets, and the bags. Raises ConfigError, and DataError for another table than in training."""
        table, target = self.table, self.forest.spec.target.name
        assert self.source is not None
        if not table.labelled:
            raise DataError(f"the table lacks the target {target!r}, on which trees are evaluated; add it")
        weight = self.forest.spec.weight
        if weight is not None and weight.name is not None and weight.name not in self.source.schema:
            raise DataError(f"the table lacks the weights {weight.name!r} of the rows; add the column")
        if not table.labelled_rows().size:
            raise DataError(f"no row of the table has a {target!r}; there is nothing to evaluate on")
        if self.options.new_rows:
            return OutOfBagRows(table, None)
        if not self.forest.config.bootstrap:
            raise ConfigError(
                f"the forest was grown without bootstrap, so no row is out of bag; {api('explain_forest')} takes other "
                f"rows with {api('new_rows')}"
            )
        _check_training(self.forest, table)
        spec, config = self.forest.spec, self.forest.config
        labelled = table.labelled_rows()
        if config.group is not None and config.group not in self.source.schema:
            raise DataError(f"the table lacks the groups {config.group!r} of the rows; add the column")
        groups = None if config.group is None else self.source.column(config.group)
        codes = group_codes(spec, config, groups, labelled.astype(np.uint64))
        classes = table.target()[labelled] if table.is_classification else np.empty(0, np.uint16)
        bags = TreeBags.of(self.forest.files, BagInputs(spec, classes, codes))
        tree = load_trees(self.stock, table, range(1))[0]
        # Two kinds of trees cannot be checked. With bins, projections were grown on other numbers than the values that
        # route rows here. Calibrated leaves have the weights of other rows.
        binned = tree.walked.directions is not None and isinstance(config.max_bins, int)
        if not binned and CALIBRATED not in self.forest.files.stages:
            _check_leaves(tree, table, bags, weight)
        return OutOfBagRows(table, bags)

    def chosen_positions(self, default_sample: int) -> NDArray[np.uint32]:
        """Return the requested rows, or a sample (see `requested`), as positions in `labelled_rows`, ascending.

        Raises ConfigError for a requested row without a target, or of weight 0.
        """
        labelled = self.oob.table.labelled_rows()
        if not self.options.rows:
            return sampled(labelled.size, self.options.sample or default_sample, self.options.seed)
        requested = np.array(sorted(set(self.options.rows)), np.int64)
        places = np.minimum(np.searchsorted(labelled, requested), labelled.size - 1)
        strange = requested[labelled[places] != requested]
        if strange.size:
            raise ConfigError(
                f"{api('rows')} must be numbers of rows with a target in the table; {strange[0]} is not one"
            )
        return places.astype(np.uint32)

    def seconds(self, plan: SectionPlan) -> float:
        """Return an estimate of the time of a section."""
        return plan.nanoseconds * 1e-9 / self.resources.executor().size

    def over_trees(
        self,
        name: str,
        plan: SectionPlan,
        function: Callable[..., Any],
        shared: tuple[Any, ...],
        collect: Callable[[range, Any], None] = lambda *_: None,
    ) -> None:
        """Run a task for each group of trees of a plan. Call `collect` with the numbers of the trees and the result."""
        groups, stock = plan.groups, self.stock
        with stage(name, stock.tree_count, "trees", self.listener) as progress:

            def finished(index: int, result: Any) -> None:
                numbers = stock.trees.numbers(groups[index])
                collect(numbers, result)
                progress.advance(len(numbers))

            self.resources.executor(plan.at_once).run(function, [(group,) for group in groups], finished, shared)

    @cached_property
    def classes(self) -> tuple[int, ...]:
        """Codes of the classes to explain: by default the second of two, otherwise all; (0,) for regression."""
        target = self.forest.spec.target
        if self.options.classes is not None:
            return self.options.codes(target)
        return determining_classes(target.answer_width)

    @property
    def swept_classes(self) -> tuple[int, ...]:
        """Codes of the classes whose values are summed over the trees to explain `classes`.

        With a boosted stage, these are all classes that determine a prediction.
        """
        return self.classes if self.stage is None else self.stage.classes

    def sweep(self, plan: SectionPlan, classes: tuple[int, ...] | None = None) -> Sweep:
        """Return all trees, with the values of some classes; None for `swept_classes`."""
        return Sweep(self.voting, self.table, plan.groups, self.swept_classes if classes is None else classes)

    def over_rows(
        self,
        name: str,
        plan: SectionPlan,
        function: Callable[..., Any],
        pieces: Sequence[tuple[Any, ...]],
        shared: tuple[Any, ...],
        done: int = 0,
    ) -> list[Any]:
        """Run a task for each piece of the rows. Return the results in the order of the pieces.

        pieces  arguments of each task; the length of the first argument is the number of rows
        done    number of rows that an earlier run has finished

        Trees that tasks keep loaded are freed at the end.
        """
        rows = [len(piece[0]) for piece in pieces]
        with stage(name, done + sum(rows), "rows", self.listener) as progress:
            progress.advance(done)
            try:
                executor = self.resources.executor(plan.at_once)
                return executor.gather(function, pieces, lambda index: progress.advance(rows[index]), shared)
            finally:
                self.resources.executor(1).run_on_all_workers(forget_trees, str(self.work))


def _check_training(forest: Forest, table: RowTable) -> None:
    """Raise DataError for other numbers of rows than in training, or other targets than in the out-of-bag report."""
    spec = forest.spec
    labelled = table.labelled_rows()
    if labelled.size != spec.rows or table.rows - labelled.size != spec.dropped:
        counts = f"{counted(labelled.size, 'row')} with a target and {table.rows - labelled.size:,} without"
        raise DataError(f"the table has {counts}, in training there were {spec.rows:,} and {spec.dropped:,}; {_ADVICE}")
    if not forest.has_oob:
        return
    target, begin = table.target(), 0
    for batch in oob_row_batches(forest.directory, ["truth"]):
        truth = pl.Series(pl.from_arrow(batch.column("truth")))
        rows = labelled[begin : begin + len(truth)]
        values = target[rows]
        expected = label_codes(truth, spec.target) if table.is_classification else truth.to_numpy()
        if expected is None or not np.array_equal(values, expected):
            raise DataError(
                f"the values of {spec.target.name!r} in rows {rows[0]} to {rows[-1]} are not those of training; "
                f"{_ADVICE}"
            )
        begin += len(truth)


def _check_leaves(tree: LoadedTree, table: RowTable, bags: TreeBags, weight_spec: WeightSpec | None) -> None:
    """Raise DataError if the rows of a bag reach other leaves than in training, because values differ.

    Compare the weight of the bag rows that reach each leaf with the weight of the leaf. Both are in units of the step
    of `weight_spec` (encode/rows.py).
    """
    rows, bag, values, weights = table.labelled_rows(), bags.bag(tree.number), table.values(), table.weight()
    drawn = np.zeros(tree.weight.size)
    for begin in range(0, rows.size, _CHECKED_ROWS):
        stretch = slice(begin, begin + _CHECKED_ROWS)
        leaves = leaf_positions(tree, values, rows[stretch]) - np.uint32(tree.begin)
        weight: Any = 1
        if weights is not None and weight_spec is not None:
            weight = whole_weights(weights[rows[stretch]], weight_spec.step)
        drawn += np.bincount(leaves, bag[stretch] * weight, drawn.size)
    reached = drawn > 0
    rounding = 0.0 if weights is None else _SAME_WEIGHT
    if not np.allclose(drawn[reached], tree.weight[reached], rtol=rounding, atol=0.0):
        named = [
            "features",
            *([] if weights is None else ["weights"]),
            *([] if bags.inputs.groups is None else ["groups"]),
        ]
        raise DataError(f"the values of some {' or '.join(named)} are not those of training; {_ADVICE}")
