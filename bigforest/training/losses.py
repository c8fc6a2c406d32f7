"""The out-of-bag loss of a forest, and its standard error.

A loss is a mean over rows, or 1 minus the area under the ROC curve. With it, functions return the *influence* of every
row: the first-order change of the loss when the weight of the row increases. The sum of the squared influences is the
squared standard error of the loss. The squared differences of the influences of two forests give the standard error of
the difference of their losses, paired by row (for the area: DeLong et al. 1988). Influences of the rows of a group are
added up first, because they are not independent. Oracle: tests/naive/race.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import as_numpy
from bigforest.columns.labels import label_codes, proba_names
from bigforest.errors import counted, damaged_forest
from bigforest.forest.oob_report import oob_row_batches
from bigforest.metrics.classes import log_losses
from bigforest.oob.accumulator import NumberLoss, least_counted
from bigforest.predict.forest import Forest
from bigforest.store.store import Store

METRICS = {"classification": ("log_loss", "error", "auc"), "regression": ("mse", "poisson_deviance")}
# Bytes of a row per candidate, and in common.
ROW_BYTES = 16


class RowScores(NamedTuple):
    """Scores that determine the loss of each row.

    score   float64 [rows], its loss, or for the area the share of the votes for the second class; NaN if the row is out
            of no bag.
    second  bool [rows], whether it is of the second class, where the area is requested; None for other losses.
    """

    score: NDArray[np.float64]
    second: NDArray[np.bool_] | None


class MeasuredLoss(NamedTuple):
    """A loss, and the influence of each row on it, float64 [rows]; 0 for rows that do not count."""

    loss: float
    influence: NDArray[np.float64]


class Rows(NamedTuple):
    """Weights and groups of the rows of a comparison.

    weight  float64 [rows]; None if all have the same weight.
    group   int64 [rows]; None where each row is by itself.
    """

    weight: NDArray[np.float64] | None
    group: NDArray[np.int64] | None

    @classmethod
    def of(cls, store: Store) -> Rows:
        """Read the weights and groups of a store."""
        weight = None if store.spec.weight is None else store.weights_of(0, store.rows).astype(np.float64)
        group = None if store.spec.group is None else store.groups_of(0, store.rows).astype(np.int64)
        return cls(weight, group)

    def chosen(self, keep: NDArray[np.bool_]) -> Rows:
        """Return some of the rows."""
        return Rows._make(None if array is None else array[keep] for array in self)


def row_scores(forest: Forest, metric: str) -> RowScores:
    """Compute the scores of all training rows from the out-of-bag report of a forest. Raises FormatError."""
    target = forest.spec.target
    with forest.files.same_run():
        batches = oob_row_batches(forest.directory, _columns(forest, metric))
        pieces = [_scores(batch, forest, metric) for batch in batches]
    score = np.concatenate([piece[0] for piece in pieces])
    if score.size != forest.spec.rows:
        rows = f"{counted(score.size, 'row')}, not {forest.spec.rows:,}"
        raise damaged_forest(f"{forest.directory}: the out-of-bag report has {rows}")
    if metric == "poisson_deviance":
        truth = np.concatenate([piece[1] for piece in pieces])
        score = NumberLoss(1.0, least_counted(float(truth.max()))).of(truth, score)
    if metric != "auc":
        return RowScores(score, None)
    assert len(target.classes) == 2
    return RowScores(score, np.concatenate([piece[1] for piece in pieces]) == 1)


def _columns(forest: Forest, metric: str) -> list[str]:
    names = ["truth", "prediction", "trees"]
    return names if forest.is_regression or metric == "error" else [*names, *proba_names(forest.spec.target)]


def _scores(
    batch: pa.RecordBatch, forest: Forest, metric: str
) -> tuple[NDArray[np.float64], NDArray[np.int32] | NDArray[np.float64]]:
    """Return the scores of a batch and the classes. For the deviance, return predictions and targets."""
    truth, prediction = (pl.Series(pl.from_arrow(batch.column(name))) for name in ("truth", "prediction"))
    if metric == "poisson_deviance":
        return prediction.fill_null(np.nan).to_numpy(), truth.to_numpy()
    if metric == "mse":
        squares = (truth - prediction).cast(pl.Float64).to_numpy() ** 2
        return np.asarray(squares, np.float64), truth.to_numpy()
    codes = label_codes(truth, forest.spec.target)
    if codes is None or (codes < 0).any():
        raise damaged_forest(f"{forest.directory}: a truth in the out-of-bag report is no class")
    if metric == "error":
        wrong = (prediction != truth).fill_null(True).to_numpy().astype(np.float64)  # null: rejected, or out of no bag
        return np.where(as_numpy(batch.column("trees")) > 0, wrong, np.nan), codes
    shares = np.column_stack([as_numpy(column, np.nan) for column in batch.columns[3:]]).astype(float)
    if metric == "auc":
        return shares[:, 1], codes
    return log_losses(shares[np.arange(codes.size), codes]), codes


def measure_loss(scores: RowScores, rows: Rows) -> MeasuredLoss:
    """Return the loss of a forest and the influences of the rows. The loss is NaN if no row is out of bag."""
    used = np.isfinite(scores.score)
    weight = used.astype(np.float64) if rows.weight is None else np.where(used, rows.weight, 0.0)
    scored = np.where(used, scores.score, 0.0)
    if scores.second is None:
        total = weight.sum()
        loss = float((weight * scored).sum() / total) if total else math.nan
        return MeasuredLoss(loss, weight * (scored - loss) / total if total else weight)
    return _area(scored, scores.second, weight)


def _area(score: NDArray[np.float64], second: NDArray[np.bool_], weight: NDArray[np.float64]) -> MeasuredLoss:
    """Return 1 minus the area under the ROC curve: the share of pairs of rows of both classes in the wrong order."""
    sides = [np.where(second == side, weight, 0.0) for side in (False, True)]
    totals = [side.sum() for side in sides]
    if not all(totals):
        return MeasuredLoss(math.nan, np.zeros_like(score))
    _, place = np.unique(score, return_inverse=True)
    below = []
    for side in sides:
        of_score = np.bincount(place, side)
        below.append((np.cumsum(of_score) - of_score / 2)[place])
    # The share of the other class on the wrong side of a row; ties count half.
    placement = np.where(second, 1 - below[0] / totals[0], below[1] / totals[1])
    loss = float((sides[1] * placement).sum() / totals[1])
    influence = np.where(second, sides[1] / totals[1], sides[0] / totals[0]) * (placement - loss)
    return MeasuredLoss(loss, influence)


def standard_error(influence: NDArray[np.float64], rows: Rows) -> float:
    """Return the standard error of a loss, or of a difference of losses, from the influences of the rows."""
    if rows.group is not None:
        _, place = np.unique(rows.group, return_inverse=True)
        influence = np.bincount(place, influence).astype(np.float64)
    _, exponent = np.frexp(np.abs(influence).max(initial=0.0))
    influence = np.ldexp(influence, -exponent)  # so that squares are neither infinite nor all 0
    return math.ldexp(math.sqrt(float((influence * influence).sum())), int(exponent))
