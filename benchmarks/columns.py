"""Categories, missing values and numbers to predict, against YDF, LightGBM and scikit-learn.

    python benchmarks/columns.py --data DIR [--sets adult,diamonds] [--trees 100] [--rounds 1]

DIR holds real/adult_train.parquet and the others of `SETS`. Every contestant has the same number of trees, the same
mtry (the root of the features, for numbers to predict a third of them), trees grown until pure or down to 5 rows, and
the same threads. YDF and LightGBM get categories and missing values as they are, scikit-learn the categories as
ordinal codes; so does `bigforest-ordinal`, and `bigforest-onehot` a column per level: what subsets of levels are worth.
Contestants take turns, each measurement in a process of its own, after a forest of one tree that is not counted.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from datasets import SPLIT_SEED, TARGET, TEST_FRACTION
from numpy.typing import NDArray
from runs import HERE, environment, machine
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
MOST_ONE_HOT = 100  # levels of a column: with more, one-hot tables of these sets do not fit in memory
COLUMNS = {
    "set": ("data", "{}"),
    "size": ("rows x features", "{}"),
    "contestant": ("contestant", "{}"),
    "score": ("accuracy or R2", "{:.4f}"),
    "fit_seconds": ("fit (s)", "{:.2f}"),
    "ratio": ("faster of YDF, scikit-learn / this", "{:.1f}"),
}

Predict = Callable[[pl.DataFrame], NDArray[Any]]


def load(name: str, data: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Training and test rows; categories as text."""
    file, _ = SETS[name]
    frame = pl.read_parquet(data / "real" / f"{file}.parquet").with_columns(cs.categorical().cast(pl.String))
    if name == "adult":
        test = pl.read_parquet(data / "real" / "adult_test.parquet").with_columns(cs.categorical().cast(pl.String))
        return frame, test.select(frame.columns)
    rows = np.random.default_rng(SPLIT_SEED).permutation(frame.height)
    cut = round(frame.height * TEST_FRACTION)
    return frame[np.sort(rows[cut:])], frame[np.sort(rows[:cut])]


def texts(frame: pl.DataFrame) -> list[str]:
    """The columns that are categories."""
    return [name for name, dtype in frame.schema.items() if dtype == pl.String]


def ordinal(train: pl.DataFrame) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Replaces categories by the rank of their text in training, others by null."""
    levels = {name: train[name].drop_nulls().unique().sort() for name in texts(train)}

    def coded(frame: pl.DataFrame) -> pl.DataFrame:
        columns = [
            pl.col(name).replace_strict(found, pl.arange(len(found), eager=True), default=None)
            for name, found in levels.items()
        ]
        return frame.with_columns(column.cast(pl.Float64) for column in columns)

    return coded


def one_hot(train: pl.DataFrame) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Replaces categories by a column of 0 and 1 for each level."""
    levels = {name: train[name].drop_nulls().unique().sort().to_list() for name in texts(train)}
    if any(len(found) > MOST_ONE_HOT for found in levels.values()):
        raise SystemExit("too many levels")

    def coded(frame: pl.DataFrame) -> pl.DataFrame:
        columns = [
            (pl.col(name) == level).fill_null(False).cast(pl.UInt8).alias(f"{name}={level}")
            for name, found in levels.items()
            for level in found
        ]
        return frame.with_columns(columns).drop(levels)

    return coded


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` gives, and its seconds."""
    begin = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begin


def fit_bigforest(train: pl.DataFrame, coding: Any, mtry: int, min_leaf: int, options: Any) -> tuple[Predict, float]:
    import bigforest

    code = (lambda frame: frame) if coding is None else coding(train)
    mtry = mtry if coding is not one_hot else math.isqrt(code(train).width - 1)
    forest = bigforest.train(
        code(train), target=TARGET, trees=options.trees, mtry=mtry, min_leaf=min_leaf, threads=options.threads
    )
    seconds = dict(forest.run.select("stage", "seconds").iter_rows())["grow"]
    return lambda frame: forest.predict(code(frame))["prediction"].to_numpy(), seconds


def fit_sklearn(train: pl.DataFrame, regression: bool, mtry: int, min_leaf: int, options: Any) -> tuple[Predict, float]:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    code = ordinal(train)

    def matrix(frame: pl.DataFrame) -> NDArray[np.float32]:
        return code(frame).drop(TARGET).cast(pl.Float32).to_numpy()

    learner = (RandomForestRegressor if regression else RandomForestClassifier)(
        options.trees, max_features=mtry, min_samples_leaf=min_leaf, n_jobs=options.threads, random_state=0
    )
    values, target = matrix(train), train[TARGET].to_numpy()
    _, seconds = timed(lambda: learner.fit(values, target))
    return lambda frame: learner.predict(matrix(frame)), seconds


def fit_ydf(train: pl.DataFrame, regression: bool, mtry: int, min_leaf: int, options: Any) -> tuple[Predict, float]:
    import ydf

    ydf.verbose(0)

    def columns(frame: pl.DataFrame) -> dict[str, Any]:
        categories = texts(frame)
        return {
            name: frame[name].fill_null("").to_numpy().astype(str)
            if name in categories
            else frame[name].cast(pl.Float32).to_numpy()
            for name in frame.columns
            if name != TARGET
        }

    target = train[TARGET].to_numpy()
    semantic = ydf.Semantic.NUMERICAL if regression else ydf.Semantic.CATEGORICAL
    table = ydf.create_vertical_dataset(
        columns(train) | {TARGET: target}, columns=[(TARGET, semantic)], include_all_columns=True, label=TARGET
    )
    learner = ydf.RandomForestLearner(
        label=TARGET,
        task=ydf.Task.REGRESSION if regression else ydf.Task.CLASSIFICATION,
        num_trees=options.trees,
        num_threads=options.threads,
        num_candidate_attributes=mtry,
        max_depth=-1,
        min_examples=min_leaf,
        winner_take_all=False,
        compute_oob_performances=False,
    )
    model, seconds = timed(lambda: learner.train(table))

    def predict(frame: pl.DataFrame) -> NDArray[Any]:
        found = model.predict(columns(frame))
        if regression:
            return found
        labels = np.array([int(label) for label in model.label_classes()])
        return labels[(found > 0.5).astype(int) if found.ndim == 1 else found.argmax(axis=1)]

    return predict, seconds


def fit_lightgbm(
    train: pl.DataFrame, regression: bool, mtry: int, min_leaf: int, options: Any
) -> tuple[Predict, float]:
    import lightgbm

    categories = {name: train[name].drop_nulls().unique().sort().to_list() for name in texts(train)}

    def table(frame: pl.DataFrame) -> Any:
        import pandas as pd

        found = frame.drop(TARGET).to_pandas()
        for name, levels in categories.items():
            found[name] = pd.Categorical(found[name], categories=levels)
        return found

    classes = train[TARGET].unique().sort().to_numpy()
    many = not regression and len(classes) > 2
    parameters = {
        "boosting": "rf",
        "objective": "regression" if regression else "multiclass" if many else "binary",
        "bagging_freq": 1,
        "bagging_fraction": 0.632,
        "feature_fraction_bynode": mtry / (train.width - 1),
        "num_leaves": 1 << 15,
        "min_data_in_leaf": min_leaf,
        "num_threads": options.threads,
        "verbose": -1,
    } | ({"num_class": len(classes)} if many else {})
    target = train[TARGET].to_numpy() if regression else np.searchsorted(classes, train[TARGET].to_numpy())
    data = lightgbm.Dataset(table(train), target, params=parameters).construct()
    model, seconds = timed(lambda: lightgbm.train(parameters, data, options.trees))

    def predict(frame: pl.DataFrame) -> NDArray[Any]:
        found = model.predict(table(frame))
        return found if regression else classes[found.argmax(axis=1) if many else (found > 0.5).astype(int)]

    return predict, seconds


FITS: dict[str, Callable[..., tuple[Predict, float]]] = {
    "bigforest": lambda train, regression, *rest: fit_bigforest(train, None, *rest),
    "bigforest-ordinal": lambda train, regression, *rest: fit_bigforest(train, ordinal, *rest),
    "bigforest-onehot": lambda train, regression, *rest: fit_bigforest(train, one_hot, *rest),
    "ydf": fit_ydf,
    "lightgbm": fit_lightgbm,
    "scikit-learn": fit_sklearn,
}


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Score and seconds of one contestant on the set in the folder."""
    train, test = (pl.read_parquet(options.folder / f"{part}.parquet") for part in ("train", "test"))
    regression = SETS[options.sets][1]
    features = train.width - 1
    mtry = max(1, features // 3) if regression else math.isqrt(features)
    shape = (regression, mtry, 5 if regression else 1)
    fit = FITS[options.measure]
    fit(train, *shape, argparse.Namespace(trees=1, threads=options.threads))
    predict, seconds = fit(train, *shape, options)
    found, truth = predict(test), test[TARGET].to_numpy()
    right = (
        1 - ((found - truth) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()
        if regression
        else (found == truth).mean()
    )
    return {"score": float(right), "fit_seconds": seconds}


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
                for contestant in options.contestants.split(","):
                    command = [sys.executable, str(HERE / "columns.py"), "--measure", contestant, "--folder", folder]
                    command += ["--sets", name, "--trees", str(options.trees), "--threads", str(options.threads)]
                    environ = environment(options.threads)
                    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
                    if done.returncode:
                        print(f"{name} {contestant}: {done.stderr.splitlines()[-1]}", file=sys.stderr)
                        continue
                    found = json.loads(done.stdout.splitlines()[-1])
                    rows.append({"set": name, "size": size, "contestant": contestant, "round": round_} | found)
                    print(rows[-1], file=sys.stderr)
    return pl.DataFrame(rows)


def main() -> None:
    """Categories, missing values and numbers to predict, against YDF, LightGBM and scikit-learn."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with real/")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--contestants", default=",".join(FITS))
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1)
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
        pl.col("score").mean(), pl.col("fit_seconds").min()
    )
    peer = pl.col("fit_seconds").filter(pl.col("contestant").is_in(["ydf", "scikit-learn"])).min().over("set")
    table = table.with_columns(ratio=peer / pl.col("fit_seconds"))
    save("columns", runs, f"{options.trees} trees, {machine()}\n\n{markdown(table, COLUMNS)}", options.out)


if __name__ == "__main__":
    main()
