"""Jobs (larger_jobs.py) in processes of their own, within a limit of memory, and what they took."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cgroup import evict, memory_limit

_HERE = Path(__file__).resolve().parent.parent
_SAMPLE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Done:
    """How a job ended.

    status   "done", "killed" by the system for want of memory, "too long", or the last line of its error.
    seconds  of wall time of the whole process.
    peak     most anonymous memory, bytes.
    facts    what it printed: its stages and more; nothing unless it is done.
    """

    job: str
    status: str
    seconds: float
    peak: int
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def stages(self) -> list[dict[str, Any]]:
        """Its stages in order, those of one name added up, the whole process last."""
        totals: dict[str, dict[str, Any]] = {}
        for stage in self.facts.get("stages", []):
            for name in (stage["stage"], "all"):
                total = totals.setdefault(name, {"stage": name} | dict.fromkeys(stage.keys() - {"stage"}, 0))
                total |= {key: total[key] + value for key, value in stage.items() if key != "stage"}
        whole = totals.pop("all", None)
        return [*totals.values(), *([whole] if whole else [])]


def measure(job: str, limit: int | None, timeout: float | None = None, **arguments: Any) -> Done:
    """Do a job; limit: bytes that its process may hold, page cache included, or None.

    The table, if it names one, is dropped from the page cache before: pages that are there are charged to nobody.
    Raises SystemExit where a limit is asked for and no control group can be made.
    """
    if limit is None:
        return _run(job, [], timeout, arguments)
    table = Path(arguments["table"])
    for file in table.iterdir() if table.is_dir() else [table]:
        evict(file)
    with memory_limit(limit) as group:
        if group is None:
            raise SystemExit("no control group can be made here: run as root, or without a limit")
        return _run(job, ["/bin/sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh"], timeout, arguments)


def _run(job: str, within: list[str], timeout: float | None, arguments: dict[str, Any]) -> Done:
    command = [*within, sys.executable, "-m", "benchmarks.larger_jobs", job, json.dumps(arguments)]
    begin = time.perf_counter()
    running = subprocess.Popen(command, cwd=_HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak, late = 0, False
    while running.poll() is None:
        peak = max(peak, _anonymous(running.pid))
        late = timeout is not None and time.perf_counter() - begin > timeout
        if late:
            running.kill()
        with suppress(subprocess.TimeoutExpired):
            running.wait(_SAMPLE_SECONDS)
    seconds = time.perf_counter() - begin
    printed, errors = running.communicate()
    if running.returncode == 0:
        return Done(job, "done", seconds, peak, json.loads(printed.splitlines()[-1]))
    if late:
        return Done(job, "too long", seconds, peak)
    status = "killed" if running.returncode == -9 else (errors.strip().splitlines() or ["failed"])[-1]
    return Done(job, status, seconds, peak)


def _anonymous(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = [line for line in text.splitlines() if line.startswith("RssAnon:")]
    return int(found[0].split()[1]) * 1024 if found else 0
