"""Estimate of a training run on a cluster: time, bytes and tasks of each stage, from rates measured on one machine.

How it scales: passes, rows on disk and out-of-bag rows are proportional to rows x trees; subtrees and votes also to the
levels of a tree, of which doubling the rows adds one; histograms to nodes x looked at x buckets x counts. Histograms
are scored by as many workers as there are trees in a pass. What the client does by itself is not divided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from bigforest.common.errors import ConfigError, shown
from bigforest.common.memory_estimate import Shape
from bigforest.common.sizes import parse_link
from bigforest.encode.memory import RUN_BYTES, plan_encode
from bigforest.encode.sortable_keys import key_size
from bigforest.execution.cluster import Cluster
from bigforest.execution.dask_cluster import share_out
from bigforest.execution.resources import Resources
from bigforest.grow.families.registry import family_of
from bigforest.grow.memory import GrowPlan, choose_grow_plan, grow_estimate, part_size
from bigforest.grow.out_of_core.context import NodeStats
from bigforest.grow.out_of_core.node_search import histogram_buckets
from bigforest.schema.config import TrainConfig
from bigforest.store.format import block_count
from bigforest.store.joining import RANGE_BYTES

# Share of different rows among as many draws with replacement.
DISTINCT = 1.0 - math.exp(-1.0)
# Bytes of a link per second, and of a disk, unless said otherwise.
LINK = 1.25e9
DISK = 1e9
MAX_WORKERS = 100_000
# Processor time of encoding columns in pieces, beside that of encoding them whole: benchmarks/cluster.md.
_IN_PIECES = 1.5
# Bits of a count that is sent, for each that chance alone would take.
_CODING = 1.2


class Rates(NamedTuple):
    """Processor seconds of one thread, and the levels and rows they were measured at (mean depth of a row's leaf).

    encode: row x feature. route: row of a bag x pass. spill: row of a bag x feature. visit: row x feature looked at x
    level in subtrees. judge: row out of bag x tree x level. score: byte of histograms. report: row. Of the client:
    client, per row of the report; node, per node that a pass is asked about. task: of client and scheduler, per Dask
    task.
    """

    encode: float
    route: float
    spill: float
    visit: float
    judge: float
    score: float
    report: float
    client: float
    node: float
    task: float
    levels: float
    rows: int


# Measured by benchmarks/rates.py on an Intel Xeon. Others, and other tables, differ by a factor of two and
# more.
MEASURED = Rates(
    encode=35.3e-9,
    route=12.1e-9,
    spill=8.5e-9,
    visit=6.8e-9,
    judge=25.4e-9,
    score=33.1e-9,
    report=289.7e-9,
    client=57.1e-9,
    node=162e-6,
    task=3.8e-3,
    levels=20.3,
    rows=1_000_000,
)


class Machines(NamedTuple):
    """A cluster: workers, threads and bytes of memory of each (None for no limit), and bytes per second of its link and
    of its disk; the client has a link and a disk like them."""

    workers: int
    threads: int
    memory: int | None = None
    link: float = LINK
    disk: float = DISK


def machines_of(workers: int | None, link: str | None, resources: Resources) -> Machines | None:
    """The cluster that a plan is for, each worker with these threads and this memory; None without `workers`. Raises
    ConfigError."""
    if workers is None:
        if link is not None:
            raise ConfigError("link applies to a cluster; set workers, the number of them, too")
        return None
    if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= MAX_WORKERS:
        raise ConfigError(f"workers must be a whole number from 1 to {MAX_WORKERS}, not {shown(workers)}")
    speed = LINK if link is None else parse_link(link)
    return Machines(workers, resources.workers, resources.memory, speed)


class PlannedCluster(NamedTuple):
    """Workers that there would be, as plans ask for them."""

    workers: int
    each: int

    def threads(self) -> dict[str, int]:
        """See Cluster."""
        return {str(number): self.each for number in range(self.workers)}

    @property
    def trouble(self) -> dict[str, str]:
        """See Cluster: none is expected."""
        return {}


@dataclass(frozen=True, slots=True)
class ProjectedStage:
    """Seconds of the workers computing, and of all their threads together (work); seconds of the client alone, and of
    the workers moving bytes; these bytes over the network and to and from the disk of each worker; Dask tasks."""

    stage: str
    computing: float
    work: float
    client: float
    moving: float
    network: float
    disk: float
    tasks: float


@dataclass(frozen=True, slots=True)
class Projection:
    """What a training would take on a cluster.

    workers, threads  of the cluster; threads of each worker.
    link        bytes per second.
    stages      in their order.
    by_passes   whether large nodes are split by passes over the rows; group: trees that share them; passes: in all.
    subtree     rows of the nodes that are grown in memory; scratch: bytes of rows on disk at a time.
    histograms  bytes of the histograms of all trees, as each worker counts them.
    """

    workers: int
    threads: int
    link: float
    stages: tuple[ProjectedStage, ...]
    by_passes: bool
    group: int
    passes: int
    subtree: int
    scratch: int
    histograms: float

    @property
    def seconds(self) -> float:
        """Seconds of the whole run, if its stages did not overlap."""
        return sum(stage.computing + stage.client + stage.moving for stage in self.stages)

    @property
    def client_share(self) -> float:
        """Processor time of the client and the scheduler as a share of that of all workers."""
        return sum(stage.client for stage in self.stages) / sum(stage.work for stage in self.stages)


def project_training(shape: Shape, config: TrainConfig, machines: Machines, rates: Rates) -> Projection:
    """The projection of a training on a table of this shape. Raises ConfigError for too little memory."""
    planned = cast("Cluster", PlannedCluster(machines.workers, machines.threads))
    resources = Resources(threads=machines.threads, memory=machines.memory, cluster=planned)
    way = choose_grow_plan(shape, config, resources)
    need = grow_estimate(shape, config, resources)
    stages = [_encoding(shape, config, machines, rates)]
    histograms = 0.0
    if way.limits is None:
        stages.append(_whole_trees(shape, config, machines, rates))
    else:
        histograms = _histogram_bytes(shape, config, way)
        stages += _by_passes(shape, config, machines, rates, way, need.passes)
    groups = 0 if way.limits is None else -(-config.trees // way.group)
    stages.append(_out_of_bag(shape, config, machines, rates, groups))
    return Projection(
        machines.workers,
        machines.threads,
        machines.link,
        tuple(stage.on(machines, rates) for stage in stages),
        way.limits is not None,
        way.group,
        need.passes,
        0 if way.limits is None else way.limits.rows,
        need.scratch,
        histograms * config.trees,
    )


class _Stage(NamedTuple):
    """A stage before it is spread. work: seconds of all threads together, on `cores` of them; client: seconds, except
    for tasks; network, disk: bytes of all workers."""

    name: str
    work: float
    cores: float
    client: float
    network: float
    disk: float
    tasks: float

    def on(self, machines: Machines, rates: Rates) -> ProjectedStage:
        """The stage on a cluster."""
        network, disk = self.network / machines.workers, self.disk / machines.workers
        moving = max(network / machines.link, disk / machines.disk)
        client = self.client + rates.task * self.tasks
        return ProjectedStage(self.name, self.work / self.cores, self.work, client, moving, network, disk, self.tasks)


def _encoding(shape: Shape, config: TrainConfig, machines: Machines, rates: Rates) -> _Stage:
    """Tasks encode columns, or pieces of them; others copy them to their places in the store."""
    cells, codes = shape.rows * shape.features, shape.rows * shape.row_bytes
    cores, sizes = machines.workers * machines.threads, dict(enumerate(shape.sizes or [8] * shape.features))
    named = {str(number): size for number, size in sizes.items()}
    plan = plan_encode(shape.rows, named, Resources(), binned=isinstance(config.max_bins, int))
    split = plan.split(cores)
    calls = shape.features * split
    tasks = len(share_out(-(-codes // RANGE_BYTES), machines.workers, machines.threads))
    tasks += (3 if split > 1 else 1) * len(share_out(calls, machines.workers, machines.threads, even=split > 1))
    runs = shape.rows * sum(key_size(size) + RUN_BYTES for size in sizes.values()) if split > 1 else 0
    work, moved = rates.encode * cells * (_IN_PIECES if split > 1 else 1.0), 4 * codes + 2 * runs
    return _Stage("encode", work, min(cores, calls), 0.0, moved, moved, tasks)


def _whole_trees(shape: Shape, config: TrainConfig, machines: Machines, rates: Rates) -> _Stage:
    parts = -(-config.trees // part_size(shape.rows, config.trees))
    cores = min(machines.workers * machines.threads, parts)
    looks = family_of(config).looks(shape.features, config)
    visits = _bag(shape) * config.trees * _levels(shape, config, rates) * looks
    codes = shape.rows * shape.row_bytes * min(machines.workers, parts)
    return _Stage("grow", rates.visit * visits, cores, 0.0, codes, codes, parts)


def _by_passes(
    shape: Shape, config: TrainConfig, machines: Machines, rates: Rates, way: GrowPlan, passes: int
) -> list[_Stage]:
    """Passes, of which scoring is done by as many workers as trees share one; writing rows by node; subtrees."""
    cores, bags, upper = machines.workers * machines.threads, _bag(shape) * config.trees, _upper_levels(shape, way)
    codes, groups = shape.rows * shape.row_bytes, -(-config.trees // way.group)
    owners = min(way.group, machines.workers)
    histograms = _histogram_bytes(shape, config, way) * config.trees
    sent = machines.workers * config.trees * _sent_bytes(shape, config, machines, way)
    calls = min(way.group, config.trees) * 2 * (1 << upper)
    grown = groups * (len(share_out(calls, machines.workers, way.workers)) + _shares(config, machines, groups))
    spilled = bags * (shape.row_bytes + 4)
    below = max(1.0, _levels(shape, config, rates) - upper)
    visits = bags * family_of(config).looks(shape.features, config) * below
    route, there = rates.route * bags * passes / groups, codes * passes + 8 * bags * passes / groups
    score, nodes = rates.score * histograms, rates.node * 2 * config.trees * (1 << upper)
    asked = passes * (machines.workers + owners)
    spill, spread = rates.spill * bags * shape.features, 2 * groups * machines.workers
    return [
        _Stage("passes", route, cores, nodes, codes + sent, there, asked),
        _Stage("scoring", score, owners, 0.0, 0.0, 0.0, 0.0),
        _Stage("rows of small nodes", spill, cores, 0.0, 2 * spilled, 2 * spilled, spread),
        _Stage("subtrees", rates.visit * visits, cores, 0.0, 0.0, 0.0, grown),
    ]


def _out_of_bag(shape: Shape, config: TrainConfig, machines: Machines, rates: Rates, groups: int) -> _Stage:
    """Not there without bootstrap, but small then, too. Leaves are found while trees grow, by passes in `groups`."""
    cores, codes = machines.workers * machines.threads, shape.rows * shape.row_bytes
    answers = 8 * shape.rows * shape.classes
    judged = rates.judge * (shape.rows - _bag(shape)) * config.trees * _levels(shape, config, rates)
    written = rates.report * shape.rows
    tasks = 2 * min(machines.workers, block_count(shape.rows)) + (1 + groups) * machines.workers
    tasks += groups * _shares(config, machines, groups) + _shares(config, machines, 1)
    moved = codes + 2 * answers
    return _Stage("oob", judged + written, cores, rates.client * shape.rows, moved, moved, tasks)


def _shares(config: TrainConfig, machines: Machines, groups: int) -> int:
    """Tasks of a call for each tree of a group, where all take equally long."""
    return min(machines.workers, -(-config.trees // max(groups, 1)))


def _bag(shape: Shape) -> float:
    """Different rows of a bag."""
    return DISTINCT * shape.rows


def _levels(shape: Shape, config: TrainConfig, rates: Rates) -> float:
    """Levels that a row passes: doubling the rows adds one."""
    levels = max(1.0, rates.levels + math.log2(shape.rows / rates.rows))
    return levels if config.max_depth is None else min(levels, config.max_depth)


def _upper_levels(shape: Shape, way: GrowPlan) -> int:
    """Levels of a tree that are split by passes."""
    assert way.limits is not None
    return max(0, math.ceil(math.log2(shape.rows / way.limits.rows)))


def _histogram_bytes(shape: Shape, config: TrainConfig, way: GrowPlan) -> float:
    """Bytes of the histograms of one tree, over all levels that are split by passes."""
    stats = NodeStats.of(shape)
    return int(np.dtype(stats.cell).itemsize) * sum(counts for counts, _ in _histogram_counts(shape, config, way))


def _sent_bytes(shape: Shape, config: TrainConfig, machines: Machines, way: GrowPlan) -> float:
    """What a worker sends of the histograms of one tree: compressed counts, of which each takes about as many bits as
    chance does where they are spread by it."""
    if NodeStats.of(shape).regression:
        return _histogram_bytes(shape, config, way)
    counted = _histogram_counts(shape, config, way)
    means = [(counts, mean / machines.workers) for counts, mean in counted]
    bits = [max(1.0, math.log2(2.0 * math.pi * math.e * (mean + 1.0 / 12.0)) / 2.0) for _, mean in means]
    return _CODING / 8.0 * sum(counts * bits_each for (counts, _), bits_each in zip(means, bits, strict=True))


def _histogram_counts(shape: Shape, config: TrainConfig, way: GrowPlan) -> list[tuple[float, float]]:
    """For each level of a tree that is split by passes how many counts its histograms have (nodes x looked at x buckets
    x counts of a bucket), and their mean."""
    assert way.limits is not None
    parts, looks = NodeStats.of(shape).parts, family_of(config).looks(shape.features, config)
    counts = []
    for depth in range(_upper_levels(shape, way)):
        rows = shape.rows >> depth
        buckets = histogram_buckets(rows, parts, way.limits.cells)
        counts.append((float((1 << depth) * looks * buckets * parts), rows / buckets / parts))
    return counts
