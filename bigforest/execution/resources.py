"""Resources of a run: threads, memory, scratch folder, cluster. None of them changes a bit of the forest."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bigforest.errors import ConfigError, api, shown
from bigforest.options.values import plain
from bigforest.planning.sizes import USUAL, Limits, parse_bytes
from bigforest.storage.paths import as_path, can_write, is_folder

try:
    import resource
except ImportError:  # not POSIX: no limit of open files
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from bigforest.execution.dask_cluster import Cluster
    from bigforest.execution.executor import Executor

# Limit of `threads`, above the number of processors of most machines; systems allow about ten thousand threads.
MAX_THREADS = 1024
# Limits of open files to ask for, in turn. Many systems start with 1,024; macOS grants at most the second number.
_OPEN_FILES = (1 << 16, 10_240)


def available_threads() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_thread_variables() -> None:
    """Raise ConfigError if Numba or Polars would be started with a number of threads that they refuse."""
    for name in ("NUMBA_NUM_THREADS", "POLARS_MAX_THREADS"):
        number = os.environ.get(name, "").strip()
        if number and not (number.isdecimal() and int(number)):
            raise ConfigError(
                f"the environment variable {name} must be a whole number of at least 1, not {number!r}; change or "
                "remove it"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources of a run.

    threads  worker threads of each process, None for all processors.
    scratch  folder for temporary files, None for the system's.
    memory   limit of the anonymous memory of each process, bytes, with interpreter and libraries; None for no limit.
    cluster  the cluster whose workers run the tasks; None for the threads of this process.
    limits   batch sizes.
    """

    threads: int | None = None
    scratch: Path | None = None
    memory: int | None = None
    cluster: Cluster | None = None
    limits: Limits = USUAL

    def __post_init__(self) -> None:
        threads = self.threads
        if threads is not None and (
            not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= MAX_THREADS
        ):
            raise ConfigError(f"{api('threads')} must be a whole number from 1 to {MAX_THREADS}, not {shown(threads)}")
        if self.scratch is not None and not is_folder(self.scratch):
            raise ConfigError(f"scratch folder {self.scratch} does not exist; create it or name another")
        if self.scratch is not None and not can_write(self.scratch):
            raise ConfigError(f"scratch folder {self.scratch} cannot be written to; name another")
        if self.memory is not None:
            parse_bytes(self.memory)  # raises ConfigError for an invalid amount

    @property
    def workers(self) -> int:
        """Number of worker threads of each process."""
        return self.threads if self.threads is not None else available_threads()

    def executor(self, slots: int | None = None) -> Executor:
        """Return an executor that runs at most `slots` tasks at once in each process; `workers` by default."""
        slots = self.workers if slots is None else slots
        if self.cluster is None:
            from bigforest.execution.executor import Executor

            return Executor(slots)
        from bigforest.execution.dask_cluster import ClusterExecutor

        return ClusterExecutor(self.cluster, slots)


def allow_many_files() -> None:
    """Raise the limit of open files, as far as the system allows: in passes each thread opens many at once."""
    for asked in _OPEN_FILES if resource is not None else ():
        limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        target = asked if hard_limit == resource.RLIM_INFINITY else min(asked, hard_limit)
        if limit != resource.RLIM_INFINITY and limit < target:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard_limit))


_ALL_PROCESSORS = Resources()


def resources_of(threads: int | None, scratch: str | Path | None, memory: str | int | None) -> Resources:
    """Return the resources of a run on threads; `open_resources` adds the cluster. Raises ConfigError."""
    if threads is None and scratch is None and memory is None:
        return _ALL_PROCESSORS  # making and checking another takes as long as growing a tree on one row
    return Resources(
        threads=plain(threads),
        scratch=None if scratch is None else as_path(scratch),
        memory=None if memory is None else parse_bytes(plain(memory)),
    )
