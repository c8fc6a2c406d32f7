"""The column of the training table for `coverage_by`: a given Series, or read again from the path of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from bigforest.columns.labels import label_codes
from bigforest.columns.types import without_words
from bigforest.encode.rows import true_rows
from bigforest.errors import ConfigError, DataError, api, counted, listed
from bigforest.forest.forest_files import ForestFiles
from bigforest.predict.certainty import check_category
from bigforest.predict.rows import open_rows
from bigforest.source.source import Source
from bigforest.storage.atomic import TemporaryFolder


def training_column(files: ForestFiles, by: Any) -> pl.Series:
    """Return the column for `coverage_by`, which is its name or a Series. Raises ConfigError and DataError."""
    column = _read_column(files, by) if isinstance(by, str) else _given_column(by)
    rows = files.spec.rows + files.spec.dropped
    if len(column) != rows:
        raise DataError(
            f"{api('coverage_by')}: column {column.name!r} has {counted(len(column), 'row')}, and the forest was "
            f"trained on {rows:,}; give that table's column"
        )
    column = without_words(column, files.spec.missing_words)
    check_category(column)
    return column


def _given_column(by: Any) -> pl.Series:
    name = getattr(by, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(
            f"{api('coverage_by')} must be the name of a column, or that column of the training table as a Series with "
            f"a name, not {type(by).__name__}"
        )
    return by if isinstance(by, pl.Series) else pl.Series(name, by)


def _read_column(files: ForestFiles, name: str) -> pl.Series:
    """Read a column of the training table from its recorded path. Raises ConfigError and DataError."""
    path = None if files.origin is None else files.origin.data
    if path is None:
        raise ConfigError(
            f"{api('coverage_by')}: the forest was trained on a table in memory or on standard input; in Python, give "
            f"its column {name!r} as a Series"
        )
    with TemporaryFolder(None) as work:
        try:
            source = open_rows(path, files.spec, scratch=work, also=[name])
        except DataError as error:
            raise DataError(
                f"{api('coverage_by')} takes a column of the table that the forest was trained on: {error.text}"
            ) from error
        if name not in source.schema:
            raise DataError(
                f"the table that the forest was trained on has no column {name!r}; its columns are "
                f"{listed(list(source.schema))}"
            )
        spec = files.spec
        comparable = source.rows == spec.rows + spec.dropped and spec.target.name in source.schema
        if comparable and not has_training_targets(files, source):
            raise DataError(
                f"{path} has other values of {spec.target.name!r} than in training, and {api('coverage_by')} "
                "takes a column of the training table; give the column of that table as a Series"
            )
        return source.column(name)


def has_training_targets(files: ForestFiles, source: Source) -> bool:
    """Return True if a table with as many rows as in training has the targets of the out-of-bag report."""
    spec = files.spec
    report = files.oob.rows.select("row", "truth").collect()
    target = true_rows(source.columns([spec.target.name]), spec, None, ()).target[report["row"].to_numpy()]
    truth = report["truth"].to_numpy() if spec.target.is_regression else label_codes(report["truth"], spec.target)
    return truth is not None and np.array_equal(target, truth)
