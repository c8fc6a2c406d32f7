"""Columns of predictions, and the columns of the table that they need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec, TargetSpec
from bigforest.columns.labels import label_series, label_type, proba_names
from bigforest.columns.types import cells, is_feature_type, without_words
from bigforest.errors import ConfigError, DataError, listed
from bigforest.metrics.conformal import ByCategory, ClassSets, Intervals, JackknifeIntervals
from bigforest.planning.memory import Shape
from bigforest.predict.certainty import category_codes
from bigforest.predict.predictor import Predictions
from bigforest.predict.rows import UnseenLevels
from bigforest.predict.vote_rule import REJECTED, VoteRule

PREDICTION = "prediction"

# Bytes of a value in memory; other types count as 64 bytes.
_WIDTHS: dict[type[pl.DataType], int] = {
    **dict.fromkeys([pl.Boolean, pl.Int8, pl.UInt8], 1),
    **dict.fromkeys([pl.Int16, pl.UInt16, pl.Float16], 2),
    **dict.fromkeys([pl.Int32, pl.UInt32, pl.Float32, pl.Date, pl.Categorical, pl.Enum], 4),
    **dict.fromkeys([pl.Int64, pl.UInt64, pl.Float64, pl.Datetime, pl.Duration, pl.Time], 8),
    **dict.fromkeys([pl.Int128, pl.UInt128, pl.Decimal], 16),
}


def prediction_shape(schema: Mapping[str, pl.DataType], columns: Iterable[str], rows: int, spec: DataSpec) -> Shape:
    """Return the shape of a table to predict, for estimates of memory; columns: columns that are read."""
    return Shape(rows, tuple(_width(schema[name]) for name in columns), 0, spec.target.answer_width)


def _width(dtype: Any) -> int:
    if isinstance(dtype, pl.Struct):
        return sum(_width(field.dtype) for field in dtype.fields)
    if isinstance(dtype, pl.Array):
        return dtype.size * _width(dtype.inner)
    return _WIDTHS.get(dtype.base_type(), 64)


def check_classes(spec: DataSpec) -> None:
    """Raise ConfigError for a regression forest, which has no class probabilities."""
    if spec.target.is_regression:
        raise ConfigError(
            f"{spec.target.name!r} is a regression target, without class probabilities; do not ask for them"
        )


def prediction_names(spec: DataSpec, rule: VoteRule, proba: bool) -> list[str]:
    """Return the names of the columns of labels or numbers; with `proba`, of probabilities."""
    return [*proba_names(spec.target)] if proba else [PREDICTION, *rule.quantile_names, *rule.conformal_names]


def prediction_types(spec: DataSpec, rule: VoteRule, proba: bool) -> dict[str, pl.DataType]:
    """Return the types of the columns `prediction_names`, by name."""
    label = label_type(spec.target)
    types = {PREDICTION: label, "set": pl.List(label)} if not proba else {}
    return {name: types.get(name, pl.Float64()) for name in prediction_names(spec, rule, proba)}


def labels(codes: NDArray[np.int32], spec: DataSpec) -> pl.Series:
    """Return the labels of class codes, null for REJECTED, in the type of the target."""
    if (codes == REJECTED).any():
        return _classes(spec.target).gather(pl.Series(codes).replace(REJECTED, None))
    return _classes(spec.target)[codes]


def label_array(codes: NDArray[np.int32], spec: DataSpec, rule: VoteRule) -> NDArray[Any]:
    """Return `labels` as an array; much faster than a Series for one row."""
    if rule.rejects and (codes == REJECTED).any():
        return labels(codes, spec).to_numpy()
    return _class_array(spec.target).take(codes)


@lru_cache(maxsize=16)
def _classes(target: TargetSpec) -> pl.Series:
    """Return the labels of all classes, in the type of the target."""
    return label_series(target).cast(label_type(target)).alias("prediction")


@lru_cache(maxsize=16)
def _class_array(target: TargetSpec) -> NDArray[Any]:
    return _classes(target).to_numpy()


def prediction_column(predictions: Predictions, spec: DataSpec) -> pl.Series:
    """Return the predictions as a column: numbers, or labels (null for rejected rows)."""
    return labels(predictions.codes, spec) if predictions.value is None else pl.Series(PREDICTION, predictions.value)


def prediction_array(predictions: Predictions, spec: DataSpec, rule: VoteRule, proba: bool) -> NDArray[Any]:
    """Return the predictions as an array.

    With `proba`, return probabilities. Otherwise, return quantiles and intervals, or sets, if the rule requests them;
    else numbers, or labels (nan, NaT or None for rejected rows).
    """
    if proba:
        assert predictions.proba is not None
        return predictions.proba
    requested = [predictions.quantiles] if rule.quantiles and predictions.quantiles is not None else []
    if rule.conformal is not None:
        requested.append(conformal_array(predictions, rule))
    if requested:
        return np.hstack(requested)
    return label_array(predictions.codes, spec, rule) if predictions.value is None else predictions.value


def prediction_table(
    predictions: Predictions, spec: DataSpec, rule: VoteRule, proba: bool, rows: pl.DataFrame
) -> pl.DataFrame:
    """Return the predictions as the columns `prediction_names`.

    rows  the predicted rows, with the column rule.category if there is one
    """
    if not proba:
        made = [prediction_column(predictions, spec)]
        if predictions.quantiles is not None:
            made += [pl.Series(name, predictions.quantiles[:, k]) for k, name in enumerate(rule.quantile_names)]
        return pl.DataFrame(made + conformal_columns(predictions, spec, rule, rows))
    assert predictions.proba is not None
    return pl.DataFrame({name: predictions.proba[:, k] for k, name in enumerate(proba_names(spec.target))})


def conformal_array(predictions: Predictions, rule: VoteRule, categories: pl.Series | None = None) -> NDArray[Any]:
    """Return intervals, float64 [rows, 2], or membership of the classes in the sets, bool [rows, classes].

    categories  column rule.category of the predicted rows, if there is one
    """
    calibrated = rule.conformal
    if not isinstance(calibrated, ByCategory):
        assert calibrated is not None
        return _array(predictions, calibrated)
    assert categories is not None
    codes = category_codes(categories, calibrated.levels, calibrated.dtype)
    parts = [(rows, _array(predictions.of_rows(rows), fitted)) for rows, fitted in calibrated.groups(codes)]
    if not parts:
        return _array(predictions, calibrated.calibrated[0])
    bounds = np.empty((codes.size, parts[0][1].shape[1]), parts[0][1].dtype)
    for rows, values in parts:
        bounds[rows] = values
    return bounds


def _array(predictions: Predictions, calibrated: Intervals | ClassSets | JackknifeIntervals) -> NDArray[Any]:
    """Return `conformal_array` for rows that are calibrated together."""
    if isinstance(calibrated, JackknifeIntervals):
        assert predictions.bounds is not None
        return predictions.bounds
    if isinstance(calibrated, Intervals):
        assert predictions.value is not None
        return calibrated.bounds(predictions.value, predictions.spread)
    assert predictions.proba is not None
    return calibrated.members(predictions.proba)


def conformal_columns(predictions: Predictions, spec: DataSpec, rule: VoteRule, rows: pl.DataFrame) -> list[pl.Series]:
    """Return intervals or sets as columns; none if the rule requests neither."""
    if rule.conformal is None:
        return []
    categories = None if rule.category is None else _categories(rows, spec, rule.category)
    bounds = conformal_array(predictions, rule, categories)
    if not spec.target.classes:
        return [pl.Series(name, bounds[:, place]) for place, name in enumerate(rule.conformal_names)]
    import pyarrow as pa

    from bigforest.columns.arrow_arrays import arrow_array

    # The classes of all sets, row by row, which Arrow cuts into lists. Enums and categoricals pass through Arrow as
    # strings.
    members = labels(np.nonzero(bounds)[1].astype(np.int32), spec)
    plain = members.cast(pl.String) if isinstance(members.dtype, pl.Enum | pl.Categorical) else members
    ends = np.zeros(len(bounds) + 1, np.int64)
    np.cumsum(bounds.sum(axis=1), out=ends[1:])
    lists = pa.LargeListArray.from_arrays(arrow_array(ends), plain.to_arrow())
    return [pl.Series("set", lists).cast(pl.List(label_type(spec.target)))]


def _categories(rows: pl.DataFrame, spec: DataSpec, name: str) -> pl.Series:
    return without_words(cells(rows, name), spec.missing_words)


def count_unseen(rows: pl.DataFrame, spec: DataSpec, rule: VoteRule, unseen: UnseenLevels) -> None:
    """Count in `unseen` the rows whose category was not in the training table.

    Counts nothing unless intervals or sets are calibrated by a column, and `rows` has this column.
    """
    if isinstance(rule.conformal, ByCategory) and rule.conformal.column in rows.columns:
        categories, levels = _categories(rows, spec, rule.conformal.column), rule.conformal.levels
        unseen.add(
            rule.conformal.column, categories, category_codes(categories, levels, rule.conformal.dtype) == len(levels)
        )


def check_columns(keep: Sequence[str], schema: Mapping[str, pl.DataType], rule: VoteRule, made: list[str]) -> None:
    """Raise DataError or ConfigError unless a table has the columns to keep, and the column by which
    intervals or sets are calibrated, if there is one.

    keep  the columns to copy, each once. None may have the name of a prediction column.
    made  names of the prediction columns.
    """
    for name in keep:
        if name not in schema:
            raise DataError(f"the data has no column {name!r} to keep; its columns are {listed(list(schema))}")
        if name in made:
            raise ConfigError(f"the kept column {name!r} has the name of a prediction column; rename or drop it")
    if len(set(keep)) < len(keep):
        raise ConfigError(f"a column is kept twice: {', '.join(keep)}; name each once")
    check_category_in(schema, rule)


def check_category_in(schema: Mapping[str, pl.DataType], rule: VoteRule) -> None:
    """Raise DataError if intervals or sets are calibrated by a column that a table lacks, or that has no categories."""
    if rule.category is None:
        return
    if rule.category not in schema:
        raise DataError(
            f"the data has no column {rule.category!r}, used for coverage; its columns are {listed(list(schema))}"
        )
    dtype = schema[rule.category]
    if not is_feature_type(dtype):
        raise DataError(f"the column {rule.category!r} for coverage is {dtype}, and must have categories; convert it")
