"""Notice and progress bar while kernels are compiled. Later processes on this machine load them from a cache."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from numba.core import event

from bigforest.events import Compiling, Listener, stage
from bigforest.execution.executor import Executor
from bigforest.kernels.compiler.cache import is_noted, note

# Compiling is announced if it takes at least this many seconds.
_LONG = 2.0


class KernelKind(NamedTuple):
    """Kernels that are compiled together.

    name       name of the note that they are compiled (kernels/compiler/cache.py); letters and hyphens.
    about      purpose, for messages, such as "to encode tables".
    functions  approximate number of kernels and their parts (kernels/compiler/parts.py).
    seconds    approximate processor time.
    """

    name: str
    about: str
    functions: int
    seconds: float


ENCODING = KernelKind("encode", "to encode tables", 33, 5.0)


def is_compiled(kind: KernelKind) -> bool:
    """Task: return True if a note says that these kernels have been compiled for this machine."""
    return is_noted(kind.name)


@contextmanager
def announced(kind: KernelKind, listener: Listener) -> Iterator[None]:
    """Announce that the block compiles these kernels, if that takes long and no note says that they are compiled.

    Write this note after the block.
    """
    if not is_compiled(kind):
        _announce(kind, listener)
    yield
    note(kind.name)


def _announce(kind: KernelKind, listener: Listener) -> None:
    if kind.seconds >= _LONG:
        about = f"compiling kernels {kind.about}, once per machine, about {kind.seconds:.0f} s"
        listener(Compiling(about, kind.seconds))


class _CompileListener(event.Listener):  # type: ignore[misc]
    def __init__(self, on_compiled: Callable[[], None]) -> None:
        self._on_compiled = on_compiled
        self._thread = threading.get_ident()

    def on_start(self, event: Any) -> None:
        pass

    def on_end(self, event: Any) -> None:
        if threading.get_ident() == self._thread:
            self._on_compiled()


@contextmanager
def _watching_compiles(on_compiled: Callable[[], None]) -> Iterator[None]:
    """Call `on_compiled` after each kernel or part of a kernel that this thread compiles while the block runs."""
    with event.install_listener("numba:compile", _CompileListener(on_compiled)):
        yield


@contextmanager
def compiling(kind: KernelKind, executor: Executor, listener: Listener) -> Iterator[None]:
    """Run the block as the stage `compile`. The block compiles these kernels in all processes, or loads them."""
    new = not all(executor.run_on_all_workers(is_compiled, kind))
    if new:
        _announce(kind, listener)
    total = kind.functions if new else 1
    with stage("compile", total, "functions" if new else "step", listener) as progress:
        unseen = total - 1

        def on_compiled() -> None:
            nonlocal unseen
            if unseen:
                unseen -= 1
                progress.advance()

        with _watching_compiles(on_compiled):
            yield
        if new:
            executor.run_on_all_workers(note, kind.name)
        progress.advance(1 + unseen)
