"""Tasks on a Dask cluster.

Only small arguments and results go over the network: tasks carry paths, ranges, counts and finished pieces. Data that
all tasks of a run share is sent once, unless it is very small, and passed from worker to worker. Arguments
are packed here and unpacked in the workers, so that the scheduler, which unpacks what is not bytes, opens no files.
"""

from __future__ import annotations

import contextlib
import pickle
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bigforest.common.errors import BigForestError, ClusterError, DiskFullError
from bigforest.execution import exchange, worker
from bigforest.execution.exchange import HeldParts
from bigforest.execution.executor import Executor, Part, PartBatch, TaskBatch, merge_lists
from bigforest.execution.pace import Pace
from bigforest.execution.worker import Done, Facts, Ledger, Order
from bigforest.storage.atomic import TemporaryFolder

Result = TypeVar("Result")

# Retries of a failing task, for instance because a disk did not answer.
RETRIES = 2
# Queued tasks per running task, so that no worker waits for the next.
_AHEAD = 2
# Most bytes of shared data that each task carries itself: Dask prefers to run tasks where separate data is.
_SMALL = 1 << 16
# A task has at most this fraction of the remaining calls of its worker.
_ROUNDS = 2
# How often parts of lost workers are requested again.
_PART_TRIES = 8
# Tasks that others have taken over from a worker before it gets work last: the first one of a new worker takes long.
_RACES = 2
# Seconds for workers to appear, and for running tasks to end after an error.
_PATIENCE = 60.0
_BETWEEN_LOOKS = 0.2
# Seconds between two looks for tasks that no worker does.
_BETWEEN_SEARCHES = 2.0


class Cluster:
    """The workers behind a client of Dask.

    spent    what each of them has done so far.
    trouble  what was wrong with some of them: they are slow, or their disk is full. They get work last.
    races    how many tasks others have taken over from each.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.spent: Ledger = {}
        self.trouble: dict[str, str] = {}
        self.races: Counter[str] = Counter()

    def check(self) -> list[str]:
        """Raise ClusterError unless there are workers with the same versions; returns further notices."""
        with self.errors("looking at the workers"):
            try:
                self.client.wait_for_workers(1, timeout=_PATIENCE)
            except TimeoutError as error:
                raise ClusterError(f"the scheduler has no workers after {_PATIENCE:.0f} s; start some") from error
            facts = self._facts()
        needed = worker.versions_here()
        for address, found in facts.items():
            wrong = worker.version_error(needed, found.versions, f"the worker {address}")
            if wrong is not None:
                raise wrong
        watched = sorted(address for address, found in facts.items() if found.monitored)
        if not watched:
            return []
        return [
            f"Dask watches the memory of {_some(watched)} and counts mapped files as used, so it may pause or kill "
            "workers for no reason; start workers with --memory-limit 0, and set memory instead"
        ]

    def threads(self) -> dict[str, int]:
        """Threads of each worker there is now, except for those in trouble, unless all are."""
        with self.errors("asking for the workers"):
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
        good = [address for address in workers if address not in self.trouble]
        return {address: int(workers[address]["nthreads"]) for address in good or workers}

    def check_folder(self, folder: Path, option: str) -> None:
        """Raise ClusterError, naming the option to change, unless all workers see `folder` and may write there."""
        question, answer, content = secrets.token_hex(8), secrets.token_hex(8), secrets.token_hex(16)
        with TemporaryFolder(folder.resolve()) as here:
            asked = here / question
            asked.write_text(content, encoding="utf-8")
            found = self.on_each(worker.look, str(asked), content, answer)
            for address, wrong in found.items():
                if wrong:
                    raise ClusterError(
                        f"the worker {address} cannot use the folder {folder} ({wrong}); give as {option} a folder on "
                        "a disk that all machines share under the same path"
                    )
            if len(list(here.glob(f"{answer}-*"))) < len(found):
                raise ClusterError(
                    f"what workers write to {folder} is not visible here; give as {option} a folder on a disk that "
                    "all machines share under the same path"
                )

    def note_lost(self, addresses: Collection[str]) -> None:
        """What these workers held could not be had."""
        gone = set(addresses) - {*self.threads(), *self.trouble} if addresses else ()
        self.trouble |= dict.fromkeys(gone, "was lost, and what it had counted was counted again")

    def other_than(self, busy: Collection[str], several: Iterable[str]) -> str | None:
        """The first of several workers that is not among the busy ones, and of which no trouble is known."""
        return next((one for one in several if one not in busy and one not in self.trouble), None)

    def on_each(self, function: Callable[..., Result], *arguments: Any) -> dict[str, Result]:
        """What the function returns in each worker; a worker that goes away meanwhile is left out."""
        with self.errors(f"calling {function.__name__}"):
            found = self.client.run(worker.off_loop, pickle.dumps((function, arguments)), on_error="return")
        return {address: result for address, result in found.items() if _is_result(address, result)}

    def _facts(self) -> dict[str, Facts]:
        try:
            found = self.client.run(worker.describe_worker, on_error="return")
        except ImportError as error:
            raise ClusterError(f"a worker cannot load bigforest ({error}); install the same version there") from error
        return {address: result for address, result in found.items() if _is_result(address, result)}

    @contextlib.contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Raise ClusterError if the connection to the scheduler is lost while the block runs."""
        from concurrent.futures import CancelledError

        from distributed.client import FutureCancelledError

        try:
            yield
        except BigForestError:
            raise
        except (OSError, CancelledError, FutureCancelledError, TimeoutError, RuntimeError, ValueError) as error:
            if self.client.status == "running" and not isinstance(error, OSError):
                raise
            raise ClusterError(
                f"the connection to the scheduler was lost while {doing} ({type(error).__name__}: {error})"
            ) from error


class ClusterExecutor(Executor):
    """The executor of a cluster; at most `slots` tasks at once in each process."""

    remote = True

    def __init__(self, cluster: Cluster, slots: int) -> None:
        self._cluster = cluster
        self._slots = slots

    @property
    def size(self) -> int:
        """See Executor."""
        return max(1, len(self._seats()))

    @property
    def processes(self) -> int:
        """See Executor."""
        return max(1, len(self._cluster.threads()))

    def run_on_all_workers(self, function: Callable[..., Result], *arguments: Any) -> list[Result]:
        """See Executor."""
        return list(self._cluster.on_each(function, *arguments).values())

    def _each(self, job: TaskBatch[Result], on_result: Callable[[int, Result], None]) -> None:
        for index, result in self._results(job, share_out(len(job.arguments), self.processes, self._slots)):
            on_result(index, result)

    def _merged(self, job: TaskBatch[Result], merge: Callable[[Result, Result], Result]) -> Result:
        """As a single part."""
        several = TaskBatch(partial(worker.one_part, job.function), job.arguments, job.shared)
        found: list[Result] = self._parts(several, PartBatch(merge, worker.merged_part, [()]))
        return found[0]

    def _parts(self, job: TaskBatch[list[Part]], of_parts: PartBatch[Part, Result]) -> list[Result]:
        """Parts held by a lost worker are computed again."""
        finished: dict[int, Result] = {}
        merge = partial(merge_lists, of_parts.merge)
        for _ in range(_PART_TRIES):
            left = [number for number in range(len(of_parts.own)) if number not in finished]
            with _Run(self._cluster, job, 1) as run:
                held = [found for _, found in self._hold(run, job, merge)]
                shares = _cut(left, self.processes)
                calls = [run.finish(of_parts, share, held) for share in shares]
                for at, results in run.completed(_near(calls, self._spread(len(calls))), len(calls), alone=True):
                    found = dict(zip(shares[at], results, strict=True))
                    lost = {number: own for number, own in found.items() if isinstance(own, exchange.LostPart)}
                    finished |= {number: own for number, own in found.items() if number not in lost}
                    self._cluster.note_lost({own.args[0] for own in lost.values()})
            if run.handed_on or len(finished) < len(of_parts.own):
                self._cluster.on_each(worker.stop, run.name)
            if len(finished) == len(of_parts.own):
                return [finished[number] for number in range(len(finished))]
        raise ClusterError(
            f"workers were lost {_PART_TRIES} times while they ran {_name(job.function)}; look for the reason in "
            "their logs (often too little memory), and resume"
        )

    def _hold(
        self, run: _Run, job: TaskBatch[Result], merge: Callable[[Result, Result], Result]
    ) -> Iterator[tuple[int, HeldParts]]:
        """Where the results of one task for each worker are, which does a share of the calls on all its threads.

        As long as the workers are the same, the same share goes to each, which so finds what it has fetched or read
        before; another does it where one is busy elsewhere or has gone.
        """
        seats = self._spread(len(job.arguments))
        cuts = [0, *(at for at in range(1, len(seats)) if seats[at] != seats[at - 1]), len(seats)]
        calls = [
            run.hold(job.arguments[first:stop], merge, min(self._slots, stop - first)) for first, stop in pairwise(cuts)
        ]
        return run.completed(_near(calls, [seats[first] for first in cuts[:-1]]), len(calls))

    def _spread(self, tasks: int) -> list[str | None]:
        """The preferred workers of these tasks: consecutive tasks share a worker."""
        seats = self._seats()
        return [seats[number * len(seats) // tasks] if seats else None for number in range(tasks)]

    def _seats(self) -> list[str]:
        """The addresses of the workers, each as often as it has slots."""
        threads = sorted(self._cluster.threads().items())
        return [address for address, count in threads for _ in range(min(count, self._slots))]

    def _in_order(self, job: TaskBatch[Result]) -> Iterator[Result]:
        early: dict[int, Result] = {}
        following = 0
        for index, result in self._results(job, [1] * len(job.arguments)):
            early[index] = result
            while following in early:
                yield early.pop(following)
                following += 1

    def _results(self, job: TaskBatch[Result], sizes: Sequence[int]) -> Iterator[tuple[int, Result]]:
        """The results with their numbers, as tasks end that each make several of the calls."""
        if not job.arguments:
            return
        starts = list(accumulate(sizes, initial=0))
        with _Run(self._cluster, job, self._slots) as run:
            calls = ((run.call(job.arguments[first:stop]), None) for first, stop in pairwise(starts))
            for number, results in run.completed(calls, _AHEAD * self.size, sizes, alone=job.alone):
                yield from enumerate(results, starts[number])


def share_out(calls: int, processes: int, slots: int) -> list[int]:
    """How many calls each task makes on the threads of a worker: fewer towards the end, so that all workers finish
    at the same time."""
    sizes = []
    while calls:
        sizes.append(min(slots, max(1, calls // (_ROUNDS * processes))))
        calls -= sizes[-1]
    return sizes


class _Call(NamedTuple):
    """A task to be handed out: a function of worker.py, its arguments, and the name of its kind."""

    function: Callable[..., Done]
    arguments: tuple[Any, ...]
    name: str


class _Run:
    """Tasks of one call; a context manager, which leaves no task behind when its block fails.

    handed_on  whether a task was handed to another worker while the first one was at it.
    """

    def __init__(self, cluster: Cluster, job: TaskBatch[Any], slots: int) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._function = job.function
        self.name = f"bigforest-{label(job.function)}-{secrets.token_hex(8)}"
        self.handed_on = False
        self._order = Order(self.name, slots, worker.versions_here())
        self._number = 0
        self._near: dict[str, str] = {}
        packed = pickle.dumps(job.shared)
        self._shared = packed
        if len(packed) > _SMALL:
            self._shared = self._submit(_Call(worker.unpack, (packed,), self.name), None)

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._stop()

    def call(self, several: Sequence[tuple[Any, ...]]) -> _Call:
        """A task that makes some calls."""
        packed = pickle.dumps((self._function, several))
        return _Call(worker.perform, (self._order, packed, self._shared), self.name)

    def hold(self, several: Sequence[tuple[Any, ...]], merge: Callable[..., Any], threads: int) -> _Call:
        """A task that makes some calls on this number of threads and keeps what they give, merged."""
        packed = pickle.dumps((self._function, merge, several, threads))
        return _Call(worker.hold_here, (self._order, packed, self._shared), self.name)

    def finish(self, of_parts: PartBatch[Any, Any], numbers: Sequence[int], held: Sequence[HeldParts]) -> _Call:
        """A task that finishes some parts; see worker.finish_parts."""
        own = {number: of_parts.own[number] for number in numbers}
        packed = pickle.dumps((of_parts.finish, own, of_parts.merge, held))
        name = f"bigforest-{label(of_parts.finish)}-{secrets.token_hex(8)}"
        return _Call(worker.finish_parts, (self._order, packed, self._shared), name)

    def _submit(self, call: _Call, near: str | None) -> Any:
        """The future of a task, which the worker `near` had better do."""
        self._number += 1
        where = {} if near is None else {"workers": [near], "allow_other_workers": True}
        with self._cluster.errors(f"handing out {_name(self._function)}"):
            key = f"{call.name}-{self._number}"
            if near is not None:
                self._near[key] = near
            return self._client.submit(call.function, *call.arguments, key=key, retries=RETRIES, pure=False, **where)

    def completed(
        self,
        calls: Iterator[tuple[_Call, str | None]],
        ahead: int,
        sizes: Sequence[int] | None = None,
        *,
        alone: bool = False,
    ) -> Iterator[tuple[int, Any]]:
        """Results as tasks end, with their numbers; about `ahead` calls are on their way.

        calls  the tasks, and the workers that had better do them
        sizes  calls of each task; None for one each
        alone  a task is done by one worker at a time. Otherwise those that are late when no more are handed out are
               given to another worker too, and the first result counts; and so are those whose worker has a full disk.
        """
        from distributed import as_completed

        numbers: dict[Any, int] = {}
        tasks: dict[int, _Call] = {}
        waiting = 0
        pace, numbered = Pace(), enumerate(calls)
        quick: list[str] = []
        ended = as_completed(loop=self._client.loop)

        def hand_out(number: int, near: str | None) -> None:
            future = self._submit(tasks[number], near)
            numbers[future] = number
            ended.add(future)

        def fill() -> bool:
            nonlocal waiting
            while waiting < ahead:
                following = next(numbered, None)
                if following is None:
                    return True
                number, (tasks[number], near) = following
                waiting += 1 if sizes is None else sizes[number]
                pace.begin(number)
                hand_out(number, near)
            return False

        last = fill()
        search = time.monotonic() + _BETWEEN_SEARCHES
        while numbers:
            while not ended.has_ready():
                if time.monotonic() > search:
                    for future in self._stranded(numbers):
                        hand_out(numbers.pop(future), None)
                        self._cancel([future])
                    search = time.monotonic() + _BETWEEN_SEARCHES
                for number in pace.late() if last and not alone else ():
                    busy = self._workers_at([future for future, own in numbers.items() if own == number])
                    near = self._cluster.other_than(busy, quick)
                    if near is None:
                        pace.begin(number)
                        continue
                    self.handed_on = True
                    hand_out(number, near)
                with ended.thread_condition:
                    ended.thread_condition.wait(_BETWEEN_LOOKS)
            future = next(ended)
            number = numbers.pop(future, -1)
            if number < 0:
                continue  # another worker was faster
            twins = [other for other, own in numbers.items() if own == number]
            try:
                done = self._result(future)
            except BigForestError:
                if not twins:
                    raise
                continue
            if isinstance(done.failure, DiskFullError) and not alone:
                self._cluster.trouble |= dict.fromkeys(done.ledger, f"has a full disk ({done.failure})")
                near = self._cluster.other_than(done.ledger, self._cluster.threads())
                if near is not None:
                    hand_out(number, near)
                    continue
            if done.failure is not None:
                raise done.failure
            self._cluster.spent = worker.add_ledger(self._cluster.spent, done.ledger)
            quick += done.ledger
            pace.end(number)
            del tasks[number], future
            self._drop(twins)
            for twin in twins:
                del numbers[twin]
            waiting -= 1 if sizes is None else sizes[number]
            last = fill()
            yield number, done.result

    def _workers_at(self, futures: Sequence[Any]) -> set[str]:
        """The workers that are at some tasks, or have them in their queue."""
        with self._cluster.errors("asking who does what"):
            queues = self._client.processing()
        keys = {future.key for future in futures}
        return {address for address, queue in queues.items() if not keys.isdisjoint(queue)}

    def _drop(self, twins: Sequence[Any]) -> None:
        """Forget tasks that another worker has done meanwhile; whoever is at them gets work last from now on."""
        if twins:
            slow = "is much slower than the others, which have taken over its tasks"
            for address in self._workers_at(twins):
                self._cluster.races[address] += 1
                if self._cluster.races[address] == _RACES:
                    self._cluster.trouble[address] = slow
            self._cancel(twins)

    def _stranded(self, futures: Iterable[Any]) -> list[Any]:
        """The tasks that no worker does. When all workers go at once, Dask lets a task wait for the worker that had
        better do it, although others come."""
        there = self._cluster.threads()
        gone = [future for future in futures if self._near.get(future.key, "") not in ("", *there)] if there else []
        return [future for future in gone if future.status == "pending" and not self._workers_at([future])]

    def _cancel(self, futures: Sequence[Any]) -> None:
        with self._cluster.errors("dropping tasks"):
            self._client.cancel(futures)

    def _result(self, future: Any) -> Done:
        """The result of a task; raises its error."""
        from distributed import KilledWorker

        if future.status in ("lost", "pending"):  # it had ended, its worker died since, and it runs again
            with self._cluster.errors(_name(self._function)):
                future.exception()  # waits
        if future.status == "error":
            error = future.exception()
            if isinstance(error, KilledWorker):
                raise ClusterError(
                    f"the task {_name(self._function)} has lost {error.allowed_failures + 1} workers, the last of "
                    f"them {error.last_worker.address}; look for the reason in its log (often too little "
                    "memory): lower memory, or give the workers more"
                ) from error
            if isinstance(error, BigForestError):
                raise error
            raise ClusterError(
                f"the task {_name(self._function)} failed {RETRIES + 1} times ({type(error).__name__}: {error})"
            ) from error
        if future.status != "finished":
            raise ClusterError(f"the connection to the scheduler was lost during {_name(self._function)}")
        with self._cluster.errors(_name(self._function)):
            done: Done = future.result()
        return done

    def _stop(self) -> None:
        """Cancel queued tasks and wait for running ones, as far as the scheduler still answers."""
        with contextlib.suppress(BigForestError):
            deadline = time.monotonic() + _PATIENCE
            while any(self._cluster.on_each(worker.stop, self._order.run).values()):
                if time.monotonic() > deadline:
                    return
                time.sleep(_BETWEEN_LOOKS)


def _near(calls: Sequence[_Call], workers: Sequence[str | None]) -> Iterator[tuple[_Call, str | None]]:
    """Each task with the worker that had better do it."""
    return zip(calls, workers, strict=True)


def _cut(numbers: Sequence[int], shares: int) -> list[Sequence[int]]:
    """The numbers in at most this number of shares of about equal length."""
    shares = min(shares, len(numbers))
    return [numbers[share * len(numbers) // shares : (share + 1) * len(numbers) // shares] for share in range(shares)]


def label(function: Callable[..., Any]) -> str:
    """The name of a kind of task, of words and hyphens alone: Dask's dashboard knows kinds by these."""
    return _name(function).replace("_", "-").removesuffix("-task")


def _name(function: Callable[..., Any]) -> str:
    """The name of a function, or of that which is made into another (worker.one_part)."""
    named = function.args[0] if isinstance(function, partial) else function
    return str(named.__name__)


def _is_result(address: str, result: Any) -> bool:
    """Whether it is a result and no failure of the connection to a worker, which has gone away then."""
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


def _some(addresses: Sequence[str]) -> str:
    return ", ".join(addresses[:3]) + (f" and {len(addresses) - 3} more" if len(addresses) > 3 else "")
