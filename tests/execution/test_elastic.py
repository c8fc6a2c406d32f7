"""Workers that come, go or have a full disk: the same results."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable
from operator import or_
from pathlib import Path
from typing import Any

import numba
import pytest
from distributed import Client

import bigforest
from bigforest.errors import DiskFullError
from bigforest.events import Event, StageAdvanced
from bigforest.execution import dask_cluster
from bigforest.execution.dask_cluster import Cluster, ClusterExecutor
from bigforest.options.train_config import TrainConfig
from bigforest.store.store import Store
from tests.execution.clusters import CONFIG, assert_grows_the_same
from tests.grow.test_invariance import assert_equal, rows_of

pytestmark = [
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def _full_in(places: tuple[int, ...], number: int) -> int:
    if os.getpid() in places:
        raise OSError(errno.ENOSPC, "No space left on device")
    return number


def test_cluster__a_full_disk_of_all_workers(client: Client, both_alive: None) -> None:
    pids = tuple(client.run(os.getpid).values())
    with pytest.raises(DiskFullError, match="No space left on device"):
        ClusterExecutor(Cluster(client), 1).run(_full_in, [(n,) for n in range(5)], lambda *_: None, (pids,))


def test_executor__a_worker_that_joins_late_gets_work(
    client: Client, both_alive: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "_FRESH", 0.5)
    executor = ClusterExecutor(Cluster(client), 1)
    before = set(client.run(os.getpid).values())
    executor.reduce(_pids, [(number,) for number in range(6)], or_)  # each of the two has its share
    client.cluster.scale(3)
    run, reduced = set[int](), set[int]()
    end = time.monotonic() + 120
    while run <= before or reduced <= before:
        assert time.monotonic() < end
        run |= set(executor.gather(_pid, [(number,) for number in range(60)]))
        reduced |= executor.reduce(_pids, [(number,) for number in range(6)], or_)


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


def test_train__workers_join_and_leave(
    client: Client, both_alive: None, table: Path, expected: Path, tmp_path: Path
) -> None:
    mover = Mover(client)
    bigforest.train(table, out=tmp_path / "f", scheduler=client, listener=mover, **CONFIG)
    assert mover.moved.keys() >= {"encode", "grow", "oob"}
    assert_equal(rows_of(tmp_path / "f"), rows_of(expected))


def test_grow__by_passes_workers_join_and_leave(
    client: Client, both_alive: None, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mover, hand_out = Mover(client, 1), client.map

    def handing_out(function: Callable[..., Any], *arguments: Any, key: list[tuple[str, int]], **options: Any) -> Any:
        mover.move(re.sub("-[0-9a-f]{8,}.*", "", key[0][0]))
        return hand_out(function, *arguments, key=key, **options)

    monkeypatch.setattr(client, "map", handing_out)
    assert_grows_the_same(client, store, TrainConfig(trees=2, seed=3, max_depth=6), tmp_path)
    assert any("bigforest-spill" in key for key in mover.moved)
