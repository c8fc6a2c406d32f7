"""Grow the trees of a forest from a store, a group of trees per task, each group one Parquet part."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.errors import DataError
from bigforest.events import Listener, stage
from bigforest.forest.nodes import TreeArrays, part_path, write_part
from bigforest.forest.trees import is_finished
from bigforest.grow.arrays import Ends, drawn_thresholds, tree_arrays
from bigforest.grow.bag import check_bag, weighed
from bigforest.grow.families import SparseFamily, feature_scale, sparse_family
from bigforest.grow.features import Features, grow_on_features
from bigforest.grow.need import Way, choose_way, part_size
from bigforest.grow.need_whole import drawn_from
from bigforest.grow.passed import passed_table
from bigforest.grow.passes import Table, grow_by_passes
from bigforest.grow.random_search import dictionary_of
from bigforest.grow.rehearse import compile_passes
from bigforest.grow.rotation import in_terms, rotate, tree_axes
from bigforest.grow.rows import Copies, copies_of, forget_copies
from bigforest.grow.subspace import SubspaceFamily, subspace_family
from bigforest.grow.tally import Tally
from bigforest.grow.top import make_ground, root_key
from bigforest.kernels.compile import Needs, compile_kernels
from bigforest.kernels.draw import pack_items
from bigforest.kernels.grow import grow, grow_oblique
from bigforest.kernels.impurity import NUMBERS, entropy_table
from bigforest.kernels.layout import Rows
from bigforest.kernels.oblique import Oblique
from bigforest.kernels.random_split import Dictionary
from bigforest.kernels.rows import NO_ROWS, by_rows
from bigforest.kernels.space import Subspace
from bigforest.kernels.target import Classes, Numbers
from bigforest.kernels.tree import Rules
from bigforest.kernels.wide import no_wide
from bigforest.levels import Levels
from bigforest.memory import Extras
from bigforest.output import TemporaryFolder
from bigforest.resources import Resources
from bigforest.sample import Sampler, most_weight
from bigforest.store.store import Store

# Counts of bag rows are 32 bits wide in the forest table. Kernels that grow in memory keep squared weights in int64.
# Drawing without replacement, numpy counts to a billion.
_MOST_ROWS = 2**32 - 1
_MOST_ROWS_IN_MEMORY = 2**31 - 1
_MOST_ROWS_WITHOUT_REPLACEMENT = 10**9 - 1
# What the kernels of the families whose splits are found by projection are compiled for.
_OBLIQUE: dict[str, type[Oblique | Subspace]] = {
    "sparse-oblique": Oblique,
    "subspace-cap": Subspace,
    "subspace-perceptron": Subspace,
}


def grow_forest(
    store: Store,
    config: TrainConfig,
    directory: Path,
    *,
    resources: Resources,
    listener: Listener,
    way: Way | None = None,
) -> None:
    """Write `directory`/trees/part-*.parquet: all trees of the forest, but for the parts that are there already.

    way  how to grow; None for the best within `resources`. It decides nothing else.

    The files are a function of (store, config). Raises DataError for tables too large, ConfigError for too small a
    budget of memory, and FormatError when a part that is there is damaged or of another forest.
    """
    grower = Grower(store, config, directory, resources, listener, way)
    with stage("grow", config.trees, "trees", listener) as progress, grower:
        grower.grow(part_groups(store.rows, config.trees), progress.advance)


class Grower:
    """Grows parts of the forest that `grow_forest` grows whole; compiles first. A context manager, for its memory.

    together  trees that are grown best in one call, at least.
    """

    def __init__(
        self,
        store: Store,
        config: TrainConfig,
        directory: Path,
        resources: Resources,
        listener: Listener,
        way: Way | None = None,
    ) -> None:
        self._way = way or choose_way(store.shape, config, resources)
        _check_rows(store, config, self._way)
        self._task = (store, config, directory)
        self._scratch = resources.scratch
        self._prepared = ExitStack()  # keeps what passes go over until all trees are grown
        self._table: Table | None = None
        self._crew = resources.crew(self._way.workers)
        with stage("compile", 1, "step", listener) as progress:  # seconds the first time, then read from a cache
            passes = self._way.limits is not None
            self._crew.everywhere(compile_for, store.shape.extras, config, passes, resources.scratch)
            progress.advance()
        self.together = self._crew.size if self._way.limits is None else self._way.group

    def __enter__(self) -> Grower:
        return self

    def __exit__(self, *_: object) -> None:
        with self._prepared:
            self.rest()

    def rest(self) -> None:
        """Give the memory back that is kept for further trees."""
        self._crew.everywhere(forget, *self._task[:2])

    def grow(self, parts: Sequence[range], advance: Callable[[int], None]) -> None:
        """Write these parts, but for those that are there already; `advance` is told of trees that are done."""
        store, config, directory = self._task
        # Levels are read where a part is there to be checked: that takes as long as to grow some small trees.
        levels = store.levels() if any(part_path(directory, part.start).exists() for part in parts) else None
        wanted = [part for part in parts if not is_finished(directory, part, store.spec, config, levels)]
        if done := sum(map(len, parts)) - sum(map(len, wanted)):
            advance(done)
        limits = self._way.limits
        if limits is None:
            own = [(part,) for part in wanted]
            self._crew.run(grow_part, own, lambda index, _: advance(len(wanted[index])), self._task)
            return
        for group in _groups(wanted, self._way.group):
            if self._table is None:
                values = store if config.splitter == "random" else None
                ground = make_ground(_rules(store, config), Tally.of(store), Features.of(store), limits, values)
                kept = self._prepared.enter_context(TemporaryFolder(self._scratch))
                self._table = passed_table(store, config, ground, kept, self._crew)
            with TemporaryFolder(self._scratch) as folder:
                grow_by_passes(self._table, group, directory, folder, crew=self._crew, on_trees=advance)


def part_groups(rows: int, trees: int) -> list[range]:
    """The trees of each part, in order."""
    size = part_size(rows, trees)
    return [range(first, min(first + size, trees)) for first in range(0, trees, size)]


def grow_tree(store: Store, config: TrainConfig, tree: int) -> TreeArrays:
    """Tree number `tree` of the forest of (store, config), whole and in memory."""
    try:
        return _grow(_shared_of(store, config), tree)
    finally:
        forget(store, config)


class _Shared(NamedTuple):
    """What all trees of a forest that grow in memory share.

    family  of splits that are oblique, but for rotation, None otherwise
    scale   float64 [features], of rotation (rotation.py tree_axes); None in other families
    levels  of the categories
    random  for random splits; None for the best
    """

    sampler: Sampler
    by_row: Rows
    rules: Rules
    target: Classes | Numbers
    family: SparseFamily | SubspaceFamily | None
    scale: NDArray[np.float64] | None
    features: Features
    levels: Levels
    random: Dictionary | None


def _share(store: Store, config: TrainConfig, copies: Copies) -> _Shared:
    family: SparseFamily | SubspaceFamily | None = None
    if config.family == "sparse-oblique":
        family = sparse_family(store, config, copies.wide)
    elif config.in_subspaces:
        family = subspace_family(store, config)
    scale = feature_scale(store, "zscore") if config.family == "rotation" else None
    classes = len(store.spec.target.classes)
    target = Classes(classes, entropy_table()) if classes else Numbers(store.target)
    random = dictionary_of(store) if config.splitter == "random" else None
    rules = _rules(store, config)
    features, levels = Features.of(store), store.levels()
    return _Shared(Sampler.of(store, config), copies.by_row, rules, target, family, scale, features, levels, random)


# What the trees of the forests that grow in this process share.
_kept: dict[tuple[Store, TrainConfig], _Shared] = {}
_lock = threading.Lock()


def _shared_of(store: Store, config: TrainConfig) -> _Shared:
    """What trees share, made once in each process."""
    if config.in_subspaces:  # trees have copies of their own
        copies = Copies(NO_ROWS, no_wide(0))
    else:
        copies = copies_of(store, wide=config.family == "sparse-oblique")
    with _lock:
        if (store, config) not in _kept:
            _kept[store, config] = _share(store, config, copies)
        return _kept[store, config]


def forget(store: Store, config: TrainConfig) -> None:
    """Give the memory of what trees share back."""
    with _lock:
        _kept.pop((store, config), None)
    forget_copies(store)


def compile_for(extras: Extras, config: TrainConfig, passes: bool, scratch: Path | None) -> None:
    """Compile the kernels that this forest needs, grown by passes or whole."""
    if passes:
        compile_passes(extras, config, scratch)
    else:
        random = config.splitter == "random"
        compile_kernels(
            Needs(_OBLIQUE.get(config.family), mixed=bool(extras.odd), numbers=extras.numbers, random=random)
        )


def grow_part(store: Store, config: TrainConfig, directory: Path, trees: range) -> None:
    """Task: grow consecutive trees whole and write them as one part."""
    shared = _shared_of(store, config)
    grown = ([_grow(shared, tree)] for tree in trees)
    write_part(directory, trees.start, grown, store.spec, config, shared.levels)


def _groups(parts: Sequence[range], trees: int) -> list[list[range]]:
    """Parts that follow each other, together of about `trees` trees and of one part at least."""
    groups: list[list[range]] = []
    for part in parts:
        if groups and sum(map(len, groups[-1])) + len(part) <= trees:
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def _check_rows(store: Store, config: TrainConfig, way: Way) -> None:
    draws = most_weight(store, config)
    most = _MOST_ROWS if config.replace else _MOST_ROWS_WITHOUT_REPLACEMENT
    if draws > most:
        raise DataError(f"a bag has {draws} rows and at most {most} are possible: sample a fraction of them")
    if way.limits is None and draws > _MOST_ROWS_IN_MEMORY:
        raise DataError(f"a bag has {draws} rows and at most {_MOST_ROWS_IN_MEMORY} grow in memory: set a budget of it")
    if store.shape.extras.category and draws > _MOST_ROWS_IN_MEMORY:  # see kernels/category.py find_means
        raise DataError(
            f"a bag has {draws} rows and at most {_MOST_ROWS_IN_MEMORY} are possible with categories: sample a "
            "fraction of them"
        )


def _rules(store: Store, config: TrainConfig) -> Rules:
    config = config.settled(store.spec.target.task)
    assert config.min_leaf is not None
    weight = store.spec.weight
    mean = 1.0 if weight is None else weight.total / store.rows
    return Rules(
        mtry=config.drawn_features(drawn_from(len(store.spec.features), config)),
        impurity=NUMBERS[config.criterion],
        max_depth=-1 if config.max_depth is None else config.max_depth,
        min_split=2 + round((config.min_split - 2) * mean),
        min_leaf=1 + round((config.min_leaf - 1) * mean),
        redraw=config.constants == "redraw",
        chance=-1 if config.feature_fraction is None else max(1, int(config.feature_fraction * 2**53)),
        min_level=1 + round((config.min_level - 1) * mean),
    )


def _grow(shared: _Shared, tree: int) -> TreeArrays:
    store, config = shared.sampler.store, shared.sampler.config
    multiplicity = shared.sampler.bag(tree)
    items = np.empty(np.count_nonzero(multiplicity), np.uint64)
    classes = store.target if isinstance(shared.target, Classes) else None
    weight = weighed(multiplicity, store.weight)
    if store.weight is not None:
        check_bag(int(weight.sum(dtype=np.int64)))
    pack_items(classes, weight, items)
    key = root_key(config, tree)
    arguments = (items, shared.target, key, shared.rules)
    if shared.scale is not None:
        axes = tree_axes(store, config, tree, shared.scale)
        codes, dictionaries = rotate(store, axes, np.flatnonzero(multiplicity))
        return in_terms(tree_arrays(grow(codes, by_rows(codes), *arguments), dictionaries, config.criterion), axes)
    if shared.family is not None and isinstance(shared.target, Classes):  # others are refused, see need.py
        family = shared.family.scratch(store, shared.by_row, items, tree)
        nodes, pool = grow_oblique(store.codes, shared.by_row, items, shared.target, key, shared.rules, family)
        return tree_arrays(nodes, store.dictionaries, config.criterion, pool)
    nodes, subsets = grow_on_features(store.codes, shared.by_row, *arguments, shared.features, shared.random)
    scale = (store.spec.target.offset, store.spec.target.step)
    known = None
    if shared.random is not None:
        numbers = np.arange(nodes.feature.size, dtype=np.uint64)
        known = drawn_thresholds(Ends.of(nodes, store.dictionaries), numbers, config.seed, tree)
    return tree_arrays(nodes, store.dictionaries, config.criterion, known=known, subsets=subsets, scale=scale)
