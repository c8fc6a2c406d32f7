"""The executors of the tasks of a stage: the threads of this process, or the processes of a Dask cluster.

Stages use `Executor` and do not depend on which it is. Tasks are pure functions, at the top level of a module, with
arguments that can be pickled; they may run again, or twice at the same time, with the same effect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

from bigforest.errors import StorageError

Result = TypeVar("Result")
Part = TypeVar("Part")


class TaskBatch(NamedTuple, Generic[Result]):
    """The tasks of one call: `function(*shared, *arguments[i])` for every i.

    even     see Executor.run
    costs    see Executor.gather; empty if nothing is known of them
    watched  whether results are wanted as tasks end, and not only when all have ended
    """

    function: Callable[..., Result]
    arguments: Sequence[tuple[Any, ...]]
    shared: tuple[Any, ...]
    even: bool = False
    costs: Sequence[float] = ()
    watched: bool = True


class PartBatch(NamedTuple, Generic[Part, Result]):
    """What is made of the parts of one call, see Executor.reduce_parts: `finish(*shared, *own[i], parts[i])`."""

    merge: Callable[[Part, Part], Part]
    finish: Callable[..., Result]
    own: Sequence[tuple[Any, ...]]


class Executor(ABC):
    """Runs tasks: `run`, `reduce`, `reduce_parts`, `map`, `run_on_all_workers` and `discard` are its interface,
    implemented by `_each` and so on.

    In all methods `shared` are the first arguments of every task, the same for all of them.

    remote  whether tasks run in other processes, which share only files with this one.
    """

    remote: bool

    @property
    @abstractmethod
    def size(self) -> int:
        """Tasks at once."""

    @property
    @abstractmethod
    def processes(self) -> int:
        """Number of processes."""

    def run(
        self,
        function: Callable[..., Result],
        arguments: Sequence[tuple[Any, ...]],
        on_result: Callable[[int, Result], None],
        shared: tuple[Any, ...] = (),
        *,
        even: bool = False,
    ) -> None:
        """Call `function(*shared, *arguments[i])` for every i, and `on_result(i, result)` after each.

        even: all calls take about equally long, so on a cluster each worker may get its share of them at once.

        Results are delivered once each, in the order in which tasks end, in the calling thread, and are not kept. The
        first error ends it: no further task is started, and running ones end before it is raised.
        """
        self._each(TaskBatch(function, arguments, shared, even), on_result)

    def gather(
        self,
        function: Callable[..., Result],
        arguments: Sequence[tuple[Any, ...]],
        on_end: Callable[[int], None] | None = None,
        shared: tuple[Any, ...] = (),
        *,
        even: bool = False,
        costs: Sequence[float] = (),
    ) -> list[Result]:
        """The results of all tasks, in the order of `arguments`; `on_end(i)` is called after each, see `run`.

        costs: about how long each takes compared with the others, so that workers get shares that end together.
        """
        results: dict[int, Result] = {}

        def end(index: int, result: Result) -> None:
            results[index] = result
            if on_end is not None:
                on_end(index)

        self._each(TaskBatch(function, arguments, shared, even, costs, on_end is not None), end)
        return [results[index] for index in range(len(arguments))]

    def reduce(
        self,
        function: Callable[..., Result],
        arguments: Sequence[tuple[Any, ...]],
        merge: Callable[[Result, Result], Result],
        shared: tuple[Any, ...] = (),
    ) -> Result:
        """The results of all tasks, one at least, merged in pairs, in any order; `merge` does not change its
        arguments."""
        return self._merged(TaskBatch(function, arguments, shared), merge)

    def reduce_parts(
        self,
        function: Callable[..., list[Part]],
        arguments: Sequence[tuple[Any, ...]],
        merge: Callable[[Part, Part], Part],
        finish: Callable[..., Result],
        own: Sequence[tuple[Any, ...]],
        shared: tuple[Any, ...],
    ) -> list[Result]:
        """What `finish(*shared, *own[i], parts[i])` gives, for every i and in order.

        The results of `function` are lists with an entry for every i; parts[i] are these entries of all of them, merged
        in pairs, in any order. `merge` does not change its arguments. On a cluster each part has an owner, a worker to
        which the others send their entries and which finishes it. There are tasks and parts, one at least.
        """
        return self._parts(TaskBatch(function, arguments, shared), PartBatch(merge, finish, own))

    def map(
        self, function: Callable[..., Result], arguments: Sequence[tuple[Any, ...]], shared: tuple[Any, ...] = ()
    ) -> Iterator[Result]:
        """The results in the order of `arguments`, few of them at a time. For tasks that use threads of their own."""
        return self._in_order(TaskBatch(function, arguments, shared))

    @abstractmethod
    def discard(self, files: Sequence[Path]) -> None:
        """Remove files that no task needs any more, as far as the system allows: on a cluster workers do so, together
        with what they are asked for next."""

    @abstractmethod
    def run_on_all_workers(self, function: Callable[..., Result], *arguments: Any) -> list[Result]:
        """What the function returns in each process."""

    @abstractmethod
    def _each(self, job: TaskBatch[Result], on_result: Callable[[int, Result], None]) -> None:
        """See run."""

    @abstractmethod
    def _merged(self, job: TaskBatch[Result], merge: Callable[[Result, Result], Result]) -> Result:
        """See reduce."""

    @abstractmethod
    def _parts(self, job: TaskBatch[list[Part]], of_parts: PartBatch[Part, Result]) -> list[Result]:
        """See reduce_parts."""

    @abstractmethod
    def _in_order(self, job: TaskBatch[Result]) -> Iterator[Result]:
        """See map."""


class Threads(Executor):
    """Threads of this process."""

    remote = False

    def __init__(self, size: int) -> None:
        self._size = size

    @property
    def size(self) -> int:
        """See Executor."""
        return self._size

    @property
    def processes(self) -> int:
        """See Executor."""
        return 1

    def discard(self, files: Sequence[Path]) -> None:
        """See Executor."""
        run_on_threads(remove_files, [([file],) for file in files], workers=self.size, on_result=lambda *_: None)

    def run_on_all_workers(self, function: Callable[..., Result], *arguments: Any) -> list[Result]:
        """See Executor."""
        return [function(*arguments)]

    def _each(self, job: TaskBatch[Result], on_result: Callable[[int, Result], None]) -> None:
        calls = [(*job.shared, *own) for own in job.arguments]
        run_on_threads(job.function, calls, workers=self.size, on_result=on_result)

    def _merged(self, job: TaskBatch[Result], merge: Callable[[Result, Result], Result]) -> Result:
        merged: list[Result] = []

        def add(_: int, found: Result) -> None:
            merged[:] = [merge(merged[0], found)] if merged else [found]

        self._each(job, add)
        return merged[0]

    def _parts(self, job: TaskBatch[list[Part]], of_parts: PartBatch[Part, Result]) -> list[Result]:
        """One part after the other, to limit memory."""
        parts = self._merged(job, partial(merge_lists, of_parts.merge))
        own = reversed(of_parts.own)
        return [of_parts.finish(*job.shared, *each, parts.pop()) for each in own][::-1]

    def _in_order(self, job: TaskBatch[Result]) -> Iterator[Result]:
        """Each task runs when its result is requested, in the calling thread."""
        for own in job.arguments:
            yield job.function(*job.shared, *own)


def remove_files(files: Iterable[Path]) -> None:
    """Remove files, as far as the system allows."""
    for file in files:
        with suppress(OSError, StorageError):
            file.unlink(missing_ok=True)


def merge_lists(merge: Callable[[Part, Part], Part], one: list[Part], two: list[Part]) -> list[Part]:
    """Both lists merged entry by entry."""
    return [merge(first, second) for first, second in zip(one, two, strict=True)]


def run_on_threads(
    function: Callable[..., Result],
    arguments: Sequence[tuple[Any, ...]],
    *,
    workers: int,
    on_result: Callable[[int, Result], None],
) -> None:
    """Call `function(*arguments[i])` for every i on `workers` threads, and `on_result(i, result)` after each.

    Tasks are started in the order of `arguments`. Results are delivered exactly once, in the order in which
    the tasks end, in the calling thread, and are not kept. The first exception of a task, of `on_result` or
    from the keyboard is raised as it is; no further task is started then, and the running ones end before it
    is raised. A single task, or a single worker, is this thread.
    """
    if workers == 1 or len(arguments) == 1:  # scheduling takes milliseconds
        for index, own in enumerate(arguments):
            on_result(index, function(*own))
        return
    tasks = iter(enumerate(arguments))
    running: dict[Future[Result], int] = {}
    ended: SimpleQueue[Future[Result]] = SimpleQueue()

    def start_next() -> None:
        for index, own in islice(tasks, 1):
            begun = pool.submit(function, *own)
            running[begun] = index
            begun.add_done_callback(ended.put)

    # Leaving the block waits for the running tasks, whatever happened.
    with ThreadPoolExecutor(workers, thread_name_prefix="bigforest") as pool:
        for _ in range(workers):
            start_next()
        while running:
            first = ended.get()
            index, result = running.pop(first), first.result()
            start_next()
            on_result(index, result)
            del first, result


def map_on_threads(function: Callable[..., Result], arguments: Sequence[tuple[Any, ...]], workers: int) -> list[Result]:
    """`function(*own)` for each of the arguments, in their order, on up to `workers` threads, this one among them.

    The first exception is raised when the running tasks have ended; no further task is started then.
    """
    results: dict[int, Result] = {}
    tasks = iter(enumerate(arguments))

    def work() -> None:
        try:
            for index, own in tasks:
                results[index] = function(*own)
        except BaseException:
            deque(tasks, maxlen=0)  # so that the other threads find none
            raise

    on_each_thread(work, max(1, min(workers, len(arguments))))
    return [results[index] for index in range(len(arguments))]


def on_each_thread(work: Callable[[], Result], workers: int) -> list[Result]:
    """What `work` gives on each of `workers` threads, this one among them, that share it out among themselves.

    For work that is counted in milliseconds: scheduling tasks takes two of them. The first exception is raised when
    all threads have ended.
    """
    if workers == 1:
        return [work()]
    with ThreadPoolExecutor(workers - 1, thread_name_prefix="bigforest") as pool:
        others = [pool.submit(work) for _ in range(workers - 1)]
        own = work()
    return [own, *(other.result() for other in others)]
