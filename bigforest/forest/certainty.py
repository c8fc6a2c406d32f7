"""The options for intervals, sets and rejection, checked and calibrated for a forest."""

from __future__ import annotations

from typing import Any

import polars as pl

from bigforest.common.errors import ConfigError, DataError, counted, listed
from bigforest.forest.calibration import Calibration
from bigforest.forest.contents import Contents
from bigforest.forest.inbag import tree_bags
from bigforest.metrics.categories import ByCategory
from bigforest.metrics.conformal import ClassSets, Intervals
from bigforest.metrics.jackknife import JackknifeIntervals
from bigforest.schema.columns import is_text_type


def check_certainty(forest: Contents, vote: str, trees: tuple[int, ...], reject_above: Any) -> None:
    """Raise ConfigError for what the out-of-bag rows say nothing of."""
    if forest.config.boosts:
        raise ConfigError(
            f"coverage and reject_above use out-of-bag rows, whose error is biased with sampling "
            f"{forest.config.sampling!r}; drop coverage and reject_above"
        )
    if trees:
        raise ConfigError("coverage and reject_above are calibrated for all trees together; drop trees")
    if vote != forest.config.vote:
        raise ConfigError(
            f"coverage and reject_above are calibrated on out-of-bag rows, with vote {forest.config.vote}; drop vote"
        )
    if reject_above is not None and forest.is_regression:
        raise ConfigError("reject_above is for classification; for regression, use the width of the interval")


def conformal_of(
    forest: Contents, calibration: Calibration, coverage: float, by: Any, jackknife: bool
) -> Intervals | ClassSets | ByCategory | JackknifeIntervals:
    """What bounds the answers to new rows; options as of `Forest.predict`. Raises ConfigError and DataError."""
    if jackknife:
        return _jackknife(forest, calibration, coverage, by)
    return calibration.conformal(coverage) if by is None else calibration.by_category(_column(forest, by), coverage)


def _jackknife(forest: Contents, calibration: Calibration, coverage: float, by: Any) -> JackknifeIntervals:
    if not forest.is_regression:
        raise ConfigError("the jackknife is for regression, and the forest predicts classes; drop jackknife")
    if by is not None:
        raise ConfigError("the jackknife takes all rows together; drop coverage_by or jackknife")
    if forest.config.bootstrap and forest.config.group is not None:
        raise ConfigError(
            f"the jackknife requires exchangeable rows, and the bags have whole groups of "
            f"{forest.config.group!r}; drop jackknife"
        )
    return calibration.jackknife(tree_bags(forest, None).bag, forest.trees, coverage)


def _column(forest: Contents, by: Any) -> pl.Series:
    """The column of the training table, of which `by` is the name, or which it is. Raises ConfigError and DataError."""
    column = _read_column(forest, by) if isinstance(by, str) else _given_column(by)
    rows = forest.spec.rows + forest.spec.dropped
    if len(column) != rows:
        raise DataError(
            f"coverage_by: column {column.name!r} has {counted(len(column), 'row')}, and the forest was trained on "
            f"{rows:,}; give that table's column"
        )
    check_category(column.name, column.dtype)
    return column


def check_category(name: str, dtype: pl.DataType) -> None:
    """Raise DataError for a column whose values are no categories."""
    if not (is_text_type(dtype) or dtype == pl.Boolean or dtype.is_integer() or dtype == pl.Date):
        raise DataError(
            f"coverage_by: column {name!r} is {dtype}, and must have categories: text, booleans, whole numbers or "
            "dates; cut numbers into ranges first"
        )


def _given_column(by: Any) -> pl.Series:
    name = getattr(by, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(
            "coverage_by must be the name of a column, or that column of the training table as a Series with a name, "
            f"not {type(by).__name__}"
        )
    return by if isinstance(by, pl.Series) else pl.Series(name, by)


def _read_column(forest: Contents, name: str) -> pl.Series:
    from bigforest.source import open_source
    from bigforest.storage.atomic import TemporaryFolder

    place = None if forest.origin is None else forest.origin.data
    if place is None:
        raise ConfigError(
            f"coverage_by: the forest was trained on a table in memory; give its column {name!r} as a Series"
        )
    with TemporaryFolder(None) as work:
        try:
            source = open_source(place, scratch=work, missing=forest.spec.missing_words)
        except DataError as error:
            raise DataError(
                f"coverage_by takes a column of the table that the forest was trained on: {error}"
            ) from error
        if name not in source.schema:
            raise DataError(
                f"the table that the forest was trained on has no column {name!r}; its columns are "
                f"{listed(list(source.schema))}"
            )
        return source.column(name)
