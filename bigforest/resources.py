"""Where and how fast a run goes. Nothing here changes a bit of the forest."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bigforest.errors import ConfigError

if TYPE_CHECKING:
    from bigforest.schedule.cluster import Cluster
    from bigforest.schedule.crew import Crew

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)


def available_threads() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parse_bytes(size: str | int) -> int:
    """Bytes of a size such as "4GB" (10**9 each), "512MiB" (2**20 each) or a plain number. Raises ConfigError."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    total = int(float(found[1]) * _UNITS[(found[2] or "").lower()]) if found else 0
    if total < 1:
        raise ConfigError(f"memory must be a size such as 4GB, 512MiB or a number of bytes, not {size!r}")
    return total


def _is_folder(path: Path) -> bool:
    from bigforest.places import is_folder  # which limits its copies to a size in our units

    return is_folder(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Where a run goes.

    threads  worker threads of each process, None for all processors.
    scratch  folder for temporary files, None for the system's.
    memory   most bytes of anonymous memory a whole process may use, interpreter and libraries included; None for
             no limit.
    cluster  whose workers do the tasks; None for the threads of this process.
    """

    threads: int | None = None
    scratch: Path | None = None
    memory: int | None = None
    cluster: Cluster | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and (
            not isinstance(self.threads, int) or isinstance(self.threads, bool) or self.threads < 1
        ):
            raise ConfigError(f"threads must be a whole number of at least 1, not {self.threads!r}")
        if self.scratch is not None and not _is_folder(self.scratch):
            raise ConfigError(f"scratch folder {self.scratch} does not exist; create it or name another")
        if self.memory is not None:
            parse_bytes(self.memory)

    @property
    def workers(self) -> int:
        """Threads of each process, resolved."""
        return self.threads if self.threads is not None else available_threads()

    def crew(self, slots: int | None = None) -> Crew:
        """Who does the tasks: at most `slots` at once in each process, `workers` unless given."""
        slots = self.workers if slots is None else slots
        if self.cluster is None:
            from bigforest.schedule.crew import Threads

            return Threads(slots)
        from bigforest.schedule.cluster import Workers

        return Workers(self.cluster, slots)
