"""The workers behind a Dask client, and the executor whose tasks run on them.

Tasks are futures, and Dask does the rest: it places tasks, moves results from worker to worker, runs the tasks of lost
workers again, retries failed tasks, and lets idle workers take tasks of busy workers.

    run, gather          a task makes several calls; two tasks per worker are in flight
    map                  a task makes one call; two tasks per worker are in flight
    reduce_parts         calls of worker 1 ─┐
                         calls of worker 2 ─┼─ merge ─┐          finish parts 1 to 3
                         ...               ─┘         ├────►     finish parts 4 to 6
                         calls of worker n ─── merge ─┘          ...

In `reduce_parts`, the first task of each worker returns one list of parts, each pickled separately. A merging task
takes up to _FAN_IN lists. Merging is repeated until at most _FAN_IN lists remain. Each finishing task receives all
remaining lists, and unpickles only its own parts.
"""

from __future__ import annotations

import contextlib
import pickle
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from bigforest.errors import BigForestError, ClusterError, api, listed
from bigforest.execution import worker
from bigforest.execution.executor import Executor, Part
from bigforest.execution.worker import TaskRequest, TaskStats
from bigforest.storage.atomic import TemporaryFolder

Result = TypeVar("Result")
Item = TypeVar("Item")

# Seconds between two requests for the list of workers. A request takes milliseconds of client and scheduler.
_FRESH = 15.0
# Seconds to wait for the first worker.
_APPEARING = 60.0


class Cluster:
    """The workers behind a client of Dask, for one run of bigforest.

    client   client of Dask.
    session  random text that identifies the run in the statistics of its workers.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.session = secrets.token_hex(8)
        self._threads: dict[str, int] = {}
        self._last_look = -_FRESH
        self._seats: list[Any] = []
        self._seated_workers: set[str] = set()

    def check(self) -> list[str]:
        """Raise ClusterError unless there are workers, all with the client's software versions. Return warnings."""
        with self.errors("looking at the workers"):
            try:
                self.client.wait_for_workers(1, timeout=_APPEARING)
            except TimeoutError as error:
                raise ClusterError(f"the scheduler has no workers after {_APPEARING:.0f} s; start some") from error
            workers = self.client.scheduler_info()["workers"]
        infos = self.on_each(worker.describe_worker)
        needed = worker.versions_here()
        for address, info in infos.items():
            wrong = worker.version_error(needed, info.versions, f"the worker {address}")
            if wrong is not None:
                raise wrong
        watched = sorted(address for address in infos.keys() & workers if workers[address]["memory_limit"])
        watched = [address for address in watched if infos[address].monitored]
        if not watched:
            return []
        return [
            f"Dask watches the memory of {listed(watched, 3)} and counts mapped files as used, so it may pause or kill "
            f"workers for no reason; start workers with Dask's --memory-limit 0, and set {api('memory')} instead"
        ]

    def threads(self) -> dict[str, int]:
        """Return the number of threads of each worker, by address, as of at most _FRESH seconds ago."""
        if time.monotonic() > self._last_look + _FRESH:
            with self.errors("asking for the workers"):
                self._threads = dict(self.client.nthreads())
            self._last_look = time.monotonic()
        return self._threads

    def seats(self) -> list[Any]:
        """Return futures of seats, one for each worker. A seat pins tasks to its worker, see worker.Seat."""
        workers = set(self.threads())
        if self._seated_workers != workers or not self._seats:
            group = f"bigforest-make-seat-{secrets.token_hex(8)}"
            keys = [(group, number) for number in range(max(1, len(workers)))]
            with self.errors("handing out seats"):
                self._seats = self.client.map(worker.make_seat, range(len(keys)), key=keys, pure=False)
            self._seated_workers = workers
        return self._seats

    def stats(self) -> dict[str, TaskStats]:
        """Return the statistics of this run, by address, of the workers that ran its tasks and still answer."""
        if self.client.status != "running":
            return {}
        with contextlib.suppress(BigForestError), self.errors("asking what workers did"):
            answers = self.client.run(worker.take_stats, self.session, on_error="return")
            return {
                address: stats for address, stats in answers.items() if isinstance(stats, TaskStats) and stats.tasks
            }
        return {}

    def check_folder(self, folder: Path, option: str) -> None:
        """Raise ClusterError, naming the option to change, unless all workers see `folder` and may write there."""
        question, answer, content = secrets.token_hex(8), secrets.token_hex(8), secrets.token_hex(16)
        with TemporaryFolder(folder.resolve()) as shared:
            asked = shared / question
            asked.write_text(content, encoding="utf-8")
            problems = self.on_each(worker.check_shared_file, str(asked), content, answer)
            for address, wrong in problems.items():
                if wrong:
                    raise ClusterError(
                        f"the worker {address} cannot use the folder {folder} ({wrong}); give as {api(option)} a "
                        "folder on a disk that all machines share under the same path"
                    )
            if len(list(shared.glob(f"{answer}-*"))) < len(problems):
                raise ClusterError(
                    f"what workers write to {folder} is not visible here; give as {api(option)} a folder on a disk "
                    "that all machines share under the same path"
                )

    def on_each(self, function: Callable[..., Result], *arguments: Any) -> dict[str, Result]:
        """Return the result of the function in each worker, by address. A worker that is lost meanwhile is left out."""
        packed = pickle.dumps((function, arguments))
        with self.errors(f"calling {function.__name__}"):
            try:
                results = self.client.run(worker.run_off_loop, packed, on_error="return")
            except ImportError as error:
                raise ClusterError(
                    f"a worker cannot load bigforest ({error}); install the same version there"
                ) from error
        return {address: result for address, result in results.items() if _has_result(address, result)}

    @contextlib.contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Raise ClusterError if the connection to the scheduler is lost while the block runs."""
        from concurrent.futures import CancelledError

        lost = (OSError, CancelledError)
        try:
            yield
        except BigForestError:
            raise
        except (*lost, RuntimeError, ValueError, AttributeError) as error:
            if self.client.status == "running" and not isinstance(error, lost):
                raise
            raise ClusterError(
                f"the connection to the scheduler was lost while {doing} ({type(error).__name__}: {error})"
            ) from error


def _has_result(address: str, result: Any) -> bool:
    """Return False if the connection to the worker was lost. Raise other errors, as ClusterError if necessary."""
    if isinstance(result, BigForestError):
        raise result
    if isinstance(result, ImportError):
        raise ClusterError(
            f"the worker {address} cannot load bigforest ({result}); install the same version there"
        ) from result
    if isinstance(result, OSError):
        return False
    if isinstance(result, Exception):
        raise ClusterError(f"the worker {address} failed ({type(result).__name__}: {result})") from result
    return True


# Tasks in flight per worker, so that no worker waits for its next task.
_AHEAD = 2
# Retries of a failing task, for instance because a disk did not answer.
_RETRIES = 2
# Lists that a task merges. A worker holds this many pickled lists at a time. Pickled counts mostly take a byte each.
_FAN_IN = 8
# Most tasks per worker among which the calls of `run` are divided. Each task costs client and scheduler some
# milliseconds. With fewer tasks, workers wait longer for the last one.
_MOST_TASKS = 12
# Seconds to wait for running tasks to end after an error, and seconds between two checks.
_PATIENCE = 60.0
_BETWEEN_LOOKS = 0.2


class ClusterExecutor(Executor):
    """Runner of tasks on a cluster. A task uses at most `slots` threads of its worker."""

    remote = True

    def __init__(self, cluster: Cluster, slots: int) -> None:
        self._cluster = cluster
        self._slots = slots

    @property
    def size(self) -> int:
        """See Executor."""
        return max(1, sum(min(count, self._slots) for count in self._cluster.threads().values()))

    @property
    def processes(self) -> int:
        """See Executor."""
        return max(1, len(self._cluster.threads()))

    def _room(self, in_flight: int) -> int:
        """Return the number of further tasks to submit; 0 if enough are in flight, as after a loss of workers."""
        return max(0, _AHEAD * self.processes - in_flight)

    def run(
        self,
        function: Callable[..., Result],
        arguments: Sequence[tuple[Any, ...]],
        on_result: Callable[[int, Result], None] = lambda *_: None,
        shared: tuple[Any, ...] = (),
    ) -> None:
        """See Executor."""
        from distributed import as_completed

        shares = iter(_cut(range(len(arguments)), task_count(len(arguments), self.processes, self._slots)))
        firsts: dict[Any, int] = {}  # by future in flight: its first call
        with _Tasks(self._cluster, function, self._slots) as tasks:
            ended = as_completed(loop=self._cluster.client.loop)
            packed = pickle.dumps(shared)

            def submit_next() -> None:
                ranges = list(islice(shares, self._room(len(firsts))))
                calls = [(function, arguments[each[0] : each[-1] + 1]) for each in ranges]
                futures = tasks.submit(worker.call_each, packed, calls)
                firsts.update(zip(futures, (each[0] for each in ranges), strict=True))
                ended.update(futures)

            submit_next()
            while firsts:
                future = next(ended)
                first = firsts.pop(future)
                submit_next()
                [results] = tasks.results([future])
                del future
                for index, result in enumerate(results, first):
                    on_result(index, result)

    def map(
        self, function: Callable[..., Result], arguments: Sequence[tuple[Any, ...]], shared: tuple[Any, ...] = ()
    ) -> Iterator[Result]:
        """See Executor."""
        following = iter(arguments)
        futures: deque[Any] = deque()
        with _Tasks(self._cluster, function, self._slots) as tasks:
            packed = pickle.dumps(shared)
            while True:
                calls = islice(following, self._room(len(futures)))
                futures += tasks.submit(worker.call_each, packed, [(function, [call]) for call in calls])
                if not futures:
                    return
                [[result]] = tasks.results([futures.popleft()])
                yield result

    def reduce_parts(
        self,
        function: Callable[..., list[Part]],
        arguments: Sequence[tuple[Any, ...]],
        merge: Callable[[Part, Part], Part],
        finish: Callable[..., Result],
        part_arguments: Sequence[tuple[Any, ...]],
        shared: tuple[Any, ...],
    ) -> list[Result]:
        """See Executor. While workers do not change, a worker gets the same share of the arguments in every call."""
        seats = self._cluster.seats()
        with _Tasks(self._cluster, function, self._slots) as tasks:
            packed = pickle.dumps(shared)
            shares = [(function, merge, each) for each in _cut(arguments, len(seats))]
            lists = tasks.submit(worker.reduce_calls, packed, shares, seats=seats)
            while len(lists) > _FAN_IN:
                inputs = [lists[first : first + _FAN_IN] for first in range(0, len(lists), _FAN_IN)]
                lists = tasks.submit(
                    worker.merge_packed, pickle.dumps(()), [(merge,)] * len(inputs), inputs, name=worker.merge_packed
                )
            numbers = _cut(range(len(part_arguments)), len(seats))
            finishing = [(finish, merge, {number: part_arguments[number] for number in each}) for each in numbers]
            ended = tasks.submit(worker.finish_parts, packed, finishing, [lists] * len(numbers), name=finish)
            del lists
            return [result for results in tasks.results(ended) for result in results]

    def run_on_all_workers(self, function: Callable[..., Result], *arguments: Any) -> list[Result]:
        """See Executor."""
        return list(self._cluster.on_each(function, *arguments).values())


class _Tasks:
    """The tasks of one call of the executor, as a context manager that stops the tasks when its block fails."""

    def __init__(self, cluster: Cluster, function: Callable[..., Any], threads: int) -> None:
        self._cluster = cluster
        self._function = function
        self._request = TaskRequest(cluster.session, secrets.token_hex(8), threads, worker.versions_here())

    def __enter__(self) -> _Tasks:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._stop()

    def submit(
        self,
        step: Callable[..., Any],
        shared: bytes,
        arguments: Sequence[tuple[Any, ...]],
        inputs: Sequence[Sequence[Any]] = (),
        seats: Sequence[Any] = (),
        *,
        name: Callable[..., Any] | None = None,
    ) -> list[Any]:
        """Submit tasks (worker.perform) in one message. Return their futures.

        arguments  arguments of each task
        inputs     futures for each task, whose values are its last arguments
        seats      seats of the workers where the tasks should run, at least one per task; empty for any worker
        name       function that tasks are named after; None for the function of the call
        """
        if not arguments:
            return []
        group = f"bigforest-{label(name or self._function)}-{secrets.token_hex(8)}"
        packed = map(pickle.dumps, arguments)
        each = (packed, inputs or [()] * len(arguments), seats[: len(arguments)] or [None] * len(arguments))
        with self._cluster.errors(f"handing out {group}"):
            futures: list[Any] = self._cluster.client.map(
                partial(worker.perform, self._request, step, shared),
                *map(list, each),
                key=[(group, number) for number in range(len(arguments))],
                retries=_RETRIES,
                pure=False,
            )
        return futures

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """Return the values of tasks, in order, when all have ended. Raise the first error."""
        with self._cluster.errors(f"waiting for {name_of(self._function)}"):
            errors = [future.exception() for future in futures]
        for error in filter(None, errors):
            raise self._error_of(error)
        with self._cluster.errors(f"fetching {name_of(self._function)}"):
            gathered = self._cluster.client.gather(futures)
        for result in gathered:
            if result.failure is not None:
                raise result.failure
        return [result.value for result in gathered]

    def _error_of(self, error: BaseException) -> BigForestError:
        from distributed import KilledWorker

        name = name_of(self._function)
        if isinstance(error, BigForestError):
            return error
        if isinstance(error, KilledWorker):
            reported = ClusterError(
                f"the task {name} has lost {error.allowed_failures + 1} workers, the last of them "
                f"{error.last_worker.address}; look for the reason in its log (often too little memory): lower "
                f"{api('memory')}, or give the workers more"
            )
        else:
            reported = ClusterError(f"the task {name} failed {_RETRIES + 1} times ({type(error).__name__}: {error})")
        reported.__cause__ = error
        return reported

    def _stop(self) -> None:
        """End queued tasks at once, and wait for running tasks, if the scheduler still answers."""
        with contextlib.suppress(BigForestError):
            deadline = time.monotonic() + _PATIENCE
            while any(self._cluster.on_each(worker.stop, self._request.call).values()):
                if time.monotonic() > deadline:
                    return
                time.sleep(_BETWEEN_LOOKS)


def task_count(calls: int, processes: int, threads: int) -> int:
    """Return the number of tasks among which calls are divided.

    A worker runs one task at a time, so a task has at least as many calls as a worker has threads. It has fewer if some
    workers would otherwise have no task.
    """
    return min(calls, max(processes, min(processes * _MOST_TASKS, calls // threads)))


def _cut(items: Sequence[Item], shares: int) -> list[Sequence[Item]]:
    """Cut items into at most `shares` runs of about equal length, none of them empty."""
    shares = min(shares, len(items))
    return [items[share * len(items) // shares : (share + 1) * len(items) // shares] for share in range(shares)]


def label(function: Callable[..., Any]) -> str:
    """Return the name of a kind of task in words and hyphens, by which the dashboard of Dask groups tasks."""
    return name_of(function).replace("_", "-").removesuffix("-task")


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function; for a partial of `Executor.reduce`, the name of the function that it wraps."""
    named = function.args[0] if isinstance(function, partial) else function
    return str(named.__name__)
