"""What runs in the processes of a cluster, around the tasks."""

from __future__ import annotations

import asyncio
import pickle
import platform
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from bigforest.errors import BigForestError, ClusterError, DiskFullError, StorageError
from bigforest.execution import exchange
from bigforest.execution.exchange import RunNumber
from bigforest.execution.executor import map_on_threads, remove_files, run_on_threads
from bigforest.storage.atomic import disk_full
from bigforest.storage.paths import as_path
from bigforest.version import __version__

# Number of stopped runs that are remembered, so that their queued tasks do not begin.
_REMEMBERED = 256


class Order(NamedTuple):
    """Sent with every task. run: its run; slots: concurrent calls in a process; versions: required versions;
    discarded: files to remove."""

    run: RunNumber
    slots: int
    versions: dict[str, str]
    discarded: tuple[str, ...]


class Spent(NamedTuple):
    """What a worker did: tasks, seconds in them, and bytes of their results."""

    tasks: int
    seconds: float
    bytes: int

    def plus(self, other: Spent) -> Spent:
        """The sum."""
        return Spent(self.tasks + other.tasks, self.seconds + other.seconds, self.bytes + other.bytes)


Ledger = dict[str, Spent]


class Done(NamedTuple):
    """The outcome of a task: its result, or an error raised on purpose, which a retry would not fix."""

    result: Any
    failure: BigForestError | None
    ledger: Ledger


class Facts(NamedTuple):
    """Facts about a worker. memory_limit: bytes, 0 for none; monitored: whether Dask's own limits are active."""

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
    """Task: call the packed function with `shared`, which may be packed too, and each of the packed lists of arguments,
    side by side as far as there are slots; the results in their order."""

    def work() -> list[Any]:
        function, several = pickle.loads(packed)
        first = _unpacked(shared)

        def call(*own: Any) -> Any:
            with _RUNNING.slot(order):
                return function(*first, *own)

        return map_on_threads(call, several, min(order.slots, len(several)))

    return _done(order, work)


def one_part(function: Callable[..., Any], *given: Any) -> list[Any]:
    """What the function gives, as the only part."""
    return [function(*given)]


def merged_part(*given: Any) -> Any:
    """The part itself, of what finishes it is given."""
    return given[-1]


def hold_here(order: Order, packed: bytes, shared: tuple[Any, ...] | bytes) -> Done:
    """Task: call the packed function, which gives lists, with `shared` and each of the packed lists of arguments, on
    this number of threads; the lists, merged entry by entry, stay here, and the result is where. A single entry is in
    it too if it has at most this many bytes."""

    def work() -> exchange.HeldParts:
        held = exchange.keep(order.run, *_reduced(order, packed, shared))
        if _RUNNING.is_stopped(order.run):  # another worker has been faster, and nobody takes these
            exchange.forget(order.run)
        return held

    return _done(order, work)


def finish_parts(order: Order, packed: bytes, shared: tuple[Any, ...] | bytes) -> Done:
    """Task: for each of some parts, merge what the workers hold of it, and call the packed function with `shared`, the
    part's own arguments and the merged part. The results in order, exchange.LostPart for a lost part."""

    def work() -> list[Any]:
        finish, own, merge, held = pickle.loads(packed)
        first = _unpacked(shared)

        def finished(number: int, arguments: tuple[Any, ...]) -> Any:
            try:
                part = exchange.merge_parts(held, number, merge)
            except exchange.LostPart as lost:
                return lost
            return finish(*first, *arguments, part)

        with _RUNNING.slot(order):
            return [finished(number, arguments) for number, arguments in own.items()]

    return _done(order, work)


def _reduced(order: Order, packed: bytes, shared: tuple[Any, ...] | bytes) -> tuple[Any, int]:
    function, merge, several, threads, small = pickle.loads(packed)
    first = _unpacked(shared)
    merged: list[Any] = []

    def add(_: int, found: Any) -> None:
        merged[:] = [merge(merged[0], found)] if merged else [found]

    with _RUNNING.slot(order):
        run_on_threads(function, [(*first, *own) for own in several], workers=threads, on_result=add)
    return merged[0], small


def _unpacked(shared: tuple[Any, ...] | bytes) -> tuple[Any, ...]:
    return tuple(unpack(shared)) if isinstance(shared, bytes) else shared


def _done(order: Order, work: Callable[[], Any]) -> Done:
    """Run the work of a task, if the versions match."""
    where = _address()
    wrong = version_error(order.versions, versions_here(), f"the worker {where}")
    if wrong is not None:
        return Done(None, wrong, {})
    exchange.forget(order.run, earlier=True)
    begin = time.perf_counter()
    remove_files(map(as_path, order.discarded))
    try:
        result, failure = work(), None
    except StorageError:  # the store may answer when Dask tries again
        raise
    except BigForestError as error:
        result, failure = None, error
    except OSError as error:
        if not disk_full(error):
            raise
        result, failure = None, DiskFullError(f"a disk has no room: {error}")
    return Done(result, failure, {where: Spent(1, time.perf_counter() - begin, _size(result))})


async def off_loop(packed: bytes) -> Any:
    """Call the packed function in a thread, while the worker goes on to answer the scheduler. Parts of the runs before
    this one are forgotten, and files removed."""
    run, discarded, function, arguments = pickle.loads(packed)
    exchange.forget(run, earlier=True)
    await asyncio.to_thread(remove_files, map(as_path, discarded))
    return await asyncio.to_thread(function, *arguments)


def clients_there(dask_scheduler: Any) -> list[str]:
    """The clients that the scheduler knows; runs in its process."""
    return list(dask_scheduler.clients)


def describe_worker(clients: Sequence[str], dask_worker: Any) -> Facts:
    """Dask's facts about the worker, which forgets the parts of clients other than these: they have been killed."""
    import dask

    exchange.forget_others(clients)
    limit = int(dask_worker.memory_manager.memory_limit or 0)
    acts = [dask.config.get(f"distributed.worker.memory.{name}", False) for name in ("pause", "terminate", "spill")]
    return Facts(versions_here(), dask_worker.state.nthreads, limit, bool(limit) and any(acts))


def stop(run: RunNumber) -> int:
    """Start no further task of the run here; returns the number of running ones."""
    running = _RUNNING.stop(run)
    exchange.forget(run)  # what is kept from now on, hold_here forgets
    return running


def look(path: str, content: str, answer: str) -> str:
    """Whether the file `path` holds `content` here, and a file beside it can be written: "", or what is wrong."""
    file = as_path(path)
    try:
        if file.read_text(encoding="utf-8") != content:
            return "another folder has this name there"
        file.with_name(f"{answer}-{_unique()}").write_text(content, encoding="utf-8")
    except OSError as error:
        return error.strerror or str(error)
    return ""


class _Running:
    """The running calls in this process, by run."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: dict[RunNumber, int] = {}
        self._stopped: deque[RunNumber] = deque(maxlen=_REMEMBERED)

    @contextmanager
    def slot(self, order: Order) -> Iterator[None]:
        """Wait for a slot, which is held while the block runs. Raises ClusterError when the run has been stopped."""
        with self._changed:
            while order.run not in self._stopped and self._calls.get(order.run, 0) >= order.slots:
                self._changed.wait()
            if order.run in self._stopped:
                raise ClusterError("the run has been stopped")
            self._calls[order.run] = self._calls.get(order.run, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._calls[order.run] -= 1
                if not self._calls[order.run]:
                    del self._calls[order.run]
                self._changed.notify_all()

    def is_stopped(self, run: RunNumber) -> bool:
        """Whether the run has been stopped."""
        return run in self._stopped

    def stop(self, run: RunNumber) -> int:
        with self._changed:
            if run not in self._stopped:
                self._stopped.append(run)
            self._changed.notify_all()
            return self._calls.get(run, 0)


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

    if isinstance(result, exchange.HeldParts):
        return result.bytes
    return 0 if result is None else int(sizeof(result))
