"""Executors run the tasks of a stage: on the threads of this process, or on the workers of a Dask cluster.

A stage works with either executor. A task is a function at the top level of a module, with arguments that can be
pickled. It may run again, or twice at the same time, with the same effect: it writes files under names of its own, or
renames files when they are complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")
Part = TypeVar("Part")


class Executor:
    """Runner of tasks on threads of this process. `ClusterExecutor` (dask_cluster.py) runs them on a cluster.

    In all methods, `shared` has the first arguments of every task.

    remote  True if tasks run in other processes, which share only files with this process.
    """

    remote = False

    def __init__(self, size: int) -> None:
        """Take the number of threads; 0 counts as 1."""
        self._size = max(1, size)

    @property
    def size(self) -> int:
        """Number of tasks that run at the same time."""
        return self._size

    @property
    def processes(self) -> int:
        """Number of processes that run tasks."""
        return 1

    def run(
        self,
        function: Callable[..., Result],
        arguments: Sequence[tuple[Any, ...]],
        on_result: Callable[[int, Result], None] = lambda *_: None,
        shared: tuple[Any, ...] = (),
    ) -> None:
        """Call `function(*shared, *arguments[i])` for every i, and `on_result(i, result)` after each.

        Results are delivered once each, in the order in which tasks end, in the calling thread, and are not kept. The
        first error ends the call: no further task starts, and running tasks end before the error is raised. Tasks start
        in the order of `arguments`, which should begin with those that take longest.

        A single task, or all tasks of a single thread, run in the calling thread.
        """
        if self.size == 1 or len(arguments) == 1:  # starting threads takes milliseconds
            for index, call in enumerate(arguments):
                on_result(index, function(*shared, *call))
            return
        tasks = iter(enumerate(arguments))
        running: dict[Future[Result], int] = {}
        ended: SimpleQueue[Future[Result]] = SimpleQueue()

        def start_next() -> None:
            if (task := next(tasks, None)) is not None:
                begun = pool.submit(function, *shared, *task[1])
                running[begun] = task[0]
                begun.add_done_callback(ended.put)

        # Leaving the block waits for the running tasks, also after an error.
        with ThreadPoolExecutor(self.size, thread_name_prefix="bigforest") as pool:
            for _ in range(self.size):
                start_next()
            while running:
                first = ended.get()
                index, result = running.pop(first), first.result()
                start_next()
                on_result(index, result)
                del first, result

    def gather(
        self,
        function: Callable[..., Result],
        arguments: Sequence[tuple[Any, ...]],
        on_end: Callable[[int], None] | None = None,
        shared: tuple[Any, ...] = (),
    ) -> list[Result]:
        """Return the results of all tasks in the order of `arguments`; call `on_end(i)` after each. See `run`."""
        results: dict[int, Result] = {}

        def end(index: int, result: Result) -> None:
            results[index] = result
            if on_end is not None:
                on_end(index)

        self.run(function, arguments, end, shared)
        return [results[index] for index in range(len(arguments))]

    def map(
        self, function: Callable[..., Result], arguments: Sequence[tuple[Any, ...]], shared: tuple[Any, ...] = ()
    ) -> Iterator[Result]:
        """Yield results in the order of `arguments`, with few tasks in flight.

        For tasks that use threads of their own, or have large results. Without a cluster each task runs in the calling
        thread when its result is requested.
        """
        for call in arguments:
            yield function(*shared, *call)

    def reduce(
        self,
        function: Callable[..., Result],
        arguments: Sequence[tuple[Any, ...]],
        merge: Callable[[Result, Result], Result],
        shared: tuple[Any, ...] = (),
    ) -> Result:
        """Merge the results of all tasks (at least one) in pairs, in any order, and return the merged result.

        `merge` does not change its arguments.
        """
        as_list = partial(_as_list, function)
        [merged] = self.reduce_parts(as_list, arguments, merge, merged_part, [()], shared)
        return merged

    def reduce_parts(
        self,
        function: Callable[..., list[Part]],
        arguments: Sequence[tuple[Any, ...]],
        merge: Callable[[Part, Part], Part],
        finish: Callable[..., Result],
        part_arguments: Sequence[tuple[Any, ...]],
        shared: tuple[Any, ...],
    ) -> list[Result]:
        """Return `finish(*shared, *part_arguments[i], parts[i])` for every i, in order.

        Each task returns a list with one entry for every i. parts[i] is the result of merging the entries i of all
        lists, in pairs and in any order. `merge` does not change its arguments. There is at least one task and one
        part. On a cluster the workers merge and finish parts. On threads, parts are finished one after the other, the
        last part first, and each is freed once it is finished, to limit memory.
        """
        parts: list[Part] = []

        def add(_: int, further: list[Part]) -> None:
            parts[:] = merge_lists(merge, parts, further) if parts else further

        self.run(function, arguments, add, shared)
        return [finish(*shared, *each, parts.pop()) for each in reversed(part_arguments)][::-1]

    def run_on_all_workers(self, function: Callable[..., Result], *arguments: Any) -> list[Result]:
        """Return the result of the function in each process."""
        return [function(*arguments)]


def in_order(deliver: Callable[[int, Result], None]) -> Callable[[int, Result], None]:
    """Return a function for `on_result` of `Executor.run` that delivers results in the order of the tasks.

    A result waits until the results of all earlier tasks are delivered.
    """
    waiting: dict[int, Result] = {}
    following = 0

    def on_result(index: int, result: Result) -> None:
        nonlocal following
        waiting[index] = result
        while following in waiting:
            deliver(following, waiting.pop(following))
            following += 1

    return on_result


def merge_lists(merge: Callable[[Part, Part], Part], left: list[Part], right: list[Part]) -> list[Part]:
    """Merge two lists entry by entry."""
    return [merge(first, second) for first, second in zip(left, right, strict=True)]


def _as_list(function: Callable[..., Result], *arguments: Any) -> list[Result]:
    return [function(*arguments)]


def merged_part(*arguments: Any) -> Any:
    """Return a merged part unchanged: the function `finish` of `reduce_parts` for results that need no finishing."""
    return arguments[-1]


def on_each_thread(work: Callable[[], Result], workers: int) -> list[Result]:
    """Call `work` on each of `workers` threads, including this one, and return the results.

    The calls divide the work themselves, for example by taking items from one iterator. For work of some milliseconds:
    scheduling tasks would take two milliseconds more. An exception is raised when all threads have ended.
    """
    if workers == 1:
        return [work()]
    with ThreadPoolExecutor(workers - 1, thread_name_prefix="bigforest") as pool:
        others = [pool.submit(work) for _ in range(workers - 1)]
        result = work()
    return [result, *(future.result() for future in others)]
