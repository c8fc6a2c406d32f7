"""Presorting keys that are in memory: every key's rank among the distinct ones, and those in ascending order."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.encode.sortable_keys import KeyMaker, Keys, Scale
from bigforest.kernels.common.radix_sort import sort_scratch
from bigforest.kernels.presort.ranking import (
    Bins,
    OffsetCells,
    count_offset_cells,
    group_cells,
    look_up_ranks,
    order_keys,
    rank_cells,
    rank_items,
    raw_values,
    spread_rows,
)

# Rows of a bucket: its items and their buffer fit the second-level cache.
BUCKET_ROWS = 1 << 15
CELL_BITS = 16
# A table of more bits of offset than this does not fit the cache.
_TABLE_BITS = 22
# An item holds a row number of 32 bits.
MOST_ROWS = 2**32 - 1


def new_bins(rows: int, max_bins: str | int) -> Bins:
    """The bins of a column of `rows` rows, none begun; of no use when max_bins is "exact"."""
    most = max_bins if isinstance(max_bins, int) else 0
    return Bins(np.uint64(rows), np.zeros(2, np.uint64), np.empty(most, np.uint64))


def presort(
    keys: Keys,
    scale: Scale,
    bins: Bins,
    bucket_rows: int = BUCKET_ROWS,
) -> NDArray[np.uint64]:
    """Replace the keys by their ranks, from 0, and return the distinct offsets, ascending: offset[rank].

    keys          [rows], at least one and at most MOST_ROWS, contiguous; changed.
    bins          told of every distinct value (`note_run` in kernels/presort/ranking.py).
    bucket_rows   rows that are sorted at a time.

    Anonymous memory besides the keys: `sort_bytes`. About 15 ns per row. Oracle: numpy.unique.
    """
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
    buckets = group_cells(counts, cell_shift, np.uint64(bucket_rows), cells)
    items = np.empty(len(keys), np.uint64)
    spread_rows(keys, low, shift, cell_shift, cells, items)
    before = np.zeros(2, np.uint64)  # rows and ranks of smaller keys: these are all of the column
    ranks = rank_items(
        keys, low, shift, np.uint64(buckets), cells, items, before, bins, sort_scratch(min(bucket_rows, len(keys)))
    )
    return items[:ranks]


def dense_ranks(values: NDArray[np.float64]) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """Ranks of values, at least one and none NaN, among the distinct ones, from 0, and these, ascending."""
    maker = KeyMaker("", pl.Float64())
    ranks = np.empty(values.size, np.uint64)
    maker.make(pl.Series(values), ranks)
    scale = maker.scale()
    return ranks, scale.values(presort(ranks, scale, new_bins(values.size, "exact")))


def compile_presort() -> None:
    """Compile the kernels of presorting, or load them from the cache, before there is data in memory."""
    for size in (4, 8):
        raw, keys = np.arange(3, dtype=f"i{size}"), np.empty(3, f"u{size}")
        values = raw.copy()
        values.flags.writeable = False
        order_keys(values, False, 0, keys, np.array([2**64 - 1, 0, 0, 0], np.uint64))
        raw_values(np.arange(3, dtype=np.uint64), np.uint64(0), np.uint64(0), False, 0, raw)
        for bits in (2, 20):  # by a table and by items
            presort(keys.copy(), Scale(0, 0, bits, 0, False, size), new_bins(3, 2))


def sort_bytes(rows: int) -> int:
    """Most bytes `presort` needs for this many rows, besides the keys."""
    return 8 * rows + 8 * min(rows, BUCKET_ROWS) + (36 << CELL_BITS) + (1 << 15)


def _table_bits(rows: int) -> int:
    """Bits of offset up to which ranks are looked up in a table of all offsets, at about 3 ns per row.

    The table and the distinct offsets then take less than items would, or are small anyhow.
    """
    return max(8, min(_TABLE_BITS, rows.bit_length() - 3), CELL_BITS if rows >= 1 << 12 else 0)
