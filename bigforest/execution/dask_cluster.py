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
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

from bigforest.common.errors import BigForestError, ClusterError
from bigforest.execution import worker
from bigforest.execution.executor import Executor, TaskBatch
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
_FAN = 4
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
                    f"what workers write to {folder} does not arrive here; give as {option} a folder on a disk that "
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
        for index, result in self._results(job):
            on_result(index, result)

    def _merged(self, job: TaskBatch[Result], merge: Callable[[Result, Result], Result]) -> Result:
        """Workers merge what is near; only the last result comes here.

        Calls with as many tasks hand the same ones to the same workers, which so find what they have fetched or read
        before; others do it where one is busy elsewhere or has gone.
        """
        with _Run(self._cluster, job.function.__name__, self._slots, job.shared) as run:
            seats = cycle(self._seats())
            level = [run.submit(job.function, own, next(seats, None)) for own in job.arguments]
            while len(level) > 1:
                level = [run.merge(merge, level[first : first + _FAN]) for first in range(0, len(level), _FAN)]
            [(_, result)] = run.completed(iter(enumerate(level)), 1)
            return result  # type: ignore[no-any-return]

    def _seats(self) -> list[str]:
        """The addresses of the workers, each as often as it does tasks at once."""
        threads = sorted(self._cluster.threads().items())
        return [address for address, count in threads for _ in range(min(count, self._slots))]

    def _in_order(self, job: TaskBatch[Result]) -> Iterator[Result]:
        early: dict[int, Result] = {}
        following = 0
        for index, result in self._results(job):
            early[index] = result
            while following in early:
                yield early.pop(following)
                following += 1

    def _results(self, job: TaskBatch[Result]) -> Iterator[tuple[int, Result]]:
        if not job.arguments:
            return
        with _Run(self._cluster, job.function.__name__, self._slots, job.shared) as run:
            futures = ((index, run.submit(job.function, own)) for index, own in enumerate(job.arguments))
            yield from run.completed(futures, _AHEAD * self.size)


class _Run:
    """Tasks of one call; a context manager, which leaves no task behind when its block fails."""

    def __init__(self, cluster: Cluster, name: str, slots: int, shared: tuple[Any, ...]) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._name = name
        self._order = Order(f"bigforest-{name}-{secrets.token_hex(8)}", slots, worker.versions_here())
        self._number = 0
        packed = pickle.dumps(shared)
        self._shared = packed if len(packed) <= _SMALL else self._submit(worker.unpack, packed)

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._stop()

    def submit(self, function: Callable[..., Any], arguments: tuple[Any, ...], near: str | None = None) -> Any:
        """The future of a task. near: the worker that had better do it."""
        packed = pickle.dumps((function, arguments))
        return self._submit(worker.perform, self._order, packed, self._shared, near=near)

    def merge(self, merge: Callable[..., Any], parts: Sequence[Any]) -> Any:
        """The future of the results of `parts` merged."""
        return self._submit(worker.combine, self._order, pickle.dumps(merge), *parts)

    def _submit(self, function: Callable[..., Any], *arguments: Any, near: str | None = None) -> Any:
        self._number += 1
        where = {} if near is None else {"workers": [near], "allow_other_workers": True}
        with self._cluster.errors(f"handing out {self._name}"):
            key = f"{self._order.run}-{self._number}"
            return self._client.submit(function, *arguments, key=key, retries=RETRIES, pure=False, **where)

    def completed(self, futures: Iterator[tuple[int, Any]], ahead: int) -> Iterator[tuple[int, Any]]:
        """Results as tasks end, with the numbers of their futures; at most `ahead` of them are on their way."""
        from distributed import as_completed

        numbers: dict[Any, int] = {}
        ended = as_completed(loop=self._client.loop)

        def fill() -> None:
            while len(numbers) < ahead and (following := next(futures, None)) is not None:
                number, future = following
                numbers[future] = number
                ended.add(future)

        fill()
        while numbers:
            future = next(ended)
            done = self._result(future)
            self._cluster.spent = worker.add_ledger(self._cluster.spent, done.ledger)
            number = numbers.pop(future)
            del future
            fill()
            yield number, done.result

    def _result(self, future: Any) -> Done:
        """What a task handed back; raises the error of a task."""
        from distributed import KilledWorker

        if future.status in ("lost", "pending"):  # it had ended, its worker has died since, and it is done again
            with self._cluster.errors(self._name):
                future.exception()  # waits
        if future.status == "error":
            error = future.exception()
            if isinstance(error, KilledWorker):
                raise ClusterError(
                    f"the task {self._name} has lost {error.allowed_failures + 1} workers, the last of them "
                    f"{error.last_worker.address}; look for the reason in its log, which is often too little memory: "
                    "lower memory, or give the workers more"
                ) from error
            if isinstance(error, BigForestError):
                raise error
            raise ClusterError(
                f"the task {self._name} failed {RETRIES + 1} times ({type(error).__name__}: {error})"
            ) from error
        if future.status != "finished":
            raise ClusterError(f"the connection to the scheduler was lost during {self._name}")
        with self._cluster.errors(self._name):
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
