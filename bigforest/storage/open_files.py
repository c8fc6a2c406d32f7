"""The limit of open files of this process, raised if possible: many systems start with only 1,024."""

from __future__ import annotations

from contextlib import suppress

try:
    import resource
except ImportError:  # not POSIX: no such limit
    resource = None  # type: ignore[assignment]

# The most that are asked for, and what macOS grants where it refuses that.
_ASKED = (1 << 16, 10_240)


def allow_many_files() -> None:
    """Raise the limit as far as the system allows. For what opens a file for each of many trees, or many workers."""
    for asked in _ASKED if resource is not None else ():
        limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = asked if most == resource.RLIM_INFINITY else min(asked, most)
        if limit != resource.RLIM_INFINITY and limit < wanted:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
