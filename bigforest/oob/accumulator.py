"""Votes of trees on a range of rows, in memory and in files that processes exchange; losses of predicted numbers."""

from __future__ import annotations

import math
import secrets
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.kernels.predict.accumulate import new_spread
from bigforest.metrics.numbers import poisson_deviances
from bigforest.options.train_config import TrainConfig
from bigforest.storage.array_file import damaged, read_arrays, write_arrays
from bigforest.storage.paths import downloads
from bigforest.store.store import Store

_TALLY_TYPES = {"votes": "<f8", "voters": "<u4", "prediction": "<u2", "spread": "<f8"}


class OobAccumulator(NamedTuple):
    """Votes on a range of rows; entry i is row i of the range. See kernels/predict/tally.py OobVotes.

    votes       float64 [rows, classes], or [rows, 1] for numbers. With several lambdas (shrinkage of leaves) float64
                [rows, lambdas], votes for the true class, or sums of predicted numbers
    voters      uint32 [rows], number of trees that voted
    prediction  uint16 [rows], predicted class; empty with several lambdas, and for regression, which predicts
                votes / voters
    spread      float64 [rows, 3], sums for the spread of the unshrunk predictions, see new_spread in
                kernels/predict/accumulate.py; empty with several lambdas, and for classes
    """

    votes: NDArray[np.float64]
    voters: NDArray[np.uint32]
    prediction: NDArray[np.uint16]
    spread: NDArray[np.float64]

    def rows(self, start: int, stop: int) -> OobAccumulator:
        return OobAccumulator._make(array[start:stop] for array in self)

    def copy_from(self, other: OobAccumulator) -> None:
        self.votes[:], self.voters[:], self.prediction[:], self.spread[:] = other


class NumberLoss(NamedTuple):
    """The loss of a predicted number: its squared error, or its Poisson deviance.

    unit   factor of errors, a power of two; losses are multiplied by its square. It is chosen so that the sum of all
           losses, with weights of mean 1 (weight_unit), is below 2**61, and losses can be rounded to whole numbers.
    floor  smallest prediction in the deviance, so that no loss is infinite; None for the squared error
    """

    unit: float = 1.0
    floor: float | None = None

    def of(self, truth: NDArray[np.float64], prediction: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.floor is None:
            errors = (prediction - truth) * self.unit
            return errors * errors
        return poisson_deviances(truth, np.maximum(prediction, self.floor)) * self.unit * self.unit


class RangeTally(NamedTuple):
    """The votes on a row group of the report, the rows from `start` to before `stop`, or their file."""

    start: int
    stop: int
    tally: OobAccumulator | Path


def no_votes(rows: int, spec: DataSpec) -> OobAccumulator:
    class_rows = rows if spec.target.classes else 0
    votes, voters = np.zeros((rows, spec.target.answer_width)), np.zeros(rows, np.uint32)
    return OobAccumulator(votes, voters, np.zeros(class_rows, np.uint16), new_spread(rows - class_rows))


def no_votes_by_lambda(lambdas: int, rows: int) -> OobAccumulator:
    return OobAccumulator(np.zeros((rows, lambdas)), np.zeros(rows, np.uint32), np.zeros(0, np.uint16), new_spread(0))


def row_weights(store: Store, first: int, last: int) -> NDArray[np.int64] | None:
    """Return the weights of the rows from `first` to before `last`, int64; None if all rows weigh 1."""
    return None if store.spec.weight is None else store.weights_of(first, last).astype(np.int64)


def number_loss(store: Store, config: TrainConfig) -> NumberLoss:
    """Return the loss of a regression forest of this configuration. For classes, only the unit (1) is used."""
    if config.criterion != "poisson":
        return NumberLoss(error_unit(store))
    most = float(store.spec.target.values(store.target.max()))
    # The deviance is largest if the floor is predicted for the largest target: 70.1 times this target.
    root = math.sqrt(2.0**61 / store.rows / 71.0 / most)
    return NumberLoss(math.ldexp(1.0, math.frexp(root)[1] - 1), loss_floor(most))


def loss_floor(largest: float) -> float:
    """Return `floor` of NumberLoss for targets up to `largest`."""
    return largest * 2.0**-52


def error_unit(store: Store) -> float:
    """Return the factor of regression errors, see NumberLoss; 1 for classes.

    Predictions are means of targets, so errors are at most the range of the targets. If all targets are zero, the step
    of targets is tiny, and the factor is the largest power of two.
    """
    if not store.spec.target.is_regression:
        return 1.0
    steps = float(store.target.max()) - float(store.target.min()) or 1.0  # a constant target has no errors
    root = math.sqrt(2.0**61 / store.rows) / steps
    return min(math.ldexp(1.0, math.frexp(root)[1] - 1) / store.spec.target.step, 2.0**1023)


def write_tally(accumulator: OobAccumulator, folder: Path) -> Path:
    """Write the arrays of a tally to a file (storage/array_file.py). A task that runs twice writes two files."""
    path = folder / f"tally-{secrets.token_hex(8)}.bin"
    write_arrays(path, _TALLY_TYPES, *accumulator)
    return path


def read_tally(path: Path, rows: int, spec: DataSpec) -> OobAccumulator:
    with downloads([path]) as [local]:
        arrays = read_arrays(local, _TALLY_TYPES)
    if [array.shape for array in arrays] != [array.shape for array in no_votes(rows, spec)]:
        raise damaged(path)
    return OobAccumulator(*arrays)
