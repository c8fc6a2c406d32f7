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
from bigforest.store.writer import Column, Part, StoreWriter

# float64 holds every integer up to here; above, neighbours would become equal.
MAX_EXACT_INTEGER = 2**53

# Columns of few rows are read together, up to this many cells, because each read has its price.
CELLS_PER_READ = 1 << 21


def choose_features(schema: Mapping[str, pl.DataType], target: str, exclude: Collection[str]) -> list[str]:
    """All columns but the target and the excluded. Raises DataError when one cannot be a feature yet."""
    for name in exclude:
        check_column(name, schema, "exclude")
    names = [name for name in schema if name != target and name not in exclude]
    if not names:
        raise DataError(f"no feature is left beside the target {target!r}; exclude fewer columns")
    unusable = [f"{name} ({schema[name]})" for name in names if not is_feature_type(schema[name])]
    if unusable:
        raise DataError(
            f"columns of these types cannot be features yet: {listed(unusable)}; "
            "exclude them or convert them to numbers"
        )
    return names


def is_feature_type(dtype: pl.DataType) -> bool:
    """Whether columns of this type can be features: booleans, integers and floats."""
    return dtype == pl.Boolean or dtype.is_integer() or dtype.is_float()


def read_groups(names: Sequence[str], rows: int) -> list[Sequence[str]]:
    """The features in groups that follow each other, each to be read and encoded as one task."""
    size = max(1, CELLS_PER_READ // rows)
    return [names[start : start + size] for start in range(0, len(names), size)]


def encode_group(
    index: int,
    source: Source,
    names: Sequence[str],
    kept: NDArray[np.int64] | None,
    max_bins: str | int,
    writer: StoreWriter,
) -> Part | list[str]:
    """Encode the features `names` and write them as part `index` of the store.

    kept     [rows of the store] rows of the source to encode; None for all.
    returns  the part; or, when features cannot be used, which ones and why.
    """
    wrong: list[str] = []
    columns: list[Column] = []
    for series in source.columns(names):
        values = numeric_values(series if kept is None else series.gather(kept))
        if isinstance(values, str):
            wrong.append(values)
        elif not wrong:
            columns.append(_ranked(series.name, str(series.dtype), values, max_bins))
    return wrong or writer.write_part(index, columns)


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


def _ranked(name: str, dtype: str, values: NDArray[Any], max_bins: str | int) -> Column:
    codes, distinct = dense_ranks(values)
    low = distinct.astype(np.float64)
    if not isinstance(max_bins, int):
        return Column(name, dtype, codes, low, None)
    bins = quantile_bins(np.bincount(codes, minlength=len(low)), max_bins)
    last = np.append(np.flatnonzero(np.diff(bins)), len(low) - 1)
    first = np.append(0, last[:-1] + 1)
    narrow = bins.astype(np.min_scalar_type(len(last) - 1))
    return Column(name, dtype, narrow.take(codes), low[first], low[last])
