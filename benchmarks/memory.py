"""Peak anonymous memory of training from a Parquet file, against what we allow ourselves. Linux only.

    python benchmarks/memory.py --data DIR [--sets mnist] [--trees 20] [--threads 2]

Allowed: 1.5 x codes + 40 bytes x rows x threads + 300 MB. Mapped files are not counted: the system takes
their pages back when it needs them. A fresh process trains from the file and nothing else is loaded into it;
its RssAnon and that of its children is read every few milliseconds. Writes results/memory.parquet and .md.

Compiling the kernels takes memory too, once per machine: the row "compiling" starts with an empty cache, the
others find the kernels compiled.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
import psutil
from datasets import TARGET, Dataset, load
from runs import Plan, arguments, environment, machine, plan_of, store
from tables import markdown, save, sized

SAMPLE_SECONDS = 0.005
MEGABYTE = 1_000_000
TRAIN = """
import sys, bigforest
data, target, trees, threads, constants, out = sys.argv[1:]
bigforest.train(
    data, target=target, trees=int(trees), threads=int(threads), mtry="sqrt", constants=constants, out=out
)
"""
COLUMNS = {
    "set": ("data", "{}"),
    "size": ("rows x features", "{}"),
    "contestant": ("contestant", "{}"),
    "codes": ("codes (MB)", "{:.1f}"),
    "peak": ("peak anonymous memory (MB)", "{:.0f}"),
    "allowed": ("allowed (MB)", "{:.0f}"),
    "share": ("share of it", "{:.2f}"),
}


def codes_bytes(data: Dataset) -> int:
    """Bytes of the codes: per feature the narrowest of 1, 2 or 4 bytes for its values, times the rows."""
    counts = [data.train[name].n_unique() for name in data.features]
    return data.train.height * sum(1 if n <= 1 << 8 else 2 if n <= 1 << 16 else 4 for n in counts)


def peak_anonymous(command: list[str], threads: int, **variables: str) -> int:
    """Largest sum of RssAnon over the process and its children while it ran, in bytes."""
    running = subprocess.Popen(command, env={**environment(threads), **variables})
    process, peak = psutil.Process(running.pid), 0
    while running.poll() is None:
        try:
            family = [process, *process.children(recursive=True)]
            peak = max(peak, sum(anonymous_bytes(member.pid) for member in family))
        except psutil.NoSuchProcess:
            break
        time.sleep(SAMPLE_SECONDS)
    if running.wait():
        raise SystemExit(f"training failed: {' '.join(command)}")
    return peak


def anonymous_bytes(pid: int) -> int:
    """Anonymous memory of a process in bytes; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = [line for line in text.splitlines() if line.startswith("RssAnon:")]
    return int(found[0].split()[1]) * 1024 if found else 0


def run(plan: Plan) -> pl.DataFrame:
    """One row per set and rule, after one for compiling on the first set."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as scratch:
        for name in plan.sets:
            data = load(name, plan.data)
            data = data.whole() if plan.whole else data
            source = store(data, Path(scratch)) / "train.parquet"
            for label in (["compiling"] if not rows else []) + ["redraw", "count"]:
                peak = _train(source, "redraw" if label == "compiling" else label, plan, Path(scratch))
                rows.append(_row(data, label, peak, plan.threads))
    return pl.DataFrame(rows)


def _train(source: Path, constants: str, plan: Plan, scratch: Path) -> int:
    out = tempfile.mkdtemp(dir=scratch) + "/out.forest"
    told = [str(source), TARGET, str(plan.trees), str(plan.threads), constants, out]
    return peak_anonymous([sys.executable, "-c", TRAIN, *told], plan.threads, NUMBA_CACHE_DIR=str(scratch / "kernels"))


def _row(data: Dataset, label: str, peak: int, threads: int) -> dict[str, Any]:
    codes, height = codes_bytes(data), data.train.height
    allowed = 1.5 * codes + 40 * height * threads + 300 * MEGABYTE
    size = {"set": data.name, "rows": height, "features": len(data.features), "classes": data.classes}
    figures = {"codes": codes, "peak": peak, "allowed": allowed}
    in_megabytes = {key: value / MEGABYTE for key, value in figures.items()}
    return size | {"contestant": f"bigforest-{label}", "accuracy": None} | in_megabytes | {"share": peak / allowed}


def main() -> None:
    """Peak anonymous memory of training from a Parquet file, against what we allow ourselves."""
    timed = "synthetic,mnist,covertype,flights"
    options = arguments(main.__doc__, sets=timed, contestants="", trees=20, rounds=1).parse_args()
    runs = run(plan_of(options))
    head = f"{options.trees} trees, {options.threads} threads, from a Parquet file.\n{machine()}."
    save("memory", runs, head + "\n\n" + markdown(sized(runs), COLUMNS), options.out)


if __name__ == "__main__":
    main()
