"""Presorting one column in memory: keys are replaced by their ranks, without a comparison sort.

    keys     [rows] unsigned integers in the order of the values    7  3  7  9
    ranks    [rows] the same array afterwards                       1  0  1  2
    offsets  [distinct] the distinct keys, ascending                3  7  9     (offset = (key - low) >> shift)

1. Few rows: numpy sorts them, without kernels to compile.
2. Columns whose offsets span few bits: count every possible offset, number those that occur, look up each key.
3. Other columns: spread rows over buckets of neighbouring offsets that fit the second-level cache; sort each bucket.

Oracle: numpy.unique with return_inverse (tests/grow/test_ranks.py). Kernels: kernels/presort/ranking.py.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.encode.memory import BUCKET_ROWS, CELL_BITS
from bigforest.encode.values import KeyMaker, Keys, Scale
from bigforest.kernels.common.radix_sort import sort_scratch
from bigforest.kernels.presort.ranking import (
    Bins,
    OffsetCells,
    count_offset_cells,
    find_bins,
    group_cells,
    look_up_ranks,
    rank_cells,
    rank_items,
    spread_rows,
)

# Columns of up to this many rows are ranked by numpy: 50 ns per row, and a second to compile the kernels.
FEW_ROWS = 1 << 13
# Larger tables of offsets do not fit the cache.
_MAX_TABLE_BITS = 22


def new_bins(rows: int, max_bins: str | int, *, missing: bool = False) -> Bins:
    """Return empty bins for a column.

    rows      rows that have a value.
    max_bins  "exact" for no bins, or the maximal number of codes.
    missing   True if one of the codes is that of missing values.
    """
    count = max_bins - missing if isinstance(max_bins, int) else 0
    return Bins(np.uint64(rows), np.zeros(2, np.uint64), np.empty(count, np.uint64))


def presort(keys: Keys, scale: Scale, bins: Bins) -> NDArray[np.uint64]:
    """Replace keys by their ranks from 0, and return the distinct offsets, ascending.

    keys  [rows], 1 to 2**32 - 1 of them, contiguous; overwritten with ranks.
    bins  updated with every distinct value (`note_run` in kernels/presort/ranking.py).

    Anonymous memory besides the keys: `sort_bytes` (memory.py). About 15 ns per row.
    """
    low, shift = np.uint64(scale.low), np.uint64(scale.shift)
    if len(keys) <= FEW_ROWS:
        found = np.unique((keys.astype(np.uint64) - low) >> shift, return_inverse=True, return_counts=True)
        offsets, keys[:], counted = found
        if bins.last.size:
            rank_cells(counted.astype(np.uint64), bins, np.zeros(2, np.uint64), np.empty_like(offsets))
        return offsets
    return _presort_many(keys, scale, bins)


def _presort_many(keys: Keys, scale: Scale, bins: Bins) -> NDArray[np.uint64]:
    """Rank as `presort`, by kernels."""
    low, shift = np.uint64(scale.low), np.uint64(scale.shift)
    if scale.bits <= _table_bits(len(keys)):
        counts = np.zeros(1 << scale.bits, np.uint32)
        count_offset_cells(keys, low, shift, counts)
        offsets = np.empty(np.count_nonzero(counts), np.uint64)
        rank_cells(counts, bins, np.zeros(2, np.uint64), offsets)
        look_up_ranks(keys, low, shift, counts)
        return offsets
    cell_bits = min(scale.bits, CELL_BITS, max(8, len(keys).bit_length()))
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
    before = np.zeros(2, np.uint64)  # no rows and ranks of smaller keys: these are all keys of the column
    scratch = sort_scratch(min(BUCKET_ROWS, len(keys)))
    ranks = rank_items(keys, low, shift, np.uint64(buckets), cells, items, before, bins, scratch)
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
    """Compile the kernels of presorting many rows, or load them from the cache, before data are in memory.

    sizes  bytes of the keys.
    """
    for size in sizes:
        for bits in (2, 20):  # by a table and by buckets
            _presort_many(np.zeros(3, f"u{size}"), Scale(0, 0, bits, 0, False, size), new_bins(3, 2))


def compile_pieces() -> None:
    """Compile the further kernels of columns in pieces, or load them from the cache."""
    ranks, none = np.zeros(1, np.uint32), np.uint64(0)
    for size in (4, 8):
        count_offset_cells(np.zeros(1, f"u{size}"), none, none, ranks)
    rank_cells(np.ones(1, np.uint64), new_bins(1, 2), np.zeros(2, np.uint64), np.empty(1, np.uint64))
    find_bins(ranks, np.zeros(1, np.uint64), ranks.copy())


def _table_bits(rows: int) -> int:
    """Return the bits of offset up to which a table of all offsets is used, at about 3 ns per row.

    The table and the distinct offsets then take less memory than sorting does, or little.
    """
    return max(8, min(_MAX_TABLE_BITS, rows.bit_length() - 3), CELL_BITS if rows >= 1 << 12 else 0)
