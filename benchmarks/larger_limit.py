"""Jobs (larger_jobs.py) in processes of their own, within a limit of memory, and what they took."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cgroup import evict, memory_limit
from memory import anonymous_bytes
from runs import environment

_JOBS = Path(__file__).resolve().parent / "larger_jobs.py"
_SAMPLE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Done:
    """How a job ended.

    status   "done", "killed" by the system for want of memory, "too long", or the last line of its error.
    stages   what each took, in order, those of one name added up, and the whole process last: see larger_jobs.py; and
             `peak`, most anonymous memory in bytes. Of a job that is not done, the whole alone, its seconds and peak.
    facts    what else it found out.
    """

    job: str
    status: str
    stages: list[dict[str, Any]]
    facts: dict[str, Any]

    @property
    def whole(self) -> dict[str, Any]:
        """What the whole process took."""
        return self.stages[-1]


def measure(job: str, limit: int | None, timeout: float | None = None, *, threads: int = 2, **arguments: Any) -> Done:
    """Do a job on `threads` threads, with the arguments of its function.

    limit    bytes that its process may hold, page cache included, or None.
    timeout  seconds after which it is killed, or None.

    The table, if it names one, is dropped from the page cache before: pages that are there are charged to nobody.
    Raises SystemExit where a limit is asked for and no control group can be made.
    """
    if limit is None:
        return _run(job, [], timeout, threads, arguments)
    table = Path(arguments["table"])
    for file in table.iterdir() if table.is_dir() else [table]:
        evict(file)
    with memory_limit(limit) as group:
        if group is None:
            raise SystemExit("no control group can be made here: run as root, or without a limit")
        return _run(
            job, ["/bin/sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh"], timeout, threads, arguments
        )


def _run(job: str, within: list[str], timeout: float | None, threads: int, arguments: dict[str, Any]) -> Done:
    command = [*within, sys.executable, str(_JOBS), job, json.dumps(arguments)]
    begin = time.monotonic()
    running = subprocess.Popen(
        command, env=environment(threads), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    samples: list[tuple[float, int]] = [(begin, 0)]
    late = False
    while running.poll() is None:
        samples.append((time.monotonic(), anonymous_bytes(running.pid)))
        late = timeout is not None and samples[-1][0] - begin > timeout
        if late:
            running.kill()
        with suppress(subprocess.TimeoutExpired):
            running.wait(_SAMPLE_SECONDS)
    whole = {"stage": "all", "seconds": time.monotonic() - begin, "peak": max(size for _, size in samples)}
    printed, errors = running.communicate()
    if running.returncode == 0:
        facts = json.loads(printed.splitlines()[-1])
        return Done(job, "done", _summed(facts.pop("stages"), samples, whole), facts)
    status = (errors.strip().splitlines() or ["failed"])[-1]
    if running.returncode == -signal.SIGKILL:
        status = "too long" if late else "killed"
    return Done(job, status, [whole], {})


def _summed(
    stages: list[dict[str, Any]], samples: list[tuple[float, int]], whole: dict[str, Any]
) -> list[dict[str, Any]]:
    """The stages of one name added up, with their peaks, and then the whole."""
    totals: dict[str, dict[str, Any]] = {}
    begin = samples[0][0]
    for stage in stages:
        name, end = stage.pop("stage"), stage.pop("end")
        total = totals.setdefault(name, {"stage": name, "peak": 0} | dict.fromkeys(stage, 0))
        total |= {key: total[key] + value for key, value in stage.items()}
        total["peak"] = max(total["peak"], *(size for at, size in samples if begin <= at <= end), 0)
        begin = end
    sums = {key: sum(total[key] for total in totals.values()) for key in stages[0]} if stages else {}
    return [*totals.values(), sums | whole]
