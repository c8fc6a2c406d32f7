"""A block without garbage collection. It is switched on again afterwards, also in a process forked meanwhile."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_paused = False


@contextmanager
def gc_paused() -> Iterator[None]:
    """Collect no garbage in the block, whose objects stay, and would be looked through again and again.

    Where it is off already, by a user or by such a block in another thread, nothing is changed.
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
        if not gc.get_freeze_count():  # nothing is kept from collections by a user
            # The oldest generation gets the objects of the block: what is garbage goes with the next full collection.
            gc.freeze()
            gc.unfreeze()
        gc.enable()
        _paused = False


def _collect() -> None:
    """In a forked process, which lacks the thread that would end the block."""
    global _paused
    if _paused:
        gc.enable()
        _paused = False


if hasattr(os, "register_at_fork"):  # POSIX
    os.register_at_fork(after_in_child=_collect)
