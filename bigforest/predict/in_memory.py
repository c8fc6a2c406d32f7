"""Predictions for tables in memory, and for lazy queries by a Polars expression.

Predictions have the kind of the table: a frame for a frame, an array for an array or a list of rows. For a mapping of
columns, a list of mappings or tables, or an array with named fields, they are a Polars frame.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.columns.labels import label_type
from bigforest.columns.types import columns_named
from bigforest.errors import ConfigError, DataError, api, counted
from bigforest.execution.forks import check_polars_threads
from bigforest.execution.resources import Resources, resources_of
from bigforest.options.values import check_flag, names_of
from bigforest.predict.columns import (
    PREDICTION,
    check_category_in,
    check_classes,
    check_columns,
    prediction_array,
    prediction_column,
    prediction_names,
    prediction_table,
    prediction_types,
)
from bigforest.predict.inputs import ArrayInput, Input, TableInput
from bigforest.predict.passes import RowsNamed
from bigforest.predict.predictor import Predictions, find_leaves
from bigforest.predict.rows import Reader, check_schema, reading_of
from bigforest.predict.vote_rule import VoteRule
from bigforest.source.in_memory import (
    free_name,
    is_matrix,
    is_sparse,
    package_of,
    table_of_list,
)
from bigforest.source.open import schema_of_query, table_in_memory

if TYPE_CHECKING:
    from bigforest import Forest


def predict(
    forest: Forest,
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
        check_classes(forest.spec)
    if isinstance(data, pl.LazyFrame):
        return predict_lazy(forest, data, rule, keep, proba, resources)
    data = table_of_list(data)
    if is_matrix(data) or is_sparse(data):
        return _predict_array(forest, data, rule, keep, proba, resources)
    predicted = _predict_frame(forest, data, rule, keep, proba, resources)
    if isinstance(data, pl.DataFrame | Mapping | list | np.ndarray):
        return predicted
    if package_of(data) != "pandas":
        return predicted.to_arrow()
    import pandas as pd

    # to_pandas would start Arrow's threads, which takes longer than making the frame.
    if set(predicted.dtypes) == {pl.Float64} and not any(predicted.null_count().row(0)):
        return pd.DataFrame(predicted.to_numpy(), data.index, predicted.columns)
    frame = predicted.to_pandas()
    frame.index = data.index
    return frame


def apply_forest(forest: Forest, data: Any, rule: VoteRule, threads: int | None) -> NDArray[np.uint32]:
    """Return the leaf of each row in each tree, uint32 [rows, trees]: see `Forest.apply`."""
    workers, spec, packed = resources_of(threads, None, None).workers, forest.spec, forest.loader.predictor(rule).packed
    read = _input(forest, data, rule).read_all(packed.used)
    return np.concatenate([find_leaves(packed, spec, rows, workers) for rows in read])


def feature_matrix(forest: Forest, data: Any) -> NDArray[np.float64]:
    """Return a table as float64 [rows, features]: see `Forest.to_matrix`."""
    features, table = forest.spec.features, _input(forest, data, forest.rules.usual)
    table.reader = Reader(forest.files, ranked=False)
    matrix, start = np.empty((table.rows, len(features)), np.float64), 0
    for rows in table.read_all(np.arange(len(features))):
        part = matrix[start : start + rows.rows]
        for place, column in enumerate(rows.columns()):
            part[:, place] = column
            if features[place].splits_on_levels and features[place].missing:
                part[:, place] -= 1.0
                part[column == 0, place] = np.nan
        start += rows.rows
    return matrix


def _input(forest: Forest, data: Any, rule: VoteRule) -> Input:
    """Return a table in memory, an array or a sparse matrix as the input of a prediction. Raises DataError."""
    reader, data = forest.reader, table_of_list(data)
    if is_matrix(data) or is_sparse(data):
        return ArrayInput(reader, data, rule.unseen)
    frame, features = reader.located(table_in_memory(data, reader.reading))
    return TableInput(reader, frame, features, rule)


def _predict_array(
    forest: Forest, data: Any, rule: VoteRule, keep: Sequence[str], proba: bool, resources: Resources
) -> NDArray[Any]:
    if keep:
        raise ConfigError(f"an array has no columns to keep; drop {api('keep')} or give a table")
    if rule.conformal is not None and rule.least_share > 0.0:
        raise ConfigError(
            f"an array has either sets or predictions; drop {api('coverage')} or {api('reject_above')}, or give a table"
        )
    if rule.category is not None:
        raise ConfigError(f"an array has no column for coverage to go by; drop {api('coverage_by')}, or give a table")
    predicted = _predictions(forest, ArrayInput(forest.reader, data, rule.unseen), rule, proba, resources)
    made = [prediction_array(predictions, forest.spec, rule, proba) for _, predictions in predicted]
    return np.concatenate(made) if len(made) > 1 else made[0]


def _predict_frame(
    forest: Forest, data: Any, rule: VoteRule, keep: list[str], proba: bool, resources: Resources
) -> pl.DataFrame:
    spec, reader, also = forest.spec, forest.reader, [*keep, *([] if rule.category is None else [rule.category])]
    reading = reading_of(spec, also, labelled=False) if also else reader.reading
    frame, features = reader.located(table_in_memory(data, reading))
    if also:
        check_columns(keep, frame.schema, rule, prediction_names(spec, rule, proba))
    table = TableInput(reader, frame, features, rule)
    predicted = _predictions(forest, table, rule, proba, resources)
    made = pl.concat([prediction_table(predictions, spec, rule, proba, batch) for batch, predictions in predicted])
    return frame[keep].hstack(made) if keep else made


def _predictions(
    forest: Forest, table: Input, rule: VoteRule, proba: bool, resources: Resources
) -> list[tuple[Any, Predictions]]:
    """Return the batches of a table, at least one, with their predictions. Log a notice of unseen levels."""
    if table.rows == 1 and resources.memory is None:  # avoids loops and threads, a tenth of the time
        predictor = forest.loader.predictor(rule)
        [batch] = table.batches(0, 1, 1, predictor.packed.used)
        with RowsNamed(0, 1):
            rows = table.read(batch, predictor.packed.used)
            return [(batch, predictor.predict(rows, 0, proba=proba, labels=not proba))]
    passes = forest.loader.passes(rule, table, resources)
    predicted = list(passes.predictions(proba=proba, labels=not proba, workers=resources.workers))
    table.unseen.tell()
    return predicted


# Names of the column of an expression that returns several columns, as a struct.
PROBABILITIES = "probabilities"
ANSWER = "answer"


def expression(
    forest: Forest,
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
    check_flag(proba, "proba")
    if proba:
        check_classes(forest.spec)
    if proba and rule.conformal is not None:
        raise ConfigError(f"an expression returns probabilities or sets; drop {api('proba')} or {api('coverage')}")
    if row is not None and not isinstance(row, str):
        raise ConfigError(f"{api('row')} must be the name of a column, not {row!r}")
    predictor = forest.loader.predictor(rule)
    if rule.draws and row is None and not proba:
        raise ConfigError(
            "random predictions depend on the number of the row: name a column that holds it "
            "(see with_row_index), or use Forest.predict"
        )
    spec, used, several = forest.spec, predictor.packed.used, proba or _adds_columns(rule)
    names = _columns_read(spec, used, rule, schema)
    numbers = free_name("row", names)
    # Columns that a table lacks are left out here, so that `_Answer` can name them in its error. Polars refuses a
    # struct without fields, so one is added.
    fields = [cs.by_name(*names, require_all=False).as_expr()]
    if names:
        fields.append(pl.lit(None).alias(free_name("none", [*names, numbers])))
    if row is not None:
        fields.append(columns_named([row]).alias(numbers))

    answer = _Answer(forest, rule, proba, row, numbers)
    dtype = pl.Struct(prediction_types(spec, rule, proba)) if several else label_type(spec.target)
    struct = pl.struct(fields).map_batches(answer, return_dtype=dtype, is_elementwise=True)
    return struct.alias(PROBABILITIES if proba else ANSWER if several else PREDICTION)


class _Answer:
    """Function of an expression, from structs of columns to predictions. It is pickled with its forest.

    forest, rule, proba, row  see `expression`.
    numbers                   field of the structs that holds the row numbers, if `row` names a column.
    """

    def __init__(self, forest: Forest, rule: VoteRule, proba: bool, row: str | None, numbers: str) -> None:
        self._forest, self._rule, self._proba, self._row, self._numbers = forest, rule, proba, row, numbers
        self._predictor = forest.loader.predictor(rule)
        self._warned = False
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., _Answer], tuple[Any, ...]]:
        return _Answer, (self._forest, self._rule, self._proba, self._row, self._numbers)

    def __call__(self, structs: pl.Series) -> pl.Series:
        rule, spec, used = self._rule, self._forest.spec, self._predictor.packed.used
        frame = structs.struct.unnest()
        features = check_schema(frame.schema, spec, used)
        check_category_in(frame.schema, rule)
        row_numbers = 0 if self._row is None else _row_numbers(frame[self._numbers].alias(self._row))
        table = TableInput(self._forest.reader, frame, features, rule)
        rows = table.read(frame, used)
        with self._lock:  # a query calls this function for many batches, perhaps at the same time; warn once
            self._warned = self._warned or table.unseen.tell(among=f"a batch of {counted(frame.height, 'row')}")
        predictions = self._predictor.predict(rows, row_numbers, proba=self._proba)
        if self._proba or _adds_columns(rule):
            return prediction_table(predictions, spec, rule, self._proba, frame).to_struct()
        return prediction_column(predictions, spec)


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
    forest: Forest,
    frame: pl.LazyFrame,
    rule: VoteRule,
    keep: list[str],
    proba: bool,
    resources: Resources,
) -> pl.LazyFrame:
    """Return a lazy query for the columns `keep` and the predictions: see `predict`."""
    check_polars_threads()
    schema = schema_of_query(frame)
    check_schema(schema, forest.spec)
    check_columns(keep, schema, rule, prediction_names(forest.spec, rule, proba))
    forest.loader.check_memory(rule, resources)
    row = None
    if rule.draws and not proba:
        row = free_name("row", schema)
        frame = frame.with_row_index(row)
    answer = expression(forest, rule, proba=proba, row=row, schema=schema)
    if not (proba or _adds_columns(rule)):
        return frame.select(columns_named(keep), answer)
    several = free_name(ANSWER, keep)
    return frame.select(columns_named(keep), answer.alias(several)).unnest(several)
