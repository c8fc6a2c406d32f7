"""Predictions within lazy queries, as Polars expressions."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from bigforest.columns.labels import label_type
from bigforest.columns.types import columns_named
from bigforest.errors import ConfigError, DataError, api, counted
from bigforest.execution.forks import check_polars_threads
from bigforest.execution.resources import Resources
from bigforest.predict.columns import (
    PREDICTION,
    check_category_in,
    check_columns,
    check_proba,
    prediction_column,
    prediction_names,
    prediction_table,
    prediction_types,
)
from bigforest.predict.loader import TreeLoader
from bigforest.predict.rows import FEWEST_ROWS, UnseenLevels, check_schema
from bigforest.predict.vote_rule import VoteRule
from bigforest.source.in_memory import free_name

# The structs of predictions of several columns.
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
    """Return the expression of `Forest.expr`. With the schema of the query, features that were nested in training may
    be columns."""
    check_polars_threads()
    check_proba(loader.files.spec, proba)
    if proba and rule.conformal is not None:
        raise ConfigError(f"an expression gives probabilities or sets; drop {api('proba')} or {api('coverage')}")
    if row is not None and not isinstance(row, str):
        raise ConfigError(f"{api('row')} must be the name of a column, not {row!r}")
    predictor, reader = loader.predictor(rule), loader.reader(rule.unseen)
    if rule.draws and row is None and not proba:
        raise ConfigError(
            "random predictions depend on the number of the row: name a column that holds it "
            "(see with_row_index), or use Forest.predict"
        )
    spec = loader.files.spec
    if schema is None:
        used = [spec.features[int(place)] for place in predictor.packed.used]
        names = list(dict.fromkeys(feature.table_column for feature in used))
    else:
        names = check_schema(schema, spec, predictor.packed.used).columns(predictor.packed.used)
    if rule.category is not None:
        names = list(dict.fromkeys([*names, rule.category]))
    numbers = free_name("row", names)
    # `answer` names the columns that a table lacks, also if it lacks all; Polars would refuse an empty struct.
    fields = [cs.by_name(*names, require_all=False).as_expr()]
    if names:
        fields.append(pl.lit(None).alias(free_name("none", [*names, numbers])))
    if row is not None:
        fields.append(columns_named([row]).alias(numbers))

    warned: list[bool] = []
    warning_lock = threading.Lock()

    def answer(rows: pl.Series) -> pl.Series:
        frame = rows.struct.unnest()
        features = check_schema(frame.schema, spec, predictor.packed.used)
        check_category_in(frame.schema, rule)
        row_numbers = 0 if row is None else _row_numbers(frame[numbers].alias(row))
        tally = UnseenLevels() if frame.height >= FEWEST_ROWS else None
        read = reader.frame(frame, features, predictor.packed.used, tally)
        if tally is not None:
            with warning_lock:  # once, as a query has many pieces
                if not warned and tally.tell(among=f"a batch of {counted(frame.height, 'row')}"):
                    warned.append(True)
        predictions = predictor.predict(read, row_numbers, proba=proba)
        return (
            prediction_table(predictions, spec, rule, proba, frame).to_struct()
            if several
            else prediction_column(predictions, spec)
        )

    several = proba or _has_more(rule)
    dtype = pl.Struct(prediction_types(spec, rule, proba)) if several else label_type(spec.target)
    struct = pl.struct(fields).map_batches(answer, return_dtype=dtype, is_elementwise=True)
    return struct.alias(PROBABILITIES if proba else ANSWER if several else PREDICTION)


def _has_more(rule: VoteRule) -> bool:
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
    check_polars_threads()
    schema = frame.collect_schema()
    check_schema(schema, loader.files.spec)
    check_columns(keep, schema, rule, prediction_names(loader.files.spec, rule, proba))
    row = None
    loader.predictor(rule, resources.memory, resources.workers)
    if rule.draws and not proba:
        row = free_name("row", schema)
        frame = frame.with_row_index(row)
    answer = expression(loader, rule, proba=proba, row=row, schema=schema)
    if not (proba or _has_more(rule)):
        return frame.select(columns_named(keep), answer)
    several = free_name(ANSWER, keep)
    return frame.select(columns_named(keep), answer.alias(several)).unnest(several)
