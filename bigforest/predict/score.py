"""How well predictions met the labels of a table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.encode.dataspec import DataSpec, Label
from bigforest.forest.votes import label_codes
from bigforest.forest.voting import Answers
from bigforest.metrics import ClassMetrics, Metrics


@dataclass(frozen=True, slots=True)
class FilePrediction:
    """What `predict_file` did. accuracy and log_loss are None, and metrics empty, without labels or with unknown ones.

    rows      rows written.
    scored    rows that have a label.
    accuracy  share of these whose prediction is their label; a rejected row counts as wrong.
    log_loss  mean of -ln p(label), p clipped to [eps, 1 - eps] of float64 as in scikit-learn.
    metrics   of each class and, last, of all, as `forest.oob.metrics`. The area under the ROC curve is None when rows
              have more than 262,144 different probabilities.
    """

    rows: int
    scored: int
    accuracy: float | None
    log_loss: float | None
    metrics: tuple[dict[str, Any], ...]


class Score:
    """The metrics, counted while batches pass; off as soon as a label is none of the classes."""

    def __init__(self, spec: DataSpec, active: bool) -> None:
        self.active = active
        self._spec = spec
        self._metrics = Metrics(len(spec.target.classes))

    def add(self, truth: pl.Series, answers: Answers) -> None:
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
        found = self._metrics.result() if self.active else []
        if not found:
            return FilePrediction(rows, 0, None, None, ())
        scored, classes = self._metrics.rows, self._spec.target.classes
        return FilePrediction(
            rows, scored, self._metrics.right / scored, found[-1].log_loss, tuple(_facts(one, classes) for one in found)
        )


def _facts(found: ClassMetrics, classes: tuple[Label, ...]) -> dict[str, Any]:
    """The metrics by the names of the columns of `forest.oob.metrics`."""
    values = asdict(found)
    code = values.pop("code")
    return {"class": None if code is None else classes[code], **values}
