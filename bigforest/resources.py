"""Where and how fast a run goes. Nothing here changes a bit of the forest."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bigforest.errors import ConfigError


def available_threads() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """threads: worker threads, None for all processors. scratch: folder for temporary files, None for the system's."""

    threads: int | None = None
    scratch: Path | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and (
            not isinstance(self.threads, int) or isinstance(self.threads, bool) or self.threads < 1
        ):
            raise ConfigError(f"threads must be a whole number of at least 1, not {self.threads!r}")
        if self.scratch is not None and not Path(self.scratch).is_dir():
            raise ConfigError(f"scratch folder {self.scratch} does not exist; create it or name another")

    @property
    def workers(self) -> int:
        """Threads to run, resolved."""
        return self.threads if self.threads is not None else available_threads()
