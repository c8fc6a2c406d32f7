"""The group column: a code for every row. Whole groups are in a bag or out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import polars as pl

from bigforest.common.errors import DataError
from bigforest.schema.columns import is_text_type
from bigforest.schema.dataspec import GroupSpec
from bigforest.store.writer import StoreWriter

_CODES = "code"
_VALUES = "value"


def check_group(name: str, dtype: pl.DataType) -> None:
    """Raise DataError unless a column of this type can name groups."""
    if not (is_text_type(dtype) or dtype == pl.Boolean or dtype.is_integer() or dtype.is_temporal()):
        raise DataError(f"group {name!r} has type {dtype}; groups must be text, integers, dates or booleans")


def encode_groups(
    name: str, dtype: pl.DataType, slices: Callable[[], Iterator[pl.Series]], writer: StoreWriter
) -> GroupSpec:
    """Write the code of each row's group, its rank among the values; `slices` gives the column from its beginning.

    Holds a slice and the distinct values. Raises DataError for nulls, and when all rows are of one group.
    """
    found: pl.Series | None = None
    for series in slices():
        if series.null_count():
            raise DataError(
                f"group {name!r} has {series.null_count()} nulls; give every row a group; it may be one of its own"
            )
        values = _plain(series).unique()
        found = (values if found is None else pl.concat([found, values]).unique()).sort()
    assert found is not None
    if len(found) < 2:
        raise DataError(f"group {name!r}: all rows are of the one group {found[0]!r}; two are needed")
    table = pl.DataFrame({_VALUES: found, _CODES: pl.int_range(len(found), dtype=pl.UInt32, eager=True)})
    rows = np.zeros(len(found), np.int64)
    for series in slices():
        column = _plain(series).alias(_VALUES).to_frame()
        codes = column.join(table, on=_VALUES, how="left", maintain_order="left")[_CODES].to_numpy()
        rows += np.bincount(codes, minlength=len(found))
        writer.add_groups(codes)
    return GroupSpec(name, str(dtype), len(found), int(rows.max()))


def _plain(series: pl.Series) -> pl.Series:
    """Categories as their text: their codes depend on the piece they come in."""
    return series.cast(pl.String) if is_text_type(series.dtype) else series
