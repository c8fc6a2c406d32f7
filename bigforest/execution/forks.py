"""A check for forked processes, which lack the threads of Polars and would wait for them without end.

Importing bigforest imports this module, so that every later fork is noted, even if other code has used Polars.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from bigforest.errors import ConfigError

# Names of the threads on which Polars runs queries. Other threads start when Polars is imported, but no query waits for
# them. A thread gets its name when it begins to run, so polars-1 may have a name before polars-0.
_POOL = re.compile(r"polars-\d|async-executor-")

_used_polars = False
_lacks_threads = False


def check_polars_threads() -> None:
    """Raise ConfigError in a process that was forked after Polars had been used. To be called before Polars is used."""
    global _used_polars
    if _lacks_threads:
        raise ConfigError(
            "this process was forked from one that had used Polars. A fork does not copy the threads of Polars, so "
            'reading a table would wait without end; start processes by "spawn" or "forkserver" of multiprocessing, or '
            "give arrays of numpy to predict"
        )
    _used_polars = True


def _before_fork() -> None:
    """Note whether any code has used Polars. Without /proc, only use by bigforest is known."""
    global _used_polars
    for name in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # the thread has ended
            _used_polars |= bool(_POOL.match(name.read_text(encoding="utf-8", errors="replace")))


def _after_fork() -> None:
    global _lacks_threads
    _lacks_threads = _used_polars


if hasattr(os, "register_at_fork"):  # POSIX
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
