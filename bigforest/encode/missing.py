"""The rows of a column with missing values (null or NaN). Keys are made of the other rows only."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.encode.sortable_keys import Keys, in_chunks

Absent = NDArray[np.bool_]


def absent_cells(series: pl.Series) -> Absent | None:
    """Which rows have no value, bool [rows]; None when all have."""
    if series.dtype.is_float() and series.is_nan().any():
        series = series.fill_nan(None)
    return series.is_null().to_numpy() if series.null_count() else None


def without(series: pl.Series, absent: Absent | None) -> pl.Series:
    """The values that are there."""
    return series if absent is None else series.filter(pl.Series(~absent))


class MissingRows:
    """Those of a column in memory, a bit per row."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._bits: list[NDArray[np.uint8] | None] = []

    @property
    def any(self) -> bool:
        """Whether some rows have no value."""
        return any(bits is not None for bits in self._bits)

    def add(self, absent: Absent | None, rows: int) -> None:
        """The next rows, this many."""
        self._rows.append(rows)
        self._bits.append(None if absent is None else np.packbits(absent))

    def cut(self, ranks: Keys) -> Iterator[tuple[Keys, Absent | None]]:
        """The ranks of the rows that have a value, in pieces, each with the gaps of the rows it is of."""
        if not self.any:
            yield from zip(in_chunks(ranks), repeat(None))
            return
        at = 0
        for rows, bits in zip(self._rows, self._bits, strict=True):
            absent = None if bits is None else np.unpackbits(bits, count=rows).view(np.bool_)
            present = rows if absent is None else rows - int(np.count_nonzero(absent))
            yield ranks[at : at + present], absent
            at += present


def with_gaps(codes: Keys, absent: Absent | None) -> Keys:
    """The codes of all rows, uint32, from those of the rows that have a value, which move up by one; 0 is missing."""
    above = codes.astype(np.uint32) + np.uint32(1)
    if absent is None:
        return above
    filled = np.zeros(len(absent), np.uint32)
    filled[~absent] = above
    return filled
