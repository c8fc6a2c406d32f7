"""A cluster in virtual time: tasks with measured costs on modelled workers, beside what real processes take here.

    python benchmarks/virtual_time.py [--rows 1000000] [--trees 8] [--workers 2 4 6 8] [--rounds 2] [--out benchmarks]

Real: a forest grows by passes on worker processes of one thread each. With the first two numbers of workers, what each
call costs is measured in processor time, and so how much of it every worker repeats; and what client, scheduler and
workers take besides. Virtual: the same calls with these costs on any number of workers, which share the processors of
this machine.

Then the task of projection.py, on 2 to 1,000 workers of 16 threads, alike, with one in twenty at a tenth of the speed,
and with workers that are lost. Writes virtual_time.md.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from types import SimpleNamespace
from typing import Any, NamedTuple

import polars as pl
from datasets import TARGET
from projection import CLASSES, CLUSTER, FEATURES, ROWS, TREES
from projection_model import MEASURED, Machines, project_training
from rates import by_passes
from runs import HERE, machine
from scaling import cluster, table
from tables import markdown

import bigforest
from bigforest.events import silent
from bigforest.execution import pace
from bigforest.execution.cluster import Cluster
from bigforest.execution.dask_cluster import ClusterExecutor
from bigforest.execution.resources import Resources, available_threads
from bigforest.execution.task_run import _OnTheirWay
from bigforest.grow.forest import ForestJob
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape
from bigforest.store.store import Store
from bigforest.training.run import grow_forest

WORKERS = (2, 10, 30, 100, 300, 1000)
# Of the modelled clusters with slow workers, or with lost ones.
SLOW_SHARE, SLOW_SPEED, LOST_SHARE = 0.05, 0.1, 0.05
# Seconds until a lost worker is missed, and how much subtrees differ (the deviation of the logarithm of their cost).
MISSED, SPREAD = 30.0, 0.5
# Forests before those whose time counts.
WARM = 2


class Call(NamedTuple):
    """A call of an executor.

    divided  whether its work is divided evenly among the workers.
    seconds  of the work, added up where it is divided, else of each task.
    moved    bytes that each worker sends after its share.
    last     seconds of finishing parts, each by one worker.
    each     seconds that every worker takes besides, however many there are.
    """

    divided: bool
    seconds: tuple[float, ...]
    moved: float = 0.0
    last: tuple[float, ...] = ()
    each: float = 0.0


@dataclass(frozen=True, slots=True)
class VirtualCluster:
    """Workers of some threads. cores: processors that they share, None for one for each thread.

    call, task  seconds of client and scheduler for each call, and for each task in it.
    besides     processor seconds of a worker for each task, besides the task itself; for shared processors.
    slow, lost  numbers of the workers that are slow, and of those that are lost on the way.
    """

    workers: int
    threads: int
    cores: int | None
    call: float
    task: float
    besides: float = 0.0
    link: float = CLUSTER.link
    slow: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()

    def seconds(self, calls: Sequence[Call]) -> float:
        """What the calls take, one after the other."""
        total, one = 0.0, self
        chances = random.Random(1)
        losses = {chances.randrange(len(calls)) for _ in self.lost}
        for number, call in enumerate(calls):
            took, late = one._call(call)
            if late:  # they get work last from now on
                one = replace(one, workers=one.workers - len(one.slow), slow=frozenset())
            if number in losses:  # what a worker was at is done again by another, when it is missed
                took += MISSED + one._share(call)
            total += took
        return total

    def _share(self, call: Call) -> float:
        """Seconds of what one worker does at a time."""
        shared = sum(call.seconds) / self.workers / self.threads if call.divided else mean(call.seconds)
        return shared + call.each

    def _call(self, call: Call) -> tuple[float, bool]:
        """Seconds of a call, and whether a slow worker was found out."""
        speeds = [SLOW_SPEED if number in self.slow else 1.0 for number in range(self.workers)]
        tasks = self.workers + min(len(call.last), self.workers) if call.divided else len(call.seconds)
        if self.cores is not None and self.cores < self.workers * self.threads:
            work = [sum(call.seconds) / self.workers] * self.workers if call.divided else list(call.seconds)
            took = _sharing(work, self.workers, self.cores) + _sharing(list(call.last), self.workers, self.cores)
            took += (call.each * self.workers + self.besides * tasks) / self.cores
            return took + self.call + self.task * tasks, False
        if call.divided:
            ends = [self._share(call) / speed for speed in speeds]
            finish = _queued(call.last, [1.0] * self.workers)
        else:
            ends = _queued_ends(call.seconds, speeds * self.threads)
            finish = 0.0
        limit = max(pace.LEAST_SECONDS, 3.0 * median(sorted(ends)[: -(-len(ends) // 2)]))
        again = self._share(call) if call.divided else max(call.seconds)
        late = max(ends) > limit + again
        took = (limit + again if late else max(ends)) + call.moved / self.link + finish
        served = self.task * tasks
        return (took + served if call.divided else max(took, served)) + self.call, late


def _sharing(work: list[float], workers: int, cores: int) -> float:
    """Seconds for tasks that workers take from a queue, where those that are busy share the processors."""
    queue, running, now = work[::-1], [], 0.0
    while queue or running:
        while queue and len(running) < workers:
            running.append(queue.pop())
        step = min(running)
        now += step * max(1.0, len(running) / cores)
        running = [left - step for left in running if left > step + 1e-12]
    return now


def _queued(work: Sequence[float], speeds: Sequence[float]) -> float:
    return max(_queued_ends(work, speeds), default=0.0)


def _queued_ends(work: Sequence[float], speeds: Sequence[float]) -> list[float]:
    """When each seat, of these speeds, has ended the last task that it took from a queue."""
    seats = [(0.0, number) for number in range(len(speeds))]
    for seconds in work:
        free, number = heapq.heappop(seats)
        heapq.heappush(seats, (free + seconds / speeds[number], number))
    return [end for end, _ in seats if end]


@contextmanager
def traced() -> Iterator[list[Call]]:
    """The calls that are made meanwhile, with the seconds that tasks report."""
    calls: list[Call] = []
    taken: list[float] = []
    take, ways = _OnTheirWay.take, {name: getattr(ClusterExecutor, name) for name in WAYS}

    def noting(tasks: Any, ended: Any) -> Any:
        found = take(tasks, ended)
        taken.extend(spent.seconds for _, done in found for spent in done.ledger.values())
        return found

    def way(name: str) -> Any:
        def call(executor: Any, job: Any, *more: Any) -> Any:
            del taken[:]
            found = ways[name](executor, job, *more)
            if name == "_in_order":  # until all have been taken, no other call is made
                found = iter(list(found))
            shares = executor.size if WAYS[name] else len(taken)
            calls.append(Call(WAYS[name], tuple(taken[:shares]), last=tuple(taken[shares:])))
            return found

        return call

    _OnTheirWay.take = noting  # type: ignore[method-assign]
    for name in WAYS:
        setattr(ClusterExecutor, name, way(name))
    try:
        yield calls
    finally:
        _OnTheirWay.take = take  # type: ignore[method-assign]
        for name, kept in ways.items():
            setattr(ClusterExecutor, name, kept)


# Which ways of making calls divide the work among the workers; what is merged is so by parts.
WAYS = {"_each": False, "_in_order": False, "_parts": True}


def count_processor_time() -> None:
    """In a worker: tasks report processor time from now on."""
    from bigforest.execution import worker

    worker.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[attr-defined]


def nothing(*_: Any) -> None:
    """A task that does nothing."""


def overheads(executor: ClusterExecutor) -> tuple[float, float]:
    """Seconds of a call that does nothing, and of each further task in it."""
    found = []
    for tasks in (1, 101):
        begin = time.perf_counter()
        for _ in executor.map(nothing, [(number,) for number in range(tasks)]):
            pass
        found.append(time.perf_counter() - begin)
    return found[0], (found[1] - found[0]) / 100


def repeated(one: Call, two: Call, more: int) -> Call:
    """A call, of which `two` was measured with `more` workers besides: what each of these adds is repeated by all."""
    each = max(0.0, (sum(two.seconds) - sum(one.seconds)) / more) if one.divided else 0.0
    share = sum(one.seconds) / len(one.seconds) - each
    return one._replace(each=each, seconds=(max(0.0, share),) * len(one.seconds)) if one.divided else one


def real(options: argparse.Namespace) -> pl.DataFrame:
    """Seconds of growing on real workers, the median of the rounds, and what virtual ones take."""
    cores, rows = available_threads(), []
    with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as scratch:
        home = Path(scratch)
        table(options.rows).write_parquet(home / "table.parquet")
        store = Store.open(bigforest.encode_store(home / "table.parquet", home / "s", target=TARGET, threads=1).path)
        config = TrainConfig(trees=options.trees)
        traces: list[list[Call]] = []
        costs: list[tuple[float, ...]] = []
        for workers in options.workers:
            with ExitStack() as stack:
                client = stack.enter_context(cluster(workers))
                resources = Resources(threads=1, scratch=home, cluster=Cluster(client))
                seconds = []
                for number in range(WARM + options.rounds):
                    begin = time.perf_counter()
                    out = home / f"{workers}-{number}"
                    grow_forest(ForestJob(store, config, out, resources, silent), way=by_passes(store, config))
                    seconds.append(time.perf_counter() - begin)
                if len(traces) < 2:
                    client.run(count_processor_time)
                    before = client.run(time.process_time)
                    with traced() as trace:
                        out = home / f"{workers}-traced"
                        way = by_passes(store, config)
                        grow_forest(ForestJob(store, config, out, resources, silent), way=way)
                    spent = sum(client.run(time.process_time).values()) - sum(before.values())
                    tasks = [taken for call in trace for taken in (*call.seconds, *call.last)]
                    traces.append(trace)
                    besides = max(0.0, spent - sum(tasks)) / len(tasks)
                    costs.append((*overheads(ClusterExecutor(Cluster(client), 1)), besides))
            rows.append({"workers": workers, "real": median(seconds[WARM:])})
            print(rows[-1], file=sys.stderr)
    more = options.workers[1] - options.workers[0]
    calls = [repeated(*both, more) for both in zip(*traces, strict=True)]
    virtual = [VirtualCluster(row["workers"], 1, cores, *min(costs)).seconds(calls) for row in rows]
    return (
        pl.DataFrame(rows)
        .with_columns(virtual=pl.Series(virtual))
        .with_columns(ratio=pl.col("virtual") / pl.col("real"))
    )


def planned(workers: int) -> tuple[list[Call], float]:
    """The calls of the task of projection.py on some workers, and the seconds that moving rows takes."""
    shape = Shape(ROWS, (4,) * FEATURES, ROWS * FEATURES, CLASSES, (4,) * FEATURES)
    machines = Machines(workers, CLUSTER.threads, CLUSTER.memory, CLUSTER.link, CLUSTER.disk)
    found = project_training(shape, TrainConfig(trees=TREES), machines, MEASURED)
    stages = {stage.stage: stage for stage in found.stages}
    passes, groups = found.passes, -(-TREES // found.group)
    chances = random.Random(2)
    encode, oob, below = stages["encode"], stages["oob"], stages["subtrees"]
    calls = [Call(False, (encode.work / FEATURES,) * FEATURES)]
    scored = tuple([stages["scoring"].work / passes / found.group] * found.group)
    sent = stages["passes"].network / passes
    several = max(1, round(below.tasks / groups))
    for _ in range(groups):
        one = Call(True, (stages["passes"].work / passes,), sent, scored)
        calls += [one] * (passes // groups)
        calls.append(Call(True, (stages["rows of small nodes"].work / groups,)))
        sizes = [chances.lognormvariate(0.0, SPREAD) for _ in range(several)]
        whole = below.work / groups / CLUSTER.threads / sum(sizes)
        calls.append(Call(False, tuple(sorted((whole * size * CLUSTER.threads for size in sizes), reverse=True))))
    calls.append(Call(True, (oob.work,)))
    return calls, sum(stage.moving for stage in found.stages if stage.stage != "passes")


def imagined() -> pl.DataFrame:
    """Hours of the task of projection.py on clusters of several sizes."""
    rows = []
    for workers in WORKERS:
        calls, moving = planned(workers)
        alike = VirtualCluster(workers, CLUSTER.threads, None, 0.02, MEASURED.task)
        some = max(1, round(SLOW_SHARE * workers))
        lost = max(1, round(LOST_SHARE * workers))
        several = {
            "alike": alike,
            "slow": replace(alike, slow=frozenset(range(some))),
            "lost": replace(alike, lost=frozenset(range(lost))),
        }
        rows.append(
            {"workers": workers, **{name: (one.seconds(calls) + moving) / 3600 for name, one in several.items()}}
        )
    return pl.DataFrame(rows).with_columns(
        speed=pl.col("alike").first() * pl.col("workers").first() / pl.col("alike") / pl.col("workers")
    )


TEXT = """# A cluster in virtual time

Written by `benchmarks/virtual_time.py`. {trees} trees grow by passes on {rows:,} x 28, on worker processes of one
thread each, which share the {cores} processors of this machine: {machine}.
Virtual workers do the same calls, at their cost on {first} real ones. The order of the runs is that of the
table, with {warm} forests before the timed ones.

{real}

The largest difference is {worst:.0f} %.

## From 2 to 1,000 workers

The task and the cluster of [the projection](projection.md), in hours: workers that are alike; {slow:.0f} % of them
(one at least) at a tenth of the speed, whose tasks are given to others; and {lost:.0f} % (one at least) lost during the
run, each noticed after {missed:.0f} s. Efficiency is relative to the first row.

{imagined}
"""


def main() -> None:
    """Compare both and write the page."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--trees", type=int, default=8)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 6, 8])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    there = imagined()
    here = real(options)
    columns = {"workers": ("workers", "{}"), "real": ("real (s)", "{:.2f}"), "virtual": ("virtual (s)", "{:.2f}")}
    columns["ratio"] = ("virtual / real", "{:.2f}")
    hours = {"workers": ("workers", "{:,}"), "alike": ("alike (h)", "{:.2f}"), "slow": ("some slow (h)", "{:.2f}")}
    hours |= {"lost": ("some lost (h)", "{:.2f}"), "speed": ("efficiency", "{:.2f}")}
    text = TEXT.format(
        trees=options.trees,
        rows=options.rows,
        cores=available_threads(),
        machine=machine(),
        first=" and ".join(map(str, options.workers[:2])),
        warm=WARM,
        real=markdown(here, columns),
        worst=100.0 * max(abs(ratio - 1.0) for ratio in here["ratio"].to_list()),
        slow=100 * SLOW_SHARE,
        lost=100 * LOST_SHARE,
        missed=MISSED,
        imagined=markdown(there, hours),
    )
    (options.out / "virtual_time.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
