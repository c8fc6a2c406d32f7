"""What a forked process lacks: the threads of Polars, for which it would wait without end."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from bigforest.errors import ConfigError

_started = False  # in this process, just before it is forked
_lacking = False


def check_polars_threads() -> None:
    """Raise ConfigError where this process was forked from one in which Polars had started its threads."""
    if _lacking:
        raise ConfigError(
            "this process was forked from one that had used Polars, whose thread pool a fork does not copy, so that "
            'tables would be waited for without end; start processes by "spawn" or "forkserver" of multiprocessing, or '
            "give arrays of numpy to predict"
        )


def _look() -> None:
    global _started
    with suppress(OSError):  # a thread that has ended, or no Linux
        names = (path.read_text() for path in Path("/proc/self/task").glob("*/comm"))
        _started = any(name.startswith("polars-") and name[7:].strip().isdigit() for name in names)


def _forked() -> None:
    global _lacking
    _lacking = _lacking or _started


if hasattr(os, "register_at_fork"):  # POSIX
    os.register_at_fork(before=_look, after_in_child=_forked)
