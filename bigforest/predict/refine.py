"""Correct predictions by the boosted stage of a forest (forest/refinement.py).

    added = mean over the sequences of (sum of the values of their trees)
    prediction = inverse link(link(prediction of the forest) + added)

The values are added in the order of the trees, sequence by sequence, so predictions do not depend on batches and
threads. An out-of-bag prediction leaves out the sequences that used the row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.forest.nodes import TreeArrays
from bigforest.forest.refinement import SEQUENCES, Link, rounds_of
from bigforest.kernels.predict.accumulate import vote
from bigforest.kernels.predict.flat_tree import RouteInputs
from bigforest.kernels.predict.route import new_scratch
from bigforest.kernels.refine.sums import MOST_LEAVES, add_values
from bigforest.options.train_config import TrainConfig
from bigforest.predict.packed_trees import pack


class StageRows(NamedTuple):
    """Rows in tiles, [tiles, features, rows of a tile]; fields as in RouteInputs (kernels/predict/flat_tree.py)."""

    tiles: NDArray[Any]
    rows: int
    by_level: bool
    missing: bool | None

    def some(self, chosen: NDArray[np.int64]) -> StageRows:
        """Return the rows `chosen` of a single tile."""
        return self._replace(tiles=np.ascontiguousarray(self.tiles[:, :, chosen]), rows=chosen.size)


class BoostedStage:
    """The boosted stage, ready to correct predictions.

    trees   trees of the stage.
    places  positions in the dataspec of the features of a tile, ascending; they include all features of the stage.
    """

    def __init__(self, spec: DataSpec, config: TrainConfig, trees: TreeArrays, places: NDArray[np.int64]) -> None:
        self._link, self._rounds = Link(spec, config), rounds_of(trees)
        self._trees = pack([[trees]], spec, used=places)
        sets, nodes = self._trees.sets, np.diff(trees.starts).max()
        # `add_values` is for trees of few leaves whose sets of levels all have masks.
        self._small = nodes < 2 * MOST_LEAVES and (sets is None or bool(sets.mask.all()))

    def add(self, rows: StageRows, sums: NDArray[np.float64], sequences: range, rounds: range | None = None) -> None:
        """Add the values of the trees of some sequences to sums, float64 [rows, outputs], tree by tree.

        rounds  rounds of the trees, if `sequences` is a single sequence; None for all trees.
        """
        first, last = sequences.start * self._rounds, sequences.stop * self._rounds
        if rounds is not None:
            first, last = first + rounds.start, first + rounds.stop
        trees, roots = self._trees, self._trees.roots[first:last]
        if self._small and not rows.by_level:
            scratch = np.empty(rows.tiles.shape[2], np.uint32), np.empty(MOST_LEAVES, np.uint64)
            add_values(
                rows.tiles, rows.rows, *trees.layout, trees.sets, rows.missing, roots, trees.counts, sums, scratch
            )
            return
        inputs = RouteInputs(rows.tiles, rows.rows, rows.by_level, trees.layout, None, trees.sets, rows.missing)
        vote(*inputs[:3], *inputs.layout, *inputs[4:], roots, trees.counts, sums, *new_scratch(inputs))

    def correct(self, predictions: NDArray[np.float64], rows: StageRows) -> None:
        """Correct predictions of the forest, float64 [rows, classes] or [rows, 1], in place."""
        total = np.zeros((len(predictions), self._link.outputs))
        self.add(rows, total, range(SEQUENCES))
        total /= SEQUENCES
        predictions[:] = self._link.corrected(predictions, total)

    def correct_out_of_bag(self, predictions: NDArray[np.float64], rows: StageRows, in_bag: NDArray[np.bool_]) -> None:
        """Correct out-of-bag predictions of rows in a single tile. Each row is corrected by the sequences without it.

        in_bag  bool [sequences, rows], True if the sequence uses the row.
        """
        total = np.zeros((len(predictions), self._link.outputs))
        for sequence, used in enumerate(in_bag):
            left_out = np.flatnonzero(~used)
            sums = total[left_out]
            self.add(rows.some(left_out), sums, range(sequence, sequence + 1))
            total[left_out] = sums
        mean = total / (SEQUENCES - in_bag.sum(axis=0))[:, None]
        predictions[:] = self._link.corrected(predictions, mean)
