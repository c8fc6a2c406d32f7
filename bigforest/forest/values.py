"""From columns to tiles, the form in which the kernels read rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import DataError

if TYPE_CHECKING:
    from bigforest.forest.ranks import Ranks

# float32 holds every integer up to here.
MAX_NARROW_INTEGER = 2**24

# Types of one byte that tiles keep.
_SMALL = {np.dtype(np.uint8), np.dtype(np.bool_)}

# Bytes of tiles that go through a tree before the next: they stay in the shared cache and the tree in the core's own.
CHUNK_BYTES = 8 << 20


class Rows:
    """Rows of some features, columns of any numeric types, ready to be put into tiles. NaN is missing."""

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


def chunk_rows(features: int, dtype: np.dtype[Any]) -> int:
    """Rows that should go through the trees together: as many as fit CHUNK_BYTES, but a tile at least."""
    from bigforest.kernels.route import TILE

    return max(1, CHUNK_BYTES // (dtype.itemsize * features * TILE)) * TILE


def tiles_for(rows: int, features: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Tiles for `rows` rows, not filled."""
    from bigforest.kernels.route import TILE

    return np.empty((-(-rows // TILE), features, TILE), dtype)


def missing_error(rows: Rows, names: Sequence[str]) -> DataError:
    """The error for rows that must have all values; their columns are called `names`."""
    counts = [(name, count) for name, count in zip(names, rows.nan_counts(), strict=True) if count]
    found = ", ".join(f"{name!r} ({count} of {rows.rows} rows)" for name, count in counts[:5])
    return DataError(
        f"missing values in the features {found}: this forest splits on projections, which need every value; "
        "fill or drop these rows"
    )


def _is_narrow(values: NDArray[Any]) -> bool:
    """Whether every value is a float32, by the type or, for longer integers, by the range."""
    if values.dtype.kind == "f" or values.dtype.itemsize <= 2 or values.size == 0:
        return values.dtype.itemsize <= 4 or values.size == 0
    return bool(values.min() >= -MAX_NARROW_INTEGER and values.max() <= MAX_NARROW_INTEGER)
