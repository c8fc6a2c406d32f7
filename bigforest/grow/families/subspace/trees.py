"""Trees in random subspaces (Ho 1995), prepared for the kernels: the features of a tree, and their columns.

The subspaces of a size are numbered, and the trees of this size take them in the order of a keyed permutation of the
numbers: no two trees have the same, and the subspace of a tree does not depend on the other trees.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.arrays import read_only
from bigforest.common.memory_estimate import Shape
from bigforest.grow.shared.encode_values import are_whole
from bigforest.kernels.common.layout import RowMajorCodes
from bigforest.kernels.llvm.bit_sums import WORD
from bigforest.kernels.subspace.bits import PACKED_ROWS, pack_bits
from bigforest.kernels.subspace.columns import STEPS, Subspace, SubspaceColumns, fill_subspace_values, make_subspace
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Store

# Limits of the values and the range of a column that is used: their squares must neither overflow nor vanish.
_LARGEST_VALUE = 2.0**400
_LEAST_SPAN = 2.0**-400
# Rounds of the permutation (Luby and Rackoff 1988: four are enough).
_ROUNDS = 4


class SubspaceTrees(NamedTuple):
    """Data that all trees of a forest in subspaces share.

    epochs   most passes of a perceptron; 0 without perceptrons
    columns  all features, of no rows
    shared   the columns, if they are the same for all trees; else None.
    """

    config: TrainConfig
    epochs: int
    columns: SubspaceColumns
    shared: SubspaceColumns | None

    def scratch(self, store: Store, by_row: RowMajorCodes, items: NDArray[np.uint64], tree: int) -> Subspace:
        """Scratch for growing tree number `tree` from the root `items`."""
        config, (features, classes) = self.config, (len(store.spec.features), len(store.spec.target.classes))
        space = self.shared or make_space(store, self.columns, tree_subspace(config, features, tree))
        return self.of(space, config.subspace_size(features, tree), classes, items.size)

    def of(self, space: SubspaceColumns, drawn: int, classes: int, rows: int) -> Subspace:
        """Scratch for nodes of up to this many rows, which draw `drawn` of the columns of `space`."""
        return make_subspace(space, drawn, self.config.steps, self.epochs, classes, rows)


def is_shared(config: TrainConfig, features: int) -> bool:
    """Whether all trees have the same columns, those of all features."""
    return config.subspace_per == "node" or config.subspace_sizes(features) == (features,)


def tree_subspace(config: TrainConfig, features: int, tree: int) -> NDArray[np.int64]:
    """The features of a tree, ascending, int64: all of them if nodes draw subspaces.

    Trees take the sizes in turn. Each size has its own permutation.
    """
    if config.subspace_per == "node":
        return np.arange(features)
    sizes = config.subspace_sizes(features)
    turn, place = divmod(tree, len(sizes))
    size = sizes[place]
    known = math.comb(features, size)
    key = f"{config.seed}" if len(sizes) == 1 else f"{config.seed} of {size}"
    return _combination(_permuted(turn, known, key), features, size, known)


def _permuted(number: int, count: int, key: str) -> int:
    """Place of `number` in a permutation of 0 .. count - 1 with this key.

    A Feistel network on as many bits as the largest number has, rounded up to an even number, iterated until the
    result is one of the numbers (Black and Rogaway 2002).
    """
    half = ((count - 1).bit_length() + 1) // 2
    size = half // 8 + 1
    while True:
        left, right = number >> half, number & ((1 << half) - 1)
        for turn in range(_ROUNDS):
            text = f"bigforest subspace {key} {turn} {right}"
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


def seen_as_bits(shape: Shape, config: TrainConfig, epochs: int) -> bool:
    """Whether trees use the table as bits, see kernels/subspace/bits.py; epochs: see SubspaceTrees.

    Weights of bits have 32 bits. The square of a perceptron's weights grows by at most the ones of a row, the constant
    one included, with every mistake (Novikoff 1962).
    """
    return shape.bits and not config.ranks and shape.rows * epochs * (shape.features + 1) ** 2 < 2**62


def columns_of(store: Store, config: TrainConfig, epochs: int) -> SubspaceColumns:
    """The features of a store for the kernels, of no rows; epochs: see SubspaceTrees."""
    features = len(store.spec.features)
    low, per_step, unit, scale = (np.zeros(features) for _ in range(4))
    for feature in range(features):
        least, most = store.ends(feature)
        span = most - least
        if not (max(-least, most) <= _LARGEST_VALUE and span >= _LEAST_SPAN):
            continue
        low[feature] = least
        whole = span <= STEPS and are_whole(store.low(feature))
        per_step[feature], unit[feature] = (1.0, 1.0) if whole else (STEPS / span, span / STEPS)
        scale[feature] = math.ldexp(1.0, -2 * math.frexp(math.nextafter(span, 0.0))[1])
    every = np.arange(features, dtype=np.int32)
    return _without_rows(seen_as_bits(store.shape, config, epochs), every, low, per_step, unit, scale)


def make_space(store: Store, columns: SubspaceColumns, chosen: NDArray[np.int64]) -> SubspaceColumns:
    """The columns of the features `chosen`, for all rows of the store; columns: `columns_of`."""
    space = _with_room(some_columns(columns, chosen), store.rows)
    if space.bits.shape[1]:
        slots = np.array([feature.slot for feature in store.spec.features], np.int64)[chosen]
        _pack(store.codes.u8, slots, space)
    else:
        for place in np.flatnonzero(space.unit).tolist():
            feature = int(chosen[place])
            fill_subspace_values(store.feature_codes(feature), store.low(feature), place, 0, store.rows, space.value)
    return space


def some_columns(space: SubspaceColumns, place: NDArray[np.int64]) -> SubspaceColumns:
    """Some columns of a space of no rows."""
    feature, _, _, *steps = space
    return _without_rows(space.bits.shape[1] > 0, feature[place], *(array[place] for array in steps))


def _without_rows(bits: bool, feature: NDArray[np.int32], *steps: NDArray[np.float64]) -> SubspaceColumns:
    words = -(-feature.size // WORD) if bits else 0
    return SubspaceColumns(feature, np.empty((0, words), np.uint64), np.empty((0, feature.size)), *steps)


def with_cells(space: SubspaceColumns, cells: Sequence[NDArray[Any]], rows: int) -> SubspaceColumns:
    """The same columns for rows whose values are given, an array per column."""
    space = _with_room(space, rows)
    used = np.flatnonzero(space.unit).tolist()
    if space.bits.shape[1]:
        in_order = np.empty((space.feature.size, rows), np.uint8)
        for place in used:
            in_order[place] = cells[place]
        _pack(read_only(in_order), np.arange(space.feature.size), space)
    else:
        for place in used:
            space.value[:, place] = cells[place]
    return space


def _with_room(space: SubspaceColumns, rows: int) -> SubspaceColumns:
    """The same columns for this many rows, whose values are still to be filled in."""
    if words := space.bits.shape[1]:
        return space._replace(bits=np.empty((rows, words), np.uint64))
    return space._replace(value=np.zeros((rows, space.feature.size)))


def _pack(matrix: NDArray[np.uint8], slots: NDArray[np.int64], space: SubspaceColumns) -> None:
    """Fill in the bits of the columns in these rows of a matrix [slots, rows] of zeros and ones."""
    pack_bits(matrix, np.where(space.unit > 0.0, slots, -1), space.bits, np.empty(PACKED_ROWS, np.uint64))
