"""Grow the trees of a forest from a store and write them, one Parquet file (a part) for each group of trees.

`Grower.grow` divides the missing parts among tasks. If the codes and the growing trees fit in memory, a task
(`grow_part`) grows the trees of a part, one or several in each call of the kernel (`Family.trees_per_call`, `_grow`):

1. Draw the bag of each tree, and pack its rows into items: row, class, multiplicity (`_bag_items`).
2. Grow the trees in one call of the kernel (`Family.grow`, kernels/tree/grow.py), in codes, and look up thresholds.
3. Cut the trees by `max_leaf_nodes`, `min_impurity_decrease` and `ccp_alpha` (cut.py).
4. Find the leaves of the out-of-bag rows while the trees and the codes are in memory (`leaves_of`); not with boosting.
5. Write nodes and leaves.

Otherwise groups of parts grow by passes over the store (out_of_core/passes.py), into the same files. So do large trees
on a cluster with more workers than parts. The files are a function of (store, config), because the split of a node
depends only on its rows and its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.errors import DataError, damaged_store
from bigforest.events import Listener
from bigforest.execution.compile_stage import compiling
from bigforest.execution.process_cache import ProcessCache
from bigforest.execution.resources import Resources
from bigforest.forest.decreases import importance_of
from bigforest.forest.files import Header
from bigforest.forest.format import TREES
from bigforest.forest.leaf_votes import LeafWriter, LeftOut
from bigforest.forest.nodes import TreeArrays, write_part
from bigforest.forest.parts import is_finished
from bigforest.grow.criteria import criterion_of
from bigforest.grow.cut import cut_rules, cut_whole
from bigforest.grow.families.family import TreeCall
from bigforest.grow.families.registry import family_of
from bigforest.grow.feature_kinds import Features
from bigforest.grow.memory import GrowPlan, choose_grow_plan, part_size
from bigforest.grow.needed_kernels import compile_passes, kernel_options, kernels_of, small_forest
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.grow.out_of_core.passes import grow_by_passes
from bigforest.grow.out_of_core.table import Passes, TableView
from bigforest.grow.out_of_core.upper_tree import root_key
from bigforest.grow.trees import TreeRows, code_view, find_left_out, split_arrays, splits_of
from bigforest.kernels.common.layout import RowMajorCodes
from bigforest.kernels.predict.route_codes import CodeView
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.tree.bags import pack_rows
from bigforest.kernels.tree.builder import Roots, Rules
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import TableTraits, keep_freed
from bigforest.planning.sizes import fitting
from bigforest.predict.packed_trees import PackedTrees, pack
from bigforest.sampling.bags import Sampler, check_bag, max_bag_rows
from bigforest.storage.atomic import TemporaryFolder
from bigforest.store.store import Dictionaries, Store

# Counts of bag rows have 32 bits in the forest table. Kernels that grow in memory keep squared weights in int64.
_MAX_ROWS = 2**32 - 1
_MAX_ROWS_IN_MEMORY = 2**31 - 1
# With `feature_fraction`, a node repeats the draw until it has a feature. This is the largest mean number of rounds.
_MAX_ROUNDS = 1_000
# Most bytes of nodes that are kept, so that the first prediction of a forest need not read them.
_KEPT_BYTES = 1 << 30
# Kinds of forests whose kernels `compile_for` has compiled in this process.
_compiled: set[tuple[Any, ...]] = set()


class ForestJob(NamedTuple):
    """Inputs of a training stage: store, configuration, output directory, resources and event listener."""

    store: Store
    config: TrainConfig
    directory: Path
    resources: Resources
    listener: Listener

    def header(self) -> Header:
        """Return the header of the files of the forest, with levels."""
        return Header(self.store.spec, self.config, self.store.levels())


class KeptTrees(NamedTuple):
    """All trees of a forest as grown, by part."""

    parts: list[list[TreeArrays]]
    spec: DataSpec

    @property
    def nbytes(self) -> int:
        return sum(nodes.nbytes for part in self.parts for nodes in part)

    @property
    def sizes(self) -> list[int]:
        """Number of nodes of each tree."""
        return [size for part in self.parts for nodes in part for size in np.diff(nodes.starts).tolist()]

    @property
    def importance(self) -> NDArray[np.float64]:
        """Share of each feature in the total decrease of impurity, float64 [features]."""
        return importance_of((nodes for part in self.parts for nodes in part), self.spec)

    def packed(self, lambdas: tuple[float, ...], workers: int, used: NDArray[np.int64] | None) -> PackedTrees:
        """Pack the trees for prediction by `workers` threads, with leaves shrunk by these lambdas.

        used  positions of the features that rows will have; None for the features that nodes split on
        """
        return pack(self.parts, self.spec, lambdas, workers, used)


class Grower:
    """Grower of the parts of a forest. Creating it compiles the kernels. Leaving its context frees memory and scratch.

    least_trees  smallest number of trees with which a call of `grow` is efficient

    Raises DataError for a table that is too large, ConfigError for a memory budget that is too small, and FormatError
    for an existing part that is damaged or belongs to another forest.
    """

    def __init__(self, job: ForestJob, plan: GrowPlan | None = None, keep: bool = False) -> None:
        """Compile the kernels.

        plan  how to grow; None for the fastest way within the resources
        keep  keep the trees for `grown`, if memory allows
        """
        store, config, _, resources, listener = self._job = job
        self._plan = plan or choose_grow_plan(store.shape, config, resources)
        draws, by_passes = max_bag_rows(store, config), self._plan.limits is not None
        if not by_passes:
            check_rows(store.rows)
        check_draws(draws, in_memory=not by_passes, category=bool(store.shape.extras.category))
        self._scratch = ExitStack()  # for passes: values of the table, and rows, until all trees are grown
        self._table: TableView | None = None
        self._folder = Path()
        self._executor = resources.executor(self._plan.workers)
        with compiling(kernels_of(store.shape.extras, config, by_passes), self._executor, listener):
            self._executor.run_on_all_workers(compile_for, store.shape.extras, config, by_passes, resources.scratch)
        self._keep = keep and self._plan.keeps
        self._kept: dict[int, list[TreeArrays]] = {}
        self._kept_bytes = 0
        self.least_trees = self._plan.group if by_passes else self._executor.size

    def __enter__(self) -> Grower:
        return self

    def __exit__(self, *_: object) -> None:
        with self._scratch:
            self.free_memory()

    def free_memory(self) -> None:
        """Free the memory that is kept for further trees."""
        self._executor.run_on_all_workers(forget_shared, *self._job[:2])

    def grown(self) -> KeptTrees | None:
        """Return all trees of the forest if they were all grown in this process and kept in memory; otherwise None.

        The trees are handed over: another call returns None.
        """
        parts = [self._kept[first] for first in sorted(self._kept)]
        if sum(nodes.roots.size for part in parts for nodes in part) < self._job.config.trees:
            return None
        self._kept = {}
        return KeptTrees(parts, self._job.store.spec)

    def grow(self, parts: Sequence[range], advance: Callable[[int], None]) -> None:
        """Write these parts, except for existing ones. Call `advance` with the number of trees that exist or that were
        grown since the last call."""
        missing = missing_parts(self._job, parts, advance)
        if self._plan.limits is None:
            self._grow_in_memory(missing, advance)
            return
        for group in fitting(missing, [len(part) for part in missing], self._plan.group):
            passes = Passes.of(self._passed_table(self._plan.limits), self._folder, self._executor)
            grow_by_passes(passes, group, self._job.directory, advance)

    def _grow_in_memory(self, parts: Sequence[range], advance: Callable[[int], None]) -> None:
        """Grow each part by a task, and keep the trees, unless all together take more than _KEPT_BYTES."""
        store, config, directory, _, _ = self._job

        def end(index: int, grown: list[TreeArrays]) -> None:
            advance(len(parts[index]))
            if self._keep:
                self._kept[parts[index].start] = grown
                self._kept_bytes += sum(nodes.nbytes for nodes in grown)
                if self._kept_bytes > _KEPT_BYTES:
                    self._keep, self._kept = False, {}

        self._executor.run(grow_part, [(part,) for part in parts], end, (store, config, directory, self._keep))

    def _passed_table(self, limits: MemoryLimits) -> TableView:
        """Return the table for passes. Make it in the first call."""
        if self._table is None:
            store, config, _, resources, _ = self._job
            self._folder = self._scratch.enter_context(TemporaryFolder(resources.scratch))
            inputs = (store, config, rules_of(store, config), limits, self._folder, self._executor)
            self._table = family_of(config).passed_table(*inputs)
        return self._table


def missing_parts(job: ForestJob, parts: Sequence[range], advance: Callable[[int], None]) -> list[range]:
    """Return the parts that do not exist yet. Call `advance` with the number of trees in existing parts.

    Raises FormatError for a part that is damaged or belongs to another forest.
    """
    # Read levels only if there is a part to check: reading takes as long as growing some small trees.
    if not any(TREES.part(job.directory, part.start).exists() for part in parts):
        return list(parts)
    header = job.header()
    missing = [part for part in parts if not is_finished(job.directory, part, header)]
    if done := sum(map(len, parts)) - sum(map(len, missing)):
        advance(done)
    return missing


def divide_into_parts(rows: int, trees: int) -> list[range]:
    """Return the trees of each part of a forest, in order. `rows` are the rows of the table."""
    size = part_size(rows, trees)
    return [range(first, min(first + size, trees)) for first in range(0, trees, size)]


def check_rows(rows: int) -> None:
    """Raise DataError for a table with too many rows to grow trees in memory: items have 32 bits for the row."""
    if rows > _MAX_ROWS:
        raise DataError(f"the table has {rows} rows and at most {_MAX_ROWS} can grow in memory: set a memory budget")


def check_draws(draws: int, *, in_memory: bool, category: bool) -> None:
    """Raise DataError if files or kernels cannot count the rows of a bag with this many draws."""
    if draws > _MAX_ROWS:
        raise DataError(f"a bag has {draws} rows and at most {_MAX_ROWS} are possible: sample a fraction of them")
    if in_memory and draws > _MAX_ROWS_IN_MEMORY:
        raise DataError(
            f"a bag has {draws} rows and at most {_MAX_ROWS_IN_MEMORY} can grow in memory: set a memory budget"
        )
    if category and draws > _MAX_ROWS_IN_MEMORY:  # kernels/scan/level_order.py power_step
        raise DataError(
            f"a bag has {draws} rows and at most {_MAX_ROWS_IN_MEMORY} are possible with categories: sample a "
            "fraction of them"
        )


def grow_part(store: Store, config: TrainConfig, directory: Path, keep: bool, trees: range) -> list[TreeArrays]:
    """Task: grow consecutive trees in memory. Write them as one part, and the leaves of their out-of-bag rows.

    Returns the trees if `keep`, otherwise an empty list.
    """
    kept: list[TreeArrays] = []
    leaves = LeafWriter(store, config, directory, trees.start)

    def grown() -> Iterator[TreeArrays]:
        for call in grow_trees(store, config, trees):
            if call.left_out is not None:
                leaves.add(call.left_out, call.trees)
            if keep:
                kept.append(call.trees._replace(below=None, above=None))
            yield call.trees

    write_part(directory, trees.start, grown(), shared_of(store, config).header)
    leaves.write()
    return kept


class GrownTrees(NamedTuple):
    """Trees that were grown in one call of the kernel, and the leaves of their out-of-bag rows.

    left_out  None without bootstrap, and with boosting
    """

    trees: TreeArrays
    left_out: list[LeftOut] | None


def grow_trees(store: Store, config: TrainConfig, trees: range) -> Iterator[GrownTrees]:
    """Grow consecutive trees in memory, several trees of small bags in one call of the kernel.

    Raises FormatError if the store changes meanwhile.
    """
    per_call = family_of(config).trees_per_call(store.shape, config)
    for first in range(trees.start, trees.stop, per_call):
        store.check_unchanged()
        yield _grow(shared_of(store, config), range(first, min(first + per_call, trees.stop)))
    store.check_unchanged()  # before the last trees are written


def grow_tree(store: Store, config: TrainConfig, tree: int) -> TreeArrays:
    """Grow tree number `tree` of the forest of (store, config) in memory."""
    try:
        return _grow(shared_of(store, config), range(tree, tree + 1)).trees
    finally:
        forget_shared(store, config)


def compile_for(extras: TableTraits, config: TrainConfig, passes: bool, scratch: Path | None) -> None:
    """Grow a small tree to compile the kernels that a forest needs, or load them from the cache, once per process.

    passes   True if the forest grows by passes
    scratch  folder for a few kilobytes
    """
    traits = bool(extras.non_plain_features), extras.regression, extras.many
    kind = (passes, *traits, *kernel_options(config).items())
    if kind in _compiled:
        return
    with small_forest(extras, config, scratch) as (store, small_config):
        if passes:
            compile_passes(store, small_config)
        else:
            grow_tree(store, small_config, 0)
    _compiled.add(kind)


def _grow(shared: SharedInputs, trees: range) -> GrownTrees:
    """Grow trees in one call of the kernel, cut them, and find the leaves of their out-of-bag rows."""
    sampler, family = shared.sampler, family_of(shared.sampler.config)
    store, config = sampler.store, sampler.config
    bags = [sampler.bag(tree) for tree in trees]
    call = TreeCall(sampler, trees.start, shared.features, shared.by_row, _rows_of_bags(shared, trees, bags))
    grown = family.grow(call, shared.family_data)
    del call  # frees memory that the leaves need
    rules = cut_rules(config)
    grown = grown if rules is None else cut_whole(grown, rules)
    if not config.bootstrap or config.boosts:  # with boosting, all rows are routed later
        return GrownTrees(grown, None)
    table = (shared.view, store.dictionaries, shared.features)
    return GrownTrees(grown, leaves_of(*table, grown, bags, projected=family.uses_values))


def _rows_of_bags(shared: SharedInputs, trees: range, bags: list[NDArray[np.uint16]]) -> TreeRows:
    """Return the rows of the bags as items, and the roots of the trees; bags: uint16 [rows] for each tree."""
    items = [_bag_items(shared, tree, bag) for tree, bag in zip(trees, bags, strict=True)]
    start = np.cumsum([0, *(bag.size for bag in items)], dtype=np.uint64)
    roots = Roots(start, root_key(shared.sampler.config, np.arange(trees.start, trees.stop)))
    return TreeRows(np.concatenate(items), shared.target, roots, shared.rules)


def _bag_items(shared: SharedInputs, tree: int, multiplicity: NDArray[np.uint16]) -> NDArray[np.uint64]:
    """Pack the rows of the bag of a tree into items, see kernels/common/node_scan.py."""
    store = shared.sampler.store
    items = np.empty(np.count_nonzero(multiplicity), np.uint64)
    classes = store.target if shared.target.value is None else None
    weight = shared.sampler.search_weights(tree, 0, multiplicity)
    check_bag(int(weight.sum(dtype=np.int64)), store.spec)
    pack_rows(classes, weight, items)
    if classes is not None and items.size:
        most = int(((items >> np.uint64(16)) & np.uint64(0xFFFF)).max())
        if most >= len(store.spec.target.classes):  # another process changed the store after its classes were checked
            raise damaged_store(f"{store.path}: a class is out of range")
    return items


def leaves_of(
    view: CodeView,
    dictionaries: Dictionaries,
    features: Features,
    trees: TreeArrays,
    bags: list[NDArray[np.uint16]],
    *,
    projected: bool,
) -> list[LeftOut]:
    """Return the out-of-bag rows of each tree, and their leaves.

    bags       for each tree uint16 [rows], how often each row is in its bag
    projected  the trees split on projections
    """
    splits, roots = splits_of(split_arrays(trees), dictionaries, features, projected=projected), trees.starts[:-1]
    depth, levels = int(trees.depth.max()), features.largest
    return [
        find_left_out(view, splits, root, bag, depth=depth, levels=levels)
        for root, bag in zip(roots.tolist(), bags, strict=True)
    ]


class SharedInputs(NamedTuple):
    """Data that all trees of a forest growing in memory share.

    by_row       codes of the table, row by row
    family_data  result of Family.shared
    header       header of the files of the forest, with levels
    view         codes, for routing rows
    """

    sampler: Sampler
    by_row: RowMajorCodes
    rules: Rules
    target: ClassTarget | RegressionTarget
    family_data: Any
    features: Features
    header: Header
    view: CodeView


# Shared data of the forests that grow in this process.
_shared_inputs: ProcessCache[SharedInputs] = ProcessCache(4)


def shared_of(store: Store, config: TrainConfig) -> SharedInputs:
    """Return the data that all trees of a forest share, made once in each process."""

    def make() -> SharedInputs:
        keep_freed()
        family, criterion = family_of(config), criterion_of(config)
        coded, by_row = family.codes(store)
        classes, zero = len(coded.spec.target.classes), criterion.zero(coded.spec.target)
        return SharedInputs(
            Sampler(coded, config),
            by_row,
            rules_of(coded, config),
            ClassTarget(classes, criterion.table) if classes else RegressionTarget(coded.target, zero),
            family.shared(coded, config),
            Features.of(coded, config),
            Header(coded.spec, config, coded.levels()),
            code_view(coded.codes, by_row),
        )

    return _shared_inputs.get((store, config), make)


def forget_shared(store: Store, config: TrainConfig) -> None:
    """Free the shared data."""
    _shared_inputs.forget((store, config))


def rules_of(store: Store, config: TrainConfig) -> Rules:
    """Return the stopping rules and options of the trees of a forest.

    `min_split` and `min_leaf` count rows. With weights they are scaled by the mean weight of a row, except that 2 and 1
    still allow every split.
    """
    config = config.for_task(store.spec.target.task)
    mean = store.spec.searched_weight
    columns = family_of(config).drawn_from(len(store.spec.features), config)
    return Rules(
        mtry=config.drawn_features(columns),
        impurity=criterion_of(config).number,
        max_depth=-1 if config.max_depth is None else config.max_depth,
        min_split=2 + round((config.min_split - 2) * mean),
        min_leaf=1 + round((config.leaf_rule - 1) * mean),
        redraw=config.constants == "redraw",
        chance=-1 if config.feature_fraction is None else _chance(config.feature_fraction, columns),
    )


def _chance(fraction: float, columns: int) -> int:
    """Return the chance of each column to be drawn, times 2**53.

    A tiny chance is raised, so that draws end soon. With the raised chance, less than one node in 1,000 draws more than
    one column.
    """
    return max(int(fraction * 2**53), 2**53 // (_MAX_ROUNDS * columns))
