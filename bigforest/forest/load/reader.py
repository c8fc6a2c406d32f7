"""Converts tables and arrays to rows as trees read them: numbers, and codes of levels. Missing values are NaN."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.common.errors import DataError, counted
from bigforest.forest.load.feature_map import NARROW, FeatureMap
from bigforest.forest.load.row_batch import FeatureBlock, RowBatch
from bigforest.schema.columns import cells, codes_by_column, is_plain, numbers
from bigforest.schema.dataspec import DataSpec
from bigforest.source.in_memory import is_missing
from bigforest.store.levels import Levels

# Unseen levels that an error names.
_NAMED = 5


class _Use(NamedTuple):
    """Where a feature is among those in use, and in the dataspec."""

    at: int
    place: int


@dataclass(frozen=True)
class Reader:
    """Reads rows for the trees of a forest.

    levels  of its categories.
    unseen  how a level that did not occur in training is treated: see vote_rule.py VoteRule.

    The code of a level that is not known is one past the last, and so is that of a missing one of a category that was
    never missing in training: no node lists it. Where trees split on the values of levels, these take the place of
    codes.
    """

    spec: DataSpec
    levels: Levels
    unseen: str

    @cached_property
    def _categories(self) -> list[str]:
        """The names of the first features that are categories."""
        names = (feature.name for feature in self.spec.features if feature.kind == "category")
        return list(islice(names, _NAMED))

    @cached_property
    def _values(self) -> dict[int, NDArray[np.float32]]:
        """Of the features whose levels have values, see Levels.code_values."""
        features = enumerate(self.spec.features)
        return {place: self.levels.code_values(place, own) for place, own in features if own.has_level_values}

    def frame(self, frame: pl.DataFrame, found: FeatureMap, used: Iterable[int]) -> RowBatch:
        """The features `used` (positions in the dataspec) of a frame in which they were `found`.

        Raises DataError for levels not seen in training, where these are errors.
        """
        columns: dict[str, _Use] = {}
        nested: dict[str, _Use] = {}
        for at, place in enumerate(used):
            leaf = found.leaves[int(place)]
            if leaf.path:
                nested[f"{at}"] = _Use(at, int(place))
            else:
                columns[leaf.column] = _Use(at, int(place))
        blocks = self._blocks(frame, columns) if columns else []
        if nested:
            inner = frame.select(found.leaves[use.place].expr.alias(name) for name, use in nested.items())
            blocks += self._blocks(inner, nested)
        return RowBatch(blocks)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raise DataError for the shape of an array that does not have two dimensions and a column for each feature."""
        if len(shape) != 2 or shape[1] != len(self.spec.features):
            raise DataError(
                f"the array has shape {shape}; the forest was trained on "
                f"{counted(len(self.spec.features), 'feature')}, so it needs two dimensions and that many columns"
            )

    def matrix(self, matrix: NDArray[Any], used: NDArray[np.int64]) -> RowBatch:
        """The features `used` of an array [rows, features] whose columns are in the order of training.

        Of dates and times they hold the integers behind them, see schema/columns.py. Where some are categories it must
        be an array of text, or of objects: levels as text, booleans or whole numbers, None or NaN for missing ones.

        Raises DataError for another shape or type, and as `frame` does.
        """
        features = self.spec.features
        self.check_shape(matrix.shape)
        if matrix.dtype.kind == "O" or (matrix.dtype.kind == "U" and self._categories):
            return RowBatch.of([self._objects(matrix[:, place], int(place)) for place in used])
        if self._categories:
            raise DataError(
                f"the features {', '.join(map(repr, self._categories))} are categories, and the array holds "
                f"{matrix.dtype}: give a table, or an array of objects"
            )
        if matrix.dtype.kind not in "biuf" or matrix.dtype.itemsize > 8:
            raise DataError(f"the array has type {matrix.dtype}; convert it to numbers of at most 64 bits")
        if used.size == len(features):
            return RowBatch([FeatureBlock(matrix, matrix.dtype, slice(0, used.size))])
        gaps = np.flatnonzero(np.diff(used) != 1) + 1
        ends = [0, *gaps.tolist(), used.size]
        # Runs of features are parts of the array, which is not copied.
        return RowBatch(
            [
                FeatureBlock(matrix[:, used[begin] : used[end - 1] + 1], matrix.dtype, slice(begin, end))
                for begin, end in pairwise(ends)
            ]
        )

    def _blocks(self, frame: pl.DataFrame, columns: Mapping[str, _Use]) -> list[FeatureBlock]:
        """Some columns of a frame; those of one type that numpy shares without conversion are one block."""
        found = frame[list(columns)]
        blocks: list[FeatureBlock] = []
        alike: dict[Any, list[str]] = {}
        categories: list[_Use] = []
        series: list[pl.Series] = []
        nulls = found.null_count().row(0)
        for (name, use), dtype, missing in zip(columns.items(), found.dtypes, nulls, strict=True):
            if self.spec.features[use.place].kind == "category":
                categories.append(use)
                series.append(cells(found, name))
            elif is_plain(dtype) and not missing:
                alike.setdefault(dtype, []).append(name)
            else:
                blocks.append(FeatureBlock.of_column(self._numbers(cells(found, name), use.place), use.at))
        codes = self._codes(series, [use.place for use in categories]) if series else []
        blocks += [FeatureBlock.of_column(own, use.at) for own, use in zip(codes, categories, strict=True)]
        return blocks + [
            FeatureBlock.of_table(found[names], [columns[name].at for name in names]) for names in alike.values()
        ]

    def _numbers(self, series: pl.Series, place: int) -> NDArray[Any]:
        feature = self.spec.features[place]
        if series.dtype == pl.Null or feature.dtype == "Null":
            return np.full(len(series), np.nan, np.float32)
        found = numbers(series, feature.dtype)
        # Where some are missing they come as float64, which only wide nodes would answer.
        return found.astype(np.float32) if found.dtype == np.float64 and series.dtype.base_type() in NARROW else found

    def _codes(self, columns: Sequence[pl.Series], places: Sequence[int]) -> list[NDArray[Any]]:
        levels = [self.levels.of(place) for place in places]
        firsts = [int(self.spec.features[place].missing) for place in places]
        found = codes_by_column(columns, levels, firsts)
        return [self._seen(*own) for own in zip(columns, places, found, strict=True)]

    def _seen(self, series: pl.Series, place: int, found: NDArray[np.float64]) -> NDArray[Any]:
        """Codes of levels as trees look at them."""
        feature = self.spec.features[place]
        if self.unseen == "error" and (found == feature.codes).any():
            odd = series.filter(pl.Series(found == feature.codes)).unique(maintain_order=True)
            names = ", ".join(map(repr, odd.head(_NAMED).to_list()))
            raise DataError(
                f"{feature.name!r} has levels that did not occur in training, among them {names}; "
                "set unseen to larger or missing to predict these rows"
            )
        missing = np.isnan(found) | (found == feature.codes) if self.unseen == "missing" else np.isnan(found)
        codes = np.where(missing, 0 if feature.missing else feature.codes, found)
        if feature.has_level_values:
            return self._values[place][codes.astype(np.int64)]
        return codes.astype(np.min_scalar_type(feature.codes))

    def _objects(self, column: NDArray[Any], place: int) -> NDArray[Any]:
        feature = self.spec.features[place]
        try:
            values = [None if is_missing(cell) else cell for cell in column.tolist()]
            if feature.kind == "numeric":
                return np.array([np.nan if cell is None else cell for cell in values], np.float64)
            return self._codes([pl.Series(feature.name, values, strict=True)], [place])[0]
        except DataError:
            raise
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            raise DataError(f"the feature {feature.name!r} of the array cannot be read: {error}") from error
