"""The shape of a table, known or bounded from above without presorting it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import polars as pl

from bigforest.columns import Leaf, leaves
from bigforest.config import TrainConfig
from bigforest.encode.dataspec import MAX_CLASSES, code_width
from bigforest.encode.features import choose_features
from bigforest.encode.keys import value_bytes
from bigforest.encode.pipeline import check_groups
from bigforest.encode.target import MAX_FLOAT_CLASSES, find_target
from bigforest.errors import DataError
from bigforest.memory import Shape
from bigforest.places import readable
from bigforest.source import Source
from bigforest.source.files import KINDS, find_files
from bigforest.store.store import Store

# Distinct values that a type has room for.
_VALUES = {pl.Boolean: 2, pl.Int8: 2**8, pl.UInt8: 2**8, pl.Int16: 2**16, pl.UInt16: 2**16, pl.Float16: 2**16}

# A range of integers wider than this says little about how many classes there are.
_CLASS_RANGE = 1_000

_BATCH_ROWS = 1 << 20


def shape_of(
    table: Source | Store, data: Any, target: str | None, exclude: Collection[str], config: TrainConfig
) -> Shape:
    """The shape of a store; of a table the largest that it may turn out to have.

    data  what the table was opened from: the statistics of Parquet files bound the values of integer columns.

    Reads metadata, and the target where they do not bound its classes. Raises DataError for an unusable table.
    """
    if isinstance(table, Store):
        return table.shape
    found = leaves(table.schema)
    name = find_target({one: leaf.dtype for one, leaf in found.items()}, target)
    spans = _spans(data)
    names = choose_features(found, name, [*exclude, *check_groups(config.group, found, name)])
    most = [_most_values(table.rows, found[feature].dtype, spans.get(feature)) for feature in names]
    if isinstance(config.max_bins, int):
        most = [min(values, config.max_bins) for values in most]
    widths = tuple(code_width(values) for values in most)
    sizes = tuple(value_bytes(found[feature].dtype) for feature in names)
    classes = _most_classes(table, found[name], spans.get(name))
    bits = all(found[feature].dtype == pl.Boolean for feature in names)
    return Shape(table.rows, widths, sum(most), classes, sizes, bits)


def _spans(data: Any) -> dict[str, int]:
    """Number of integers from the least to the greatest of a column, where statistics of Parquet files tell."""
    if not isinstance(data, str | Path):
        return {}
    files = find_files(data)[1]
    if KINDS[files[0].suffix.lower()] != "Parquet":
        return {}
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: dict[str, tuple[int, int]] = {}
    silent: set[str] = set()
    for file in files:
        try:
            metadata = pq.read_metadata(readable(file))
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{file}: not a readable Parquet file: {error}") from error
        for group in range(metadata.num_row_groups):
            for position in range(metadata.num_columns):
                column = metadata.row_group(group).column(position)
                name, known = column.path_in_schema, column.statistics
                if known is None or not known.has_min_max or type(known.min) is not int:
                    silent.add(name)
                else:
                    low, high = found.get(name, (known.min, known.max))
                    found[name] = (min(low, known.min), max(high, known.max))
    return {name: high - low + 1 for name, (low, high) in found.items() if name not in silent}


def _most_values(rows: int, dtype: pl.DataType, span: int | None) -> int:
    return min(rows, _VALUES.get(type(dtype), rows), rows if span is None else span)


def _most_classes(source: Source, target: Leaf, span: int | None) -> int:
    """Classes of the target at most; counted where the metadata do not bound them, until they are too many."""
    dtype = target.dtype
    if dtype.is_float():
        return MAX_FLOAT_CLASSES
    whole = dtype == pl.Boolean or dtype.is_integer()
    bound = _most_values(source.rows, dtype, span) if whole else source.rows
    if bound <= _CLASS_RANGE and bound < source.rows:
        return max(bound, 2)
    seen: set[Any] = set()
    for batch in source.batches([target.column], _BATCH_ROWS):
        seen.update(batch.select(target.expr).to_series().drop_nulls().unique().to_list())
        if len(seen) > MAX_CLASSES:
            return MAX_CLASSES
    return max(len(seen), 2)
