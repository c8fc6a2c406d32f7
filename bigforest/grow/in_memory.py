"""Grow whole trees in memory, find the leaves of the rows that their bags leave out, and write both part by part.

The leaves are found while the trees and the codes of the table are in memory, so nothing is read back. A tree that
splits on features is in codes; for one that splits on projections, values are looked up by codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import damaged_store
from bigforest.common.memory_estimate import keep_freed
from bigforest.common.process_cache import ProcessCache
from bigforest.forest.format.checks import Nodes
from bigforest.forest.format.decreases import TreeDecreases, grown_decreases
from bigforest.forest.format.nodes import TreeArrays, write_part
from bigforest.forest.load.flatten import grown_nodes
from bigforest.forest.votes.leaf_files import LeafWriter, LeftOut
from bigforest.grow.families.family import TreeCall
from bigforest.grow.families.registry import family_of
from bigforest.grow.out_of_core.upper_tree import root_key
from bigforest.grow.shared.criteria import criterion_of
from bigforest.grow.shared.feature_kinds import Features
from bigforest.grow.shared.row_cache import RowCache, forget_row_cache
from bigforest.grow.shared.tree_splits import LeafFinder, code_view, split_arrays, splits_of
from bigforest.grow.shared.weighted_bags import check_bag, weighed
from bigforest.kernels.common.layout import RowMajorCodes
from bigforest.kernels.predict.route_codes import CodeView
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.tree.bags import pack_rows
from bigforest.kernels.tree.builder import Roots, Rules
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.store.levels import Levels
from bigforest.store.store import Dictionaries, Store


def grow_tree(store: Store, config: TrainConfig, tree: int) -> TreeArrays:
    """Tree number `tree` of the forest of (store, config)."""
    try:
        return _grow(shared_of(store, config), range(tree, tree + 1)).trees
    finally:
        forget_shared(store, config)


class GrownPart(NamedTuple):
    """The trees of a part, and the decreases of those that have a split."""

    nodes: list[Nodes]
    decreases: list[TreeDecreases]


def grow_part(store: Store, config: TrainConfig, directory: Path, keep: bool, trees: range) -> GrownPart | None:
    """Task: grow consecutive trees whole and write them as one part, and the leaves of the out-of-bag rows.

    Gives the trees if `keep`, else None.
    """
    kept: list[TreeArrays] = []
    decreases: list[TreeDecreases] = []
    leaves = LeafWriter(store, config, directory, trees.start)

    def grown() -> Iterator[TreeArrays]:
        for found in grow_trees(store, config, trees):
            if found.left_out is not None:
                leaves.add(found.left_out, found.trees)
            if keep:
                kept.append(found.trees)
                decreases.extend(grown_decreases(found.trees, store.spec))
            yield found.trees

    write_part(directory, trees.start, grown(), store.spec, config, shared_of(store, config).levels)
    leaves.write()
    return GrownPart(list(grown_nodes(trees.start, kept)), decreases) if keep else None


class GrownTrees(NamedTuple):
    """Trees that were grown together, and the leaves of their out-of-bag rows.

    left_out  None where all rows are in all bags, and with boosting
    """

    trees: TreeArrays
    left_out: list[LeftOut] | None


def grow_trees(store: Store, config: TrainConfig, trees: range) -> Iterator[GrownTrees]:
    """Consecutive trees; trees of small bags several in a call of the kernel.

    Raises FormatError if the store changes meanwhile.
    """
    together = family_of(config).together(store.shape, config)
    for first in range(trees.start, trees.stop, together):
        store.check_unchanged()
        yield _grow(shared_of(store, config), range(first, min(first + together, trees.stop)))
    store.check_unchanged()  # or the trees would be kept


class SharedInputs(NamedTuple):
    """Data that all trees of a forest growing in memory share.

    family  data of the family, see Family.shared
    levels  of the categories
    view    the codes, for routing rows
    """

    sampler: Sampler
    by_row: RowMajorCodes
    rules: Rules
    target: ClassTarget | RegressionTarget
    family: Any
    features: Features
    levels: Levels
    view: CodeView


def _share(store: Store, config: TrainConfig, copies: RowCache) -> SharedInputs:
    keep_freed()
    classes = len(store.spec.target.classes)
    target = ClassTarget(classes, criterion_of(config).table) if classes else RegressionTarget(store.target)
    family = family_of(config).shared(store, config, copies)
    rules = rules_of(store, config)
    view = code_view(store.codes, copies.by_row)
    features, levels = Features.of(store), store.levels()
    return SharedInputs(Sampler.of(store, config), copies.by_row, rules, target, family, features, levels, view)


# Shared data of the forests that grow in this process.
_shared_inputs: ProcessCache[SharedInputs] = ProcessCache(4)


def shared_of(store: Store, config: TrainConfig) -> SharedInputs:
    """Shared data, made once in each process."""
    copies = family_of(config).row_cache(store)
    return _shared_inputs.get((store, config), lambda: _share(store, config, copies))


def forget_shared(store: Store, config: TrainConfig) -> None:
    """Free the shared data."""
    _shared_inputs.forget((store, config))
    forget_row_cache(store)


def rules_of(store: Store, config: TrainConfig) -> Rules:
    """The stopping rules and options of the trees of a forest."""
    config = config.settled(store.spec.target.task)
    weight = store.spec.weight
    mean = 1.0 if weight is None else weight.searched / store.rows
    return Rules(
        mtry=config.drawn_features(family_of(config).drawn_from(len(store.spec.features), config)),
        impurity=criterion_of(config).number,
        max_depth=-1 if config.max_depth is None else config.max_depth,
        min_split=2 + round((config.min_split - 2) * mean),
        min_leaf=1 + round((config.leaf_rule - 1) * mean),
        redraw=config.constants == "redraw",
        chance=-1 if config.feature_fraction is None else max(1, int(config.feature_fraction * 2**53)),
        min_level=1 + round((config.min_level - 1) * mean),
    )


def _bag(shared: SharedInputs, tree: int, multiplicity: NDArray[np.uint16]) -> NDArray[np.uint64]:
    """The items of a tree's bag with these multiplicities, see kernels/common/node_scan.py."""
    store = shared.sampler.store
    items = np.empty(np.count_nonzero(multiplicity), np.uint64)
    classes = store.target if shared.target.value is None else None
    weight = weighed(shared.sampler, tree, 0, multiplicity)
    if store.weight is not None:
        check_bag(int(weight.sum(dtype=np.int64)))
    pack_rows(classes, weight, items)
    if classes is not None and items.size:
        most = int(((items >> np.uint64(16)) & np.uint64(0xFFFF)).max())
        if most >= len(store.spec.target.classes):  # they are counted by class, and were checked before they changed
            raise damaged_store(f"{store.path}: a class is out of range")
    return items


def _grow(shared: SharedInputs, trees: range) -> GrownTrees:
    """These trees, one after the other; as many as go together in the family."""
    store, config = shared.sampler.store, shared.sampler.config
    times = [shared.sampler.bag(tree) for tree in trees]
    grown = family_of(config).grow(_call(shared, trees, times), shared.family)
    if not config.bootstrap or config.boosts:  # with boosting all rows are routed later
        return GrownTrees(grown, None)
    of_table, projected = (shared.view, store.dictionaries, shared.features), family_of(config).by_values
    return GrownTrees(grown, leaves_of(*of_table, grown, times, projected=projected))


def _call(shared: SharedInputs, trees: range, times: list[NDArray[np.uint16]]) -> TreeCall:
    """The trees to grow, with how often each row is in the bag of each."""
    bags = [_bag(shared, tree, own) for tree, own in zip(trees, times, strict=True)]
    start = np.cumsum([0, *(bag.size for bag in bags)], dtype=np.uint64)
    key = np.array([root_key(shared.sampler.config, tree) for tree in trees], np.uint64)
    roots = Roots(start, key)
    return TreeCall(
        shared.sampler, trees.start, shared.by_row, np.concatenate(bags), shared.target, roots, shared.rules
    )


def leaves_of(
    view: CodeView,
    dictionaries: Dictionaries,
    features: Features,
    trees: TreeArrays,
    bags: list[NDArray[np.uint16]],
    *,
    projected: bool,
) -> list[LeftOut]:
    """For each of the trees grown together, the rows that are not in its bag, and their leaves; bags: how often each
    row is in each, uint16 [rows]."""
    most, depth = max(bag.size - int(np.count_nonzero(bag)) for bag in bags), int(trees.depth.max())
    splits = splits_of(split_arrays(trees), dictionaries, features, projected=projected)
    finder = LeafFinder(features, bags[0].size, most, depth, projected=projected)
    roots = np.flatnonzero(trees.depth == 0).tolist()
    return [finder.left_out(view, splits, root, bag) for root, bag in zip(roots, bags, strict=True)]
