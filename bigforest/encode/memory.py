"""The memory of encoding: one model that divides the work, and refuses a run at the start if the budget is too
small.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from bigforest.encode.values import key_size
from bigforest.execution.resources import Resources
from bigforest.options.train_config import TrainConfig
from bigforest.planning.batch_sizes import Limits
from bigforest.planning.memory import BASE_BYTES, MemoryEstimate, Shape

# Arrow and Polars reading, once per process and once per worker: buffers, pages, allocators. Measured, see the test.
READ_BYTES = 20_000_000
WORKER_BYTES = 12_000_000
# Slices, and what merging takes besides keys, of a column in pieces (pieces.py).
PIECE_BYTES = 16_000_000
# Rows of a bucket of `presort` (features.py): its items and their buffer fit the second-level cache; bits of a cell.
BUCKET_ROWS = 1 << 15
CELL_BITS = 16
# The shortest run of such a column that is of use, and the bytes that a worker gets before there is another one.
_LEAST_RUN = 1 << 18
_GOOD_BYTES = 100_000_000
# Ranks of rows, ranks of keys and, with bins, their counts: bytes on disk for a row, besides those of its key.
RUN_BYTES = 8
_COUNT_BYTES = 4
_SLICE_COPIES = 3


@dataclass(frozen=True, slots=True)
class EncodePlan:
    """How the columns are encoded; it changes no byte of the store.

    groups      the features, in order, in groups that are read and encoded as one task.
    workers     tasks at once.
    room        bytes of a task besides what reading takes; None for no limit.
    limits      rows read at a time, and so on.
    rows        rows of the source; when it is known, of the store.
    bytes       bytes of a value of each feature.
    binned      whether there are max_bins: a bin depends on those before it, so merging a column cannot be divided.
    """

    groups: tuple[tuple[str, ...], ...]
    workers: int
    room: int | None
    limits: Limits
    rows: int
    bytes: Mapping[str, int]
    binned: bool

    def in_memory(self, names: Sequence[str]) -> bool:
        """Whether these features are presorted in memory, each by one task."""
        need = group_code_bytes(self.rows, [self.bytes[name] for name in names], self.limits)
        return _fits(self.rows, need, self.room, self.limits)

    def rows_at_once(self, key_size: int) -> int:
        """Rows of a column in pieces that can be presorted at once."""
        most = self.limits.presort_rows
        if self.room is None:
            return most
        return max(1, min((self.room - PIECE_BYTES - sort_bytes(0)) // (key_size + 9), most))

    def split(self, workers: int) -> int:
        """Tasks for each column: as many as there are workers for each, at least one."""
        return 1 if self.binned else max(1, min(workers // len(self.bytes), self.rows // self.limits.task_rows))

    @property
    def memory(self) -> int:
        """Most bytes of anonymous memory of the whole process."""
        most, split = 0, self.split(self.workers)
        tasks = len(self.groups) if split == 1 else len(self.bytes) * split
        for group in self.groups:
            need = group_code_bytes(-(-self.rows // split), [self.bytes[name] for name in group], self.limits)
            most = max(most, need if self.room is None else min(need, self.room))
        return BASE_BYTES + READ_BYTES + min(self.workers, tasks) * (WORKER_BYTES + most)

    @property
    def scratch(self) -> int:
        """Most bytes on disk beside the store: the parts not yet appended are not counted, which become the store."""
        pieces = [name for g in self.groups if self.split(self.workers) > 1 or not self.in_memory(g) for name in g]
        more = RUN_BYTES + _COUNT_BYTES * self.binned
        bytes_ = sorted(key_size(self.bytes[name]) + more for name in pieces)
        return sum(bytes_[-self.workers :]) * self.rows


def group_code_bytes(rows: int, sizes: Sequence[int], limits: Limits) -> int:
    """Bytes it takes to encode features with values of `sizes` bytes in memory: keys, items of one, and a slice."""
    return _bytes(rows, sum(map(key_size, sizes)), max(sizes), limits)


def _bytes(rows: int, keys: int, widest: int, limits: Limits) -> int:
    """`group_code_bytes` of features whose keys have `keys` bytes together, and whose widest value has `widest`."""
    # Ranks of values of 8 and 16 bits come from a table of all of them.
    gaps = keys // 4 * rows // 8  # a bit per row
    return keys * (rows + _SLICE_COPIES * min(rows, limits.slice_rows)) + sort_bytes(rows if widest > 2 else 0) + gaps


def sort_bytes(rows: int) -> int:
    """Most bytes `presort` (features.py) needs for this many rows, besides the keys."""
    return 8 * rows + 8 * min(rows, BUCKET_ROWS) + (36 << CELL_BITS) + (1 << 15)


def plan_encode(
    rows: int,
    value_bytes: Mapping[str, int],
    resources: Resources,
    alone: Collection[str] = (),
    *,
    binned: bool,
) -> EncodePlan:
    """Divide the work; features that are `alone` are tasks of their own.

    Columns are encoded in pieces before there are fewer workers, and these are fewer before the run is refused:
    ConfigError with the smallest budget that would do.
    """
    limits = resources.limits
    widest = group_code_bytes(rows, [max(value_bytes.values())], limits)
    if resources.memory is None:
        workers, room = resources.workers, None
    else:
        free = resources.memory - BASE_BYTES - READ_BYTES
        workers = max(1, min(resources.workers, free // (WORKER_BYTES + min(widest, _GOOD_BYTES))))
        room = free // workers - WORKER_BYTES
        least = min(widest, _least_room())
        if room < least:
            raise MemoryEstimate("encode", resources.memory, _smallest(widest)).refusal(resources.memory)
    groups = _groups(rows, value_bytes, room, alone, limits, int(workers))
    return EncodePlan(groups, int(workers), room, limits, rows, dict(value_bytes), binned)


def encode_estimate(shape: Shape, config: TrainConfig, resources: Resources) -> MemoryEstimate:
    """What encoding needs. Where the shape does not say how long values are, they are taken to have 8 bytes, the most.

    Never raises: where the budget is too small, `memory` is what the smallest one would take.
    """
    sizes = {str(i): size for i, size in enumerate(shape.sizes or [8] * shape.features)}
    smallest = _smallest(group_code_bytes(shape.rows, [max(sizes.values())], resources.limits))
    budget = None if resources.memory is None else max(resources.memory, smallest)
    threads = replace(resources, memory=budget, cluster=None)
    plan = plan_encode(shape.rows, sizes, threads, binned=isinstance(config.max_bins, int))
    return MemoryEstimate("encode", plan.memory, smallest, plan.scratch, 1)


def _smallest(widest: int) -> int:
    return BASE_BYTES + READ_BYTES + WORKER_BYTES + min(widest, _least_room())


def _least_room() -> int:
    return PIECE_BYTES + sort_bytes(_LEAST_RUN) + 8 * _LEAST_RUN


def _fits(rows: int, need: int, room: int | None, limits: Limits) -> bool:
    return rows <= limits.presort_rows and (room is None or need <= room)


def _groups(
    rows: int, value_bytes: Mapping[str, int], room: int | None, alone: Collection[str], limits: Limits, workers: int
) -> tuple[tuple[str, ...], ...]:
    most = max(1, min(limits.cells_per_read // rows, len(value_bytes) // workers))
    groups: list[list[str]] = []
    keys = widest = 0
    for name, size in value_bytes.items():
        keys, widest = keys + key_size(size), max(widest, size)
        near = groups and name not in alone and groups[-1][-1] not in alone
        if near and len(groups[-1]) < most and _fits(rows, _bytes(rows, keys, widest, limits), room, limits):
            groups[-1].append(name)
        else:
            groups.append([name])
            keys, widest = key_size(size), size
    return tuple(map(tuple, groups))
