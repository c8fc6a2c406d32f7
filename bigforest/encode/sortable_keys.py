"""The keys of a feature: unsigned integers in the order of its values, made slice by slice, and back to values.

Keys are made of the values that are present; the rows with missing values (null or NaN) are kept beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import repeat
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.kernels.presort.ranking import FIRST, HIGH, LOW, VARYING, order_keys, raw_values
from bigforest.schema.columns import divisor_of, nearest_floats, physical

# float64 tells all integers apart up to here, and all decimals of this many digits.
MAX_EXACT_INTEGER = 2**53
MAX_EXACT_DECIMAL = 10**15
# Values converted and codes mapped at a time.
CHUNK_ROWS = 1 << 18


def key_size(size: int) -> int:
    """Bytes of the key of a value of `size` bytes."""
    return 8 if size > 4 else 4


Keys = NDArray[np.unsignedinteger[Any]]
Absent = NDArray[np.bool_]


@lru_cache(maxsize=64)  # an Enum holds its categories
def value_bytes(dtype: pl.DataType) -> int:
    """Bytes of a value of a feature of this type, as it is ranked: integers of 128 bits are ranked in 64."""
    if dtype in (pl.Float16, pl.Date):
        return 4
    if dtype == pl.Decimal or (dtype.is_temporal() and dtype != pl.Date):
        return 8
    if dtype.is_integer() or dtype.is_float():
        return min(8, int("".join(filter(str.isdigit, str(dtype)))) // 8)
    return 1


@dataclass(frozen=True, slots=True)
class Scale:
    """How the keys of a column lie: offset = (key - low) >> shift, which needs `bits` bits
    (kernels/presort/ranking.py).

    least     subtracted from a value to make it a key; 0 for unsigned types.
    is_float  whether values are the bits of floats.
    size      bytes of a key.
    divisor   of integers that are decimals.
    crowded   whether neighbouring values may be the same float64.
    """

    low: int
    shift: int
    bits: int
    least: int
    is_float: bool
    size: int
    divisor: int = 1
    crowded: bool = False

    def integers(self, offsets: NDArray[np.uint64]) -> NDArray[np.integer[Any]]:
        """The values at these offsets, of integers."""
        keys = (offsets << np.uint64(self.shift)) + np.uint64(self.low)
        return keys if self.least == 0 else (keys + np.uint64(self.least % 2**64)).view(np.int64)

    def values(self, offsets: NDArray[np.uint64]) -> NDArray[np.float64]:
        """The values at these offsets, or the float64 nearest to them. -0.0 comes back as 0.0."""
        if not self.is_float:
            return nearest_floats(pl.Series(self.integers(offsets)), self.divisor)
        raw = np.empty(len(offsets), np.int32 if self.size == 4 else np.int64)
        raw_values(offsets, np.uint64(self.low), np.uint64(self.shift), True, self.least, raw)
        return raw.view(f"f{raw.itemsize}").astype(np.float64, copy=False)


class KeyMaker:
    """Makes the keys of one feature, slice by slice, and remembers what is needed to check and to scale them."""

    def __init__(self, name: str, dtype: pl.DataType) -> None:
        self.name = name
        self.dtype = dtype
        self.made = 0
        self.size = key_size(value_bytes(dtype))
        self.key_type = np.dtype(f"u{self.size}")
        self._least = 0 if dtype in (pl.UInt32, pl.UInt64) else -(1 << (8 * self.size - 1))
        self._limits = np.array([2**64 - 1, 0, 0, 0], np.uint64)
        self._beyond: list[int] = []

    def make(self, series: pl.Series, keys: Keys, at: int | None = None) -> None:
        """Write the keys of a slice without gaps into `keys` from place `at`; None for after those made before."""
        begin = self.made if at is None else at
        self.made += len(series)
        series = physical(series)
        if self._is_beyond(series):  # the feature cannot be used: only the message needs the rest
            return
        if series.dtype == pl.Float16:
            series = series.cast(pl.Float32)
        elif series.dtype in (pl.Int128, pl.UInt128):
            series = series.cast(pl.Int64)
        elif self.size == 4 and not series.dtype.is_float() and series.dtype != pl.UInt32:
            series = series.cast(pl.Int32)
        raw = series.to_numpy()
        raw.flags.writeable = False  # as it is anyhow where nothing was copied; the kernel is compiled for one type
        own = keys[begin : begin + len(raw)]
        order_keys(raw.view(f"i{self.size}"), self.dtype.is_float(), self._least, own, self._limits)

    def join(self, other: KeyMaker) -> None:
        """Take note of what another maker of the same feature has made besides."""
        known, more = self._limits, other._limits
        if not self.made:
            self._limits = more.copy()
        elif other.made:
            known[VARYING] |= more[VARYING] | (known[FIRST] ^ more[FIRST])
            known[LOW], known[HIGH] = min(known[LOW], more[LOW]), max(known[HIGH], more[HIGH])
        self.made += other.made
        self._beyond += other._beyond

    def wrong(self) -> str | None:
        """Why the feature cannot be used, in words: integers of more than 64 bits, or decimals of too many digits."""
        if not self._beyond:
            return None
        most = max(self._beyond, key=abs)
        if isinstance(self.dtype, pl.Decimal):
            scale = self.dtype.scale
            return f"{self.name} ({Decimal(most).scaleb(-scale):f} has too many digits: cast it to Float64)"
        return f"{self.name} ({most} is an integer of more than 64 bits)"

    def scale(self) -> Scale:
        """The scale of all keys made, which may be none."""
        if not self.made:
            return Scale(0, 0, 0, self._least, self.dtype.is_float(), self.size)
        low, varying = int(self._limits[LOW]), int(self._limits[VARYING])
        shift = max((varying & -varying).bit_length() - 1, 0)
        bits = ((int(self._limits[HIGH]) - low) >> shift).bit_length()
        divisor = divisor_of(self.dtype)
        most = MAX_EXACT_INTEGER if divisor == 1 else MAX_EXACT_DECIMAL
        crowded = max(map(abs, self._extremes())) > most
        return Scale(low, shift, bits, self._least, self.dtype.is_float(), self.size, divisor, crowded)

    def _is_beyond(self, series: pl.Series) -> bool:
        """Whether integers of 128 bits have been too large for keys of 64."""
        if series.dtype in (pl.Int128, pl.UInt128) and len(series):
            low, high = int(series.min()), int(series.max())  # type: ignore[arg-type]
            self._beyond += [value for value in (low, high) if not -(2**63) <= value < 2**63]
        return bool(self._beyond)

    def _extremes(self) -> tuple[int, int]:
        """Smallest and largest value, of integers."""
        if self.dtype.is_float() or self._limits[LOW] > self._limits[HIGH]:
            return 0, 0
        return int(self._limits[LOW]) + self._least, int(self._limits[HIGH]) + self._least


def in_chunks(array: Keys) -> Iterator[Keys]:
    """The array in views of CHUNK_ROWS entries."""
    for start in range(0, len(array), CHUNK_ROWS):
        yield array[start : start + CHUNK_ROWS]


def absent_cells(series: pl.Series) -> Absent | None:
    """Which rows have no value, bool [rows]; None when all have."""
    if series.dtype.is_float():
        absent = np.isnan(series.to_numpy())  # without the cost of a query, as tables may have very many columns
        return absent if absent.any() else None
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
