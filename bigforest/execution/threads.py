"""Independent tasks on the threads of this process.

Tasks are pure functions of their arguments. Bulky data goes through files and shared memory, never through
here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


def run(
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


def together(work: Callable[[], Result], workers: int) -> list[Result]:
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
