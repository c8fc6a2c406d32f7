"""Tasks on a Dask cluster: each is done once, where it should be, and its errors come out."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from operator import add
from pathlib import Path
from typing import Any

import numba
import pytest
from distributed import Client

from bigforest.errors import ClusterError, DataError, FormatError
from bigforest.execution import dask_cluster, pace, worker
from bigforest.execution.cluster import Cluster
from bigforest.execution.dask_cluster import ClusterExecutor, share_out
from bigforest.execution.executor import Threads
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
    assert 1 <= begun < 20  # the first task of each worker, of at most 8 calls
    assert all(path.read_text() == "end" for path in tmp_path.iterdir())
    time.sleep(0.5)
    assert len(list(tmp_path.iterdir())) == begun


def test_run__few_messages_take_tasks_there_and_results_back(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "_BETWEEN_FETCHES", 600.0)
    sent: Counter[str] = Counter()
    for name in ("map", "gather"):
        monkeypatch.setattr(client, name, _counted(getattr(client, name), name, sent))
    found: dict[int, int] = {}
    ClusterExecutor(Cluster(client), 1).run(abs, [(-number,) for number in range(60)], found.__setitem__)
    assert found == {number: number for number in range(60)}
    assert len(share_out([1] * 60, 2, 8)) >= 12  # tasks
    assert sent["gather"] == 2  # the first results, and all others
    assert sent["map"] <= 7  # as many as run at once in each, after the first


def test_gather__results_that_nobody_waits_for_are_fetched_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: Counter[str] = Counter()
    monkeypatch.setattr(client, "gather", _counted(client.gather, "gather", sent))
    executor = ClusterExecutor(Cluster(client), 1)
    assert executor.gather(abs, [(-number,) for number in range(60)]) == list(range(60))
    assert sent["gather"] == 1


def _counted(function: Callable[..., Any], name: str, counts: Counter[str]) -> Callable[..., Any]:
    def counted(*arguments: Any, **keywords: Any) -> Any:
        counts[name] += 1
        return function(*arguments, **keywords)

    return counted


def _slow(folder: str, number: int) -> None:
    path = Path(folder) / str(number)
    path.write_text("begin")
    time.sleep(0.3)
    path.write_text("end")


def test_reduce__a_task_is_done_where_it_was_done_before(
    client: Client, both_alive: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "LEAST_SECONDS", 600.0)  # a new worker loads modules first
    executor = ClusterExecutor(Cluster(client), 1)
    first, *others = (executor.reduce(_where, [(number,) for number in range(2)], _both) for _ in range(5))
    assert sorted(first.values()) == sorted(client.scheduler_info()["workers"])
    assert others == [first] * 4


def _where(number: int) -> dict[int, str]:
    return {number: worker._address()}


def _both(one: dict[int, str], two: dict[int, str]) -> dict[int, str]:
    return one | two


def test_reduce__tasks_for_all_workers_go_in_one_message(
    client: Client, both_alive: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_out: list[list[str]] = []
    hand_out = client.map

    def handing_out(*given: Any, key: list[str], **options: Any) -> Any:
        handed_out.append(key)
        return hand_out(*given, key=key, **options)

    monkeypatch.setattr(client, "map", handing_out)
    found = ClusterExecutor(Cluster(client), 1).reduce(_where, [(0,), (1,)], _both)
    assert [len(keys) for keys in handed_out] == [2]
    assert sorted(found.values()) == sorted(client.scheduler_info()["workers"])


@pytest.mark.parametrize(("calls", "carried"), [(2, True), (4, False)])
def test_run__large_shared_data_is_sent_once(
    client: Client, both_alive: None, calls: int, carried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_out: list[Any] = []
    hand_out = client.map
    monkeypatch.setattr(client, "map", lambda *own, **more: (handed_out.append(own[0]), hand_out(*own, **more))[1])
    found: list[int] = []
    shared = (bytes(200_000),)
    ClusterExecutor(Cluster(client), 1).run(_size_and, [(1,)] * calls, lambda _, size: found.append(size), shared)
    assert found == [200_001] * calls
    assert (worker.unpack not in handed_out) == carried


def _size_and(shared: bytes, more: int) -> int:
    return len(shared) + more


@pytest.mark.parametrize(("size", "tasks"), [(10, 2), (1 << 16, 3)])
def test_reduce__small_results_are_merged_here_and_fetched_together(
    client: Client, both_alive: None, size: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []
    gather = client.gather

    def gathering(several: dict[str, Any], **options: Any) -> Any:
        fetched.append(len(several))
        return gather(several, **options)

    monkeypatch.setattr(client, "gather", gathering)
    cluster = Cluster(client)
    assert ClusterExecutor(cluster, 1).reduce(_bytes_of, [(size,), (size,)], add) == bytes(2 * size)
    assert sum(spent.tasks for spent in cluster.spent.values()) == tasks
    assert fetched == [2, 1][: tasks - 1]


def _bytes_of(size: int) -> bytes:
    return bytes(size)


def test_reduce_parts__each_part_is_finished_once_from_all_tasks(client: Client, both_alive: None) -> None:
    for executor in (ClusterExecutor(Cluster(client), 1), Threads(2)):
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


def test_discard__workers_remove_files_with_what_they_do_next(client: Client, both_alive: None, tmp_path: Path) -> None:
    executor = ClusterExecutor(Cluster(client), 1)
    files = [tmp_path / str(number) for number in range(9)]
    for file in files:
        file.touch()
    executor.discard([*files[:5], tmp_path / "missing"])
    assert sorted(tmp_path.iterdir()) == files  # it is not for the client
    assert executor.gather(abs, [(-1,), (-2,)], even=True) == [1, 2]
    assert sorted(tmp_path.iterdir()) == files[5:]
    executor.discard(files[5:7])
    assert executor.reduce(abs, [(-1,), (-2,)], max) == 2
    assert sorted(tmp_path.iterdir()) == files[7:]
    executor.discard(files[7:])
    assert executor.run_on_all_workers(os.getpid)
    assert not list(tmp_path.iterdir())


def test_discard__threads_remove_files_at_once(tmp_path: Path) -> None:
    files = [tmp_path / str(number) for number in range(5)]
    for file in files[1:]:
        file.touch()
    Threads(2).discard(files)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("calls", "processes", "most"), [(0, 1, 8), (7, 2, 8), (5000, 3, 128), (5, 100, 64)])
def test_share_out__makes_all_calls_and_gets_smaller(calls: int, processes: int, most: int) -> None:
    sizes = share_out([1] * calls, processes, most)
    assert sum(sizes) == calls
    assert sizes[:-1] == sorted(sizes[:-1], reverse=True)
    assert max(sizes, default=0) <= most
    assert calls < 5000 or len(sizes) < calls / 32


@pytest.mark.parametrize(("processes", "most_tasks"), [(2, 10), (6, 32)])
def test_share_out__by_cost_workers_end_together(processes: int, most_tasks: int) -> None:
    costs = [40 + 3600 // (1 + number) for number in range(200)]
    sizes = share_out(costs, processes)
    assert sum(sizes) == len(costs)
    assert len(sizes) <= most_tasks
    ends = [0] * processes
    following = 0
    for size in sizes:
        ends[ends.index(min(ends))] += sum(costs[following : following + size])
        following += size
    assert max(ends) < 1.05 * sum(costs) / processes


@pytest.mark.parametrize(
    ("calls", "processes", "sizes"),
    [(0, 2, []), (8, 2, [4, 4]), (7, 3, [2, 2, 3]), (2, 5, [1, 1]), (40, 2, [20, 20])],
)
def test_share_out__even_calls(calls: int, processes: int, sizes: list[int]) -> None:
    assert share_out([1] * calls, processes, even=True) == sizes


def test_store__is_mapped_once_and_checked(store: Store, tmp_path: Path) -> None:
    import pickle

    packed = pickle.dumps(store)
    assert len(packed) < 1000
    assert pickle.loads(packed) is pickle.loads(packed)
    again, (path, _, opened, made_by) = store.__reduce__()
    with pytest.raises(FormatError, match="not the store"):
        again(path, "0" * 32, opened, made_by)
