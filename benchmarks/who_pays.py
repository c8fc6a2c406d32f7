"""What a forest grown by passes costs on a cluster, in processor time: the client with the scheduler, and the workers.

    python benchmarks/who_pays.py [--rows 2000000] [--trees 8] [--memory 560MB] [--workers 2 6] [--rounds 2]

All are processes of this machine with one thread each. Processor time is counted, so workers may be more than
processors; but these then wait for each other, and while they do, Dask goes on looking after itself. What it takes for
that is measured first, while nothing is done, and said beside. There is one cluster at a time, as its workers report to
this process. --quiet lets Dask look after itself less often, as the guide on clusters advises. A first forest of two
trees is grown in each cluster, so that modules are imported and kernels read from their cache, and garbage is collected
once, which takes 0.1 s after the imports; --cold counts that instead. --pin has all processes share one processor:
where two processors are one core, each is slower while the other is busy, and with more workers it is so more often.
--turns, as root on Linux, has processes take turns of a tenth of a second (SCHED_RR) instead of a few milliseconds:
where they are more than processors, each turn begins with reading again into the caches what others pushed out, which
with a processor for each worker would not be. All forests must be the same.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import polars as pl
from datasets import TARGET
from distributed import Client
from runs import HERE, machine
from scaling import cluster, table
from tables import markdown, save

import bigforest
from bigforest.events import WorkersUsed

COLUMNS = {
    "workers": ("workers", "{}"),
    "client": ("client and scheduler (CPU s)", "{:.2f}"),
    "sum": ("workers, sum (CPU s)", "{:.2f}"),
    "client_idle": ("of the client, Dask idle", "{:.2f}"),
    "idle": ("of the workers, Dask idle", "{:.2f}"),
    "tasks": ("tasks", "{:.0f}"),
    "handed": ("handed over (MB)", "{:.2f}"),
    "grow": ("client while growing (CPU s)", "{:.2f}"),
    "wall": ("all (s)", "{:.1f}"),
}
# Dask's settings of --quiet, and seconds between two reports of its object for clusters on one machine, which a cluster
# started by hand does without.
_QUIET_SYNC = 60.0
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "2s",
    "distributed.admin.tick.cycle": "60s",
    "distributed.admin.system-monitor.interval": "30s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.client.scheduler-info-interval": "60s",
    "distributed.client.heartbeat": "24h",
}
_IDLE_SECONDS = 10.0


@contextmanager
def spending(client: Client) -> Iterator[dict[str, float]]:
    """Processor seconds of this process and of all workers, and seconds, of the block; filled in at its end."""
    found: dict[str, float] = {}
    before = client.run(time.process_time)
    begin, mine = time.perf_counter(), time.process_time()
    yield found
    found["wall"], found["client"] = time.perf_counter() - begin, time.process_time() - mine
    after = client.run(time.process_time)
    found["sum"] = sum(after.values()) - sum(before.values())


class Meter:
    """A listener that takes the processor time of this process in each stage, and what the workers say."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self.tasks = self.bytes = 0

    def __call__(self, event: Any) -> None:
        kind = type(event).__name__
        if kind == "StageStarted":
            self.stages[event.stage] = -time.process_time()
        elif kind == "StageFinished":
            self.stages[event.stage] += time.process_time()
        elif isinstance(event, WorkersUsed):
            self.bytes = sum(one.bytes for one in event.workers)
            self.tasks = sum(one.tasks for one in event.workers)


def idle(client: Client) -> dict[str, float]:
    """Processor seconds per second of this process, and of all workers, while nothing is done."""
    with spending(client) as found:
        time.sleep(_IDLE_SECONDS)
    return {name: found[name] / found["wall"] for name in ("client", "sum")}


def grown(client: Client, data: Path, out: Path, trees: int, memory: str) -> tuple[dict[str, float], str]:
    """What a forest cost, and the checksum of its trees and out-of-bag rows."""
    meter = Meter()
    with spending(client) as found:
        bigforest.train(
            data, target=TARGET, out=out, trees=trees, mtry="sqrt", memory=memory, scheduler=client, listener=meter
        )
    files = [*sorted((out / "trees").iterdir()), out / "oob" / "rows.parquet"]
    checksum = hashlib.sha256(b"".join(part.read_bytes() for part in files)).hexdigest()
    return {**found, **meter.stages, "tasks": meter.tasks, "handed": meter.bytes / 1e6}, checksum


def run(options: argparse.Namespace) -> pl.DataFrame:
    """One row per forest. Progress goes to stderr."""
    found, forests = [], set()
    with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as scratch:
        home = Path(scratch)
        data = home / "table.parquet"
        table(options.rows).write_parquet(data, row_group_size=50_000)
        turns = [(round_, workers) for round_ in range(options.rounds) for workers in options.workers]
        for round_, workers in turns:
            with cluster(workers, sync=_QUIET_SYNC if options.quiet else 1.0) as client:
                if not options.cold:
                    grown(client, data, home / f"first-{round_}-{workers}", min(2, options.trees), options.memory)
                    gc.collect()
                waiting = idle(client)
                figures, forest = grown(client, data, home / f"{round_}-{workers}", options.trees, options.memory)
            forests.add(forest)
            figures["client_idle"] = waiting["client"] * figures["wall"]
            found.append({"workers": workers, **figures, "idle": waiting["sum"] * figures["wall"]})
            print({name: round(value, 2) for name, value in found[-1].items()}, forest[:8], file=sys.stderr)
    if len(forests) > 1:
        raise SystemExit("the forests differ")
    return pl.DataFrame(found)


def main() -> None:
    """Processor time of the client and of the workers."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--trees", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--memory", default="560MB")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 6])
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.pin:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if options.turns:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    with dask.config.set(QUIET if options.quiet else {}):
        runs = run(options)
    best = runs.group_by("workers").agg(pl.all().exclude("workers").min()).sort("workers")
    head = f"{options.trees} trees on {options.rows:,} x 28, memory={options.memory}.\n{machine()}."
    save("who_pays", runs, head + "\n\n" + markdown(best.select(*COLUMNS), COLUMNS), options.out)


if __name__ == "__main__":
    main()
