"""Who does the tasks of a stage: the threads of this process, or the processes of a Dask cluster.

Stages are written against `Crew` and cannot tell which it is. Tasks are pure functions, at the top level of a module,
of arguments that can be pickled; they may be done again, or twice at the same time, and then have the same effect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from bigforest.schedule.tasks import run

Result = TypeVar("Result")


class Job(NamedTuple, Generic[Result]):
    """The tasks of one call: `function(*shared, *arguments[i])` for every i."""

    function: Callable[..., Result]
    arguments: Sequence[tuple[Any, ...]]
    shared: tuple[Any, ...]


class Crew(ABC):
    """Does tasks: `run`, `reduce`, `map` and `everywhere` for its users, of which `_each` and so on do the work.

    In all methods `shared` are the first arguments of every task, the same for all of them.

    remote  whether tasks are done in other processes, which share files with this one and nothing else.
    """

    remote: bool

    @property
    @abstractmethod
    def size(self) -> int:
        """Tasks at once."""

    @property
    @abstractmethod
    def processes(self) -> int:
        """Processes that do them."""

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
        self._each(Job(function, arguments, shared), on_result)

    def reduce(
        self,
        function: Callable[..., Result],
        arguments: Sequence[tuple[Any, ...]],
        merge: Callable[[Result, Result], Result],
        shared: tuple[Any, ...] = (),
    ) -> Result:
        """The results of all tasks, one at least, merged in pairs, in any order; `merge` leaves what it is given."""
        return self._merged(Job(function, arguments, shared), merge)

    def map(
        self, function: Callable[..., Result], arguments: Sequence[tuple[Any, ...]], shared: tuple[Any, ...] = ()
    ) -> Iterator[Result]:
        """The results in the order of `arguments`, few of them at a time. For tasks that use threads of their own."""
        return self._in_order(Job(function, arguments, shared))

    @abstractmethod
    def everywhere(self, function: Callable[..., Result], *arguments: Any) -> list[Result]:
        """What the function returns in each process."""

    @abstractmethod
    def _each(self, job: Job[Result], on_result: Callable[[int, Result], None]) -> None:
        """See run."""

    @abstractmethod
    def _merged(self, job: Job[Result], merge: Callable[[Result, Result], Result]) -> Result:
        """See reduce."""

    @abstractmethod
    def _in_order(self, job: Job[Result]) -> Iterator[Result]:
        """See map."""


class Threads(Crew):
    """Threads of this process."""

    remote = False

    def __init__(self, size: int) -> None:
        self._size = size

    @property
    def size(self) -> int:
        """See Crew."""
        return self._size

    @property
    def processes(self) -> int:
        """See Crew."""
        return 1

    def everywhere(self, function: Callable[..., Result], *arguments: Any) -> list[Result]:
        """See Crew."""
        return [function(*arguments)]

    def _each(self, job: Job[Result], on_result: Callable[[int, Result], None]) -> None:
        run(job.function, [(*job.shared, *own) for own in job.arguments], workers=self.size, on_result=on_result)

    def _merged(self, job: Job[Result], merge: Callable[[Result, Result], Result]) -> Result:
        merged: list[Result] = []

        def add(_: int, found: Result) -> None:
            merged[:] = [merge(merged[0], found)] if merged else [found]

        self._each(job, add)
        return merged[0]

    def _in_order(self, job: Job[Result]) -> Iterator[Result]:
        """Each task is done when its result is asked for, in the calling thread."""
        for own in job.arguments:
            yield job.function(*job.shared, *own)
