"""On a Dask cluster: the files that threads give, whatever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
import pytest
from distributed import Client

import bigforest
from bigforest.errors import ClusterError
from bigforest.events import Event, StageAdvanced, silent
from bigforest.execution.dask_cluster import Cluster, ClusterExecutor
from bigforest.execution.resources import Resources
from bigforest.options.train_config import TrainConfig
from bigforest.planning.sizes import Limits
from bigforest.source.open import open_source
from bigforest.store.store import Store
from tests.encode.test_encode import content
from tests.encoded import encode
from tests.execution.clusters import (
    CONFIG,
    MEANS,
    PERCEPTRONS,
    Killer,
    assert_grows_the_same,
    few_columns,
    killing_at,
    seven_later,
)
from tests.grow.test_invariance import assert_equal, rows_of
from tests.thorough import cases

pytestmark = [
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

PRINCIPAL = {"family": "rotation", "rotation": "pca-classes", "bootstrap": True}


def test_train__a_worker_is_killed_in_each_stage(
    client: Client, table: Path, expected: Path, tmp_path: Path, both_alive: None, all_columns_apart: None
) -> None:
    killer = Killer(client, "encode", "grow", "oob")
    bigforest.train(table, out=tmp_path / "f", scheduler=client, listener=killer, **CONFIG)
    assert killer.killed == ["encode", "grow", "oob"]
    assert_equal(rows_of(tmp_path / "f"), rows_of(expected))
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("task", ["encode-group", "write-range"])
def test_encode__few_columns_a_worker_is_killed(
    client: Client, tmp_path: Path, both_alive: None, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    table = few_columns(tmp_path)
    expected = bigforest.encode_store(table, tmp_path / "e", target="late", threads=1, scheduler="threads")
    killer = killing_at(client, task, monkeypatch)
    resources = Resources(
        threads=1, cluster=Cluster(client), scratch=tmp_path, limits=Limits(presort_rows=20_000, slice_rows=7_000)
    )
    source = open_source(str(table), scratch=tmp_path)
    store = encode(source, "late", tmp_path / "s", resources=resources, listener=silent)
    assert killer.killed
    assert content(store) == content(expected)


@pytest.mark.parametrize(
    ("task", "options"),
    cases(
        [
            *((task, {}) for task in ("answer", "score", "grow-subtree")),
            *((task, {}) for task in ("spill", "write-assemblies")),
            *((task, MEANS) for task in ("decode-blocks", "answer", "score")),
            *((task, PRINCIPAL) for task in ("sum-moments", "grow-subtree")),
            *((task, PERCEPTRONS) for task in ("score", "train-perceptrons")),
        ],
        quick=2,
    ),
)
def test_grow__by_passes_a_worker_is_killed(
    client: Client,
    store: Store,
    tmp_path: Path,
    both_alive: None,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    options: dict[str, Any],
) -> None:
    config = TrainConfig.of(trees=2, seed=3, max_depth=6, **options)
    killer = killing_at(client, task, monkeypatch)
    assert_grows_the_same(client, store, config, tmp_path)
    assert killer.killed


def test_run__a_result_whose_worker_dies_before_it_is_taken(
    client: Client, both_alive: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = client.gather
    late: list[str] = []

    def too_late(futures: Sequence[Any], **options: Any) -> Any:
        if not late:
            [future] = futures
            [holders] = client.who_has([future]).values()
            [pid] = client.run(os.getpid, workers=list(holders)).values()
            os.kill(pid, signal.SIGKILL)
            end = time.monotonic() + 60
            while future.status == "finished" and time.monotonic() < end:  # the task takes long enough to be seen again
                time.sleep(0.01)
            late.append(future.status)
        return fetch(futures, **options)

    monkeypatch.setattr(client, "gather", too_late)
    found: list[int] = []
    ClusterExecutor(Cluster(client), 1).run(seven_later, [(1.0,)], lambda _, result: found.append(result))
    assert found == [7]
    assert len(late) == 1
    assert late != ["finished"]


def test_reduce__all_workers_die_at_once(client: Client, both_alive: None) -> None:
    executor = ClusterExecutor(Cluster(client), 1)
    pids = sorted(client.run(os.getpid).values())

    found: list[int] = []
    reduced = threading.Thread(
        target=lambda: found.append(executor.reduce(seven_later, [(3.0,), (3.0,)], max)), daemon=True
    )
    reduced.start()
    time.sleep(1.0)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    reduced.join(240)
    assert found == [7]


def test_reduce_parts__held_by_a_worker_that_dies(client: Client, both_alive: None, tmp_path: Path) -> None:
    """The first time a part is finished, the worker dies that holds the share of the other."""
    executor = ClusterExecutor(Cluster(client), 1)
    pids = sorted(client.run(os.getpid).values())
    shared = (str(tmp_path / "killed"), pids)
    found = executor.reduce_parts(_twice, [(number,) for number in range(4)], max, _finish_or_kill, [(), ()], shared)
    assert found == [3, 6]
    assert (tmp_path / "killed").exists()


def _twice(_: str, pids: list[int], number: int) -> list[int]:
    return [number, 2 * number]


def _finish_or_kill(place: str, pids: list[int], part: int) -> int:
    with suppress(FileExistsError):
        Path(place).touch(exist_ok=False)  # by one of them
        os.kill(next(pid for pid in pids if pid != os.getpid()), signal.SIGKILL)
    return part


def test_run__a_task_that_kills_its_workers(client: Client, monkeypatch: pytest.MonkeyPatch, both_alive: None) -> None:
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    with pytest.raises(ClusterError, match=r"the task _die has lost 1 workers.*memory"):
        ClusterExecutor(Cluster(client), 1).run(_die, [()], lambda *_: None)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_SCHEDULER = """
import sys
from distributed import LocalCluster
cluster = LocalCluster(
    n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://", memory_limit=0, dashboard_address=None
)
print(cluster.scheduler_address, flush=True)
sys.stdin.read()
"""


def test_resume__after_the_scheduler_is_killed(table: Path, expected: Path, tmp_path: Path) -> None:
    """A process that has the scheduler and a worker."""
    scheduler = subprocess.Popen(
        [sys.executable, "-c", _SCHEDULER], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert scheduler.stdout is not None

    def kill(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == "grow":
            scheduler.kill()

    try:
        client = Client(scheduler.stdout.readline().strip(), set_as_default=False, timeout=5)
        with client, pytest.raises(ClusterError, match=r"connection to the scheduler was lost") as caught:
            bigforest.train(table, out=tmp_path / "f", scheduler=client, listener=kill, **CONFIG)
        assert "resume=" in caught.value.__notes__[0]
    finally:
        scheduler.kill()
        scheduler.communicate()
    bigforest.train(resume=tmp_path / "f", threads=1, scheduler="threads")
    assert_equal(rows_of(tmp_path / "f"), rows_of(expected))
