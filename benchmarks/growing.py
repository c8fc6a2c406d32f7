"""The growing kernel alone, a tree of each of five sets: this checkout and others, repetition by repetition in turn.

    python benchmarks/growing.py --data DIR [--against CHECKOUT,...] [--sets covertype,...] [--starts 4] [--rounds 8]

Each set is trained on until a tree is to be grown; that call is then repeated on the same rows, in a process of its
own for each checkout, and its processor time is counted. The memory of a process makes it faster or slower by 1 or 2 %,
so processes are started several times: the table has the mean of the least time of each. All must grow the same tree.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import pkgutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

SETS = "covertype,synthetic,mnist,flights,adult"
# Of a set that takes little time more repetitions follow each other.
REPEATED = {"adult": 5}


class _Reached(BaseException):
    """A tree is to be grown."""


def repeat(name: str, data: Path) -> None:
    """Print a digest of the tree, then the milliseconds of as many repetitions as each line of the input says."""
    from columns import load as load_mixed
    from columns_fits import ordinal
    from datasets import TARGET, load

    import bigforest
    import bigforest.grow.families as families
    from bigforest.kernels.tree import grow as module

    table = load_mixed(name, data)[0] if name == "adult" else load(name, data).train
    table = ordinal(table)(table) if name == "adult" else table
    table = table.with_columns(pl.exclude(TARGET).fill_null(-1))
    kernel, grow, calls, spent = module.grow_while_room, module.grow, [], []

    def timed(*arguments: Any) -> None:
        begin = time.thread_time()
        kernel(*arguments)
        spent.append(time.thread_time() - begin)

    def capture(codes: Any, by_row: Any, items: Any, *rest: Any) -> Any:
        if items.size < 1000:
            return grow(codes, by_row, items, *rest)  # while kernels are compiled
        calls.append((codes, by_row, items.copy(), rest))
        raise _Reached

    module.grow_while_room = timed
    for found in pkgutil.walk_packages(families.__path__, families.__name__ + "."):
        family = importlib.import_module(found.name)
        if getattr(family, "grow", None) is grow:
            family.grow = capture
    try:
        bigforest.train(table, TARGET, trees=1, threads=1, seed=1, mtry="sqrt", listener=lambda _: None)
    except _Reached:
        codes, by_row, items, rest = calls[0]
    tree, _ = grow(codes, by_row, items.copy(), *rest)
    print(hashlib.sha256(np.ascontiguousarray(tree.left_code)).hexdigest(), flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            spent.clear()
            grow(codes, by_row, items.copy(), *rest)
            times.append(f"{1e3 * sum(spent):.4f}")
        print(*times, flush=True)


def compare(name: str, options: argparse.Namespace) -> dict[Path, float]:
    """Return the milliseconds of a tree of the set for each checkout."""
    least: dict[Path, list[float]] = {checkout: [] for checkout in options.checkouts}
    for start in range(options.starts):
        order = options.checkouts[start % len(least) :] + options.checkouts[: start % len(least)]
        running = {checkout: _started(checkout, name, options.data) for checkout in order}
        if len({child.stdout.readline() for child in running.values()}) > 1:
            raise SystemExit(f"{name}: the trees differ, or one was not grown")
        times: dict[Path, list[float]] = {checkout: [] for checkout in order}
        for _ in range(options.rounds):
            for checkout, child in running.items():
                child.stdin.write(f"{REPEATED.get(name, 1)}\n")
                child.stdin.flush()
                times[checkout] += map(float, child.stdout.readline().split())
        for checkout, child in running.items():
            child.communicate()
            least[checkout].append(min(times[checkout]))
    return {checkout: statistics.mean(found) for checkout, found in least.items()}


def _started(checkout: Path, name: str, data: Path) -> Any:
    command = [sys.executable, __file__, "--data", str(data), "--repeat", name]
    environ = os.environ | {"PYTHONPATH": str(checkout)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)


def main() -> None:
    """Compare the growing kernels of checkouts."""
    here = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets, see datasets.py")
    parser.add_argument("--against", default="", help="other checkouts, comma-separated; the first is compared with")
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repeat", help="of a child: the set")
    options = parser.parse_args()
    if options.repeat:
        repeat(options.repeat, options.data)
        return
    options.checkouts = [*(Path(one).resolve() for one in options.against.split(",") if one), here]
    total = dict.fromkeys(options.checkouts, 0.0)
    print("| set |", *(f"{one.name} (ms) |" for one in options.checkouts))
    print("|---|" + "---|" * len(options.checkouts))
    for name in options.sets.split(","):
        found = compare(name, options)
        total = {one: total[one] + found[one] for one in total}
        print(f"| {name} |", *(_cell(found, one) for one in found), flush=True)
    print("| sum |", *(_cell(total, one) for one in total))


def _cell(found: dict[Path, float], checkout: Path) -> str:
    return f"{found[checkout]:.1f} ({found[checkout] / next(iter(found.values())):.3f}) |"


if __name__ == "__main__":
    main()
