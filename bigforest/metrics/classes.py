"""The quality of predicted classes, by scikit-learn's definitions, from rows in batches of any size.

Counts are integers. The loss of every row is rounded to steps of 2**-40 and summed as an integer, so a mean loss is the
same for any batches in any order. Without weights its rounding error is at most 2**-41. With weights, the loss of a row
is multiplied by its share of the total weight, times 2**16, before it is rounded. The area under the ROC curve of a
class against the rest follows exactly from the weights of both at each distinct score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

# Losses are multiples of 1 / _STEPS. The sum of 65,536 losses of at most 36.05 fits in 63 bits, so the total weight is
# scaled to _WHOLE = 65,536.
_STEPS = 2.0**40
_WHOLE = 2.0**16
# Probabilities whose losses are computed together: they fit in a processor cache.
_CELLS = 1 << 15
_EPSILON = np.finfo(np.float64).eps

# With more classes there are no areas under the curve, because they need all probabilities sorted.
MOST_CURVES = 100
# Most distinct scores in memory for two classes. For more classes, all curves together have at most twice as many.
MOST_SCORES = 1 << 18
# Bytes of anonymous memory for each score while scores are merged.
SCORE_BYTES = 120


@dataclass(frozen=True, slots=True)
class ClassMetrics:
    """One class against all others, or all classes if `code` is None. Rows count by weight in all but `rows`
    and `predicted`.

    rows       number of rows of the class; predicted: number of rows predicted as the class.
    precision, recall, f1   0 if the denominator is 0; for all classes: the mean over the classes that are the truth or
               the prediction of a row ("macro").
    log_loss   mean of -ln p(truth), p clipped to [eps, 1 - eps] of float64.
    brier      mean of (p - truth)**2; for all classes: the mean of the sum over the classes, halved if there are two.
    auc        area under the ROC curve of the class against the rest, the same for both classes if there are two; for
               all classes: the mean over the classes that have an area (macro, one against rest). None if all rows or
               no row are of the class, there are more than MOST_CURVES classes, or the scores were too many.
    """

    code: int | None
    rows: int
    predicted: int
    precision: float
    recall: float
    f1: float
    log_loss: float
    brier: float
    auc: float | None


class Metrics:
    """Sums of the metrics of classes over rows, which come in batches.

    max_scores  most distinct scores in memory for two classes, see MOST_SCORES.
    total       upper bound of the sum of the weights of all rows; None without weights.
    """

    def __init__(self, classes: int, max_scores: int = MOST_SCORES, total: int | None = None) -> None:
        curves = curves_of(classes)
        self.scores = [Scores(max_scores if curves == 1 else 2 * max_scores // curves) for _ in range(curves)]
        self._classes = classes
        self._total = total
        self._counts = np.zeros((3, classes), np.int64)  # rows, predicted, right
        self._weights = self._counts if total is None else np.zeros_like(self._counts)  # of the same rows
        self._losses = np.zeros((2, classes), object)  # log loss and Brier score of each class, Python's integers
        self._loss = 0

    @property
    def rows(self) -> int:
        return int(self._counts[0].sum())

    @property
    def accuracy(self) -> float:
        """Share of the weight of the rows that has the right prediction; there must be rows."""
        return int(self._weights[2].sum()) / int(self._weights[0].sum())

    def add(
        self,
        truth: NDArray[Any],
        prediction: NDArray[Any],
        proba: NDArray[np.float64],
        weight: NDArray[np.int64] | None = None,
    ) -> None:
        """Add rows: class codes, predicted codes (-1 for none), probabilities [rows, classes] and weights."""
        step = max(1, min(_CELLS // self._classes, 1 << 16))
        for start in range(0, len(truth), step):
            piece = slice(start, start + step)
            piece_weight = None if weight is None else weight[piece]
            rows = np.ascontiguousarray(proba[piece].T)
            self._add(truth[piece].astype(np.int64), prediction[piece].astype(np.int64), rows, piece_weight)
        for code, scores in enumerate(self.scores, self._classes == 2):  # of two classes, the second
            scores.add(proba[:, code], truth == code, weight)

    def join(self, other: Metrics) -> None:
        self._counts += other._counts
        if self._total is not None:
            self._weights += other._weights
        self._losses += other._losses
        self._loss += other._loss
        for scores, others in zip(self.scores, other.scores, strict=True):
            scores.join(others)

    def result(self) -> list[ClassMetrics]:
        """Return the metrics of each class, then of all classes; an empty list without rows."""
        if not self.rows:
            return []
        for each in self.scores:
            each.merge()
        return self.result_with([None if each.limit is not None else Area().add(each).value for each in self.scores])

    def result_with(self, areas: Sequence[float | None]) -> list[ClassMetrics]:
        """Return `result` with the area under each of the curves (`curves_of`); there must be rows."""
        rows = self.rows
        areas = [*areas] * 2 if self._classes == 2 else areas or [None] * self._classes
        areas_known = [area for area in areas if area is not None]
        weight = rows if self._total is None else int(self._weights[0].sum()) / self._total * _WHOLE
        each = [self._of_class(code, weight, areas[code]) for code in range(self._classes)]
        present = [metrics for metrics in each if metrics.rows or metrics.predicted]
        halves = 2 if self._classes == 2 else 1
        whole = ClassMetrics(
            code=None,
            rows=rows,
            predicted=int(self._counts[1].sum()),
            precision=sum(entry.precision for entry in present) / len(present),
            recall=sum(entry.recall for entry in present) / len(present),
            f1=sum(entry.f1 for entry in present) / len(present),
            log_loss=_mean(self._loss, weight),
            brier=_mean(int(self._losses[1].sum()), weight * halves),
            auc=sum(areas_known) / len(areas_known) if areas_known else None,
        )
        return [*each, whole]

    def _add(
        self,
        truth: NDArray[np.int64],
        prediction: NDArray[np.int64],
        proba: NDArray[np.float64],
        weight: NDArray[np.int64] | None,
    ) -> None:
        """Add some of the rows; `proba` is float64 [classes, rows]."""
        codes = np.arange(self._classes)[:, np.newaxis]
        actual, predicted = truth == codes, prediction == codes
        groups = (actual, predicted, actual & predicted)
        for count, rows in zip(self._counts, groups, strict=True):
            count += np.count_nonzero(rows, axis=1)
        steps: Any = _STEPS
        if weight is not None and self._total is not None:
            steps = weight / self._total * _WHOLE * _STEPS
            for total, rows in zip(self._weights, groups, strict=True):
                total += rows @ weight
        of_truth = np.where(actual, proba, 1.0 - proba)  # the probability of the true answer, class by class
        losses = (log_losses(of_truth), np.square(1.0 - of_truth))
        logs, squares = (np.rint(each * steps).astype(np.int64) for each in losses)
        self._loss += int((logs * actual).sum())
        for total, whole in zip(self._losses, (logs, squares), strict=True):
            total += whole.sum(axis=1).astype(object)

    def _of_class(self, code: int, weight: float, auc: float | None) -> ClassMetrics:
        actual, predicted, right = (int(count) for count in self._weights[:, code])
        return ClassMetrics(
            code,
            int(self._counts[0, code]),
            int(self._counts[1, code]),
            right / predicted if predicted else 0.0,
            right / actual if actual else 0.0,
            2 * right / (actual + predicted) if actual + predicted else 0.0,
            _mean(self._losses[0, code], weight),
            _mean(self._losses[1, code], weight),
            auc,
        )


def curves_of(classes: int) -> int:
    """Return the number of ROC curves: 1 for two classes; one per class for 3 to MOST_CURVES classes; else 0."""
    return 1 if classes == 2 else classes if 2 < classes <= MOST_CURVES else 0


class Scores:
    """Distinct scores, 0 or more, ascending, with the weight of the rows of the first and of the second class at each.

    Scores up to `above` are not counted. At most `most` scores are kept. If there are more, the upper ones are dropped
    until half of `most` are left: `limit` is then the lowest dropped score, and another pass over the rows counts the
    scores from it on.
    """

    def __init__(self, most: int, above: float = -np.inf) -> None:
        self.limit: float | None = None
        self.values = np.empty(0)
        self.counts: Sequence[NDArray[np.int64]] = [np.empty(0, np.int64)] * 2
        self._most = most
        self._above = above
        self._waiting: list[tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64] | None]] = []
        self._size = 0

    def add(
        self, scores: NDArray[np.float64], second: NDArray[np.bool_], weight: NDArray[np.int64] | None = None
    ) -> None:
        """Add rows: scores, membership of the second class, and weights."""
        counted = scores > self._above
        if self.limit is not None:
            counted &= scores < self.limit
        self._waiting.append((scores[counted], second[counted], None if weight is None else weight[counted]))
        self._size += self._waiting[-1][0].size
        self._merge_many()

    def merge(self) -> None:
        waiting, self._waiting, self._size = self._waiting, [], 0
        if not waiting:
            return
        scores = np.concatenate([part for part, _, _ in waiting])
        # Scores are 0 or more, so their bits have the same order, and the sign bit is free for the class.
        keys = scores.view(np.uint64)
        keys <<= np.uint64(1)
        keys |= np.concatenate([part for _, part, _ in waiting])
        if all(weight is None for _, _, weight in waiting):
            keys = pl.Series(keys).sort(multithreaded=False).to_numpy()  # numpy's sort takes three times as long
            first = _first_of_each(keys >> np.uint64(1))
            both = np.diff(first, append=keys.size)
            second = np.add.reduceat(keys & np.uint64(1), first).astype(np.int64) if keys.size else both
        else:
            weights = [np.ones(part.size, np.int64) if weight is None else weight for part, _, weight in waiting]
            order = np.argsort(keys)
            keys, total = keys[order], np.concatenate(weights)[order]
            first = _first_of_each(keys >> np.uint64(1))
            both = np.add.reduceat(total, first) if keys.size else total
            total[keys & np.uint64(1) == 0] = 0
            second = np.add.reduceat(total, first) if keys.size else total
        self._take((keys[first] >> np.uint64(1)).view(np.float64), [both - second, second])

    def join(self, other: Scores) -> None:
        """Add the rows of `other`, which has the same `above`."""
        if other.limit is not None:
            self.limit = other.limit if self.limit is None else min(self.limit, other.limit)
        if other.values.size:
            self.merge()
            self._take(other.values, other.counts)
        self._waiting += other._waiting
        self._size += other._size
        self._merge_many()

    def _merge_many(self) -> None:
        """Merge once the scores may exceed `most`, unless few wait in comparison with `most` or the merged ones."""
        if self._size >= max(self._most - self.values.size, self._most // 4, self.values.size // 2):
            self.merge()

    def _take(self, values: NDArray[np.float64], counts: Sequence[NDArray[np.int64]]) -> None:
        """Add counts of ascending scores, and drop the upper scores if there are more than `most`."""
        if self.values.size and values.size:
            values = np.concatenate([self.values, values])
            order = np.argsort(values, kind="stable")  # merges sorted runs
            values, counts = (
                values[order],
                [np.concatenate(count)[order] for count in zip(self.counts, counts, strict=True)],
            )
            first = _first_of_each(values)
            if first.size < values.size:
                values, counts = values[first], [np.add.reduceat(count, first) for count in counts]
        elif not values.size:
            values, counts = self.values, self.counts
        kept = values.size if self.limit is None else int(np.searchsorted(values, self.limit))
        if kept > self._most:
            kept = self._most // 2
            self.limit = float(values[kept])
        if kept < values.size:
            values, counts = values[:kept].copy(), [count[:kept].copy() for count in counts]
        self.values, self.counts = values, counts


def _first_of_each(ascending: NDArray[Any]) -> NDArray[np.int64]:
    return np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1])[: ascending.size])


class Area:
    """Area under the ROC curve, from counts of ascending scores, added pass after pass.

    It is the probability that a random row of the second class has a higher score than one of the first; ties count
    half.
    """

    def __init__(self) -> None:
        self._pairs = self._first = self._second = 0

    def add(self, scores: Scores) -> Area:
        """Add the next scores, all above the earlier ones."""
        scores.merge()
        first, second = scores.counts
        below = self._first + np.cumsum(first) - first
        self._first += int(first.sum())
        whole = 2 * self._first * int(second.sum())  # no sum of these products is larger
        twice = 2 * below + first
        self._pairs += int(second @ twice) if whole < 2**63 else sum(map(mul, second.tolist(), twice.tolist()))
        self._second += int(second.sum())
        return self

    def join(self, other: Area) -> None:
        """Add the scores of `other`, all above the earlier ones."""
        self._pairs += other._pairs + 2 * self._first * other._second
        self._first += other._first
        self._second += other._second

    @property
    def value(self) -> float | None:
        """Area; None if a class has no row."""
        return self._pairs / (2 * self._first * self._second) if self._first and self._second else None


def log_losses(proba: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log loss of rows whose true class has these probabilities, clipped to [eps, 1 - eps] of float64."""
    return -np.log(proba.clip(_EPSILON, 1 - _EPSILON))


def _mean(total: int, weight: float) -> float:
    return int(total) / (weight * int(_STEPS))
