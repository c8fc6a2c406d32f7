"""Votes of leaves, and their shrunk values for several lambdas at once, in bounded memory.

Hierarchical shrinkage moves the value of a leaf towards the values of the nodes above it (formula:
kernels/predict/leaf_values.py). A forest stores only lambda. The shrunk values are computed from the nodes
(`LeafShrinking`), or from the votes and weights of leaves in the files for out-of-bag rows (`Ballots`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.forest.nodes import TreeArrays
from bigforest.kernels.common.layout import LEAF, NO_BALLOT
from bigforest.options.train_config import TrainConfig


class Ballots(NamedTuple):
    """Votes and weights of the leaves of some trees. They determine the values of all nodes.

    first   int64 [trees + 1], tree t has the nodes first[t]:first[t + 1]
    ballot  uint32 [nodes], see kernels/predict/flat_tree.py; NO_BALLOT in inner nodes
    weight  uint32 [leaves], or uint64 for wide weights: weight of the bag rows in each leaf
    mixed   type of weight [impure leaves, classes], counts of leaves with several classes; for regression float64
            [nodes, 1], the values of all nodes
    """

    first: NDArray[np.int64]
    ballot: NDArray[np.uint32]
    weight: NDArray[Any]
    mixed: NDArray[Any]


def loaded_bytes(nodes: NDArray[np.int64], mixed: NDArray[np.int64], classes: int, lambdas: int) -> NDArray[np.int64]:
    """Return an upper bound of the bytes of ballots while they are read and converted.

    nodes    int64 [entries], number of nodes of a tree or of several trees.
    mixed    int64 [entries], number of rows of Ballots.mixed.
    classes  number of classes; 1 for regression.
    lambdas  number of lambdas by which leaves are shrunk; 0 to leave them as grown.
    """
    leaves = nodes // 2 + 1
    loaded: NDArray[np.int64] = 4 * nodes + 8 * leaves + 16 * classes * mixed
    if classes == 1:  # the unshrunk numbers, minus the offset of the target
        loaded = loaded + 8 * mixed
    if not lambdas:
        return loaded
    times = 1 if lambdas > 1 else 2  # for a single lambda, hard votes and weights of trees need a copy
    return loaded + 12 * nodes + 8 * classes * nodes + 8 * times * classes * lambdas * leaves


def file_bytes(nodes: NDArray[np.int64], mixed: NDArray[np.int64], classes: int, wide: bool) -> NDArray[np.int64]:
    """Return an upper bound of the bytes of a file of ballots; wide: weights or entries of `mixed` have 64 bits."""
    size = 8 if wide else 4
    return 4 * nodes + size * (nodes // 2 + 1) + size * classes * mixed


def ballots_of(trees: TreeArrays, wide: bool) -> Ballots:
    """Return the ballots of trees, or of a piece of trees; wide: weights have 64 bits."""
    feature, counts, value = trees.feature, trees.counts, trees.value
    ballot = np.full(feature.size, NO_BALLOT, np.uint32)
    leaf, classes = np.flatnonzero(feature == LEAF), counts.shape[1]
    mixed = counts[:0]
    if classes:
        several = impure_leaves(feature, counts)
        ballot[leaf] = counts[leaf].argmax(axis=1)
        ballot[several] = classes + np.arange(np.count_nonzero(several))
        mixed = counts[several]
    else:
        ballot[leaf] = 1 + leaf
    leaf_weight = trees.weight[leaf].astype(np.uint64 if wide else np.uint32)
    return Ballots(trees.starts, ballot, leaf_weight, mixed if value is None else value[:, None])


def impure_leaves(feature: NDArray[np.int32], counts: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the leaves with several classes, or for regression (counts [nodes, 0]) of all leaves."""
    leaf: NDArray[np.bool_] = feature == LEAF
    return leaf & (np.count_nonzero(counts, axis=1) > 1) if counts.shape[1] else leaf


def join_ballots(parts: Sequence[Ballots], classes: int) -> Ballots:
    """Join ballots of consecutive trees, or of pieces of trees; classes: number of classes, 1 for regression."""
    if len(parts) == 1:
        return parts[0]
    mixed = np.cumsum([0, *(len(part.mixed) for part in parts)])
    nodes = np.cumsum([0, *(part.ballot.size for part in parts)])
    ballots = [shifted(part.ballot, classes, before) for part, before in zip(parts, mixed[:-1].tolist(), strict=True)]
    first = [part.first[:-1] + before for part, before in zip(parts, nodes[:-1].tolist(), strict=True)]
    return Ballots(
        np.concatenate([*first, nodes[-1:]]),
        np.concatenate(ballots),
        np.concatenate([part.weight for part in parts]),
        np.concatenate([part.mixed for part in parts]),
    )


def shifted(ballot: NDArray[np.uint32], classes: int, mixed: int) -> NDArray[np.uint32]:
    """Return the ballots after `mixed` other rows have been put before the rows of Ballots.mixed."""
    return np.where((ballot >= classes) & (ballot != NO_BALLOT), ballot + np.uint32(mixed), ballot)


class ShrunkLeaves(NamedTuple):
    """Leaves of some trees, each with its shrunk values.

    ballot  uint32 [nodes], number of classes (1 for regression) + number of the leaf; NO_BALLOT in inner nodes
    value   float64 [leaves, classes * lambdas], or [leaves, lambdas] for regression; all lambdas of the
            first class come first
    begins  int64 [trees + 1], tree t has the leaves begins[t]:begins[t + 1]
    """

    ballot: NDArray[np.uint32]
    value: NDArray[np.float64]
    begins: NDArray[np.int64]


def shrunk_leaves(
    ballots: Ballots, lambdas: NDArray[np.float64], make: Callable[..., NDArray[Any]] = np.empty
) -> ShrunkLeaves | None:
    """Return leaves shrunk by each lambda; None if the ballots do not form binary trees.

    lambdas  float64, in the unit of the weights
    make     function that makes the arrays with entries for all nodes or leaves, from a shape and a type

    The values of inner nodes are computed from the leaves. `LeafShrinking`, which reads the nodes, returns the
    same bits.
    """
    from bigforest.kernels.predict.leaf_values import shrink_leaves, value_nodes

    first, ballot, weight, mixed = ballots
    numbers, width = mixed.dtype == np.float64, mixed.shape[1]
    leaves = np.append(0, np.cumsum(np.diff(first) // 2 + 1))  # of binary trees
    if leaves[-1] != weight.size or (numbers and len(mixed) != ballot.size):
        return None
    counts, share = None if numbers else read_only(mixed), np.empty(lambdas.size)
    shrunk = make((int(leaves[-1]), width * lambdas.size), np.float64)
    number = make(ballot.size, np.uint32)
    for begin, end, leaf_begin, leaf_end in zip(first, first[1:], leaves, leaves[1:], strict=False):
        weights, size = weight[leaf_begin:leaf_end], int(end - begin)
        leaf_count, width_held = weights.size, 1 if numbers else 1 + width
        waiting, held = np.empty(leaf_count, np.int64), np.empty((leaf_count, width_held), np.uint64)
        value, total, before = make((size, width), np.float64), make(size, np.float64), np.uint64(width + leaf_begin)
        if numbers:
            value[:] = mixed[begin:end]
        numbered = number[begin:end]
        read = read_only(ballot[begin:end]), read_only(weights), counts
        room = value_nodes(*read, before, waiting, held, value, total, numbered)
        if not room:
            return None
        above, kept, state = np.empty((room, width, lambdas.size)), np.empty(room), np.zeros(2, np.int64)
        out = shrunk[leaf_begin:leaf_end]
        shrink_leaves(numbered != NO_BALLOT, total, read_only(value), lambdas, state, above, kept, share, out)
    return ShrunkLeaves(read_only(number), shrunk, leaves)


# Lambdas to try, in rows. Losses are flat around the best lambda, so few suffice. 0 does not shrink. 0.1 changes
# little, but then no class of the bag has a share of 0.
LAMBDAS = (0.0, 0.1, 1.0, 3.0, 10.0, 50.0)
# Lambda is not chosen for tables of more rows times classes, or of more classes, because each leaf has lambdas times
# classes values.
MOST_CELLS = 1 << 22
MOST_CLASSES = 64


def lambdas_to_try(config: TrainConfig, rows: int, classes: int) -> tuple[float, ...]:
    """Return the lambdas with which trees are evaluated: several to choose from, a given one, or none for leaves as
    grown.

    classes  number of classes; 1 for regression
    """
    if not isinstance(config.shrink, str):
        return leaf_lambdas(config, float(config.shrink))
    if config.shrink == "off" and config.weighs_trees:
        return leaf_lambdas(config, 0.0)
    if config.shrink == "off" or not config.bootstrap or config.vote == "hard":
        return ()
    return LAMBDAS if classes <= MOST_CLASSES and rows * classes <= MOST_CELLS else ()


def leaf_lambdas(config: TrainConfig, amount: float) -> tuple[float, ...]:
    """Return the lambdas with which trees are loaded: `amount`, or none for leaves as grown.

    If the votes of trees have weights, every leaf needs values of its own, even with lambda 0.
    """
    return (amount,) if amount or config.weighs_trees else ()


class LeafShrinking:
    """Shrinking of the leaves of trees whose nodes are read in pieces.

    lambdas  float64 [lambdas], 0 or more, in the unit of the weights of nodes.
    classes  number of classes; 1 for regression.
    """

    def __init__(self, lambdas: NDArray[np.float64], classes: int) -> None:
        self._lambdas = lambdas
        self._state, self._share = np.zeros(2, np.int64), np.empty(lambdas.size)
        self._above, self._kept = np.empty((0, classes, lambdas.size)), np.empty(0)

    def values(self, nodes: TreeArrays) -> NDArray[np.float64]:
        """Return the shrunk values of the leaves in the next piece: float64 [leaves, classes * lambdas], or [leaves,
        lambdas] for regression; all lambdas of the first class come first."""
        from bigforest.kernels.predict.leaf_values import shrink_leaves

        # At most as many nodes as a node has ancestors wait for their right child while its values are computed.
        lacking = int(nodes.depth.max()) + 2 - len(self._kept)
        if lacking > 0:
            more = max(lacking, len(self._kept))
            self._kept = np.append(self._kept, np.empty(more))
            self._above = np.concatenate([self._above, np.empty((more, *self._above.shape[1:]))])
        value = read_only(nodes.counts / nodes.weight[:, None] if nodes.value is None else nodes.value[:, None])
        leaf, weight = nodes.feature == LEAF, nodes.weight.astype(np.float64)
        shrunk = np.empty((int(np.count_nonzero(leaf)), value.shape[1] * self._lambdas.size))
        shrink_leaves(leaf, weight, value, self._lambdas, self._state, self._above, self._kept, self._share, shrunk)
        return shrunk
