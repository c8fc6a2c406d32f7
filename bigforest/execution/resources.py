"""Where and how fast a run goes. Nothing here changes a bit of the forest."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bigforest.errors import ConfigError, api, shown
from bigforest.planning.batch_sizes import USUAL, Limits
from bigforest.planning.sizes import parse_bytes
from bigforest.storage.paths import can_write, is_folder

if TYPE_CHECKING:
    from bigforest.execution.cluster import Cluster
    from bigforest.execution.executor import Executor

# Limit per process, more than any machine has; systems allow some ten thousand.
MAX_THREADS = 1024


def available_threads() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources of a run.

    threads  worker threads of each process, None for all processors.
    scratch  folder for temporary files, None for the system's.
    memory   most bytes of anonymous memory a whole process may use, interpreter and libraries included; None for
             no limit.
    cluster  whose workers run the tasks; None for the threads of this process.
    limits   how much is worked on at a time.
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
            parse_bytes(self.memory)  # is checked

    @property
    def workers(self) -> int:
        """Threads of each process, resolved."""
        return self.threads if self.threads is not None else available_threads()

    def executor(self, slots: int | None = None) -> Executor:
        """The executor of tasks: at most `slots` at once in each process, `workers` unless given."""
        slots = self.workers if slots is None else slots
        if self.cluster is None:
            from bigforest.execution.executor import Threads

            return Threads(slots)
        from bigforest.execution.dask_cluster import ClusterExecutor

        return ClusterExecutor(self.cluster, slots)
