"""Who does the tasks of a stage: the threads of this process, or the processes of a Dask cluster.

Stages are written against `Crew` and cannot tell which it is. Tasks are pure functions, at the top level of a module,
of arguments that can be pickled; they may be done again, or twice at the same time, and then have the same effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from bigforest.schedule.tasks import run

Result = TypeVar("Result")


class Crew(Protocol):
    """Does tasks. In all methods `shared` are the first arguments of every task, the same for all of them."""

    @property
    def size(self) -> int:
        """Tasks at once."""

    @property
    def processes(self) -> int:
        """Processes that do them."""

    @property
    def remote(self) -> bool:
        """Whether tasks are done in other processes, which share files with this one and nothing else."""

    def run(
        self,
        function: Callable[..., Result],
        arguments: Sequence[tuple[Any, ...]],
        on_result: Callable[[int, Result], None],
        shared: tuple[Any, ...] = (),
    ) -> None:
        """Call `function(*shared, *arguments[i])` for every i, and `on_result(i, result)` after each.

        Results are delivered once each, in the order in which tasks end, in the calling thread, and are not kept. The
        first error ends it: no further task is started, and running ones end before it is raised.
        """

    def reduce(
        self,
        function: Callable[..., Result],
        arguments: Sequence[tuple[Any, ...]],
        merge: Callable[[Result, Result], Result],
        shared: tuple[Any, ...] = (),
    ) -> Result:
        """The results of all tasks, one at least, merged in pairs, in any order; `merge` leaves what it is given."""

    def map(
        self, function: Callable[..., Result], arguments: Sequence[tuple[Any, ...]], shared: tuple[Any, ...] = ()
    ) -> Iterator[Result]:
        """The results in the order of `arguments`, few of them at a time. For tasks that use threads of their own."""

    def everywhere(self, function: Callable[..., Result], *arguments: Any) -> list[Result]:
        """What the function returns in each process."""


class Threads:
    """Threads of this process."""

    processes = 1
    remote = False

    def __init__(self, size: int) -> None:
        self.size = size

    def run(
        self,
        function: Callable[..., Result],
        arguments: Sequence[tuple[Any, ...]],
        on_result: Callable[[int, Result], None],
        shared: tuple[Any, ...] = (),
    ) -> None:
        """See Crew."""
        run(function, [(*shared, *own) for own in arguments], workers=self.size, on_result=on_result)

    def reduce(
        self,
        function: Callable[..., Result],
        arguments: Sequence[tuple[Any, ...]],
        merge: Callable[[Result, Result], Result],
        shared: tuple[Any, ...] = (),
    ) -> Result:
        """See Crew."""
        merged: list[Result] = []

        def add(_: int, found: Result) -> None:
            merged[:] = [merge(merged[0], found)] if merged else [found]

        self.run(function, arguments, add, shared)
        return merged[0]

    def map(
        self, function: Callable[..., Result], arguments: Sequence[tuple[Any, ...]], shared: tuple[Any, ...] = ()
    ) -> Iterator[Result]:
        """See Crew. Each task is done when its result is asked for, in the calling thread."""
        for own in arguments:
            yield function(*shared, *own)

    def everywhere(self, function: Callable[..., Result], *arguments: Any) -> list[Result]:
        """See Crew."""
        return [function(*arguments)]
