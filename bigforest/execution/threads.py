"""Independent tasks on Dask's threads.

Tasks are pure functions of their arguments. Bulky data goes through files and shared memory, never through
here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    from dask.callbacks import Callback
    from dask.threaded import get

    results: dict[int, Result] = {}
    numbers = iter(range(len(arguments)))

    def task() -> int:
        # Dask starts independent tasks in an order of its own, so each one takes the lowest number not yet
        # taken. The result goes past Dask, which would keep it until the last task has ended.
        index = next(numbers)
        results[index] = function(*arguments[index])
        return index

    def deliver(key: object, index: int, *_: object) -> None:
        on_result(index, results.pop(index))

    # The graph is made by hand: `dask.delayed` takes a fifth of a millisecond for each task.
    keys = [("task", number) for number in range(len(arguments))]
    # A pool of our own, because leaving its block waits for the running tasks whatever happened. Callbacks
    # are given here and not registered, so that runs in other threads do not hear of these tasks.
    with ThreadPoolExecutor(workers, thread_name_prefix="bigforest") as pool:
        get(dict.fromkeys(keys, (task,)), keys, pool=pool, callbacks=[Callback(posttask=deliver)._callback])


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
