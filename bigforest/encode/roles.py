"""Roles of the columns of a table, and an upper bound of its shape, before the table is encoded.

Roles are target, groups, weights, and features with their kinds. Names of columns are checked before anything is read,
so that a wrong name costs no time. A target of whole numbers, dates or times is read to tell classes from measurements.
The shape is found from metadata and, for a table in memory, from the number of missing values of some columns. The
target is read if metadata do not bound its number of classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from bigforest.columns.dataspec import MAX_CLASSES, code_width
from bigforest.columns.types import FlatColumn, flat_columns, is_feature_type, is_text_type
from bigforest.encode.rows import check_group, check_weight
from bigforest.encode.targets import MAX_UNUSUAL_CLASSES, check_classes, distinct_values, find_task
from bigforest.encode.values import value_bytes
from bigforest.errors import DataError, api, listed, similar_names
from bigforest.options.train_config import TrainConfig, check_axes_from, check_features
from bigforest.options.values import Task
from bigforest.planning.memory import Shape, TableTraits
from bigforest.source.in_memory import TARGET
from bigforest.source.source import Source, reading_parquet
from bigforest.storage.parquet_footer import ColumnChunk, row_groups
from bigforest.storage.paths import readable

USUAL_NAMES = ("target", "label", "class", "y")

# Names that pandas writes to Parquet and Arrow for an index without a name. Such an index is not a feature.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
# Names of an index without a name in text files: empty, or Unnamed if pandas has read the file and written it again.
_INDEX_IN_TEXT = re.compile(r"|Unnamed: \d+(\.\d+)*")


class ColumnRoles(NamedTuple):
    """Roles of the columns of a table.

    columns  all columns, nested ones unnested.
    others   names of the column of groups and the column of weights, if the options name them.
    kinds    "numeric" or "category" for each feature.
    why      reason for the task, see `TargetTask`.
    indexes  columns that are excluded because they are an index without a name.
    rivals   features whose name says that they may be the target, or a copy of it; empty if the target was named.
    """

    columns: dict[str, FlatColumn]
    target: str
    task: Task
    others: list[str]
    kinds: dict[str, str]
    why: str | None
    indexes: list[str]
    rivals: list[str]


def column_roles(source: Source, target: str | None, exclude: Collection[str], config: TrainConfig) -> ColumnRoles:
    """Return the roles of the columns. Raises DataError and ConfigError for a column that cannot have its role.

    target   the column to predict; None for the first of the names target, label, class and y that is a column.
    exclude  columns to ignore.
    """
    columns = flat_columns(source.schema, exclude)
    name = find_target(columns, target)
    others = _groups_and_weights(config, columns, name)
    left_out = [*exclude, *others]
    # The first columns of a file are indexes if they have no name, as pandas and R write them.
    begin = takewhile(_INDEX_IN_TEXT.fullmatch, columns if source.files else ())
    indexes = [index for index in begin if index not in (name, *left_out, *config.categories)]
    kinds = feature_kinds(columns, name, [*left_out, *indexes], config.categories)
    if not config.chooses_axes:
        check_axes_from(config, kinds)
    for used in (name, *others, *kinds):
        if "\0" in used:
            raise DataError(
                f"the name of column {used!r} has a zero byte, which no Arrow file has; rename or exclude it"
            )
    task, why = find_task(source, columns[name], config.task, config.only_task)  # may read the target
    config.for_task(task)
    check_features(config, kinds)
    # A target given as an array is called target, with underscores if a column has this name. The column may be a copy.
    unnamed = USUAL_NAMES if target is None else (TARGET,) if name.rstrip("_") == TARGET else ()
    rivals = [rival for rival in unnamed if rival in kinds]
    return ColumnRoles(columns, name, task, others, kinds, why, indexes, rivals)


def _groups_and_weights(config: TrainConfig, columns: Mapping[str, FlatColumn], target: str) -> list[str]:
    """Return the columns of groups and of weights. Raises DataError for a column that cannot have its role."""
    chosen: list[str] = []
    for role, name, check in (("group", config.group, check_group), ("weight", config.weight, check_weight)):
        if name is not None:
            check_column(name, columns, role)
            if name == target or name in chosen:
                other_role = "target" if name == target else "column of groups"
                raise DataError(f"{name!r} is the {other_role} and cannot also be the {role}; choose another column")
            check(name, columns[name].dtype)
            chosen.append(name)
    return chosen


def feature_kinds(
    columns: Mapping[str, FlatColumn], target: str, exclude: Collection[str], categories: Collection[str]
) -> dict[str, str]:
    """Return the kind of each feature. Features are all columns except the target, excluded columns and pandas indexes.

    categories  features of whole numbers or booleans to use as categories. Features of text always are categories.

    Raises DataError for a column that cannot be a feature.
    """
    names = _choose_features(columns, target, exclude)
    for name in categories:
        if name in columns and name not in names:
            raise DataError(
                f"{name!r} is not a feature, so its values cannot be categories; drop it from {api('categories')}"
            )
        check_column(name, names, "categories")
        dtype = columns[name].dtype
        if not (is_text_type(dtype) or dtype == pl.Boolean or dtype.is_integer()):
            odd = ", with numbers that are not whole" if dtype.is_float() or dtype == pl.Decimal else ""
            raise DataError(
                f"{name!r} has type {dtype}{odd}; only text, whole numbers and booleans can be categories: cast it to "
                "one"
            )
    return {
        name: "category" if name in categories or is_text_type(columns[name].dtype) else "numeric" for name in names
    }


def _choose_features(columns: Mapping[str, FlatColumn], target: str, exclude: Collection[str]) -> list[str]:
    outer = {flat.column for flat in columns.values()}
    for name in exclude:
        check_column(name, {**columns, **dict.fromkeys(outer)}, "exclude")
        if name == target:
            raise DataError(f"{name!r} is the target and cannot be excluded; name another target, or keep it")
    left_out = {target, *exclude}
    names = [
        name
        for name, flat in columns.items()
        if name not in left_out and flat.column not in exclude and not _PANDAS_INDEX.fullmatch(flat.column)
    ]
    if not names:
        raise DataError(f"no feature is left besides target {target!r}; exclude fewer columns")
    unusable = [name for name in names if not is_feature_type(columns[name].dtype)]
    if unusable:
        named = listed([f"{name} ({columns[name].dtype})" for name in unusable])
        lists = any(isinstance(columns[name].dtype, pl.List) for name in unusable)
        hint = "; lists that are all of one length can be cast to Array" if lists else ""
        raise DataError(
            f"columns of these types cannot be features: {named}; exclude them or convert them to numbers or text{hint}"
        )
    return names


def find_target(columns: Collection[str], requested: str | None) -> str:
    """Return the name of the target: `requested`, or the first usual name that is a column. Raises DataError."""
    if requested is not None:
        check_column(requested, columns, "target")
        return requested
    for name in USUAL_NAMES:
        if name in columns:
            return name
    names = list(columns)
    lower = {name.lower(): name for name in reversed(names)}
    near = [match for usual in USUAL_NAMES for match in get_close_matches(usual, lower, n=2, cutoff=0.75)]
    likely = list(dict.fromkeys([*(lower[match] for match in near), *names[-1:]]))
    raise DataError(
        f"no column is named {', '.join(USUAL_NAMES[:-1])} or {USUAL_NAMES[-1]}; set {api('target')} to the column to "
        f"predict, such as {' or '.join(map(repr, likely))}: the columns are {listed(names)}{_header_advice(names)}"
    )


def check_column(name: str, columns: Collection[str], role: str) -> None:
    """Raise DataError, naming similar columns, if `name` is not among `columns`."""
    if name not in columns:
        near = similar_names(name, columns, cutoff=0.6)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"the columns are {listed(list(columns))}"
        if "," in name and all(part.strip() in columns for part in name.split(",")):
            hint = "give each of these columns by itself"
        raise DataError(f"there is no column {name!r} for {api(role)}; {hint}{_header_advice(columns)}")


def _header_advice(columns: Collection[str]) -> str:
    """Return advice if the name of the only column seems to be a whole header; otherwise an empty text."""
    if len(columns) > 1 or all(map(str.isidentifier, columns)):
        return ""
    return "; if that is a whole header, write values with a comma, a semicolon, a tab or | between them"


# Number of distinct values of a type.
_VALUES = {pl.Boolean: 2, pl.Int8: 2**8, pl.UInt8: 2**8, pl.Int16: 2**16, pl.UInt16: 2**16, pl.Float16: 2**16}

# Larger bounds of the number of classes are of no use; the classes are counted instead.
_MAX_CLASS_BOUND = 1_000


def shape_of(table: Source, roles: ColumnRoles, config: TrainConfig) -> Shape:
    """Return an upper bound of the shape of the store of a table.

    Statistics of Parquet files bound the values of integer columns. Reads metadata, and the target if metadata do not
    bound its classes. Raises DataError for a target that cannot be classes, and for files that cannot be read.
    """
    columns, target, kinds = roles.columns, roles.target, roles.kinds
    known = _bounds_from_files(table.files) if table.files else _bounds_from_frame(table, columns, target)
    bounds = {name: known.get(name, UNKNOWN) for name in (target, *kinds)}
    codes = {feature: _max_codes(table.rows, columns[feature].dtype, bounds[feature]) for feature in kinds}
    if isinstance(config.max_bins, int):
        codes |= {name: min(codes[name], config.max_bins) for name, kind in kinds.items() if kind == "numeric"}
    classes = 1
    if roles.task == "classification":
        check_classes(target, columns[target].dtype)
        classes = _max_classes(table, columns[target], bounds[target])
    bits = all(
        kind == "numeric" and columns[feature].dtype == pl.Boolean and bounds[feature].complete is True
        for feature, kind in kinds.items()
    )
    non_plain = [name for name, kind in kinds.items() if kind == "category" or bounds[name].complete is False]
    levels = max((codes[name] for name, kind in kinds.items() if kind == "category"), default=0)
    filled = config.fills_missing
    extras = TableTraits(
        non_plain_features=() if filled else tuple(non_plain),
        category=0 if filled else levels,
        regression=roles.task == "regression",
        many=classes > 2,
        weighted=config.weighs_rows,
        filled=filled and bool(non_plain),
        levels=levels if filled else 0,
    )
    widths = tuple(map(code_width, codes.values()))
    sizes = tuple(value_bytes(columns[feature].dtype) for feature in kinds)
    dropped = config.weight is not None or columns[target].dtype.is_float() or bounds[target].complete is not True
    return Shape(table.rows, widths, sum(codes.values()), classes, sizes, bits, extras, dropped)


class ColumnBounds(NamedTuple):
    """Bounds of a column from metadata.

    span      number of integers from the smallest to the largest value; None if unknown.
    complete  True if no value is missing, False if some are; None if unknown.
    """

    span: int | None
    complete: bool | None


UNKNOWN = ColumnBounds(None, None)


def _bounds_from_files(files: Sequence[Path]) -> dict[str, ColumnBounds]:
    import pyarrow.parquet as pq

    chunk_entries: dict[str, list[tuple[int | None, tuple[int, int] | None]]] = {}
    for file in files:
        with reading_parquet(file):
            schema = pq.read_metadata(readable(file)).schema
            stored = [_stored_integers(schema.column(position)) for position in range(len(schema))]
            for group in row_groups(file):
                for position, chunk in enumerate(group):
                    entries = chunk_entries.setdefault(chunk.name, [])
                    entries.append((chunk.nulls, _integers(stored[position], chunk)))
    return {name: _join_bounds(*zip(*chunks, strict=True)) for name, chunks in chunk_entries.items()}


def _join_bounds(nulls: Sequence[int | None], spans: Sequence[tuple[int, int] | None]) -> ColumnBounds:
    complete = False if any(nulls) else None if None in nulls else True
    bounds = [bound for span in spans if span is not None for bound in span]
    return ColumnBounds(None if None in spans else max(bounds) - min(bounds) + 1, complete)


def _stored_integers(column: Any) -> np.dtype[Any] | None:
    """Return the type of the integers of a column in a Parquet file; None if it has no integers."""
    kind = json.loads(column.logical_type.to_json())
    size = {"INT32": 4, "INT64": 8}.get(column.physical_type)
    if size is None or kind["Type"] not in ("None", "Int"):
        return None
    return np.dtype(f"<{'i' if kind.get('isSigned', True) else 'u'}{size}")


def _integers(stored: np.dtype[Any] | None, chunk: ColumnChunk) -> tuple[int, int] | None:
    """Return the least and the greatest integer of a chunk; None if unknown, or if the column has no integers."""
    if stored is None or chunk.low is None or chunk.high is None:
        return None
    if len(chunk.low) != stored.itemsize or len(chunk.high) != stored.itemsize:
        return None
    low, high = (int(np.frombuffer(value, stored)[0]) for value in (chunk.low, chunk.high))
    return (low, high) if low <= high else None


def _bounds_from_frame(source: Source, columns: Mapping[str, FlatColumn], target: str) -> dict[str, ColumnBounds]:
    """Return bounds, without spans, of the target and of the columns whose types have few possible values.

    Empty unless the table is in memory.
    """
    bounded = {name: flat.expr for name, flat in columns.items() if type(flat.dtype) in _VALUES or name == target}
    if source.frame is None:
        return {}
    nulls = source.frame.select(expr.null_count().alias(name) for name, expr in bounded.items()).collect().row(0)
    return {name: ColumnBounds(None, count == 0) for name, count in zip(bounded, nulls, strict=True)}


def _max_codes(rows: int, dtype: pl.DataType, bounds: ColumnBounds) -> int:
    """Return the maximum number of codes, including the code of missing values."""
    bound = min(_VALUES.get(type(dtype), rows), rows if bounds.span is None else bounds.span)
    return min(rows, bound + (bounds.complete is not True))


def _max_classes(source: Source, target: FlatColumn, bounds: ColumnBounds) -> int:
    """Return an upper bound of the number of classes. Read the target and count if metadata have no useful bound."""
    dtype = target.dtype
    if dtype.is_float():
        return MAX_UNUSUAL_CLASSES
    whole = dtype == pl.Boolean or dtype.is_integer()
    bound = _max_codes(source.rows, dtype, bounds._replace(complete=True)) if whole else source.rows
    if bound <= _MAX_CLASS_BOUND and bound < source.rows:
        return max(bound, 2)
    return min(max(len(distinct_values(source, target)), 2), MAX_CLASSES)
