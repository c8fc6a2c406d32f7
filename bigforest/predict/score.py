"""Comparison of predictions with the labels of a table.

Rows count by their weights, as in the out-of-bag report, where the table has the column of weights that the forest was
trained with; else they count alike.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.common.errors import DataError, counted
from bigforest.common.forks import check_polars_threads
from bigforest.encode.weights import check_weight, weights_in_slice, without_weightless
from bigforest.forest.load.predictor import Answers
from bigforest.metrics.classes import ClassMetrics, Metrics
from bigforest.metrics.numbers import LARGEST, NumberSums
from bigforest.schema.columns import cells
from bigforest.schema.dataspec import DataSpec
from bigforest.schema.labels import equal_labels, known_codes, label_values
from bigforest.source.in_memory import frame_in_memory, series_of

if TYPE_CHECKING:
    from bigforest.forest.grown import GrownForest
    from bigforest.source import Source

# Rows whose weights are read together, and about the largest sum of all weights in steps.
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
    poisson_deviance  of forests of the impurity poisson, likewise.
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
    poisson_deviance: float | None = None
    weighted: bool = False
    unscored: str | None = None


class ScoreWeights(NamedTuple):
    """How the rows of a table are weighed.

    name     the column of weights
    classes  weights of the classes besides; empty where classes have no weights
    step     what one of the whole numbers that stand for weights is
    total    largest sum of these numbers
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


def score_of(spec: DataSpec, impurity: str, source: Source) -> Score:
    """What judges the predictions of a forest of this impurity for a table, if it has the target, and its weights can
    be used."""
    try:
        return Score(spec, impurity, score_weights(spec, source), spec.target.name in source.schema)
    except DataError as error:
        return Score(spec, impurity, None, False, str(error))


class Score:
    """Metrics that are counted while batches pass; off as soon as a batch has targets that cannot be judged.

    unscored  why it is off, where the table has the target.
    """

    def __init__(
        self,
        spec: DataSpec,
        impurity: str,
        weights: ScoreWeights | None,
        active: bool,
        unscored: str | None = None,
    ) -> None:
        self.active = active
        self.unscored = unscored
        self._weights = weights
        self._spec = spec
        self._impurity = impurity
        target, total = spec.target, None if weights is None else weights.total
        self._sums: Metrics | NumberSums = (
            NumberSums(target.offset, total, poisson=impurity == "poisson")
            if target.is_regression
            else Metrics(len(target.classes), total=total)
        )

    def empty(self) -> Score:
        """The same without what was counted."""
        return Score(self._spec, self._impurity, self._weights, self.active, self.unscored)

    @property
    def columns(self) -> list[str]:
        """The columns of a table that are read: the target, and the weights; none when off."""
        weights = [] if self._weights is None else [self._weights.name]
        return [self._spec.target.name, *weights] if self.active else []

    def add(self, batch: pl.DataFrame, answers: Answers) -> None:
        """Judge the rows of a batch that have a target, unless off."""
        if not self.active:
            return
        truth = cells(batch, self._spec.target.name)
        weight = None if self._weights is None else cells(batch, self._weights.name)
        if isinstance(self._sums, Metrics):
            self._add_classes(self._sums, truth, weight, answers)
        else:
            self._add_numbers(self._sums, truth, weight, answers)

    def _add_classes(self, sums: Metrics, truth: pl.Series, weight: pl.Series | None, answers: Answers) -> None:
        if self._weights is not None and weight is not None:
            truth = without_weightless(truth, weights_in_slice(weight, self._weights.name))
        try:
            codes = known_codes(truth, self._spec.target, "the table")
        except DataError as error:
            self._stop(str(error))
            return
        assert answers.proba is not None
        rows, whole = self._weighed(codes >= 0, weight, codes)
        sums.add(codes[rows], answers.codes[rows], answers.proba[rows], whole)

    def _add_numbers(self, sums: NumberSums, truth: pl.Series, weight: pl.Series | None, answers: Answers) -> None:
        if not (truth.dtype.is_numeric() or truth.dtype == pl.Null):
            name = self._spec.target.name
            self._stop(f"the forest predicts the number {name!r}, which is {truth.dtype} in the table; convert it")
            return
        assert answers.value is not None
        given = truth.cast(pl.Float64).fill_null(np.nan).to_numpy()
        known, whole = self._weighed(np.abs(given) <= LARGEST, weight)
        sums.add(given[known], answers.value[known], whole)

    def _weighed(
        self, known: NDArray[np.bool_], weight: pl.Series | None, codes: NDArray[Any] | None = None
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64] | None]:
        """Which of the `known` rows weigh something, and their whole weights; None where all rows count alike."""
        if self._weights is None or weight is None:
            return known, None
        whole = self._weights.of(weight, codes)
        known = known & (whole > 0)
        return known, whole[known]

    @property
    def counted(self) -> Metrics | NumberSums | str | None:
        """What has been counted, for `join`; when off, why."""
        return self._sums if self.active else self.unscored

    def join(self, counted: Any) -> None:
        """Add what was counted elsewhere."""
        if isinstance(counted, Metrics | NumberSums):
            self._sums.join(counted)  # type: ignore[arg-type]
        else:
            self._stop(self.unscored or counted)

    def _stop(self, why: str | None) -> None:
        self.active, self.unscored = False, why

    def result(self, rows: int) -> FilePrediction:
        """The scores of the whole table."""
        sums, weighted = self._sums, self._weights is not None
        if not self.active or not sums.rows:
            none = f"no row has a {self._spec.target.name!r} to compare with"
            return FilePrediction(rows, 0, unscored=none if self.active else self.unscored)
        if isinstance(sums, NumberSums):
            return FilePrediction(rows, sums.rows, **asdict(sums.result()), weighted=weighted)
        found, classes = sums.result(), label_values(self._spec.target)
        metrics = tuple(_facts(one, classes) for one in found)
        return FilePrediction(rows, sums.rows, sums.accuracy, found[-1].log_loss, metrics, weighted=weighted)


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
        rows = counted(len(truth), "row")
        raise DataError(f"y has {rows}, and the table has {len(found):,}; give a value for each row")
    known = truth.is_not_null() & (truth.is_not_nan() if truth.dtype.is_float() else True)
    if not known.any():
        raise DataError("no row has a true value, so there is nothing to score; give rows that have one")
    if not forest.is_regression:
        kinds = {found.dtype, truth.dtype}
        if pl.Boolean in kinds and any(kind.is_numeric() for kind in kinds):
            raise DataError(f"the true classes are {truth.dtype}, and those of the forest {found.dtype}; convert them")
        right = equal_labels(found, truth)
        return float(right.filter(known).cast(pl.Float64).to_numpy().mean())
    if not truth.dtype.is_numeric():
        raise DataError(f"the true values are {truth.dtype}, and the forest predicts numbers; convert them")
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
