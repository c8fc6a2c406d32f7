"""Encoding a column in pieces: if it does not fit in memory, or if there are at least twice as many threads as columns.

The rows of a column are cut into *runs*. `rank_rows` presorts runs by themselves: it writes the rank of every cell
among the keys of its run, and these keys, ascending. `merge_runs` takes the keys of all runs in a range of keys, so
that equal ones meet; it writes their values as those of codes, and for every key of a run its rank among all.
`write_codes` writes the code of every cell of some runs. The column is read once, a run has no more rows than are
presorted in memory, and no more keys than that are merged at a time. The files of the column are the same for all ways
of cutting it.

A category is the same with levels for keys, which are merged by one task. So are keys where there are max_bins.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.dataspec import FeatureSpec, code_width
from bigforest.columns.types import level_codes, type_name
from bigforest.encode.categories import append_levels, codes_of, find_levels
from bigforest.encode.features import EncodeJob, kept_column, new_bins, presort
from bigforest.encode.values import (
    DictionaryWriter,
    KeyMaker,
    Keys,
    MissingRows,
    Scale,
    absent_cells,
    check_codes,
    in_chunks,
    with_gaps,
    without,
)
from bigforest.errors import DataError
from bigforest.execution.executor import Executor
from bigforest.kernels.presort.ranking import count_offset_cells, find_bins, rank_cells
from bigforest.storage.atomic import remove, write_whole
from bigforest.storage.open_files import allow_many_files
from bigforest.storage.paths import local_path, uploads
from bigforest.store.files import joined_blocks
from bigforest.store.writer import Part, PartWriter

# The arguments of each task of a kind.
_Tasks = list[tuple[Any, ...]]
_RANK = np.dtype("<u4")
# Keys of a run that are looked at to cut the keys of all runs into ranges.
_SAMPLE = 512
# Counting the rows of keys takes this many times the memory of merging them.
_COUNTED = 3


class Run(NamedTuple):
    """Some consecutive rows of a column, whose cells are ranked among themselves.

    name     the files of its task are NAME-ranks, NAME-keys and NAME-counts, where its runs are one after the other
    before   keys that are before its own there
    rows     how many rows it has, and keys: how many different ones
    missing  whether some rows have no value, which have the rank 0 then, and others one more
    sample   some of the keys, at equal distances, from the first on
    """

    name: str
    before: int
    rows: int
    keys: int
    missing: bool
    sample: Keys


class ColumnRuns(NamedTuple):
    """All runs of a column. maker: has made their keys, None for a category; missing: whether some rows have no
    value."""

    name: str
    maker: KeyMaker | None
    runs: list[Run]
    missing: bool


class MergedKeys(NamedTuple):
    """The keys of all runs in a range.

    part   has their values
    ranks  how many different ones there are
    name   file with the ranks of the keys of each run, uint32, from 0 in this range
    sizes  keys of each run
    last   the largest rank of each bin; None without bins
    fault  why the column is refused; None where it is not
    """

    part: Part
    ranks: int
    name: str
    sizes: list[int]
    last: NDArray[np.uint64] | None
    fault: str | None = None


class KnownCodes(NamedTuple):
    """What the codes of a column follow from. missing: whether code 0 is that of rows without a value; width: bytes of
    a code."""

    merged: list[MergedKeys]
    missing: bool
    width: int


def encode_in_pieces(
    job: EncodeJob, columns: Mapping[int, str], split: int, executor: Executor
) -> dict[int, list[Part] | list[str]]:
    """Encode columns, which are features with these numbers, by `split` tasks each; the result of each is one as
    encode_group gives."""
    folder = job.scratch / f"pieces-{secrets.token_hex(8)}"
    folder.mkdir()
    several = [_ColumnInPieces(job, number, name, split) for number, name in columns.items()]

    shared = job, folder
    for column, runs in _each_column(executor, rank_rows, several, [one.rows() for one in several], shared):
        column.take_runs(runs)
    for column, keys in _each_column(executor, merge_runs, several, [one.ranges() for one in several], shared):
        column.take_keys(keys)
    coded = _each_column(executor, write_codes, several, [one.coded() for one in several], shared)
    result = {column.number: column.wrong or column.parts(codes) for column, codes in coded}
    remove(folder)
    return result


def _each_column(
    executor: Executor,
    task: Callable[..., Any],
    columns: Sequence[_ColumnInPieces],
    arguments: Sequence[_Tasks],
    shared: tuple[EncodeJob, Path],
) -> Iterator[tuple[_ColumnInPieces, list[Any]]]:
    """Run the tasks of some columns, all side by side; each column, and the results of its tasks, in order."""
    tasks = [own for one in arguments for own in one]
    found = executor.gather(task, tasks, shared=shared, even=True)
    ends = accumulate(map(len, arguments), initial=0)
    return zip(columns, (found[first:stop] for first, stop in pairwise(ends)), strict=True)


class _ColumnInPieces:
    """A column on its way; its methods give the arguments of each kind of task, and take what tasks have found."""

    def __init__(self, job: EncodeJob, number: int, name: str, split: int) -> None:
        self.number = number
        self.wrong: list[str] = []
        self._job = job
        self._name = name
        self._split = split
        self._runs: list[list[Run]] = []
        self._maker: KeyMaker | None = None
        self._merged: list[MergedKeys] = []
        self._codes = 0
        self._missing = False

    def rows(self) -> _Tasks:
        """The tasks of rank_rows."""
        ends = [self._job.plan.rows * number // self._split for number in range(self._split + 1)]
        return [(self._name, first, stop) for first, stop in pairwise(ends)]

    def take_runs(self, ranked: list[tuple[KeyMaker | None, list[Run]]]) -> None:
        self._maker = ranked[0][0]
        for other, _ in ranked[1:]:
            if self._maker is not None and other is not None:
                self._maker.join(other)
        fault = None if self._maker is None else self._maker.wrong()
        self.wrong = [] if fault is None else [fault]
        self._runs = [runs for _, runs in ranked]
        self._missing = any(run.missing for one in self._runs for run in one)

    def ranges(self) -> _Tasks:
        """The tasks of merge_runs."""
        if self.wrong:
            return []
        runs = [run for one in self._runs for run in one]
        lean = [run._replace(sample=run.sample[:0]) for run in runs]
        column = ColumnRuns(self._name, self._maker, lean, self._missing)
        bounds = [None, *_bounds(runs, 1 if self._maker is None else self._split), None]
        return [(self.number, column, low, high) for low, high in pairwise(bounds)]

    def take_keys(self, merged: list[MergedKeys]) -> None:
        self._merged = merged
        for one in merged:
            if one.fault is not None:
                raise DataError(one.fault)
        if merged:
            last = merged[0].last
            ranks = sum(one.ranks for one in merged)
            check_codes(self._name, ranks + self._missing)
            self._codes = self._missing + (ranks if last is None else len(last))

    def coded(self) -> _Tasks:
        """The tasks of write_codes."""
        if self.wrong:
            return []
        known = KnownCodes(self._merged, self._missing, code_width(self._codes))
        tasks: _Tasks = []
        before = rows = 0
        for one in self._runs:
            tasks.append((self.number, known, one, before, rows))
            before += len(one)
            rows += sum(run.rows for run in one)
        return tasks

    def parts(self, coded: list[Part]) -> list[Part]:
        """The feature, in parts to be appended in order."""
        width, dtype = code_width(self._codes), self._job.source.schema[self._name]
        rows = [sum(run.rows for run in one) for one in self._runs]
        spec = FeatureSpec(
            self._name,
            self._job.kinds[self._name],
            type_name(dtype) if self._maker is None else str(dtype),
            self._codes,
            width,
            0,
            self._job.columns[self._name],
            self._missing,
        )
        checksums = joined_blocks([part.checksums[0] for part in coded], rows, width)
        files = [part._replace(checksums=[]) for part in coded]
        return [*(one.part for one in self._merged), *files, Part([spec], [checksums], {})]


def rank_rows(job: EncodeJob, folder: Path, name: str, first: int, stop: int) -> tuple[KeyMaker | None, list[Run]]:
    """Task: rank the cells of a column from row `first` to before `stop`, run by run; with what has made their keys,
    None for a category."""
    if job.kinds[name] == "category":
        return None, [_rank_levels(job, folder, name, first, stop)]
    maker = KeyMaker(name, job.source.schema[name])
    most = min(job.plan.rows_at_once(maker.size), stop - first)
    keys = np.empty(most, maker.key_type)
    runs: list[Run] = []
    files, before = secrets.token_hex(8), 0
    samples = _SAMPLE if stop - first < job.plan.rows else 1
    with uploads(folder) as here:
        for gaps, made in _runs(job, maker, keys, most, first, stop):
            if maker.wrong() is None:
                run = _rank_run(job, here / files, before, maker.scale(), keys[:made], gaps, samples)
                before += run.keys
                runs.append(run)
    return maker, runs


def _runs(
    job: EncodeJob, maker: KeyMaker, keys: Keys, most: int, first: int, stop: int
) -> Iterator[tuple[MissingRows, int]]:
    """For each run the rows without a value, and how many keys of the others are in `keys`."""
    gaps, rows, made = MissingRows(), 0, 0
    for series in kept_column(job, maker.name, first, stop):
        begin = 0
        while begin < len(series):
            cells = series[begin : begin + most - rows]
            absent = absent_cells(cells)
            present = without(cells, absent)
            gaps.add(absent, len(cells))
            maker.make(present, keys, made)
            begin, rows, made = begin + len(cells), rows + len(cells), made + len(present)
            if rows == most:
                yield gaps, made
                gaps, rows, made = MissingRows(), 0, 0
    if rows:
        yield gaps, made


def _rank_run(
    job: EncodeJob, files: Path, before: int, scale: Scale, keys: Keys, gaps: MissingRows, samples: int
) -> Run:
    """Append a run to the files; its keys, of the scale, are changed. samples: the most keys in its sample."""
    distinct, sample = 0, keys[:0].copy()
    if len(keys):
        offsets = presort(keys, scale, new_bins(len(keys), "exact"))
        offsets <<= np.uint64(scale.shift)
        offsets += np.uint64(scale.low)
        distinct, sample = len(offsets), offsets[:: len(offsets) // samples + 1].astype(keys.dtype)
        _append(files, "keys", offsets, keys.dtype)
        del offsets  # there is no memory for counts beside it
        if isinstance(job.max_bins, int):
            counts = np.zeros(distinct, np.uint32)
            count_offset_cells(keys, np.uint64(0), np.uint64(0), counts)
            _append(files, "counts", counts, _RANK)
            del counts
    rows = 0
    for ranks, absent in gaps.cut(keys):
        own = with_gaps(ranks, absent) if gaps.any else ranks
        rows += len(own)
        _append(files, "ranks", own, _RANK)
    return Run(files.name, before, rows, distinct, gaps.any, sample)


def _rank_levels(job: EncodeJob, folder: Path, name: str, first: int, stop: int) -> Run:
    """What `rank_rows` does, for a category: its levels are in a Parquet file, and found in a reading of their own."""
    dtype, run = job.source.schema[name], secrets.token_hex(8)
    found = find_levels(name, dtype, kept_column(job, name, first, stop), job.plan.room, job.plan.limits)
    with uploads(folder) as here:
        found.levels.alias("level").to_frame().write_parquet(here / f"{run}-keys")
        with (here / f"{run}-ranks").open("wb", buffering=0) as file:
            for series in kept_column(job, name, first, stop):
                write_whole(file, codes_of(series, found).astype(_RANK, copy=False))
    return Run(run, 0, stop - first, len(found.levels), found.missing, np.empty(0, np.uint64))


def _bounds(runs: Sequence[Run], ranges: int) -> list[Any]:
    """At most ranges - 1 keys, ascending, between which the runs have about equally many keys."""
    if ranges == 1:
        return []
    keys = np.concatenate([run.sample for run in runs])
    weights = np.repeat([run.keys / max(1, len(run.sample)) for run in runs], [len(run.sample) for run in runs])
    order = np.argsort(keys, kind="stable")
    before = np.cumsum(weights[order]) - weights[order]
    places = np.searchsorted(before, [weights.sum() * number / ranges for number in range(1, ranges)])
    return list(np.unique(keys[order][places[places < len(keys)]]))


def merge_runs(job: EncodeJob, folder: Path, number: int, column: ColumnRuns, low: Any, high: Any) -> MergedKeys:
    """Task: merge the keys of the runs of a column, feature `number`, from `low` to before `high`; None is no bound.

    Which range has the first clash of numbers must not depend on threads, so it is in the result.
    """
    allow_many_files()  # one for each piece of the column, on each thread
    with uploads(folder) as here, PartWriter(job.parts, number) as part:
        name, maker, runs, missing = column
        if maker is None:
            return _merge_levels(job, folder, here, column, part)
        merging = _Merging(folder, runs, maker, low, high)
        bins = new_bins(maker.made, job.max_bins, missing=missing)
        scale = maker.scale()
        dictionary = DictionaryWriter(
            name, scale, bins, part, missing=missing and low is None, last=merging.last_before(scale)
        )
        merged = secrets.token_hex(8)
        try:
            with (here / merged).open("wb", buffering=0) as file:
                merging.write(file, dictionary)
        except DataError as error:
            return MergedKeys(part.part(), 0, merged, merging.sizes, None, str(error))
        dictionary.finish()
        last = bins.last[: int(bins.state[0])].copy() if dictionary.binned else None
        return MergedKeys(part.part(), dictionary.ranks, merged, merging.sizes, last)


class _Merging:
    """The keys of the runs of a column in a range, mapped. sizes: how many each run has."""

    def __init__(self, folder: Path, runs: Sequence[Run], maker: KeyMaker, low: Any, high: Any) -> None:
        self._keys = _of_runs(folder, runs, "keys", maker.key_type)
        self._counts = partial(_of_runs, folder, runs, "counts", _RANK)
        self._begin = np.zeros(len(runs), np.int64) if low is None else self._places(low)
        self._end = np.array([run.keys for run in runs], np.int64) if high is None else self._places(high)
        self._most = max(run.rows for run in runs)
        self.sizes: list[int] = (self._end - self._begin).tolist()

    def last_before(self, scale: Scale) -> NDArray[np.uint64]:
        """The offset of the largest key below the range, [1], or none, [0]."""
        below = [int(keys[at - 1]) for keys, at in zip(self._keys, self._begin.tolist(), strict=True) if at]
        return np.array([(max(below) - scale.low) >> scale.shift] if below else [], np.uint64)

    def write(self, file: Any, dictionary: DictionaryWriter) -> None:
        """Tell the dictionary all keys, and write the rank of each, run by run."""
        starts = np.cumsum([0, *self.sizes[:-1]]) - self._begin
        scale, bins = dictionary.scale, dictionary.bins
        binned = bool(len(bins.last))
        run_counts = self._counts() if binned else []
        rows = 0
        for begin, end in self._cut(self._most // _COUNTED if binned else self._most):
            pieces = list(zip(begin.tolist(), end.tolist(), strict=True))
            keys = np.concatenate([own[one:two] for own, (one, two) in zip(self._keys, pieces, strict=True)])
            least = int(keys.min())
            local = Scale(least, scale.shift, ((int(keys.max()) - least) >> scale.shift).bit_length(), 0, False, 0)
            offsets = presort(keys, local, new_bins(len(keys), "exact"))
            before = dictionary.ranks
            if binned:
                held = [own[one:two] for own, (one, two) in zip(run_counts, pieces, strict=True)]
                counts = np.zeros(len(offsets), np.uint64)
                np.add.at(counts, keys, np.concatenate(held))
                added = int(counts.sum())
                rank_cells(counts, bins, np.array([rows, before], np.uint64), np.empty(len(offsets), np.uint64))
                rows += added
            offsets += np.uint64((least - scale.low) >> scale.shift)
            dictionary.add(offsets)
            at = 0
            for start, (one, two) in zip((starts + begin).tolist(), pieces, strict=True):
                file.seek(start * _RANK.itemsize)
                for chunk in in_chunks(keys[at : at + two - one]):
                    write_whole(file, (chunk + np.uint64(before)).astype(_RANK))
                at += two - one

    def _cut(self, most: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Where each run begins and ends in ranges of at most `most` keys, ascending; a range that cannot be cut may
        have one key of each run."""
        waiting = [(self._begin, self._end)]
        while waiting:
            begin, end = waiting.pop()
            sizes = end - begin
            widest = int(sizes.argmax())
            if sizes.sum() > most and sizes[widest] > 1:
                middle = self._places(self._keys[widest][(begin[widest] + end[widest]) // 2])
                waiting += [(middle, end), (begin, middle)]
            elif sizes.any():
                yield begin, end

    def _places(self, key: Any) -> NDArray[np.int64]:
        """The first place in each run whose key is not below this one."""
        return np.array([np.searchsorted(keys, key) for keys in self._keys], np.int64)


def _merge_levels(job: EncodeJob, folder: Path, here: Path, column: ColumnRuns, part: PartWriter) -> MergedKeys:
    """What `merge_runs` does, for a category; its files are made in the folder `here`."""
    name, _, runs, missing = column
    dtype = job.source.schema[name]
    kind = dtype if dtype.is_integer() else pl.String()

    def levels(run: Run) -> pl.Series:
        return pl.read_parquet(local_path(folder / f"{run.name}-keys"))["level"]

    slices = (levels(run).cast(kind) for run in runs)
    found = find_levels(name, kind, slices, job.plan.room, job.plan.limits)._replace(missing=missing)
    append_levels(found, part, binned=isinstance(job.max_bins, int))
    merged = secrets.token_hex(8)
    with (here / merged).open("wb", buffering=0) as file:
        for run in runs:
            write_whole(file, level_codes(levels(run), found.levels, 0).astype(_RANK))
    return MergedKeys(part.part(), len(found.levels), merged, [run.keys for run in runs], None)


def write_codes(
    job: EncodeJob, folder: Path, number: int, known: KnownCodes, runs: Sequence[Run], before: int, rows: int
) -> Part:
    """Task: write the codes of the runs of a task, of a column that is feature `number`, before which it has `before`
    runs and `rows` rows."""

    def codes() -> Iterator[Keys]:
        ends = list(accumulate((run.rows for run in runs), initial=0))
        ranks = _mapped(folder / f"{runs[0].name}-ranks", _RANK, ends[-1])
        for place, (run, (first, stop)) in enumerate(zip(runs, pairwise(ends), strict=True), before):
            of_rank = _codes_of_ranks(folder, place, run, known)
            for chunk in in_chunks(ranks[first:stop]):
                yield of_rank[chunk]

    with PartWriter(job.parts, number) as part:
        checksums = part.codes(codes(), known.width, rows)
        return part.part()._replace(checksums=[checksums])


def _codes_of_ranks(folder: Path, place: int, run: Run, known: KnownCodes) -> NDArray[np.uint32]:
    """The code of each rank of a run, the column's number `place`."""
    found = np.zeros(run.missing + run.keys, np.uint32)
    at, base = int(run.missing), 0
    for one in known.merged:
        own = found[at : at + one.sizes[place]]
        begin = sum(one.sizes[:place])
        own[:] = _mapped(folder / one.name, _RANK, begin + len(own))[begin:]
        own += np.uint32(base)
        if one.last is not None:
            find_bins(own.copy(), one.last, own)
        at, base = at + len(own), base + one.ranks
    found[run.missing :] += np.uint32(known.missing)
    return found


def compile_pieces() -> None:
    """Compile the kernels used here and nowhere else, or load them from the cache, before there is data in memory."""
    ranks, none = np.zeros(1, np.uint32), np.uint64(0)
    for size in (4, 8):
        count_offset_cells(np.zeros(1, f"u{size}"), none, none, ranks)
    rank_cells(np.ones(1, np.uint64), new_bins(1, 2), np.zeros(2, np.uint64), np.empty(1, np.uint64))
    find_bins(ranks, np.zeros(1, np.uint64), ranks.copy())


def _append(files: Path, content: str, array: NDArray[Any], kind: np.dtype[Any]) -> None:
    """Append an array to a file of runs, as this type."""
    with files.with_name(f"{files.name}-{content}").open("ab", buffering=0) as file:
        for chunk in in_chunks(array):
            write_whole(file, chunk.astype(kind, copy=False))


def _of_runs(folder: Path, runs: Sequence[Run], content: str, kind: np.dtype[Any]) -> list[NDArray[Any]]:
    """The keys or counts of each run. A file is mapped once, as it stays open."""
    sizes = {run.name: run.before + run.keys for run in runs}  # that of the last run in a file
    mapped = {name: _mapped(folder / f"{name}-{content}", kind, size) for name, size in sizes.items()}
    return [mapped[run.name][run.before : run.before + run.keys] for run in runs]


def _mapped(path: Path, kind: np.dtype[Any], size: int) -> NDArray[Any]:
    """The first entries of a file, mapped."""
    if not size:
        return np.empty(0, kind)
    local = local_path(path)  # whose ConfigError is a ValueError too
    try:
        return np.asarray(np.memmap(local, kind, "r", shape=(size,)))
    except ValueError as error:
        raise OSError(f"{path}: the scratch file has been cut short; do not touch it during a run") from error
