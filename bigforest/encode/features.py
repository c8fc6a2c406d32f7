"""The feature columns: which ones can be used, and one column from its values to a part of the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.encode.ranks import dense_ranks, quantile_bins
from bigforest.encode.target import check_column, listed
from bigforest.errors import DataError
from bigforest.source import Source
from bigforest.store.writer import Part, StoreWriter

# float64 holds every integer up to here; above, neighbours would become equal.
MAX_EXACT_INTEGER = 2**53

# A column of few rows is read together with the next ones, up to this many cells, because each read has its price.
CELLS_PER_READ = 1 << 21


def choose_features(schema: Mapping[str, pl.DataType], target: str, exclude: Collection[str]) -> list[str]:
    """All columns but the target and the excluded ones. Raises DataError when one of them cannot be a feature yet."""
    for name in exclude:
        check_column(name, schema, "exclude")
    names = [name for name in schema if name != target and name not in exclude]
    if not names:
        raise DataError(f"no feature is left beside the target {target!r}; exclude fewer columns")
    unusable = [f"{name} ({schema[name]})" for name in names if not is_feature_type(schema[name])]
    if unusable:
        raise DataError(
            f"columns of these types cannot be features yet: {listed(unusable)}; exclude them or convert them to numbers"
        )
    return names


def is_feature_type(dtype: pl.DataType) -> bool:
    """Whether columns of this type can be features: booleans, integers and floats."""
    return dtype == pl.Boolean or dtype.is_integer() or dtype.is_float()


def read_groups(features: int, rows: int) -> list[range]:
    """The features in groups to be read and encoded as one task each."""
    size = max(1, CELLS_PER_READ // rows)
    return [range(start, min(start + size, features)) for start in range(0, features, size)]


def encode_group(
    source: Source,
    names: Sequence[str],
    group: range,
    kept: NDArray[np.int64] | None,
    max_bins: str | int,
    writer: StoreWriter,
) -> list[Part | str]:
    """Encode the features of `group` (positions in `names`) and write their parts.

    kept     [rows of the store] rows of the source to encode; None for all.
    returns  for each feature its part, or what is wrong with it.
    """
    frame = source.columns([names[index] for index in group])
    return [
        _encode(index, series, kept, max_bins, writer) for index, series in zip(group, frame, strict=True)
    ]


def numeric_values(series: pl.Series) -> NDArray[Any] | str:
    """The values of a feature as a numpy array of its own type, [rows], without copying where possible.

    Returns what is wrong instead, in words, when they cannot be ranked: nulls, NaN, or integers beyond 2**53.
    """
    dtype = series.dtype
    if series.null_count():
        return f"{series.name} ({series.null_count()} nulls)"
    if dtype == pl.Boolean:
        series = series.cast(pl.UInt8)
    elif dtype.is_integer():
        low, high = int(series.min()), int(series.max())  # type: ignore[arg-type]
        if low < -MAX_EXACT_INTEGER or high > MAX_EXACT_INTEGER:
            return f"{series.name} ({low if low < -MAX_EXACT_INTEGER else high} is beyond 2**53)"
        if dtype in (pl.Int128, pl.UInt128):
            series = series.cast(pl.Int64)
    elif dtype == pl.Float16:
        series = series.cast(pl.Float32)
    values = series.to_numpy()
    if values.dtype.kind == "f":
        missing = int(np.count_nonzero(np.isnan(values)))
        if missing:
            return f"{series.name} ({missing} NaN)"
    return values


def _encode(
    index: int, series: pl.Series, kept: NDArray[np.int64] | None, max_bins: str | int, writer: StoreWriter
) -> Part | str:
    values = numeric_values(series if kept is None else series.gather(kept))
    if isinstance(values, str):
        return values
    codes, distinct = dense_ranks(values)
    low = distinct.astype(np.float64)
    high = None
    if isinstance(max_bins, int):
        bins = quantile_bins(np.bincount(codes, minlength=len(low)), max_bins)
        edges = np.flatnonzero(np.diff(bins))
        low, high = low[np.append(0, edges + 1)], low[np.append(edges, len(low) - 1)]
        codes = bins.astype(np.uint32)[codes]
    return writer.write_part(index, series.name, str(series.dtype), codes, low, high)
