"""Coverage and size of intervals and sets of classes on real tables, beside plain quantiles and, if installed, crepes.

    python benchmarks/intervals.py --data DIR [--sets real/diamonds,uci/letter] [--rounds 3] [--trees 100]
        [--coverage 0.9] [--most 10000]

All of a round use one forest, grown on half of the rows drawn, its rows out of bag, and the other half to be tested on:

bigforest  `Forest.predict(..., coverage=)`: numbers by bins of the prediction and the spread of the trees, classes by
           class
jackknife+ `Forest.predict(..., coverage=, jackknife=True)` of numbers
bins       the same of numbers without the spread, by bins alone
plain      one quantile for all rows: of the absolute residuals, or of the shares of the votes for the true class
crepes     ConformalRegressor on the same residuals, in 20 bins of the prediction; only of numbers

Prints the tables of intervals.md and writes results/intervals.parquet.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from suite_sets import Set, sets_of
from tables import markdown

import bigforest as bf
from bigforest.metrics.conformal import fit_intervals

TARGET = "target"
# Beside all sets with regression targets.
CLASSIFIED = ("real/adult", "real/covertype", "real/credit", "real/digits", "uci/letter", "uci/car")
NUMBERS = {
    "set": ("set", "{}"),
    "contestant": ("contestant", "{}"),
    "rows": ("calibration rows", "{:,.0f}"),
    "coverage": ("coverage", "{:.3f}"),
    "least": ("worst tenth", "{:.3f}"),
    "size": ("mean width", "{:.4g}"),
    "ratio": ("width, times plain", "{:.3f}"),
    "middle": ("median width, times plain", "{:.3f}"),
}
CLASSES = {
    **{name: NUMBERS[name] for name in ("set", "contestant", "rows", "coverage")},
    "least": ("worst class", "{:.3f}"),
    "size": ("mean classes", "{:.3f}"),
    "single": ("sets of one class", "{:.3f}"),
    "empty": ("empty sets", "{:.3f}"),
}


def halves(own: Set, round_: int, most: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows to train on and to test on, drawn anew in each round."""
    table = own.read()
    drawn = np.random.default_rng([1, round_]).permutation(table.height)[:most]
    return table[drawn[: drawn.size // 2]], table[drawn[drawn.size // 2 :]]


def rank(errors: NDArray[np.float64], coverage: float) -> float:
    """The plain quantile: the ceil(coverage * (n + 1))-th smallest error."""
    return float(np.sort(errors)[ceil(coverage * (errors.size + 1) - 1e-9) - 1])


def of_numbers(forest: bf.Forest, test: pl.DataFrame, coverage: float) -> Iterator[dict[str, Any]]:
    """A line for each contestant."""
    oob = forest.oob.rows.drop_nulls("prediction").collect()
    guess, residual = (oob["prediction"].to_numpy(), (oob["truth"] - oob["prediction"]).to_numpy())
    begin = time.perf_counter()
    center = forest.predict(test)["prediction"].to_numpy()
    plain_seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    found = forest.predict(test, coverage=coverage)
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    jackknife = forest.predict(test, coverage=coverage, jackknife=True)
    took = {"bigforest": seconds, "jackknife+": time.perf_counter() - begin}
    one = np.full(test.height, rank(np.abs(residual), coverage))
    bounds = fit_intervals(guess, oob["truth"].to_numpy(), coverage).bounds(center)
    ends = {
        "bigforest": (found["low"].to_numpy(), found["high"].to_numpy()),
        "jackknife+": (jackknife["low"].to_numpy(), jackknife["high"].to_numpy()),
        "bins": (bounds[:, 0], bounds[:, 1]),
        "plain": (center - one, center + one),
    }
    if importlib.util.find_spec("crepes"):
        from crepes import ConformalRegressor
        from crepes.extras import binning

        bins, edges = binning(guess, bins=20)
        made = ConformalRegressor().fit(residual, bins=bins)
        crepes = made.predict_int(center, bins=binning(center, bins=edges), confidence=coverage)
        ends["crepes"] = (crepes[:, 0], crepes[:, 1])
    truth = test[TARGET].cast(pl.Float64).to_numpy()
    tenth = np.argsort(np.argsort(center, kind="stable"), kind="stable") * 10 // center.size
    for name, (low, high) in ends.items():
        inside = (low <= truth) & (truth <= high)
        yield {
            "contestant": name,
            "rows": oob.height,
            "coverage": inside.mean(),
            "least": min(inside[tenth == k].mean() for k in range(10)),
            "size": (high - low).mean(),
            "ratio": (high - low).mean() / (2 * one[0]),
            "middle": np.median(high - low) / (2 * one[0]),
            "micros": 1e6 * (took[name] - plain_seconds) / test.height if name in took else None,
        }


def of_classes(forest: bf.Forest, test: pl.DataFrame, coverage: float) -> Iterator[dict[str, Any]]:
    """A line for each contestant."""
    oob = forest.oob.rows.drop_nulls("prediction").collect()
    shares = oob.select(pl.exclude("row", "truth", "prediction", "trees")).to_numpy()
    code = {str(label): place for place, label in enumerate(forest.classes)}
    truth = np.array([code[str(label)] for label in oob["truth"]])
    floor = -rank(-shares[np.arange(truth.size), truth], coverage)
    begin = time.perf_counter()
    chances = forest.predict_proba(test).to_numpy()
    plain_seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    sets = forest.predict(test, coverage=coverage)["set"]
    seconds = time.perf_counter() - begin
    own = np.zeros(chances.shape, bool)
    for place, label in enumerate(forest.classes):
        own[:, place] = sets.list.contains(label).to_numpy()
    known = np.array([code.get(str(label), -1) for label in test[TARGET]])
    rows = np.flatnonzero(known >= 0)
    for name, members in (("bigforest", own), ("plain", chances >= floor)):
        inside, size = members[rows, known[rows]], members.sum(axis=1)
        counted = [inside[known[rows] == k] for k in range(len(code))]
        yield {
            "contestant": name,
            "rows": oob.height,
            "coverage": inside.mean(),
            "least": min(one.mean() for one in counted if one.size),
            "size": size.mean(),
            "single": (size == 1).mean(),
            "empty": (size == 0).mean(),
            "micros": 1e6 * (seconds - plain_seconds) / test.height if name == "bigforest" else None,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", help="separated by commas; all with numbers, and six with classes, unless given")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--most", type=int, default=10_000, help="rows of a round, half of them to train on")
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    known = sets_of(options.data)
    numbers = [name for name, own in known.items() if own.regression]
    for name in options.sets.split(",") if options.sets else [*numbers, *CLASSIFIED]:
        for round_ in range(options.rounds):
            own = known[name]
            train, test = halves(own, round_, options.most)
            task = "regression" if own.regression else "classification"
            forest = bf.train(train, TARGET, trees=options.trees, seed=round_, task=task)
            if own.regression:
                lines = list(of_numbers(forest, test, options.coverage))
            else:
                lines = list(of_classes(forest, test, options.coverage))
            found += [
                {"set": name, "half": own.half, "numbers": own.regression, "round": round_, **line} for line in lines
            ]
            print(*found[-len(lines) :], sep="\n", flush=True)
    runs = pl.DataFrame(found, infer_schema_length=None)
    folder = Path(__file__).resolve().parent / "results"
    runs.write_parquet(folder / "intervals.parquet")
    means = runs.group_by("set", "half", "contestant", "numbers", maintain_order=True).agg(
        pl.exclude("round", "least").mean(), pl.col("least").mean()
    )
    for regression, columns in ((True, NUMBERS), (False, CLASSES)):
        table = means.filter(pl.col("numbers") == regression)
        if table.height:
            print(markdown(table, columns), end="\n\n")
    print(means.drop_nulls("micros").select("set", "contestant", "micros"))
    by = ["numbers", "half", "contestant"]
    some = [pl.col("coverage").mean(), pl.col("coverage").min().alias("low"), pl.col("least", "ratio").mean()]
    with pl.Config(tbl_rows=-1):
        print(means.group_by(by, maintain_order=True).agg(some).sort(by[:-1], maintain_order=True))


if __name__ == "__main__":
    main()
