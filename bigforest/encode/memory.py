"""The memory of encoding: one model, by which the work is divided and by which a run is refused before it starts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from bigforest.common.limits import Limits
from bigforest.common.memory_estimate import BASE_BYTES, MemoryEstimate, Shape
from bigforest.encode.ranks import sort_bytes
from bigforest.encode.sortable_keys import key_size
from bigforest.execution.resources import Resources
from bigforest.schema.config import TrainConfig

# Arrow and Polars reading, once per process and once per worker: buffers, pages, allocators. Measured, see the test.
READ_BYTES = 20_000_000
WORKER_BYTES = 12_000_000
# Slices, and the tables by which a column on disk is cut.
DISK_BYTES = 16_000_000
# The smallest bucket of a column on disk that is of use.
_LEAST_BUCKET = 1 << 18
# A column on disk is given so much before a second worker is: with smaller buckets reading them back gets slow.
_GOOD_DISK_BYTES = 100_000_000
_SLICE_COPIES = 3


@dataclass(frozen=True, slots=True)
class EncodePlan:
    """How the columns are encoded; it changes no byte of the store.

    groups      the features, in order, in groups that are read and encoded as one task.
    workers     tasks at once.
    room        bytes of a task besides what reading takes; None for no limit.
    limits      rows read at a time, and so on.
    rows        rows of the source.
    bytes       bytes of a value of each feature.
    """

    groups: tuple[tuple[str, ...], ...]
    workers: int
    room: int | None
    limits: Limits
    rows: int
    bytes: Mapping[str, int]

    def in_memory(self, names: Sequence[str]) -> bool:
        """Whether these features are presorted in memory."""
        need = group_code_bytes(self.rows, [self.bytes[name] for name in names], self.limits)
        return _fits(self.rows, need, self.room, self.limits)

    def rows_at_once(self, key_size: int) -> int:
        """Rows of a column on disk that can be presorted at once."""
        most = self.limits.presort_rows
        return (
            most if self.room is None else max(1, min((self.room - DISK_BYTES - sort_bytes(0)) // (key_size + 9), most))
        )

    @property
    def memory(self) -> int:
        """Most bytes of anonymous memory of the whole process."""
        most = 0
        for group in self.groups:
            need = group_code_bytes(self.rows, [self.bytes[name] for name in group], self.limits)
            most = max(most, need if self.room is None else min(need, self.room))
        return BASE_BYTES + READ_BYTES + min(self.workers, len(self.groups)) * (WORKER_BYTES + most)

    @property
    def scratch(self) -> int:
        """Most bytes on disk beside the store: the parts not yet appended are not counted, which become the store."""
        outside = [key_size(self.bytes[g[0]]) for g in self.groups if not self.in_memory(g)]
        return sum(sorted(outside)[-self.workers :]) * self.rows

    @property
    def passes(self) -> int:
        """Times the table is read from end to end, the target's two aside: a column on disk is read for its limits, its
        histogram, its buckets and its rows, and once more where many values are close together."""
        return 1 if all(self.in_memory(group) for group in self.groups) else 5


def group_code_bytes(rows: int, sizes: Sequence[int], limits: Limits) -> int:
    """Bytes it takes to encode features with values of `sizes` bytes in memory: keys, items of one, and a slice."""
    return _bytes(rows, sum(map(key_size, sizes)), max(sizes), limits)


def _bytes(rows: int, keys: int, widest: int, limits: Limits) -> int:
    """`group_bytes` of features whose keys have `keys` bytes together, and the widest of whose values has `widest`."""
    # Ranks of values of 8 and 16 bits come from a table of all of them.
    gaps = keys // 4 * rows // 8  # a bit per row
    return keys * (rows + _SLICE_COPIES * min(rows, limits.slice_rows)) + sort_bytes(rows if widest > 2 else 0) + gaps


def plan_encode(
    rows: int, value_bytes: Mapping[str, int], resources: Resources, alone: Collection[str] = ()
) -> EncodePlan:
    """Divide the work; features that are `alone` are tasks of their own.

    Fewer workers are taken before a column goes to disk, and it goes there before the run is refused: ConfigError with
    the smallest budget that would do.
    """
    limits = resources.limits
    widest = group_code_bytes(rows, [max(value_bytes.values())], limits)
    if resources.memory is None:
        workers, room = resources.workers, None
    else:
        free = resources.memory - BASE_BYTES - READ_BYTES
        workers = min(resources.workers, free // (WORKER_BYTES + widest))
        if workers < 1 or rows > limits.rows_in_memory:
            workers = max(1, min(resources.workers, free // (WORKER_BYTES + _GOOD_DISK_BYTES)))
        room = free // workers - WORKER_BYTES
        least = min(widest, _least_room())
        if room < least:
            raise MemoryEstimate("encode", resources.memory, _smallest(widest)).refusal(resources.memory)
    groups = _groups(rows, value_bytes, room, alone, limits)
    return EncodePlan(groups, int(workers), room, limits, rows, dict(value_bytes))


def encode_estimate(shape: Shape, config: TrainConfig, resources: Resources) -> MemoryEstimate:
    """What encoding needs. Where the shape does not say how long values are, they are taken to have 8 bytes, the most.

    Never raises: where the budget is too small, `memory` is what the smallest one would take.
    """
    sizes = {str(i): size for i, size in enumerate(shape.sizes or [8] * shape.features)}
    smallest = _smallest(group_code_bytes(shape.rows, [max(sizes.values())], resources.limits))
    budget = None if resources.memory is None else max(resources.memory, smallest)
    plan = plan_encode(shape.rows, sizes, replace(resources, memory=budget, cluster=None))
    return MemoryEstimate("encode", plan.memory, smallest, plan.scratch, plan.passes)


def _smallest(widest: int) -> int:
    return BASE_BYTES + READ_BYTES + WORKER_BYTES + min(widest, _least_room())


def _least_room() -> int:
    return DISK_BYTES + sort_bytes(_LEAST_BUCKET) + 8 * _LEAST_BUCKET


def _fits(rows: int, need: int, room: int | None, limits: Limits) -> bool:
    return rows <= limits.rows_in_memory and (room is None or need <= room)


def _groups(
    rows: int, value_bytes: Mapping[str, int], room: int | None, alone: Collection[str], limits: Limits
) -> tuple[tuple[str, ...], ...]:
    most = max(1, limits.cells_per_read // rows)
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
