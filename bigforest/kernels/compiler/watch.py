"""Watching the compiler at work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event


class _Each(event.Listener):  # type: ignore[misc]
    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told
        self._thread = threading.get_ident()

    def on_start(self, event: Any) -> None:
        pass

    def on_end(self, event: Any) -> None:
        if threading.get_ident() == self._thread:
            self._told()


@contextmanager
def watching_compiles(told: Callable[[], None]) -> Iterator[None]:
    """Call `told` after each function, kernel or part, that this thread compiles while the block runs."""
    with event.install_listener("numba:compile", _Each(told)):
        yield
