"""Grow whole trees in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import FormatError
from bigforest.common.memory_estimate import keep_freed
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.families.rotation import in_terms, rotate, tree_axes
from bigforest.grow.families.sparse_oblique import SparseObliqueTrees, feature_scale, sparse_family
from bigforest.grow.families.subspace import SubspaceTrees, subspace_family
from bigforest.grow.out_of_core.random_search import dictionary_of
from bigforest.grow.out_of_core.upper_tree import root_key
from bigforest.grow.shared.feature_kinds import Features, grow_on_features
from bigforest.grow.shared.left_out import LeftOut, code_view, leaves_of
from bigforest.grow.shared.memory_in_memory import drawn_from, trees_together
from bigforest.grow.shared.row_cache import RowCache, forget_row_cache, row_cache_of
from bigforest.grow.shared.tree_arrays import drawn_of_trees, tree_arrays
from bigforest.grow.shared.weighted_bags import check_bag, weighed
from bigforest.kernels.columns.decoded import no_decoded_columns
from bigforest.kernels.columns.row_major import NO_ROWS, by_rows
from bigforest.kernels.common.layout import RowMajorCodes
from bigforest.kernels.predict.route_codes import CodeView
from bigforest.kernels.scan.impurity import NUMBERS, entropy_table
from bigforest.kernels.scan.random_split import CodeDictionary
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.tree.bags import pack_rows
from bigforest.kernels.tree.builder import Roots, Rules
from bigforest.kernels.tree.grow import grow, grow_oblique
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.store.levels import Levels
from bigforest.store.store import Store


def grow_tree(store: Store, config: TrainConfig, tree: int) -> TreeArrays:
    """Tree number `tree` of the forest of (store, config)."""
    try:
        return _grow(shared_of(store, config), range(tree, tree + 1)).trees
    finally:
        forget_shared(store, config)


class GrownTrees(NamedTuple):
    """Trees that were grown together, and where the rows that are not in their bags end in each.

    left_out  None of families whose nodes are not at hand in codes, and where all rows are in all bags
    """

    trees: TreeArrays
    left_out: list[LeftOut] | None


def grow_trees(store: Store, config: TrainConfig, trees: range) -> Iterator[GrownTrees]:
    """Consecutive trees; those of small bags some in a call of the kernel, and together.

    Raises FormatError when the store is written to meanwhile.
    """
    together = trees_together(store.shape, config)
    for first in range(trees.start, trees.stop, together):
        store.check_unchanged()
        yield _grow(shared_of(store, config), range(first, min(first + together, trees.stop)))
    store.check_unchanged()  # or the trees would be kept


class SharedInputs(NamedTuple):
    """What all trees of a forest that grow in memory share.

    family  of splits that are oblique, but for rotation, None otherwise
    scale   float64 [features], of rotation (grow/families/rotation.py tree_axes); None in other families
    levels  of the categories
    random  for random splits; None for the best
    view    the codes as rows are sent down by them
    """

    sampler: Sampler
    by_row: RowMajorCodes
    rules: Rules
    target: ClassTarget | RegressionTarget
    family: SparseObliqueTrees | SubspaceTrees | None
    scale: NDArray[np.float64] | None
    features: Features
    levels: Levels
    random: CodeDictionary | None
    view: CodeView


def _share(store: Store, config: TrainConfig, copies: RowCache) -> SharedInputs:
    keep_freed()
    family: SparseObliqueTrees | SubspaceTrees | None = None
    if config.family == "sparse-oblique":
        family = sparse_family(store, config, copies.wide)
    elif config.in_subspaces:
        family = subspace_family(store, config)
    scale = feature_scale(store, "zscore") if config.family == "rotation" else None
    classes = len(store.spec.target.classes)
    target = ClassTarget(classes, entropy_table()) if classes else RegressionTarget(store.target)
    random = dictionary_of(store) if config.splitter == "random" else None
    rules = rules_of(store, config)
    features, levels = Features.of(store), store.levels()
    view = code_view(store.codes, copies.by_row)
    return SharedInputs(
        Sampler.of(store, config), copies.by_row, rules, target, family, scale, features, levels, random, view
    )


# What the trees of the forests that grow in this process share.
_kept: dict[tuple[Store, TrainConfig], SharedInputs] = {}
_lock = threading.Lock()


def shared_of(store: Store, config: TrainConfig) -> SharedInputs:
    """What trees share, made once in each process."""
    if config.in_subspaces:  # trees have copies of their own
        copies = RowCache(NO_ROWS, no_decoded_columns(0))
    else:
        copies = row_cache_of(store, wide=config.family == "sparse-oblique")
    with _lock:
        if (store, config) not in _kept:
            _kept[store, config] = _share(store, config, copies)
        return _kept[store, config]


def forget_shared(store: Store, config: TrainConfig) -> None:
    """Give the memory of what trees share back."""
    with _lock:
        _kept.pop((store, config), None)
    forget_row_cache(store)


def rules_of(store: Store, config: TrainConfig) -> Rules:
    """What stops and steers the trees of a forest."""
    config = config.settled(store.spec.target.task)
    assert config.min_leaf is not None
    weight = store.spec.weight
    mean = 1.0 if weight is None else weight.searched / store.rows
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


def _bag(shared: SharedInputs, tree: int, multiplicity: NDArray[np.uint16]) -> NDArray[np.uint64]:
    """The items of a tree's bag, in which each row is so often, see kernels/common/node_scan.py."""
    store = shared.sampler.store
    items = np.empty(np.count_nonzero(multiplicity), np.uint64)
    classes = store.target if isinstance(shared.target, ClassTarget) else None
    weight = weighed(shared.sampler, tree, 0, multiplicity)
    if store.weight is not None:
        check_bag(int(weight.sum(dtype=np.int64)))
    pack_rows(classes, weight, items)
    if classes is not None and items.size:
        most = int(((items >> np.uint64(16)) & np.uint64(0xFFFF)).max())
        if most >= len(store.spec.target.classes):  # they are counted by class, and were checked before they changed
            raise FormatError(f"{store.path}: a class is out of range; encode the table again")
    return items


def _grow(shared: SharedInputs, trees: range) -> GrownTrees:
    """These trees, one after the other; of some families one alone, see trees_together."""
    store, config = shared.sampler.store, shared.sampler.config
    times = [shared.sampler.bag(tree) for tree in trees]
    bags = [_bag(shared, tree, own) for tree, own in zip(trees, times, strict=True)]
    items = np.concatenate(bags)
    start = np.cumsum([0, *(bag.size for bag in bags)], dtype=np.uint64)
    del bags
    key = np.array([root_key(config, tree) for tree in trees], np.uint64)
    arguments = (items, shared.target, Roots(start, key), shared.rules)
    if shared.scale is not None:
        axes = tree_axes(store, config, trees.start, shared.scale)
        codes, dictionaries = rotate(store, axes, (items >> np.uint64(32)).astype(np.intp))
        found = tree_arrays(grow(codes, by_rows(codes), *arguments), dictionaries, config.criterion)
        return GrownTrees(in_terms(found, axes), None)
    if shared.family is not None and isinstance(shared.target, ClassTarget):  # others are refused, see memory.py
        family = shared.family.scratch(store, shared.by_row, items, trees.start)
        nodes, pool = grow_oblique(store.codes, shared.by_row, items, shared.target, *arguments[2:], family)
        return GrownTrees(tree_arrays(nodes, store.dictionaries, config.criterion, pool), None)
    nodes, subsets = grow_on_features(store.codes, shared.by_row, *arguments, shared.features, shared.random)
    del items, arguments
    scale = (store.spec.target.offset, store.spec.target.step)
    known = None if shared.random is None else drawn_of_trees(nodes, store.dictionaries, config.seed, trees.start)
    grown = tree_arrays(nodes, store.dictionaries, config.criterion, known=known, subsets=subsets, scale=scale)
    if not config.bootstrap:
        return GrownTrees(grown, None)
    left_out = [np.flatnonzero(own == 0).astype(np.uint32) for own in times]
    return GrownTrees(grown, leaves_of(shared.view, store.dictionaries, shared.features, nodes, grown, left_out))
