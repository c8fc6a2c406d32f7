"""Boosting: the weights of rows by which a bag is drawn, from the errors of earlier trees, and the weights of votes.

arc-x4 (Breiman 1998): a row that m of the trees so far are wrong on has weight 1 + m**4. All votes have the same
weight.

adaboost (Freund and Schapire 1997, by resampling): the error e of a tree is the share of the weight that it is wrong
on. The rows it is wrong on are weighted up until they have half of the weight, and the vote of the tree has the weight
log((1 - e) / e). In this formula e is clipped to the range from d to 1/2 - d, d = 0.5 / (rows + 1), so every vote is
finite and above 0. After a tree without errors, or with e >= 1/2, all weights are equal again (Breiman 1998).

A tree is wrong on a row if the most frequent class of the leaf, the lowest among ties, is not the class of the row.
Weights are whole numbers, and their sums exact: neither threads nor the batches of rows can change a bag.
Oracle: tests/naive/boosting.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import ConfigError, api
from bigforest.options.train_config import TrainConfig

# Approximate sum of all weights of adaboost: float64 holds sums of weights exactly.
_TOTAL = 1 << 52
_MAX_SUM = 1 << 63
# Bytes per row: weight, number of wrong trees, sum of weights, a product, multiplicity in the bag, whether a tree is
# wrong, leaf.
ROW_BYTES = 40


class TreeVote(NamedTuple):
    """A tree grown with boosting: the share of the weight that it is wrong on, and the weight of its vote."""

    error: float
    vote: float


class RowWeights:
    """The weights of the rows while trees grow one after the other.

    weights  int64 [rows], for the bag of the next tree
    """

    def __init__(self, rows: int, config: TrainConfig) -> None:
        """Raise ConfigError if sums of weights might not be exact, see `check_rows`."""
        check_rows(rows, config)
        self._counts = np.zeros(rows, np.int64) if config.sampling == "arc-x4" else None  # trees wrong on each row
        self._equal = 1 if config.sampling == "arc-x4" else _TOTAL // rows
        self.weights = np.full(rows, self._equal, np.int64)

    def add(self, wrong: NDArray[np.bool_]) -> TreeVote:
        """Evaluate the tree whose bag was drawn by the weights, and set the weights for the next tree.

        wrong  bool [rows], rows that the tree is wrong on
        """
        total, lost = int(self.weights.sum()), int(self.weights[wrong].sum())
        error = lost / total
        if self._counts is not None:
            self._counts += wrong
            self.weights = 1 + self._counts**4
            return TreeVote(error, 1.0)
        if lost == 0 or 2 * lost >= total:
            self.weights = np.full(wrong.size, self._equal, np.int64)
        else:
            half = float(_TOTAL // 2)
            factor = np.where(wrong, half / lost, half / (total - lost))
            self.weights = np.maximum(np.rint(self.weights * factor), 1.0).astype(np.int64)
        margin = 0.5 / (wrong.size + 1)
        clipped = min(max(error, margin), 0.5 - margin)
        return TreeVote(error, math.log((1.0 - clipped) / clipped))


def check_rows(rows: int, config: TrainConfig) -> None:
    """Raise ConfigError if the sum of the weights of this many rows might not be exact after all trees."""
    if config.sampling == "arc-x4" and rows * (1 + config.trees**4) >= _MAX_SUM:
        most = math.isqrt(math.isqrt((_MAX_SUM - 1) // rows - 1))
        raise ConfigError(
            f"the weights of arc-x4 on {rows} rows are exact for at most {most} trees, and {api('trees')} is "
            f"{config.trees}; ask for fewer trees"
        )
