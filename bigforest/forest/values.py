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
        self._types = {column.dtype for column in columns}

    @cached_property
    def narrow(self) -> bool:
        """Whether every value (but NaN) is a float32."""
        return self.narrow_in(0, self.rows)

    def narrow_in(self, start: int, stop: int) -> bool:
        """Whether every value (but NaN) of these rows is."""
        long = {dtype for dtype in self._types if not _is_narrow_type(dtype)}
        return not long or all(_is_narrow(column[start:stop]) for column in self._columns if column.dtype in long)

    @property
    def width(self) -> int:
        """Bytes of a value in a tile; twice as many where long integers turn out not to be float32."""
        return self.tile_type(np.dtype(np.float64) not in self._types).itemsize

    def tile_type(self, narrow: bool) -> np.dtype[Any]:
        """Type of the tiles for rows whose values are all float32 (narrow), or are not.

        Values of one byte stay so: tiles a quarter of the size stay in the core's cache.
        """
        if narrow:
            return np.dtype(np.uint8 if self._types <= _SMALL else np.float32)
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
        if all(dtype.kind != "f" for dtype in self._types):
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


class MatrixRows(Rows):
    """The same for the columns `used` of a matrix [rows, features]."""

    def __init__(self, matrix: NDArray[Any], used: NDArray[np.int64]) -> None:
        self._matrix = matrix
        self._used = None if used.size == matrix.shape[1] else used
        self.rows = len(matrix)
        self.features = used.size
        self._types = {matrix.dtype}

    def narrow_in(self, start: int, stop: int) -> bool:
        """Whether every value (but NaN) of these rows is a float32."""
        return _is_narrow_type(self._matrix.dtype) or _is_narrow(self._matrix[start:stop])

    def _column(self, place: int) -> NDArray[np.float64]:
        return self._matrix[:, place if self._used is None else self._used[place]].astype(np.float64)

    def nan_counts(self) -> list[int]:
        """Number of NaN in each of the used columns."""
        columns = range(self.features) if self._used is None else self._used
        return [int(np.isnan(self._matrix[:, column]).sum()) for column in columns]

    def _put(self, tiles: NDArray[Any], start: int, stop: int) -> None:
        tile = tiles.shape[2]
        for own, first in zip(tiles, range(start, stop, tile), strict=False):
            columns = self._matrix[first : first + tile].T
            own[:] = columns if self._used is None else columns[self._used]


def missing_error(rows: Rows, names: Sequence[str]) -> DataError:
    """The error for rows that must have all values; their columns are called `names`."""
    counts = [(name, count) for name, count in zip(names, rows.nan_counts(), strict=True) if count]
    found = ", ".join(f"{name!r} ({count} of {rows.rows} rows)" for name, count in counts[:5])
    return DataError(
        f"missing values in the features {found}: this forest splits on projections, which need every value; "
        "fill or drop these rows"
    )


def _is_narrow_type(dtype: np.dtype[Any]) -> bool:
    """Whether every value of a type is a float32."""
    return dtype.itemsize <= (4 if dtype.kind == "f" else 2)


def _is_narrow(values: NDArray[Any]) -> bool:
    """Whether every one of these values of a longer type is a float32, as integers of a certain range are."""
    if values.size == 0:
        return True
    whole = values.dtype.kind != "f"
    return whole and bool(values.min() >= -MAX_NARROW_INTEGER and values.max() <= MAX_NARROW_INTEGER)
