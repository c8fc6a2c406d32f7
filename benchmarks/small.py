"""Training of small tables at defaults with 100 trees, against scikit-learn with out of bag and LightGBM.

    python benchmarks/small.py --data DIR [--sets iris,cancer] [--rounds 5]

Milliseconds of processor time, by one thread each: threads that wait for each other would be counted, too. The
contestants take turns, and the best round counts; the first, in which kernels are loaded, does not. The last line is
scikit-learn's `cross_val_score` with 5 folds on its breast cancer table. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before LightGBM is imported

import numpy as np
import polars as pl
from tables import markdown

FILES = {
    "iris": "uci/iris.parquet",
    "wine": "uci/wine.parquet",
    "cancer": "uci/breast-cancer-wisc-diag.parquet",
    "digits": "real/digits.parquet",
    "spambase": "uci/spambase.parquet",
    "waveform": "uci/waveform.parquet",
    "magic": "uci/magic.parquet",
    "california": "real/california_housing_reg.parquet",
}
REGRESSION = {"california"}
TREES = 100
Contestants = dict[str, Callable[[], Any]]


def main() -> None:
    """Time all contestants on all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default=",".join(FILES), help="with commas")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # notices about the tables
    rows = []
    for name, shape, contestants in _tables(given.data, given.sets.split(",")):
        best = dict.fromkeys(contestants, float("inf"))
        for round_ in range(given.rounds + 1):
            for contestant, call in contestants.items():
                begin = time.process_time()
                call()
                if round_:
                    best[contestant] = min(best[contestant], 1e3 * (time.process_time() - begin))
        rows.append({"set": name, "shape": shape} | best)
        print(rows[-1], flush=True)
    names = [*rows[0]]
    print(
        markdown(pl.DataFrame(rows), {name: (name, "{}" if name in ("set", "shape") else "{:,.0f}") for name in names})
    )


def _tables(data: Path, sets: list[str]) -> Iterator[tuple[str, str, Contestants]]:
    """Yield the name, the shape, and the contestants' calls of each table."""
    import bigforest as bf

    for name in sets:
        frame = pl.read_parquet(data / FILES[name])
        regression = name in REGRESSION
        frame = frame if regression else frame.with_columns(pl.col("target").cast(pl.String))
        values = frame.drop("target").select(pl.all().to_physical().cast(pl.Float64)).fill_null(-1.0).to_numpy()
        truth = frame["target"].to_numpy()
        target = truth if regression else np.unique(truth, return_inverse=True)[1]
        ours = {"bigforest": lambda frame=frame: bf.train(frame, "target", trees=TREES, threads=1)}
        yield name, f"{frame.height} x {frame.width - 1}", ours | _peers(values, target, regression)
    yield "cross_val_score", "569 x 30", _folds()


def _peers(values: Any, target: Any, regression: bool) -> Contestants:
    from lightgbm import LGBMClassifier, LGBMRegressor
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    forest = RandomForestRegressor if regression else RandomForestClassifier
    boosting = LGBMRegressor if regression else LGBMClassifier
    return {
        "scikit-learn": lambda: forest(TREES, oob_score=True, random_state=0).fit(values, target),
        "LightGBM": lambda: boosting(n_estimators=TREES, n_jobs=1, verbose=-1).fit(values, target),
    }


def _folds() -> Contestants:
    from lightgbm import LGBMClassifier
    from sklearn.datasets import load_breast_cancer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import cross_val_score

    from bigforest.sklearn import BigForestClassifier

    values, target = load_breast_cancer(return_X_y=True)
    models = {
        "bigforest": BigForestClassifier(TREES, n_jobs=1),
        "scikit-learn": RandomForestClassifier(TREES, random_state=0),
        "LightGBM": LGBMClassifier(n_estimators=TREES, n_jobs=1, verbose=-1),
    }
    return {name: lambda model=model: cross_val_score(model, values, target, cv=5) for name, model in models.items()}


if __name__ == "__main__":
    main()
