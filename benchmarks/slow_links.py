"""Three hosts with SSH servers on slow links, on which the guide on clusters is followed. Linux, as root.

    python benchmarks/slow_links.py [--rows 500000] [--trees 8] [--delay 0.05] [--rate 1e9] [--out benchmarks/results]

A host is a network namespace with a tunnel to a switch, a process of this script: a packet waits until the link of its
sender has sent the ones before, at `rate` bits per second, and then for `delay` seconds. So answers take twice as long
to come, as they do over a distance of ten thousand kilometres. Every host has an SSH server that runs what it is told
(asyncssh); `dask ssh` (paramiko) starts a scheduler on the first host and a worker on each. The disk is shared, and not
on the wire. Train and predict are run there by the command line, with codes that fit in memory and by passes, and once
by SSHCluster; the files must be those of a run on threads.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import fcntl
import hashlib
import heapq
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from network import ip
from runs import HERE, machine
from tables import markdown, save

PREFIX = "bf-slow-"
NET = "10.78.0."
HOSTS = (1, 2, 3)
PORT = 8786
# Bytes of a packet at most; the switch is slow with smaller ones.
MTU = 9000
# Of linux/if_tun.h: TUNSETIFF, and a device for packets without further headers.
_SET_INTERFACE, _PACKETS = 0x400454CA, 0x1001
COLUMNS = {
    "run": ("run", "{}"),
    "train": ("train (s)", "{:.1f}"),
    "predict": ("predict (s)", "{:.1f}"),
    "wire": ("on the wire (MB)", "{:.2f}"),
    "same": ("same files", "{}"),
}


def inside(host: int, *words: str) -> list[str]:
    """The command on a host."""
    return ["ip", "netns", "exec", f"{PREFIX}{host}", *words]


def remove(space: str) -> None:
    """Remove a host, and end what still runs there."""
    for process in ip("netns", "pids", space).split():
        os.kill(int(process), signal.SIGKILL)
    ip("netns", "del", space)


@contextmanager
def hosts(delay: float, rate: float, folder: Path) -> Iterator[Path]:
    """The hosts, their links and SSH servers; gives the file in which the switch says how many bytes have passed."""
    counted = folder / "bytes"
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    with ExitStack() as stack:
        for host in HOSTS:
            ip("netns", "add", f"{PREFIX}{host}")
            stack.callback(remove, f"{PREFIX}{host}")
            ip("-n", f"{PREFIX}{host}", "link", "set", "lo", "up")
        here = [sys.executable, str(Path(__file__).resolve())]
        commands = [[*here, "--switch", str(counted), "--delay", str(delay), "--rate", str(rate)]]
        commands += [inside(host, *here, "--server", f"{NET}{host}", str(key)) for host in HOSTS]
        for command in commands:
            running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.callback(running.wait)
            stack.callback(running.kill)
            assert running.stdout is not None
            running.stdout.readline()  # it is ready
        yield counted


def switch(counted: Path, delay: float, rate: float) -> None:
    """Pass packets on between the hosts."""
    library, links = ctypes.CDLL(None, use_errno=True), {}
    for host in HOSTS:
        with Path(f"/run/netns/{PREFIX}{host}").open() as space:
            assert library.setns(space.fileno(), 0) == 0
        links[host] = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(links[host], _SET_INTERFACE, struct.pack("16sH", b"eth0", _PACKETS))
        subprocess.run(["ip", "addr", "add", f"{NET}{host}/24", "dev", "eth0"], check=True)
        subprocess.run(["ip", "link", "set", "eth0", "mtu", str(MTU), "txqueuelen", "10000", "up"], check=True)
        subprocess.run(["ip", "route", "add", "default", "dev", "eth0"], check=True)
    print("ready", flush=True)
    waiting: list[tuple[float, int, int, bytes]] = []  # when they arrive, their number, where, and what
    free, passed, number, said = dict.fromkeys(HOSTS, 0.0), 0, 0, 0.0
    by_file = {link: host for host, link in links.items()}
    while True:
        now = time.monotonic()
        ready, _, _ = select.select(list(by_file), [], [], max(0.0, waiting[0][0] - now) if waiting else 0.2)
        now = time.monotonic()
        for link in ready:
            for _ in range(64):
                try:
                    packet = os.read(link, MTU + 4)
                except BlockingIOError:
                    break
                if packet[0] >> 4 != 4 or packet[19] not in links:  # IPv6, or for all
                    continue
                host = by_file[link]
                free[host] = max(free[host], now) + 8 * len(packet) / rate
                heapq.heappush(waiting, (free[host] + delay, number, packet[19], packet))
                passed, number = passed + len(packet), number + 1
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, host, packet = heapq.heappop(waiting)
            os.write(links[host], packet)
        if now > said + 0.2:
            counted.write_text(str(passed))
            said = now


async def serve(address: str, key: str) -> None:
    """An SSH server that lets in those who have the key and runs their commands."""
    import asyncssh

    async def run(process: Any) -> None:
        pipe, terminal = subprocess.PIPE, process.term_type is not None
        stdin = pipe if terminal else subprocess.DEVNULL
        begun = subprocess.Popen(process.command, shell=True, stdin=stdin, stdout=pipe, stderr=pipe)
        await process.redirect(**{"stdin": begun.stdin} if terminal else {}, stdout=begun.stdout, stderr=begun.stderr)
        ended = await asyncio.to_thread(begun.wait)
        await process.stdout.drain()
        process.exit(ended)

    server = await asyncssh.listen(
        address, 22, server_host_keys=[key], authorized_client_keys=f"{key}.pub", process_factory=run, encoding=None
    )
    print("ready", flush=True)
    await server.wait_closed()


@contextmanager
def dask_ssh(folder: Path) -> Iterator[None]:
    """The cluster that the guide starts by `dask ssh`."""
    (folder / "hosts.txt").write_text("".join(f"{NET}{host}\n" for host in HOSTS))
    words = ["--hostfile", str(folder / "hosts.txt"), "--nthreads", "1", "--memory-limit", "0"]
    words += ["--scheduler-port", str(PORT), "--ssh-private-key", str(folder / "key")]
    with (folder / "dask-ssh.log").open("wb") as log:
        running = subprocess.Popen(inside(1, sys.executable, "-m", "dask", "ssh", *words), stdout=log, stderr=log)
        try:
            yield
        finally:
            running.send_signal(signal.SIGINT)
            running.wait()


def bigforest(host: int | None, *words: str) -> float:
    """Seconds of a command of bigforest, on a host or here."""
    command = [str(Path(sys.executable).with_name("bigforest")), *words, "--quiet"]
    begin = time.perf_counter()
    subprocess.run(command if host is None else inside(host, *command), check=True)
    return time.perf_counter() - begin


def digest(folder: Path) -> str:
    """The checksum of the files of the trees and of the out-of-bag rows, and of the predictions."""
    files = [*sorted((folder / "forest" / "trees").iterdir()), folder / "forest" / "oob" / "rows.parquet"]
    predictions = pl.read_parquet(folder / "scored.parquet").hash_rows().to_numpy()
    return hashlib.sha256(b"".join([*(path.read_bytes() for path in files), predictions.tobytes()])).hexdigest()


def steps(folder: Path, table: Path, trees: int, host: int | None, *words: str) -> dict[str, Any]:
    """Train and predict."""
    from datasets import TARGET

    folder.mkdir()
    forest, where = str(folder / "forest"), words[:2]
    train = bigforest(host, "train", str(table), "--target", TARGET, "--trees", str(trees), "--out", forest, *words)
    predict = bigforest(host, "predict", forest, str(table), "--out", str(folder / "scored.parquet"), *where)
    return {"train": train, "predict": predict, "files": digest(folder)}


SCRIPT = """
import sys
from distributed import Client, SSHCluster
import bigforest as bf

if __name__ == "__main__":
    table, target, trees, folder, key, *hosts = sys.argv[1:]
    with (
        SSHCluster(
            [hosts[0], *hosts],
            connect_options={"client_keys": [key], "known_hosts": None},
            worker_options={"nthreads": 1, "memory_limit": 0},
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(len(hosts))
        forest = bf.train(table, target, trees=int(trees), out=f"{folder}/forest")
        bf.predict_file(forest, table, f"{folder}/scored.parquet")
"""


def measure(options: argparse.Namespace) -> pl.DataFrame:
    """A row for each run."""
    from datasets import TARGET
    from scaling import table

    found = []
    with tempfile.TemporaryDirectory(prefix="bigforest-slow-") as scratch:
        home = Path(scratch)
        data = home / "table.parquet"
        table(options.rows).write_parquet(data, row_group_size=50_000)
        alone = steps(home / "threads", data, options.trees, None)
        with hosts(options.delay, options.rate, home) as counted:
            runs = {"in memory": [], "by passes": ["--memory", options.memory]}
            with dask_ssh(home):
                where = ["--scheduler", f"tcp://{NET}1:{PORT}"]
                bigforest(1, "warm-up", *where)
                for name, words in runs.items():
                    before = int(counted.read_text())
                    figures = steps(home / name, data, options.trees, 1, *where, *words)
                    time.sleep(1)
                    wire = (int(counted.read_text()) - before) / 1e6
                    found.append({"run": f"dask ssh, {name}", "wire": wire, **figures})
                    print(found[-1], file=sys.stderr)
            folder = home / "cluster"
            folder.mkdir()
            (home / "cluster.py").write_text(SCRIPT)
            words = [str(home / "cluster.py"), str(data), TARGET, str(options.trees), str(folder), str(home / "key")]
            subprocess.run(inside(1, sys.executable, *words, *(f"{NET}{host}" for host in HOSTS)), check=True)
            found.append({"run": "SSHCluster", "files": digest(folder)})
    frame = pl.DataFrame([{"run": "threads", **alone}, *found], infer_schema_length=None)
    same = pl.when(pl.col("files") == alone["files"]).then(pl.lit("yes")).otherwise(pl.lit("NO"))
    return frame.with_columns(same=same)


def main() -> None:
    """The steps of the guide on clusters, on slow links."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--trees", type=int, default=8)
    parser.add_argument("--memory", default="330MB")
    parser.add_argument("--delay", type=float, default=0.05)
    parser.add_argument("--rate", type=float, default=1e9)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--switch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--server", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.switch:
        switch(options.switch, options.delay, options.rate)
    elif options.server:
        asyncio.run(serve(*options.server))
    else:
        runs = measure(options)
        head = f"{options.trees} trees on {options.rows:,} x 28; {options.delay} s one way, {options.rate:.0e} bit/s."
        head += f"\n{machine()}."
        save("slow_links", runs, head + "\n\n" + markdown(runs, COLUMNS), options.out)
        if "NO" in runs["same"].to_list():
            raise SystemExit("files differ")


if __name__ == "__main__":
    main()
