"""How much of a difference between the contestants of columns.py is chance: their scores on many splits of the data.

    python benchmarks/columns_splits.py --data DIR [--sets titanic] [--splits 20] [--trees 20] [--min-leaf 5]
        [--contestants bigforest,bigforest:mtry=5:min_level=1,ydf]

A contestant of ours may be given options of training after colons. Every split has a fifth of the rows for testing, and
is the same for all. "ahead" is the mean over the splits of by how much it scores more than the first contestant,
with its standard error.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import polars as pl
from columns import SETS, load, score, split
from columns_fits import FITS, Clock, fit_of
from datasets import SPLIT_SEED, TARGET
from runs import HERE, answer_of
from tables import markdown, save

COLUMNS = {
    "set": ("data", "{}"),
    "contestant": ("contestant", "{}"),
    "score": ("accuracy or R2", "{:.4f}"),
    "score_error": ("standard error", "{:.4f}"),
    "ahead": ("ahead of the first", "{:+.4f}"),
    "ahead_error": ("standard error", "{:.4f}"),
}


def scores(options: argparse.Namespace) -> list[float]:
    """Those of one contestant on all splits of a set."""
    fit = fit_of(options.measure)
    regression = SETS[options.sets][1]
    frame = pl.concat(load(options.sets, options.data))
    found = []
    for number in range(options.splits):
        train, test = split(frame, [SPLIT_SEED, number])
        answer = fit(train, regression, options, Clock())(test)
        found.append(score(answer, test[TARGET].to_numpy(), regression))
    return found


def run(options: argparse.Namespace) -> pl.DataFrame:
    """One row per set, contestant that could do it, and split."""
    rows = []
    for name in options.sets.split(","):
        for contestant in options.contestants.split(","):
            same = {option: getattr(options, option) for option in ("data", "splits", "trees", "min_leaf", "threads")}
            try:
                found = answer_of("columns_splits.py", {"measure": contestant, "sets": name} | same)
            except ChildProcessError as error:
                print(f"{name} {contestant}: {str(error).splitlines()[-1]}", file=sys.stderr)
                continue
            print(name, contestant, f"{np.mean(found):.4f}", file=sys.stderr, flush=True)
            rows += [{"set": name, "contestant": contestant, "split": k, "score": own} for k, own in enumerate(found)]
    return pl.DataFrame(rows)


def main() -> None:
    """Scores of the contestants of columns.py on many splits of the data."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with real/")
    parser.add_argument("--sets", default="titanic")
    parser.add_argument("--contestants", default=",".join(FITS))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--min-leaf", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(scores(options)))
        return
    runs = run(options)
    first = runs.group_by("set", "split", maintain_order=True).agg(pl.col("score").first().alias("first"))
    error = 1.0 / math.sqrt(options.splits)
    table = (
        runs.join(first, on=["set", "split"], maintain_order="left")
        .with_columns(ahead=pl.col("score") - pl.col("first"))
        .group_by("set", "contestant", maintain_order=True)
        .agg(
            pl.col("score", "ahead").mean(),
            *(pl.col(name).std().mul(error).alias(f"{name}_error") for name in ("score", "ahead")),
        )
    )
    about = f"{options.trees} trees, leaves of {options.min_leaf} rows, {options.splits} splits"
    save("columns_splits", runs, f"{about}\n\n{markdown(table, COLUMNS)}", options.out)


if __name__ == "__main__":
    main()
