"""Tasks run once each, are delivered where and how they should be, and stop at the first error."""

from __future__ import annotations

import threading
import time
import weakref
from types import SimpleNamespace

import pytest

from bigforest.errors import ClusterError
from bigforest.execution.dask_cluster import Cluster
from bigforest.execution.executor import Executor, in_order


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_run__delivers_every_result_once_with_its_number(workers: int) -> None:
    seen: list[tuple[int, int]] = []
    Executor(workers).run(lambda a, b: a * b, [(i, 3) for i in range(40)], lambda i, r: seen.append((i, r)))
    assert sorted(seen) == [(i, 3 * i) for i in range(40)]


def test_run__one_worker_keeps_the_order() -> None:
    started: list[int] = []
    ended: list[int] = []
    Executor(1).run(started.append, [(i,) for i in range(120)], lambda i, _: ended.append(i))
    assert started == ended == list(range(120))


def test_in_order__delivers_a_result_when_all_earlier_ones_are() -> None:
    delivered: list[tuple[int, str]] = []
    on_result = in_order(lambda index, result: delivered.append((index, result)))
    known = []
    for index, result in ((1, "b"), (0, "a"), (3, "d"), (4, "e"), (2, "c")):
        on_result(index, result)
        known.append(len(delivered))
    assert delivered == list(enumerate("abcde"))
    assert known == [0, 2, 2, 2, 5]


def test_gather__gives_results_in_the_order_of_the_tasks() -> None:
    another_ended = threading.Event()
    ended: list[int] = []

    def task(base: int, number: int) -> int:
        assert number or another_ended.wait(60)
        return base + number

    def end(number: int) -> None:
        ended.append(number)
        another_ended.set()

    assert Executor(2).gather(task, [(0,), (1,), (2,)], end, (7,)) == [7, 8, 9]
    assert sorted(ended) == [0, 1, 2]
    assert ended[0] == 1


def test_run__results_are_not_kept() -> None:
    class Bulky:
        pass

    alive: weakref.WeakSet[Bulky] = weakref.WeakSet()
    most = 0

    def task(i: int) -> Bulky:
        return Bulky()

    def deliver(i: int, bulky: Bulky) -> None:
        nonlocal most
        alive.add(bulky)
        most = max(most, len(alive))

    Executor(2).run(task, [(i,) for i in range(50)], deliver)
    assert most < 5


def test_run__delivers_in_the_calling_thread_while_others_run() -> None:
    threads: set[int] = set()
    delivered: set[int] = set()
    first_is_out = threading.Event()

    def task(i: int) -> int:
        if i == 1:
            assert first_is_out.wait(10), "the first result waits for the second task"
        return threading.get_ident()

    def deliver(i: int, thread: int) -> None:
        threads.add(thread)
        delivered.add(threading.get_ident())
        first_is_out.set()

    Executor(2).run(task, [(0,), (1,)], deliver)
    assert delivered == {threading.get_ident()}
    assert threading.get_ident() not in threads


class Broken(Exception):
    """Raised by a task or by a listener."""


def test_run__first_exception_comes_out_as_it_is_and_stops_the_rest() -> None:
    error = Broken("the original")
    started: list[int] = []

    def task(i: int) -> None:
        started.append(i)
        if i == 3:
            raise error

    with pytest.raises(Broken) as caught:
        Executor(1).run(task, [(i,) for i in range(50)])
    assert caught.value is error
    assert started == [0, 1, 2, 3]


def test_run__running_tasks_have_ended_when_an_exception_comes_out() -> None:
    ended: list[int] = []

    def task(i: int) -> None:
        if i == 0:
            raise Broken
        time.sleep(0.2)
        ended.append(i)

    with pytest.raises(Broken):
        Executor(2).run(task, [(0,), (1,)])
    at_once = list(ended)
    time.sleep(0.3)
    assert ended == at_once


@pytest.mark.parametrize("kind", [Broken, KeyboardInterrupt])
def test_run__exception_of_the_listener_stops_the_rest(kind: type[BaseException]) -> None:
    started: list[int] = []

    def stop(i: int, result: None) -> None:
        raise kind

    with pytest.raises(kind):
        Executor(2).run(started.append, [(i,) for i in range(50)], stop)
    assert len(started) < 10


def test_run__may_be_called_by_a_task() -> None:
    inner: list[int] = []

    def task(i: int) -> int:
        Executor(2).run(lambda j: j, [(1,), (2,)], lambda _, r: inner.append(r))
        return i

    Executor(2).run(task, [(0,), (1,)])
    assert sorted(inner) == [1, 1, 2, 2]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_gather__in_the_order_of_arguments(workers: int) -> None:
    threads = set()
    together = threading.Barrier(workers, timeout=20)

    def task(i: int) -> int:
        if i < workers:
            together.wait()  # as many tasks run at a time
        threads.add(threading.get_ident())
        return i * i

    assert Executor(workers).gather(task, [(i,) for i in range(20)]) == [i * i for i in range(20)]
    assert len(threads) == workers
    assert Executor(workers).gather(task, []) == []


@pytest.mark.parametrize("failing", [0, 1])
def test_gather__no_task_starts_after_one_has_failed(failing: int) -> None:
    started: list[int] = []
    begun = threading.Barrier(2, timeout=20)

    def task(i: int) -> None:
        started.append(i)
        if i < 2:
            begun.wait()
        if i == failing:
            raise ZeroDivisionError(i)
        time.sleep(0.5)  # in which the thread of the task that failed could start others

    with pytest.raises(ZeroDivisionError, match=str(failing)):
        Executor(2).gather(task, [(i,) for i in range(9)])
    assert sorted(started) == [0, 1]


def test_errors__a_client_that_has_closed_itself_has_lost_its_scheduler() -> None:
    """It has none then, whatever is asked of it."""
    client = SimpleNamespace(id="client", status="closed", scheduler=None)
    with pytest.raises(ClusterError, match=r"connection .* was lost while asking"), Cluster(client).errors("asking"):
        client.scheduler.broadcast()
    client.status = "running"
    with pytest.raises(AttributeError), Cluster(client).errors("asking"):
        client.scheduler.broadcast()
