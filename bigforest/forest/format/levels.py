"""The levels of categories in a forest: levels.parquet, and what nodes list of them as a column of the forest table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bigforest.common.arrow_arrays import arrow_array, as_numpy
from bigforest.forest.format.files import Header, read_table, write_tables
from bigforest.kernels.common.layout import LevelLists
from bigforest.schema.config import TrainConfig
from bigforest.schema.dataspec import DataSpec
from bigforest.store.levels import FILE, KIND, LEVELS, Levels, checked_levels


def has_levels(spec: DataSpec) -> bool:
    """Whether some feature is a category with levels, so that a forest has the file levels.parquet."""
    return any(feature.levels for feature in spec.features)


def write_levels(directory: Path, levels: Levels, spec: DataSpec, config: TrainConfig) -> None:
    """Write levels.parquet of the forest in `directory`, where there are levels."""
    if has_levels(spec):
        write_tables(LEVELS, levels.tables(spec), directory / FILE, KIND, spec, config)


def read_forest_levels(directory: Path, header: Header) -> Levels:
    """The checked levels of the forest in `directory`. Raises FormatError."""
    if not has_levels(header.spec):
        return Levels(np.zeros(len(header.spec.features) + 1, np.int64), pl.Series([], dtype=pl.String))
    path = directory / FILE
    table = read_table(path, KIND, LEVELS, header.identity)[1]
    return checked_levels(table.replace_schema_metadata(None), header.spec, path)


def levels_column(
    lists: LevelLists | None,
    valid: pa.Buffer,
    feature: NDArray[np.int32],
    levels: Levels | None,
    spec: DataSpec,
    kind: pa.DataType,
) -> Any:
    """The column `levels`, of the Arrow type `kind`, of nodes on these features; a missing level is null.

    valid  bitmap of the nodes that have levels.
    """
    if lists is None:
        return pa.nulls(feature.size, kind)
    assert levels is not None
    of = np.repeat(feature, np.diff(lists.start))
    missing = np.array([known.missing for known in spec.features])[of]
    place = levels.offsets[of] + lists.code - missing
    words = levels.words.take(arrow_array(place, mask=missing & (lists.code == 0)))
    start = pa.py_buffer(lists.start.astype(np.int32))
    return pa.Array.from_buffers(kind, feature.size, [valid, start], children=[words])


def check_levels(
    column: Any,
    feature: NDArray[np.int32],
    levels: Levels | None,
    spec: DataSpec,
    require: Callable[[object, str], None],
) -> LevelLists:
    """The checked lists of a column whose nulls are right, of nodes on these features; else `require` raises."""
    assert levels is not None
    length = as_numpy(pc.list_value_length(column), 0)
    start = np.concatenate([[0], np.cumsum(length, dtype=np.int64)])
    require((length[as_numpy(column.is_valid())] > 0).all(), "a node on a category has no levels")
    words, of = column.flatten(), np.repeat(feature, length)
    code = np.zeros(of.size, np.uint32)
    for number in np.unique(of):
        here = of == number
        known, own = spec.features[number], words.filter(arrow_array(here))
        found = pc.index_in(own, value_set=levels.of(number).to_arrow().cast(pa.string()))
        missing = own.is_null()
        require(
            known.missing or own.null_count == 0, "a node lists a missing level of a category that is never missing"
        )
        require(pc.or_(found.is_valid(), missing).false_count == 0, "a node has a level that its category does not")
        place = as_numpy(found, -1)
        code[here] = np.where(as_numpy(missing), 0, place + int(known.missing))
    inside = np.ones(max(code.size - 1, 0), np.bool_)
    inside[start[(start > 0) & (start < code.size)] - 1] = False  # neighbours of two nodes
    require((np.diff(code.astype(np.int64))[inside] > 0).all(), "the levels of a node are not ascending, each once")
    return LevelLists(start, code)
