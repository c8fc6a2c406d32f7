"""Categories, missing values and regression targets, against YDF, LightGBM and scikit-learn.

    python benchmarks/columns.py --data DIR [--sets adult,diamonds] [--trees 100] [--rounds 1] [--min-leaf 5]
        [--contestants bigforest,bigforest:mtry=5,ydf]

A contestant of ours may be given options of training after colons.

DIR holds real/adult_train.parquet and the others of `SETS`. Every contestant has the same number of trees, looks at
the same number of features in a node (the root of all, for regression targets a third of them), grows trees of any
depth with leaves of at least `--min-leaf` rows, and has the same threads. YDF 0.16 looks at one feature more than it
is told (`while (remaining_attributes_to_test >= 0` in its decision_tree/training.cc), so it is told one less. Classes
are split by what each has by itself: Gini in ours and in scikit-learn, entropy in YDF, its loss in LightGBM. What
contestants do about levels of few rows is left as it is, too: `--min-level` of ours, levels of fewer than 5 rows in
the table as one in YDF, and `min_data_per_group`, `cat_smooth` and `cat_l2` of LightGBM. YDF and LightGBM get
categories and missing values as they are, scikit-learn the categories as ordinal codes; so does `bigforest-ordinal`,
and `bigforest-onehot` a column per level: what subsets of levels are worth.

Contestants take turns, and their order turns by one place from round to round; each measurement is in a process of its
own, after a forest of one tree that is not counted. "fit" is growing alone, on a table that is encoded, best of all
rounds; of ours, drawing the bags and writing the trees to Parquet are in it, where the others leave the forest in
memory. That is a third of it where leaves have few rows, and most of it on a thousand rows. So "fit and save" has the
forests of all in files at the end: it is "fit" of ours, which do not wait for the disk in a temporary folder, and of
the others "fit" and what they save a model with (`model.save` of YDF, `joblib.dump` of scikit-learn, uncompressed,
`save_model` of LightGBM). "with encoding" is all from the frame until the forest is grown, without the out-of-bag
report. "predict" is the test rows from a frame to an array, categories as text, best of three.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from columns_fits import FITS, Clock, fit_of
from datasets import SPLIT_SEED, TARGET, TEST_FRACTION
from numpy.typing import NDArray
from runs import HERE, answer_of, machine
from tables import markdown, save

# Name, file, and whether the target is a number to predict; adult has a test file of its own.
SETS = {
    "adult": ("adult_train", False),
    "titanic": ("titanic_1309", False),
    "flights": ("flights_late15_clf", False),
    "give_me_some_credit": ("give_me_some_credit", False),
    "covertype": ("covertype_93k_categorical", False),
    "diamonds": ("diamonds_reg", True),
    "california": ("california_housing_reg", True),
}
PREDICT_REPEATS = 3
COLUMNS = {
    "set": ("data", "{}"),
    "size": ("rows x features", "{}"),
    "contestant": ("contestant", "{}"),
    "score": ("accuracy or R2", "{:.4f}"),
    "fit_seconds": ("fit (s)", "{:.2f}"),
    "ratio": ("faster of YDF, scikit-learn / this", "{:.1f}"),
    "saved_seconds": ("fit and save (s)", "{:.2f}"),
    "saved_ratio": ("the same of fit and save", "{:.1f}"),
    "cpu_seconds": ("fit, CPU (s)", "{:.2f}"),
    "cpu_ratio": ("the same of CPU", "{:.1f}"),
    "whole_seconds": ("with encoding (s)", "{:.2f}"),
    "predict_seconds": ("predict, CPU (s)", "{:.3f}"),
    "predict_ratio": ("the same of predict", "{:.1f}"),
}


def load(name: str, data: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Training and test rows; categories as text."""
    file, _ = SETS[name]
    frame = pl.read_parquet(data / "real" / f"{file}.parquet").with_columns(cs.categorical().cast(pl.String))
    if name == "adult":
        test = pl.read_parquet(data / "real" / "adult_test.parquet").with_columns(cs.categorical().cast(pl.String))
        return frame, test.select(frame.columns)
    return split(frame, SPLIT_SEED)


def split(frame: pl.DataFrame, seed: int | list[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Training and test rows, drawn by this seed."""
    rows = np.random.default_rng(seed).permutation(frame.height)
    cut = round(frame.height * TEST_FRACTION)
    return frame[np.sort(rows[cut:])], frame[np.sort(rows[:cut])]


def score(found: NDArray[Any], truth: NDArray[Any], regression: bool) -> float:
    """Accuracy, or R2 of a regression."""
    if regression:
        return float(1 - ((found - truth) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())
    return float((found == truth).mean())


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Score and seconds of one contestant on the set in the folder."""
    train, test = (pl.read_parquet(options.folder / f"{part}.parquet") for part in ("train", "test"))
    regression = SETS[options.sets][1]
    fit = fit_of(options.measure)
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        fit(train, regression, argparse.Namespace(**{**vars(options), "trees": 1}), Clock(Path(place)))
    gc.collect()  # else Python may do so, a tenth of a second, while any one of the contestants is timed
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        clock = Clock(Path(place))
        predict = fit(train, regression, options, clock)
    found, predicting = predict(test), []
    for _ in range(PREDICT_REPEATS):
        begin = time.process_time()
        predict(test)
        predicting.append(time.process_time() - begin)
    return {
        "score": score(found, test[TARGET].to_numpy(), regression),
        "predict_seconds": min(predicting),
        "fit_seconds": clock.grow,
        "saved_seconds": clock.saved,
        "cpu_seconds": clock.cpu,
        "whole_seconds": clock.whole,
    }


def turned(contestants: list[str], round_: int) -> list[str]:
    """The contestants, of whom another one is first in each round."""
    first = round_ % len(contestants)
    return contestants[first:] + contestants[:first]


def run(options: argparse.Namespace) -> pl.DataFrame:
    """One row per set, round and contestant that could do it."""
    rows = []
    for name in options.sets.split(","):
        train, test = load(name, options.data)
        size = f"{train.height:,} x {train.width - 1}"
        with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as folder:
            train.write_parquet(Path(folder) / "train.parquet")
            test.write_parquet(Path(folder) / "test.parquet")
            for round_ in range(options.rounds):
                for contestant in turned(options.contestants.split(","), round_):
                    told = {"measure": contestant, "folder": folder, "sets": name}
                    same = {option: getattr(options, option) for option in ("trees", "threads", "min_leaf")}
                    try:
                        found = answer_of("columns.py", told | same)
                    except ChildProcessError as error:
                        print(f"{name} {contestant}: {str(error).splitlines()[-1]}", file=sys.stderr)
                        continue
                    rows.append({"set": name, "size": size, "contestant": contestant, "round": round_} | found)
                    print(rows[-1], file=sys.stderr)
    return pl.DataFrame(rows)


def main() -> None:
    """Categories, missing values and regression targets, against YDF, LightGBM and scikit-learn."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with real/")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--contestants", default=",".join(FITS))
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--min-leaf", type=int, default=5, help="of all contestants; 5 is what YDF has unless told")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options)))
        return
    runs = run(options)
    table = runs.group_by("set", "size", "contestant", maintain_order=True).agg(
        pl.col("score").mean(),
        pl.col("fit_seconds", "saved_seconds", "cpu_seconds", "whole_seconds", "predict_seconds").min(),
    )
    rivals = pl.col("contestant").is_in(["ydf", "scikit-learn"])
    table = table.with_columns(
        (pl.col(seconds).filter(rivals).min().over("set") / pl.col(seconds)).alias(ratio)
        for seconds, ratio in (
            ("fit_seconds", "ratio"),
            ("saved_seconds", "saved_ratio"),
            ("cpu_seconds", "cpu_ratio"),
            ("predict_seconds", "predict_ratio"),
        )
    )
    about = f"{options.trees} trees, leaves of {options.min_leaf} rows, {options.threads} threads, {machine()}"
    save("columns", runs, f"{about}\n\n{markdown(table, COLUMNS)}", options.out)


if __name__ == "__main__":
    main()
