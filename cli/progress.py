"""Draws the events of a run on stderr: bars on a terminal, notices everywhere, nothing when quiet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bigforest.common.events import Listener, silent
from bigforest.common.progress import Bars


@contextmanager
def showing_progress(*, quiet: bool) -> Iterator[Listener]:
    """Yield the listener that suits stderr; its bars vanish when the block ends."""
    if quiet:
        yield silent
        return
    bars = Bars(enabled=sys.stderr is not None and sys.stderr.isatty())
    try:
        yield bars
    finally:
        bars.close()
