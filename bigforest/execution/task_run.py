"""The tasks of one call on a cluster: handed out a few at a time, and seen through, whatever happens to their workers.

Arguments are packed here and unpacked in the workers, so that the scheduler, which unpacks what is not bytes, opens no
files.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from dask import annotate

from bigforest.errors import BigForestError, ClusterError, DiskFullError
from bigforest.execution import worker
from bigforest.execution.cluster import Cluster
from bigforest.execution.exchange import HeldParts
from bigforest.execution.executor import PartBatch, TaskBatch
from bigforest.execution.pace import Pace
from bigforest.execution.worker import Done, Order

# Tasks on their way per running task, so that no worker waits for the next. They are handed out when there is room for
# as many as run.
AHEAD = 3
# Retries of a failing task, for instance because a disk did not answer.
RETRIES = 2
# Most bytes of shared data that the tasks of a call carry themselves, all together; more is a task of its own.
_CARRIED = 1 << 19
# Most bytes of results that the client merges itself, all together.
SMALL = 1 << 16
# Seconds for running tasks to end after an error, and between two looks whether they have.
_PATIENCE = 60.0
_BETWEEN_LOOKS = 0.2
# Seconds between two looks for tasks that are late, and for those that no worker does.
_BETWEEN_PACES = 1.0
_BETWEEN_SEARCHES = 2.0


class Call(NamedTuple):
    """A task to be handed out: a function of worker.py, its arguments, and the name of its kind."""

    function: Callable[..., Done]
    arguments: tuple[Any, ...]
    name: str


class TaskRun:
    """Tasks of one call; a context manager, which leaves no task behind when its block fails.

    handed_on  whether a task was handed to another worker while the first one was at it.
    """

    def __init__(self, cluster: Cluster, job: TaskBatch[Any], slots: int, tasks: int) -> None:
        """tasks: how many there will be that make calls."""
        self._cluster = cluster
        self._client = cluster.client
        self._function = job.function
        self._name = f"bigforest-{label(job.function)}-{secrets.token_hex(8)}"
        self.handed_on = False
        self._order = Order(cluster.new_run(), slots, worker.versions_here(), ())
        self._number = 0
        self._near: dict[str, str] = {}
        packed = pickle.dumps(job.shared)
        self._shared = packed
        if len(packed) * tasks > _CARRIED:
            [self._shared] = self.submit([Call(worker.unpack, (packed,), self._name)], [None])

    def __enter__(self) -> TaskRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._wait_stopped()

    def _next_order(self) -> Order:
        return self._order._replace(discarded=self._cluster.take_discarded())

    def call(self, several: Sequence[tuple[Any, ...]]) -> Call:
        """A task that makes some calls."""
        packed = pickle.dumps((self._function, several))
        return Call(worker.perform, (self._next_order(), packed, self._shared), self._name)

    def hold(self, several: Sequence[tuple[Any, ...]], merge: Callable[..., Any], threads: int, small: int) -> Call:
        """A task that makes some calls on this number of threads and keeps what they give, merged; see
        worker.hold_here."""
        packed = pickle.dumps((self._function, merge, several, threads, small))
        return Call(worker.hold_here, (self._next_order(), packed, self._shared), self._name)

    def finish(self, of_parts: PartBatch[Any, Any], numbers: Sequence[int], held: Sequence[HeldParts]) -> Call:
        """A task that finishes some parts; see worker.finish_parts."""
        own = {number: of_parts.own[number] for number in numbers}
        packed = pickle.dumps((of_parts.finish, own, of_parts.merge, held))
        name = f"bigforest-{label(of_parts.finish)}-{secrets.token_hex(8)}"
        return Call(worker.finish_parts, (self._order, packed, self._shared), name)

    def completed(
        self,
        calls: Iterator[tuple[Call, str | None]],
        ahead: int,
        seats: Sequence[int] | None = None,
        *,
        patience: float = 0.0,
    ) -> Iterator[tuple[int, Any]]:
        """Results as tasks end, with their numbers; about `ahead` seats of workers have a task on its way.

        calls     the tasks, and the workers that had better do them
        seats     of each task, which it takes at once; None for one each
        patience  seconds between two fetches of results, the first of which is at once; math.inf for a single one in
                  the end. Fetching several together takes less of client and scheduler

        A task that is late when no more are handed out is given to another worker too, and the first result counts; so
        is one whose worker has a full disk.
        """
        tasks = _OnTheirWay(self, self._cluster, calls, ahead, seats, patience)
        while tasks.fill():
            ended = tasks.take(tasks.wait())
            tasks.fill()
            for number, done in ended:
                yield number, done.result

    def submit(self, calls: Sequence[Call], near: Sequence[str | None]) -> list[Any]:
        """The futures of some tasks of a kind, and the workers that had better do them; handed out in one message."""
        keys = [f"{call.name}-{self._number + place}" for place, call in enumerate(calls, 1)]
        self._number += len(calls)
        self._near |= {key: where for key, where in zip(keys, near, strict=True) if where is not None}
        workers = {key: [] if where is None else [where] for key, where in zip(keys, near, strict=True)}
        arguments = zip(*(call.arguments for call in calls), strict=True)
        # The scheduler asks for the workers of each key.
        each = annotate(workers=workers.get, allow_other_workers=True)
        with self._cluster.errors(f"handing out {name_of(self._function)}"), each:
            found: list[Any] = self._client.map(
                calls[0].function, *map(list, arguments), key=keys, retries=RETRIES, pure=False
            )
        return found

    def workers_at(self, futures: Sequence[Any]) -> set[str]:
        """The workers that are at some tasks, or have them in their queue."""
        with self._cluster.errors("asking who does what"):
            queues = self._client.processing()
        keys = {future.key for future in futures}
        return {address for address, queue in queues.items() if not keys.isdisjoint(queue)}

    def stranded(self, futures: Iterable[Any]) -> list[Any]:
        """The tasks that no worker does. When all workers go at once, Dask lets a task wait for the worker that had
        better do it, although others come."""
        bound = [future for future in futures if future.key in self._near]
        there = self._cluster.threads() if bound else {}
        gone = [future for future in bound if self._near[future.key] not in there] if there else []
        return [future for future in gone if future.status == "pending" and not self.workers_at([future])]

    def cancel(self, futures: Sequence[Any]) -> None:
        """Forget some tasks."""
        with self._cluster.errors("dropping tasks"):
            self._client.cancel(futures)

    def results(self, futures: Sequence[Any]) -> dict[Any, Done]:
        """The results of those of some tasks that have them, fetched together."""
        there = {future.key: future for future in futures if future.status == "finished"}
        with self._cluster.errors(name_of(self._function)):
            found = self._client.gather(there, errors="skip")
        return {there[key]: done for key, done in found.items() if done is not None}

    def result(self, future: Any) -> Done:
        """The result of a task; raises its error."""
        from distributed import KilledWorker

        if future.status in ("lost", "pending"):  # it had ended, its worker died since, and it runs again
            with self._cluster.errors(name_of(self._function)):
                future.exception()  # waits
        if future.status == "error":
            error = future.exception()
            if isinstance(error, KilledWorker):
                raise ClusterError(
                    f"the task {name_of(self._function)} has lost {error.allowed_failures + 1} workers, the last of "
                    f"them {error.last_worker.address}; look for the reason in its log (often too little "
                    "memory): lower memory, or give the workers more"
                ) from error
            if isinstance(error, BigForestError):
                raise error
            raise ClusterError(
                f"the task {name_of(self._function)} failed {RETRIES + 1} times ({type(error).__name__}: {error})"
            ) from error
        if future.status != "finished":
            raise ClusterError(f"the connection to the scheduler was lost during {name_of(self._function)}")
        with self._cluster.errors(name_of(self._function)):
            done: Done = future.result()
        return done

    def stop(self) -> bool:
        """Start no further task, and forget the parts that workers keep; whether any tasks are still running."""
        return any(self._cluster.on_each(worker.stop, self._order.run).values())

    def _wait_stopped(self) -> None:
        """Cancel queued tasks and wait for running ones, as far as the scheduler still answers."""
        with contextlib.suppress(BigForestError):
            deadline = time.monotonic() + _PATIENCE
            while self.stop():
                if time.monotonic() > deadline:
                    return
                time.sleep(_BETWEEN_LOOKS)


class _OnTheirWay:
    """The tasks of a run that have been handed out and have not ended; see TaskRun.completed."""

    def __init__(
        self,
        run: TaskRun,
        cluster: Cluster,
        calls: Iterator[tuple[Call, str | None]],
        ahead: int,
        seats: Sequence[int] | None,
        patience: float,
    ) -> None:
        from distributed import as_completed

        self._run = run
        self._cluster = cluster
        self._following = enumerate(calls)
        self._ahead = self._room = ahead
        self._seats = seats
        self._patience = patience
        self._due = patience if patience == math.inf else 0.0  # when results are fetched, if there are any
        self._last = False  # whether all tasks are handed out
        self._tasks: dict[int, Call] = {}
        self._busy: set[int] = set()  # tasks that have not ended, which take seats
        self._numbers: dict[Any, int] = {}  # of the task of each future: a task may have two
        self._ended = as_completed(loop=cluster.client.loop)
        self._pace = Pace()
        self._late: list[int] = []
        self._quick: list[str] = []  # workers, in the order in which they ended tasks
        self._search = time.monotonic() + _BETWEEN_SEARCHES

    def fill(self) -> bool:
        """Hand out tasks if there is room for some, which go in one message; returns whether any are on their way."""
        following: dict[int, str | None] = {}
        enough = AHEAD * self._room >= self._ahead
        while enough and self._room > 0 and not self._last:
            number, (call, near) = next(self._following, (-1, (None, None)))
            if call is None:
                self._last = True
                break
            self._tasks[number] = call
            self._busy.add(number)
            following[number] = near
            self._room -= self._taken(number)
            self._pace.begin(number)
        if following:
            self._hand_out(following)
        return bool(self._numbers)

    def wait(self) -> list[Any]:
        """Wait until some have ended and results are to be fetched, and meanwhile hand out those that follow, and hand
        on those that nobody does, or that are late; gives those that have ended."""
        ended: list[Any] = []
        # If some are late, others can take them over once it is known who they are.
        while not ended or not (self._late or time.monotonic() >= self._due or self._are_over(ended)):
            with self._ended.thread_condition:
                if not self._ended.has_ready():
                    self._ended.thread_condition.wait(_BETWEEN_PACES)
            for future in self._ended.next_batch(block=False):
                ended.append(future)
                self._leave(self._numbers.get(future, -1))
            if not _some_failed(ended):
                self.fill()
            if time.monotonic() > self._search:
                for future in self._run.stranded(set(self._numbers) - set(ended)):
                    self._hand_out({self._numbers.pop(future): None})
                    self._run.cancel([future])
                self._search = time.monotonic() + _BETWEEN_SEARCHES
            self._late += self._pace.late() if self._last else ()
            while self._late and not ended:
                number = self._late.pop()
                if number in self._tasks:
                    self._hand_on(number)
        self._due = time.monotonic() + self._patience
        return ended

    def _leave(self, number: int) -> None:
        """A task has ended, and its seats are free."""
        self._pace.end(number)
        if number in self._busy:
            self._busy.remove(number)
            self._room += self._taken(number)

    def _are_over(self, ended: Sequence[Any]) -> bool:
        """Whether all tasks have ended, or one did not end well."""
        over = {self._numbers[future] for future in ended if future in self._numbers}
        return over >= set(self._numbers.values()) or _some_failed(ended)

    def take(self, ended: Sequence[Any]) -> list[tuple[int, Done]]:
        """The results of tasks that have ended, those that count."""
        results = self._run.results([future for future in ended if future in self._numbers])
        found = []
        for future in ended:
            number = self._numbers.pop(future, -1)
            if number < 0:
                continue  # another worker was faster
            twins = [other for other, own in self._numbers.items() if own == number]
            try:
                done = results.get(future) or self._run.result(future)
            except BigForestError:
                if not twins:
                    raise
                continue
            if isinstance(done.failure, DiskFullError) and self._without(number, done, twins):
                continue
            if done.failure is not None:
                raise done.failure
            self._end(number, done, twins)
            found.append((number, done))
        return found

    def _hand_out(self, near: Mapping[int, str | None]) -> None:
        """Hand out tasks by their numbers to the workers that had better do them."""
        futures = self._run.submit([self._tasks[number] for number in near], list(near.values()))
        for number, future in zip(near, futures, strict=True):
            self._numbers[future] = number
            self._ended.add(future)

    def _hand_on(self, number: int) -> None:
        """Give a late task to another worker too, or look at it again later."""
        busy = self._run.workers_at([future for future, own in self._numbers.items() if own == number])
        near = self._cluster.other_than(busy, self._quick)
        if near is None:
            self._pace.begin(number)
            return
        self._run.handed_on = True
        self._hand_out({number: near})

    def _without(self, number: int, done: Done, twins: Sequence[Any]) -> bool:
        """Give a task whose worker has a full disk to another, if there is one and none is at it."""
        self._cluster.trouble |= dict.fromkeys(done.ledger, f"has a full disk ({done.failure})")
        if twins:
            return True
        near = self._cluster.other_than(done.ledger, self._cluster.threads())
        if near is not None:
            self._pace.begin(number)
            self._hand_out({number: near})
        return near is not None

    def _end(self, number: int, done: Done, twins: Sequence[Any]) -> None:
        """Note a task that is done, and forget its twins, at which other workers still are."""
        self._cluster.spent = worker.add_ledger(self._cluster.spent, done.ledger)
        self._quick += done.ledger
        del self._tasks[number]
        if twins:
            self._cluster.note_slow(self._run.workers_at(twins))
            self._run.cancel(twins)
        for twin in twins:
            del self._numbers[twin]

    def _taken(self, number: int) -> int:
        return 1 if self._seats is None else self._seats[number]


def _some_failed(ended: Sequence[Any]) -> bool:
    """Whether some of these tasks did not end well."""
    return any(future.status != "finished" for future in ended)


def label(function: Callable[..., Any]) -> str:
    """The name of a kind of task, of words and hyphens alone: Dask's dashboard knows kinds by these."""
    return name_of(function).replace("_", "-").removesuffix("-task")


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function, or of that which is made into another (worker.one_part)."""
    named = function.args[0] if isinstance(function, partial) else function
    return str(named.__name__)
