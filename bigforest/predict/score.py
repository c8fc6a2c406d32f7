"""Comparison of predictions with the labels of a table.

Rows count by their weights, as in the out-of-bag report, where the table has the column of weights that the forest was
trained with; else they count alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.common.errors import DataError
from bigforest.common.forks import check_polars_threads
from bigforest.encode.weights import check_weight, weights_in_slice, without_weightless
from bigforest.forest.load.predictor import Answers
from bigforest.metrics.classes import ClassMetrics, Metrics
from bigforest.metrics.numbers import LARGEST, NumberSums
from bigforest.schema.columns import cells
from bigforest.schema.dataspec import DataSpec
from bigforest.schema.labels import equal_labels, label_codes, label_values, strange_labels
from bigforest.source.in_memory import frame_in_memory, series_of

if TYPE_CHECKING:
    from bigforest.forest.grown import GrownForest
    from bigforest.source import Source

# Rows whose weights are looked at together, and about what all come to at most, in their steps.
_BATCH_ROWS = 1 << 17
_MOST_STEPS = 2.0**52


@dataclass(frozen=True, slots=True)
class FilePrediction:
    """The result of `predict_file`. Without labels, or with unknown ones, metrics is empty and the others are None.

    rows      rows written.
    scored    rows with a label and, if rows are weighted, a weight above 0.
    accuracy  share of these whose prediction is their label; a rejected row counts as wrong.
    log_loss  mean of -ln p(label), p clipped to [eps, 1 - eps] of float64 as in scikit-learn.
    metrics   for each class and, in the last row, for all, as `forest.oob.metrics`. The area under the ROC curve is
              None if rows have more than 262,144 different probabilities.
    r2, mse, mae  regression metrics, see metrics/numbers.py; None for classification.
    weighted  whether rows are weighted, because the table has the weight column of training. Weights do not apply to
              `scored` and to numbers of rows in `metrics`.
    unscored  why there are no metrics, if the table has the target: a label that the forest does not know, no label at
              all, or weights that cannot be used; None otherwise.
    """

    rows: int
    scored: int
    accuracy: float | None = None
    log_loss: float | None = None
    metrics: tuple[dict[str, Any], ...] = ()
    r2: float | None = None
    mse: float | None = None
    mae: float | None = None
    weighted: bool = False
    unscored: str | None = None


class ScoreWeights(NamedTuple):
    """How the rows of a table are weighed.

    name     the column of weights
    classes  weights of the classes besides; empty where classes have no weights
    step     what one of the whole numbers that stand for weights is
    total    what these come to together at most
    """

    name: str
    classes: tuple[float, ...]
    step: float
    total: int

    def of(self, series: pl.Series, codes: NDArray[Any] | None = None) -> NDArray[np.int64]:
        """The whole numbers of the weights of rows, 0 of a weight of 0; codes: of their classes. Raises DataError."""
        weight = weights_in_slice(series, self.name)
        if self.classes and codes is not None:
            weight = weight * np.array(self.classes)[codes]
        return np.where(weight > 0.0, np.maximum(np.rint(weight / self.step), 1.0), 0.0).astype(np.int64)


def score_weights(spec: DataSpec, source: Source) -> ScoreWeights | None:
    """How the rows of a table are weighed, of which this reads the weights; None where they are not.

    Raises DataError for weights that are not numbers of 0 or more.
    """
    known = spec.weight
    if known is None or known.name is None or not {known.name, spec.target.name} <= set(source.schema):
        return None
    check_weight(known.name, source.schema[known.name])
    heaviest = max(known.classes, default=1.0)
    batches = source.batches([known.name], _BATCH_ROWS)
    total = heaviest * sum(float(weights_in_slice(cells(batch, known.name), known.name).sum()) for batch in batches)
    if not 0.0 < total < np.inf:
        raise DataError(f"the weights {known.name!r} come to {total}; correct them, or drop the column")
    step = max(known.step, total / _MOST_STEPS)
    return ScoreWeights(known.name, known.classes, step, int(total / step) + source.rows)


def score_of(spec: DataSpec, source: Source) -> Score:
    """What judges the predictions for a table, if it has the target, and its weights can be used."""
    try:
        return new_score(spec, source, score_weights(spec, source))
    except DataError as error:
        return new_score(spec, source, None, unscored=str(error))


def new_score(spec: DataSpec, source: Source, weights: ScoreWeights | None, *, unscored: str | None = None) -> Score:
    """The same with weights that are known; unscored: why they cannot be used."""
    active = unscored is None and spec.target.name in source.schema
    return (NumberScore if spec.target.is_regression else ClassScore)(spec, active, weights, unscored)


class Score(ABC):
    """Metrics that are counted while batches pass; off as soon as a batch has targets that cannot be judged.

    unscored  why it is off, where the table has the target.
    """

    def __init__(self, spec: DataSpec, active: bool, weights: ScoreWeights | None, unscored: str | None = None) -> None:
        self.active = active
        self.unscored = unscored
        self.weights = weights
        self._spec = spec
        self._sums: Any = self._new_sums(None if weights is None else weights.total)

    @abstractmethod
    def _new_sums(self, total: int | None) -> Metrics | NumberSums:
        """Sums of nothing yet; total: of all weights, at most."""

    @abstractmethod
    def add(self, truth: pl.Series, weight: pl.Series | None, answers: Answers) -> None:
        """Judge the rows that have a target."""

    @abstractmethod
    def result(self, rows: int) -> FilePrediction:
        """What is said of the whole table."""

    @property
    def counted(self) -> Metrics | NumberSums | str | None:
        """What has been counted, for `join`; when off, why."""
        return self._sums if self.active else self.unscored

    def join(self, counted: Metrics | NumberSums | str | None) -> None:
        """Add what was counted elsewhere."""
        if isinstance(counted, Metrics | NumberSums):
            self._sums.join(counted)
        else:
            self._stop(self.unscored or counted)

    def _stop(self, why: str | None) -> None:
        self.active, self.unscored = False, why

    def _nothing(self, rows: int) -> FilePrediction:
        """The result where nothing was scored."""
        none = f"no row has a {self._spec.target.name!r} to compare with"
        return FilePrediction(rows, 0, unscored=none if self.active else self.unscored)

    def _weighed(
        self, known: NDArray[np.bool_], weight: pl.Series | None, codes: NDArray[Any] | None = None
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64] | None]:
        """Which of the `known` rows weigh something, and their whole weights; None where all rows count alike."""
        if self.weights is None or weight is None:
            return known, None
        whole = self.weights.of(weight, codes)
        known = known & (whole > 0)
        return known, whole[known]


class ClassScore(Score):
    """The metrics of classes; off where a label is none of the classes."""

    def _new_sums(self, total: int | None) -> Metrics:
        return Metrics(len(self._spec.target.classes), total=total)

    def add(self, truth: pl.Series, weight: pl.Series | None, answers: Answers) -> None:
        """See Score."""
        if self.weights is not None and weight is not None:
            truth = without_weightless(truth, weights_in_slice(weight, self.weights.name))
        target = self._spec.target
        codes = label_codes(truth, target)
        if codes is None:
            self._stop(f"the table has labels in {target.name!r} {strange_labels(truth, target)}")
            return
        assert answers.proba is not None
        rows, whole = self._weighed(codes >= 0, weight, codes)
        self._sums.add(codes[rows], answers.codes[rows], answers.proba[rows], whole)

    def result(self, rows: int) -> FilePrediction:
        """See Score."""
        found = self._sums.result() if self.active else []
        if not found:
            return self._nothing(rows)
        classes = label_values(self._spec.target)
        return FilePrediction(
            rows,
            self._sums.rows,
            self._sums.accuracy,
            found[-1].log_loss,
            tuple(_facts(one, classes) for one in found),
            weighted=self.weights is not None,
        )


class NumberScore(Score):
    """The metrics of a regression; off where the target of the table is no number."""

    def _new_sums(self, total: int | None) -> NumberSums:
        return NumberSums(self._spec.target.offset, total)

    def add(self, truth: pl.Series, weight: pl.Series | None, answers: Answers) -> None:
        """See Score."""
        if not (truth.dtype.is_numeric() or truth.dtype == pl.Null):
            name = self._spec.target.name
            self._stop(f"the forest predicts the number {name!r}, which is {truth.dtype} in the table; convert it")
            return
        assert answers.value is not None
        given = truth.cast(pl.Float64).fill_null(np.nan).to_numpy()
        known, whole = self._weighed(np.abs(given) <= LARGEST, weight)
        self._sums.add(given[known], answers.value[known], whole)

    def result(self, rows: int) -> FilePrediction:
        """See Score."""
        if not self.active or not self._sums.rows:
            return self._nothing(rows)
        weighted = self.weights is not None
        return FilePrediction(rows, self._sums.rows, **asdict(self._sums.result()), weighted=weighted)


def _facts(found: ClassMetrics, classes: list[Any]) -> dict[str, Any]:
    """The metrics by the names of the columns of `forest.oob.metrics`."""
    values = asdict(found)
    code = values.pop("code")
    return {"class": None if code is None else classes[code], **values}


def score(forest: GrownForest, answer: Any, data: Any, y: Any) -> float:
    """`Forest.score`; `answer` is what the forest predicts for the rows."""
    check_polars_threads()
    if isinstance(answer, pl.LazyFrame):
        answer = answer.collect()
    found = series_of(answer if isinstance(answer, np.ndarray) else answer["prediction"], None, "prediction")
    truth = _truth(forest, data) if y is None else series_of(y, None, "y")
    if len(truth) != len(found):
        raise DataError(f"y has {len(truth)} rows, and the table has {len(found)}; give a value for each row")
    known = truth.is_not_null() & (truth.is_not_nan() if truth.dtype.is_float() else True)
    if not known.any():
        raise DataError("no row has a true value, so there is nothing to score; give rows that have one")
    if not forest.is_regression:
        kinds = {found.dtype, truth.dtype}
        if pl.Boolean in kinds and any(kind.is_numeric() for kind in kinds):
            raise DataError(f"the true classes are {truth.dtype}, and those of the forest {found.dtype}; convert them")
        right = equal_labels(found, truth)
        return float(right.filter(known).cast(pl.Float64).to_numpy().mean())
    numbers = truth.filter(known).cast(pl.Float64).to_numpy()
    if not (np.abs(numbers) <= LARGEST).all():
        raise DataError(f"a true value is infinite, or of a size above {LARGEST:g}; drop these rows")
    sums = NumberSums(forest.spec.target.offset)
    sums.add(numbers, found.filter(known).to_numpy())
    r2 = sums.result().r2
    return float("nan") if r2 is None else r2


def _truth(forest: GrownForest, data: Any) -> pl.Series:
    name = forest.spec.target.name
    frame = data.collect() if isinstance(data, pl.LazyFrame) else frame_in_memory(data)
    if frame is None or name not in frame.columns:
        raise DataError(f"the table has no column {name!r} to score against; give y")
    return frame.get_column(name)
