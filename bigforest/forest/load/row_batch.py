"""From columns to tiles, the form in which the kernels read rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.common.errors import DataError

if TYPE_CHECKING:
    from bigforest.forest.format.ranks import Ranks

# float32 holds every integer up to here.
MAX_NARROW_INTEGER = 2**24

# Types of one byte that tiles keep.
_SMALL = {np.dtype(np.uint8), np.dtype(np.bool_)}


def tile_bytes(features: int) -> int:
    """Bytes of a tile of this many features, of the widest type."""
    from bigforest.kernels.predict.flat_tree import TILE

    return 8 * TILE * features


class FeatureBlock(NamedTuple):
    """Features of one type, side by side: a step for each feature would cost tables of many more than walking does.

    values  [rows, features], an array, or a table of Polars that becomes one without a change of types
    dtype   of the values
    places  of the features among all
    """

    values: NDArray[Any] | pl.DataFrame
    dtype: np.dtype[Any]
    places: slice | NDArray[np.int64]

    @classmethod
    def of_column(cls, column: NDArray[Any], place: int) -> FeatureBlock:
        """One feature."""
        return cls(column[:, None], column.dtype, slice(place, place + 1))

    @classmethod
    def of_table(cls, table: pl.DataFrame, places: Sequence[int]) -> FeatureBlock:
        """Columns of one type which numpy has as they are, none of them with nulls, at ascending places."""
        among = slice(places[0], places[-1] + 1)
        adjacent = among.stop - among.start == len(places)
        return cls(table, table[:0, :1].to_numpy().dtype, among if adjacent else np.array(places))

    def array(self) -> NDArray[Any]:
        """The values as an array."""
        return self.values.to_numpy() if isinstance(self.values, pl.DataFrame) else self.values

    def put(self, tiles: NDArray[Any]) -> None:
        """Put the rows into the first tiles, [tiles, features, rows of a tile]."""
        tile = tiles.shape[2]
        values = self.array().T
        whole, rest = divmod(values.shape[1], tile)
        if whole:
            tiles[:whole, self.places] = values[:, : whole * tile].reshape(len(values), whole, tile).swapaxes(0, 1)
        if rest:
            tiles[whole, self.places, :rest] = values[:, whole * tile :]

    def cut(self, start: int, stop: int) -> FeatureBlock:
        """The rows from `start` to before `stop`, as an array."""
        cut = self._replace(values=self.values[start:stop])
        return cut._replace(values=cut.array())


class RowBatch:
    """Rows of some features, of any numeric types, ready to be put into tiles. NaN is missing."""

    def __init__(self, blocks: Sequence[FeatureBlock]) -> None:
        self._blocks = blocks
        self.rows = len(blocks[0].values)
        self.features: int = sum([block.values.shape[1] for block in blocks])
        self._types = {block.dtype for block in blocks}

    @classmethod
    def of(cls, columns: Sequence[NDArray[Any]]) -> RowBatch:
        """The rows of one array for each feature."""
        return cls([FeatureBlock.of_column(column, place) for place, column in enumerate(columns)])

    def cut(self, start: int, stop: int) -> RowBatch:
        """The rows from `start` to before `stop`, as arrays."""
        if start == 0 and stop >= self.rows and all(isinstance(block.values, np.ndarray) for block in self._blocks):
            return self
        return RowBatch([block.cut(start, stop) for block in self._blocks])

    @property
    def narrow(self) -> bool:
        """Whether every value (but NaN) is a float32."""
        long = [block for block in self._blocks if not _is_narrow_type(block.dtype)]
        return not long or all(_is_narrow(block.array()) for block in long)

    @property
    def width(self) -> int:
        """Bytes of a value, as it comes or in a tile, whichever are more; twice as many where long integers turn out
        not to be float32.
        """
        tile = self.tile_type(np.dtype(np.float64) not in self._types)
        return max(dtype.itemsize for dtype in (tile, *self._types))

    def tile_type(self, narrow: bool) -> np.dtype[Any]:
        """Type of the tiles for rows whose values are all float32 (narrow), or are not.

        Values of one byte stay so: tiles a quarter of the size stay in the core's cache.
        """
        if narrow:
            return np.dtype(np.uint8 if self._types <= _SMALL else np.float32)
        return np.dtype(np.float64)

    def fill(self, tiles: NDArray[Any], *, by_rows: bool) -> bool:
        """Put the rows into the first tiles; False if there is a NaN among them.

        Of t rows to a tile row r becomes column r % t of tile r // t, [tiles, features, t], or its row where tiles are
        by_rows, [tiles, t, features or more]. What there is beyond is left as it is.
        """
        for block in self._blocks:
            block.put(tiles.swapaxes(1, 2) if by_rows else tiles)
        if "f" not in [dtype.kind for dtype in self._types]:
            return True
        columns = tiles[:, :, : self.features].swapaxes(1, 2) if by_rows else tiles
        whole, rest = divmod(self.rows, columns.shape[2])
        # A NaN is the least of all, and unlike itself: that is quicker than looking at each value.
        parts = ([columns[:whole]] if whole else []) + ([columns[whole, :, :rest]] if rest else [])
        least = [np.minimum.reduce(part, axis=None) for part in parts]
        return all(value == value for value in least)

    def fill_missing(self, tiles: NDArray[Any], fills: NDArray[np.float64], *, by_rows: bool) -> None:
        """Put a value for each feature in place of the NaN in tiles, which are as in `fill`."""
        cells = tiles[:, :, : self.features] if by_rows else tiles.swapaxes(1, 2)
        np.copyto(cells, fills.astype(tiles.dtype), where=np.isnan(cells))

    def columns(self) -> list[NDArray[Any]]:
        """The values of each feature, in order."""
        places = np.arange(self.features)
        found: dict[int, NDArray[Any]] = {}
        for block in self._blocks:
            found |= zip(places[block.places].tolist(), block.array().T, strict=True)
        return [found[place] for place in range(self.features)]

    def ranked(self, ranks: Ranks, used: Sequence[int] | NDArray[np.int64]) -> RowBatch:
        """The ranks of the values in the training table. The features are `used` (positions in the dataspec)."""
        columns = zip(used, self.columns(), strict=True)
        return RowBatch.of([ranks.of(int(feature), column.astype(np.float64)) for feature, column in columns])


def missing_error(rows: RowBatch, names: Sequence[str]) -> DataError:
    """The error for rows that must have all values; their columns are called `names`."""
    columns = zip(names, rows.columns(), strict=True)
    counts = [(name, int(np.isnan(column).sum())) for name, column in columns if column.dtype.kind == "f"]
    counts = [(name, count) for name, count in counts if count]
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
