"""Which cluster a call uses, and what is refused before it begins."""

from __future__ import annotations

import os
from pathlib import Path

import dask
import numba
import pytest
from distributed import Client

import bigforest
from bigforest.errors import ClusterError, ConfigError
from bigforest.events import Event, WorkersUsed
from bigforest.execution import worker
from bigforest.execution.dask_cluster import Cluster, ClusterExecutor
from tests.commands import Run
from tests.execution.clusters import (
    CONFIG,
)
from tests.grow.test_invariance import frame

pytestmark = [
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def test_train__the_ambient_client(client: Client, tmp_path: Path, both_alive: None) -> None:
    data = frame().head(500)
    events: list[Event] = []
    with client.as_current():
        there = bigforest.train(data, listener=events.append, **CONFIG)
        here = bigforest.train(data, scheduler="threads", **CONFIG)
    assert there.nodes.collect().equals(here.nodes.collect())
    assert sum(isinstance(event, WorkersUsed) for event in events) == 1


def test_train__by_address_on_the_command_line(
    client: Client, table: Path, tmp_path: Path, both_alive: None, capsys: pytest.CaptureFixture[str]
) -> None:
    address = client.scheduler.address
    run = Run(capsys)
    facts = run.json(
        *("train", table, "--target", "late", "--trees", 2, "--max-depth", 3, "--out", tmp_path / "f"),
        *("--scheduler", address, "--quiet"),
    )
    assert {"worker", "tasks", "seconds", "bytes"} == set(facts["workers"][0])
    facts = run.json("predict", tmp_path / "f", table, "--out", tmp_path / "p.parquet", "--scheduler", address, "-q")
    assert sum(each["tasks"] for each in facts["workers"]) == 8
    assert run("train", table, "--scheduler-file", tmp_path / "no").code == 2
    assert "no scheduler file" in run.err
    (tmp_path / "empty.json").write_text("{}")
    assert run("train", table, "--scheduler-file", tmp_path / "empty.json").code == 2
    assert "is not a scheduler file" in run.err
    assert run("train", table, "--tls-ca", "x").code == 2


def test_train__versions_that_differ_are_refused(
    client: Client, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = worker.versions_here()
    monkeypatch.setattr(worker, "versions_here", lambda: there | {"numba": "0.1"})
    with pytest.raises(ClusterError, match=r"worker tcp://.* has numba .* and the client has 0\.1; install"):
        bigforest.train(table, out=tmp_path / "f", scheduler=client, **CONFIG)
    with pytest.raises(ClusterError, match=r"has numba"):  # of a worker that comes later
        ClusterExecutor(Cluster(client), 1).run(os.getpid, [()], lambda *_: None)
    assert not list(tmp_path.iterdir())


def test_train__a_folder_that_workers_do_not_see(
    client: Client, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "check_shared_file", _elsewhere)
    with pytest.raises(ClusterError, match=r"cannot use the folder .*No such file.*as out a folder on a disk that"):
        bigforest.train(table, out=tmp_path / "f", scheduler=client, **CONFIG)
    assert not list(tmp_path.iterdir())


def _elsewhere(path: str, content: str, answer: str) -> str:
    return worker.check_shared_file(f"/elsewhere{path}", content, answer)


@pytest.mark.parametrize("scheduler", [3, "tcp://127.0.0.1:1", "nonsense://x", "nonsense", "tls://127.0.0.1:1"])
def test_train__no_scheduler(scheduler: object, table: Path) -> None:
    short = dask.config.set({"distributed.comm.timeouts.connect": "300ms"})
    with short, pytest.raises((ConfigError, ClusterError), match=r"scheduler"):
        bigforest.train(table, scheduler=scheduler, **CONFIG)
