"""The levels of categories: levels.parquet, in a store and, with the same columns, in a forest.

A level is stored as text: text without spaces around it, booleans as `false` and `true`, integers by their digits. The
levels of a feature ascend in the order of their codes: text by its UTF-8 bytes, integers by value. Their codes are
consecutive, from 0, or from 1 if code 0 is for missing values (FeatureSpec).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import Column, arrow_array, as_numpy, file_schema
from bigforest.columns.dataspec import DataSpec, FeatureSpec
from bigforest.errors import FormatError, damaged_store
from bigforest.storage.arrow import naming_faults
from bigforest.storage.paths import readable

# Rows of a row group. Code that only copies levels has one row group in memory at a time.
GROUP_LEVELS = 1 << 16

LEVEL_COLUMNS = (
    Column("feature", pa.uint32(), "position among the features of training"),
    Column("code", pa.uint32(), "in ascending order of the levels, from 0, or from 1 if values may be missing"),
    Column("level", pa.string(), "text without spaces around it, booleans as `false` and `true`, integers in digits"),
)
VALUE_COLUMN = Column(
    "value",
    pa.float32(),
    "number of the level in projections; only if the trees of the forest split on projections",
)
LEVELS = file_schema(LEVEL_COLUMNS)
LEVELS_WITH_VALUES = file_schema((*LEVEL_COLUMNS, VALUE_COLUMN))


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels of all categories. Feature f has level[offsets[f]:offsets[f + 1]], ascending; none if it is numeric.

    offsets  int64 [features + 1]
    level    String [all levels]
    value    float32 [all levels], the number of each level in projections; None without projections
    """

    offsets: NDArray[np.int64]
    level: pl.Series
    value: NDArray[np.float32] | None = None

    @classmethod
    def none(cls, spec: DataSpec) -> Levels:
        """Return the empty list of levels of a table without categories."""
        return cls(np.zeros(len(spec.features) + 1, np.int64), pl.Series([], dtype=pl.String))

    def equal(self, other: Levels) -> bool:
        """Return True if all levels and their values are the same."""
        if self.value is None or other.value is None:
            same = self.value is other.value
        else:
            same = np.array_equal(self.value, other.value)
        return same and self.level.equals(other.level)

    @cached_property
    def words(self) -> Any:
        """`level` as an Arrow array of type string. It is made once, because every part of a forest uses it."""
        return self.level.to_arrow().cast(pa.string())

    def of(self, feature: int) -> pl.Series:
        """Return the levels of a feature, in the order of their codes."""
        return self.level.slice(int(self.offsets[feature]), int(self.offsets[feature + 1] - self.offsets[feature]))

    def code_values(self, feature: int, spec: FeatureSpec) -> NDArray[np.float32]:
        """Return the value of each code of a feature whose levels have values, and then the value of unknown levels."""
        none = np.empty(0, np.float32)  # if no category of the table has a level
        values = none if self.value is None else self.value[self.offsets[feature] : self.offsets[feature + 1]]
        return np.array([*[spec.fill] * spec.missing, *values, spec.other], np.float32)

    def between(self, feature: int, spec: FeatureSpec, low: float = -np.inf, high: float = np.inf) -> list[str | None]:
        """Return the levels whose values are above `low` and at most `high`, in the order of the codes.

        The first is None, for missing cells, if their value is in this range.
        """
        values = self.code_values(feature, spec)[:-1]
        names = [*[None] * spec.missing, *self.of(feature)]
        return [names[code] for code in np.flatnonzero((values > low) & (values <= high)).tolist()]

    def tables(self, spec: DataSpec) -> Iterator[pa.Table]:
        """Yield all levels as tables, in the form of levels.parquet of a forest."""
        for feature, feature_spec in enumerate(spec.features):
            if feature_spec.kind == "category":
                begin = int(self.offsets[feature])
                for table in level_tables(feature, int(feature_spec.missing), self.of(feature)):
                    end = begin + table.num_rows
                    if self.value is not None:
                        table = table.append_column(
                            LEVELS_WITH_VALUES.field("value"), arrow_array(self.value[begin:end])
                        )
                    yield table
                    begin = end


def level_text(level: str | None) -> str:
    """Return a level as it stands in conditions: `missing` for None, and in quotes if it could not be told apart."""
    if level is None:
        return "missing"
    return repr(level) if level in ("", "missing") else level


def level_tables(feature: int, first: int, levels: pl.Series) -> Iterator[pa.Table]:
    """Yield the levels of one feature, whose codes begin with `first`, as tables of at most GROUP_LEVELS rows."""
    for start in range(0, len(levels), GROUP_LEVELS):
        piece = levels.slice(start, GROUP_LEVELS)
        code = np.arange(first + start, first + start + len(piece), dtype=np.uint32)
        columns = [np.full(len(piece), feature, np.uint32), code, piece.to_arrow().cast(pa.string())]
        yield pa.Table.from_arrays([arrow_array(column) for column in columns], schema=LEVELS)


class LevelsFile:
    """Writer of levels.parquet of a store. Each added table becomes a row group."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()  # Arrow would read a relative path such as s3:a as a URL
        self._writer: pq.ParquetWriter | None = None

    def add(self, tables: Iterable[pa.Table]) -> None:
        """Append tables of schema LEVELS. The first one creates the file."""
        for table in tables:
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, LEVELS, compression="lz4", write_statistics=False)
            self._writer.write_table(table)

    def close(self) -> Path | None:
        """Finish the file and return its path; None if nothing was added."""
        if self._writer is None:
            return None
        self._writer.close()
        return self._path


def read_levels(path: Path, spec: DataSpec) -> Levels:
    """Return the checked levels of the file `path` of a store. Raises FormatError."""
    with naming_faults(lambda fault: damaged_store(f"{path}: not readable Parquet ({fault})"), path):
        table = pq.ParquetFile(readable(path)).read(use_threads=False)
    return checked_levels(table, spec, path, damaged_store)


def checked_levels(table: pa.Table, spec: DataSpec, path: Path, damaged: Callable[[str], FormatError]) -> Levels:
    """Return the levels in a table read from the file `path`, checked against the dataspec.

    damaged  function that returns the error for a message.
    """
    if not table.schema.equals(LEVELS) or any(column.null_count for column in table.columns):
        raise damaged(f"{path}: not the columns of levels")
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        raise damaged(f"{path}: invalid text ({error})") from error
    sizes = np.array([feature.levels for feature in spec.features], np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    levels = Levels(offsets, pl.Series("level", table["level"], pl.String))
    first = np.array([int(feature.missing) for feature in spec.features], np.int64)
    sound = (
        table.num_rows == offsets[-1]
        and np.array_equal(as_numpy(table["feature"]), np.repeat(np.arange(sizes.size), sizes))
        and np.array_equal(as_numpy(table["code"]), np.arange(offsets[-1]) - np.repeat(offsets[:-1] - first, sizes))
        and all(_ascends(levels.of(number), feature) for number, feature in enumerate(spec.features))
    )
    if not sound:
        raise damaged(f"{path}: levels and codes are not ascending for each category")
    return levels


def _ascends(levels: pl.Series, feature: FeatureSpec) -> bool:
    """Return True if these are valid levels of the feature, in ascending order."""
    order = levels
    if feature.dtype == "Boolean" and not levels.is_in(["false", "true"]).all():
        return False
    if "Int" in feature.dtype:
        order = levels.cast(pl.Int128, strict=False)
        if order.null_count() or (order.cast(pl.String) != levels).any():
            return False
    return bool((order.slice(1) > order.head(len(order) - 1)).all()) if len(order) > 1 else True
