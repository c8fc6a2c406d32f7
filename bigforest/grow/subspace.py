"""Trees in random subspaces (Ho 1995), made ready for the kernels: which features a tree sees, and their columns.

The subspaces of a forest are numbered, and its trees take them in an order that is a keyed permutation of the numbers:
no two trees have the same one, and which one a tree has does not depend on the others.
"""

from __future__ import annotations

import hashlib
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.grow.need_whole import seen_as_bits
from bigforest.kernels.bits import PACKED_ROWS, WORD, pack_bits
from bigforest.kernels.layout import Rows
from bigforest.kernels.space import STEPS, Space, Subspace, fill_values, make_subspace
from bigforest.store.store import Store

# Values of a column that takes part, and the range of them: their squares must neither overflow nor vanish.
_LARGEST_VALUE = 2.0**400
_LEAST_SPAN = 2.0**-400
# Rounds of the permutation (Luby and Rackoff 1988: four are enough).
_ROUNDS = 4


class Columns(NamedTuple):
    """The features as the kernels see them: which take part, and in which steps they are counted; see kernels/space.py.

    bits  whether they are seen as bits, as all hold zeros and ones only.
    """

    bits: bool
    low: NDArray[np.float64]
    per_step: NDArray[np.float64]
    unit: NDArray[np.float64]


class SubspaceFamily(NamedTuple):
    """What all trees of a forest in subspaces share.

    shared  the columns, where all trees see the same; None where each has its own.
    """

    config: TrainConfig
    columns: Columns
    shared: Space | None

    def scratch(self, store: Store, by_row: Rows, items: NDArray[np.uint64], tree: int) -> Subspace:
        """What growing tree number `tree` from the root `items` needs."""
        config, features = self.config, len(store.spec.features)
        space = self.shared or make_space(store, self.columns, tree_subspace(config, features, tree))
        drawn = min(config.subspace_size(features), space.feature.size)
        epochs = config.max_epochs if config.family == "subspace-perceptron" else 0
        return make_subspace(space, drawn, config.steps, epochs, len(store.spec.target.classes), items.size)


def subspace_family(store: Store, config: TrainConfig) -> SubspaceFamily:
    """The family of a forest in subspaces."""
    features = len(store.spec.features)
    columns = _columns(store, config)
    same = config.subspace_per == "node" or config.subspace_size(features) == features
    return SubspaceFamily(config, columns, make_space(store, columns, np.arange(features)) if same else None)


def tree_subspace(config: TrainConfig, features: int, tree: int) -> NDArray[np.int64]:
    """The features that a tree sees, ascending, int64 [subspace_size]."""
    size = config.subspace_size(features)
    known = math.comb(features, size)
    return _combination(_permuted(tree, known, config.seed), features, size, known)


def _permuted(number: int, count: int, seed: int) -> int:
    """Place of `number` in a permutation of 0 .. count - 1 keyed by the seed.

    A Feistel network on as many bits as the largest number has, rounded up to an even number, walked until it comes
    back among the numbers (Black and Rogaway 2002).
    """
    half = ((count - 1).bit_length() + 1) // 2
    size = half // 8 + 1
    while True:
        left, right = number >> half, number & ((1 << half) - 1)
        for turn in range(_ROUNDS):
            text = f"bigforest subspace {seed} {turn} {right}"
            mask = int.from_bytes(hashlib.shake_256(text.encode()).digest(size), "little") & ((1 << half) - 1)
            left, right = right, left ^ mask
        number = left << half | right
        if number < count:
            return number


def _combination(number: int, features: int, size: int, known: int) -> NDArray[np.int64]:
    """Combination `number`, in lexicographic order, of `size` out of `features`, of which there are `known`."""
    chosen: list[int] = []
    for feature in range(features):
        if len(chosen) == size:
            break
        left = features - feature
        with_it = known * (size - len(chosen)) // left  # combinations of those left that begin with this feature
        if number < with_it:
            chosen.append(feature)
            known = with_it
        else:
            number -= with_it
            known -= with_it
    return np.array(chosen, np.int64)


def _columns(store: Store, config: TrainConfig) -> Columns:
    features = len(store.spec.features)
    low, per_step, unit = np.zeros(features), np.zeros(features), np.zeros(features)
    for feature in range(features):
        values = store.low(feature)
        with np.errstate(over="ignore", invalid="ignore"):
            span = float(values[-1] - values[0])
        if not (max(-values[0], values[-1]) <= _LARGEST_VALUE and span >= _LEAST_SPAN):
            continue
        low[feature] = values[0]
        whole = span <= STEPS and bool((np.floor(values) == values).all())
        per_step[feature], unit[feature] = (1.0, 1.0) if whole else (STEPS / span, span / STEPS)
    return Columns(seen_as_bits(store.shape, config), low, per_step, unit)


def make_space(store: Store, columns: Columns, chosen: NDArray[np.int64]) -> Space:
    """The columns of the features `chosen`, for all rows of the store."""
    unit = columns.unit[chosen]
    words = -(-chosen.size // WORD) if columns.bits else 0
    bits = np.empty((store.rows, words), np.uint64)
    value = np.zeros((0 if columns.bits else store.rows, chosen.size))
    if columns.bits:
        slots = np.array(
            [store.spec.features[f].slot if u else -1 for f, u in zip(chosen, unit, strict=True)], np.int64
        )
        pack_bits(store.codes.u8, slots, bits, np.empty(PACKED_ROWS, np.uint64))
    else:
        for place, feature in enumerate(chosen.tolist()):
            if unit[place]:
                fill_values(store.feature_codes(feature), store.low(feature), place, 0, store.rows, value)
    numbers = chosen.astype(np.int32)
    return Space(numbers, bits, value, columns.low[chosen], columns.per_step[chosen], unit)
