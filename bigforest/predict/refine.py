"""Correct predictions by the boosted stage of a forest (forest/refinement.py).

    scores = link(prediction of the forest) + mean over the sequences of (sum of the values of their trees)
    prediction = inverse link(scores)

The trees are added in their order, sequence by sequence, so predictions do not depend on batches and threads.
Out-of-bag predictions leave out the sequences that used the row.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.forest.nodes import TreeArrays
from bigforest.forest.refinement import SEQUENCES, Link, rounds_of

if TYPE_CHECKING:
    from bigforest.kernels.refine.apply import SmallTrees


class BoostedStage:
    """The boosted stage, ready to correct predictions.

    trees   of the stage.
    places  positions in the dataspec of the features of a tile, ascending; among them are all that the stage uses.
    """

    def __init__(self, link: Link, trees: TreeArrays, places: NDArray[np.int64]) -> None:
        self._link, self._rounds = link, rounds_of(trees)
        self._trees = _small_trees(trees, places)

    @cached_property
    def _narrow(self) -> SmallTrees:
        """The trees for tiles whose values are all float32: a limit is the largest of these up to the threshold."""
        limit = self._trees.limit
        with np.errstate(over="ignore"):
            narrow = limit.astype(np.float32)
        too_large = narrow > limit
        narrow[too_large] = np.nextafter(narrow[too_large], np.float32(-np.inf))
        return self._trees._replace(limit=narrow)

    def add(
        self, tiles: NDArray[Any], sums: NDArray[np.float64], sequences: range, rounds: range | None = None
    ) -> None:
        """Add the values of the trees of some sequences to sums, float64 [rows, outputs], tree by tree.

        tiles  [tiles, features, rows of a tile], see kernels/predict/flat_tree.py
        rounds of the trees of a single sequence; None for all
        """
        from bigforest.kernels.refine.apply import LANES, add_trees

        first, last = sequences.start * self._rounds, sequences.stop * self._rounds
        if rounds is not None:
            first, last = first + rounds.start, first + rounds.stop
        trees = self._trees if tiles.dtype == np.float64 else self._narrow
        groups = np.empty((trees.column.size, LANES), np.int32)
        add_trees(tiles, len(sums), trees, first, last, np.empty(LANES, np.uint32), groups, sums)

    def correct(self, predictions: NDArray[np.float64], tiles: NDArray[Any]) -> None:
        """Correct predictions of the forest, float64 [rows, classes] or [rows, 1], of rows in tiles, in place."""
        total = np.zeros((len(predictions), self._link.outputs))
        self.add(tiles, total, range(SEQUENCES))
        self._link.put_predictions(self._link.scores(predictions) + total / SEQUENCES, predictions)

    def correct_out_of_bag(
        self, predictions: NDArray[np.float64], tiles: NDArray[Any], in_bag: NDArray[np.bool_]
    ) -> None:
        """Correct out-of-bag predictions by the sequences that do not use a row; in_bag: bool [sequences, rows].

        tiles  as in `add`, a single one
        """
        total = np.zeros((len(predictions), self._link.outputs))
        for sequence, used in enumerate(in_bag):
            here = np.flatnonzero(~used)
            own = total[here]
            self.add(np.ascontiguousarray(tiles[:, :, here]), own, range(sequence, sequence + 1))
            total[here] = own
        mean = total / (SEQUENCES - in_bag.sum(axis=0))[:, None]
        self._link.put_predictions(self._link.scores(predictions) + mean, predictions)


def _small_trees(trees: TreeArrays, places: NDArray[np.int64]) -> SmallTrees:
    """Pack the trees of a stage; places: see BoostedStage."""
    from bigforest.kernels.refine.apply import SmallTrees

    assert trees.value is not None
    roots, ends = trees.roots, trees.starts
    size = np.diff(ends)
    tree = np.repeat(np.arange(size.size), size)
    inner = trees.feature >= 0
    nodes = np.flatnonzero(inner)
    of = tree[nodes]
    before = np.append(0, np.cumsum(~inner))  # leaves before each node
    leaves = before[ends]
    # The left subtree of a node holds the leaves from its own first one to before those of its right child.
    first = before[nodes] - leaves[of]
    right = before[roots[of] + trees.right[nodes].astype(np.int64)] - leaves[of]
    bit = np.uint64(1)
    left = (bit << right.astype(np.uint64)) - (bit << first.astype(np.uint64))
    keep = (~left & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    on_levels = np.zeros(nodes.size, np.bool_) if trees.levels is None else np.diff(trees.levels.start)[nodes] > 0
    lookups = _lookups(trees, nodes[on_levels], of[on_levels], keep[on_levels])
    tree_lookups = np.searchsorted(lookups.tree, np.arange(size.size + 1))
    numbers, of, keep = nodes[~on_levels], of[~on_levels], keep[~on_levels]
    return SmallTrees(
        nodes=np.searchsorted(of, np.arange(size.size + 1)),
        leaves=leaves,
        lookups=tree_lookups,
        place=np.searchsorted(places, trees.feature[numbers]),
        limit=trees.threshold[numbers],
        default=trees.default_left[numbers],
        keep=keep,
        category=lookups.category,
        first=lookups.first,
        mask=lookups.mask,
        column=np.searchsorted(places, lookups.features),
        codes=lookups.codes,
        group=lookups.group,
        value=np.ascontiguousarray(trees.value[~inner]),
    )


class _Lookups(NamedTuple):
    """The categories that trees split on, see SmallTrees: tree of each lookup, and feature of each category."""

    tree: NDArray[np.int64]
    category: NDArray[np.int64]
    first: NDArray[np.int64]
    mask: NDArray[np.uint32]
    features: NDArray[np.int64]
    codes: NDArray[np.int64]
    group: NDArray[np.int32]


def _lookups(
    trees: TreeArrays, nodes: NDArray[np.int64], tree: NDArray[np.int64], keep: NDArray[np.uint32]
) -> _Lookups:
    """Return the lookups of the nodes on levels: their positions, trees, and the bits that the right side keeps."""
    none = np.zeros(0, np.int64)
    if trees.levels is None or not nodes.size:
        return _Lookups(none, none, none, none.astype(np.uint32), none, np.zeros(1, np.int64), none.astype(np.int32))
    features, category = np.unique(trees.feature[nodes].astype(np.int64), return_inverse=True)
    # A code that some node lists is in a group of its own, the others of its category are in group 0.
    begin, count = trees.levels.start[nodes], np.diff(trees.levels.start)[nodes]
    owner = np.repeat(np.arange(nodes.size), count)
    code = trees.levels.code[np.repeat(begin - np.cumsum(count) + count, count) + np.arange(owner.size)].astype(
        np.int64
    )
    keys, key = np.unique(category[owner] << 32 | code, return_inverse=True)
    starts = np.searchsorted(keys >> 32, np.arange(features.size + 1))
    groups = np.diff(starts) + 1
    codes = np.append(0, np.cumsum((keys[starts[1:] - 1] & 0xFFFFFFFF) + 1))
    group = np.zeros(int(codes[-1]), np.int32)
    group[codes[keys >> 32] + (keys & 0xFFFFFFFF)] = np.arange(keys.size) - starts[keys >> 32] + 1
    pairs, lookup = np.unique(tree * features.size + category, return_inverse=True)
    ends = np.cumsum(groups[pairs % features.size])
    first = ends - groups[pairs % features.size]
    # All groups at all nodes, with the bits that they keep there.
    width = groups[category]
    before = np.cumsum(width) - width
    left = np.repeat(trees.default_left[nodes], width)
    left[before[owner] + key - starts[category[owner]] + 1] ^= True
    kept = np.where(left, np.uint32(0xFFFFFFFF), np.repeat(keep, width))
    mask = np.full(int(ends[-1]), 0xFFFFFFFF, np.uint32)
    np.bitwise_and.at(mask, np.repeat(first[lookup] - before, width) + np.arange(left.size), kept)
    return _Lookups(pairs // features.size, pairs % features.size, first, mask, features, codes, group)
