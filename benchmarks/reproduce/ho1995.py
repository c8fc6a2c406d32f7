"""Reproduce Ho, Random Decision Forests (ICDAR 1995) on MNIST: Table 1 and Figures 1 and 2, and on to 500 trees.

    python benchmarks/reproduce/ho1995.py --data DIR [--trees 500] [--epochs 100] [--out FOLDER]

DIR/mnist has MNIST's four IDX files. The ink of every digit is put into 20 x 20 black or white pixels: f1 are these
400, f2 these and the directional neighbours at the paper's places, 852. The paper has 60,000 and 10,000 digits of NIST.

Every tree of Table 1 and every forest is a file of its own under FOLDER/parts, written when it is whole; a second run
makes those that are missing, and the report of all: FOLDER/table-1.parquet, curves.parquet, report.md and the figures.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import polars as pl
from ho_reference import TABLE_1
from ho_report import write_report
from ho_runs import Options, make_features, measure_forest, measure_single, result, runs

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Measure what is missing, then report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with mnist/*-ubyte.gz")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "ho1995")
    parser.add_argument("--trees", type=int, default=500, help="trees of the largest forests")
    parser.add_argument("--epochs", type=int, default=100, help="passes of a perceptron over the rows of a node")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="3GB", help="budget for judging the largest forests")
    parser.add_argument(
        "--only", default="", help="comma-separated beginnings of names of forests, such as CAP-f1,axis"
    )
    given = parser.parse_args()
    options = Options(given.epochs, given.seed, given.threads, given.memory)
    if not (given.data / "mnist").is_dir():
        parser.error(f"{given.data / 'mnist'} is not there; say with --data where it is")
    folder, parts = given.out / "features", given.out / "parts"
    make_features(given.data, folder)
    singles = [
        result(
            parts / f"{method}-{features}.parquet", options, partial(measure_single, method, features, folder, options)
        )
        for method, features in TABLE_1
    ]
    wanted = [run for run in runs(given.trees) if run.name.startswith(tuple(given.only.split(",")))]
    forests = [
        result(parts / f"{run.name}-{run.trees}.parquet", options, partial(measure_forest, run, folder, options))
        for run in wanted
    ]
    write_report(pl.concat(singles), pl.concat(forests), options, given.out)


if __name__ == "__main__":
    main()
