"""Keys, ranks and dictionaries of a numeric feature.

    values   [rows] numbers, dates, times        0.5   -1.0   0.5
    keys     [rows] unsigned, in the same order  0xbf000000 ...            `KeyMaker`, slice by slice
    offsets  (key - low) >> shift                only the bits that vary             `Scale` converts back to values

Missing values (null or NaN) have no key: `MissingRows` records their rows. `DictionaryWriter` takes the distinct
offsets in ascending order, some at a time, and writes the values of the codes.

`presort` replaces the keys of a column in memory by their ranks:

    keys     [rows] unsigned integers in the order of the values    7  3  7  9
    ranks    [rows] the same array afterwards                       1  0  1  2
    offsets  [distinct] offsets of the distinct keys, ascending     0  2  3     for low = 3 and shift = 1

1. Few rows: sort by numpy, which needs no compiled kernels unless values are put into bins.
2. Offsets of few bits: count the rows of every possible offset, number the offsets that occur, look up each key.
3. Other columns: spread rows over buckets of neighbouring offsets that fit the second-level cache; sort each bucket by
   digits. If many rows have almost the same offset, their bucket does not fit, and numpy sorts it.

Oracle: numpy.unique with return_inverse (tests/grow/test_ranks.py). Kernels: kernels/presort/ranking.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.columns.dataspec import MAX_CODES
from bigforest.columns.types import divisor_of, is_wide, nearest_floats, physical
from bigforest.errors import DataError
from bigforest.kernels.presort.ranking import (
    Bins,
    OffsetCells,
    count_offset_cells,
    cut_runs,
    group_cells,
    look_up_ranks,
    rank_cells,
    rank_items,
    sort_scratch,
    spread_rows,
)
from bigforest.store.writer import PartWriter

# Different integers up to MAX_EXACT_INTEGER are different numbers in float64, and so are different decimals whose
# digits form an integer up to MAX_EXACT_DECIMAL.
MAX_EXACT_INTEGER = 2**53
MAX_EXACT_DECIMAL = 10**15
# Values that are converted, and codes that are looked up, at a time. Temporary arrays then fit the cache, and are so
# small that the process keeps their memory for the next ones.
CHUNK_ROWS = 1 << 16
# Values whose keys are made at a time, in the cache.
_SLICE_ROWS = 1 << 14

# Types that keys are made of, for types of values; Int64 or Int32 for all others.
_READ_AS: dict[Any, type[pl.DataType]] = {kind: kind for kind in (pl.UInt32, pl.UInt64, pl.Float32, pl.Float64)} | {
    pl.Float16: pl.Float32
}


def key_size(size: int) -> int:
    """Return the bytes of the key of a value of `size` bytes."""
    return 8 if size > 4 else 4


Keys = NDArray[np.unsignedinteger[Any]]
Absent = NDArray[np.bool_]


# Bytes of a value that is ranked; 1 for booleans, text, and integers of 8 bits. Integers of 128 bits are ranked as
# integers of 64 bits, Float16 as Float32.
_BYTES: dict[Any, int] = {
    **dict.fromkeys((pl.Int16, pl.UInt16), 2),
    **dict.fromkeys((pl.Int32, pl.UInt32, pl.Float16, pl.Float32, pl.Date), 4),
    **dict.fromkeys((pl.Int64, pl.UInt64, pl.Int128, pl.UInt128, pl.Float64), 8),
    **dict.fromkeys((pl.Decimal, pl.Time, pl.Datetime, pl.Duration), 8),
}


def value_bytes(dtype: pl.DataType) -> int:
    """Return the bytes of a value that is ranked."""
    return _BYTES.get(dtype.base_type(), 1)


@dataclass(frozen=True, slots=True)
class Scale:
    """Range of the keys of a column: offset = (key - low) >> shift (kernels/presort/ranking.py).

    bits      bits of the largest offset.
    least     key = value - least; 0 for UInt32 and UInt64, otherwise the lowest integer with the size of a key.
    is_float  True if values are floats, which `_ordered_bits` converts.
    size      bytes of a key.
    divisor   10**scale of decimals, which are stored as integers; 1 for other types.
    crowded   True if neighbouring values may be the same float64.
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
        """Return the integers whose keys have these offsets; for floats, the ordered bits."""
        keys = (offsets << np.uint64(self.shift)) + np.uint64(self.low)
        return keys if self.least == 0 else (keys + np.uint64(self.least % 2**64)).view(np.int64)

    def values(self, offsets: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Return the float64 nearest to the values at these offsets. -0.0 becomes 0.0."""
        if not self.is_float:
            return nearest_floats(pl.Series(self.integers(offsets)), self.divisor)
        whole = self.integers(offsets).view(np.int64)
        raw = _ordered_bits(whole, self.size).astype(f"i{self.size}")
        return raw.view(f"f{self.size}").astype(np.float64, copy=False)


def _ordered_bits(raw: NDArray[np.integer[Any]], size: int) -> NDArray[np.integer[Any]]:
    """Convert the bits of floats of `size` bytes to integers in the order of the floats. It is its own inverse.

    The bits of positive floats are in the order of the floats, the bits of negative floats in the reverse order. For a
    negative float, subtract its bits from the lowest integer. Then all are in order, and -0.0 and 0.0 are equal.
    """
    return np.where(raw < 0, raw.dtype.type(-(1 << (8 * size - 1))) - raw, raw)


class KeyMaker:
    """Converter of the values of one feature to keys, slice by slice. It records the range of the keys.

    made  number of keys made.
    """

    def __init__(self, name: str, dtype: pl.DataType) -> None:
        self.name = name
        self.dtype = dtype
        self.made = 0
        self.size = key_size(value_bytes(dtype))
        self.key_type = np.dtype(f"u{self.size}")
        self._read_as = _READ_AS.get(dtype.base_type(), pl.Int64 if self.size == 8 else pl.Int32)
        self._least = 0 if self._read_as.is_unsigned_integer() else -(1 << (8 * self.size - 1))
        # The smallest and the largest key, the bits in which keys differ from the first key, and the first key.
        self._low, self._high, self._varying, self._first = 2**64, -1, 0, 0
        self._beyond: list[int] = []

    def make(self, series: pl.Series, keys: Keys, begin: int = 0) -> None:
        """Write the keys of a slice without missing values into `keys`, from place `begin` on."""
        self.made += len(series)
        series = physical(series)
        if self._is_beyond(series):  # the feature is unusable, and no more keys are needed
            return
        if series.dtype.base_type() is not self._read_as:
            series = series.cast(self._read_as)
        raw = series.to_numpy().view(f"i{self.size}")
        for start in range(0, len(raw), _SLICE_ROWS):
            piece = raw[start : start + _SLICE_ROWS]
            out = keys[begin + start : begin + start + len(piece)]
            signed = _ordered_bits(piece, self.size) if self._read_as.is_float() else piece
            np.subtract(signed.view(out.dtype), out.dtype.type(self._least % 2 ** (8 * self.size)), out=out)
            self._note(out)

    def _note(self, keys: Keys) -> None:
        """Update the range of the keys, and the bits in which they differ."""
        if self._high < self._low:
            self._first = int(keys[0])
        self._low, self._high = min(self._low, int(keys.min())), max(self._high, int(keys.max()))
        self._varying |= int(np.bitwise_or.reduce(keys ^ keys.dtype.type(self._first)))

    def wrong(self) -> str | None:
        """Return an error text if an integer, or the digits of a decimal, exceed 64 bits; otherwise None."""
        if not self._beyond:
            return None
        most = max(self._beyond, key=abs)
        if isinstance(self.dtype, pl.Decimal):
            scale = self.dtype.scale
            return f"{self.name} ({Decimal(most).scaleb(-scale):f} has too many digits: cast it to Float64)"
        return f"{self.name} ({most} is an integer of more than 64 bits)"

    def scale(self) -> Scale:
        """Return the scale of all keys made so far."""
        if not self.made:
            return Scale(0, 0, 0, self._least, self.dtype.is_float(), self.size)
        low, varying = self._low, self._varying
        shift = max((varying & -varying).bit_length() - 1, 0)
        bits = ((self._high - low) >> shift).bit_length()
        divisor = divisor_of(self.dtype)
        most = MAX_EXACT_INTEGER if divisor == 1 else MAX_EXACT_DECIMAL
        crowded = max(map(abs, self._extremes())) > most
        return Scale(low, shift, bits, self._least, self.dtype.is_float(), self.size, divisor, crowded)

    def _is_beyond(self, series: pl.Series) -> bool:
        """Return True if this slice, or an earlier one, has an integer of 128 bits that is too large for 64 bits."""
        if is_wide(series.dtype) and len(series):
            low, high = int(series.min()), int(series.max())  # type: ignore[arg-type]
            self._beyond += [value for value in (low, high) if not -(2**63) <= value < 2**63]
        return bool(self._beyond)

    def _extremes(self) -> tuple[int, int]:
        """Return the smallest and the largest value of an integer feature; zeros for floats."""
        if self.dtype.is_float() or self._low > self._high:
            return 0, 0
        return self._low + self._least, self._high + self._least


def in_chunks(array: Keys) -> Iterator[Keys]:
    """Yield views of CHUNK_ROWS entries of the array; the last may be shorter."""
    for start in range(0, len(array), CHUNK_ROWS):
        yield array[start : start + CHUNK_ROWS]


def absent_cells(series: pl.Series) -> Absent | None:
    """Return a mask of the rows without a value, bool [rows]; None if all rows have a value."""
    if series.dtype.is_float():
        absent = np.isnan(series.to_numpy())  # cheaper than a query, for tables of very many columns
        return absent if absent.any() else None
    return series.is_null().to_numpy() if series.null_count() else None


def without(series: pl.Series, absent: Absent | None) -> pl.Series:
    """Return the values of a slice without the absent cells."""
    return series if absent is None else series.filter(pl.Series(~absent))


class MissingRows:
    """Record of the rows without a value in a column, in memory, a bit per row."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._bits: list[NDArray[np.uint8] | None] = []

    @property
    def any(self) -> bool:
        """True if some rows have no value."""
        return any(bits is not None for bits in self._bits)

    def add(self, absent: Absent | None, rows: int) -> None:
        """Record the next `rows` rows, with the mask of `absent_cells`."""
        self._rows.append(rows)
        self._bits.append(None if absent is None else np.packbits(absent))

    def cut(self, ranks: Keys) -> Iterator[tuple[Keys, Absent | None]]:
        """Cut the ranks of the rows with a value into the pieces that were added. Yield each piece with its mask.

        If all rows have a value, the pieces have CHUNK_ROWS ranks instead.
        """
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
    """Return the codes of all rows, uint32: 0 for missing, and one more than `codes` for rows with a value."""
    above = codes.astype(np.uint32) + np.uint32(1)
    if absent is None:
        return above
    filled = np.zeros(len(absent), np.uint32)
    filled[~absent] = above
    return filled


class DictionaryWriter:
    """Writer of the values of codes, from the distinct offsets of a column in ascending order.

    Without max_bins, values are written as they are added. With max_bins, they are written at the end, when it is known
    if there are more values than bins. The memory is proportional to max_bins, not to the number of values.
    """

    def __init__(
        self,
        name: str,
        scale: Scale,
        bins: Bins,
        part: PartWriter,
        *,
        missing: bool = False,
    ) -> None:
        """Start a dictionary.

        missing  True if code 0 is for missing values.
        """
        self.rank_count = 0  # distinct offsets so far
        self.scale = scale
        self.bins = bins
        self.missing = missing
        self._name = name
        self._part = part
        self._last = np.empty(0, np.uint64)  # the largest offset so far, if any
        most = len(bins.last)
        self._first = np.empty(most, np.uint64)  # the first distinct offsets, as many as codes are allowed
        self._low = np.empty(most, np.uint64)  # smallest and largest offset of each bin
        self._high = np.empty(most, np.uint64)
        if missing:
            nothing = np.array([np.nan])
            part.values(nothing, nothing if most else None)

    def add(self, offsets: NDArray[np.uint64]) -> None:
        """Add the next distinct offsets. With max_bins, `presort` or `rank_cells` has added them to `bins` already.

        Raises DataError if there are too many offsets, or the values of two offsets are the same float64.
        """
        if self.rank_count + len(offsets) + self.missing > MAX_CODES:
            raise DataError(
                f"feature {self._name!r} has more than {MAX_CODES} distinct values, which codes of 32 bits cannot tell "
                "apart; round it or exclude it"
            )
        if self.scale.crowded:
            self._check_apart(offsets)
        if len(self._first):
            self._put(self._first, np.arange(len(self._first)), offsets)
            last = self.bins.last[: int(self.bins.state[0])].astype(np.int64)
            self._put(self._high, last, offsets)
            self._put(self._low, np.append(0, last[:-1] + 1), offsets)
        else:
            self._write(offsets)
        self.rank_count += len(offsets)

    def finish(self) -> None:
        """Write the values that are not written yet."""
        if self.binned:
            used = int(self.bins.state[0])
            self._part.values(self.scale.values(self._low[:used]), self.scale.values(self._high[:used]))
        elif len(self._first):
            values = self.scale.values(self._first[: self.rank_count])
            self._part.values(values, values)

    @property
    def binned(self) -> bool:
        """True if there are more values than allowed codes."""
        return 0 < len(self._first) < self.rank_count

    def codes(self, ranks: Iterator[tuple[Keys, Absent | None]]) -> Iterator[Keys]:
        """Yield the codes of cells, piece by piece. To be called when all values are known.

        ranks  for each piece, the ranks of the cells with a value, and the mask of the cells without a value.
        """
        last = self.bins.last[: int(self.bins.state[0])]
        for piece, absent in ranks:
            codes: Keys = piece
            if self.binned:  # the first bin whose last rank is not below the rank
                codes = np.empty(len(piece), np.uint32)
                for chunk, out in zip(in_chunks(piece), in_chunks(codes), strict=True):
                    out[:] = last.searchsorted(chunk)
            yield with_gaps(codes, absent) if self.missing else codes

    def _put(self, place: NDArray[np.uint64], ranks: NDArray[np.int64], offsets: NDArray[np.uint64]) -> None:
        """Set place[i] to the offset whose rank is ranks[i], if it is one of `offsets`, the newest offsets.

        ranks  ascending
        """
        begin, end = np.searchsorted(ranks, [self.rank_count, self.rank_count + len(offsets)])
        place[begin:end] = offsets[ranks[begin:end] - self.rank_count]

    def _check_apart(self, offsets: NDArray[np.uint64]) -> None:
        """Raise DataError if neighbouring values are the same float64, so that no threshold separates them."""
        for chunk in in_chunks(offsets):
            neighbours = np.concatenate([self._last, chunk])
            values = self.scale.values(neighbours)
            same = np.flatnonzero(values[1:] == values[:-1])
            if len(same):
                pair = self.scale.integers(neighbours[same[0] : same[0] + 2]).tolist()
                lower, upper = (Decimal(number) / self.scale.divisor for number in pair)
                raise DataError(
                    f"feature {self._name!r} holds {lower} and {upper}, which are the same number in float64, where "
                    "thresholds are: subtract a constant, use a coarser unit, or exclude it"
                )
            self._last = neighbours[-1:]

    def _write(self, offsets: NDArray[np.uint64]) -> None:
        for chunk in in_chunks(offsets):
            self._part.values(self.scale.values(chunk), None)


# Rows of a bucket of `presort`: its items and a buffer fit the second-level cache. Offsets are counted in at most
# 2**CELL_BITS cells.
BUCKET_ROWS = 1 << 15
CELL_BITS = 16
# Columns of up to this many rows are ranked by numpy, in 50 ns per row, because compiling the kernels takes longer.
FEW_ROWS = 1 << 13
# Tables for offsets of more bits do not fit the cache.
_MAX_TABLE_BITS = 22


def new_bins(rows: int, max_bins: str | int, *, missing: bool = False) -> Bins:
    """Return empty bins for a column.

    rows      rows that have a value.
    max_bins  "exact" for no bins, or the maximum number of codes.
    missing   True if one of the codes is for missing values.
    """
    count = max_bins - missing if isinstance(max_bins, int) else 0
    return Bins(np.uint64(rows), np.zeros(2, np.uint64), np.empty(count, np.uint64))


def presort(keys: Keys, scale: Scale, bins: Bins) -> NDArray[np.uint64]:
    """Replace keys by their ranks from 0, and return the distinct offsets, ascending.

    keys  [rows], contiguous, 1 to 2**32 - 1 rows; overwritten with ranks.
    bins  updated with every distinct value (`note_run` in kernels/presort/ranking.py).

    Anonymous memory in addition to the keys: `sort_bytes` (memory.py). About 15 ns per row.
    """
    low, shift = np.uint64(scale.low), np.uint64(scale.shift)
    if len(keys) <= FEW_ROWS:
        shifted = (keys.astype(np.uint64) - low) >> shift
        ordered = np.sort(shifted)
        offsets = ordered[np.append(True, ordered[1:] != ordered[:-1])]  # np.unique takes several times as long
        keys[:] = offsets.searchsorted(shifted)
        if bins.last.size:
            rank_cells(np.bincount(keys).astype(np.uint64), bins, np.zeros(2, np.uint64), np.empty_like(offsets))
        return offsets
    return _presort_many(keys, scale, bins)


def _presort_many(keys: Keys, scale: Scale, bins: Bins) -> NDArray[np.uint64]:
    """Presort many rows by kernels, see `presort`."""
    low, shift = np.uint64(scale.low), np.uint64(scale.shift)
    if scale.bits <= _table_bits(len(keys)):
        counts = np.zeros(1 << scale.bits, np.uint32)
        count_offset_cells(keys, low, shift, counts)
        offsets = np.empty(np.count_nonzero(counts), np.uint64)
        rank_cells(counts, bins, np.zeros(2, np.uint64), offsets)
        look_up_ranks(keys, low, shift, counts)
        return offsets
    # With few rows, about one cell for 16 rows: passing over the cells then costs less than spreading the rows.
    cell_bits = min(scale.bits, CELL_BITS, max(8, len(keys).bit_length() - 5))
    cell_shift = np.uint64(scale.bits - cell_bits)
    counts = np.zeros(1 << cell_bits, np.uint32)
    count_offset_cells(keys, low, shift + cell_shift, counts)
    cells = OffsetCells(
        np.empty(len(counts), np.uint32),
        *(np.empty(len(counts) + 1, np.uint64) for _ in range(4)),
    )
    buckets = group_cells(counts, cell_shift, np.uint64(BUCKET_ROWS), cells)
    items = np.empty(len(keys), np.uint64)
    spread_rows(keys, low, shift, cell_shift, cells, items)
    for begin, end in pairwise(cells.start[: buckets + 1].tolist()):
        if end - begin > BUCKET_ROWS:
            items[begin:end].sort()
    scratch = sort_scratch(min(BUCKET_ROWS, len(keys)))
    ranks = rank_items(keys, low, shift, np.uint64(buckets), cells, items, bins, scratch)
    return items[:ranks]


def dense_ranks(values: NDArray[np.float64]) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """Return the ranks of values, from 0, and the distinct values, ascending.

    values  [rows], at least one, none NaN.
    """
    maker = KeyMaker("", pl.Float64())
    ranks = np.empty(values.size, np.uint64)
    maker.make(pl.Series(values), ranks)
    scale = maker.scale()
    return ranks, scale.values(presort(ranks, scale, new_bins(values.size, "exact")))


def compile_presort(sizes: Collection[int] = (4, 8)) -> None:
    """Compile the kernels of `presort`, or load them from the cache, before data are in memory.

    sizes  bytes of the keys.
    """
    for size in sizes:
        for bits in (2, 20):  # by a table and by buckets
            _presort_many(np.zeros(3, f"u{size}"), Scale(0, 0, bits, 0, False, size), new_bins(3, 2))


def compile_pieces() -> None:
    """Compile the kernels that only columns in pieces need, or load them from the cache."""
    rank_cells(np.ones(1, np.uint64), new_bins(1, 2), np.zeros(2, np.uint64), np.empty(1, np.uint64))
    for size in (4, 8):
        begin, end, middle = (np.zeros(1, np.uint64) for _ in range(3))
        cut_runs(read_only(np.zeros(1, f"u{size}")), begin, end, np.uint64(0), middle)


def _table_bits(rows: int) -> int:
    """Return the most bits of an offset for which a table of all offsets is used, at about 3 ns per row.

    The table and the distinct offsets then take less memory than sorting, or little memory.
    """
    return max(8, min(_MAX_TABLE_BITS, rows.bit_length() - 3), CELL_BITS if rows >= 1 << 12 else 0)
