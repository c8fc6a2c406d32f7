"""Who spends what on a cluster: the client with the scheduler, and each of the workers, by kind of task.

    python benchmarks/who_pays.py [--rows 1000000] [--trees 8] [--memory 330MB] [--workers 2 6] [--rounds 1]

All are processes of this machine with one thread each; what is counted is processor time, so that more workers than
processors are no matter. A first tree is grown in each cluster, so that kernels have been read from their cache and
modules imported; `--cold` counts these too. The forests must be the same.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
from datasets import TARGET
from distributed import Client
from runs import HERE, machine
from scaling import cluster, table
from tables import markdown, save

import bigforest
from bigforest.common.events import WorkersUsed

COLUMNS = {
    "workers": ("workers", "{}"),
    "client": ("client and scheduler (CPU s)", "{:.2f}"),
    "sum": ("workers, sum (CPU s)", "{:.2f}"),
    "share": ("share of the client (%)", "{:.1f}"),
    "tasks": ("tasks", "{:.0f}"),
    "handed": ("handed back (MB)", "{:.2f}"),
    "wall": ("all (s)", "{:.1f}"),
}
# By function of the tasks, in each worker: calls, processor seconds.
SPENT: Counter[str] = Counter()
CALLS: Counter[str] = Counter()


def watch() -> None:
    """In a worker: count the processor time of each kind of task from now on."""
    import pickle

    from bigforest.execution import worker

    original = {name: getattr(worker, name) for name in ("perform", "combine", "off_loop", "unpack")}
    _install(worker, original, pickle.loads)


def _install(worker: Any, original: dict[str, Any], loads: Any) -> None:
    import who_pays

    def counted(name: str, function: Any, *arguments: Any) -> Any:
        begin = time.thread_time()
        result = function(*arguments)
        who_pays.SPENT[name] += time.thread_time() - begin
        who_pays.CALLS[name] += 1
        return result

    def perform(order: Any, *rest: Any) -> Any:
        return counted(order.run.rsplit("-", 1)[0], original["perform"], order, *rest)

    def combine(order: Any, *rest: Any) -> Any:
        return counted("combine " + order.run.rsplit("-", 1)[0], original["combine"], order, *rest)

    def unpack(*rest: Any) -> Any:
        return counted("unpack", original["unpack"], *rest)

    worker.perform, worker.combine = perform, combine


def spent() -> tuple[dict[str, float], dict[str, int], float]:
    """In a worker: what it has spent so far, and its processor time."""
    import who_pays

    return dict(who_pays.SPENT), dict(who_pays.CALLS), time.process_time()


def grown(client: Client, data: Path, out: Path, trees: int, memory: str) -> tuple[dict[str, Any], str]:
    """What a forest cost, and the checksum of its trees and out-of-bag rows."""
    handed = tasks = 0

    def listen(event: Any) -> None:
        nonlocal handed, tasks
        if isinstance(event, WorkersUsed):
            handed = sum(worker.bytes for worker in event.workers)
            tasks = sum(worker.tasks for worker in event.workers)

    before = client.run(spent)
    begin, mine = time.perf_counter(), time.process_time()
    target = None if data.suffix == ".store" else TARGET
    forest = bigforest.train(
        data, target=target, out=out, trees=trees, memory=memory, scheduler=client, listener=listen
    )
    wall, mine = time.perf_counter() - begin, time.process_time() - mine
    after = client.run(spent)
    print(dict(forest.run.select("stage", "seconds").iter_rows()), file=sys.stderr)
    names = sorted({name for one in after.values() for name in one[0]})
    for name in names:
        own = [after[at][0].get(name, 0) - before[at][0].get(name, 0) for at in after]
        calls = [after[at][1].get(name, 0) - before[at][1].get(name, 0) for at in after]
        print(f"  {name:45s} {sum(own):7.3f}  {[round(x, 2) for x in own]} {calls}", file=sys.stderr)
    whole = [after[at][2] - before[at][2] for at in after]
    inside = sum(sum(after[at][0].values()) - sum(before[at][0].values()) for at in after)
    print(f"  outside tasks {sum(whole) - inside:.2f}; workers {[round(x, 2) for x in whole]}", file=sys.stderr)
    files = [*sorted((out / "trees").iterdir()), out / "oob" / "rows.parquet"]
    digest = hashlib.sha256(b"".join(part.read_bytes() for part in files)).hexdigest()
    figures = {"client": mine, "sum": sum(whole), "share": 100 * mine / sum(whole), "tasks": tasks}
    return {**figures, "handed": handed / 1e6, "wall": wall}, digest


def main() -> None:
    """Processor time of client and workers."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--trees", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--memory", default="330MB")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 6])
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    found, digests = [], set()
    with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as scratch, ExitStack() as stack:
        home = Path(scratch)
        data = home / "table.parquet"
        table(options.rows).write_parquet(data, row_group_size=50_000)
        if options.store:
            data = bigforest.encode_store(data, home / "table.store", target=TARGET, scheduler="threads").path
        clients = {}
        for workers in options.workers:
            clients[workers] = client = stack.enter_context(cluster(workers))
            client.run(watch)
            if not options.cold:
                grown(client, data, home / f"first-{workers}", 1, options.memory)
        for round_ in range(options.rounds):
            for workers, client in clients.items():
                figures, digest = grown(client, data, home / f"{round_}-{workers}", options.trees, options.memory)
                digests.add(digest)
                found.append({"workers": workers, **figures})
                print(found[-1], digest[:12], file=sys.stderr)
    if len(digests) > 1:
        raise SystemExit("the forests differ")
    runs = pl.DataFrame(found)
    head = f"{options.trees} trees on {options.rows:,} x 28, memory={options.memory}.\n{machine()}."
    save("who_pays", runs, head + "\n\n" + markdown(runs, COLUMNS), options.out)


if __name__ == "__main__":
    main()
