"""What the first training of each kind costs, with nothing compiled, and the second.

    python benchmarks/first.py [--kinds classification,regression] [--against CHECKOUT]

Each training is a process of its own, on a small table, and each kind has an empty cache of compiled kernels at first.
Processor seconds are of the process and its children. --against names the folder of another checkout, which takes
turns: its first and second training are measured right after ours, so that ratios can be told on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parents[1]
KINDS = {
    "classification": "",
    "classification-categories": "",
    "regression": "",
    "regression-categories": "",
    "random-classification": "splitter='random'",
    **{f: f"family='{f}'" for f in ("sparse-oblique", "rotation", "subspace-cap", "subspace-perceptron")},
}
TRAIN = """
import sys
import numpy as np
import polars as pl
import bigforest

kind = {kind!r}
draw = np.random.default_rng(0)
rows = 3000
table = pl.DataFrame({{f"x{{k}}": draw.normal(size=rows) for k in range(10)}})
y = table["x0"] + table["x1"] * table["x2"]
if "categories" in kind:
    level = draw.integers(0, 7, rows)
    table = table.with_columns(level=pl.Series([None if code == 6 else "abcdef"[code] for code in level]))
table = table.with_columns(y=y if "regression" in kind else (y > 0).cast(pl.Int64))
bigforest.train(table, "y", trees=10, {options})
"""


class Cost(NamedTuple):
    """Seconds of one training."""

    processor: float
    wall: float


def train(kind: str, checkout: Path, cache: str) -> Cost:
    """What one training costs in a fresh process."""
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": cache,
        "PYTHONPATH": str(checkout),
        "PYTHONDONTWRITEBYTECODE": "",  # an installed package has its bytecode
    }
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    code = TRAIN.format(kind=kind, options=KINDS[kind])
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=cache, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"training {kind} failed:\n{done.stderr}")
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - begin
    return Cost(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)


def main() -> None:
    """The first and the second training of each kind."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"comma-separated, of {', '.join(KINDS)}")
    parser.add_argument("--against", type=Path, help="folder of another checkout")
    options = parser.parse_args()
    checkouts = [HERE] if options.against is None else [HERE, options.against.resolve()]
    print("| kind | checkout | first: processor, wall s | second: processor, wall s |")
    print("|---|---|---|---|")
    for kind in options.kinds.split(","):
        for checkout in checkouts:
            with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as cache:
                first, second = (train(kind, checkout, cache) for _ in range(2))
            cells = [f"{cost.processor:.1f}, {cost.wall:.1f}" for cost in (first, second)]
            print(f"| {kind} | {'ours' if checkout == HERE else checkout.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
