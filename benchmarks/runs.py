"""Plans of measurements: every contestant on every set, round after round, each in a fresh process.

Contestants are interleaved and their order turns by one place from round to round, so that a slow minute of
the machine or a warm cache hits all of them alike. The round is the seed of all contestants of that round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import polars as pl
from datasets import SETS, Dataset, load

import bigforest

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `whole` trains on test rows too: full size for timing, and no accuracy."""

    data: Path
    sets: list[str]
    contestants: list[str]
    trees: int
    rounds: int
    threads: int
    whole: bool


def arguments(about: str | None, *, sets: str, contestants: str, trees: int, rounds: int) -> argparse.ArgumentParser:
    """The options all benchmarks share, with the defaults of this one."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with the sets, see datasets.py")
    parser.add_argument("--sets", default=sets, help=f"comma-separated, of {', '.join(SETS)}")
    parser.add_argument("--contestants", default=contestants, help="comma-separated")
    parser.add_argument("--trees", type=int, default=trees)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--whole", action="store_true", help="train on all rows; accuracy is then not reported")
    parser.add_argument(
        "--out", type=Path, default=HERE / "results", help="folder for the Parquet and Markdown results"
    )
    return parser


def plan_of(options: argparse.Namespace) -> Plan:
    """The plan the options describe."""
    return Plan(
        options.data,
        options.sets.split(","),
        options.contestants.split(","),
        options.trees,
        options.rounds,
        options.threads,
        options.whole,
    )


def run(plan: Plan) -> pl.DataFrame:
    """One row per measurement. Progress goes to stderr."""
    rows = []
    for name in plan.sets:
        data = load(name, plan.data)
        data = data.whole() if plan.whole else data
        size = {
            "set": name,
            "rows": data.train.height,
            "features": len(data.features),
            "classes": data.classes,
        }
        with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as scratch:
            folder = store(data, Path(scratch))
            for round_, contestant in order(plan):
                result = _measure(name, folder, contestant, round_, plan)
                if plan.whole:
                    result["accuracy"] = None
                row = size | {
                    "contestant": contestant,
                    "round": round_,
                    "trees": plan.trees,
                    "threads": plan.threads,
                }
                rows.append(row | result)
                print(f"{name} round {round_} {contestant}: fit {result['fit_seconds']:.2f} s", file=sys.stderr)
    return pl.DataFrame(rows, infer_schema_length=None)


def order(plan: Plan) -> Iterator[tuple[int, str]]:
    """Pairs of round and contestant: interleaved, the first place moving on by one each round."""
    for round_ in range(plan.rounds):
        turn = round_ % len(plan.contestants)
        for contestant in plan.contestants[turn:] + plan.contestants[:turn]:
            yield round_, contestant


def store(data: Dataset, folder: Path) -> Path:
    """Write both parts of the set where a worker finds them."""
    folder.mkdir(exist_ok=True)
    data.train.write_parquet(folder / "train.parquet")
    data.test.write_parquet(folder / "test.parquet")
    return folder


def environment(threads: int) -> dict[str, str]:
    """The environment of a worker: no library may use more threads than it is told, and ours keeps its bytecode, as one
    that is installed has it."""
    limit = str(threads)
    names = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, limit), "PYTHONDONTWRITEBYTECODE": ""}


def machine(packages: Sequence[str] = ("numpy", "numba", "polars", "scikit-learn", "ydf")) -> str:
    """One line about the processor and the versions, for the head of a table."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = models[0] if models else model
    found = [f"Python {platform.python_version()}", f"bigforest {bigforest.__version__}"]
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} (not installed)")
    return f"{model}, {os.cpu_count()} processors; {', '.join(found)}"


def answer_of(script: str, options: Mapping[str, Any]) -> Any:
    """What a script of this folder, in a process of its own, prints as JSON in its last line; options has "threads".

    Raises ChildProcessError, with what the process said, when it fails.
    """
    command = [sys.executable, str(HERE / script)]
    for name, value in options.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    environ = environment(options["threads"])
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    if done.returncode:
        raise ChildProcessError(done.stderr.strip())
    return json.loads(done.stdout.splitlines()[-1])


def _measure(name: str, folder: Path, contestant: str, round_: int, plan: Plan) -> dict[str, float | None]:
    told = {"contestant": contestant, "set": name, "folder": folder, "trees": plan.trees, "threads": plan.threads}
    try:
        result: dict[str, float | None] = answer_of("worker.py", {**told, "seed": round_})
    except ChildProcessError as error:
        raise SystemExit(f"{contestant} on {name} failed:\n{error}") from error
    return result
