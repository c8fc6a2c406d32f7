"""Tasks on a Dask cluster: each is done once, where it should be, and its errors come out."""

from __future__ import annotations

import os
import threading
import time
from itertools import chain, repeat
from operator import add
from pathlib import Path

import numba
import pytest
from distributed import Client, get_worker

from bigforest.errors import ClusterError, DataError, FormatError
from bigforest.execution import worker
from bigforest.execution.dask_cluster import Cluster, ClusterExecutor, task_count
from bigforest.execution.executor import Executor
from bigforest.store.store import Store

pytestmark = [
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def test_run__a_task_that_fails_is_tried_again_and_reported(client: Client, tmp_path: Path) -> None:
    executor = ClusterExecutor(Cluster(client), 1)
    found: list[int] = []
    executor.run(_fails_once, [(str(tmp_path / "tried"), 7)], lambda _, result: found.append(result))
    assert found == [7]
    with pytest.raises(ClusterError, match=r"listdir failed 3 times \(FileNotFoundError.*missing") as caught:
        executor.run(os.listdir, [(str(tmp_path / "missing"),)], lambda *_: None)
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def _fails_once(place: str, number: int) -> int:
    if not Path(place).exists():
        Path(place).touch()
        raise OSError("the disk does not answer")
    return number


def test_run__an_error_leaves_nothing_running(client: Client, tmp_path: Path) -> None:
    executor = ClusterExecutor(Cluster(client), 1)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executor.run(_slow, [(str(tmp_path), number) for number in range(30)], fail)
    begun = len(list(tmp_path.iterdir()))
    assert 1 <= begun < 20
    assert all(path.read_text() == "end" for path in tmp_path.iterdir())
    time.sleep(0.5)
    assert len(list(tmp_path.iterdir())) == begun


def _slow(folder: str, number: int) -> None:
    path = Path(folder) / str(number)
    path.write_text("begin")
    time.sleep(0.3)
    path.write_text("end")


@pytest.mark.parametrize("method", ["gather", "map"])
def test_run__workers_leave_while_tasks_wait(one: Client, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    processes = chain([4, 4], repeat(1))
    monkeypatch.setattr(ClusterExecutor, "processes", property(lambda _: next(processes)))
    call = getattr(ClusterExecutor(Cluster(one), 1), method)
    assert [*call(pow, [(number, 2) for number in range(20)])] == [number**2 for number in range(20)]


def test_reduce__a_share_is_computed_where_it_was_before(client: Client, both_alive: None) -> None:
    executor = ClusterExecutor(Cluster(client), 1)
    first, *others = (executor.reduce(_where, [(number,) for number in range(2)], _both) for _ in range(5))
    assert sorted(first.values()) == sorted(client.scheduler_info()["workers"])
    assert others == [first] * 4


def _where(number: int) -> dict[int, str]:
    return {number: get_worker().address}


def _both(one: dict[int, str], two: dict[int, str]) -> dict[int, str]:
    return one | two


def test_reduce__results_are_merged_in_a_tree(
    client: Client, both_alive: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(client)
    seats = client.map(worker.make_seat, range(20), pure=False)
    monkeypatch.setattr(cluster, "seats", lambda: seats)
    assert ClusterExecutor(cluster, 1).reduce(_letter, [(number,) for number in range(100)], add) == 100 * "a"
    assert sum(stats.tasks for stats in cluster.stats().values()) == 20 + 3 + 1


def _letter(number: int) -> str:
    return "a"


def test_run__one_task_at_a_time_in_each_worker(one: Client, tmp_path: Path) -> None:
    executor = ClusterExecutor(Cluster(one), 1)
    assert executor.size == 1
    executor.run(_alone, [(str(tmp_path / "here"), number) for number in range(8)], lambda *_: None)


def test_run__a_task_uses_all_threads_of_its_worker(one: Client) -> None:
    ClusterExecutor(Cluster(one), 2).run(_meet, [()] * 8, lambda *_: None)


_BOTH = threading.Barrier(2, timeout=60)


def _meet() -> None:
    _BOTH.wait()


@pytest.mark.parametrize(
    ("calls", "processes", "threads", "tasks"),
    [(0, 2, 8, 0), (1, 2, 8, 1), (16, 2, 8, 2), (100, 2, 8, 12), (100, 100, 16, 100), (1000, 2, 8, 24), (7, 2, 1, 7)],
)
def test_task_count__keeps_workers_and_their_threads_busy(calls: int, processes: int, threads: int, tasks: int) -> None:
    assert task_count(calls, processes, threads) == tasks


def _alone(place: str, number: int) -> None:
    with Path(place).open("x"):
        time.sleep(0.02)
    Path(place).unlink()


def test_reduce_parts__each_part_is_finished_once_from_all_tasks(client: Client, both_alive: None) -> None:
    for executor in (ClusterExecutor(Cluster(client), 1), Executor(2)):
        found = executor.reduce_parts(
            _thrice, [(number,) for number in range(5)], max, _joined, [("a",), ("b",), ("c",)], (1,)
        )
        assert found == ["a 1 4", "b 1 8", "c 1 12"]


def _thrice(shared: int, number: int) -> list[int]:
    return [number * times * shared for times in (1, 2, 3)]


def _joined(*given: object) -> str:
    shared, name, part = given
    return f"{name} {shared} {part}"


def test_reduce_parts__errors_of_ours_come_out(client: Client, both_alive: None) -> None:
    executor = ClusterExecutor(Cluster(client), 1)
    with pytest.raises(DataError, match="no such number"):
        executor.reduce_parts(_refuses, [(0,), (1,)], max, _joined, [("a",)], (1,))


def _refuses(shared: int, number: int) -> list[int]:
    raise DataError("no such number")


def test_store__is_mapped_once_and_checked(store: Store, tmp_path: Path) -> None:
    import pickle

    packed = pickle.dumps(store)
    assert len(packed) < 1000
    assert pickle.loads(packed) is pickle.loads(packed)
    again, (path, _, opened, made_by) = store.__reduce__()
    with pytest.raises(FormatError, match="not the store"):
        again(path, "0" * 32, opened, made_by)
