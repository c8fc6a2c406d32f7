"""Which columns of a table are read for an answer, and the columns an answer has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from bigforest.encode.dataspec import DataSpec
from bigforest.errors import ConfigError, DataError
from bigforest.forest.values import feature_leaves
from bigforest.forest.votes import labels, proba_names
from bigforest.forest.voting import Answers
from bigforest.memory import Shape

PREDICTION = "prediction"
# Bytes of a value in memory; those of other types are guessed.
_WIDTHS: dict[type[pl.DataType], int] = {
    **dict.fromkeys([pl.Boolean, pl.Int8, pl.UInt8], 1),
    **dict.fromkeys([pl.Int16, pl.UInt16, pl.Float16], 2),
    **dict.fromkeys([pl.Int32, pl.UInt32, pl.Float32, pl.Date, pl.Categorical, pl.Enum], 4),
    **dict.fromkeys([pl.Int64, pl.UInt64, pl.Float64, pl.Datetime, pl.Duration, pl.Time], 8),
    **dict.fromkeys([pl.Int128, pl.UInt128, pl.Decimal], 16),
}
# Types whose values are all float32.
_NARROW = {pl.Boolean, pl.Int8, pl.UInt8, pl.Int16, pl.UInt16, pl.Float16, pl.Float32}


def shape_of(schema: Mapping[str, pl.DataType], columns: Iterable[str], rows: int, spec: DataSpec) -> Shape:
    """What reading these columns takes."""
    return Shape(rows, tuple(_width(schema[name]) for name in columns), 0, len(spec.target.classes))


def _width(dtype: Any) -> int:
    """Bytes of a value in memory."""
    if isinstance(dtype, pl.Struct):
        return sum(_width(field.dtype) for field in dtype.fields)
    if isinstance(dtype, pl.Array):
        return dtype.size * _width(dtype.inner)
    return _WIDTHS.get(dtype.base_type(), 64)


def read_columns(schema: Mapping[str, pl.DataType], spec: DataSpec, used: Iterable[int]) -> list[str]:
    """The columns that have the features `used`."""
    return list(dict.fromkeys(leaf.column for leaf in feature_leaves(schema, spec, used).values()))


def all_narrow(schema: Mapping[str, pl.DataType], spec: DataSpec) -> bool:
    """Whether all values are float32 by their types."""
    found = feature_leaves(schema, spec, range(len(spec.features)))
    return all(leaf.dtype.base_type() in _NARROW for leaf in found.values())


def answer_names(spec: DataSpec, proba: bool, both: bool = False) -> list[str]:
    return [*([PREDICTION] if both or not proba else []), *(proba_names(spec) if proba else [])]


def answer_table(answers: Answers, spec: DataSpec, proba: bool) -> pl.DataFrame:
    if not proba:
        return labels(answers.codes, spec).to_frame()
    assert answers.proba is not None
    return pl.DataFrame({name: answers.proba[:, k] for k, name in enumerate(proba_names(spec))})


def check_kept(keep: list[str], present: Sequence[str], made: list[str]) -> None:
    for name in keep:
        if name not in present:
            raise DataError(f"the data has no column {name!r} to keep; its columns are {', '.join(present[:20])}")
        if name in made:
            raise ConfigError(f"the kept column {name!r} has the name of a prediction column; rename or drop it")
    if len(set(keep)) < len(keep):
        raise ConfigError(f"a column is kept twice: {', '.join(keep)}")
