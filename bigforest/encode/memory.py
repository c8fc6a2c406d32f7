"""The memory of encoding, the division of the work within a budget, and the job that all tasks share.

The less memory there is, the more of these measures are taken, in this order:

1. Columns that take more than _GOOD_TASK_BYTES are encoded in pieces (features.py).
2. Fewer workers are used.
3. A single worker encodes smaller columns in pieces, too, if they do not fit in memory.

A budget that is too small is refused before the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from bigforest.columns.types import cells
from bigforest.encode.values import BUCKET_ROWS, CELL_BITS, key_size
from bigforest.execution.resources import Resources
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import BASE_BYTES, MemoryEstimate, Shape
from bigforest.planning.sizes import Limits
from bigforest.source.source import Source
from bigforest.storage.array_file import map_file
from bigforest.storage.paths import local_path
from bigforest.store.format import ROW_NUMBER_TYPE

# Memory of reading with Arrow and Polars (buffers, pages, allocators): of the process, and further memory of each
# worker. Measured.
READ_BYTES = 20_000_000
WORKER_BYTES = 12_000_000
# Encoding a column in pieces (features.py), in addition to its keys: slices, and merging.
PIECE_BYTES = 16_000_000
# Fewest rows of a piece.
_MIN_PIECE_ROWS = 1 << 18
# A further worker is added only if each has this many bytes for a task, or enough for the widest feature.
_GOOD_TASK_BYTES = 100_000_000
# Scratch bytes of a row of a column in pieces, in addition to its key: the files `ranks`, `merged` and `parts` of
# features.py, and with bins the counts of keys.
_RUN_BYTES = 7
_COUNT_BYTES = 4
# Copies of the keys of a slice while it is read.
_SLICE_COPIES = 3


@dataclass(frozen=True, slots=True)
class EncodePlan:
    """Division of the features into tasks. The bytes of the store do not depend on it.

    groups      the features in order; a task reads and encodes one group.
    workers     tasks that run at the same time.
    task_bytes  memory of a task in addition to reading; None for no limit.
    limits      rows read at a time, and similar sizes.
    rows        rows of the store; rows of the source until the rows of the store are known.
    bytes       bytes of a value of each feature.
    binned      True if max_bins is a number.
    """

    groups: tuple[tuple[str, ...], ...]
    workers: int
    task_bytes: int | None
    limits: Limits
    rows: int
    bytes: Mapping[str, int]
    binned: bool

    def in_memory(self, names: Sequence[str]) -> bool:
        """Return True if these features can be presorted together in memory."""
        need = group_code_bytes(self.rows, [self.bytes[name] for name in names], self.limits)
        return _fits(self.rows, need, self.task_bytes, self.limits)

    def rows_at_once(self, key_size: int) -> int:
        """Return the number of rows that can be presorted at a time, of a column in pieces."""
        max_rows = self.limits.presort_rows
        if self.task_bytes is None:
            return max_rows
        return max(1, min((self.task_bytes - PIECE_BYTES - sort_bytes(0)) // (key_size + 8), max_rows))

    @property
    def memory(self) -> int:
        """Most bytes of anonymous memory of the whole process."""
        needs = [
            group_code_bytes(self.rows, [self.bytes[name] for name in group], self.limits) for group in self.groups
        ]
        task = max(needs) if self.task_bytes is None else min(max(needs), self.task_bytes)
        return BASE_BYTES + READ_BYTES + min(self.workers, len(self.groups)) * (WORKER_BYTES + task)

    @property
    def scratch(self) -> int:
        """Most bytes of scratch, without parts of the store."""
        pieces = [name for group in self.groups if not self.in_memory(group) for name in group]
        more = _RUN_BYTES + _COUNT_BYTES * self.binned
        bytes_ = sorted(key_size(self.bytes[name]) + more for name in pieces)
        return sum(bytes_[-self.workers :]) * self.rows


def group_code_bytes(rows: int, sizes: Sequence[int], limits: Limits) -> int:
    """Return the bytes of encoding features together in memory.

    sizes  bytes of a value of each feature.

    All keys of all features are in memory, and a few copies of the keys of a slice. Features are sorted one by one.
    """
    return _task_bytes(rows, sum(map(key_size, sizes)), max(sizes), limits)


def _task_bytes(rows: int, keys: int, widest: int, limits: Limits) -> int:
    """Return the result of `group_code_bytes`, from the total of the keys and the widest value.

    keys    bytes of the keys of all features in a row.
    widest  bytes of the widest value.
    """
    # Values of 8 and 16 bits are not sorted: their ranks come from a table of all possible values.
    gaps = keys // 4 * rows // 8  # a bit for each cell; keys // 4 is the number of features or more
    return keys * (rows + _SLICE_COPIES * min(rows, limits.slice_rows)) + sort_bytes(rows if widest > 2 else 0) + gaps


def sort_bytes(rows: int) -> int:
    """Return the bytes of `presort` (values.py) for this many rows, in addition to the keys."""
    return 8 * rows + 8 * min(rows, BUCKET_ROWS) + (36 << CELL_BITS) + (1 << 15)


def plan_encode(
    rows: int,
    value_bytes: Mapping[str, int],
    resources: Resources,
    categories: Collection[str] = (),
    *,
    binned: bool,
) -> EncodePlan:
    """Return the division of the features into tasks.

    value_bytes  bytes of a value of each feature.
    categories   the features that are categories. A task has only categories, or none.

    Raises ConfigError with the smallest sufficient budget.
    """
    limits = resources.limits
    widest = group_code_bytes(rows, [max(value_bytes.values())], limits)
    if resources.memory is None:
        workers, task_bytes = resources.workers, None
    else:
        free = resources.memory - BASE_BYTES - READ_BYTES
        workers = max(1, min(resources.workers, free // (WORKER_BYTES + min(widest, _GOOD_TASK_BYTES))))
        task_bytes = free // workers - WORKER_BYTES
        if task_bytes < min(widest, _min_task_bytes()):
            raise MemoryEstimate("encode", resources.memory, _smallest(widest)).refusal(resources.memory)
    groups = _groups(rows, value_bytes, task_bytes, categories, limits, workers)
    return EncodePlan(groups, workers, task_bytes, limits, rows, dict(value_bytes), binned)


def encode_estimate(shape: Shape, config: TrainConfig, resources: Resources) -> MemoryEstimate:
    """Return the memory and scratch of encoding. Values of unknown size count as 8 bytes, the maximum.

    If the budget is too small, the estimate is for the smallest sufficient budget.
    """
    sizes = {str(i): size for i, size in enumerate(shape.sizes or [8] * shape.features)}
    smallest = _smallest(group_code_bytes(shape.rows, [max(sizes.values())], resources.limits))
    budget = None if resources.memory is None else max(resources.memory, smallest)
    threads = replace(resources, memory=budget, cluster=None)
    plan = plan_encode(shape.rows, sizes, threads, binned=isinstance(config.max_bins, int))
    return MemoryEstimate("encode", plan.memory, smallest, plan.scratch, 1)


def _smallest(widest: int) -> int:
    """Return the smallest budget of the stage.

    widest  bytes of encoding the widest feature in memory.
    """
    return BASE_BYTES + READ_BYTES + WORKER_BYTES + min(widest, _min_task_bytes())


def _min_task_bytes() -> int:
    """Return the memory of encoding a feature in the smallest pieces."""
    return PIECE_BYTES + sort_bytes(_MIN_PIECE_ROWS) + 8 * _MIN_PIECE_ROWS


def _fits(rows: int, need: int, task_bytes: int | None, limits: Limits) -> bool:
    """Return True if features can be encoded in one piece, which takes `need` bytes."""
    return rows <= limits.presort_rows and (task_bytes is None or need <= task_bytes)


def _groups(
    rows: int,
    value_bytes: Mapping[str, int],
    task_bytes: int | None,
    categories: Collection[str],
    limits: Limits,
    workers: int,
) -> tuple[tuple[str, ...], ...]:
    max_group = max(1, min(limits.cells_per_read // rows, len(value_bytes) // workers))
    groups: list[list[str]] = []
    keys = widest = 0
    for name, size in value_bytes.items():
        keys, widest = keys + key_size(size), max(widest, size)
        same_kind = groups and (name in categories) == (groups[-1][-1] in categories)
        need = _task_bytes(rows, keys, widest, limits)
        if same_kind and len(groups[-1]) < max_group and _fits(rows, need, task_bytes, limits):
            groups[-1].append(name)
        else:
            groups.append([name])
            keys, widest = key_size(size), size
    return tuple(map(tuple, groups))


@dataclass(frozen=True, slots=True)
class EncodeJob:
    """Inputs shared by all tasks that encode features.

    rows_file  file of the rows of the source to encode, ascending, ROW_NUMBER_TYPE; None for all rows.
    max_bins   "exact", or the maximal number of codes of a numeric feature.
    plan       division of the work, with the rows of the store and the limits of memory.
    parts      folder for the parts of the store that tasks write.
    scratch    folder for columns that do not fit in memory.
    columns    column of the table that holds each feature.
    kinds      "numeric" or "category" for each feature.
    """

    source: Source
    rows_file: Path | None
    max_bins: str | int
    plan: EncodePlan
    parts: Path
    scratch: Path
    columns: Mapping[str, str]
    kinds: Mapping[str, str]

    def column(self, name: str) -> Iterator[pl.Series]:
        """Yield the cells of a column in the rows to encode, in slices that are not empty."""
        return (cells(frame, name) for frame in self.slices([name]))

    def slices(self, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield some columns of the rows to encode, in frames that are not empty."""
        rows = self.plan.limits.slice_rows
        if self.rows_file is None:
            yield from self.source.batches(names, rows)
            return
        kept = map_file(local_path(self.rows_file), ROW_NUMBER_TYPE)
        at, begin = int(kept[0]), 0
        for frame in self.source.batches(names, rows, at, int(kept[-1]) + 1):
            # Search only among the next len(frame) kept rows: a frame cannot contain more.
            end = begin + int(np.searchsorted(kept[begin : begin + len(frame)], np.uint64(at + len(frame))))
            if end - begin == len(frame):
                yield frame
            elif end > begin:
                yield frame[(kept[begin:end] - np.uint64(at)).astype(np.uint32)]
            at += len(frame)
            begin = end
