"""A limit of memory that kills, for child processes: a control group of Linux, version 1 or 2. Needs root."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_VERSIONS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)


@contextmanager
def memory_limit(limit: int) -> Iterator[Path | None]:
    """Yield the folder of a group that may hold `limit` bytes, page cache included; None where none can be made."""
    for root, name in _VERSIONS:
        group = root / f"bigforest-test-{uuid.uuid4().hex[:8]}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(str(limit))
            with suppress(OSError):  # swapping would hide what is too much
                (group / "memory.swap.max").write_text("0")
            yield group
        except FileNotFoundError:
            continue
        finally:
            group.rmdir()
        return
    yield None


def run_within(group: Path, arguments: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in the group from its first instruction on."""
    script = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
    return subprocess.run(
        ["/bin/sh", "-c", script, "sh", sys.executable, *arguments],
        cwd=Path(__file__).resolve().parent.parent,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def was_killed(run: subprocess.CompletedProcess[str]) -> bool:
    """Whether the system killed it."""
    return run.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)


def evict(path: Path) -> None:
    """Drop the file from the page cache: pages that are there already are charged to nobody."""
    with path.open("rb") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
