"""What runs in the processes of a cluster, around the tasks."""

from __future__ import annotations

import asyncio
import pickle
import platform
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from bigforest.common.errors import BigForestError, ClusterError, StorageError
from bigforest.common.version import __version__
from bigforest.storage.paths import as_path

# Runs that were stopped and are remembered, so that their tasks which wait in a queue do not begin.
_REMEMBERED = 256


class Order(NamedTuple):
    """Goes with every task. run: of which it is a part; slots: tasks of it at once in a process; versions: needed."""

    run: str
    slots: int
    versions: dict[str, str]


class Spent(NamedTuple):
    """What a worker did: tasks, seconds in them, and bytes of what they handed back."""

    tasks: int
    seconds: float
    bytes: int

    def plus(self, other: Spent) -> Spent:
        """The sum."""
        return Spent(self.tasks + other.tasks, self.seconds + other.seconds, self.bytes + other.bytes)


Ledger = dict[str, Spent]


class Done(NamedTuple):
    """What a task hands back: its result, or the error it raised on purpose, which trying again does not mend."""

    result: Any
    failure: BigForestError | None
    ledger: Ledger


class Facts(NamedTuple):
    """What a worker says of itself. memory_limit: bytes, 0 for none; monitored: whether Dask acts on its own count."""

    versions: dict[str, str]
    threads: int
    memory_limit: int
    monitored: bool


@cache
def versions_here() -> dict[str, str]:
    """The versions on which the forest, or what passes between processes, depends."""
    return {
        "bigforest": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        **{name: _version(name) for name in ("numpy", "numba")},
    }


def version_error(needed: dict[str, str], found: dict[str, str], where: str) -> ClusterError | None:
    """The error that names the first version that differs."""
    for name, wanted in needed.items():
        if found.get(name) != wanted:
            return ClusterError(
                f"{where} has {name} {found.get(name)} and the client has {wanted}; install the same everywhere"
            )
    return None


def add_ledger(one: Ledger, two: Ledger) -> Ledger:
    """The sum of both."""
    return {name: one.get(name, Spent(0, 0.0, 0)).plus(two.get(name, Spent(0, 0.0, 0))) for name in one | two}


def unpack(packed: bytes) -> Any:
    """Task: what the tasks of a run share. The scheduler sees bytes only, so it opens no files."""
    return pickle.loads(packed)


def perform(order: Order, packed: bytes, shared: tuple[Any, ...] | bytes) -> Done:
    """Task: call the packed function with `shared`, which may be packed too, and the packed arguments."""
    where = _address()
    wrong = version_error(order.versions, versions_here(), f"the worker {where}")
    if wrong is not None:
        return Done(None, wrong, {})
    if not _RUNNING.enter(order):
        return Done(None, ClusterError("the run has been stopped"), {})
    begin = time.perf_counter()
    try:
        function, arguments = pickle.loads(packed)
        first = unpack(shared) if isinstance(shared, bytes) else shared
        result, failure = function(*first, *arguments), None
    except StorageError:  # the store may answer when Dask tries again
        raise
    except BigForestError as error:
        result, failure = None, error
    finally:
        _RUNNING.leave(order)
    return Done(result, failure, {where: Spent(1, time.perf_counter() - begin, _size(result))})


def combine(order: Order, packed: bytes, *parts: Done) -> Done:
    """Task: merge the results of some tasks."""
    ledger: Ledger = {}
    for part in parts:
        ledger = add_ledger(ledger, part.ledger)
    failed = [part for part in parts if part.failure is not None]
    if failed:
        return failed[0]._replace(ledger=ledger)
    begin = time.perf_counter()
    merge: Callable[[Any, Any], Any] = pickle.loads(packed)
    result = parts[0].result
    for part in parts[1:]:
        result = merge(result, part.result)
    own = {_address(): Spent(1, time.perf_counter() - begin, _size(result))}
    return Done(result, None, add_ledger(ledger, own))


async def off_loop(packed: bytes) -> Any:
    """Call the packed function in a thread, while the worker goes on to answer the scheduler."""
    function, arguments = pickle.loads(packed)
    return await asyncio.to_thread(function, *arguments)


def describe_worker(dask_worker: Any) -> Facts:
    """What Dask knows of the worker."""
    import dask

    limit = int(dask_worker.memory_manager.memory_limit or 0)
    acts = [dask.config.get(f"distributed.worker.memory.{name}", False) for name in ("pause", "terminate", "spill")]
    return Facts(versions_here(), dask_worker.state.nthreads, limit, bool(limit) and any(acts))


def stop(run: str) -> int:
    """Let no further task of the run begin here; gives the number of those that go on."""
    return _RUNNING.stop(run)


def look(path: str, content: str, answer: str) -> str:
    """Whether the file `path` holds `content` here, and a file beside it can be written: "", or what is wrong."""
    place = as_path(path)
    try:
        if place.read_text(encoding="utf-8") != content:
            return "another folder has this name there"
        place.with_name(f"{answer}-{_unique()}").write_text(content, encoding="utf-8")
    except OSError as error:
        return error.strerror or str(error)
    return ""


class _Running:
    """The tasks that are going on in this process, by run."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tasks: dict[str, int] = {}
        self._stopped: deque[str] = deque(maxlen=_REMEMBERED)

    def enter(self, order: Order) -> bool:
        """Wait for a slot; False when the run has been stopped."""
        with self._changed:
            while order.run not in self._stopped and self._tasks.get(order.run, 0) >= order.slots:
                self._changed.wait()
            if order.run in self._stopped:
                return False
            self._tasks[order.run] = self._tasks.get(order.run, 0) + 1
            return True

    def leave(self, order: Order) -> None:
        with self._changed:
            self._tasks[order.run] -= 1
            if not self._tasks[order.run]:
                del self._tasks[order.run]
            self._changed.notify_all()

    def stop(self, run: str) -> int:
        with self._changed:
            if run not in self._stopped:
                self._stopped.append(run)
            self._changed.notify_all()
            return self._tasks.get(run, 0)


_RUNNING = _Running()


def _address() -> str:
    from distributed import get_worker

    return str(get_worker().address)


def _unique() -> str:
    import secrets

    return secrets.token_hex(8)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _size(result: Any) -> int:
    from dask.sizeof import sizeof

    return 0 if result is None else int(sizeof(result))
