"""Events of a run, sent to a listener.

Algorithms emit events and know nothing about bars, logs or terminals: the listeners of progress.py draw and log.
A listener is any callable that takes one event. It is called from the thread that drives the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bigforest.errors import write_names


@dataclass(frozen=True, slots=True)
class StageStarted:
    """A stage, such as encode, grow or predict, began; `total` units of work lie ahead."""

    stage: str
    total: int
    unit: str


@dataclass(frozen=True, slots=True)
class StageAdvanced:
    """`done` units of the stage are finished, counted from its start."""

    stage: str
    done: int


@dataclass(frozen=True, slots=True)
class StageFinished:
    """The stage ended after `seconds` of wall time."""

    stage: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know, such as rows that were left out.

    text  the message, in which names of options may be marked (bigforest.errors.api).
    """

    text: str

    @property
    def message(self) -> str:
        """The message with the names of options as in the Python API."""
        return write_names(self.text)


@dataclass(frozen=True, slots=True)
class Compiling(Notice):
    """Kernels will be compiled now, which takes about `seconds`, once per machine."""

    seconds: float


@dataclass(frozen=True, slots=True)
class WorkerUse:
    """Use of one worker of a cluster in a run.

    worker   address of the worker.
    tasks    number of its tasks.
    seconds  wall time of all its tasks, added up.
    bytes    bytes of their results.
    """

    worker: str
    tasks: int
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class WorkersUsed:
    """A run on a cluster ended, with or without an error."""

    workers: tuple[WorkerUse, ...]


Event = StageStarted | StageAdvanced | StageFinished | Notice | WorkersUsed
Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """Ignore the event: the listener of silent runs."""


def once(listener: Listener) -> Listener:
    """Return a listener that passes on all events, but equal notices once. Kernels of two kinds have equal notices."""
    heard: set[Event] = set()

    def pass_on(event: Event) -> None:
        if type(event) is Notice:
            if event in heard:
                return
            heard.add(event)
        listener(event)

    return pass_on


class Stage:
    """Progress of one running stage."""

    def __init__(self, name: str, listener: Listener) -> None:
        self.name = name
        self._listener = listener
        self._done = 0

    def advance(self, units: int = 1) -> None:
        """Report that `units` more units of work are finished."""
        self._done += units
        self._listener(StageAdvanced(self.name, self._done))


@contextmanager
def stage(name: str, total: int, unit: str, listener: Listener) -> Iterator[Stage]:
    """Announce a stage, yield its `Stage`, and report its wall time when it ends without an error."""
    listener(StageStarted(name, total, unit))
    begin = time.perf_counter()
    yield Stage(name, listener)
    listener(StageFinished(name, time.perf_counter() - begin))
