"""Choosing lambda, by which the values of leaves are shrunk, by the rows that are out of bag.

Losses need the votes for what a row is, by each of a few lambdas (tally.py, lambda_losses). All votes, which the report
needs, are added up afterwards, by the lambda chosen.
The lambda with the least log loss, or loss of numbers (NumberLoss), is taken if it lowers the loss of the leaves as
grown by more than the standard error of the difference, paired by row; else leaves stay as grown. The report is that of
its votes. As the same rows choose lambda and evaluate it, its loss is also given cross-fitted: each half of the
rows by the lambda that the other half chooses.

Losses are added up as whole numbers, so they do not depend on the order or batches of rows.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.executor import map_on_threads
from bigforest.forest.format.shrinkage import Shrinkage
from bigforest.metrics.classes import log_losses
from bigforest.oob.accumulator import NumberLoss, OobAccumulator, row_weights
from bigforest.store.store import Store

# All log losses of a table together, of 36.05 at most each, are a whole number of 62 bits in steps of this size.
_STEPS = 2.0**56
# Rows whose losses are found together.
LOSS_ROWS = 1 << 13
# What the sums of kernels/predict/losses.py stand for.
SQUARES = np.array([[2 ** (32 + bits), 2**bits] for bits in (62, 32, 0)], object)
# The golden ratio as a fraction of 2**64: its multiples fall into the halves of this range without a period.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class LambdaLosses(NamedTuple):
    """Losses of rows by each lambda, the first of which is 0.

    losses   int64 [2, lambdas], of each half of the rows, by their weights, as whole numbers.
    squares  int objects [2, lambdas], of the differences of the losses of each row to those by the first lambda.
    weights  int64 [2], weights of these rows.
    """

    losses: NDArray[np.int64]
    squares: NDArray[np.object_]
    weights: NDArray[np.int64]

    def plus(self, other: LambdaLosses) -> LambdaLosses:
        """The losses of the rows of both."""
        return LambdaLosses(self.losses + other.losses, self.squares + other.squares, self.weights + other.weights)


def no_losses(lambdas: int) -> LambdaLosses:
    """The losses of no rows by this many lambdas."""
    none = np.zeros((2, lambdas), np.int64)
    return LambdaLosses(none, none.astype(object), none[:, 0])


def losses_of(
    store: Store,
    first: int,
    votes: OobAccumulator,
    loss: NumberLoss,
    held: NDArray[np.bool_] | None,
    workers: int,
) -> LambdaLosses:
    """The losses of rows from `first` on with these votes, found by this many threads.

    loss  of predicted numbers.
    held  which of the rows are held out of all bags, and do not count; None for none.
    """
    tasks = []
    for start in range(0, votes.voters.size, LOSS_ROWS):
        own = None if held is None else held[start : start + LOSS_ROWS]
        tasks.append((store, first + start, votes.part(start, start + LOSS_ROWS), loss, own))
    return reduce(LambdaLosses.plus, map_on_threads(_losses, tasks, workers), no_losses(votes.votes.shape[1]))


def _losses(
    store: Store,
    first: int,
    votes: OobAccumulator,
    loss: NumberLoss,
    held: NDArray[np.bool_] | None,
) -> LambdaLosses:
    from bigforest.kernels.predict.losses import sum_losses

    used = np.flatnonzero(votes.voters if held is None else (votes.voters > 0) & ~held)
    last = first + votes.voters.size
    means = votes.votes.take(used, axis=0) / votes.voters[used, None]
    weight = row_weights(store, first, last)
    own = np.ones(used.size, np.int64) if weight is None else weight[used]
    if store.spec.target.is_regression:
        losses = loss.of(store.numbers(first, last)[used, None], means)
        factor = own * store.spec.weight_unit
    else:
        losses, factor = log_losses(means), own * (_STEPS / store.spec.total_weight)
    second = in_second_half(np.arange(first, last, dtype=np.uint64)[used])
    sums, squares = np.zeros((2, means.shape[1]), np.int64), np.zeros((2, means.shape[1], 3, 2), np.int64)
    sum_losses(losses, factor, second, sums, squares)
    weights = np.array([own[~second].sum(), own[second].sum()], np.int64)
    return LambdaLosses(sums, (squares.astype(object) * SQUARES).sum(axis=(2, 3)), weights)


def in_second_half(rows: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which half of the table rows are in, by their numbers."""
    return (rows * _GOLDEN) >> np.uint64(63) == 1


def choose_shrinkage(tried: tuple[float, ...], found: LambdaLosses, store: Store, unit: float) -> Shrinkage:
    """The lambda that the losses choose (module docstring); 0 where no row is out of bag."""
    weight = int(found.weights.sum())
    if not weight:
        return Shrinkage(0.0, tried)
    one, two = found.losses
    of_one, of_two = found.squares
    crossed = int(one[_chosen(two, of_two)]) + int(two[_chosen(one, of_one)])
    losses = tuple(_mean(int(loss), weight, store, unit) for loss in one + two)
    amount = tried[_chosen(one + two, of_one + of_two)]
    return Shrinkage(amount, tried, losses, _mean(crossed, weight, store, unit))


def _chosen(losses: NDArray[np.int64], squares: NDArray[np.object_]) -> int:
    """The place of the least loss, the first among ties, if it is below the first by more than its standard error.

    The error is the root of the sum of the squares of the differences, as if their mean were 0.
    """
    best = int(losses.argmin())
    gain = int(losses[0]) - int(losses[best])
    return best if gain * gain > squares[best] else 0


def _mean(whole: int, weight: int, store: Store, unit: float) -> float:
    """The mean loss of rows of this weight, from its whole number."""
    if not store.spec.target.is_regression:
        return whole / (_STEPS / store.spec.total_weight) / weight
    # By the weight first: the square of the unit might overflow.
    return whole / store.spec.weight_unit / weight / unit / unit
