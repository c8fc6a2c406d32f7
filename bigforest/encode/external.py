"""Presorting a column whose keys do not fit in memory.

The offsets of the keys are cut into ranges of so few rows that each can be presorted in memory: the *buckets*. One pass
over the column appends every offset to its bucket in a scratch file. The buckets are presorted one after the other, and
their ranks written over the offsets. As a bucket has kept the order of the rows, a second pass brings the ranks back:
every row takes the next rank of its bucket, so no row number is ever stored. Memory: a bucket, or a slice of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.limits import Limits
from bigforest.encode.dictionary import DictionaryWriter
from bigforest.encode.ranks import new_bins, presort
from bigforest.encode.sortable_keys import Keys, Scale, in_chunks
from bigforest.kernels.presort.external import count_within, join_slice, split_slice
from bigforest.kernels.presort.ranking import Bins, count_offset_cells, find_bins, look_up_ranks, rank_cells
from bigforest.storage.atomic import write_whole

RANK_TYPE = np.dtype("<u4")

# Gives the keys of the column from its beginning, slice by slice; a slice is valid until the next one.
KeySlices = Callable[[], Iterator[Keys]]


class Buckets(NamedTuple):
    """Ranges of offsets, ascending. first [buckets] is the smallest offset of each, rows [buckets] how many rows it
    has, alone [buckets] whether it is one offset only, which needs no sorting and no place in the file."""

    first: NDArray[np.uint64]
    rows: NDArray[np.uint64]
    alone: NDArray[np.bool_]


@contextmanager
def presorted_on_disk(
    keys: KeySlices, scale: Scale, bins: Bins, dictionary: DictionaryWriter, limits: Limits, scratch: Path
) -> Iterator[Iterator[Keys]]:
    """Tell `dictionary` all distinct offsets of a column, and yield its ranks in slices, to be iterated over once.

    limits   of which presort_rows is how many rows `presort` may be given at once, at least 1.
    scratch  path of a file that is there within the block: at most the bytes of a key per row.
    """
    counts = _count(keys, scale, limits.cell_bits)
    if scale.bits <= limits.cell_bits:
        offsets = np.empty(np.count_nonzero(counts), np.uint64)
        rank_cells(counts, bins, np.zeros(2, np.uint64), offsets)
        dictionary.add(offsets)
        yield _looked_up(keys, scale, counts)
        return
    buckets = _cut(keys, scale, counts, limits)
    kind = np.dtype("<u4" if scale.bits <= 32 else "<u8")
    try:
        with scratch.open("w+b", buffering=0) as file:
            offsets_file = _OffsetsFile(file, buckets, kind)
            offsets_file.write(keys, scale)
            offsets_file.rank(bins, dictionary)
            yield offsets_file.ranks(keys, scale)
    finally:
        scratch.unlink(missing_ok=True)


def compile_external() -> None:
    """Compile the kernels used here, or load them from the cache, before there is data in memory."""
    none, one, first = np.uint64(0), np.ones(1, np.uint64), np.zeros(1, np.uint64)
    for size, kind in ((4, "u4"), (8, "u4"), (8, "u8")):
        keys, of_row, counts = np.zeros(1, f"u{size}"), np.zeros(1, np.uint32), np.zeros(1, np.uint64)
        split_slice(keys, none, none, first, of_row, counts, one.copy(), np.empty(1, kind))
        count_within(keys, none, none, first, one, first, np.zeros((1, 1), np.uint64))
        count_offset_cells(keys, none, none, counts)
        look_up_ranks(keys, none, none, counts)
    join_slice(of_row, one, one.copy(), np.zeros(1, RANK_TYPE), np.empty(1, RANK_TYPE))
    rank_cells(one.copy(), new_bins(1, 2), np.zeros(2, np.uint64), one.copy())
    find_bins(of_row, first, of_row)


def group_pieces(first: NDArray[Any], rows: NDArray[Any], alone: NDArray[Any], most: int) -> Buckets:
    """Join neighbouring ranges into buckets of at most `most` rows; a larger range stays a bucket of its own."""
    starts: list[int] = []
    held = 0
    for index, count in enumerate(rows.tolist()):
        if not starts or held + count > most:
            starts.append(index)
            held = 0
        held += count
    size = np.diff([*starts, len(rows)])
    return Buckets(first[starts], np.add.reduceat(rows, starts), alone[starts] & (size == 1))


def _count(keys: KeySlices, scale: Scale, bits: int) -> NDArray[np.uint64]:
    """Rows in each of at most 2**bits ranges of offsets of equal length."""
    counts = np.zeros(1 << min(scale.bits, bits), np.uint64)
    shift = np.uint64(scale.shift + max(scale.bits - bits, 0))
    for part in keys():
        count_offset_cells(part, np.uint64(scale.low), shift, counts)
    return counts


def _cut(keys: KeySlices, scale: Scale, counts: NDArray[np.uint64], limits: Limits) -> Buckets:
    """Buckets of at most presort_rows rows, except for single offsets. A pass over the keys for each finer_bits
    needed."""
    width, most = scale.bits - limits.cell_bits, limits.presort_rows
    first = np.flatnonzero(counts).astype(np.uint64)
    rows = counts[first]
    first <<= np.uint64(width)
    bits = np.full(len(first), width, np.uint64)  # of the offsets within each range
    while len(large := np.flatnonzero((rows > most) & (bits > 0))):
        finer = np.maximum(bits[large], np.uint64(limits.finer_bits)) - np.uint64(limits.finer_bits)
        within = np.zeros((len(large), 1 << limits.finer_bits), np.uint64)
        begin = first[large]
        for part in keys():
            count_within(
                part,
                np.uint64(scale.low),
                np.uint64(scale.shift),
                begin,
                begin + ((np.uint64(1) << bits[large]) - np.uint64(1)),
                finer,
                within,
            )
        which, cell = np.nonzero(within)
        first = np.concatenate([np.delete(first, large), begin[which] + (cell.astype(np.uint64) << finer[which])])
        rows = np.concatenate([np.delete(rows, large), within[which, cell]])
        bits = np.concatenate([np.delete(bits, large), finer[which]])
        order = np.argsort(first)
        first, rows, bits = first[order], rows[order], bits[order]
    return group_pieces(first, rows, bits == 0, most)


def _looked_up(keys: KeySlices, scale: Scale, ranks: NDArray[np.uint64]) -> Iterator[Keys]:
    for part in keys():
        look_up_ranks(part, np.uint64(scale.low), np.uint64(scale.shift), ranks)
        yield part


class _OffsetsFile:
    """The offsets of all rows by bucket, later their ranks in the places of the offsets."""

    def __init__(self, file: IO[bytes], buckets: Buckets, kind: np.dtype[Any]) -> None:
        self._file = file
        self._buckets = buckets
        self._kind = kind
        stored = np.where(buckets.alone, 0, buckets.rows.astype(np.int64))
        # Python's integers: bytes of a file, which may be more than 2**32, and are added one by one.
        self._starts: list[int] = (np.cumsum([0, *stored[:-1]]) * kind.itemsize).tolist()
        self._base = np.zeros(len(stored), np.int64)

    def write(self, keys: KeySlices, scale: Scale) -> None:
        """Append the offset of every row to its bucket."""
        ends = list(self._starts)
        for part in keys():
            grouped = np.empty(len(part), self._kind)
            _, counts = self._split(part, scale, grouped)
            for bucket, piece in self._pieces(counts, grouped):
                self._put(ends[bucket], piece)
                ends[bucket] += piece.nbytes

    def rank(self, bins: Bins, dictionary: DictionaryWriter) -> None:
        """Presort every bucket and write the ranks over the offsets."""
        rows_before = 0
        for bucket, rows in enumerate(self._buckets.rows.tolist()):
            first = int(self._buckets.first[bucket])
            self._base[bucket] = dictionary.ranks
            if self._buckets.alone[bucket]:
                before = np.array([rows_before, dictionary.ranks], np.uint64)
                rank_cells(np.array([rows], np.uint64), bins, before, np.empty(1, np.uint64))
                dictionary.add(np.array([first], np.uint64))
            else:
                held = np.empty(rows, self._kind)
                self._get(self._starts[bucket], held)
                local = scale_of_offsets(held)
                offsets = presort(held, local, bins, rows_before, dictionary.ranks)
                offsets += np.uint64(local.low)
                dictionary.add(offsets)
                del offsets
                self._put_ranks(bucket, held)
            rows_before += rows

    def ranks(self, keys: KeySlices, scale: Scale) -> Iterator[Keys]:
        """The ranks in the order of the rows, slice by slice."""
        ends = list(self._starts)
        nothing = np.empty(0, self._kind)
        for part in keys():
            of_row, counts = self._split(part, scale, nothing)
            grouped = np.empty(len(part), RANK_TYPE)
            for bucket, piece in self._pieces(counts, grouped):
                self._get(ends[bucket], piece)
                ends[bucket] += piece.nbytes
            for bucket, piece in self._pieces(counts, grouped, alone=True):
                piece[:] = self._base[bucket]
            ranks = np.empty(len(part), RANK_TYPE)
            join_slice(of_row, counts, np.empty(len(counts), np.uint64), grouped, ranks)
            yield ranks

    def _split(self, part: Keys, scale: Scale, grouped: Keys) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
        """The bucket of each row, the rows of each bucket, and, where `grouped` has room, the offsets by bucket."""
        of_row = np.empty(len(part), np.uint32)
        counts, place = (np.empty(len(self._starts), np.uint64) for _ in range(2))
        low, shift = np.uint64(scale.low), np.uint64(scale.shift)
        split_slice(part, low, shift, self._buckets.first, of_row, counts, place, grouped)
        return of_row, counts

    def _pieces(self, counts: NDArray[np.uint64], grouped: Keys, *, alone: bool = False) -> Iterator[tuple[int, Keys]]:
        """The buckets, stored or of one offset alone, that have rows in a slice, and their part of `grouped`."""
        ends = np.cumsum(counts.astype(np.int64))
        for bucket in np.flatnonzero((counts > 0) & (self._buckets.alone == alone)).tolist():
            yield bucket, grouped[ends[bucket] - int(counts[bucket]) : ends[bucket]]

    def _put_ranks(self, bucket: int, ranks: Keys) -> None:
        at = self._starts[bucket]
        for chunk in in_chunks(ranks):
            wide = (chunk + np.uint64(self._base[bucket])).astype(RANK_TYPE)
            self._put(at, wide)
            at += wide.nbytes

    def _put(self, at: int, array: Keys) -> None:
        self._file.seek(at)
        write_whole(self._file, array)

    def _get(self, at: int, array: Keys) -> None:
        self._file.seek(at)
        left = array.view(np.uint8).data
        while left:
            count = self._file.readinto(left)  # type: ignore[attr-defined]
            if not count:
                raise OSError(f"{self._file.name}: the scratch file has been cut short; do not touch it during a run")
            left = left[count:]


def scale_of_offsets(offsets: Keys) -> Scale:
    """The scale of offsets taken as keys, only to presort them."""
    low, high = int(offsets.min()), int(offsets.max())
    return Scale(low, 0, (high - low).bit_length(), 0, False, offsets.itemsize)
