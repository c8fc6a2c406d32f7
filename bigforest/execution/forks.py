"""A check for forked processes, which lack the threads of Polars and would wait for them without end.

Importing bigforest imports this module, so that a fork is seen whoever has used Polars before it. If bigforest is
imported only after the fork, the threads of the processes that this one was forked from are looked at.
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

# Places of two fields in the list of `_status`: the process that started this one, and the address of its stack.
_PARENT, _STACK = 1, 25

_used_polars = False


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


def _has_pool(process: str) -> bool:
    """Return True if Polars has been used in a process. Systems without /proc do not tell."""
    for name in Path(f"/proc/{process}/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # the thread has ended
            if _POOL.match(name.read_text(encoding="utf-8", errors="replace")):
                return True
    return False


def _was_forked() -> bool:
    """Return True if this process is a fork of one that has used Polars and still runs, or a fork of a fork of it."""
    with contextlib.suppress(OSError):
        process, fields = "self", _status("self")
        stack = fields[_STACK]  # begins at a random address, which a fork shares and another program does not
        while fields[_STACK] == stack:
            if _has_pool(process):
                return process != "self"
            process = fields[_PARENT]
            fields = _status(process)
    return False


def _status(process: str) -> list[str]:
    """Return the fields of /proc/PROCESS/stat after the name. Raises OSError."""
    return Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _before_fork() -> None:
    """Note whether others have used Polars. Systems without /proc tell of bigforest's own use alone."""
    global _used_polars
    _used_polars |= _has_pool("self")


def _after_fork() -> None:
    global _lacks_threads
    _lacks_threads = _used_polars


_lacks_threads = _was_forked()
if hasattr(os, "register_at_fork"):  # POSIX
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
