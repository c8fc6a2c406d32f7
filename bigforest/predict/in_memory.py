"""Predictions for tables in memory, and within lazy queries, as Polars expressions.

Predictions have the kind of the table: a frame for a frame, an array for an array or a list of rows. For a mapping of
columns, a list of mappings or tables, or an array with named fields, they are a Polars frame.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

# `Forest`, in a module above this one, is pickled with an expression.
import bigforest
from bigforest.columns.dataspec import DataSpec
from bigforest.columns.labels import label_type
from bigforest.columns.types import columns_named
from bigforest.errors import ConfigError, DataError, api, counted
from bigforest.execution.forks import check_polars_threads
from bigforest.execution.resources import Resources, resources_of
from bigforest.options.values import names_of
from bigforest.planning.memory import Shape
from bigforest.predict.columns import (
    PREDICTION,
    check_category_in,
    check_columns,
    check_proba,
    count_unseen,
    prediction_array,
    prediction_column,
    prediction_names,
    prediction_shape,
    prediction_table,
    prediction_types,
)
from bigforest.predict.loader import TreeLoader
from bigforest.predict.passes import Batch, RowsNamed
from bigforest.predict.predictor import Predictions, find_leaves
from bigforest.predict.rows import FEWEST_ROWS, Reader, RowBatch, UnseenLevels, check_schema, reading_of
from bigforest.predict.vote_rule import VoteRule
from bigforest.source.in_memory import (
    SparseRows,
    free_name,
    is_matrix,
    is_sparse,
    package_of,
    plain_array,
    table_of_list,
)
from bigforest.source.open import schema_of_query, table_in_memory


def predict(
    loader: TreeLoader,
    data: Any,
    rule: VoteRule,
    *,
    keep: Sequence[str],
    threads: int | None,
    memory: int | str | None,
    proba: bool = False,
) -> Any:
    """Predict a table in memory or a lazy frame: see `Forest.predict` and, with `proba`, `Forest.predict_proba`."""
    resources = resources_of(threads, None, memory)
    keep = list(names_of(keep, "keep"))
    if proba:
        check_proba(loader.files.spec, proba)
    if isinstance(data, pl.LazyFrame):
        return predict_lazy(loader, data, rule, keep, proba, resources)
    data = table_of_list(data)
    if is_matrix(data) or is_sparse(data):
        if keep:
            raise ConfigError(f"an array has no columns to keep; drop {api('keep')} or give a table")
        return _predict_matrix(loader, _rows_of(data), rule, proba, resources)
    also = [*keep, *([] if rule.category is None else [rule.category])]
    predicted = _predict_frame(loader, _table_of(loader, data, also), rule, keep, proba, resources)
    if isinstance(data, pl.DataFrame | Mapping | list | np.ndarray):
        return predicted
    if package_of(data) != "pandas":
        return predicted.to_arrow()
    import pandas as pd

    # to_pandas starts Arrow's threads, which takes longer.
    if set(predicted.dtypes) == {pl.Float64} and not any(predicted.null_count().row(0)):
        return pd.DataFrame(predicted.to_numpy(), data.index, predicted.columns)
    frame = predicted.to_pandas()
    frame.index = data.index
    return frame


def apply_forest(loader: TreeLoader, data: Any, rule: VoteRule, threads: int | None) -> NDArray[np.uint32]:
    """Return the leaf of each row in each tree, uint32 [rows, trees]: see `Forest.apply`."""
    workers = resources_of(threads, None, None).workers
    packed, reader = loader.predictor(rule).packed, loader.reader(rule.unseen)
    used = packed.used
    data = table_of_list(data)
    if is_sparse(data):
        rows = SparseRows(data)
        reader.check_shape(rows.shape)
        begins = range(0, max(1, rows.shape[0]), rows.at_once)
        batches = (reader.matrix(rows[at : at + rows.at_once], used) for at in begins)
        return np.concatenate([find_leaves(packed, loader.files.spec, batch, workers) for batch in batches])
    return find_leaves(packed, loader.files.spec, _all_rows(loader, reader, data, used), workers)


def feature_matrix(loader: TreeLoader, data: Any) -> NDArray[np.float64]:
    """Return a table as float64 [rows, features]: see `Forest.to_matrix`."""
    features = loader.files.spec.features
    reader, places = replace(loader.reader(), ranks=None), np.arange(len(features))
    rows = _all_rows(loader, reader, table_of_list(data), places)
    matrix = np.empty((rows.rows, len(features)), np.float64)
    for place, column in enumerate(rows.columns()):
        matrix[:, place] = column
        if features[place].splits_on_levels and features[place].missing:
            matrix[:, place] -= 1.0
            matrix[column == 0, place] = np.nan
    return matrix


def _table_of(loader: TreeLoader, data: Any, also: Sequence[str] = ()) -> pl.DataFrame:
    """Return a table to predict as a frame; also: names of columns that are read in addition to the features."""
    reading = loader.reading if not also else reading_of(loader.files.spec, also, labelled=False)
    return table_in_memory(data, reading)


def _rows_of(data: Any) -> NDArray[Any] | SparseRows:
    """Return an array or a sparse matrix whose slices are arrays of numbers or objects. Raises DataError."""
    # An array without dimensions has no rows to slice. With one dimension, `check_shape` refuses it.
    if is_sparse(data):
        return SparseRows(data)
    array = plain_array(data)
    return array if array.ndim else array[np.newaxis]


def _all_rows(loader: TreeLoader, reader: Reader, data: Any, used: NDArray[np.int64]) -> RowBatch:
    """Read all rows of an array, a sparse matrix or a table, with the features `used`. Raises DataError."""
    tally = UnseenLevels()
    if is_matrix(data) or is_sparse(data):
        matrix = _rows_of(data)
        reader.check_shape(matrix.shape)
        rows = reader.matrix(matrix[:], used, tally)
    else:
        frame, features = loader.with_features(_table_of(loader, data))
        rows = reader.frame(frame, features, used, tally)
    tally.tell()
    return rows


def _predict_matrix(
    loader: TreeLoader, matrix: NDArray[Any] | SparseRows, rule: VoteRule, proba: bool, resources: Resources
) -> Any:
    spec, reader = loader.files.spec, loader.reader(rule.unseen)
    if rule.conformal is not None and rule.least_share > 0.0:
        raise ConfigError(
            f"an array has either sets or predictions; drop {api('coverage')} or {api('reject_above')}, or give a table"
        )
    if rule.category is not None:
        raise ConfigError(f"an array has no column for coverage to go by; drop {api('coverage_by')}, or give a table")
    reader.check_shape(matrix.shape)  # here, so that the error has the shape of the whole array
    count = matrix.shape[0]
    at_once = matrix.at_once if isinstance(matrix, SparseRows) else max(1, count)

    def read(start: int, stop: int, used: NDArray[np.int64], tally: UnseenLevels | None) -> tuple[RowBatch, None]:
        return reader.matrix(matrix[start:stop], used, tally), None

    def shape(used: NDArray[np.int64]) -> Shape:
        return Shape(count, (8,) * used.size, 0, spec.target.answer_width)

    batches = _predict_batches(loader, rule, count, at_once, read, proba, resources, shape, matrix.nbytes)
    made = [prediction_array(predictions, spec, rule, proba) for _, predictions in batches]
    return np.concatenate(made) if len(made) > 1 else made[0]


def _predict_frame(
    loader: TreeLoader, frame: pl.DataFrame, rule: VoteRule, keep: list[str], proba: bool, resources: Resources
) -> pl.DataFrame:
    spec, reader = loader.files.spec, loader.reader(rule.unseen)
    frame, features = loader.with_features(frame)
    if keep or rule.category is not None:
        check_columns(keep, frame.schema, rule, prediction_names(spec, rule, proba))

    def read(
        start: int, stop: int, used: NDArray[np.int64], tally: UnseenLevels | None
    ) -> tuple[RowBatch, pl.DataFrame]:
        piece = frame.slice(start, stop - start)
        if tally is not None:
            count_unseen(piece, spec, rule, tally)
        return reader.frame(piece, features, used, tally), piece

    def shape(used: NDArray[np.int64]) -> Shape:
        return prediction_shape(frame.schema, features.columns(used), frame.height, spec)

    held, count = int(frame.estimated_size()), frame.height
    pieces = _predict_batches(loader, rule, count, max(1, count), read, proba, resources, shape, held)
    made = pl.concat([prediction_table(predictions, spec, rule, proba, piece) for piece, predictions in pieces])
    return frame[keep].hstack(made) if keep else made


def _predict_batches(
    loader: TreeLoader,
    rule: VoteRule,
    count: int,
    at_once: int,
    read: Callable[[int, int, NDArray[np.int64], UnseenLevels | None], tuple[RowBatch, Batch]],
    proba: bool,
    resources: Resources,
    shape: Callable[[NDArray[np.int64]], Shape],
    held: int,
) -> list[tuple[Batch, Predictions]]:
    """Predict `count` rows, at most `at_once` together. Return batches with their predictions, at least one.

    read         function of (start, stop, used, tally) that returns the rows from `start` to before `stop`, with the
                 features at the positions `used`, and the batch that they are from. It counts unseen levels in `tally`.
    shape, held  see `TreeLoader.passes`.

    Logs a notice if many rows have unseen levels.
    """
    workers = resources.workers if count > 1 else 1  # counting processors takes as long as reading one row
    tally = UnseenLevels() if count >= FEWEST_ROWS else None
    if resources.memory is None and count <= at_once:
        predictor = loader.predictor(rule)
        rows, batch = read(0, count, predictor.packed.used, tally)
        with RowsNamed(0, count):
            predicted = [(batch, predictor.predict(rows, 0, proba=proba, labels=not proba, workers=workers))]
    else:
        passes = loader.passes(rule, shape, resources, held)
        step = at_once if resources.memory is None else min(at_once, passes.batch)

        def batches(begin: int, end: int, last: bool) -> Iterator[tuple[int, RowBatch, Batch]]:
            for start in range(begin, end, step):
                yield start, *read(start, min(start + step, end), passes.used, tally)

        predicted = list(passes.predictions(max(1, count), batches, proba=proba, workers=workers))  # also for no rows
    if tally is not None:
        tally.tell()
    return predicted


# Names of structs of several prediction columns.
PROBABILITIES = "probabilities"
ANSWER = "answer"


def expression(
    loader: TreeLoader,
    rule: VoteRule,
    *,
    proba: bool,
    row: str | None,
    schema: Mapping[str, pl.DataType] | None = None,
) -> pl.Expr:
    """Return the expression of `Forest.expr`.

    schema  schema of the query; None if unknown. With it, features that were nested in training may be plain columns
    """
    check_polars_threads()
    check_proba(loader.files.spec, proba)
    if proba and rule.conformal is not None:
        raise ConfigError(f"an expression returns probabilities or sets; drop {api('proba')} or {api('coverage')}")
    if row is not None and not isinstance(row, str):
        raise ConfigError(f"{api('row')} must be the name of a column, not {row!r}")
    predictor = loader.predictor(rule)
    if rule.draws and row is None and not proba:
        raise ConfigError(
            "random predictions depend on the number of the row: name a column that holds it "
            "(see with_row_index), or use Forest.predict"
        )
    spec, used, several = loader.files.spec, predictor.packed.used, proba or _adds_columns(rule)
    names = _columns_read(spec, used, rule, schema)
    numbers = free_name("row", names)
    # Columns that a table lacks are left out here, so that `_Answer` can name them in its error. Polars refuses a
    # struct without fields, so one is added.
    fields = [cs.by_name(*names, require_all=False).as_expr()]
    if names:
        fields.append(pl.lit(None).alias(free_name("none", [*names, numbers])))
    if row is not None:
        fields.append(columns_named([row]).alias(numbers))

    answer = _Answer(loader, rule, proba, row, numbers)
    dtype = pl.Struct(prediction_types(spec, rule, proba)) if several else label_type(spec.target)
    struct = pl.struct(fields).map_batches(answer, return_dtype=dtype, is_elementwise=True)
    return struct.alias(PROBABILITIES if proba else ANSWER if several else PREDICTION)


class _Answer:
    """Function of an expression, from structs of columns to predictions. It is pickled with its forest.

    loader, rule, proba, row  see `expression`.
    numbers                   field of the structs that holds the row numbers, if `row` names a column.
    """

    def __init__(self, loader: TreeLoader, rule: VoteRule, proba: bool, row: str | None, numbers: str) -> None:
        self._loader, self._rule, self._proba, self._row, self._numbers = loader, rule, proba, row, numbers
        self._predictor, self._reader = loader.predictor(rule), loader.reader(rule.unseen)
        self._warned = False
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., _Answer], tuple[Any, ...]]:
        forest = bigforest.Forest(self._loader.files)
        return _answer_of, (forest, self._rule, self._proba, self._row, self._numbers)

    def __call__(self, rows: pl.Series) -> pl.Series:
        rule, spec, used = self._rule, self._loader.files.spec, self._predictor.packed.used
        frame = rows.struct.unnest()
        features = check_schema(frame.schema, spec, used)
        check_category_in(frame.schema, rule)
        row_numbers = 0 if self._row is None else _row_numbers(frame[self._numbers].alias(self._row))
        tally = UnseenLevels() if frame.height >= FEWEST_ROWS else None
        read = self._reader.frame(frame, features, used, tally)
        if tally is not None:
            count_unseen(frame, spec, rule, tally)
            with self._lock:  # a query calls this function for many batches, perhaps at the same time; warn once
                if not self._warned and tally.tell(among=f"a batch of {counted(frame.height, 'row')}"):
                    self._warned = True
        predictions = self._predictor.predict(read, row_numbers, proba=self._proba)
        if self._proba or _adds_columns(rule):
            return prediction_table(predictions, spec, rule, self._proba, frame).to_struct()
        return prediction_column(predictions, spec)


def _answer_of(forest: bigforest.Forest, rule: VoteRule, proba: bool, row: str | None, numbers: str) -> _Answer:
    return _Answer(forest.loader, rule, proba, row, numbers)


def _columns_read(
    spec: DataSpec, used: NDArray[np.int64], rule: VoteRule, schema: Mapping[str, pl.DataType] | None
) -> list[str]:
    """Return the columns of a query that predictions are computed from; schema: see `expression`."""
    if schema is None:
        names = [spec.features[int(place)].table_column for place in used]
    else:
        names = check_schema(schema, spec, used).columns(used)
    return list(dict.fromkeys(names if rule.category is None else [*names, rule.category]))


def _adds_columns(rule: VoteRule) -> bool:
    """Return True if predictions have columns of quantiles, intervals or sets."""
    return bool(rule.quantiles) or rule.conformal is not None


def _row_numbers(numbers: pl.Series) -> NDArray[np.uint64]:
    """Return row numbers as uint64 [rows]. Raises DataError for other values."""
    try:
        if not numbers.null_count():
            return numbers.cast(pl.UInt64).to_numpy()
    except pl.exceptions.PolarsError as error:
        raise DataError(f"column {numbers.name!r} holds row numbers, which must be whole numbers, 0 or more") from error
    raise DataError(f"column {numbers.name!r} holds row numbers and has nulls; see with_row_index")


def predict_lazy(
    loader: TreeLoader,
    frame: pl.LazyFrame,
    rule: VoteRule,
    keep: list[str],
    proba: bool,
    resources: Resources,
) -> pl.LazyFrame:
    """Return a lazy query for the columns `keep` and the predictions: see `predict`."""
    check_polars_threads()
    schema = schema_of_query(frame)
    check_schema(schema, loader.files.spec)
    check_columns(keep, schema, rule, prediction_names(loader.files.spec, rule, proba))
    loader.check_memory(rule, resources)
    row = None
    if rule.draws and not proba:
        row = free_name("row", schema)
        frame = frame.with_row_index(row)
    answer = expression(loader, rule, proba=proba, row=row, schema=schema)
    if not (proba or _adds_columns(rule)):
        return frame.select(columns_named(keep), answer)
    several = free_name(ANSWER, keep)
    return frame.select(columns_named(keep), answer.alias(several)).unnest(several)
