"""Workers that come, go or have a full disk: the same results."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from operator import or_
from pathlib import Path
from typing import Any

import numba
import polars as pl
import pytest
from distributed import Client, LocalCluster

import bigforest
from bigforest.errors import DiskFullError
from bigforest.events import Event, StageAdvanced, silent
from bigforest.execution.dask_cluster import Cluster, ClusterExecutor
from bigforest.execution.resources import Resources
from bigforest.forest.parts import part_paths
from bigforest.grow.forest import ForestJob
from bigforest.grow.memory import GrowPlan
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.options.train_config import TrainConfig
from bigforest.training.run import grow_forest
from tests.grow.test_invariance import assert_equal, frame, rows_of

pytestmark = [
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

CONFIG: dict[str, Any] = {"target": "late", "trees": 6, "seed": 11, "max_depth": 8, "min_leaf": 3}
BY_PASSES = GrowPlan(1, MemoryLimits(rows=5_000, keys=1 << 16, cells=1 << 14, room=1 << 18), 4, 0)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two processes with a thread each."""
    options = {"dashboard_address": None, "silence_logs": 50, "memory_limit": 0}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def two(client: Client) -> None:
    """Wait until there are two workers again."""
    client.cluster.scale(2)
    end = time.monotonic() + 120
    while len(client.scheduler_info()["workers"]) != 2:
        assert time.monotonic() < end
        time.sleep(0.05)


def _full_in(places: tuple[int, ...], number: int) -> int:
    if os.getpid() in places:
        raise OSError(errno.ENOSPC, "No space left on device")
    return number


def test_cluster__a_full_disk_of_all_workers(client: Client, two: None) -> None:
    pids = tuple(client.run(os.getpid).values())
    with pytest.raises(DiskFullError, match="No space left on device"):
        ClusterExecutor(Cluster(client), 1).run(_full_in, [(n,) for n in range(5)], lambda *_: None, (pids,))


@pytest.mark.parametrize("way", ["run", "reduce"])
def test_executor__a_worker_that_joins_late_gets_work(client: Client, two: None, way: str) -> None:
    executor, seen = ClusterExecutor(Cluster(client, fresh=0.5), 1), set[int]()
    before = set(client.run(os.getpid).values())
    client.cluster.scale(3)
    end = time.monotonic() + 120
    while seen <= before:
        assert time.monotonic() < end
        if way == "run":
            seen |= set(executor.gather(_pid, [(number,) for number in range(60)]))
        else:
            seen |= executor.reduce(_pids, [(number,) for number in range(6)], or_)


def _pid(number: int) -> int:
    time.sleep(0.02)
    return os.getpid()


def _pids(number: int) -> set[int]:
    return {_pid(number)}


class Mover:
    """Has a worker join or leave the first times that a stage gets on: starting one takes seconds."""

    def __init__(self, client: Client, times: int = 2) -> None:
        self._client, self._times = client, times
        self.moved: dict[str, int] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageAdvanced):
            self.move(event.stage)

    def move(self, stage: str) -> None:
        self.moved[stage] = self.moved.get(stage, 0) + 1
        if self.moved[stage] <= self._times:
            self._client.cluster.scale(3 if len(self._client.scheduler_info()["workers"]) == 2 else 2)


def test_train__workers_join_and_leave(client: Client, two: None, tmp_path: Path) -> None:
    table = frame().with_columns(late=pl.when(pl.int_range(pl.len()) % 1000 > 0).then("late"))
    table.write_parquet(tmp_path / "t.parquet")
    bigforest.train(tmp_path / "t.parquet", out=tmp_path / "expected", threads=2, scheduler="threads", **CONFIG)
    mover = Mover(client)
    bigforest.train(tmp_path / "t.parquet", out=tmp_path / "f", scheduler=client, listener=mover, **CONFIG)
    assert mover.moved.keys() >= {"encode", "grow", "oob"}
    assert_equal(rows_of(tmp_path / "f"), rows_of(tmp_path / "expected"))


def test_grow__by_passes_workers_join_and_leave(
    client: Client, two: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bigforest.encode_store(frame(), tmp_path / "s", target="late", scheduler="threads")
    config, mover, hand_out = TrainConfig(trees=2, seed=3, max_depth=6), Mover(client, 1), client.map

    def handing_out(function: Callable[..., Any], *arguments: Any, key: list[tuple[str, int]], **options: Any) -> Any:
        mover.move(re.sub("-[0-9a-f]{8,}.*", "", key[0][0]))
        return hand_out(function, *arguments, key=key, **options)

    monkeypatch.setattr(client, "map", handing_out)
    cluster = Resources(threads=1, scratch=tmp_path, cluster=Cluster(client))
    for name, resources, way in (("a", Resources(threads=1), None), ("b", cluster, BY_PASSES)):
        grow_forest(ForestJob(store, config, tmp_path / name, resources, silent), plan=way)
    contents = [[path.read_bytes() for path in part_paths(tmp_path / name)] for name in "ab"]
    assert contents[0] == contents[1]
    assert any("bigforest-spill" in key for key in mover.moved)
