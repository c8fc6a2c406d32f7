"""Encoding features: every cell becomes the rank of its value among the distinct values of its column.

A numeric column that fits in memory:

1. make a key of every value, an unsigned integer in the same order (values.py);
2. presort: replace the keys by their ranks, which also finds the distinct keys (values.py);
3. write the distinct values as the dictionary, and the ranks as codes.

    values      2.5  null  -1.0  2.5        dictionary  [NaN, -1.0, 2.5]     code 0 = missing, if any is
    codes         2     0     1    2

A column that does not fit is encoded in *runs* of consecutive rows. The column is read once, and each file is written
once, in order.

1. Presort each run by itself, and write its ranks and distinct keys to scratch files.
2. Merge the keys of all runs, range by range. This finds the dictionary, and the rank in the column of each key.
3. Replace the ranks within runs by the ranks in the column.

Random accesses stay within the caches, because runs and ranges are short. The bytes of the store do not depend on how
the column is cut.

    values   3.5 1.0 3.5 | 2.0 3.5        two runs
    keys     1.0 3.5     | 2.0 3.5        file `keys`: distinct in each run
    ranks    1 0 1       | 0 1            file `ranks`: of every row, within its run
    ranges   1.0 | 2.0   - 3.5 | 3.5      two ranges, cut at the key 3.5, with a part of every run
    merged   0   | 1     - 2   | 2        file `merged`: rank in the column of each key of a range
    codes    2 0 2       | 1 2            (parts of the run in merged)[ranks]

The column of a category is read twice, slice by slice: to find the levels, and to replace them by codes. (If all rows
fit in one slice, the column is read once.) A slice and a few copies of the distinct levels are in memory.

    cells   late  null  early  late
    levels  early  late                 distinct texts, in the order of their UTF-8 bytes (whole numbers: by value)
    codes     2     0     1     2       0 = missing, if any is
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.types import cells, level_codes, level_text, type_name
from bigforest.encode.memory import EncodeJob
from bigforest.encode.values import (
    Absent,
    DictionaryWriter,
    KeyMaker,
    Keys,
    MissingRows,
    Scale,
    absent_cells,
    new_bins,
    presort,
    with_gaps,
    without,
)
from bigforest.errors import DataError, api
from bigforest.kernels.presort.ranking import cut_runs, look_up_ranks, rank_cells
from bigforest.storage.array_file import map_file
from bigforest.storage.atomic import write_whole
from bigforest.storage.paths import local_workdir
from bigforest.store.writer import PartWriter

# Rows of a run, which fit the second-level cache; a rank in a run, or 0 for a missing value, has 16 bits.
_RUN_ROWS = 1 << 16
_RUN_RANK = np.dtype("<u2")
# _RANK: a rank in the column, or a number of rows. _PLACE: a place in a file of keys.
_RANK = np.dtype("<u4")
_PLACE = np.dtype("<u8")
# Keys of a range of merging, which fit the third-level cache. A range has more keys if a column would have more ranges
# than _MOST_RANGES: every range reads a part of every run.
_RANGE_KEYS = 1 << 20
_MOST_RANGES = 1 << 8
# Merging with bins takes this many times the memory, because it needs the number of rows of each key.
_COUNTED = 4


def encode_in_memory(job: EncodeJob, names: Sequence[str], part: PartWriter) -> list[str]:
    """Read some features together, and encode each in memory.

    If some features are unusable, nothing is written, and an error text for each of them is returned.
    """
    makers = {name: KeyMaker(name, job.source.schema[name]) for name in names}
    keys = {name: np.empty(job.plan.rows, maker.key_type) for name, maker in makers.items()}
    gaps = {name: MissingRows() for name in names}
    for frame in job.slices(names):
        for name, maker in makers.items():
            series = cells(frame, name)
            absent = absent_cells(series)
            gaps[name].add(absent, len(series))
            maker.make(without(series, absent), keys[name], maker.made)
    if wrong := [fault for maker in makers.values() if (fault := maker.wrong())]:
        return wrong
    for name, maker in makers.items():
        missing = gaps[name].any
        dictionary = _dictionary(job, maker, part, missing=missing)
        ranks = keys.pop(name)[: maker.made]
        if maker.made:
            dictionary.add(presort(ranks, dictionary.scale, dictionary.bins))
        dictionary.finish()
        codes = dictionary.codes(gaps.pop(name).cut(ranks))
        part.end_feature(name, str(maker.dtype), codes, job.columns[name], missing=missing)
    return []


def encode_in_pieces(job: EncodeJob, name: str, part: PartWriter) -> list[str]:
    """Encode a feature run by run, through files in the scratch folder. Return an error text if it is unusable."""
    maker = KeyMaker(name, job.source.schema[name])
    with (
        local_workdir(job.scratch) as scratch,
        tempfile.TemporaryDirectory(prefix="pieces-", dir=scratch) as folder,
    ):
        files = Path(folder)
        runs = _rank_runs(job, maker, files)
        if fault := maker.wrong():
            return [fault]
        missing = any(run.missing for run in runs)
        dictionary = _dictionary(job, maker, part, missing=missing)
        ranges = _merge_keys(files, runs, maker, dictionary, job.plan.rows_at_once(maker.size))
        dictionary.finish()
        codes = _codes_of_runs(files, runs, ranges, dictionary)
        part.end_feature(name, str(maker.dtype), codes, job.columns[name], missing=missing)
    return []


def _dictionary(job: EncodeJob, maker: KeyMaker, part: PartWriter, *, missing: bool) -> DictionaryWriter:
    bins = new_bins(maker.made, job.max_bins, missing=missing)
    return DictionaryWriter(maker.name, maker.scale(), bins, part, missing=missing)


class _Run(NamedTuple):
    """Consecutive rows of a column that are ranked by themselves.

    rows        number of rows.
    begin, end  the keys of the run are keys[begin:end] in the file `keys`.
    missing     True if some rows have no value. Their rank is then 0, and the ranks of values begin with 1.
    """

    rows: int
    begin: int
    end: int
    missing: bool


def _rank_runs(job: EncodeJob, maker: KeyMaker, files: Path) -> list[_Run]:
    runs: list[_Run] = []
    cut = (each.slice(first, _RUN_ROWS) for each in job.column(maker.name) for first in range(0, len(each), _RUN_ROWS))
    for series in cut:
        absent = absent_cells(series)
        present = without(series, absent)
        keys = np.empty(len(present), maker.key_type)
        maker.make(present, keys)
        if maker.wrong() is None:  # otherwise the remaining rows are read only for the error
            begin = runs[-1].end if runs else 0
            distinct = _rank_run(files, maker.scale(), keys, absent, counted=isinstance(job.max_bins, int))
            runs.append(_Run(len(series), begin, begin + distinct, absent is not None))
    return runs


def _rank_run(files: Path, scale: Scale, keys: Keys, absent: Absent | None, *, counted: bool) -> int:
    """Append the ranks and distinct keys of a run to the files, and return the number of distinct keys.

    keys     keys of the rows that have a value; overwritten.
    absent   mask of the rows without a value, if any.
    counted  True to write also the number of rows of each key.
    """
    offsets = presort(keys, scale, new_bins(len(keys), "exact")) if len(keys) else np.empty(0, np.uint64)
    _append(files / "keys", (offsets << np.uint64(scale.shift)) + np.uint64(scale.low), keys.dtype)
    if counted:
        _append(files / "counts", np.bincount(keys.astype(np.int64)), _RANK)
    _append(files / "ranks", keys if absent is None else with_gaps(keys, absent), _RUN_RANK)
    return len(offsets)


def _merge_keys(
    files: Path, runs: Sequence[_Run], maker: KeyMaker, dictionary: DictionaryWriter, rows_at_once: int
) -> int:
    """Add the keys of all runs to the dictionary, and write their ranks in the column to the file `merged`.

    rows_at_once  number of keys that can be presorted at a time

    Return the number of ranges. The file `parts` says where the part of each run begins in each range of `merged`, and
    where the range ends, uint64 [ranges, runs + 1].
    """
    scale, bins = dictionary.scale, dictionary.bins
    binned = bool(len(bins.last))
    size = runs[-1].end
    every_key = _map_file(files / "keys", maker.key_type, size)
    every_count = _map_file(files / "counts", _RANK, size if binned else 0)
    max_keys = min(rows_at_once // (_COUNTED if binned else 1), max(_RANGE_KEYS, size // _MOST_RANGES))
    ranges = rows = written = 0
    for begin, end in _key_ranges(every_key, runs, max_keys):
        spans = list(zip(begin.tolist(), end.tolist(), strict=True))
        keys = np.concatenate([every_key[first:stop] for first, stop in spans])
        low = int(keys.min())
        local = Scale(low, scale.shift, ((int(keys.max()) - low) >> scale.shift).bit_length(), 0, False, 0)
        offsets = presort(keys, local, new_bins(len(keys), "exact"))  # keys are ranks from now on
        before = dictionary.rank_count
        if binned:
            in_runs = np.concatenate([every_count[first:stop] for first, stop in spans])
            counts = np.bincount(keys.astype(np.int64), in_runs).astype(np.uint64)  # floats are exact up to 2**53
            added = int(counts.sum())
            rank_cells(counts, bins, np.array([rows, before], np.uint64), np.empty(len(offsets), np.uint64))
            rows += added
        offsets += np.uint64((low - scale.low) >> scale.shift)
        dictionary.add(offsets)
        keys += keys.dtype.type(before)
        _append(files / "merged", keys, _RANK)
        _append(files / "parts", np.cumsum(np.append(np.uint64(written), end - begin)), _PLACE)
        written += len(keys)
        ranges += 1
    return ranges


def _key_ranges(
    keys: Keys, runs: Sequence[_Run], max_keys: int
) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
    """Cut the keys into ranges, ascending; yield for each range the begin and end of its keys in every run.

    A range has at most `max_keys` keys. It has more only if it has at most one key of each run.
    """
    waiting = [(np.array([run.begin for run in runs], np.uint64), np.array([run.end for run in runs], np.uint64))]
    while waiting:
        begin, end = waiting.pop()
        sizes = end - begin
        widest = int(sizes.argmax())
        if sizes.sum() > max_keys and sizes[widest] > 1:
            middle = np.empty_like(begin)
            cut_runs(keys, begin, end, np.uint64(keys[(begin[widest] + end[widest]) // np.uint64(2)]), middle)
            waiting += [(middle, end), (begin, middle)]
        elif sizes.any():
            yield begin, end


def _codes_of_runs(
    files: Path, runs: Sequence[_Run], ranges: int, dictionary: DictionaryWriter
) -> Iterator[NDArray[np.uint32]]:
    ranks = _map_file(files / "ranks", _RUN_RANK, sum(run.rows for run in runs))
    merged = _map_file(files / "merged", _RANK, runs[-1].end)
    parts = _map_file(files / "parts", _PLACE, ranges * (len(runs) + 1)).reshape(ranges, len(runs) + 1)
    first = 0
    for number, run in enumerate(runs):
        spans = parts[:, number : number + 2].tolist()
        keys = np.concatenate([merged[:0], *(merged[begin:end] for begin, end in spans)])
        [of_key] = dictionary.codes(iter([(keys, None)]))
        of_rank = np.append(np.zeros(int(run.missing), _RANK), of_key.astype(_RANK, copy=False))
        codes = ranks[first : first + run.rows].astype(_RANK)
        look_up_ranks(codes, np.uint64(0), np.uint64(0), of_rank)
        yield codes
        first += run.rows


def _append(file: Path, array: NDArray[Any], dtype: np.dtype[Any]) -> None:
    with file.open("ab", buffering=0) as out:
        write_whole(out, array.astype(dtype, copy=False))


def _map_file(file: Path, dtype: np.dtype[Any], size: int) -> NDArray[Any]:
    """Map the first `size` entries of a file."""
    try:
        return map_file(file, dtype, (size,))
    except ValueError as error:
        raise OSError(f"{file}: the scratch file has been cut short; do not touch it during a run") from error


# Copies of levels in memory: known levels, new levels, and their union.
_COPIES = 3


def encode_category(job: EncodeJob, name: str, part: PartWriter) -> None:
    """Encode a category. Raises DataError when its levels do not fit in memory."""
    dtype = job.source.schema[name]
    slices: Callable[[], Iterator[pl.Series]] = partial(job.column, name)
    unread = slices()
    first_slice = next(unread)
    if len(first_slice) == job.plan.rows:  # a column of one slice is read once
        slices = partial(iter, [first_slice])
    levels, missing = _find_levels(job, name, dtype, chain([first_slice], unread))
    first = int(missing)
    numbers = np.arange(first + len(levels), dtype=np.float64)
    numbers[:first] = np.nan
    part.values(numbers, numbers if isinstance(job.max_bins, int) else None)
    part.levels(levels, first)
    codes = (np.nan_to_num(level_codes(series, levels, first), nan=0.0).astype(np.uint32) for series in slices())
    part.end_feature(name, type_name(dtype), codes, job.columns[name], kind="category", missing=missing)


def _find_levels(job: EncodeJob, name: str, dtype: pl.DataType, slices: Iterator[pl.Series]) -> tuple[pl.Series, bool]:
    """Return the levels of a category in their order, as text, and True if values are missing."""
    max_bytes = job.plan.task_bytes
    # The joined levels of earlier slices, then the levels of each slice since.
    levels = [pl.Series([], dtype=dtype if dtype.is_integer() else pl.String)]
    missing = False
    for series in slices:
        missing |= bool(series.null_count())
        distinct = series.unique().drop_nulls()
        levels.append(distinct if dtype.is_integer() else level_text(distinct))
        # Join levels only when their number has doubled, so that there are few joins, or when they do not fit.
        fit = max_bytes is None or _bytes_of(levels) <= max_bytes
        if not fit or sum(map(len, levels)) >= 2 * max(len(levels[0]), job.plan.limits.levels_waiting):
            levels = [pl.concat(levels).unique()]
        if max_bytes is not None and (taken := _bytes_of(levels)) > max_bytes:
            raise DataError(
                f"the levels of {name!r} do not fit in memory: {sum(map(len, levels))} and more take {taken} "
                f"bytes of {max_bytes}; raise {api('memory')}, exclude it, or join rare levels"
            )
    return pl.concat(levels).unique().sort().cast(pl.String), missing


def _bytes_of(levels: Sequence[pl.Series]) -> int:
    """Return the memory of levels while they are joined, bytes."""
    return _COPIES * int(sum(each.estimated_size() for each in levels))
