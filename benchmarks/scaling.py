"""How much faster two workers are than one: processes of one thread each, behind a scheduler on this machine.

    python benchmarks/scaling.py [--rows 200000] [--trees 40] [--rounds 3] [--memory 400MB]

The table is presorted once; each round grows the same forest with one worker and with two, in turns, after a first tree
in each for compiling. Seconds are the best of the rounds. With --memory the workers keep within a budget: where the
codes do not fit into it they grow by passes over blocks of rows. All forests must be the same. At least as many
processors as workers are needed, with nothing else to do.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from datasets import TARGET, synthetic
from distributed import Client, LocalCluster
from runs import HERE, machine
from tables import markdown, save

import bigforest
from bigforest.events import WorkersUsed

WORKERS = (1, 2)
COLUMNS = {
    "workers": ("workers", "{}"),
    "grow": ("growing (s)", "{:.2f}"),
    "oob": ("out of bag (s)", "{:.2f}"),
    "whole": ("all (s)", "{:.2f}"),
    "ratio": ("growing, times as fast", "{:.2f}"),
    "handed": ("handed back (MB)", "{:.3f}"),
}


def table(rows: int) -> pl.DataFrame:
    """The synthetic set with `rows` rows; beyond its own they come again."""
    data = synthetic(Path())
    frame = pl.concat([data.train, data.test])
    return frame.sample(rows, with_replacement=rows > frame.height, seed=1)


def grown(client: Client, store: Path, out: Path, trees: int, memory: str | None) -> tuple[dict[str, float], str]:
    """Seconds and bytes of a forest, and the checksum of its trees."""
    handed = 0

    def listen(event: Any) -> None:
        nonlocal handed
        if isinstance(event, WorkersUsed):
            handed = sum(worker.bytes for worker in event.workers)

    begin = time.perf_counter()
    forest = bigforest.train(
        store, out=out, trees=trees, mtry="sqrt", refine="off", memory=memory, scheduler=client, listener=listen
    )
    seconds = dict(forest.run.select("stage", "seconds").iter_rows())
    parts = b"".join(part.read_bytes() for part in sorted((out / "trees").iterdir()))
    whole = time.perf_counter() - begin
    return {**seconds, "whole": whole, "handed": handed / 1e6}, hashlib.sha256(parts).hexdigest()


def run(rows: int, trees: int, rounds: int, memory: str | None) -> pl.DataFrame:
    """One row per forest. Progress goes to stderr."""
    found = []
    with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as scratch, ExitStack() as stack:
        home = Path(scratch)
        store = bigforest.encode_store(table(rows), home / "table.store", target=TARGET, scheduler="threads").path
        clients = {workers: stack.enter_context(cluster(workers)) for workers in WORKERS}
        for workers, client in clients.items():
            grown(client, store, home / f"first-{workers}", 1, memory)
        forests = set()
        for round_ in range(rounds):
            for workers in WORKERS if round_ % 2 else WORKERS[::-1]:
                figures, trees_found = grown(clients[workers], store, home / f"{round_}-{workers}", trees, memory)
                forests.add(trees_found)
                found.append({"workers": workers, "round": round_, **figures})
                print(found[-1], file=sys.stderr)
    if len(forests) > 1:
        raise SystemExit("the forests differ")
    return pl.DataFrame(found)


@contextmanager
def cluster(workers: int, *, sync: float = 1.0) -> Iterator[Client]:
    """A client of some worker processes of one thread, for as long as the block runs.

    sync: seconds between two reports of Dask's own object of the cluster to the scheduler.
    """
    options = {"threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None, "scheduler_sync_interval": sync}
    with LocalCluster(n_workers=workers, **options) as made, Client(made, set_as_default=False) as client:
        yield client


def main() -> None:
    """Two workers of one thread against one."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--trees", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", help="budget of each worker, such as 400MB")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    runs = run(options.rows, options.trees, options.rounds, options.memory)
    best = runs.group_by("workers").agg(pl.col("grow", "oob", "whole").min(), pl.col("handed").max()).sort("workers")
    best = best.with_columns(ratio=pl.col("grow").first() / pl.col("grow"))
    within = f", within {options.memory}" if options.memory else ""
    head = f"{options.trees} trees on {options.rows:,} x 28{within}, best of {options.rounds} rounds.\n{machine()}."
    save("scaling", runs, head + "\n\n" + markdown(best, COLUMNS), options.out)


if __name__ == "__main__":
    main()
