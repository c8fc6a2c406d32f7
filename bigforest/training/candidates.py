"""The rules of a comparison of candidates, which are named sets of training options.

The rules decide which candidates are retired, which one wins, and what its cross-fitted loss is.

A loss is a mean over out-of-bag rows, or 1 minus the area under the ROC curve. With more than two classes there is a
curve for each class against the rest, and the loss is 1 minus the mean area.

In addition to a loss, functions return the *influence* of every row: the change of the loss, to first order, if the
weight of the row is doubled. The squared standard error of a loss is the sum of the squared influences. The squared
standard error of the difference of two losses is the sum of (influence on the first - influence on the second)**2, so
the losses are paired by row (for the area: DeLong et al. 1988). Rows of a group are not independent, so their
influences are added up before they are squared. Oracle: tests/naive/race.py.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import as_numpy
from bigforest.columns.labels import label_codes, proba_names
from bigforest.encode.arguments import plain_options
from bigforest.errors import ConfigError, api, counted, damaged_forest, shown
from bigforest.forest.oob_report import oob_row_batches
from bigforest.metrics.classes import log_losses
from bigforest.oob.accumulator import NumberLoss, loss_floor
from bigforest.oob.choice import in_second_half
from bigforest.options.train_config import TrainConfig
from bigforest.options.train_options import OPTIONS
from bigforest.predict.forest import Forest
from bigforest.store.store import Store

METRICS = {"classification": ("log_loss", "error", "auc"), "regression": ("mse", "poisson_deviance")}
# Bytes of a row in the scores of a candidate, and in each array that all candidates share. With the metric auc, each
# curve takes as many.
ROW_BYTES = 16


class RowScores(NamedTuple):
    """Scores that determine the loss of each row.

    score     float64 [rows], loss of each row. For the area float64 [rows, curves]: probability of the second class, or
              of each class if there are more than two. NaN if the row is in every bag.
    in_class  bool [rows, curves], for the area: True if the row is of the class of the curve. None for other losses.
    """

    score: NDArray[np.float64]
    in_class: NDArray[np.bool_] | None

    @property
    def used(self) -> NDArray[np.bool_]:
        """Rows with a score, bool [rows]."""
        return np.isfinite(self.score if self.in_class is None else self.score[:, 0])

    def chosen(self, keep: NDArray[np.bool_]) -> RowScores:
        return RowScores(self.score[keep], None if self.in_class is None else self.in_class[keep])


class MeasuredLoss(NamedTuple):
    """A loss, and the influence of each row on it, float64 [rows]; 0 for rows that do not count."""

    loss: float
    influence: NDArray[np.float64]


class Rows(NamedTuple):
    """Weights and groups of the rows of a comparison.

    weight  float64 [rows]; None if all have the same weight.
    group   int64 [rows]; None without groups.
    """

    weight: NDArray[np.float64] | None
    group: NDArray[np.int64] | None

    @classmethod
    def of(cls, store: Store) -> Rows:
        weight = None if store.spec.weight is None else store.weights_of(0, store.rows).astype(np.float64)
        group = None if store.spec.group is None else store.groups_of(0, store.rows).astype(np.int64)
        return cls(weight, group)

    def chosen(self, keep: NDArray[np.bool_]) -> Rows:
        return Rows._make(None if array is None else array[keep] for array in self)


def row_scores(forest: Forest, metric: str) -> RowScores:
    """Compute the scores of all training rows from the out-of-bag report of a forest. Raises FormatError."""
    with forest.files.same_run():
        batches = oob_row_batches(forest.directory, _columns(forest, metric))
        pieces = [_scores(batch, forest, metric) for batch in batches]
    score = np.concatenate([piece[0] for piece in pieces])
    if len(score) != forest.spec.rows:
        rows = f"{counted(len(score), 'row')}, not {forest.spec.rows:,}"
        raise damaged_forest(f"{forest.directory}: the out-of-bag report has {rows}")
    if metric == "poisson_deviance":
        truth = np.concatenate([piece[1] for piece in pieces])
        score = NumberLoss(1.0, loss_floor(float(truth.max()))).of(truth, score)
    if metric != "auc":
        return RowScores(score, None)
    classes = len(forest.spec.target.classes)
    codes = np.concatenate([piece[1] for piece in pieces])
    return RowScores(score, codes[:, None] == np.arange(classes)[classes == 2 :])


def _columns(forest: Forest, metric: str) -> list[str]:
    names = ["truth", "prediction", "trees"]
    return names if forest.is_regression or metric == "error" else [*names, *proba_names(forest.spec.target)]


def _scores(
    batch: pa.RecordBatch, forest: Forest, metric: str
) -> tuple[NDArray[np.float64], NDArray[np.int32] | NDArray[np.float64]]:
    """Return the scores of a batch (for the Poisson deviance, its predictions), and its class codes or targets."""
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
        wrong = (prediction != truth).fill_null(True).to_numpy().astype(np.float64)  # null: in every bag
        return np.where(as_numpy(batch.column("trees")) > 0, wrong, np.nan), codes
    shares = np.column_stack([as_numpy(column, np.nan) for column in batch.columns[3:]]).astype(float)
    if metric == "auc":
        return shares[:, shares.shape[1] == 2 :], codes
    return log_losses(shares[np.arange(codes.size), codes]), codes


def measure_loss(scores: RowScores, rows: Rows) -> MeasuredLoss:
    """Return the loss of a forest and the influences of the rows.

    The loss is NaN if no row with a weight above 0 has a score. The area also needs such rows of two classes.
    """
    used = scores.used
    weight = used.astype(np.float64) if rows.weight is None else np.where(used, rows.weight, 0.0)
    if scores.in_class is not None:
        curves = zip(scores.score.T, scores.in_class.T, strict=True)
        areas = [_area(np.where(used, score, 0.0), in_class, weight) for score, in_class in curves]
        areas_known = [area for area in areas if not math.isnan(area.loss)] or areas[:1]
        losses, influences = zip(*areas_known, strict=True)
        return MeasuredLoss(sum(losses) / len(areas_known), sum(influences) / len(areas_known))
    scored = np.where(used, scores.score, 0.0)
    total = weight.sum()
    loss = float((weight * scored).sum() / total) if total else math.nan
    return MeasuredLoss(loss, weight * (scored - loss) / total if total else weight)


def _area(score: NDArray[np.float64], second: NDArray[np.bool_], weight: NDArray[np.float64]) -> MeasuredLoss:
    """Return 1 minus the area under the ROC curve: the share of pairs of a first and a second row in the wrong order.

    score   float64 [rows], probability of the second class
    second  bool [rows], True for rows of the second class
    weight  float64 [rows], 0 for rows that do not count
    """
    sides = [np.where(second == side, weight, 0.0) for side in (False, True)]
    totals = [side.sum() for side in sides]
    if not all(totals):
        return MeasuredLoss(math.nan, np.zeros_like(score))
    _, place = np.unique(score, return_inverse=True)
    below = []
    for side in sides:
        of_score = np.bincount(place, side)
        below.append((np.cumsum(of_score) - of_score / 2)[place])
    # For each row, the share of the rows of the other class that are in the wrong order with it. Ties count half.
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


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
MOST_CANDIDATES = 50
# Options that all candidates have in common, as they share the table, the seed of the bags, and the number of trees.
_ENCODING = {name for name, one in OPTIONS.items() if one.encodes}
SHARED = frozenset({"trees", "seed", "bootstrap", "stop_oob", *_ENCODING})
# Default candidates, the simpler ones first: among candidates without a clear difference the first wins.
_DEFAULT: dict[str, dict[str, Any]] = {
    "default": {},
    "larger-leaves": {"min_leaf": 5},
    "entropy": {"impurity": "entropy"},
    "without-replacement": {"replace": False, "sample_fraction": 0.632},
    "all-features": {"mtry": "all"},
    "sparse-oblique": {"family": "sparse-oblique"},
    "rotation": {"family": "rotation"},
}


def default_candidates(task: str, most: int | None) -> dict[str, dict[str, Any]]:
    """Return the options of the first `most` default candidates, by name; of all if `most` is None.

    The candidates are: all defaults; leaves of 5 rows, against noise; entropy, for classification; bags without
    replacement, which leave out as many rows as the default bags; all features at every node; splits on sparse
    projections; and rotation trees.
    """
    names = [name for name, options in _DEFAULT.items() if task == "classification" or "impurity" not in options]
    if most is not None:
        check_candidate_count(most, len(names))
    return {name: dict(_DEFAULT[name]) for name in names[:most]}


def check_candidate_count(count: int, most: int = len(_DEFAULT), name: str = "candidates") -> None:
    """Raise ConfigError unless `count` is a number from 2 to `most`. The message calls the option `name`."""
    if isinstance(count, bool) or not 2 <= count <= most:
        raise ConfigError(f"{api(name)} must be a number of default candidates from 2 to {most}, not {shown(count)}")


def given_candidates(
    given: Mapping[str, Mapping[str, Any]] | str | Path, base: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the options of explicit candidates by name: a mapping, or a TOML file with a table for each candidate.

    base  options that all candidates have.

    Raises ConfigError.
    """
    tables = _read(Path(given)) if isinstance(given, str | Path) else given
    if not isinstance(tables, Mapping) or not 2 <= len(tables) <= MOST_CANDIDATES:
        raise ConfigError(f"{api('candidates')} must be from 2 to {MOST_CANDIDATES} names, each with its options")
    candidates = {}
    for name, options in tables.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                f"{shown(name)} cannot be the name of a candidate: names have up to 40 letters, digits, - and _, and "
                "begin with a letter or digit"
            )
        if not isinstance(options, Mapping):
            raise ConfigError(f"the candidate {name} must have a table of options, not {shown(options)}")
        for option in options:
            if option in SHARED:
                raise ConfigError(
                    f"the candidate {name} cannot have {option}: all candidates share it; set it in options"
                )
            if option not in OPTIONS:
                raise ConfigError(
                    f"the candidate {name} has an unknown option {shown(option)}; see the options of {api('train')}"
                )
        options = plain_options(dict(options))
        try:
            TrainConfig.of(**{**base, **options})
        except ConfigError as error:
            raise ConfigError(f"the candidate {name}: {error.text}") from error
        candidates[name] = options
    if len({name.casefold() for name in candidates}) < len(candidates):
        raise ConfigError("two candidates have the same name but for upper and lower case; rename one")
    return candidates


def _read(path: Path) -> Any:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file of candidates; check the path") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"the candidates {path} cannot be read: {error}") from error


# Trees that are grown before the candidates are compared again.
STEP = 25
# A candidate retires if it is behind by more than RETIRES standard errors, and has at least FIRST_TREES trees. With
# fewer trees, families that need many trees would lose to those that start well.
RETIRES = 3.0
FIRST_TREES = 50
# Losses within this many standard errors are equal: then the first in the list wins.
NEAR = 1.0


class Standing(NamedTuple):
    """Loss of a candidate, its difference to the lowest loss, and the standard error of the difference."""

    loss: float
    difference: float
    error: float

    @property
    def behind(self) -> float:
        """Difference in standard errors."""
        if self.error > 0:
            return self.difference / self.error
        return math.inf if self.difference > 0 else 0.0


def rounds(trees: int) -> list[int]:
    """Return the numbers of trees after which candidates are compared.

    The next number is larger by a quarter, rounded down to a multiple of STEP, and by at least STEP. The last
    number is `trees`.
    """
    sizes, at = [], 0
    while at < trees:
        at = min(trees, at + max(STEP, at // 4 // STEP * STEP))
        sizes.append(at)
    return sizes


def standings(losses: Mapping[str, MeasuredLoss], rows: Rows) -> dict[str, Standing]:
    """Return the standing of each candidate. An unknown loss (NaN) is the largest."""
    value = {name: math.inf if math.isnan(each.loss) else each.loss for name, each in losses.items()}
    best = min(value, key=value.__getitem__)
    results = {}
    for name, each in losses.items():
        error = standard_error(each.influence - losses[best].influence, rows)
        results[name] = Standing(each.loss, value[name] - value[best] if value[name] < math.inf else math.inf, error)
    return {name: Standing(s.loss, 0.0, 0.0) if name == best else s for name, s in results.items()}


def retired(results: Mapping[str, Standing], trees: int) -> list[str]:
    """Return the names of the candidates that are too far behind."""
    if trees < FIRST_TREES:
        return []
    return [name for name, standing in results.items() if standing.behind > RETIRES]


def winner(results: Mapping[str, Standing]) -> str:
    """Return the name of the first candidate whose loss is within NEAR standard errors of the lowest loss."""
    return next(name for name, standing in results.items() if standing.behind <= NEAR)


def cross_fitted(scores: Mapping[str, RowScores], rows: Rows) -> float:
    """Return the cross-fitted loss: each half of the rows is evaluated with the candidate that wins on the other half.

    The loss of the winner is a little too low, because the winner was chosen by it. Rows of one group are in one half.
    """
    count = len(next(iter(scores.values())).score)
    key = np.arange(count) if rows.group is None else rows.group
    second = in_second_half(key.astype(np.uint64))
    losses, weights = [], []
    for half in (second, ~second):
        of_half = {name: measure_loss(each.chosen(half), rows.chosen(half)) for name, each in scores.items()}
        chosen = winner(standings(of_half, rows.chosen(half)))
        rest = ~half
        losses.append(measure_loss(scores[chosen].chosen(rest), rows.chosen(rest)).loss)
        used = scores[chosen].used[rest]
        weights.append(float(used.sum() if rows.weight is None else rows.weight[rest][used].sum()))
    return float(np.dot(losses, weights) / sum(weights)) if sum(weights) else math.nan
