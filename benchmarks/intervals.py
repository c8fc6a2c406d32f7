"""Coverage and size of intervals and sets of classes on real tables, beside plain quantiles and, if installed, crepes.

    python benchmarks/intervals.py --data DIR [--sets real/diamonds,uci/letter] [--rounds 3] [--trees 100]
        [--coverage 0.9] [--most 10000] [--spread]

All of a round use one forest, grown on half of the rows drawn, its rows out of bag, and the other half to be tested on:

bigforest  `Forest.predict(..., coverage=)`: numbers by bins of the prediction, classes by class
plain      one quantile for all rows: of the absolute residuals, or of the shares of the votes for the true class
crepes     ConformalRegressor on the same residuals, in 20 bins of the prediction; only of numbers

With --spread, of numbers, intervals that bigforest does not make: residuals over the difficulty of the row, which is
the standard deviation of the predictions of its trees, over the mean of it, plus BETA (Johansson et al. 2014, Bostrom
et al. 2017); of a row out of bag that of the trees out of whose bags it is.

spread BETA  one quantile for all rows
both BETA    the quantile of bins of the prediction, as bigforest's

Prints the tables of intervals.md and writes results/intervals.parquet, with --spread results/intervals-spread.parquet.
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
BETAS = (0.01, 0.1, 0.3, 1.0)
SETS = (
    *("real/california", "real/diamonds", "real/flights-delay", "number/abalone", "number/wine-quality-white"),
    *("real/adult", "real/covertype", "real/credit", "real/digits", "uci/letter", "uci/car"),
)
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


def difficulties(
    forest: bf.Forest, train: pl.DataFrame, test: pl.DataFrame
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Standard deviation of what the trees predict, over its mean: of the rows out of bag, and of those to test on."""
    rows, sums, squares = np.zeros(train.height), np.zeros(train.height), np.zeros(train.height)
    own = np.empty((forest.trees, test.height))
    offset = float(train[TARGET].cast(pl.Float64).mean())  # type: ignore[arg-type]
    bags = forest.inbag()
    for number in range(forest.trees):
        out = (bags[str(number)] == 0).to_numpy()
        value = forest[number].predict(train)["prediction"].to_numpy() - offset
        rows += out
        sums += out * value
        squares += out * value * value
        own[number] = forest[number].predict(test)["prediction"].to_numpy()
    used = rows > 0
    found = forest.oob.rows.collect()["prediction"].to_numpy()
    assert np.allclose((sums[used] / rows[used] + offset), found[used])
    # Of one tree there is no deviation.
    variance = (squares - sums * sums / np.maximum(rows, 1)) / np.maximum(rows - 1, 1)
    spread = np.sqrt(np.maximum(variance, 0.0))[used]
    return spread / spread.mean(), own.std(axis=0, ddof=1) / spread.mean()


def normalised(
    forest: bf.Forest, train: pl.DataFrame, test: pl.DataFrame, center: NDArray[np.float64], coverage: float
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Names of contestants, and half the width of the interval of each row."""
    oob = forest.oob.rows.drop_nulls("prediction").collect()
    guess, truth = oob["prediction"].to_numpy(), oob["truth"].to_numpy()
    known, new = difficulties(forest, train, test)
    for beta in BETAS:
        scaled = (truth - guess) / (known + beta)
        yield f"spread {beta}", rank(np.abs(scaled), coverage) * (new + beta)
        bounds = fit_intervals(guess, guess + scaled, coverage).bounds(center)
        yield f"both {beta}", (bounds[:, 1] - center) * (new + beta)


def of_numbers(
    forest: bf.Forest, train: pl.DataFrame, test: pl.DataFrame, coverage: float, spread: bool
) -> Iterator[dict[str, Any]]:
    """A line for each contestant."""
    oob = forest.oob.rows.drop_nulls("prediction").collect()
    guess, residual = (oob["prediction"].to_numpy(), (oob["truth"] - oob["prediction"]).to_numpy())
    begin = time.perf_counter()
    center = forest.predict(test)["prediction"].to_numpy()
    plain_seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    found = forest.predict(test, coverage=coverage)
    seconds = time.perf_counter() - begin
    one = np.full(test.height, rank(np.abs(residual), coverage))
    ends = {
        "bigforest": (found["low"].to_numpy(), found["high"].to_numpy()),
        "plain": (center - one, center + one),
    }
    if importlib.util.find_spec("crepes"):
        from crepes import ConformalRegressor
        from crepes.extras import binning

        bins, edges = binning(guess, bins=20)
        made = ConformalRegressor().fit(residual, bins=bins)
        crepes = made.predict_int(center, bins=binning(center, bins=edges), confidence=coverage)
        ends["crepes"] = (crepes[:, 0], crepes[:, 1])
    if spread:
        radii = normalised(forest, train, test, center, coverage)
        ends |= {name: (center - radius, center + radius) for name, radius in radii}
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
            "micros": 1e6 * (seconds - plain_seconds) / test.height if name == "bigforest" else None,
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
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--most", type=int, default=10_000, help="rows of a round, half of them to train on")
    parser.add_argument("--spread", action="store_true", help="also intervals by the spread of the trees")
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    known = sets_of(options.data)
    for name in options.sets.split(","):
        for round_ in range(options.rounds):
            own = known[name]
            train, test = halves(own, round_, options.most)
            task = "regression" if own.regression else "classification"
            forest = bf.train(train, TARGET, trees=options.trees, seed=round_, task=task)
            if own.regression:
                lines = list(of_numbers(forest, train, test, options.coverage, options.spread))
            else:
                lines = list(of_classes(forest, test, options.coverage))
            found += [
                {"set": name, "half": own.half, "numbers": own.regression, "round": round_, **line} for line in lines
            ]
            print(*found[-len(lines) :], sep="\n", flush=True)
    runs = pl.DataFrame(found, infer_schema_length=None)
    folder = Path(__file__).resolve().parent / "results"
    runs.write_parquet(folder / ("intervals-spread.parquet" if options.spread else "intervals.parquet"))
    means = runs.group_by("set", "half", "contestant", "numbers", maintain_order=True).agg(
        pl.exclude("round", "least").mean(), pl.col("least").mean()
    )
    for numbers, columns in ((True, NUMBERS), (False, CLASSES)):
        table = means.filter(pl.col("numbers") == numbers)
        if table.height:
            print(markdown(table, columns), end="\n\n")
    ours = pl.col("contestant") == "bigforest"
    print(means.filter(ours).select("set", "micros"))
    by = ["numbers", "half", "contestant"] if options.spread else ["numbers", "contestant"]
    some = [pl.col("coverage").mean(), pl.col("coverage").min().alias("low"), pl.col("least", "ratio").mean()]
    with pl.Config(tbl_rows=-1):
        print(means.group_by(by, maintain_order=True).agg(some).sort(by[:-1], maintain_order=True))


if __name__ == "__main__":
    main()
