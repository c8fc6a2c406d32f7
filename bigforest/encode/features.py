"""The feature columns: which columns can be used, and encoding those that fit in memory to a part of the store."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.types import Leaf, cells, is_feature_type, is_text_type, type_name
from bigforest.encode.categories import append_levels, codes_of, find_levels
from bigforest.encode.memory import BUCKET_ROWS, CELL_BITS, EncodePlan
from bigforest.encode.targets import check_column
from bigforest.encode.values import DictionaryWriter, KeyMaker, Keys, MissingRows, Scale, absent_cells, without
from bigforest.errors import DataError, api, listed
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
from bigforest.source import Source
from bigforest.storage.paths import local_path
from bigforest.store.format import ROW_NUMBER_TYPE
from bigforest.store.writer import Part, PartWriter

# What pandas calls an index without a name in Parquet and Arrow. The index of a frame is no feature either.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
# A table of more bits of offset than this does not fit the cache.
_TABLE_BITS = 22


@dataclass(frozen=True, slots=True)
class EncodeJob:
    """What all tasks of encoding features share.

    rows_file  the rows of the source to encode, ascending, of ROW_NUMBER_TYPE; None for all.
    max_bins   "exact", or the most codes of a feature.
    plan       the rows of the store, and how much of a column may be in memory.
    parts      folder for the parts.
    scratch    folder for what does not fit in memory.
    columns    the column of the table that each feature is in.
    kinds      "numeric" or "category", of each feature.
    """

    source: Source
    rows_file: Path | None
    max_bins: str | int
    plan: EncodePlan
    parts: Path
    scratch: Path
    columns: Mapping[str, str]
    kinds: Mapping[str, str]


def feature_kinds(
    leaves: Mapping[str, Leaf], target: str, exclude: Collection[str], categories: Collection[str]
) -> dict[str, str]:
    """All columns but the target and the excluded, which are features or columns that hold some, and their kinds.

    categories  columns of whole numbers or booleans that are categories; columns of text are so anyway.

    Raises DataError when one cannot be a feature.
    """
    names = _choose_features(leaves, target, exclude)
    for name in categories:
        if name in leaves and name not in names:
            raise DataError(
                f"{name!r} is not a feature, so its values cannot be categories; drop it from {api('categories')}"
            )
        check_column(name, names, "categories")
        dtype = leaves[name].dtype
        if not (is_text_type(dtype) or dtype == pl.Boolean or dtype.is_integer()):
            raise DataError(
                f"{name!r} has type {dtype}; only text, whole numbers and booleans can be categories: cast it to one"
            )
    return {name: "category" if name in categories or is_text_type(leaves[name].dtype) else "numeric" for name in names}


def _choose_features(leaves: Mapping[str, Leaf], target: str, exclude: Collection[str]) -> list[str]:
    columns = {leaf.column for leaf in leaves.values()}
    for name in exclude:
        check_column(name, {**leaves, **dict.fromkeys(columns)}, "exclude")
        if name == target:
            raise DataError(f"{name!r} is the target and cannot be excluded; name another target, or keep it")
    left_out = {target, *exclude}
    names = [
        name
        for name, leaf in leaves.items()
        if name not in left_out and leaf.column not in exclude and not _PANDAS_INDEX.fullmatch(leaf.column)
    ]
    if not names:
        raise DataError(f"no feature is left besides target {target!r}; exclude fewer columns")
    unusable = [name for name in names if not is_feature_type(leaves[name].dtype)]
    if unusable:
        named = listed([f"{name} ({leaves[name].dtype})" for name in unusable])
        lists = any(isinstance(leaves[name].dtype, pl.List) for name in unusable)
        hint = "; lists that are all of one length can be cast to Array" if lists else ""
        raise DataError(
            f"columns of these types cannot be features: {named}; exclude them or convert them to numbers or text{hint}"
        )
    return names


def encode_group(job: EncodeJob, index: int, names: Sequence[str]) -> list[Part] | list[str]:
    """Task: encode the features `names`, which fit in memory, as part `index` of the store; or, when some cannot be
    used, which ones and why. Others, and those with several tasks, are encoded in pieces (pieces.py)."""
    if job.kinds[names[0]] == "category":
        return [_encode_category(index, names[0], job)]
    makers = {name: KeyMaker(name, job.source.schema[name]) for name in names}
    keys = {name: np.empty(job.plan.rows, maker.key_type) for name, maker in makers.items()}
    gaps = {name: MissingRows() for name in names}
    for frame in kept_slices(job, names):
        for name, maker in makers.items():
            series = cells(frame, name)
            absent = absent_cells(series)
            gaps[name].add(absent, len(series))
            maker.make(without(series, absent), keys[name])
    wrong = [fault for maker in makers.values() if (fault := maker.wrong())]
    if wrong:
        return wrong
    with PartWriter(job.parts, index) as part:
        for name, maker in makers.items():
            missing = gaps[name].any
            bins = new_bins(maker.made, job.max_bins, missing=missing)
            dictionary = DictionaryWriter(name, maker.scale(), bins, part, missing=missing)
            ranks = keys.pop(name)[: maker.made]
            if maker.made:
                dictionary.add(presort(ranks, dictionary.scale, dictionary.bins))
            dictionary.finish()
            codes = dictionary.codes(gaps.pop(name).cut(ranks))
            part.end_feature(name, str(maker.dtype), codes, job.columns[name], missing=missing)
        return [part.part()]


def _encode_category(index: int, name: str, job: EncodeJob) -> Part:
    """What `encode_group` does, for a category."""
    dtype, binned = job.source.schema[name], isinstance(job.max_bins, int)
    with PartWriter(job.parts, index) as part:
        slices: Callable[[], Iterator[pl.Series]] = partial(kept_column, job, name)
        if job.plan.rows <= job.plan.limits.slice_rows:  # read once where it comes in one piece
            slices = partial(iter, list(slices()))
        levels = find_levels(name, dtype, slices(), job.plan.room, job.plan.limits)
        append_levels(levels, part, binned=binned)
        codes = (codes_of(series, levels) for series in slices())
        part.end_feature(name, type_name(dtype), codes, job.columns[name], kind="category", missing=levels.missing)
        return part.part()


def kept_column(job: EncodeJob, name: str, first: int = 0, stop: int | None = None) -> Iterator[pl.Series]:
    """The rows to encode of a column, slice by slice, none of them empty: those from number `first` to before `stop`
    among them, or all."""
    return (cells(frame, name) for frame in kept_slices(job, [name], first, stop))


def kept_slices(
    job: EncodeJob, names: Sequence[str], first: int = 0, stop: int | None = None
) -> Iterator[pl.DataFrame]:
    """The rows to encode of the named columns, see `kept_column`."""
    stop, rows = job.plan.rows if stop is None else stop, job.plan.limits.slice_rows
    if job.rows_file is None:
        yield from job.source.batches(names, rows, first, stop)
        return
    kept = np.asarray(np.memmap(local_path(job.rows_file), ROW_NUMBER_TYPE, "r"))[first:stop]
    at, begin = int(kept[0]), 0
    for frame in job.source.batches(names, rows, at, int(kept[-1]) + 1):
        # No more rows are kept than there are, so the ones of this slice are among the next.
        end = begin + int(np.searchsorted(kept[begin : begin + len(frame)], np.uint64(at + len(frame))))
        if end - begin == len(frame):
            yield frame
        elif end > begin:
            yield frame[(kept[begin:end] - np.uint64(at)).astype(np.uint32)]
        at += len(frame)
        begin = end


def new_bins(rows: int, max_bins: str | int, *, missing: bool = False) -> Bins:
    """The bins of a column of `rows` rows, none begun; of no use when max_bins is "exact". missing: whether one of the
    codes is that of rows without a value."""
    most = max_bins - missing if isinstance(max_bins, int) else 0
    return Bins(np.uint64(rows), np.zeros(2, np.uint64), np.empty(most, np.uint64))


def presort(keys: Keys, scale: Scale, bins: Bins) -> NDArray[np.uint64]:
    """Replace the keys by their ranks, from 0, and return the distinct offsets, ascending: offset[rank].

    keys  [rows], at least one and fewer than 2**32, contiguous; changed.
    bins  told of every distinct value (`note_run` in kernels/presort/ranking.py).

    Anonymous memory besides the keys: `sort_bytes` (memory.py). About 15 ns per row. Oracle: numpy.unique.
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
    buckets = group_cells(counts, cell_shift, np.uint64(BUCKET_ROWS), cells)
    items = np.empty(len(keys), np.uint64)
    spread_rows(keys, low, shift, cell_shift, cells, items)
    before = np.zeros(2, np.uint64)  # rows and ranks of smaller keys: these are all of the column
    scratch = sort_scratch(min(BUCKET_ROWS, len(keys)))
    ranks = rank_items(keys, low, shift, np.uint64(buckets), cells, items, before, bins, scratch)
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


def _table_bits(rows: int) -> int:
    """Bits of offset up to which ranks are looked up in a table of all offsets, at about 3 ns per row.

    The table and the distinct offsets then take less than items would, or are small anyhow.
    """
    return max(8, min(_TABLE_BITS, rows.bit_length() - 3), CELL_BITS if rows >= 1 << 12 else 0)
