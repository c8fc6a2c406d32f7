"""The boosted stage in explanations: rows are routed through its trees as through trees of the forest.

Predictions are the same as in predict/refine.py. The value of a leaf of the stage is the number that it adds to scores.
The trees of the stage form sequences, each grown on a sample of the rows (forest/refinement.py). The value of an inner
node is the mean of its leaves, weighted by their numbers of rows in this sample. In trees of the forest, the weights
are bag rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.forest.nodes import TreeArrays
from bigforest.forest.refinement import Link
from bigforest.kernels.refine.link import SQUARED
from bigforest.predict.forest import Forest
from bigforest.predict.vote_rule import as_probabilities

# Bytes of a node of the stage while its trees are loaded, and of each of its values.
_NODE_BYTES, _VALUE_BYTES = 200, 24

# The slope between values that differ by less than the share _NEAR of their size is computed as a derivative. The error
# of this derivative is about the square of its relative step, _STEP.
_NEAR, _STEP = 1e-8, 1e-6


class Contributions(NamedTuple):
    """Contributions of features to predictions of rows, by class, or by output of a boosted stage.

    base        float64 [rows, classes], prediction without features
    prediction  float64 [rows, classes], base plus all contributions
    by_feature  float64 [rows, columns, classes], contributions; of pairs of columns, [rows, columns, columns, classes]
    """

    base: NDArray[np.float64]
    prediction: NDArray[np.float64]
    by_feature: NDArray[np.float64]


def determining_classes(width: int) -> tuple[int, ...]:
    """Return the codes of the classes whose shares of votes determine a prediction.

    The second of two classes, otherwise all; (0,) for regression.

    width  number of classes; 1 for regression
    """
    return (1,) if width == 2 else tuple(range(width))


def probabilities(values: NDArray[np.float64], power: float) -> NDArray[np.float64]:
    """Return the probabilities of all classes, float64 [rows, classes], from mean shares of `determining_classes`."""
    shares = np.hstack([1.0 - values, values]) if values.shape[1] == 1 else values
    return as_probabilities(np.maximum(shares, 0.0), power)


class WalkedStage(NamedTuple):
    """The boosted stage of a forest; can be sent to other processes.

    trees  trees of the stage.
    link   scale on which these trees add.
    power  exponent of shares of votes in predictions of the forest.
    spec   dataspec of the training table.
    """

    trees: TreeArrays
    link: Link
    power: float
    spec: DataSpec

    @property
    def classes(self) -> tuple[int, ...]:
        """Codes of the classes whose shares of votes determine a prediction, see `determining_classes`."""
        return determining_classes(self.spec.target.answer_width)

    @property
    def nbytes(self) -> int:
        """Bytes of the stage while its trees are loaded."""
        return self.trees.feature.size * (_NODE_BYTES + _VALUE_BYTES * self.link.outputs)

    def plain(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the predictions without the stage, float64 [rows, all classes] or [rows, 1].

        values  float64 [rows, `classes`], mean answers of the trees
        """
        if self.spec.target.is_regression:
            return values.copy()
        return probabilities(values, self.power)

    def predictions(self, values: NDArray[np.float64], added: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the predictions with the stage, as `plain`; added: float64 [rows, outputs], sums of the stage."""
        return self.link.corrected(self.plain(values), added.copy())

    def on_scores(self, forest_means: Contributions, added: Contributions, chosen: Sequence[int]) -> Contributions:
        """Return the contributions to the scores of predictions with the stage, for these classes.

        forest_means  means over the trees of the forest, of `classes`
        added         sums over the trees of the stage, of all outputs

        The link is not additive in trees, so contributions to predictions of the forest are carried through it by the
        rescale rule (Chen, Lundberg and Lee 2022): the contributions to a class are multiplied by the slope of the link
        between the base and the prediction. The result adds up again. With squared error the slope is 1: no change.
        """
        floor = self._floor(forest_means.prediction)
        base, score = self._scores(forest_means.base, floor), self._scores(forest_means.prediction, floor)
        slope = self._slope(forest_means.base, forest_means.prediction, base, score, floor)
        slope = slope.reshape(len(slope), *(1 for _ in forest_means.by_feature.shape[2:]), slope.shape[1])
        by_feature = forest_means.by_feature * slope + added.by_feature
        result = Contributions(base + added.base, score + added.prediction, by_feature)
        if self.spec.target.answer_width == 2:  # the log odds of the first class have the opposite sign
            signs = np.array([1.0 if code == 1 else -1.0 for code in chosen])
            return Contributions._make(values * signs for values in result)
        return Contributions._make(values[..., list(chosen)] for values in result)

    def _floor(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of votes up to which a class has the lowest score, for each row, float64 [rows, 1]."""
        if self.power == 1.0:
            return np.full((len(values), 1), self.link.least)
        total = (values**self.power).sum(axis=1, keepdims=True)
        return np.asarray((self.link.least * total) ** (1.0 / self.power))

    def _scores(self, values: NDArray[np.float64], floor: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scores without the stage. Each depends on the share of its class alone.

        With three or more classes, the logarithm of the sum of all powers, equal for all classes of a row, is left out.
        """
        if self.link.outputs == 1:
            start = self.link.start(self.plain(values))
            return start if self.link.loss == SQUARED else np.log(start)
        return self.power * np.log(np.maximum(values, floor))

    def _slope(
        self,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        low_score: NDArray[np.float64],
        high_score: NDArray[np.float64],
        floor: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the slope of the scores between `low` and `high`, or the derivative if these hardly differ."""
        if self.link.loss == SQUARED:
            return np.ones(high.shape)
        gap, unit = high - low, np.maximum(np.abs(low), self.link.least)
        step = _STEP * unit
        near = np.abs(gap) < _NEAR * unit
        derivative = (self._scores(low + step, floor) - self._scores(low - step, floor)) / (2.0 * step)
        return np.where(near, derivative, (high_score - low_score) / np.where(near, 1.0, gap))


def scale_of(forest: Forest) -> str:
    """Return the name of the scale on which contributions to the predictions of a forest add up."""
    if forest.files.is_refined:
        if forest.is_regression:
            return "logarithm of the prediction" if forest.config.criterion == "poisson" else "prediction"
        return "log odds" if len(forest.classes) == 2 else "log probability before scaling"
    if forest.is_regression:
        return "prediction"
    return "probability" if forest.power.amount == 1.0 else "share of votes"
