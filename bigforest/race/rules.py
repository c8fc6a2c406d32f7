"""The rules of a comparison: which candidates are retired, which one wins, and the cross-fitted loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.oob.choice import in_second_half
from bigforest.race.losses import MeasuredLoss, Rows, RowScores, measure_loss, standard_error

# Trees that are grown before the candidates are compared again.
STEP = 25
# A candidate that is behind by more than this number of standard errors retires, once it has this number of trees: with
# fewer, families that need many trees would lose to those that start well.
RETIRES = 3.0
FIRST_TREES = 50
# Losses within this many standard errors are equal: then the first in the list wins.
NEAR = 1.0


class Standing(NamedTuple):
    """The standing of a candidate: its loss, the difference to the least loss, and the standard error of this."""

    loss: float
    difference: float
    error: float

    @property
    def behind(self) -> float:
        """The difference in standard errors."""
        if self.error > 0:
            return self.difference / self.error
        return math.inf if self.difference > 0 else 0.0


def rounds(trees: int) -> list[int]:
    """The numbers of trees after which candidates are compared: every STEP, and from 100 on after a quarter more."""
    sizes, at = [], 0
    while at < trees:
        at = min(trees, at + max(STEP, at // 4 // STEP * STEP))
        sizes.append(at)
    return sizes


def standings(losses: Mapping[str, MeasuredLoss], rows: Rows) -> dict[str, Standing]:
    """The standing of each candidate. An unknown loss (NaN) is the largest."""
    known = {name: math.inf if math.isnan(each.loss) else each.loss for name, each in losses.items()}
    best = min(known, key=known.__getitem__)
    results = {}
    for name, each in losses.items():
        error = standard_error(each.influence - losses[best].influence, rows)
        results[name] = Standing(each.loss, known[name] - known[best] if known[name] < math.inf else math.inf, error)
    return {name: Standing(s.loss, 0.0, 0.0) if name == best else s for name, s in results.items()}


def retired(results: Mapping[str, Standing], trees: int) -> list[str]:
    """The candidates that are too far behind."""
    if trees < FIRST_TREES:
        return []
    return [name for name, standing in results.items() if standing.behind > RETIRES]


def winner(results: Mapping[str, Standing]) -> str:
    """The first candidate that is as good as the best."""
    return next(name for name, standing in results.items() if standing.behind <= NEAR)


def cross_fitted(scores: Mapping[str, RowScores], rows: Rows) -> float:
    """The cross-fitted loss: that of each half of the rows by the candidate that wins on the other half.

    The loss of the winner is a little too low, because the winner was chosen by it. Rows of one group are in one half.
    """
    count = next(iter(scores.values())).score.size
    key = np.arange(count) if rows.group is None else rows.group
    second = in_second_half(key.astype(np.uint64))
    losses, weights = [], []
    for half in (second, ~second):
        of_half = {name: measure_loss(_part(each, half), rows.chosen(half)) for name, each in scores.items()}
        chosen = winner(standings(of_half, rows.chosen(half)))
        other = ~half
        losses.append(measure_loss(_part(scores[chosen], other), rows.chosen(other)).loss)
        used = np.isfinite(scores[chosen].score[other])
        weights.append(float(used.sum() if rows.weight is None else rows.weight[other][used].sum()))
    return float(np.dot(losses, weights) / sum(weights)) if sum(weights) else math.nan


def _part(scores: RowScores, keep: NDArray[np.bool_]) -> RowScores:
    return RowScores(scores.score[keep], None if scores.second is None else scores.second[keep])
