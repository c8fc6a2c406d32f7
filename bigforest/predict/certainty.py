"""Calibration of intervals, sets and rejection on the out-of-bag predictions of the training rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import arrow_array, as_numpy, compute, is_valid
from bigforest.columns.labels import proba_names, stored_labels
from bigforest.columns.types import is_text_type, level_text, places_of, type_name
from bigforest.errors import ConfigError, DataError, api, damaged_forest
from bigforest.forest.forest_files import ForestFiles
from bigforest.forest.format import SPREAD
from bigforest.forest.oob_report import has_column, oob_row_batches, oob_rows_path
from bigforest.metrics.conformal import (
    ByCategory,
    ClassSets,
    Intervals,
    JackknifeIntervals,
    RejectCurve,
    check_trees,
    fit_by_category,
    fit_class_sets,
    fit_intervals,
    fit_jackknife,
    reject_curve,
)

# Number of rows that are drawn at random from a larger table. The standard deviation of the coverage is then below
# 0.001.
MOST_ROWS = 1 << 18
# Most rows that the jackknife uses. The standard deviation of a coverage of 0.9 is then 0.005.
JACKKNIFE_ROWS = 1 << 12
# Intervals are scaled by the spread of the trees if the median row has at least this many trees that vote on it.
_FEWEST_VOTERS = 10
# Tolerance for shares above 1: they are quotients of rounded sums.
_ROUNDING = 1e-6


class CalibrationRows(NamedTuple):
    """Rows with an out-of-bag prediction, in the order of the table.

    place       int64, position among the rows that the forest was grown on.
    number      uint64, number of the row in the training table.
    draw        uint64, random number of the row.
    truth       float64, the target; or int64, the class.
    prediction  float64, the predicted number; or int64, the predicted class.
    share       float64, probability of the true class; empty for regression.
    confidence  float64, largest probability of a class; empty for regression.
    spread      float64, spread of the predictions of the trees, nan if unknown; empty for classification.
    voters      int64, number of trees that voted on the row; empty for classification.
    """

    place: NDArray[np.int64]
    number: NDArray[np.uint64]
    draw: NDArray[np.uint64]
    truth: NDArray[np.float64] | NDArray[np.int64]
    prediction: NDArray[np.float64] | NDArray[np.int64]
    share: NDArray[np.float64]
    confidence: NDArray[np.float64]
    spread: NDArray[np.float64]
    voters: NDArray[np.int64]

    def chosen(self, keep: NDArray[np.bool_]) -> CalibrationRows:
        """Return the rows selected by a mask, bool [rows]."""
        return CalibrationRows._make(array[keep] if array.size else array for array in self)


class Calibration:
    """Calibration of a forest on the out-of-bag predictions of its training rows. All rows have equal weights.

    If rows were held out of all bags, only rows on which all trees voted are used. A few of these rows were not held
    out, but are in no bag by chance. That chance does not depend on their values.
    """

    def __init__(self, files: ForestFiles) -> None:
        """Read the rows, and keep at most about 2 * MOST_ROWS.

        Raises ConfigError without an out-of-bag report, and FormatError for damaged files.
        """
        try:
            files.oob  # noqa: B018, checks the files
        except ConfigError as error:
            raise ConfigError(
                f"{api('coverage')} and {api('reject_above')} are calibrated on out-of-bag rows: {error.text}"
            ) from error
        self._classes = len(files.spec.target.classes)
        self._path = oob_rows_path(files.directory, 0)
        with files.same_run():
            rows = _read(files, self._classes)
        if rows.place.size and (
            rows.place[-1] >= files.spec.rows or rows.number.max() >= files.spec.rows + files.spec.dropped
        ):
            raise damaged_forest(f"{self._path} has rows that the table does not have")
        voters = rows.voters
        by_spread = voters.size > 0 and np.median(voters) >= _FEWEST_VOTERS and not np.isnan(rows.spread).all()
        self._by_spread = bool(by_spread)
        self._rows = rows
        # Rows with a single voter have no spread.
        self._fitting = rows.chosen(~np.isnan(rows.spread)) if by_spread else rows
        # Arguments of `fit_jackknife`, computed once: errors of the rows, and 1.0 where a tree leaves out a row.
        self._left: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def conformal(self, coverage: float, chosen: NDArray[np.bool_] | None = None) -> Intervals | ClassSets:
        """Return prediction sets of classes, or intervals for regression. Intervals are scaled by the spread of the
        trees if enough trees vote on a row.

        chosen  bool [rows], rows to calibrate on; None for all

        Raises ConfigError if there are too few rows.
        """
        rows = self._fitting if chosen is None else self._fitting.chosen(chosen)
        if self._classes:
            return fit_class_sets(rows.truth, rows.share, self._classes, coverage)  # type: ignore[arg-type]
        spread = rows.spread if self._by_spread else None
        return fit_intervals(rows.prediction, rows.truth, coverage, spread)  # type: ignore[arg-type]

    def by_category(self, column: pl.Series, coverage: float) -> ByCategory:
        """Return intervals or sets that are calibrated separately for each value of a column.

        column  values of all rows of the training table

        Raises ConfigError if there are too few rows.
        """
        categories = column.gather(self._fitting.number)
        levels = tuple(level_text(categories).drop_nulls().unique().sort())
        fit = partial(self.conformal, coverage)
        trained = type_name(categories.dtype)
        codes = category_codes(categories, levels, trained)
        return fit_by_category(column.name, trained, levels, codes, coverage, fit)

    def jackknife(self, bag: Callable[[int], NDArray[np.uint16]], trees: int, coverage: float) -> JackknifeIntervals:
        """Return intervals by the jackknife+ of a regression forest with `trees` trees.

        bag  function that returns how often each training row is in the bag of a tree, uint16 [rows].

        Bags are drawn at the first call only. Raises ConfigError if there are too few rows, or too many trees, and
        FormatError if the number of votes on a row is not the number of bags without the row.
        """
        if self._left is None:
            check_trees(trees)
            rows = self._rows.chosen(_lowest(self._rows.draw, JACKKNIFE_ROWS))
            left = np.empty((trees, rows.place.size))
            for tree in range(trees):
                left[tree] = bag(tree)[rows.place] == 0
            if not np.array_equal(left.sum(axis=0), rows.voters):
                raise damaged_forest(f"{self._path}: a row has another number of trees than there are bags without it")
            self._left = np.abs(rows.truth - rows.prediction), left
        return fit_jackknife(*self._left, coverage)

    def reject_curve(self) -> RejectCurve:
        """Return the error-reject curve of a classification forest."""
        rows = self._rows.chosen(_lowest(self._rows.draw, MOST_ROWS))
        return reject_curve(rows.confidence, rows.truth != rows.prediction)


def _read(files: ForestFiles, classes: int) -> CalibrationRows:
    """Read the out-of-bag rows. If there are more than MOST_ROWS, thin them by their draws (`_thin`).

    At most about four times MOST_ROWS rows are in memory. The result does not depend on batches.
    """
    from bigforest.kernels.common.rng import PURPOSE_TIE, stream_key

    path = oob_rows_path(files.directory, 0)
    names = ["row", "truth", "prediction", "trees", *proba_names(files.spec.target)]
    if not classes and has_column(path, SPREAD):
        names.append(SPREAD)
    key = stream_key(files.config.seed, PURPOSE_TIE, 0, 1)  # streams of predictions have 0 as their second number
    held: list[CalibrationRows] = []
    size = begin = 0
    for batch in oob_row_batches(files.directory, names):
        places = arrow_array(np.arange(begin, begin + batch.num_rows))
        begin += batch.num_rows
        used = batch.append_column("place", places).filter(compute().is_valid(batch.column("prediction")))
        if files.config.calibration is not None:
            used = used.filter(compute().equal(used.column("trees"), files.trees))
        try:
            read = _numbers(used, key) if classes == 0 else _shares(used, key, stored_labels(files.spec.target))
        except ValueError as error:
            raise damaged_forest(f"{path}: {error}") from error
        held.append(read)
        size += read.draw.size
        if size > 2 * MOST_ROWS:
            held = [_thin(_join_rows(held), classes)]
            size = held[0].draw.size
    return _thin(_join_rows(held), classes)


def category_codes(column: pl.Series, levels: Sequence[str], trained: str) -> NDArray[np.int64]:
    """Return the position of each cell among the levels; len(levels) for other values, 1 more for missing ones.

    trained  type of the column in the training table

    Raises DataError for fractions.
    """
    if column.dtype.is_float():
        check_category(column)
    places = places_of(column, pl.Series(levels, dtype=pl.String), trained=trained)
    codes = places.fill_null(len(levels)).to_numpy().astype(np.int64)
    codes[level_text(column).is_null().to_numpy()] = len(levels) + 1
    return codes


def _row_draws(
    batch: pa.RecordBatch, key: np.uint64
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Return `place`, `number` and `draw` of CalibrationRows."""
    from bigforest.kernels.common.rng import draw_rows

    places = as_numpy(batch.column("place"))
    numbers = as_numpy(batch.column("row")).astype(np.uint64)
    return places, numbers, draw_rows(key, numbers)


def _numbers(batch: pa.RecordBatch, key: np.uint64) -> CalibrationRows:
    """Convert a batch of a regression forest. Raises ValueError for numbers that are not finite."""
    truth, prediction = (as_numpy(batch.column(name), np.nan) for name in ("truth", "prediction"))
    if not (np.isfinite(truth).all() and np.isfinite(prediction).all()):
        raise ValueError("a truth or prediction is not finite")
    voters, spread = as_numpy(batch.column("trees")), np.full(truth.size, np.nan)
    if SPREAD in batch.schema.names:
        column = batch.column(SPREAD)
        spread = as_numpy(column, np.nan).astype(np.float64)
        valid = is_valid(column)
        if not (np.isfinite(spread[valid]).all() and (spread[valid] >= 0.0).all()):
            raise ValueError("a spread is negative or not finite")
    none = np.empty(0)
    return CalibrationRows(*_row_draws(batch, key), truth, prediction, none, none, spread, voters.astype(np.int64))


def _shares(batch: pa.RecordBatch, key: np.uint64, labels: pa.Array) -> CalibrationRows:
    """Convert a batch of a classification forest. Raises ValueError for labels that are not classes and shares outside
    0 to 1."""
    truth, prediction = (compute().index_in(batch.column(name), value_set=labels) for name in ("truth", "prediction"))
    if truth.null_count or prediction.null_count:
        raise ValueError("a truth or prediction is none of the classes")
    codes, predictions = (as_numpy(places).astype(np.int64) for places in (truth, prediction))
    share, confidence = np.zeros(batch.num_rows), np.zeros(batch.num_rows)
    for k, column in enumerate(batch.columns[4:-1]):  # one class at a time: there may be thousands
        class_shares = as_numpy(column, np.nan)
        if column.null_count or not ((class_shares >= 0.0) & (class_shares <= 1.0 + _ROUNDING)).all():
            raise ValueError("a probability is not from 0 to 1")
        np.copyto(share, class_shares, where=codes == k)
        np.maximum(confidence, class_shares, out=confidence)
    none = np.empty(0)
    return CalibrationRows(*_row_draws(batch, key), codes, predictions, share, confidence, none, none.astype(np.int64))


def _join_rows(held: list[CalibrationRows]) -> CalibrationRows:
    return CalibrationRows._make(np.concatenate(arrays) for arrays in zip(*held, strict=True))


def _thin(rows: CalibrationRows, classes: int) -> CalibrationRows:
    """Return the rows with the MOST_ROWS lowest draws.

    In addition, keep for each class the rows with its MOST_ROWS // classes lowest draws, at least one.
    """
    if rows.draw.size <= MOST_ROWS:
        return rows
    keep = _lowest(rows.draw, MOST_ROWS)
    if classes:
        order = np.lexsort((rows.draw, rows.truth))
        first = np.searchsorted(rows.truth[order], np.arange(classes))
        keep[order] |= np.arange(order.size) - first[rows.truth[order]] < max(1, MOST_ROWS // classes)
    return rows.chosen(keep)


def _lowest(draw: NDArray[np.uint64], count: int) -> NDArray[np.bool_]:
    """Return a mask of the `count` lowest draws."""
    if draw.size <= count:
        return np.ones(draw.size, np.bool_)
    return draw <= np.partition(draw, count - 1)[count - 1]


def check_category(column: pl.Series) -> None:
    """Raise DataError for a column whose values cannot be categories. Floats and decimals must be whole numbers."""
    dtype = column.dtype
    if isinstance(dtype, pl.Decimal) or dtype.is_float():
        values = column.fill_nan(None) if dtype.is_float() else column
        fits = not (values % 1 != 0).any()
    else:
        fits = is_text_type(dtype) or dtype == pl.Boolean or dtype.is_integer() or dtype == pl.Date
    if not fits:
        raise DataError(
            f"{api('coverage_by')}: column {column.name!r} is {dtype}, and must have categories: text, booleans, whole "
            "numbers or dates; cut numbers into ranges first"
        )
