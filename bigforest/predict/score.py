"""How well predictions met the labels of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.common.errors import DataError
from bigforest.forest.load.predictor import Answers
from bigforest.forest.load.vote_rule import label_codes
from bigforest.metrics.classes import ClassMetrics, Metrics
from bigforest.metrics.numbers import LARGEST, NumberSums
from bigforest.schema.columns import level_text
from bigforest.schema.dataspec import DataSpec, Label
from bigforest.source.beside import column_of, frame_in_memory

if TYPE_CHECKING:
    from bigforest.forest.grown import GrownForest


@dataclass(frozen=True, slots=True)
class FilePrediction:
    """What `predict_file` did. Without labels, or with unknown ones, metrics is empty and the rest None.

    rows      rows written.
    scored    rows that have a label.
    accuracy  share of these whose prediction is their label; a rejected row counts as wrong.
    log_loss  mean of -ln p(label), p clipped to [eps, 1 - eps] of float64 as in scikit-learn.
    metrics   of each class and, last, of all, as `forest.oob.metrics`. The area under the ROC curve is None when rows
              have more than 262,144 different probabilities.
    r2, mse, mae  how far predicted numbers are from the true ones, see metrics/numbers.py; None for classes.
    """

    rows: int
    scored: int
    accuracy: float | None = None
    log_loss: float | None = None
    metrics: tuple[dict[str, Any], ...] = ()
    r2: float | None = None
    mse: float | None = None
    mae: float | None = None


def score_of(spec: DataSpec, schema: Mapping[str, pl.DataType]) -> Score | NumberScore:
    """What judges the predictions for a table, if it has the target."""
    active = spec.target.name in schema
    return NumberScore(spec, active) if spec.target.task == "regression" else Score(spec, active)


class Score:
    """The metrics, counted while batches pass; off as soon as a label is none of the classes."""

    def __init__(self, spec: DataSpec, active: bool) -> None:
        self.active = active
        self._spec = spec
        self._metrics = Metrics(len(spec.target.classes))

    def add(self, truth: pl.Series, answers: Answers) -> None:
        """Judge rows that have a label."""
        codes = label_codes(truth, self._spec)
        if codes is None:
            self.active = False
            return
        assert answers.proba is not None
        rows: NDArray[Any] = np.flatnonzero(codes >= 0)
        self._metrics.add(codes[rows], answers.codes[rows], answers.proba[rows])

    @property
    def counted(self) -> Metrics | None:
        """What has been counted, for `join`; None when off."""
        return self._metrics if self.active else None

    def join(self, counted: Metrics | None) -> None:
        """Add what was counted elsewhere."""
        if counted is None:
            self.active = False
        else:
            self._metrics.join(counted)

    def result(self, rows: int) -> FilePrediction:
        """What is said of the whole table."""
        found = self._metrics.result() if self.active else []
        if not found:
            return FilePrediction(rows, 0)
        scored, classes = self._metrics.rows, self._spec.target.classes
        return FilePrediction(
            rows, scored, self._metrics.right / scored, found[-1].log_loss, tuple(_facts(one, classes) for one in found)
        )


class NumberScore:
    """The same for numbers; off where the target of the table is none."""

    def __init__(self, spec: DataSpec, active: bool) -> None:
        self.active = active
        self._sums = NumberSums(spec.target.offset)

    def add(self, truth: pl.Series, answers: Answers) -> None:
        """Judge rows whose target is not missing."""
        if not (truth.dtype.is_numeric() or truth.dtype == pl.Null):
            self.active = False
            return
        assert answers.value is not None
        given = truth.cast(pl.Float64).fill_null(np.nan).to_numpy()
        known = np.abs(given) <= LARGEST
        self._sums.add(given[known], answers.value[known])

    @property
    def counted(self) -> NumberSums | None:
        """What has been added up, for `join`; None when off."""
        return self._sums if self.active else None

    def join(self, counted: NumberSums | None) -> None:
        """Add what was added up elsewhere."""
        if counted is None:
            self.active = False
        else:
            self._sums.join(counted)

    def result(self, rows: int) -> FilePrediction:
        """What is said of the whole table."""
        if not self.active or not self._sums.rows:
            return FilePrediction(rows, 0)
        return FilePrediction(rows, self._sums.rows, **asdict(self._sums.result()))


def _facts(found: ClassMetrics, classes: tuple[Label, ...]) -> dict[str, Any]:
    """The metrics by the names of the columns of `forest.oob.metrics`."""
    values = asdict(found)
    code = values.pop("code")
    return {"class": None if code is None else classes[code], **values}


def score(forest: GrownForest, answer: Any, data: Any, y: Any) -> float:
    """`Forest.score`; `answer` is what the forest predicts for the rows."""
    if isinstance(answer, pl.LazyFrame):
        answer = answer.collect()
    found = column_of(answer if isinstance(answer, np.ndarray) else answer["prediction"], None, "prediction")
    truth = _truth(forest, data) if y is None else column_of(y, None, "y")
    if len(truth) != len(found):
        raise DataError(f"y has {len(truth)} rows, and the table has {len(found)}; give a value for each row")
    known = truth.is_not_null() & (truth.is_not_nan() if truth.dtype.is_float() else True)
    if not known.any():
        raise DataError("no row has a true value, so there is nothing to score")
    if not forest.is_regression:
        right = (level_text(found) == level_text(truth)).fill_null(False)
        return float(right.filter(known).cast(pl.Float64).to_numpy().mean())
    sums = NumberSums(forest.spec.target.offset)
    sums.add(truth.filter(known).cast(pl.Float64).to_numpy(), found.filter(known).to_numpy())
    r2 = sums.result().r2
    return float("nan") if r2 is None else r2


def _truth(forest: GrownForest, data: Any) -> pl.Series:
    name = forest.spec.target.name
    frame = data.collect() if isinstance(data, pl.LazyFrame) else frame_in_memory(data)
    if frame is None or name not in frame.columns:
        raise DataError(f"the table has no column {name!r} to score by; give y")
    return frame.get_column(name)
