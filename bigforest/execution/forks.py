"""A check for forked processes, which lack the threads of Polars and would wait for them without end."""

from __future__ import annotations

import os

from bigforest.errors import ConfigError

_used_polars = False
_lacks_threads = False


def check_polars_threads() -> None:
    """Raise ConfigError in a process that was forked after bigforest had used Polars. Call this before using it."""
    global _used_polars
    if _lacks_threads:
        raise ConfigError(
            "this process was forked from one that had used Polars, whose thread pool a fork does not copy, so that "
            'tables would be waited for without end; start processes by "spawn" or "forkserver" of multiprocessing, or '
            "give arrays of numpy to predict"
        )
    _used_polars = True


def _after_fork() -> None:
    global _lacks_threads
    _lacks_threads = _used_polars


if hasattr(os, "register_at_fork"):  # POSIX
    os.register_at_fork(after_in_child=_after_fork)
