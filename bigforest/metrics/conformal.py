"""Intervals, sets of classes and rejection, calibrated on rows whose truth and prediction are known.

Conformal prediction on out-of-bag rows (Johansson, Bostrom, Lofstrom and Linusson 2014): of n calibration rows, the
k-th smallest error is used, k = ceil(coverage * (n + 1)). It bounds the error of a new row with a probability of at
least `coverage` if calibration rows and new rows are exchangeable. The bound is computed for each category alone
(Mondrian, Vovk 2005): bins of predictions, classes, or values of a column. Oracle: tests/naive/conformal.py.

Intervals by the jackknife+ after bootstrap (Kim, Xu and Barber 2020): the forest without calibration row i consists of
the trees whose bags leave it out. Let f_i be its prediction for a new row, and R_i its error on row i. The interval is
from the floor(alpha (n + 1))-th smallest of the n numbers f_i - R_i to the ceil((1 - alpha)(n + 1))-th smallest of the
f_i + R_i, alpha = 1 - coverage. It contains the true value with a probability of at least 1 - 2 alpha, for any data,
under three conditions: rows are exchangeable, the number of trees was drawn from a binomial distribution, and no option
was selected on the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import ConfigError, api, counted

# Most bins of predictions.
MOST_BINS = 20
# Fewest rows of a bin, and fewest of its rows that are expected to have an error above the quantile. With fewer, the
# quantile would be imprecise.
_BIN_ROWS = 200
_BIN_ERRORS = 10
# Added to the spread of the trees, as a multiple of its mean. Of 0.01, 0.1, 0.3 and 1, this value has the narrowest
# intervals on the data sets "choose" of benchmarks/intervals.py.
_SENSITIVITY = 1.0
# Bound of the rounding error of a spread, as a share of the largest prediction.
_ROUNDING = 2.0**-49
# A risk is rounded to a fraction with a denominator of at most _RISK_PARTS, so that rows and errors are compared as
# 64-bit integers.
_RISK_PARTS = 10**9


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals around predicted numbers.

    edges  edges between the bins of predictions, ascending; a bin includes its upper edge.
    radii  half the width of the interval in each bin, for rows of difficulty 1; one more than edges.
    scale  mean spread of the trees, the unit of `difficulty`; 0 if all rows have difficulty 1.
    """

    edges: tuple[float, ...]
    radii: tuple[float, ...]
    scale: float = 0.0

    columns: ClassVar[tuple[str, ...]] = ("low", "high")

    @property
    def by_spread(self) -> bool:
        """True if the widths follow the spread of the trees."""
        return self.scale > 0.0

    def bounds(self, value: NDArray[np.float64], spread: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return the lower and upper end for each prediction, float64 [rows, 2].

        spread  float64 [rows], standard deviation of the predictions of the trees; needed if `scale` is not 0.
        """
        radius = np.array(self.radii)[np.searchsorted(np.array(self.edges), value)]
        if self.scale:
            assert spread is not None
            radius = radius * difficulty(spread, self.scale)
        return np.stack([value - radius, value + radius], axis=1)


def difficulty(spread: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Return the difficulty of rows (Bostrom, Linusson, Lofstrom and Johansson 2017).

    spread  spread of the trees on each row.
    scale   mean spread on the calibration rows.
    """
    return spread / scale + _SENSITIVITY


@dataclass(frozen=True, slots=True)
class ClassSets:
    """Sets of classes.

    floors  for each class, the smallest probability with which it is in the set of a row.
    """

    floors: tuple[float, ...]

    columns: ClassVar[tuple[str, ...]] = ("set",)
    by_spread: ClassVar[bool] = False

    def members(self, shares: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return True where a class is in the set of a row, bool [rows, classes].

        shares  float64 [rows, classes], probabilities.
        """
        return shares >= np.array(self.floors)


def fit_intervals(
    prediction: NDArray[np.float64],
    truth: NDArray[np.float64],
    coverage: float,
    spread: NDArray[np.float64] | None = None,
) -> Intervals:
    """Calibrate intervals on rows, in bins of the prediction.

    spread  spread of the trees on each row: errors are divided by the `difficulty`. None if all rows have difficulty 1.

    Bins have equally many rows as far as ties allow. The last bin also has the remaining rows, if they are too few for
    another bin. A table with too few rows for two bins has one. Raises ConfigError if there are too few rows for the
    coverage.
    """
    rows = prediction.size
    check_enough_rows(rows, coverage)
    order = np.argsort(prediction, kind="stable")
    scale = 0.0 if spread is None else float(spread.mean())
    if scale <= _ROUNDING * float(np.abs(prediction).max()):
        scale = 0.0  # the trees agree, and differ by rounding alone
    values, errors = prediction[order], np.abs(truth - prediction)[order]
    if spread is not None and scale:
        errors = errors / difficulty(spread[order], scale)
    least = max(_BIN_ROWS, ceil(_BIN_ERRORS / (1 - exact_share(coverage))), -(-rows // MOST_BINS))
    edges: list[float] = []
    radii: list[float] = []
    begin = 0
    while begin < rows:
        end = rows
        if begin + least <= rows:
            end = int(np.searchsorted(values, values[begin + least - 1], side="right"))
        if rows - end < least:
            end = rows
        else:
            edges.append(float(values[end - 1]))
        radii.append(_smallest(errors[begin:end], rank_of(coverage, end - begin)))
        begin = end
    return Intervals(tuple(edges), tuple(radii), scale)


def fit_class_sets(truth: NDArray[np.int64], share: NDArray[np.float64], classes: int, coverage: float) -> ClassSets:
    """Calibrate sets of classes on rows, by class.

    Classes with too few rows are calibrated together, see `pooled_categories`.

    truth  the class of each row.
    share  the predicted probability of the class of the row.

    Raises ConfigError if all rows together are too few.
    """
    check_enough_rows(truth.size, coverage)
    category = pooled_categories(np.bincount(truth, minlength=classes), coverage)
    of_row = category[truth]
    floors = np.empty(classes)
    for pool in np.unique(category):
        scores = -share[of_row == pool]
        floors[category == pool] = -_smallest(scores, rank_of(coverage, scores.size))
    return ClassSets(tuple(floors.tolist()))


class RejectCurve(NamedTuple):
    """Predicted rows, and errors among them, if all rows of at least some confidence are predicted.

    confidence  float64, distinct confidences of the rows, descending.
    predicted   int64, number of rows of at least this confidence.
    wrong       int64, number of these rows whose predicted class is not the true one.
    """

    confidence: NDArray[np.float64]
    predicted: NDArray[np.int64]
    wrong: NDArray[np.int64]

    def least_share(self, risk: float) -> float:
        """Choose the smallest probability of the predicted class at which a row is predicted.

        It is 0 to predict all rows, and infinity to predict none. This threshold minimises errors minus `risk` times
        predicted rows (Chow 1970); among ties as many rows as possible are predicted. Equivalently, the error at each
        confidence, fitted by isotonic regression so that it does not rise with the confidence, exceeds the risk below
        the threshold. Raises ConfigError for fewer than 1 / risk rows.
        """
        exact, rows = exact_share(risk), int(self.predicted.max(initial=0))
        if rows * exact < 1:
            raise ConfigError(
                f"the forest has {counted(rows, 'row')} out of bag, too few to say where the error exceeds {risk}: "
                f"this needs {ceil(1 / exact)}; raise {api('reject_above')}, or train on more rows"
            )
        exact = exact.limit_denominator(_RISK_PARTS)
        loss = self.wrong * exact.denominator - self.predicted * exact.numerator
        best = loss.size - 1 - int(loss[::-1].argmin())
        if loss[best] > 0:
            return inf
        return 0.0 if best == loss.size - 1 else float(self.confidence[best])


def reject_curve(confidence: NDArray[np.float64], wrong: NDArray[np.bool_]) -> RejectCurve:
    """Count the remaining errors if the least certain rows are rejected (Chow 1970).

    confidence  probability of the predicted class of each row.
    wrong       True where the predicted class is not the true one.
    """
    order = np.argsort(-confidence, kind="stable")
    values = confidence[order]
    last = np.flatnonzero(np.diff(values, append=-inf))
    errors = np.cumsum(wrong[order])[last].astype(np.int64)
    return RejectCurve(values[last], (last + 1).astype(np.int64), errors)


def fewest_rows(coverage: float) -> int:
    """Return the smallest number n of calibration rows with ceil(coverage * (n + 1)) <= n."""
    exact = exact_share(coverage)
    return ceil(exact / (1 - exact))


def pooled_categories(counts: NDArray[np.int64], coverage: float) -> NDArray[np.int64]:
    """Return for each category the number of the pool in which it is calibrated, int64 [categories].

    counts  int64 [categories], rows of each; their sum is enough for a quantile.

    Categories with too few rows for a quantile share a pool, with as many of the next rarest categories as needed. The
    pool has the number of the rarest category. Any other category is alone, in the pool of its own number.
    """
    fewest = fewest_rows(coverage)
    rarest = np.argsort(counts, kind="stable")
    pooled = int(np.count_nonzero(counts < fewest))
    while pooled and counts[rarest[:pooled]].sum() < fewest:
        pooled += 1
    category = np.arange(counts.size)
    category[rarest[:pooled]] = rarest[0]
    return category


def check_enough_rows(rows: int, coverage: float) -> None:
    if rows < fewest_rows(coverage):
        raise ConfigError(
            f"the forest has {counted(rows, 'row')} out of bag, too few for a coverage of {coverage}: this needs "
            f"{fewest_rows(coverage)}; lower {api('coverage')}, or train on more rows"
        )


def exact_share(share: float) -> Fraction:
    """Return the decimal number as written: 0.9 is 9/10, not the nearest float64."""
    return Fraction(repr(float(share)))


def rank_of(coverage: float, rows: int) -> int:
    """Return the rank, from 1, of the calibration error that bounds the error of a new row.

    rows  number of calibration rows.
    """
    return ceil(exact_share(coverage) * (rows + 1))


def _smallest(values: NDArray[np.float64], rank: int) -> float:
    """Return the value of this rank, from 1."""
    return float(np.partition(values, rank - 1)[rank - 1])


@dataclass(frozen=True, slots=True)
class ByCategory:
    """Calibration by the value of a row in a column.

    column      name of the column.
    dtype       name of the type of the column in the calibration rows.
    levels      values of the column in the calibration rows, as text.
    calibrated  intervals or sets for each level, then for other levels, and for missing values.
    """

    column: str
    dtype: str
    levels: tuple[str, ...]
    calibrated: tuple[Intervals | ClassSets, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.calibrated[0].columns

    @property
    def by_spread(self) -> bool:
        """True if some of the intervals follow the spread of the trees."""
        return any(each.by_spread for each in self.calibrated)

    def groups(self, codes: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], Intervals | ClassSets]]:
        """Yield the rows of each category, ascending, and its intervals or sets.

        codes  category of each row: its place in `calibrated`.
        """
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(self.calibrated)))
        for fitted, begin, end in zip(self.calibrated, [0, *ends[:-1]], ends, strict=True):
            if end > begin:
                yield order[begin:end], fitted


def fit_by_category(
    column: str,
    dtype: str,
    levels: tuple[str, ...],
    codes: NDArray[np.int64],
    coverage: float,
    fit: Callable[[NDArray[np.bool_]], Intervals | ClassSets],
) -> ByCategory:
    """Calibrate intervals or sets for each category on its rows.

    Categories with too few rows are calibrated together (`pooled_categories`), categories without rows on all rows.

    codes  category of each calibration row: the place of its level, or len(levels) + 1 if the value is missing.
    fit    function that calibrates on some of the rows, given as a mask.

    Raises ConfigError if all rows together are too few.
    """
    check_enough_rows(codes.size, coverage)
    present, place = np.unique(codes, return_inverse=True)
    category = pooled_categories(np.bincount(place), coverage)
    rules: dict[int, Intervals | ClassSets] = {}
    for pool in np.unique(category).tolist():
        calibrated = fit(category[place] == pool)
        rules |= dict.fromkeys(present[category == pool].tolist(), calibrated)
    rest = fit(np.ones(codes.size, np.bool_))
    return ByCategory(column, dtype, levels, tuple(rules.get(code, rest) for code in range(len(levels) + 2)))


# Predictions of trees are rounded to whole numbers up to this size. A sum of 8,192 of them is exact in float64, so it
# does not depend on the order in which a matrix product adds them.
_STEPS = 2.0**40
MOST_TREES = 1 << 13
# Most cells, rows times calibration rows, of an array in memory, unless a single row has more.
_CELLS = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class JackknifeIntervals:
    """Intervals by the jackknife+: each calibration row is predicted by the trees whose bags do not contain it.

    errors  float64 [rows], absolute error of this prediction for each calibration row.
    left    float64 [trees, rows], 1 if the row is not in the bag of the tree, else 0.
    rank    place of the upper bound of a new row, from 1, among the ascending sums of prediction and error.
    """

    errors: NDArray[np.float64]
    left: NDArray[np.float64]
    rank: int

    columns: ClassVar[tuple[str, ...]] = ("low", "high")
    by_spread: ClassVar[bool] = False

    @property
    def nbytes(self) -> int:
        return self.errors.nbytes + self.left.nbytes

    def bounds(self, values: NDArray[np.float64], unit: float) -> NDArray[np.float64]:
        """Return the lower and upper end for each row, float64 [rows, 2].

        values  predictions of each tree as whole numbers (`whole_values`), float64 [rows, trees].
        unit    the value of the whole number 1.
        """
        limits = np.empty((len(values), 2))
        step = max(1, _CELLS // self.errors.size)
        share = unit / self.left.sum(axis=0)
        for start in range(0, len(values), step):
            span = slice(start, start + step)
            means = (values[span] @ self.left) * share
            for column, bounds, sign in ((0, self.errors - means, -1), (1, self.errors + means, 1)):
                limits[span, column] = sign * np.partition(bounds, self.rank - 1, axis=1)[:, self.rank - 1]
        return limits


def fit_jackknife(errors: NDArray[np.float64], left: NDArray[np.float64], coverage: float) -> JackknifeIntervals:
    """Calibrate intervals on rows, each left out by at least one tree. Arguments as in JackknifeIntervals."""
    check_enough_rows(errors.size, coverage)
    return JackknifeIntervals(errors, left, rank_of(coverage, errors.size))


def check_trees(trees: int) -> None:
    if trees > MOST_TREES:
        raise ConfigError(
            f"the jackknife adds up at most {MOST_TREES} trees, and the forest has {trees}; drop {api('jackknife')}"
        )


def whole_values(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return the values of leaves, rounded to whole numbers of a unit, and the unit."""
    largest = float(np.abs(values).max(initial=0.0))
    unit = largest / _STEPS if largest / _STEPS > 0.0 else 1.0
    return np.rint(values / unit), unit
