"""The part of the executor that runs in the workers of a Dask cluster.

Every task on a cluster, except for `make_seat`, is `perform`: it runs one step (`call_each`, `reduce_calls`,
`merge_packed` or `finish_parts`) on the threads of its worker. Each worker runs one task at a time, however many
threads Dask has for it, so that the process stays within its memory. Arguments arrive as bytes that the scheduler does
not unpickle, because unpickling a Store opens files.
"""

from __future__ import annotations

import asyncio
import pickle
import platform
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial, reduce
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from bigforest.errors import BigForestError, ClusterError, DiskFullError, StorageError
from bigforest.execution.executor import Executor, merge_lists
from bigforest.storage.atomic import no_room
from bigforest.storage.paths import as_path
from bigforest.version import __version__

# Number of stopped calls that are remembered, so that their queued tasks do not begin.
_REMEMBERED = 256
# Only one thread in _FINISHING finishes parts: scoring the counts of a tree takes up to three times the memory of
# counting on one thread (grow/memory.py).
_FINISHING = 3
# Size that a Seat claims, bytes.
_SEAT = 1 << 25


class TaskRequest(NamedTuple):
    """Data that are sent with every task.

    session   identifies the run of bigforest, for statistics of the run.
    call      identifies the call of the executor, so that its tasks can be stopped.
    threads   number of threads for the task.
    versions  software versions that the worker must have.
    """

    session: str
    call: str
    threads: int
    versions: dict[str, str]


class TaskResult(NamedTuple):
    """The value of a task, or an error raised on purpose, which a retry would not fix."""

    value: Any
    failure: BigForestError | None


class TaskStats(NamedTuple):
    """Number of tasks of a run in a worker, seconds in these tasks, and bytes of their results."""

    tasks: int
    seconds: float
    bytes: int


_NO_TASKS = TaskStats(0, 0.0, 0)


class WorkerInfo(NamedTuple):
    """Facts about a worker.

    versions   software versions.
    monitored  True if Dask is set to act on the memory of workers that have a memory limit.
    """

    versions: dict[str, str]
    monitored: bool


class Seat:
    """A marker that keeps tasks on one worker, which has blocks of the store in its page cache or in a local copy.

    Dask places a task on the worker with the most bytes of its inputs. A seat has no content but claims a large size,
    so all tasks with the same seat among their inputs run on the same worker. If the worker is lost, Dask makes the
    seat again on another worker.
    """

    def __sizeof__(self) -> int:
        return _SEAT


def make_seat(_: int) -> Seat:
    """Task: return a seat on this worker."""
    return Seat()


def perform(
    request: TaskRequest,
    step: Callable[..., Any],
    shared: bytes,
    arguments: bytes,
    inputs: Sequence[TaskResult] = (),
    seat: Seat | None = None,
) -> TaskResult:
    """Task: run `step(request, shared, *arguments, *values of inputs)`; `shared` and `arguments` are pickled tuples.

    If an input has a failure, return it without running the step.
    """
    from distributed import get_worker

    failed = next((each for each in inputs if each.failure is not None), None)
    if failed is not None:
        return failed
    where = str(get_worker().address)
    wrong = version_error(request.versions, versions_here(), f"the worker {where}")
    if wrong is not None:
        return TaskResult(None, wrong)
    try:
        with _one_at_a_time(where, request.call):
            begin = time.perf_counter()
            value = step(request, pickle.loads(shared), *pickle.loads(arguments), *(each.value for each in inputs))
            _add_stats(where, request.session, time.perf_counter() - begin, _size(value))
            return TaskResult(value, None)
    except StorageError:  # the object store may answer when Dask retries
        raise
    except BigForestError as error:
        return TaskResult(None, error)
    except OSError as error:
        if (full := no_room(error)) is None:
            raise
        advice = full.rpartition("; ")[2]
        return TaskResult(None, DiskFullError(f"the worker {where} cannot write: {error}; {advice}"))


def call_each(
    request: TaskRequest, shared: tuple[Any, ...], function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """Step: return the results of some calls, in order; calls: arguments of each."""
    return Executor(request.threads).gather(_stoppable(request, function), calls, shared=shared)


def reduce_calls(
    request: TaskRequest,
    shared: tuple[Any, ...],
    function: Callable[..., list[Any]],
    merge: Callable[[Any, Any], Any],
    calls: Sequence[tuple[Any, ...]],
) -> list[bytes]:
    """Step: merge the lists that some calls return, entry by entry; return the entries pickled."""
    call = _stoppable(request, function)
    merged = Executor(request.threads).reduce(call, calls, partial(merge_lists, merge), shared)
    return [pickle.dumps(part) for part in merged]


def merge_packed(
    request: TaskRequest, shared: tuple[Any, ...], merge: Callable[[Any, Any], Any], *lists: list[bytes]
) -> list[bytes]:
    """Step: merge lists of pickled entries, entry by entry. Return the entries pickled."""

    def merged(*packed: bytes) -> bytes:
        return pickle.dumps(reduce(merge, map(pickle.loads, packed)))

    return Executor(request.threads).gather(merged, list(zip(*lists, strict=True)))


def finish_parts(
    request: TaskRequest,
    shared: tuple[Any, ...],
    finish: Callable[..., Any],
    merge: Callable[[Any, Any], Any],
    part_arguments: dict[int, tuple[Any, ...]],
    *lists: list[bytes],
) -> list[Any]:
    """Step: for each part, by number, merge its entries of all lists and call `finish` with the result."""
    call = _stoppable(request, finish)

    def finished(number: int, arguments: tuple[Any, ...]) -> Any:
        return call(*shared, *arguments, reduce(merge, (pickle.loads(each[number]) for each in lists)))

    return Executor(request.threads // _FINISHING).gather(finished, list(part_arguments.items()))


def _stoppable(request: TaskRequest, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        _check(request.call)
        return function(*arguments)

    return call


# The tasks in this process. Several workers may share a process, so locks, the calls of running tasks, and statistics
# are kept by the address of the worker; statistics also by session. _stopped has the last stopped calls.
_locks: dict[str, threading.Lock] = {}
_active: dict[str, str] = {}
_stats: dict[tuple[str, str], TaskStats] = {}
_stopped: deque[str] = deque(maxlen=_REMEMBERED)


@contextmanager
def _one_at_a_time(worker: str, call: str) -> Iterator[None]:
    """Wait until no other task runs in the worker. Raise ClusterError when the call has been stopped."""
    with _locks.setdefault(worker, threading.Lock()):
        _active[worker] = call
        try:
            _check(call)
            yield
        finally:
            del _active[worker]


def _check(call: str) -> None:
    """Raise ClusterError when the call has been stopped."""
    if call in _stopped:
        raise ClusterError("the run has been stopped")


def _add_stats(worker: str, session: str, seconds: float, size: int) -> None:
    """Add a task to the statistics of a worker in a session. To be called within `_one_at_a_time`."""
    tasks, seconds_before, bytes_before = _stats.get((worker, session), _NO_TASKS)
    _stats[worker, session] = TaskStats(tasks + 1, seconds_before + seconds, bytes_before + size)


def stop(call: str) -> bool:
    """Prevent further tasks of the call in this process. Return True if one of its tasks is still running."""
    if call not in _stopped:
        _stopped.append(call)
    return call in _active.values()


def take_stats(session: str, dask_worker: Any) -> TaskStats:
    """Return the statistics of this worker in a session, and remove them. Dask passes `dask_worker`."""
    return _stats.pop((dask_worker.address, session), _NO_TASKS)


async def run_off_loop(packed: bytes) -> Any:
    """Call a pickled function with its arguments in a thread, so that the worker can still answer the scheduler."""
    function, arguments = pickle.loads(packed)
    return await asyncio.to_thread(function, *arguments)


@cache
def versions_here() -> dict[str, str]:
    """Return the software versions that must be equal in all processes of a run."""
    return {
        "bigforest": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        **{name: _version(name) for name in ("numpy", "numba")},
    }


def version_error(needed: dict[str, str], installed: dict[str, str], where: str) -> ClusterError | None:
    """Return an error that names the first version that differs, or None. where: name of the process in the message."""
    for name, required in needed.items():
        if installed.get(name) != required:
            return ClusterError(
                f"{where} has {name} {installed.get(name)} and the client has {required}; install the same everywhere"
            )
    return None


def describe_worker() -> WorkerInfo:
    """Return facts about this process."""
    import dask

    limits = [dask.config.get(f"distributed.worker.memory.{name}", False) for name in ("pause", "terminate", "spill")]
    return WorkerInfo(versions_here(), any(limits))


def check_shared_file(path: str, content: str, answer: str) -> str:
    """Check that this worker sees the file `path` with its content, and can write a file next to it.

    answer  beginning of the name of the file to write

    Return an empty text, or the reason for a failure.
    """
    file = as_path(path)
    try:
        if file.read_text(encoding="utf-8") != content:
            return "another folder has this name there"
        file.with_name(f"{answer}-{secrets.token_hex(8)}").write_text(content, encoding="utf-8")
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _size(value: Any) -> int:
    from dask.sizeof import sizeof

    return 0 if value is None else int(sizeof(value))
