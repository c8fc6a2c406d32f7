"""Correct predictions by the boosted stage of a forest (forest/refinement.py).

    scores = link(prediction of the forest) + mean over the sequences of (sum of the values of their trees)
    prediction = inverse link(scores)

The trees of a sequence are added in their order, then the sequences in theirs, so predictions do not depend on batches
and threads. Out-of-bag predictions leave out the sequences that used the row.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.forest.refinement import SEQUENCES, BoostedTrees
from bigforest.options.train_config import TrainConfig

if TYPE_CHECKING:
    from bigforest.kernels.refine.apply import SmallTrees

# Smaller probabilities count as it in the link. A class that no tree votes for can so be corrected.
LEAST_SHARE = 2.0**-10
# Share of the middle of the range of the targets that counts in place of smaller numbers in the logarithm (Poisson).
LEAST_NUMBER = 2.0**-16


class Link:
    """The link of the predictions of a forest, see kernels/refine/link.py.

    loss   one of SQUARED, LOGISTIC, SOFTMAX and POISSON.
    least  probabilities, or numbers, below it count as it.
    """

    def __init__(self, spec: DataSpec, config: TrainConfig) -> None:
        from bigforest.kernels.refine import link

        target = spec.target
        if target.is_regression:
            poisson = config.criterion == "poisson"
            self.loss, self.least = (link.POISSON, LEAST_NUMBER * target.offset) if poisson else (link.SQUARED, 0.0)
        else:
            self.loss = link.LOGISTIC if len(target.classes) == 2 else link.SOFTMAX
            self.least = LEAST_SHARE
        self.outputs = len(target.classes) if self.loss == link.SOFTMAX else 1

    def scores(self, predictions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the scores, float64 [rows, outputs], of predictions, float64 [rows, classes] or [rows, 1]."""
        from bigforest.kernels.refine.link import link

        found = np.empty((len(predictions), self.outputs))
        link(self.loss, predictions, self.least, found)
        return found

    def put_predictions(self, scores: NDArray[np.float64], predictions: NDArray[np.float64]) -> None:
        """Put the predictions of scores into `predictions`, float64 [rows, classes] or [rows, 1]."""
        from bigforest.kernels.refine.link import inverse_link

        inverse_link(self.loss, scores, predictions)


class BoostedStage:
    """The boosted stage, ready to correct predictions.

    trees   of the stage.
    places  positions in the dataspec of the features of a tile, ascending; among them are all that the stage uses.
    """

    def __init__(self, link: Link, trees: BoostedTrees, places: NDArray[np.int64]) -> None:
        self._link, self._rounds = link, trees.rounds
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

    def sums(self, tiles: NDArray[Any], rows: int, sequence: int, rounds: range | None = None) -> NDArray[np.float64]:
        """Return the sums of the values of the trees of a sequence, float64 [rows, outputs].

        tiles  [tiles, features, rows of a tile], see kernels/predict/flat_tree.py
        rounds of the trees; None for all
        """
        from bigforest.kernels.refine.apply import LANES, add_trees

        rounds = range(self._rounds) if rounds is None else rounds
        found = np.zeros((rows, self._link.outputs))
        trees = self._trees if tiles.dtype == np.float64 else self._narrow
        first = sequence * self._rounds
        add_trees(tiles, rows, trees, first + rounds.start, first + rounds.stop, np.empty(LANES, np.uint32), found)
        return found

    def correct(self, predictions: NDArray[np.float64], tiles: NDArray[Any]) -> None:
        """Correct predictions of the forest, float64 [rows, classes] or [rows, 1], of rows in tiles, in place."""
        rows = len(predictions)
        total = self.sums(tiles, rows, 0)
        for sequence in range(1, SEQUENCES):
            total += self.sums(tiles, rows, sequence)
        self._link.put_predictions(self._link.scores(predictions) + total / SEQUENCES, predictions)

    def correct_out_of_bag(
        self, predictions: NDArray[np.float64], tiles: NDArray[Any], in_bag: NDArray[np.bool_]
    ) -> None:
        """Correct out-of-bag predictions by the sequences that do not use a row; in_bag: bool [sequences, rows]."""
        total = np.zeros((len(predictions), self._link.outputs))
        for sequence, used in enumerate(in_bag):
            total += np.where(used[:, None], 0.0, self.sums(tiles, len(predictions), sequence))
        mean = total / (SEQUENCES - in_bag.sum(axis=0))[:, None]
        self._link.put_predictions(self._link.scores(predictions) + mean, predictions)


def _small_trees(trees: BoostedTrees, places: NDArray[np.int64]) -> SmallTrees:
    """Pack the trees of a stage; places: see BoostedStage."""
    from bigforest.kernels.refine.apply import SmallTrees

    ends = trees.starts
    size = np.diff(ends)
    tree = np.repeat(np.arange(size.size), size)
    inner = trees.feature >= 0
    nodes = np.flatnonzero(inner)
    of = tree[nodes]
    before = np.append(0, np.cumsum(~inner))  # leaves before each node
    leaves = before[ends]
    # The left subtree of a node holds the leaves from its own first one to before those of its right child.
    first = before[nodes] - leaves[of]
    right = before[trees.roots[of] + trees.right[nodes].astype(np.int64)] - leaves[of]
    bit = np.uint64(1)
    left = (bit << right.astype(np.uint64)) - (bit << first.astype(np.uint64))
    words, listed = np.zeros(nodes.size + 1, np.int64), np.zeros(1, np.uint64)
    if trees.levels is not None:
        begin, end = trees.levels.start[nodes], trees.levels.start[nodes + 1]
        on_levels = end > begin
        most = np.zeros(nodes.size, np.int64)  # the last code that is listed is the largest
        most[on_levels] = trees.levels.code[end[on_levels] - 1]
        words = np.append(0, np.cumsum(np.where(on_levels, (most >> 6) + 1, 0)))
        listed = np.zeros(max(1, int(words[-1])), np.uint64)
        code = trees.levels.code.astype(np.int64)
        owner = np.repeat(np.cumsum(inner) - 1, np.diff(trees.levels.start))
        np.bitwise_or.at(listed, words[owner] + (code >> 6), bit << (code & 63).astype(np.uint64))
    return SmallTrees(
        nodes=np.searchsorted(nodes, ends),
        leaves=leaves,
        place=np.searchsorted(places, trees.feature[nodes]),
        limit=trees.threshold[nodes],
        default=trees.default_left[nodes],
        keep=(~left & np.uint64(0xFFFFFFFF)).astype(np.uint32),
        words=words,
        listed=listed,
        value=np.ascontiguousarray(trees.value[~inner]),
    )
