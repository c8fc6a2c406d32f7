"""From the columns of a table to tiles of float64, the form in which the kernels read rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.encode.dataspec import DataSpec
from bigforest.errors import DataError

# float64 holds every integer up to here; above, neighbours would become equal.
MAX_EXACT_INTEGER = 2**53

# Bytes of tiles that go through a tree before the next: they stay in the shared cache and the tree in the
# core's own.
CHUNK_BYTES = 8 << 20

Columns = list[NDArray[Any]]


def check_schema(schema: Mapping[str, pl.DataType], spec: DataSpec) -> None:
    """Raise DataError unless every feature is a column of a type whose values float64 can hold."""
    missing = [feature.name for feature in spec.features if feature.name not in schema]
    if missing:
        near = get_close_matches(missing[0], list(schema), n=3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise DataError(f"the data lacks {_listed(missing)}, which the forest was trained on{hint}")
    wrong = [
        f"{feature.name!r} is {schema[feature.name]}, in training it was {feature.dtype}"
        for feature in spec.features
        if not _is_number(schema[feature.name])
    ]
    if wrong:
        raise DataError(f"feature {'; '.join(wrong[:5])}: convert to numbers as they were in training")


def frame_columns(frame: pl.DataFrame, spec: DataSpec, used: Iterable[int]) -> Columns:
    """The features `used` (positions in the dataspec) of a frame that passed `check_schema`, [rows] each.

    Raises DataError for nulls and for integers that float64 cannot hold. NaN is found by `fill`.
    """
    columns, nulls = [], []
    for position in used:
        series = frame.get_column(spec.features[position].name)
        if series.null_count():
            nulls.append((series.name, series.null_count()))
        else:
            columns.append(_series_values(series))
    if nulls:
        raise DataError(_missing_values(nulls, "null", frame.height))
    return columns


def matrix_columns(matrix: NDArray[Any], spec: DataSpec, used: Iterable[int]) -> Columns:
    """The features `used` of an array [rows, features] whose columns are in the order of training.

    Raises DataError for another shape or type.
    """
    if matrix.ndim != 2 or matrix.shape[1] != len(spec.features):
        raise DataError(
            f"the array has shape {matrix.shape}; the forest was trained on {len(spec.features)} features, "
            "so it needs two dimensions and that many columns"
        )
    if matrix.dtype.kind not in "biuf" or matrix.dtype.itemsize > 8:
        raise DataError(f"the array has type {matrix.dtype}; convert it to numbers of at most 64 bits")
    columns = [matrix[:, position] for position in used]
    for column in columns:
        _check_exact(column, "the array")
    return columns


def chunk_rows(features: int, tile: int) -> int:
    """Rows to send through the trees together when each has `features` values; a multiple of `tile`."""
    return max(1, CHUNK_BYTES // (8 * features * tile)) * tile


def tiles_for(rows: int, features: int, tile: int) -> NDArray[np.float64]:
    """Uninitialised tiles [tiles, features, tile] for `rows` rows."""
    return np.empty((-(-rows // tile), features, tile))


def fill(tiles: NDArray[np.float64], columns: Sequence[NDArray[Any]], start: int, stop: int) -> bool:
    """Put the rows from `start` to before `stop` into the first tiles; False if there is a NaN among them.

    Row r becomes column (r - start) % tile of tile (r - start) // tile; the rest of the last tile is left as
    it is.
    """
    tile = tiles.shape[2]
    whole, rest = divmod(stop - start, tile)
    cut = start + whole * tile
    for place, column in enumerate(columns):
        tiles[:whole, place] = column[start:cut].reshape(whole, tile)
        tiles[whole : whole + 1, place, :rest] = column[cut:stop]
    if not any(column.dtype.kind == "f" for column in columns):
        return True
    return not (np.isnan(tiles[:whole]).any() or np.isnan(tiles[whole : whole + 1, :, :rest]).any())


def nan_error(columns: Columns, names: Callable[[int], str]) -> DataError:
    """The error for columns where `fill` found NaN; `names` gives the name of a column by its place."""
    counts = [
        (names(place), int(np.isnan(column).sum()))
        for place, column in enumerate(columns)
        if column.dtype.kind == "f" and np.isnan(column).any()
    ]
    return DataError(_missing_values(counts, "NaN", len(columns[0])))


def _series_values(series: pl.Series) -> NDArray[Any]:
    if series.dtype == pl.Boolean:
        series = series.cast(pl.UInt8)
    elif series.dtype == pl.Float16:
        series = series.cast(pl.Float32)
    elif series.dtype in (pl.Int128, pl.UInt128):
        low, high = series.min(), series.max()
        if isinstance(low, int) and isinstance(high, int) and max(-low, high) > MAX_EXACT_INTEGER:
            raise _inexact(f"feature {series.name!r}")
        series = series.cast(pl.Int64)
    values = series.to_numpy()
    _check_exact(values, f"feature {series.name!r}")
    return values


def _check_exact(values: NDArray[Any], where: str) -> None:
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8 or values.size == 0:
        return
    if values.max() > MAX_EXACT_INTEGER or values.min() < -MAX_EXACT_INTEGER:
        raise _inexact(where)


def _inexact(where: str) -> DataError:
    return DataError(f"{where} has integers beyond 2**53, which float64 cannot hold exactly; rescale or drop them")


def _missing_values(counts: Sequence[tuple[str, int]], what: str, rows: int) -> str:
    found = ", ".join(f"{name!r} ({count} of {rows} rows)" for name, count in counts[:5])
    return f"{what} in the features {found}: not yet handled; fill or drop these rows"


def _is_number(dtype: pl.DataType) -> bool:
    return dtype == pl.Boolean or dtype.is_integer() or dtype.is_float()


def _listed(names: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    noun = "feature" if len(names) == 1 else "features"
    return f"{noun} {', '.join(map(repr, names[:most]))}{rest}"
