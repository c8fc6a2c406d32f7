"""Comparison of predictions with the labels of a table.

`Score` compares the batches of `predict_file`. If the table has the weight column of training, rows count by weight, as
in the out-of-bag report; otherwise all rows count alike. `score` compares a table in memory, without weights.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from bigforest.columns.dataspec import DataSpec
from bigforest.columns.labels import UNKNOWN, codes_or_unknown, label_values, strange_labels
from bigforest.columns.types import cells, without_words
from bigforest.encode.rows import check_weight, true_rows, weights_in_slice, whole_weights
from bigforest.errors import DataError, counted
from bigforest.events import Notice
from bigforest.execution.forks import check_polars_threads
from bigforest.metrics.classes import Metrics
from bigforest.metrics.numbers import LARGEST, NumberSums
from bigforest.predict.predictor import Predictions
from bigforest.predict.rows import nested_roles, reading_of
from bigforest.predict.vote_rule import REJECTED
from bigforest.progress import watching
from bigforest.source.in_memory import series_of
from bigforest.source.open import collected, table_in_memory

if TYPE_CHECKING:
    from bigforest.source.source import Source

# Rows whose weights are read together, and the approximate upper bound of the sum of all weights, in steps.
_BATCH_ROWS = 1 << 17
_MOST_STEPS = 2.0**52


@dataclass(frozen=True, slots=True)
class FilePrediction:
    """The result of `predict_file`.

    If the table has no labels, or labels that the forest does not know, `metrics` is empty and other measures are None.

    rows      rows written.
    scored    rows with a label and, if rows are weighted, a weight above 0.
    accuracy  share of the scored rows whose prediction is their label; a rejected row counts as wrong.
    log_loss  mean of -ln p(label), p clipped to [eps, 1 - eps] of float64 as in scikit-learn.
    metrics   for each class and, in the last row, for all, as `forest.oob.metrics`. The area under the ROC curve is
              None if too many probabilities of a class are different: more than 262,144 for two classes, more than
              524,288 / classes for three to 100.
    r2, mse, mae  regression metrics; None for classification.
    poisson_deviance  regression metric of forests with impurity poisson; None for others.
    weighted  True if rows are weighted, because the table has the weight column of training. Weights do not apply to
              `scored` and to numbers of rows in `metrics`.
    rejected  rows written without a prediction: rejected, or with equal votes.
    unscored  reason why there are no metrics, if the table has the target: a label that the forest does not know, no
              label at all, or weights that cannot be used; None otherwise.

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> import polars as pl
    >>> pl.DataFrame(table).write_csv("new.csv")
    >>> done = bf.predict_file(forest, "new.csv", "predictions.parquet")
    >>> done.rows, done.accuracy
    (40, 1.0)
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
    rejected: int = 0
    unscored: str | None = None


class ScoreWeights(NamedTuple):
    """Weights of the rows of a table, in whole numbers of steps.

    name     column of weights
    classes  weight of each class, a factor of the weights of its rows; empty if classes have no weights
    step     unit of the weights
    total    upper bound of the sum of all weights, in steps
    """

    name: str
    classes: tuple[float, ...]
    step: float
    total: int


def score_weights(spec: DataSpec, source: Source) -> ScoreWeights | None:
    """Read the weights of a table and choose their step; return None if rows are not weighted.

    Raises DataError for weights that are not numbers of 0 or more, and for a sum that is 0 or infinite.
    """
    weight = spec.weight
    if weight is None or weight.name is None or not {weight.name, spec.target.name} <= set(source.schema):
        return None
    check_weight(weight.name, source.schema[weight.name])
    heaviest = max(weight.classes, default=1.0)
    batches = source.batches([weight.name], _BATCH_ROWS)
    with np.errstate(over="ignore"):  # an infinite sum is refused
        sums = [float(weights_in_slice(cells(batch, weight.name), weight.name).sum()) for batch in batches]
    total = heaviest * sum(sums)
    if not 0.0 < total < np.inf:
        raise DataError(f"the weights {weight.name!r} sum to {total}; correct them, or drop the column")
    step = max(weight.step, total / _MOST_STEPS)
    return ScoreWeights(weight.name, weight.classes, step, int(total / step) + source.rows)


def score_of(spec: DataSpec, impurity: str, source: Source) -> Score:
    """Return an empty Score; it is inactive if the table lacks the target, or the weights cannot be used."""
    try:
        return Score(spec, impurity, score_weights(spec, source), spec.target.name in source.schema)
    except DataError as error:
        return Score(spec, impurity, None, False, str(error))


class Score:
    """Sums of metrics, batch by batch. Inactive after a batch whose targets cannot be compared with predictions.

    unscored  reason for being inactive; None while active, and if the table lacks the target.
    rejected  number of rows without a predicted class, also while inactive.
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
        self.rejected = 0
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
        return Score(self._spec, self._impurity, self._weights, self.active, self.unscored)

    @property
    def columns(self) -> list[str]:
        """Columns of the table that `add` needs: the target, and the weights; empty if inactive."""
        weights = [] if self._weights is None else [self._weights.name]
        return [self._spec.target.name, *weights] if self.active else []

    def add(self, batch: pl.DataFrame, predictions: Predictions) -> None:
        """Add the rows of a batch that have a target, unless inactive."""
        self.rejected += int(np.count_nonzero(predictions.codes == REJECTED))
        if not self.active:
            return
        weights = self._weights
        name, classes = (None, ()) if weights is None else (weights.name, weights.classes)
        try:
            rows = true_rows(batch, self._spec, name, classes)
        except DataError as error:
            self._stop(str(error))
            return
        known = rows.known if predictions.value is None else rows.known & (np.abs(rows.target) <= LARGEST)
        whole = None if weights is None else whole_weights(rows.weight[known], weights.step)
        if isinstance(self._sums, Metrics):
            assert predictions.proba is not None
            self._sums.add(rows.target[known], predictions.codes[known], predictions.proba[known], whole)
        else:
            assert predictions.value is not None
            self._sums.add(rows.target[known], predictions.value[known], whole)

    def join(self, other: Score) -> None:
        """Add the sums of other rows."""
        self.rejected += other.rejected
        if other.active:
            self._sums.join(other._sums)  # type: ignore[arg-type]
        else:
            self._stop(self.unscored or other.unscored)

    def _stop(self, reason: str | None) -> None:
        self.active, self.unscored = False, reason

    def result(self, rows: int) -> FilePrediction:
        sums, weighted = self._sums, self._weights is not None
        if not self.active or not sums.rows:
            none = f"no row has a {self._spec.target.name!r} to compare with"
            unscored = none if self.active else self.unscored
            return FilePrediction(rows, 0, rejected=self.rejected, unscored=unscored)
        if isinstance(sums, NumberSums):
            return FilePrediction(rows, sums.rows, **asdict(sums.result()), weighted=weighted)
        classes = [*label_values(self._spec.target), None]  # the last metrics are of all classes
        values = zip(classes, map(asdict, sums.result()), strict=True)
        metrics = tuple({"class": label} | {n: v for n, v in each.items() if n != "code"} for label, each in values)
        loss = metrics[-1]["log_loss"]
        return FilePrediction(rows, sums.rows, sums.accuracy, loss, metrics, weighted=weighted, rejected=self.rejected)


def score(spec: DataSpec, predicted: Any, y: Any) -> float:
    """Return the accuracy or R2 of `predicted`, the result of `Forest.predict`, for the true values `y`.

    R2 is nan for a single row. Raises DataError for values that cannot be compared with the predictions.
    """
    check_polars_threads()
    if isinstance(predicted, pl.LazyFrame):
        predicted = collected(predicted)
    column = predicted if isinstance(predicted, np.ndarray) else predicted["prediction"]
    predictions = series_of(column, None, "prediction")
    truth = series_of(y, None, "y").alias("")  # without a name, as `cells` returns columns
    truth = without_words(truth, spec.missing_words)
    if len(truth) != len(predictions):
        rows = counted(len(truth), "row")
        raise DataError(f"y has {rows}, and the table has {len(predictions):,}; give a value for each row")
    has_truth = truth.is_not_null() & (truth.is_not_nan() if truth.dtype.is_float() else True)
    if not has_truth.any():
        raise DataError("no row has a true value, so there is nothing to score; give rows that have one")
    if not spec.target.is_regression:
        codes = codes_or_unknown(truth, spec.target)[has_truth.to_numpy()]
        unknown = int(np.count_nonzero(codes == UNKNOWN))
        if unknown == len(codes):
            raise DataError(f"the true classes are labels {strange_labels(truth, spec.target)}")
        if unknown:
            with watching(None) as listener:
                some = f"{unknown:,} of {counted(len(codes), 'row')} {'counts' if unknown == 1 else 'count'} as wrong"
                listener(Notice(f"{some}, because of labels {strange_labels(truth, spec.target)}"))
        return float((codes == codes_or_unknown(predictions, spec.target)[has_truth.to_numpy()]).mean())
    if not truth.dtype.is_numeric():
        raise DataError(f"the true values are {truth.dtype}, and the forest predicts numbers; convert them")
    numbers = truth.filter(has_truth).cast(pl.Float64).to_numpy()
    if not (np.abs(numbers) <= LARGEST).all():
        raise DataError(f"a true value is infinite, or of a size above {LARGEST:g}; drop these rows")
    sums = NumberSums(spec.target.offset)
    sums.add(numbers, predictions.filter(has_truth).to_numpy())
    r2 = sums.result().r2
    return float("nan") if r2 is None else r2


def labelled(spec: DataSpec, data: Any) -> pl.DataFrame:
    """Return a table as a frame, because a stream can be read only once. Raises DataError if it lacks the target."""
    frame = table_in_memory(data, reading_of(spec))
    frame = frame.with_columns(found.expr.alias(name) for name, found in nested_roles(frame.schema, spec).items())
    if spec.target.name not in frame.columns:
        raise DataError(f"the table has no column {spec.target.name!r} to score against; give y")
    return frame
