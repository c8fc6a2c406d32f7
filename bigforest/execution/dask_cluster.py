"""Tasks on a Dask cluster.

Nothing but small arguments and results goes over the network: tasks carry paths, ranges, counts and finished pieces.
What all tasks of a run share goes over it once, unless it is very small, and is handed from worker to worker. Arguments
are packed here and unpacked in the workers, so that the scheduler, which unpacks what is not bytes, opens no files.
"""

from __future__ import annotations

import contextlib
import pickle
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, TypeVar

from bigforest.common.errors import BigForestError, ClusterError
from bigforest.execution import exchange, worker
from bigforest.execution.executor import Executor, Part, PartBatch, TaskBatch, merge_lists
from bigforest.execution.worker import Done, Facts, Ledger, Order
from bigforest.storage.atomic import TemporaryFolder

Result = TypeVar("Result")

# How often a task is tried again that fails by itself, for instance because a disk did not answer.
RETRIES = 2
# Tasks on their way for each that is running, so that no worker waits for the next.
_AHEAD = 2
# Bytes of what tasks share up to which each carries it: Dask likes to keep tasks where such things are.
_SMALL = 1 << 16
# Results merged by one task.
_FAN = 32
# A task of several calls has at most one of this many of those that would come to its worker from now on.
_ROUNDS = 2
# How often parts are asked for again whose workers have gone.
_PART_TRIES = 8
# Seconds for workers to appear, and for running tasks to end after an error.
_PATIENCE = 60.0
_BETWEEN_LOOKS = 0.2


class Cluster:
    """The workers behind a client of Dask. spent: what each of them has done so far."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.spent: Ledger = {}

    def check(self) -> list[str]:
        """Raise ClusterError unless workers are there and have our versions; what else the user should know."""
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
        """Threads of each worker there is now."""
        with self.errors("asking for the workers"):
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return {address: int(known["nthreads"]) for address, known in workers.items()}

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
        """Raise ClusterError for a scheduler that is lost while the block runs."""
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
        """Each worker merges its own results; only the last one comes here."""
        with _Run(self._cluster, job, 1) as run:
            level = self._on_workers(run, worker.reduce_here, job, merge)
            while len(level) > 1:
                level = [run.merge(merge, level[first : first + _FAN]) for first in range(0, len(level), _FAN)]
            [(_, result)] = run.completed(enumerate(level), 1)
            found: Result = result
            return found

    def _parts(self, job: TaskBatch[list[Part]], of_parts: PartBatch[Part, Result]) -> list[Result]:
        """All is done again for parts that were held by a worker that has gone."""
        finished: dict[int, Result] = {}
        merge = partial(merge_lists, of_parts.merge)
        for _ in range(_PART_TRIES):
            left = [number for number in range(len(of_parts.own)) if number not in finished]
            with _Run(self._cluster, job, 1) as run:
                held = self._on_workers(run, worker.hold_here, job, merge)
                shares = _cut(left, self.processes)
                futures = [
                    run.finish(of_parts, share, near, held, counts=share is shares[0])
                    for share, near in zip(shares, self._spread(len(shares)), strict=True)
                ]
                for at, results in run.completed(enumerate(futures), len(futures)):
                    found = zip(shares[at], results, strict=True)
                    finished |= {number: own for number, own in found if not isinstance(own, exchange.LostPart)}
            if len(finished) == len(of_parts.own):
                return [finished[number] for number in range(len(finished))]
            self._cluster.on_each(exchange.forget, run.name)
        raise ClusterError(
            f"workers were lost {_PART_TRIES} times while they ran {job.function.__name__}; look for the reason in "
            "their logs (often too little memory), and resume"
        )

    def _on_workers(
        self, run: _Run, function: Callable[..., Any], job: TaskBatch[Result], merge: Callable[[Result, Result], Result]
    ) -> list[Any]:
        """The futures of one task for each worker, which does a share of the calls on all its threads.

        As long as the workers are the same, the same share goes to each, which so finds what it has fetched or read
        before; another does it where one is busy elsewhere or has gone.
        """
        seats = self._spread(len(job.arguments))
        cuts = [0, *(at for at in range(1, len(seats)) if seats[at] != seats[at - 1]), len(seats)]
        return [
            run.reduce(function, job.arguments[first:stop], merge, min(self._slots, stop - first), seats[first])
            for first, stop in pairwise(cuts)
        ]

    def _spread(self, tasks: int) -> list[str | None]:
        """The workers that had better do these tasks: neighbours are of one worker."""
        seats = self._seats()
        return [seats[number * len(seats) // tasks] if seats else None for number in range(tasks)]

    def _seats(self) -> list[str]:
        """The addresses of the workers, each as often as it does tasks at once."""
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
            futures = (
                (number, run.submit(job.arguments[first:stop])) for number, (first, stop) in enumerate(pairwise(starts))
            )
            for number, results in run.completed(futures, _AHEAD * self.size, sizes):
                yield from enumerate(results, starts[number])


def share_out(calls: int, processes: int, slots: int) -> list[int]:
    """How many calls each task makes on the threads of a worker: fewer towards the end, so that all workers end
    together."""
    sizes = []
    while calls:
        sizes.append(min(slots, max(1, calls // (_ROUNDS * processes))))
        calls -= sizes[-1]
    return sizes


class _Run:
    """Tasks of one call; a context manager, which leaves no task behind when its block fails."""

    def __init__(self, cluster: Cluster, job: TaskBatch[Any], slots: int) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._function = job.function
        self.name = f"bigforest-{label(job.function)}-{secrets.token_hex(8)}"
        self._order = Order(self.name, slots, worker.versions_here())
        self._number = 0
        packed = pickle.dumps(job.shared)
        self._shared = packed if len(packed) <= _SMALL else self._submit(worker.unpack, packed)

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._stop()

    def submit(self, several: Sequence[tuple[Any, ...]]) -> Any:
        """The future of a task that makes some calls."""
        return self._submit(worker.perform, self._order, pickle.dumps((self._function, several)), self._shared)

    def reduce(
        self,
        function: Callable[..., Any],
        several: Sequence[tuple[Any, ...]],
        merge: Callable[..., Any],
        threads: int,
        near: str | None,
    ) -> Any:
        """The future of a task that makes some calls on this number of threads and merges what they give.

        function  reduce_here or hold_here of worker.py.
        near      the worker that had better do it.
        """
        packed = pickle.dumps((self._function, merge, several, threads))
        return self._submit(function, self._order, packed, self._shared, near=near)

    def finish(
        self,
        of_parts: PartBatch[Any, Any],
        numbers: Sequence[int],
        near: str | None,
        held: Sequence[Any],
        *,
        counts: bool,
    ) -> Any:
        """The future of some parts being finished; see worker.finish_parts."""
        own = {number: of_parts.own[number] for number in numbers}
        packed = pickle.dumps((of_parts.finish, own, of_parts.merge))
        arguments = (self._order, packed, self._shared, counts, *held)
        return self._submit(worker.finish_parts, *arguments, near=near, name=label(of_parts.finish))

    def merge(self, merge: Callable[..., Any], parts: Sequence[Any]) -> Any:
        """The future of the results of `parts` merged."""
        return self._submit(worker.combine, self._order, pickle.dumps(merge), *parts)

    def _submit(
        self, function: Callable[..., Any], *arguments: Any, near: str | None = None, name: str | None = None
    ) -> Any:
        self._number += 1
        where = {} if near is None else {"workers": [near], "allow_other_workers": True}
        with self._cluster.errors(f"handing out {self._function.__name__}"):
            key = f"{self.name if name is None else f'bigforest-{name}-{secrets.token_hex(8)}'}-{self._number}"
            return self._client.submit(function, *arguments, key=key, retries=RETRIES, pure=False, **where)

    def completed(
        self, futures: Iterator[tuple[int, Any]], ahead: int, sizes: Sequence[int] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Results as tasks end, with the numbers of their futures; about `ahead` calls are on their way.

        sizes  calls of each task; None for one each
        """
        from distributed import as_completed

        numbers: dict[Any, int] = {}
        calls = 0
        ended = as_completed(loop=self._client.loop)

        def fill() -> None:
            nonlocal calls
            while calls < ahead and (following := next(futures, None)) is not None:
                number, future = following
                numbers[future] = number
                calls += 1 if sizes is None else sizes[number]
                ended.add(future)

        fill()
        while numbers:
            future = next(ended)
            done = self._result(future)
            self._cluster.spent = worker.add_ledger(self._cluster.spent, done.ledger)
            number = numbers.pop(future)
            calls -= 1 if sizes is None else sizes[number]
            del future
            fill()
            yield number, done.result

    def _result(self, future: Any) -> Done:
        """What a task handed back; raises the error of a task."""
        from distributed import KilledWorker

        if future.status in ("lost", "pending"):  # it had ended, its worker has died since, and it is done again
            with self._cluster.errors(self._function.__name__):
                future.exception()  # waits
        if future.status == "error":
            error = future.exception()
            if isinstance(error, KilledWorker):
                raise ClusterError(
                    f"the task {self._function.__name__} has lost {error.allowed_failures + 1} workers, the last of "
                    f"them {error.last_worker.address}; look for the reason in its log (often too little "
                    "memory): lower memory, or give the workers more"
                ) from error
            if isinstance(error, BigForestError):
                raise error
            raise ClusterError(
                f"the task {self._function.__name__} failed {RETRIES + 1} times ({type(error).__name__}: {error})"
            ) from error
        if future.status != "finished":
            raise ClusterError(f"the connection to the scheduler was lost during {self._function.__name__}")
        with self._cluster.errors(self._function.__name__):
            done: Done = future.result()
        if done.failure is not None:
            raise done.failure
        return done

    def _stop(self) -> None:
        """Let queued tasks not begin and running ones end, as far as the scheduler is still there."""
        with contextlib.suppress(BigForestError):
            deadline = time.monotonic() + _PATIENCE
            while any(self._cluster.on_each(worker.stop, self._order.run).values()):
                if time.monotonic() > deadline:
                    return
                time.sleep(_BETWEEN_LOOKS)


def _cut(numbers: Sequence[int], shares: int) -> list[Sequence[int]]:
    """The numbers in at most this number of shares of about equal length."""
    shares = min(shares, len(numbers))
    return [numbers[share * len(numbers) // shares : (share + 1) * len(numbers) // shares] for share in range(shares)]


def label(function: Callable[..., Any]) -> str:
    """The name of a kind of task, of words and hyphens alone: Dask's dashboard knows kinds by these."""
    return function.__name__.replace("_", "-").removesuffix("-task")


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
