"""Choose lambda (shrinkage of leaves) and the power of the shares of classes, by losses of out-of-bag rows.

1. Lambda: compute the loss of each row with each of a few lambdas, from the votes for its true class
   (`losses_by_lambda`). The loss is the log loss; for regression NumberLoss. The lambda with the lowest loss is chosen
   if it lowers the loss of the leaves as grown by more than one standard error of the difference, paired by row.
2. Power: compute the log loss of each row with each power, from all its votes with the chosen lambda
   (`losses_by_power`). The power with the lowest loss is chosen if it lowers the loss of the shares by more than two
   standard errors.

The same rows are used to choose and to evaluate. Losses are therefore also cross-fitted: each half of the rows is
evaluated with the choice of the other half. A row without votes for its true class has the same loss with any power, so
it does not influence the choice of the power. The sums of blocks of rows are added up as whole numbers, so they do not
depend on the order of the blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.execution.executor import Executor
from bigforest.forest.leaf_votes import step_rows
from bigforest.forest.run_file import Choice, Power, Shrinkage
from bigforest.metrics.classes import log_losses
from bigforest.oob.accumulator import NumberLoss, OobAccumulator, row_weights
from bigforest.options.train_config import TrainConfig
from bigforest.sampling.bags import held_out_of
from bigforest.store.store import Store

# Sums of losses are whole numbers of steps; a step is 1 / STEPS.
STEPS = 2.0**40
_whole: Any = np.frompyfunc(int, 1, 1)
# Most rows of a block, whose losses are computed together.
LOSS_ROWS = 1 << 13
# 2**64 / the golden ratio. Its multiples, modulo 2**64, fall into both halves of the range at irregular intervals.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

# Standard errors by which a choice must be better than no shrinkage, or the power 1. Losses with different lambdas
# differ little; a power that is not needed costs more (benchmarks/columns.md).
_ERRORS: dict[type[Choice], int] = {Shrinkage: 1, Power: 2}
# The loss is flat around the best power, so few powers suffice.
POWERS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 9.0)

Kind = TypeVar("Kind", bound=Choice)


class ChoiceLosses(NamedTuple):
    """Losses of rows with each lambda, or with each power. If several are tried, the first is lambda 0 or the power 1.

    losses   object [2, tried], Python integers: weighted sums of the losses of each half of the rows, in steps
    squares  object [2, tried]: sums of the squared differences between the weighted loss of a row and its weighted loss
             with the first lambda or power
    weight   weight of these rows
    """

    losses: NDArray[np.object_]
    squares: NDArray[np.object_]
    weight: int

    def plus(self, other: ChoiceLosses) -> ChoiceLosses:
        return ChoiceLosses(self.losses + other.losses, self.squares + other.squares, self.weight + other.weight)


def no_losses(tried: int) -> ChoiceLosses:
    none = np.zeros((2, tried), object)
    return ChoiceLosses(none, none, 0)


def powers_to_try(config: TrainConfig, classes: int) -> tuple[float, ...]:
    """Return the powers with which out-of-bag rows are evaluated: several to choose from, the given power, or 1."""
    if not isinstance(config.power, str):
        return (float(config.power),)
    chosen = config.power == "auto" and classes > 1 and config.bootstrap and not config.boosts
    return POWERS if chosen else (1.0,)


def losses_by_lambda(
    store: Store, config: TrainConfig, first: int, votes: OobAccumulator, loss: NumberLoss, workers: int
) -> ChoiceLosses:
    """Return the losses of rows from `first` on, computed on threads. Rows that are held out of all bags do not count.

    votes  for each lambda, the votes for the true class; for regression the sum of the predictions
    loss   loss of predicted numbers
    """

    def losses(start: int, block: OobAccumulator, used: NDArray[np.int64]) -> NDArray[np.float64]:
        means = block.votes.take(used, axis=0) / block.voters[used, None]
        if not store.spec.target.is_regression:
            return log_losses(means)
        return loss.of(store.numbers(start, start + block.voters.size)[used, None], means)

    return _add_losses(store, config, first, votes, workers, losses, votes.votes.shape[1])


def losses_by_power(
    store: Store, config: TrainConfig, first: int, votes: OobAccumulator, powers: tuple[float, ...], workers: int
) -> ChoiceLosses:
    """Return the log losses of rows with each power, from their votes for all classes; see `losses_by_lambda`."""
    from bigforest.kernels.predict.powers import true_probabilities

    quarters = np.array([round(4 * power) for power in powers], np.int64)

    def losses(start: int, block: OobAccumulator, used: NDArray[np.int64]) -> NDArray[np.float64]:
        probability = np.empty((used.size, quarters.size))
        truth = read_only(store.labels(start, start + block.voters.size))
        true_probabilities(block.votes, used, truth, quarters, probability)
        return log_losses(probability)

    return _add_losses(store, config, first, votes, workers, losses, quarters.size)


def _add_losses(
    store: Store,
    config: TrainConfig,
    first: int,
    votes: OobAccumulator,
    workers: int,
    losses: Callable[[int, OobAccumulator, NDArray[np.int64]], NDArray[np.float64]],
    tried: int,
) -> ChoiceLosses:
    """Add up the losses of rows from `first` on.

    losses  function that returns the losses of used rows, float64 [used rows, tried]. It takes the first row of a
            block, its votes, and the places of the used rows
    """
    held = held_out_of(store, config, first, first + votes.voters.size)
    step = min(LOSS_ROWS, step_rows(store.spec.target.answer_width))  # so blocks do not depend on the ranges of tasks

    def of_block(start: int) -> ChoiceLosses:
        block, begin = votes.rows(start, start + step), first + start
        counted = block.voters > 0 if held is None else (block.voters > 0) & ~held[start : start + step]
        used = np.flatnonzero(counted)
        weight = row_weights(store, begin, begin + block.voters.size)
        row_weight = np.ones(used.size, np.int64) if weight is None else weight[used]
        weighted = losses(begin, block, used) * (row_weight * STEPS)[:, None]
        second = in_second_half((begin + used).astype(np.uint64))
        halves = weighted[~second], weighted[second]
        squares = [((half - half[:, :1]) ** 2).sum(axis=0) for half in halves]
        return ChoiceLosses(_whole([half.sum(axis=0) for half in halves]), _whole(squares), int(row_weight.sum()))

    starts = [(start,) for start in range(0, votes.voters.size, step)]
    return reduce(ChoiceLosses.plus, Executor(workers).gather(of_block, starts), no_losses(tried))


def in_second_half(rows: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return True for row numbers in the second of two halves. Both halves have rows from all parts of the table."""
    return (rows * _GOLDEN) >> np.uint64(63) == 1


def choose(kind: type[Kind], tried: tuple[float, ...], choice_losses: ChoiceLosses, unit: float = 1.0) -> Kind:
    """Return the choice of a lambda or power among several, with the loss of each; unit: see NumberLoss."""
    errors = _ERRORS[kind]
    (first, second), (first_squares, second_squares), weight = choice_losses
    if not weight:
        return kind(tried[0], tried)
    crossed = first[_lowest(second, second_squares, errors)] + second[_lowest(first, first_squares, errors)]
    amount = tried[_lowest(first + second, first_squares + second_squares, errors)]
    # Divide by the weight first, and by the unit twice, because its square might overflow.
    *losses, crossed_loss = (whole / STEPS / weight / unit / unit for whole in [*(first + second), crossed])
    return kind(amount, tried, tuple(losses), crossed_loss)


def _lowest(losses: NDArray[np.object_], squares: NDArray[np.object_], errors: int) -> int:
    """Return the place of the lowest loss, the first among ties, if it is below the first loss by more than `errors`
    standard errors; otherwise 0.

    The standard error is the root of the sum of the squared differences, as if their mean were 0.
    """
    best = int(losses.argmin())
    gain = losses[0] - losses[best]
    return best if gain * gain > errors**2 * squares[best] else 0
