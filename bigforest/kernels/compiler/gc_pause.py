"""Pause garbage collection in a block. It is switched on again afterwards, also in a process forked meanwhile."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_paused = False


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause garbage collection in the block: it would search the same long-lived objects again and again.

    Nothing is changed if collection is off already: a user has switched it off, or another thread in this block.
    """
    global _paused
    if not gc.isenabled():
        yield
        return
    _paused = True
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # a user has frozen no objects
            # Move the objects of the block to the oldest generation: garbage among them goes with the next full
            # collection.
            gc.freeze()
            gc.unfreeze()
        gc.enable()
        _paused = False


def _collect() -> None:
    """Switch collection on in a forked process, which lacks the thread that would end the block."""
    global _paused
    if _paused:
        gc.enable()
        _paused = False


if hasattr(os, "register_at_fork"):  # POSIX
    os.register_at_fork(after_in_child=_collect)
