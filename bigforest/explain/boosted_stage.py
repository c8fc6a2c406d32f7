"""The boosted stage in explanations: its trees, routed like those of the forest, and predictions with it.

Predictions are those of predict/refine.py. A leaf of the stage has the number that it adds to scores. The value of an
inner node is the mean of its leaves over the rows of the sequence, as in trees of the forest over the bag.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.forest.refinement import BoostedTrees
from bigforest.predict.forest import Forest
from bigforest.predict.refine import Link
from bigforest.predict.vote_rule import as_probabilities

# Bytes of a node of the stage while its trees are loaded, and of each of its values.
_NODE_BYTES, _VALUE_BYTES = 200, 24


class WalkedStage(NamedTuple):
    """The boosted stage of a forest; can be sent to other processes.

    trees  its trees.
    link   on whose scale they add.
    power  to which the forest raises shares of votes.
    spec   of the table.
    """

    trees: BoostedTrees
    link: Link
    power: float
    spec: DataSpec

    @property
    def classes(self) -> tuple[int, ...]:
        """Codes of the classes whose shares of votes decide a prediction: of two classes the second; (0,) for
        regression."""
        size = self.spec.target.answer_width
        return (1,) if size == 2 else tuple(range(size))

    @property
    def nbytes(self) -> int:
        """Bytes of the loaded trees."""
        return self.trees.feature.size * (_NODE_BYTES + _VALUE_BYTES * self.link.outputs)

    def plain(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the predictions without the stage, float64 [rows, all classes] or [rows, 1] of numbers.

        values  float64 [rows, `classes`], means over the trees of their answers
        """
        if self.spec.target.is_regression:
            return values.copy()
        shares = np.hstack([1.0 - values, values]) if values.shape[1] == 1 else values
        return as_probabilities(np.maximum(shares, 0.0), self.power)

    def predictions(self, values: NDArray[np.float64], added: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the predictions with the stage, float64 [rows, all classes] or [rows, 1] of numbers.

        values  as for `plain`; added: float64 [rows, outputs], what the stage adds to the scores
        """
        found = self.plain(values)
        self.link.put_predictions(self.link.scores(found) + added, found)
        return found


def walked_stage(forest: Forest) -> WalkedStage | None:
    """Return the boosted stage of a forest; None without one. Raises FormatError."""
    if not forest.files.is_refined:
        return None
    trees = forest.files.read_refinement()
    return WalkedStage(trees, Link(forest.spec, forest.config), forest.power.amount, forest.spec)
