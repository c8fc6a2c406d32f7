"""The feature columns: which ones can be used, and some of them from their values to a part of the store."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from bigforest.columns import Leaf, is_feature_type
from bigforest.encode.dictionary import Dictionary, in_chunks
from bigforest.encode.external import presorted_on_disk
from bigforest.encode.keys import KeyMaker, Keys
from bigforest.encode.need import EncodePlan
from bigforest.encode.ranks import new_bins, presort
from bigforest.encode.target import check_column, listed
from bigforest.errors import DataError
from bigforest.places import fetched, workshop
from bigforest.source import Source
from bigforest.store.format import ROW_NUMBER_TYPE
from bigforest.store.writer import Part, PartWriter


@dataclass(frozen=True, slots=True)
class Job:
    """What all tasks of encoding features share.

    kept      file with the rows of the source to encode, ascending, of ROW_NUMBER_TYPE; None for all.
    rows      rows of the store.
    max_bins  "exact", or the most codes of a feature.
    plan      how much of a column may be in memory.
    parts     folder for the parts.
    scratch   folder for what does not fit in memory.
    columns   the column of the table that each feature is in.
    """

    source: Source
    kept: Path | None
    rows: int
    max_bins: str | int
    plan: EncodePlan
    parts: Path
    scratch: Path
    columns: Mapping[str, str]


def choose_features(leaves: Mapping[str, Leaf], target: str, exclude: Collection[str]) -> list[str]:
    """All columns but the target and the excluded, which are features or columns that hold some.

    Raises DataError when one cannot be a feature yet.
    """
    columns = {leaf.column for leaf in leaves.values()}
    for name in exclude:
        check_column(name, {**leaves, **dict.fromkeys(columns)}, "exclude")
    left_out = {target, *exclude}
    names = [name for name, leaf in leaves.items() if name not in left_out and leaf.column not in exclude]
    if not names:
        raise DataError(f"no feature is left beside the target {target!r}; exclude fewer columns")
    unusable = [name for name in names if not is_feature_type(leaves[name].dtype)]
    if unusable:
        named = listed([f"{name} ({leaves[name].dtype})" for name in unusable])
        lists = any(isinstance(leaves[name].dtype, pl.List) for name in unusable)
        hint = "; lists that are all of one length can be cast to Array" if lists else ""
        raise DataError(
            f"columns of these types cannot be features yet: {named}; exclude them or convert them to numbers{hint}"
        )
    return names


def encode_group(job: Job, index: int, names: Sequence[str]) -> Part | list[str]:
    """Encode the features `names` as part `index` of the store; or, when some cannot be used, which ones and why."""
    makers = {name: KeyMaker(name, job.source.schema[name]) for name in names}
    if not job.plan.in_memory(names):
        return _encode_on_disk(index, makers[names[0]], job)
    keys = {name: np.empty(job.rows, maker.key_type) for name, maker in makers.items()}
    at = 0
    for frame in kept_slices(job, names):
        for series in frame:
            makers[series.name].make(series, keys[series.name][at : at + len(series)])
        at += len(frame)
    wrong = [fault for maker in makers.values() if (fault := maker.wrong())]
    if wrong:
        return wrong
    with PartWriter(job.parts, index) as part:
        for name, maker in makers.items():
            scale, bins = maker.scale(), new_bins(job.rows, job.max_bins)
            dictionary = Dictionary(name, scale, bins, part)
            ranks = keys.pop(name)
            dictionary.add(presort(ranks, scale, bins))
            dictionary.finish()
            part.end_feature(name, str(maker.dtype), dictionary.codes(in_chunks(ranks)), job.columns[name])
        return part.part()


def _encode_on_disk(index: int, maker: KeyMaker, job: Job) -> Part | list[str]:
    """What `encode_group` does, for one feature that does not fit in memory."""
    for _ in _slices_of_keys(maker, job):
        pass
    wrong = maker.wrong()
    if wrong:
        return [wrong]
    scale, bins = maker.scale(), new_bins(job.rows, job.max_bins)

    def keys() -> Iterator[Keys]:
        return _slices_of_keys(KeyMaker(maker.name, maker.dtype), job)

    with PartWriter(job.parts, index) as part:
        dictionary = Dictionary(maker.name, scale, bins, part)
        most, path = job.plan.rows_at_once(maker.size), f"column-{index}-{secrets.token_hex(8)}"
        with (
            workshop(job.scratch) as here,
            presorted_on_disk(keys, scale, bins, dictionary, most, here / path) as ranks,
        ):
            dictionary.finish()
            part.end_feature(maker.name, str(maker.dtype), dictionary.codes(ranks), job.columns[maker.name])
        return part.part()


def _slices_of_keys(maker: KeyMaker, job: Job) -> Iterator[Keys]:
    buffer = np.empty(min(job.plan.slice_rows, job.rows), maker.key_type)
    for frame in kept_slices(job, [maker.name]):
        keys = buffer[: len(frame)]
        maker.make(frame.to_series(), keys)
        yield keys


def kept_slices(job: Job, names: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The rows to encode of the named columns, slice by slice."""
    kept = None if job.kept is None else np.asarray(np.memmap(fetched(job.kept), ROW_NUMBER_TYPE, "r"))
    first = begin = 0
    for frame in job.source.slices(names, job.plan.slice_rows):
        if kept is None:
            yield frame
            continue
        # No more rows are kept than there are, so the ones of this slice are among the next.
        end = begin + int(np.searchsorted(kept[begin : begin + len(frame)], np.uint64(first + len(frame))))
        if end - begin == len(frame):
            yield frame
        else:
            yield frame[(kept[begin:end] - np.uint64(first)).astype(np.uint32)]
        first += len(frame)
        begin = end
