"""Workers that come, go, are slow, or have a full disk: the same results, and what was wrong is said."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import polars as pl
import pytest
from distributed import Client, LocalCluster

import bigforest
from bigforest.errors import DiskFullError
from bigforest.events import Event, Notice, StageAdvanced, silent
from bigforest.execution import cluster as clusters
from bigforest.execution import connect, exchange, pace
from bigforest.execution.cluster import Cluster
from bigforest.execution.dask_cluster import ClusterExecutor
from bigforest.execution.pace import Pace
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


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "LEAST_SECONDS", 0.2)
    monkeypatch.setattr(clusters, "_RACES", 1)


def _held_up(place: str, slow: int, number: int) -> int:
    """What the process `slow` does not finish before there is a file `place`, whose folder says that it has begun."""
    end = time.monotonic() + 120
    while os.getpid() == slow and not Path(place).exists() and time.monotonic() < end:
        Path(place).with_name("begun").touch()
        time.sleep(0.02)
    assert time.monotonic() < end
    return number


def _held_up_list(place: str, slow: int, number: int) -> list[int]:
    return [_held_up(place, slow, number), 10 * number]


def _finished(place: str, slow: int, part: int) -> int:
    return part


@pytest.mark.parametrize("way", ["run", "reduce", "reduce_parts"])
def test_cluster__a_slow_worker_holds_nothing_up(
    client: Client, two: None, impatient: None, tmp_path: Path, way: str
) -> None:
    cluster = Cluster(client)
    executor = ClusterExecutor(cluster, 1)
    pids = client.run(os.getpid)
    address, slow = min(pids.items(), key=lambda one: one[1])
    shared = (str(tmp_path / "go on"), slow)
    arguments = [(number,) for number in range(4)]
    if way == "run":
        found: Any = {}
        executor.run(_held_up, arguments, found.__setitem__, shared)
        assert found == {number: number for number in range(4)}
    elif way == "reduce":
        assert executor.reduce(_held_up, arguments, max, shared) == 3
    else:
        assert executor.reduce_parts(_held_up_list, arguments, max, _finished, [(), ()], shared) == [3, 30]
    assert (tmp_path / "begun").exists()
    assert list(cluster.trouble) == [address]
    assert "slower" in cluster.trouble[address]
    assert executor.size == 1  # it gets work last
    (tmp_path / "go on").touch()


def _first_slow(place: str, pids: tuple[int, ...], part: int) -> int:
    """What the first process that comes here does not finish before the other has taken over."""
    with suppress(FileExistsError), Path(place).open("x") as file:
        file.write(str(os.getpid()))
    end = time.monotonic() + 120
    while Path(place).read_text() == str(os.getpid()) and not Path(f"{place}-other").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    return part


def _counted(place: str, pids: tuple[int, ...], number: int) -> list[int]:
    return [number, 10 * number]


def test_reduce_parts__a_slow_owner_is_handed_on(client: Client, two: None, impatient: None, tmp_path: Path) -> None:
    """The other finishes its part too, from the same counts."""
    cluster = Cluster(client)
    shared = (str(tmp_path / "slow"), tuple(client.run(os.getpid).values()))
    arguments = [(number,) for number in range(4)]
    executor = ClusterExecutor(cluster, 1)
    assert executor.reduce_parts(_counted, arguments, max, _first_slow, [(), ()], shared) == [3, 30]
    slow = (tmp_path / "slow").read_text()
    (tmp_path / "slow-other").touch()
    [trouble] = cluster.trouble
    assert client.run(os.getpid, workers=[trouble]) == {trouble: int(slow)}


def test_reduce_parts__workers_keep_parts_until_the_next_run(client: Client, two: None) -> None:
    executor = ClusterExecutor(Cluster(client), 1)
    for _ in range(2):
        shared = ("", ())
        assert executor.reduce_parts(_counted, [(1,), (2,)], max, _part, [(), ()], shared) == [2, 20]
        assert [len(runs) for runs in client.run(_kept).values()] == [1, 1]
    executor.run_on_all_workers(_kept)
    assert executor.reduce(abs, [(-1,), (-2,)], max) == 2
    executor.run(abs, [(-1,)], lambda *_: None)
    executor.run_on_all_workers(_kept)
    assert list(client.run(_kept).values()) == [[], []]


def test_crew_of__leaves_no_parts_behind(client: Client, two: None, tmp_path: Path) -> None:
    """Each call has a cluster of its own, so no later run of it would have them forgotten."""
    before = client.run(_kept)
    with connect.open_resources(client, Resources(threads=1, scratch=tmp_path), None, silent) as resources:
        assert resources.executor().reduce(abs, [(-1,), (-2,)], max) == 2
        assert [len(runs) for runs in client.run(_kept).values()] == [len(runs) + 1 for runs in before.values()]
    assert client.run(_kept) == before


def _part(place: str, pids: tuple[int, ...], part: int) -> int:
    return part


def _kept() -> list[Any]:
    return [run for run, _ in exchange._HELD.values()]


def test_cluster__a_late_task_waits_for_a_worker_that_is_free(
    client: Client, two: None, impatient: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_than, asked = Cluster.other_than, []

    def none_at_first(self: Cluster, *given: Any) -> str | None:
        asked.append(given)
        return other_than(self, *given) if len(asked) > 1 else None

    monkeypatch.setattr(Cluster, "other_than", none_at_first)
    shared = (str(tmp_path / "go on"), min(client.run(os.getpid).values()))
    found: dict[int, int] = {}
    ClusterExecutor(Cluster(client), 1).run(_held_up, [(n,) for n in range(4)], found.__setitem__, shared)
    assert found == {number: number for number in range(4)}
    assert len(asked) > 1
    (tmp_path / "go on").touch()


def _full_in(places: tuple[int, ...], number: int) -> int:
    if os.getpid() in places:
        raise OSError(errno.ENOSPC, "No space left on device")
    return number


def test_cluster__a_full_disk_of_one_worker(client: Client, two: None) -> None:
    cluster = Cluster(client)
    address, pid = min(client.run(os.getpid).items())
    found: dict[int, int] = {}
    ClusterExecutor(cluster, 1).run(_full_in, [(n,) for n in range(5)], found.__setitem__, ((pid,),))
    assert found == {number: number for number in range(5)}
    assert list(cluster.trouble) == [address]
    assert "full disk" in cluster.trouble[address]


def test_cluster__a_full_disk_of_all_workers(client: Client, two: None) -> None:
    pids = tuple(client.run(os.getpid).values())
    with pytest.raises(DiskFullError, match="No space left on device"):
        ClusterExecutor(Cluster(client), 1).run(_full_in, [(n,) for n in range(5)], lambda *_: None, (pids,))


def test_cluster__a_full_disk_of_the_twin_of_a_slow_worker(
    client: Client, two: None, impatient: None, tmp_path: Path
) -> None:
    cluster = Cluster(client)
    slow, pid = min(client.run(os.getpid).items())
    cluster.trouble[slow] = "is slow"
    found: dict[int, int] = {}
    shared = (str(tmp_path / "go on"), pid)
    ClusterExecutor(cluster, 1).run(_slow_or_full, [(n,) for n in range(4)], found.__setitem__, shared)
    assert found == {number: number for number in range(4)}
    assert "full disk" in str(cluster.trouble)


def _slow_or_full(place: str, slow: int, number: int) -> int:
    """Waits in one worker, until the task that waits is done in another one, which has a full disk."""
    mark, held = Path(place), Path(f"{place}-{number}")
    if os.getpid() == slow:
        held.touch()
        while not mark.exists():
            time.sleep(0.01)
    elif held.exists():
        mark.touch()
        raise OSError(errno.ENOSPC, "No space left on device")
    return number


def test_cluster__parts_of_a_client_that_was_killed(client: Client, two: None) -> None:
    before = client.run(_kept)
    with Client(client.scheduler.address, set_as_default=False) as other:
        assert ClusterExecutor(Cluster(other), 1).reduce(abs, [(-1,), (-2,)], max) == 2
        Cluster(client).check()
        assert client.run(_kept) != before
    Cluster(client).check()
    assert client.run(_kept) == before


def test_crew_of__says_what_was_wrong(client: Client, two: None, tmp_path: Path) -> None:
    heard: list[Event] = []
    with connect.open_resources(client, Resources(threads=1, scratch=tmp_path), None, heard.append) as resources:
        assert resources.cluster is not None
        resources.cluster.trouble["tcp://there"] = "has a full disk"
    assert "the worker tcp://there has a full disk" in [event.message for event in heard if isinstance(event, Notice)]


class Mover:
    """A listener that has a worker join or leave whenever a stage gets on."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.moved: set[str] = set()

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageAdvanced):
            self.move()
            self.moved.add(event.stage)

    def move(self) -> None:
        self._client.cluster.scale(3 if len(self._client.scheduler_info()["workers"]) == 2 else 2)


def test_train__workers_join_and_leave(client: Client, two: None, tmp_path: Path) -> None:
    table = frame().with_columns(late=pl.when(pl.int_range(pl.len()) % 1000 > 0).then("late"))
    table.write_parquet(tmp_path / "t.parquet")
    bigforest.train(tmp_path / "t.parquet", out=tmp_path / "expected", threads=2, scheduler="threads", **CONFIG)
    mover = Mover(client)
    bigforest.train(tmp_path / "t.parquet", out=tmp_path / "f", scheduler=client, listener=mover, **CONFIG)
    assert mover.moved >= {"encode", "grow", "oob"}
    assert_equal(rows_of(tmp_path / "f"), rows_of(tmp_path / "expected"))


def test_grow__by_passes_workers_join_and_leave(
    client: Client, two: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bigforest.encode_store(frame(), tmp_path / "s", target="late", scheduler="threads")
    config, mover, hand_out = TrainConfig(trees=2, seed=3, max_depth=6), Mover(client), client.map

    def handing_out(function: Callable[..., Any], *arguments: Any, key: list[str], **options: Any) -> Any:
        mover.move()
        mover.moved.update(key)
        return hand_out(function, *arguments, key=key, **options)

    monkeypatch.setattr(client, "map", handing_out)
    cluster = Resources(threads=1, scratch=tmp_path, cluster=Cluster(client))
    for name, resources, way in (("a", Resources(threads=1), None), ("b", cluster, BY_PASSES)):
        grow_forest(ForestJob(store, config, tmp_path / name, resources, silent), way=way)
    contents = [[path.read_bytes() for path in part_paths(tmp_path / name)] for name in "ab"]
    assert contents[0] == contents[1]
    assert any("bigforest-spill" in key for key in mover.moved)


def test_pace__late_are_those_that_take_longer_than_most(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    # Not `time.monotonic` itself: the loops of Dask would never see their waits end.
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=lambda: now))
    seen = Pace()
    for number in range(5):
        seen.begin(number)
    now = 2.0
    seen.end(0)
    seen.end(1)
    now = 100.0
    assert seen.late() == []  # fewer have ended than are left
    seen.end(2)
    now = 109.0
    seen.begin(5)
    seen.end(5)
    assert seen.late() == [3, 4]
    assert seen.late() == []
