"""Grow the trees of a forest from a store, a group of trees per task, each group one Parquet part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigforest.common.errors import DataError
from bigforest.common.events import Listener
from bigforest.common.memory_estimate import Extras
from bigforest.execution.compiling import compiling
from bigforest.execution.resources import Resources
from bigforest.forest.format.checks import Nodes
from bigforest.forest.format.decreases import DecreaseSums
from bigforest.forest.format.nodes import part_path
from bigforest.forest.format.rewrite import is_finished
from bigforest.forest.load.flat_tree import FlatTrees
from bigforest.forest.load.flatten import pack
from bigforest.grow.families.registry import family_of
from bigforest.grow.in_memory import GrownPart, forget_shared, grow_part, rules_of
from bigforest.grow.memory import GrowPlan, choose_grow_plan, part_size
from bigforest.grow.out_of_core.context import GrowContext
from bigforest.grow.out_of_core.passes import grow_by_passes
from bigforest.grow.out_of_core.table import TableView
from bigforest.grow.shared.criteria import criterion_of
from bigforest.grow.shared.memory import fitting
from bigforest.grow.shared.tree_arrays import tree_arrays
from bigforest.grow.warm_up import KERNEL_OPTIONS, compile_passes, kernels_of
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.scan.categorical_missing import Subsets
from bigforest.kernels.tree.compile import Needs, compile_kernels
from bigforest.sampling.bags import max_weight
from bigforest.schema.config import TrainConfig
from bigforest.schema.dataspec import DataSpec
from bigforest.storage.atomic import TemporaryFolder
from bigforest.store.store import Dictionaries, Store

# Counts of bag rows are 32 bits wide in the forest table. Kernels that grow in memory keep squared weights in int64.
# Drawing without replacement, numpy counts to a billion.
_MOST_ROWS = 2**32 - 1
_MOST_ROWS_IN_MEMORY = 2**31 - 1
_MOST_ROWS_WITHOUT_REPLACEMENT = 10**9 - 1
# What `compile_for` has compiled in this process.
_compiled: set[tuple[Any, ...]] = set()
# Bytes of nodes that are kept, so that the first answer of a forest need not read them.
_KEPT_BYTES = 1 << 30


class KeptTrees(NamedTuple):
    """All trees of a forest as they were grown, by part, and the decreases of their nodes by feature."""

    parts: list[list[Nodes]]
    spec: DataSpec
    decreases: DecreaseSums

    @property
    def nbytes(self) -> int:
        """Bytes of their nodes."""
        return sum(nodes.nbytes for part in self.parts for nodes in part)

    @property
    def sizes(self) -> list[int]:
        """Number of nodes by tree."""
        return [size for part in self.parts for nodes in part for size in np.diff(nodes.starts).tolist()]

    def packed(self, lambdas: tuple[float, ...], workers: int) -> FlatTrees:
        """The trees as predictions read them, packed by `workers` threads, their leaves shrunk by these lambdas."""
        return pack(self.parts, self.spec, lambdas, workers)


class Grower:
    """Grows parts of a forest; compiles first. A context manager, for its memory.

    The files are a function of (store, config). Raises DataError for tables too large, ConfigError for too small a
    budget of memory, and FormatError when a part that is there is damaged or of another forest.

    together  trees that are grown best in one call, at least.
    """

    def __init__(
        self,
        store: Store,
        config: TrainConfig,
        directory: Path,
        resources: Resources,
        listener: Listener,
        way: GrowPlan | None = None,
        keep: bool = False,
    ) -> None:
        """keep: whether trees are kept for `grown`, as far as memory allows."""
        self._way = way or choose_grow_plan(store.shape, config, resources)
        _check_rows(store, config, self._way)
        self._task = (store, config, directory)
        self._scratch = resources.scratch
        self._prepared = ExitStack()  # keeps the table for passes until all trees are grown
        self._table: TableView | None = None
        self._executor = resources.executor(self._way.workers)
        passes = self._way.limits is not None
        with compiling(kernels_of(store.shape.extras, config, passes), self._executor, listener):
            self._executor.run_on_all_workers(compile_for, store.shape.extras, config, passes, resources.scratch)
        self._keep = keep and self._way.keeps
        self._kept: dict[int, list[Nodes]] = {}
        self._kept_bytes = 0
        self._decreases = DecreaseSums(len(store.spec.features))
        self.together = self._executor.size if self._way.limits is None else self._way.group

    def __enter__(self) -> Grower:
        return self

    def __exit__(self, *_: object) -> None:
        with self._prepared:
            self.rest()

    def grown(self) -> KeptTrees | None:
        """All trees of the forest, if they are kept and were all grown in memory, in this process."""
        parts = [self._kept[first] for first in sorted(self._kept)]
        if sum(nodes.roots.size for part in parts for nodes in part) < self._task[1].trees:
            return None
        self._kept = {}
        return KeptTrees(parts, self._task[0].spec, self._decreases)

    def rest(self) -> None:
        """Free the memory that is kept for further trees."""
        self._executor.run_on_all_workers(forget_shared, *self._task[:2])

    def grow(self, parts: Sequence[range], advance: Callable[[int], None]) -> None:
        """Write these parts, except for existing ones; `advance` is called with numbers of finished trees."""
        store, config, directory = self._task
        wanted = missing_parts(store, config, directory, parts, advance)
        limits = self._way.limits
        if limits is None:
            own = [(part,) for part in wanted]

            def end(index: int, grown: GrownPart | None) -> None:
                advance(len(wanted[index]))
                if grown is not None and self._keep:
                    self._kept[wanted[index].start] = grown.nodes
                    self._decreases.add(wanted[index], grown.decreases)
                    self._kept_bytes += sum(nodes.nbytes for nodes in grown.nodes)
                    if self._kept_bytes > _KEPT_BYTES:
                        self._keep, self._kept = False, {}

            self._executor.run(grow_part, own, end, (*self._task, self._keep))
            return
        for group in fitting(wanted, [len(part) for part in wanted], self._way.group):
            if self._table is None:
                family, rules = family_of(config), rules_of(store, config)
                context = GrowContext.of(store, config, rules, limits, by_values=family.by_values)
                kept = self._prepared.enter_context(TemporaryFolder(self._scratch))
                self._table = family.passed_table(store, config, context, kept, self._executor)
            with TemporaryFolder(self._scratch) as folder:
                grow_by_passes(self._table, group, directory, folder, executor=self._executor, on_trees=advance)


def missing_parts(
    store: Store, config: TrainConfig, directory: Path, parts: Sequence[range], advance: Callable[[int], None]
) -> list[range]:
    """The parts that are not in `directory` yet; `advance` is called with the trees of the others.

    Raises FormatError for a part that is damaged or of another forest.
    """
    # Levels are read only if an existing part is to be checked: that takes as long as growing some small trees.
    levels = store.levels() if any(part_path(directory, part.start).exists() for part in parts) else None
    wanted = [part for part in parts if not is_finished(directory, part, store.spec, config, levels)]
    if done := sum(map(len, parts)) - sum(map(len, wanted)):
        advance(done)
    return wanted


def part_groups(rows: int, trees: int) -> list[range]:
    """The trees of each part, in order."""
    size = part_size(rows, trees)
    return [range(first, min(first + size, trees)) for first in range(0, trees, size)]


def compile_for(extras: Extras, config: TrainConfig, passes: bool, scratch: Path | None) -> None:
    """Compile the kernels that this forest needs, grown by passes or whole, unless this process has done so."""
    kind = (passes, bool(extras.odd), extras.regression, *(getattr(config, name) for name in KERNEL_OPTIONS))
    if kind in _compiled:
        return
    if passes:
        compile_passes(extras, config, scratch)
    else:
        _compile_whole(extras, config)
    _compiled.add(kind)


def _compile_whole(extras: Extras, config: TrainConfig) -> None:
    criterion = criterion_of(config)
    needs = Needs(
        family_of(config).splits,
        mixed=bool(extras.odd),
        regression=extras.regression,
        random=config.splitter == "random",
        table=criterion.table,
    )
    nodes, more = compile_kernels(needs)
    pool = more if isinstance(more, DirectionExtras) else None
    subsets = more if isinstance(more, Subsets) else None
    values = np.arange(2.0)
    values.flags.writeable = False  # as in a store: with other flags kernels would be compiled again
    tree_arrays(nodes, Dictionaries(np.array([0, 2]), values, values), criterion, pool, subsets=subsets)


def _check_rows(store: Store, config: TrainConfig, way: GrowPlan) -> None:
    draws = max_weight(store, config)
    most = _MOST_ROWS if config.replace else _MOST_ROWS_WITHOUT_REPLACEMENT
    if draws > most:
        raise DataError(f"a bag has {draws} rows and at most {most} are possible: sample a fraction of them")
    if way.limits is None and draws > _MOST_ROWS_IN_MEMORY:
        raise DataError(
            f"a bag has {draws} rows and at most {_MOST_ROWS_IN_MEMORY} can grow in memory: set a memory budget"
        )
    if store.shape.extras.category and draws > _MOST_ROWS_IN_MEMORY:  # ordering.py find_level_means
        raise DataError(
            f"a bag has {draws} rows and at most {_MOST_ROWS_IN_MEMORY} are possible with categories: sample a "
            "fraction of them"
        )
