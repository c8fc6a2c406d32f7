"""Three hosts on a network: what goes over the wire, and what happens when one of them is cut off. Linux, as root.

    python benchmarks/network.py [--rows 1000000] [--trees 20] [--out benchmarks/results]

A host is a network namespace: one for the scheduler and the client, one for each of two workers, each with one thread;
their links (veth) meet in a bridge, in a fourth namespace, which counts the bytes. The disk is shared, as a mounted
folder would be, and is not on the wire. The forest is grown on local threads first, then on the cluster by either
grain, and again with the link of the second worker cut in the middle of growing. All five must be the same files.

Bytes on the wire are those that enter the bridge while trees grow: frames with all their headers, and whatever Dask has
to say. For the grain of rows every pass has a row of its own: the bytes beside those of its histograms, which are
nodes x mtry x buckets x classes x 4.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

HERE = Path(__file__).resolve().parent
PREFIX = "bf-net-"
SCHEDULER, FIRST, SECOND, SWITCH = HOSTS = ("scheduler", "first", "second", "switch")
ADDRESSES = {SCHEDULER: "10.77.0.1", FIRST: "10.77.0.2", SECOND: "10.77.0.3"}
PORT = 8786
# A lost worker shall be missed soon: Dask waits for minutes.
IMPATIENT = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "12s",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "20s",
}
COLUMNS = {
    "run": ("run", "{}"),
    "seconds": ("growing (s)", "{:.1f}"),
    "wire": ("on the wire (MB)", "{:.3f}"),
    "share": ("share of the codes (%)", "{:.2f}"),
    "same": ("same files", "{}"),
}
PASSES = {
    "pass": ("pass", "{}"),
    "trees": ("trees", "{}"),
    "nodes": ("nodes", "{}"),
    "formula": ("histograms (MB)", "{:.3f}"),
    "asked": ("with questions (MB)", "{:.3f}"),
    "wire": ("on the wire (MB)", "{:.3f}"),
    "ratio": ("wire / histograms", "{:.1f}"),
}


def why_not() -> str:
    """Why this cannot be done here; nothing where it can."""
    if not sys.platform.startswith("linux") or shutil.which("ip") is None:
        return "it takes Linux and the command ip"
    if os.geteuid() != 0:
        return "it takes root, to make network namespaces"
    tried = subprocess.run(["ip", "netns", "add", f"{PREFIX}try"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"network namespaces cannot be made: {tried.stderr.strip()}"
    ip("netns", "del", f"{PREFIX}try")
    return ""


def ip(*words: str) -> str:
    """What the command ip prints."""
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


@contextmanager
def hosts() -> Iterator[None]:
    """The hosts and their links, for as long as the block runs."""
    try:
        for host in HOSTS:
            ip("netns", "add", PREFIX + host)
            ip("-n", PREFIX + host, "link", "set", "lo", "up")
        switch = PREFIX + SWITCH
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for host, address in ADDRESSES.items():
            ip("-n", switch, "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", PREFIX + host)
            ip("-n", switch, "link", "set", host, "master", "bridge", "up")
            ip("-n", PREFIX + host, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", PREFIX + host, "link", "set", "eth0", "up")
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", PREFIX + host], capture_output=True, check=False)


def wire_bytes() -> int:
    """Bytes that have entered the bridge so far."""
    links = json.loads(ip("-n", PREFIX + SWITCH, "-s", "-j", "link"))
    return sum(link["stats64"]["rx"]["bytes"] for link in links if link["ifname"] in ADDRESSES)


def link(host: str, state: str) -> None:
    """Put the link of a host `up` or `down`."""
    ip("-n", PREFIX + SWITCH, "link", "set", host, state)


def start(host: str, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """A process on a host; its output goes to a file in the folder."""
    with (folder / f"{host}.log").open("ab") as log:
        command = ["ip", "netns", "exec", PREFIX + host, sys.executable, "-m", *words]
        return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **IMPATIENT})


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The address of a scheduler with both workers, for as long as the block runs."""
    address = f"tcp://{ADDRESSES[SCHEDULER]}:{PORT}"
    common = ["--no-dashboard", "--host"]
    running = [
        start(SCHEDULER, folder, "distributed.cli.dask_scheduler", *common, ADDRESSES[SCHEDULER], "--port", str(PORT))
    ]
    alone = ["--nthreads", "1", "--memory-limit", "0", "--no-nanny", "--local-directory", str(folder)]
    for host in (FIRST, SECOND):
        running.append(start(host, folder, "distributed.cli.dask_worker", address, *alone, *common, ADDRESSES[host]))
    try:
        yield address
    finally:
        for process in running:
            process.kill()
            process.wait()
        link(SECOND, "up")


class Meter:
    """A listener that takes the bytes and seconds of growing, and calls `cut` when some of it is done."""

    def __init__(self, cut: Callable[[], None] | None) -> None:
        self.seconds, self.bytes = 0.0, 0
        self._cut = cut

    def __call__(self, event: Any) -> None:
        stage = getattr(event, "stage", None)
        kind = type(event).__name__
        if stage == "grow" and kind == "StageStarted":
            self._begin, self.bytes = time.perf_counter(), wire_bytes()
        elif stage == "grow" and kind == "StageFinished":
            self.seconds, self.bytes = time.perf_counter() - self._begin, wire_bytes() - self.bytes
        elif stage == "grow" and self._cut is not None:
            self._cut()
            self._cut = None


def watch_passes() -> list[dict[str, float]]:
    """The list to which every pass from now on adds a row."""
    from bigforest.execution.dask_cluster import ClusterExecutor
    from bigforest.grow.out_of_core.table import TableView

    rows: list[dict[str, float]] = []
    reduce_parts = ClusterExecutor.reduce_parts

    def measured(executor: Any, function: Any, *arguments: Any) -> Any:
        before = wire_bytes()
        found = reduce_parts(executor, function, *arguments)
        if function is TableView.answer:
            rows.append({"pass": len(rows) + 1, **_figures(arguments[-1][1], wire_bytes() - before)})
        return found

    ClusterExecutor.reduce_parts = measured  # type: ignore[method-assign]
    return rows


def _figures(questions: Any, wire: int) -> dict[str, float]:
    cells = sum(int(asked.counts.buckets.sum()) * asked.stats.parts for asked in questions)
    histograms = cells * np.dtype(questions[0].stats.cell_type).itemsize
    asked = sum(array.nbytes for asked in questions for part in (asked.counts, asked.collects) for array in part)
    return {
        "trees": len(questions),
        "nodes": sum(np.unique(np.append(asked.counts.node, asked.collects.node)).size for asked in questions),
        "formula": histograms / 1e6,
        "asked": (histograms + asked) / 1e6,
        "wire": wire / 1e6,
        "ratio": wire / histograms if histograms else float("nan"),
    }


def grow(store: Path, trees: int, memory: int | None, cut: bool, folder: Path) -> dict[str, Any]:
    """Grow a forest on the cluster from the client's host, in this process."""
    import bigforest

    meter = Meter((lambda: link(SECOND, "down")) if cut else None)
    passes = watch_passes()
    with cluster(folder) as address:
        from distributed import Client

        with Client(address, set_as_default=False, timeout=60) as client:
            client.wait_for_workers(2, timeout=60)
            out = folder / "forest"
            bigforest.train(
                store, out=out, trees=trees, mtry="sqrt", refine="off", memory=memory, scheduler=client, listener=meter
            )
    return {"seconds": meter.seconds, "wire": meter.bytes / 1e6, "passes": passes, "parts": digest(out)}


def digest(forest: Path) -> dict[str, str]:
    """The checksums of the parts of a forest."""
    import hashlib

    return {part.name: hashlib.sha256(part.read_bytes()).hexdigest() for part in sorted((forest / "trees").iterdir())}


def on_client(store: Path, trees: int, memory: int | None, cut: bool, folder: Path) -> dict[str, Any]:
    """`grow` in a process of the client's host."""
    folder.mkdir()
    told = json.dumps([str(store), trees, memory, cut, str(folder)])
    command = [
        "ip",
        "netns",
        "exec",
        PREFIX + SCHEDULER,
        sys.executable,
        str(Path(__file__).resolve()),
        "--client",
        told,
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **IMPATIENT}, check=False)
    if done.returncode:
        logs = "".join(path.read_text(errors="replace")[-500:] for path in folder.glob("*.log"))
        raise SystemExit(f"growing on the cluster failed:\n{done.stderr}\n{logs}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    shutil.rmtree(folder)
    return found


def measure(rows: int, trees: int) -> tuple[pl.DataFrame, list[dict[str, float]], int]:
    """A row per run, a row per pass of the second grain, and the bytes of the codes."""
    sys.path.insert(0, str(HERE))
    from datasets import TARGET, synthetic

    import bigforest

    table = synthetic(Path())
    frame = pl.concat([table.train, table.test])
    frame = frame.sample(rows, with_replacement=rows > frame.height, seed=1)
    found = []
    with tempfile.TemporaryDirectory(prefix="bigforest-net-") as scratch, hosts():
        home = Path(scratch)
        store = bigforest.encode_store(frame, home / "table.store", target=TARGET, scheduler="threads")
        codes = sum(feature.width for feature in store.spec.features) * store.rows
        alone = bigforest.train(
            store.path, out=home / "alone", trees=trees, mtry="sqrt", refine="off", scheduler="threads"
        )
        expected = digest(alone.directory)
        small = bigforest.plan_training(store.path, trees=trees, mtry="sqrt", refine="off", memory="1TB").smallest
        levels: list[dict[str, float]] = []
        for grain, memory in (("trees", None), ("rows", int(1.02 * small))):
            for cut in (False, True):
                one = on_client(store.path, trees, memory, cut, home / f"{grain}-{cut}")
                name = f"grain of {grain}" + (", a link cut" if cut else "")
                same = "yes" if one["parts"] == expected else "NO"
                share = 1e8 * one["wire"] / codes
                found.append(
                    {"run": name, "seconds": one["seconds"], "wire": one["wire"], "share": share, "same": same}
                )
                print(found[-1], file=sys.stderr)
                if grain == "rows" and not cut:
                    levels = one["passes"]
    return pl.DataFrame(found), levels, codes


def main() -> None:
    """What a cluster sends over the wire, and that a cut link changes nothing."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        store, trees, memory, cut, folder = json.loads(options.client)
        print(json.dumps(grow(Path(store), trees, memory, cut, Path(folder))))
        return
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        return
    runs, levels, codes = measure(options.rows, options.trees)
    from runs import machine
    from tables import markdown, save

    head = (
        f"{options.trees} trees on {options.rows:,} x 28, {codes / 1e6:.0f} MB of codes; two workers of one thread.\n"
        f"{machine()}."
    )
    text = "\n\n".join([head, markdown(runs, COLUMNS), markdown(pl.DataFrame(levels), PASSES)])
    save("network", runs, text, options.out)
    if "NO" in runs["same"].to_list():
        raise SystemExit("a forest differs")


if __name__ == "__main__":
    main()
