"""From the columns of a table to tiles, the form in which the kernels read rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns import Leaf, find_leaves, is_feature_type, kind_of, numbers
from bigforest.encode.dataspec import DataSpec
from bigforest.errors import DataError

if TYPE_CHECKING:
    from bigforest.forest.ranks import Ranks

# float32 holds every integer up to here.
MAX_NARROW_INTEGER = 2**24

# Types of one byte that tiles keep.
_SMALL = {np.dtype(np.uint8), np.dtype(np.bool_)}

# Bytes of tiles that go through a tree before the next: they stay in the shared cache and the tree in the core's own.
CHUNK_BYTES = 8 << 20


def check_schema(schema: Mapping[str, pl.DataType], spec: DataSpec, used: Iterable[int] | None = None) -> None:
    """Raise DataError unless the features are columns, or in nested columns, of the kind they were in training.

    used  positions in the dataspec of the features that matter; all when None.
    """
    features = spec.features if used is None else [spec.features[position] for position in used]
    found = feature_leaves(schema, spec, range(len(spec.features)) if used is None else used)
    missing = [feature.name for feature in features if feature.name not in found]
    if missing:
        near = get_close_matches(missing[0], list(schema), n=3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise DataError(f"the data lacks {_listed(missing)}, which the forest was trained on{hint}")
    wrong = [
        f"{feature.name!r} is {found[feature.name].dtype}, in training it was {feature.dtype}"
        for feature in features
        if not _is_comparable(found[feature.name].dtype, feature.dtype)
    ]
    if wrong:
        raise DataError(f"feature {'; '.join(wrong[:5])}: convert to what it was in training")


def feature_leaves(schema: Mapping[str, pl.DataType], spec: DataSpec, used: Iterable[int]) -> dict[str, Leaf]:
    """Where the features `used` (positions in the dataspec) are in a table, by name; without those that are not."""
    features = [spec.features[position] for position in used]
    return find_leaves(schema, [(feature.name, feature.column) for feature in features])


class Rows:
    """Rows of some features, columns of any numeric types, ready to be put into tiles."""

    rows: int
    features: int

    def __init__(self, columns: Sequence[NDArray[Any]]) -> None:
        self._columns = columns
        self.rows = len(columns[0])
        self.features = len(columns)
        self._small = all(column.dtype in _SMALL for column in columns)

    @cached_property
    def narrow(self) -> bool:
        """Whether every value (but NaN) is a float32."""
        return self._small or all(_is_narrow(column) for column in self._columns)

    def tile_type(self, narrow: bool) -> np.dtype[Any]:
        """Type of the tiles for nodes of the layout narrow or wide.

        Values of one byte stay so beside narrow nodes: tiles a quarter of the size stay in the core's cache.
        """
        if narrow:
            return np.dtype(np.uint8 if self._small else np.float32)
        return np.dtype(np.float64)

    def fill(self, tiles: NDArray[Any], start: int, stop: int) -> bool:
        """Put the rows from `start` to before `stop` into the first tiles; False if there is a NaN among them.

        Row r becomes column (r - start) % TILE of tile (r - start) // TILE; what the last tile has beyond
        them is left as it is.
        """
        tile = tiles.shape[2]
        whole, rest = divmod(stop - start, tile)
        self._put(tiles, start, start + whole * tile)
        if rest:
            self._put(tiles[whole : whole + 1, :, :rest], start + whole * tile, stop)
        if not self._may_have_nan():
            return True
        return not (np.isnan(tiles[:whole]).any() or (rest and np.isnan(tiles[whole, :, :rest]).any()))

    def ranked(self, ranks: Ranks, used: Sequence[int] | NDArray[np.int64]) -> Rows:
        """The ranks of the values in the training table. The features are `used` (positions in the dataspec)."""
        columns = enumerate(used)
        return Rows([ranks.of(int(feature), self._column(place)) for place, feature in columns])

    def _column(self, place: int) -> NDArray[np.float64]:
        return self._columns[place].astype(np.float64)

    def nan_counts(self) -> list[int]:
        """Number of NaN in each column."""
        return [int(np.isnan(column).sum()) if column.dtype.kind == "f" else 0 for column in self._columns]

    def _put(self, tiles: NDArray[Any], start: int, stop: int) -> None:
        if start < stop:
            tile = tiles.shape[2]
            for place, column in enumerate(self._columns):
                tiles[: (stop - start) // tile, place] = column[start:stop].reshape(-1, tile)

    def _may_have_nan(self) -> bool:
        return any(column.dtype.kind == "f" for column in self._columns)


class MatrixRows(Rows):
    """The same for the columns `used` of a matrix [rows, features]."""

    def __init__(self, matrix: NDArray[Any], used: NDArray[np.int64]) -> None:
        self._matrix = matrix
        self._used = None if used.size == matrix.shape[1] else used
        self.rows = len(matrix)
        self.features = used.size
        self._small = matrix.dtype in _SMALL

    @cached_property
    def narrow(self) -> bool:
        """Whether every value (but NaN) is a float32."""
        return _is_narrow(self._matrix)

    def _column(self, place: int) -> NDArray[np.float64]:
        return self._matrix[:, place if self._used is None else self._used[place]].astype(np.float64)

    def nan_counts(self) -> list[int]:
        """Number of NaN in each of the used columns."""
        columns = range(self.features) if self._used is None else self._used
        return [int(np.isnan(self._matrix[:, column]).sum()) for column in columns]

    def _put(self, tiles: NDArray[Any], start: int, stop: int) -> None:
        if start < stop:
            piece = self._matrix[start:stop] if self._used is None else self._matrix[start:stop, self._used]
            tile = tiles.shape[2]
            tiles[: (stop - start) // tile] = piece.reshape(-1, tile, self.features).transpose(0, 2, 1)

    def _may_have_nan(self) -> bool:
        return self._matrix.dtype.kind == "f"


def frame_rows(frame: pl.DataFrame, spec: DataSpec, used: Iterable[int]) -> Rows:
    """The features `used` (positions in the dataspec) of a frame that passed `check_schema`.

    Raises DataError for nulls. NaN is found by `Rows.fill`.
    """
    used = list(used)
    found = feature_leaves(frame.schema, spec, used)
    flat = frame.select(leaf.expr.alias(name) for name, leaf in found.items())
    columns, nulls = [], []
    for position in used:
        feature = spec.features[position]
        series = flat.get_column(feature.name)
        if series.null_count():
            nulls.append((series.name, series.null_count()))
        else:
            columns.append(numbers(series, feature.dtype))
    if nulls:
        raise DataError(_missing_values(nulls, "null", frame.height))
    return Rows(columns)


def matrix_rows(matrix: NDArray[Any], spec: DataSpec, used: NDArray[np.int64]) -> Rows:
    """The features `used` of an array [rows, features] whose columns are in the order of training.

    Of dates and times they hold the integers behind them, see columns.py. Raises DataError for another shape or type.
    """
    if matrix.ndim != 2 or matrix.shape[1] != len(spec.features):
        raise DataError(
            f"the array has shape {matrix.shape}; the forest was trained on {len(spec.features)} features, "
            "so it needs two dimensions and that many columns"
        )
    if matrix.dtype.kind not in "biuf" or matrix.dtype.itemsize > 8:
        raise DataError(f"the array has type {matrix.dtype}; convert it to numbers of at most 64 bits")
    return MatrixRows(matrix, used)


def nan_error(rows: Rows, names: Sequence[str]) -> DataError:
    """The error for rows where `Rows.fill` found NaN, whose columns are called `names`."""
    counts = [(name, count) for name, count in zip(names, rows.nan_counts(), strict=True) if count]
    return DataError(_missing_values(counts, "NaN", rows.rows))


def chunk_rows(features: int, dtype: np.dtype[Any]) -> int:
    """Rows that should go through the trees together: as many as fit CHUNK_BYTES, but a tile at least."""
    from bigforest.kernels.route import TILE

    return max(1, CHUNK_BYTES // (dtype.itemsize * features * TILE)) * TILE


def tiles_for(rows: int, features: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Tiles for `rows` rows, not filled."""
    from bigforest.kernels.route import TILE

    return np.empty((-(-rows // TILE), features, TILE), dtype)


def _is_narrow(values: NDArray[Any]) -> bool:
    """Whether every value is a float32, by the type or, for longer integers, by the range."""
    if values.dtype.kind == "f" or values.dtype.itemsize <= 2 or values.size == 0:
        return values.dtype.itemsize <= 4 or values.size == 0
    return bool(values.min() >= -MAX_NARROW_INTEGER and values.max() <= MAX_NARROW_INTEGER)


def _missing_values(counts: Sequence[tuple[str, int]], what: str, rows: int) -> str:
    found = ", ".join(f"{name!r} ({count} of {rows} rows)" for name, count in counts[:5])
    return f"{what} in the features {found}: not yet handled; fill or drop these rows"


def _is_comparable(dtype: pl.DataType, trained: str) -> bool:
    return is_feature_type(dtype) and kind_of(dtype).family == kind_of(trained).family


def _listed(names: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    noun = "feature" if len(names) == 1 else "features"
    return f"{noun} {', '.join(map(repr, names[:most]))}{rest}"
