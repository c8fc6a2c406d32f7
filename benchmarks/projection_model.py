"""Model of a training run on a cluster: time, bytes and tasks of each stage, from rates measured on one machine.

How it scales: passes, rows on disk and out-of-bag rows are proportional to rows x trees; subtrees and votes also to the
levels of a tree, of which doubling the rows adds one; histograms to nodes x looked at x buckets x counts. Histograms
are scored by as many workers as there are trees in a pass. What the client does by itself is not divided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from bigforest.execution.dask_cluster import _FAN_IN, Cluster, task_count
from bigforest.execution.resources import Resources
from bigforest.execution.worker import _FINISHING
from bigforest.grow.families.registry import family_of
from bigforest.grow.memory import GrowPlan, choose_grow_plan, grow_estimate, part_size
from bigforest.grow.out_of_core.context import CODES, NodeStats
from bigforest.grow.out_of_core.node_search import histogram_buckets
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape
from bigforest.store.format import block_count
from bigforest.store.writer import RANGE_BYTES

# Share of different rows among as many draws with replacement.
DISTINCT = 1.0 - math.exp(-1.0)
# Default bandwidth of a link and of a disk, bytes per second.
LINK = 1.25e9
DISK = 1e9
# Bits of a count that is sent, for each that chance alone would take.
_CODING = 1.2


class Rates(NamedTuple):
    """Processor seconds of one thread, and the levels and rows they were measured at (mean depth of a row's leaf).

    encode: row x feature. route: row of a bag x pass. spill: row of a bag x feature. visit: row x feature looked at x
    level in subtrees. vote: row out of bag x tree x level. score: byte of histograms. report: row. Of the client:
    client, per row of the report; node, per node that a pass is asked about. task: of client and scheduler, per Dask
    task.
    """

    encode: float
    route: float
    spill: float
    visit: float
    vote: float
    score: float
    report: float
    client: float
    node: float
    task: float
    levels: float
    rows: int


# Measured by benchmarks/rates.py on an AMD EPYC. Others, and other tables, differ by a factor of two and
# more.
MEASURED = Rates(
    encode=26.9e-9,
    route=15.6e-9,
    spill=5.8e-9,
    visit=5.3e-9,
    vote=11.1e-9,
    score=26.4e-9,
    report=305.4e-9,
    client=11.8e-9,
    node=197e-6,
    task=2.0e-3,
    levels=20.2,
    rows=2_000_000,
)


class Machines(NamedTuple):
    """A cluster: workers, threads and bytes of memory of each (None for no limit), and bytes per second of its link and
    of its disk; the client has a link and a disk like them."""

    workers: int
    threads: int
    memory: int | None = None
    link: float = LINK
    disk: float = DISK


class PlannedCluster(NamedTuple):
    """Stands in for `bigforest.execution.dask_cluster.Cluster` in plans: a number of workers that do not exist."""

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
    """Estimated needs of a training run on a cluster.

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
    way, need = choose_grow_plan(shape, config, resources), grow_estimate(shape, config, resources)
    model = _Model(shape, config, machines, rates, way)
    grown = [model.whole_trees()] if way.limits is None else model.by_passes(need.passes)
    return Projection(
        machines.workers,
        machines.threads,
        machines.link,
        (model.encoding(), *grown, model.out_of_bag()),
        way.limits is not None,
        way.group,
        need.passes,
        0 if way.limits is None else way.limits.rows,
        need.scratch,
        model.histogram_bytes * config.trees,
    )


class _Model:
    """A training on a cluster.

    cores, codes  threads of all workers; bytes of the codes
    bag, looks    different rows of a bag; how often a node reads each of its rows
    levels        that a row passes: doubling the rows adds one; upper: of these, how many are split by passes
    groups        of trees that share passes; 0 if whole trees grow
    """

    def __init__(self, shape: Shape, config: TrainConfig, machines: Machines, rates: Rates, way: GrowPlan) -> None:
        self.shape, self.config, self.machines, self.rates, self.way = shape, config, machines, rates, way
        self.cores = machines.workers * machines.threads
        self.codes = shape.rows * shape.row_bytes
        self.bag = DISTINCT * shape.rows
        self.expected_reads = family_of(config).expected_reads(shape.features, config)
        levels = max(1.0, rates.levels + math.log2(shape.rows / rates.rows))
        self.levels = levels if config.max_depth is None else min(levels, config.max_depth)
        self.upper = 0 if way.limits is None else max(0, math.ceil(math.log2(shape.rows / way.limits.rows)))
        self.groups = 0 if way.limits is None else -(-config.trees // way.group)

    def encoding(self) -> ProjectedStage:
        """Tasks encode columns; others copy them to their places in the store."""
        shape, workers = self.shape, self.machines.workers
        tasks = min(-(-self.codes // RANGE_BYTES), workers) + task_count(shape.features, workers, self.machines.threads)
        work = self.rates.encode * (shape.rows * shape.features)
        moved = 4 * self.codes
        return self._stage("encode", work, min(self.cores, shape.features), network=moved, disk=moved, tasks=tasks)

    def whole_trees(self) -> ProjectedStage:
        """A task grows the trees of a part."""
        parts = -(-self.config.trees // part_size(self.shape.rows, self.config.trees))
        visits = self.bag * self.config.trees * self.levels * self.expected_reads
        codes = self.codes * min(self.machines.workers, parts)
        cores = min(self.cores, parts)
        return self._stage("grow", self.rates.visit * visits, cores, network=codes, disk=codes, tasks=parts)

    def by_passes(self, passes: int) -> list[ProjectedStage]:
        """Passes; scoring, done by the workers that hold the last lists; writing rows by node; subtrees."""
        rates, trees, workers, group = self.rates, self.config.trees, self.machines.workers, self.way.group
        cores, bags, upper, groups = self.cores, self.bag * trees, self.upper, self.groups
        lists, merging = workers, 0
        while lists > _FAN_IN:
            lists = -(-lists // _FAN_IN)
            merging += lists
        finishing = min(group, workers)
        scoring = min(group, lists * max(1, self.machines.threads // _FINISHING))
        calls = min(group, trees) * 2 * (1 << upper)
        grown = groups * (task_count(calls, workers, self.machines.threads) + self.shares(groups))
        spilled = bags * (self.shape.row_bytes + 4)
        visits = bags * self.expected_reads * max(1.0, self.levels - upper)
        nodes = rates.node * 2 * trees * (1 << upper)
        # Each finishing task takes all lists; the busiest worker of a pass merges _FAN_IN lists and sends on.
        network = self.codes + workers * trees * self.sent_bytes * min(workers, 2 * _FAN_IN)
        disk = self.codes * passes + 8 * bags * passes / groups
        route, asked = rates.route * bags * passes / groups, passes * (workers + merging + finishing)
        spill = rates.spill * bags * self.shape.features
        spread, moved = 2 * groups * workers, 2 * spilled
        return [
            self._stage("passes", route, cores, client=nodes, network=network, disk=disk, tasks=asked),
            self._stage("scoring", rates.score * (self.histogram_bytes * trees), scoring),
            self._stage("rows of small nodes", spill, cores, network=moved, disk=moved, tasks=spread),
            self._stage("subtrees", rates.visit * visits, cores, tasks=grown),
        ]

    def out_of_bag(self) -> ProjectedStage:
        """Not there without bootstrap, but small then, too. Leaves are found while trees grow, by passes in groups."""
        shape, rates, workers = self.shape, self.rates, self.machines.workers
        voting = rates.vote * (shape.rows - self.bag) * self.config.trees * self.levels
        work, client = voting + rates.report * shape.rows, rates.client * shape.rows
        tasks = 2 * min(workers, block_count(shape.rows)) + (1 + self.groups) * workers
        tasks += self.groups * self.shares(self.groups) + self.shares(1)
        moved = self.codes + 2 * (8 * shape.rows * shape.classes)
        return self._stage("oob", work, self.cores, client=client, network=moved, disk=moved, tasks=tasks)

    def _stage(
        self,
        name: str,
        work: float,
        cores: float,
        *,
        client: float = 0.0,
        network: float = 0.0,
        disk: float = 0.0,
        tasks: float = 0.0,
    ) -> ProjectedStage:
        """work: seconds of all threads together, on `cores` of them; client: seconds, except for tasks; network, disk:
        bytes of all workers."""
        network, disk = network / self.machines.workers, disk / self.machines.workers
        moving = max(network / self.machines.link, disk / self.machines.disk)
        client += self.rates.task * tasks
        return ProjectedStage(name, work / cores, work, client, moving, network, disk, tasks)

    def shares(self, groups: int) -> int:
        """Tasks of a call for each tree of a group, where all take equally long."""
        return min(self.machines.workers, -(-self.config.trees // max(groups, 1)))

    @property
    def histograms(self) -> list[tuple[float, float]]:
        """For each level of a tree that is split by passes how many counts its histograms have (nodes x looked at x
        buckets x counts of a bucket), and their mean."""
        parts, counts = NodeStats.of(self.shape).slots, []
        for depth in range(self.upper):
            assert self.way.limits is not None
            rows = self.shape.rows >> depth
            buckets = histogram_buckets(rows, parts, self.way.limits.cells, CODES)
            counts.append((float((1 << depth) * self.expected_reads * buckets * parts), rows / buckets / parts))
        return counts

    @property
    def histogram_bytes(self) -> float:
        """Bytes of the histograms of one tree, over all levels that are split by passes."""
        cell = np.dtype(NodeStats.of(self.shape).cell_type).itemsize
        return int(cell) * sum((counts for counts, _ in self.histograms), 0.0)

    @property
    def sent_bytes(self) -> float:
        """What a worker sends of the histograms of one tree: compressed counts, of which each takes about as many bits
        as chance does where they are spread by it."""
        if NodeStats.of(self.shape).regression:
            return self.histogram_bytes
        means = [(counts, mean / self.machines.workers) for counts, mean in self.histograms]
        bits = [max(1.0, math.log2(2.0 * math.pi * math.e * (mean + 1.0 / 12.0)) / 2.0) for _, mean in means]
        return _CODING / 8.0 * sum(counts * bits_each for (counts, _), bits_each in zip(means, bits, strict=True))
