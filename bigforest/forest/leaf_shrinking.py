"""Hierarchical shrinkage: values of leaves, moved towards the values of the nodes above them, for several lambdas at
once.

The formula is in kernels/predict/leaf_values.py. A forest stores lambda only: the values follow from the nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.layout import LEAF
from bigforest.options.train_config import TrainConfig

# In rows. Losses are flat around the best, so few will do. 0 leaves the leaves as they are; 0.1 changes little but that
# no share is 0.
LAMBDAS = (0.0, 0.1, 1.0, 3.0, 10.0, 50.0)
# Of larger tables, and of more classes, nothing is tried: each leaf has as many values as lambdas times classes. Rows
# times classes, at most.
MOST_CELLS = 1 << 22
MOST_CLASSES = 64


def lambdas_to_try(config: TrainConfig, rows: int, classes: int) -> tuple[float, ...]:
    """Return the lambdas for which trees are evaluated: several to select from, a given one, or none if leaves stay as
    grown.

    rows, classes  of the table; 1 class of a number.
    """
    if not isinstance(config.shrink, str):
        return leaf_lambdas(config, float(config.shrink))
    if config.shrink == "off" and config.weighs_trees:
        return leaf_lambdas(config, 0.0)
    if config.shrink == "off" or not config.bootstrap or config.vote == "hard":
        return ()
    return LAMBDAS if classes <= MOST_CLASSES and rows * classes <= MOST_CELLS else ()


def leaf_lambdas(config: TrainConfig, amount: float) -> tuple[float, ...]:
    """Return the lambdas with which trees are loaded whose leaves are shrunk by this amount; none if leaves stay as
    grown.

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
        self._above = np.empty((0, 0, lambdas.size))
        self._share = np.empty(lambdas.size)
        self._kept = np.empty(0)

    def values(
        self,
        feature: NDArray[np.int32],
        weight: NDArray[np.uint64],
        counts: NDArray[Any],
        number: NDArray[np.float64] | None,
    ) -> NDArray[np.float64]:
        """Return the shrunk values of the leaves in the next piece: float64 [leaves, classes * lambdas], or [leaves,
        lambdas] for regression; all lambdas of the first class come first.

        feature, weight, counts  of the nodes of the piece, see forest/parts.py Nodes; number: their values.
        """
        from bigforest.kernels.predict.leaf_values import most_open, shrink_leaves

        value = counts / weight[:, None] if number is None else number[:, None]
        leaf = feature == LEAF
        self._make_room(1 + int(most_open(leaf, self._state)), value.shape[1])
        found = np.empty((int(np.count_nonzero(leaf)), value.shape[1] * self._lambdas.size))
        own = weight.astype(np.float64)
        shrink_leaves(leaf, own, value, self._lambdas, self._state, self._above, self._kept, self._share, found)
        return found

    def _make_room(self, rows: int, width: int) -> None:
        before = len(self._kept)
        if before >= rows:
            return
        above, kept = self._above, self._kept
        self._above, self._kept = np.empty((2 * rows, width, self._lambdas.size)), np.empty(2 * rows)
        self._kept[:before] = kept
        if before:
            self._above[:before] = above
