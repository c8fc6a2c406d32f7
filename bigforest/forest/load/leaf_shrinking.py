"""Hierarchical shrinkage: the values of leaves, moved towards those of the nodes above them, for some lambdas at once.

The formula is in kernels/predict/shrink.py. Nothing of it is kept in a forest but lambda: the values follow from the
nodes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigforest.forest.format.checks import Nodes
from bigforest.kernels.common.layout import LEAF
from bigforest.schema.config import TrainConfig
from bigforest.schema.dataspec import DataSpec


def weight_unit(spec: DataSpec) -> float:
    """By what weights of nodes are multiplied to count rows: weights of rows are then 1 in the mean."""
    return 1.0 if spec.weight is None else spec.rows / spec.weight.total


def leaf_lambdas(config: TrainConfig, amount: float) -> tuple[float, ...]:
    """The lambdas by which trees are loaded whose leaves are shrunk by this amount; none where leaves are as grown.

    Where the votes of trees have weights, every leaf has values of its own, also by lambda 0.
    """
    return (amount,) if amount or config.weighs_trees else ()


class LeafShrinking:
    """Shrinks the leaves of trees whose nodes come in pieces.

    lambdas  float64 [lambdas], 0 or more, in the unit of the weights of nodes.
    """

    def __init__(self, lambdas: NDArray[np.float64]) -> None:
        self._lambdas = lambdas
        self._state = np.zeros(2, np.int64)
        self._above = np.empty((0, lambdas.size, 0))
        self._kept = np.empty(0)

    def values(self, piece: Nodes) -> NDArray[np.float64]:
        """The shrunk values of the leaves in the next piece: float64 [leaves, lambdas * classes], or [leaves, lambdas]
        of numbers; those by the first lambda come first."""
        from bigforest.kernels.predict.shrink import most_open, shrink_leaves

        weight = piece.weight.astype(np.float64)
        value = piece.counts / piece.weight[:, None] if piece.value is None else piece.value[:, None]
        self._make_room(int(most_open(piece.feature, self._state)), value.shape[1])
        found = np.empty((int(np.count_nonzero(piece.feature == LEAF)), self._lambdas.size * value.shape[1]))
        shrink_leaves(piece.feature, weight, value, self._lambdas, self._state, self._above, self._kept, found)
        return found

    def _make_room(self, rows: int, width: int) -> None:
        before = len(self._kept)
        if before >= rows:
            return
        above, kept = self._above, self._kept
        self._above, self._kept = np.empty((2 * rows, self._lambdas.size, width)), np.empty(2 * rows)
        self._kept[:before] = kept
        if before:
            self._above[:before] = above
