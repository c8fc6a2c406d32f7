"""A check for forked processes, which lack the threads of Polars and would wait for them without end.

Importing bigforest imports this module, so that a fork is seen whoever has used Polars before it.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from bigforest.errors import ConfigError

# Names of the threads of Polars that queries run on; others exist from its import and are not waited for.
# Each names itself once it runs, so that any of them may be the first.
_POOL = re.compile(r"polars-\d|async-executor-")

_used_polars = False
_lacks_threads = False


def check_polars_threads() -> None:
    """Raise ConfigError in a process that was forked after Polars had been used. Call this before using it."""
    global _used_polars
    if _lacks_threads:
        raise ConfigError(
            "this process was forked from one that had used Polars, whose thread pool a fork does not copy, so that "
            'tables would be waited for without end; start processes by "spawn" or "forkserver" of multiprocessing, or '
            "give arrays of numpy to predict"
        )
    _used_polars = True


def _before_fork() -> None:
    """Note whether others have used Polars. Systems without /proc tell of bigforest's own use alone."""
    global _used_polars
    for name in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # the thread has ended
            _used_polars |= bool(_POOL.match(name.read_text(encoding="utf-8", errors="replace")))


def _after_fork() -> None:
    global _lacks_threads
    _lacks_threads = _used_polars


if hasattr(os, "register_at_fork"):  # POSIX
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
