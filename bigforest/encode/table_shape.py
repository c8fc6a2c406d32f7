"""The shape of a table, known or bounded from above without presorting it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from bigforest.columns.dataspec import MAX_CLASSES, code_width
from bigforest.columns.types import Leaf
from bigforest.encode.roles import ColumnRoles, column_roles
from bigforest.encode.targets import MAX_FLOAT_CLASSES, check_classes, distinct_values
from bigforest.encode.values import value_bytes
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape, TableTraits
from bigforest.source import Source
from bigforest.source.files import find_files, kind_of_file
from bigforest.source.source import reading_parquet
from bigforest.storage.parquet_footer import ColumnChunk, row_groups
from bigforest.storage.paths import readable
from bigforest.store.store import Store

# Number of distinct values of a type.
_VALUES = {pl.Boolean: 2, pl.Int8: 2**8, pl.UInt8: 2**8, pl.Int16: 2**16, pl.UInt16: 2**16, pl.Float16: 2**16}

# A range of integers wider than this says little about how many classes there are.
_CLASS_RANGE = 1_000


def shape_of(
    table: Source | Store,
    data: Any,
    target: str | None,
    exclude: Collection[str],
    config: TrainConfig,
    roles: ColumnRoles | None = None,
) -> Shape:
    """Return the shape of a store; for a table an upper bound of it.

    data   what the table was opened from: the statistics of Parquet files bound the values of integer columns.
    roles  result of `column_roles` for these arguments, if known.

    Reads metadata, and the target if they do not bound its classes. Raises DataError for an unusable table, and
    ConfigError for options of another task.
    """
    if isinstance(table, Store):
        return table.shape
    found, name, task, _, kinds, *_ = roles or column_roles(table, target, exclude, config)
    known = _statistics(data) if table.files else _counted(table, found)
    most = []
    for feature, kind in kinds.items():
        values = _max_values(table.rows, found[feature].dtype, known.get(feature, UNKNOWN))
        most.append(min(values, config.max_bins) if isinstance(config.max_bins, int) and kind == "numeric" else values)
    widths = tuple(code_width(values) for values in most)
    sizes = tuple(value_bytes(found[feature].dtype) for feature in kinds)
    classes = 1
    if task == "classification":
        check_classes(name, found[name].dtype)
        classes = _max_classes(table, found[name], known.get(name, UNKNOWN))
    bits = all(
        kind == "numeric" and found[feature].dtype == pl.Boolean and known.get(feature, UNKNOWN).whole is True
        for feature, kind in kinds.items()
    )
    gaps = {feature for feature in kinds if known.get(feature, UNKNOWN).whole is False}
    category = max((codes for codes, kind in zip(most, kinds.values(), strict=True) if kind == "category"), default=0)
    extras = TableTraits(
        non_plain_features=tuple(
            feature
            for feature, kind in kinds.items()
            if (kind == "category" or feature in gaps) and not config.fills_missing
        ),
        category=0 if config.fills_missing else category,
        regression=task == "regression",
        many=classes > 2,
        weighted=config.weighs_rows,
        filled=config.fills_missing and bool(gaps or category),
        levels=category if config.fills_missing else 0,
    )
    return Shape(table.rows, widths, sum(most), classes, sizes, bits, extras)


class Known(NamedTuple):
    """Knowledge about a column.

    span   number of integers from the smallest to the largest value; None if unknown.
    whole  True if no value is missing; None if unknown.
    """

    span: int | None
    whole: bool | None


UNKNOWN = Known(None, None)


def _statistics(data: Any) -> dict[str, Known]:
    """Return bounds from the statistics of Parquet files."""
    if not isinstance(data, str | Path):
        return {}
    files = find_files(data)[1]
    if kind_of_file(files[0]) != "Parquet":
        return {}
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: dict[str, list[tuple[int | None, tuple[int, int] | None]]] = {}
    for file in files:
        with reading_parquet(file):
            try:
                schema = pq.read_metadata(readable(file)).schema
            except pa.ArrowNotImplementedError:  # integers of 128 bits, which Polars reads
                return {}
            stored = [_stored_integers(schema.column(position)) for position in range(len(schema))]
            for group in row_groups(file):
                for position, chunk in enumerate(group):
                    own = found.setdefault(chunk.name, [])
                    own.append((chunk.nulls, _integers(stored[position], chunk)))
    return {name: _known(*zip(*chunks, strict=True)) for name, chunks in found.items()}


def _known(nulls: Sequence[int | None], spans: Sequence[tuple[int, int] | None]) -> Known:
    """Return the knowledge about a column from that about its chunks."""
    whole = False if any(nulls) else None if None in nulls else True
    bounds = [bound for span in spans if span is not None for bound in span]
    return Known(None if None in spans else max(bounds) - min(bounds) + 1, whole)


class StoredIntegers(NamedTuple):
    """Storage of the integers of a column: bytes of each, and whether they have a sign."""

    size: int
    signed: bool


def _stored_integers(column: Any) -> StoredIntegers | None:
    """Return the storage of the integers of a column; None if it has no integers."""
    kind = json.loads(column.logical_type.to_json())
    size = {"INT32": 4, "INT64": 8}.get(column.physical_type)
    if size is None or kind["Type"] not in ("None", "Int"):
        return None
    return StoredIntegers(size, kind.get("isSigned", True))


def _integers(stored: StoredIntegers | None, chunk: ColumnChunk) -> tuple[int, int] | None:
    """Return the least and the greatest integer of a chunk; None if unknown, or where the column has no integers."""
    if stored is None or chunk.low is None or chunk.high is None:
        return None
    if len(chunk.low) != stored.size or len(chunk.high) != stored.size:
        return None
    low, high = (int.from_bytes(value, "little", signed=stored.signed) for value in (chunk.low, chunk.high))
    return (low, high) if low <= high else None


def _counted(source: Source, columns: Mapping[str, Leaf]) -> dict[str, Known]:
    """Return, for columns of a table in memory with few possible values, if all cells have a value."""
    bounded = {name: leaf.expr for name, leaf in columns.items() if type(leaf.dtype) in _VALUES}
    if not bounded or source.frame is None:
        return {}
    nulls = source.frame.select(expr.null_count().alias(name) for name, expr in bounded.items()).collect().row(0)
    return {name: Known(None, count == 0) for name, count in zip(bounded, nulls, strict=True)}


def _max_values(rows: int, dtype: pl.DataType, known: Known) -> int:
    """Return the maximal number of codes, including that of missing values."""
    bound = min(_VALUES.get(type(dtype), rows), rows if known.span is None else known.span)
    return min(rows, bound + (known.whole is not True))


def _max_classes(source: Source, target: Leaf, known: Known) -> int:
    """Return the maximal number of classes; they are counted, up to the allowed number, if metadata say little."""
    dtype = target.dtype
    if dtype.is_float():
        return MAX_FLOAT_CLASSES
    whole = dtype == pl.Boolean or dtype.is_integer()
    bound = _max_values(source.rows, dtype, known._replace(whole=True)) if whole else source.rows
    if bound <= _CLASS_RANGE and bound < source.rows:
        return max(bound, 2)
    return min(max(len(distinct_values(source, target).values), 2), MAX_CLASSES)
