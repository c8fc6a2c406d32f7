"""Forests on a Dask cluster: bigforest, XGBoost's and LightGBM's random forests, on two workers of one thread each.

Spark's, on two workers of its own, takes part where pyspark and Java are.

    pip install -e '.[bench,bench-dask]'
    python benchmarks/peers_dask.py [--data DIR] [--sets synthetic] [--trees 20] [--rounds 3]

All read the same Parquet files, a half of the rows in each, and grow the same number of trees on bags of N draws with
replacement (0.632 N without, where a library has no other), with mtry = floor(sqrt(features)) and no limit of depth,
LightGBM with at most LEAVES leaves. XGBoost and LightGBM split at 255 edges, bigforest at any value. Seconds are from
the files to the forest, after one tree for compiling and first use; bigforest's out-of-bag report is in them and shown
apart. Memory is the peak of the anonymous memory of all processes: scheduler, client and workers, which hold no more
than one contestant at a time.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import peers_spark
import polars as pl
from datasets import TARGET, load
from memory import MEGABYTE, peak_anonymous
from numpy.typing import NDArray
from runs import Plan, arguments, machine, order, plan_of
from tables import markdown, save, sized

WORKERS = 2
# Most leaves of a tree of LightGBM, whose workers exchange histograms leaf by leaf: a tree until pure on the synthetic
# set has 23,000, and takes minutes. Without a limit of the pool it holds the histograms of all leaves, gigabytes.
LEAVES = 2_048
# Expected share of different rows among N draws with replacement.
DISTINCT = 1.0 - math.exp(-1.0)
COLUMNS = {
    "set": ("data", "{}"),
    "size": ("rows x features", "{}"),
    "contestant": ("contestant", "{}"),
    "test_error": ("test error", "{:.4f}"),
    "seconds": ("files to forest (s)", "{:.1f}"),
    "oob_seconds": ("of these out of bag (s)", "{:.1f}"),
    "peak": ("peak anonymous memory (MB)", "{:.0f}"),
}

Predictor = Callable[[], NDArray[np.int64]]


def fit_bigforest(client: Any, folder: Path, trees: int, seed: int) -> tuple[Predictor, float]:
    """Grow the forest; gives how to predict the test rows, and seconds of the out-of-bag report."""
    import bigforest

    out = Path(tempfile.mkdtemp(dir=folder)) / "bigforest"
    forest = bigforest.train(folder / "train", target=TARGET, trees=trees, seed=seed, out=out, scheduler=client)
    seconds = dict(forest.run.select("stage", "seconds").iter_rows())
    test = pl.read_parquet(folder / "test.parquet")
    return lambda: forest.predict(test)["prediction"].cast(pl.Int64).to_numpy(), seconds["oob"]


def fit_xgboost(client: Any, folder: Path, trees: int, seed: int) -> tuple[Predictor, float]:
    """The same with XGBoost, whose forests draw rows without replacement."""
    from xgboost.dask import DaskXGBRFClassifier

    features, target = _dask_frames(folder)
    share = math.isqrt(features.shape[1]) / features.shape[1]
    model = DaskXGBRFClassifier(
        n_estimators=trees,
        max_depth=0,
        min_child_weight=0.0,
        subsample=DISTINCT,
        colsample_bynode=share,
        tree_method="hist",
        max_bin=256,
        random_state=seed,
    )
    model.client = client
    model.fit(features, target)
    return lambda: np.asarray(model.predict(_dask_test(folder)).compute()).astype(np.int64), 0.0


def fit_lightgbm(client: Any, folder: Path, trees: int, seed: int) -> tuple[Predictor, float]:
    """The same with LightGBM, whose forests draw rows without replacement, and with few leaves: see LEAVES."""
    from lightgbm import DaskLGBMClassifier

    features, target = _dask_frames(folder)
    share = math.isqrt(features.shape[1]) / features.shape[1]
    model = DaskLGBMClassifier(
        client=client,
        boosting_type="rf",
        n_estimators=trees,
        num_leaves=LEAVES,
        histogram_pool_size=256,
        min_child_samples=1,
        min_child_weight=0.0,
        bagging_freq=1,
        bagging_fraction=DISTINCT,
        feature_fraction_bynode=share,
        random_state=seed,
        verbosity=-1,
    )
    model.fit(features, target)
    return lambda: np.asarray(model.predict(_dask_test(folder)).compute()).astype(np.int64), 0.0


ON_DASK = {"bigforest": fit_bigforest, "xgboost": fit_xgboost, "lightgbm": fit_lightgbm}


def _dask_frames(folder: Path) -> tuple[Any, Any]:
    import dask.dataframe as dd

    # Held by the workers: read apart, features and target would come in different partitions.
    frame = dd.read_parquet(str(folder / "train")).persist()
    return frame.drop(columns=[TARGET]), frame[TARGET].astype("int64")


def _dask_test(folder: Path) -> Any:
    import dask.dataframe as dd

    return dd.read_parquet(str(folder / "test.parquet")).drop(columns=[TARGET])


def measure(contestant: str, folder: Path, trees: int, seed: int) -> dict[str, float]:
    """Seconds and accuracy of one contestant, in this process and its workers."""
    from distributed import Client, LocalCluster

    if contestant == "spark":
        return peers_spark.measure(folder, trees, seed)
    warnings.simplefilter("ignore")
    fit = ON_DASK[contestant]
    options = {"threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None, "silence_logs": 50}
    with LocalCluster(n_workers=WORKERS, **options) as cluster, Client(cluster) as client:
        fit(client, folder, 1, seed)[0]()
        begin = time.perf_counter()
        predict, oob = fit(client, folder, trees, seed)
        seconds = time.perf_counter() - begin
        truth = pl.read_parquet(folder / "test.parquet")[TARGET].cast(pl.Int64).to_numpy()
        return {"seconds": seconds, "oob_seconds": oob, "accuracy": float((predict() == truth).mean())}


def run(plan: Plan) -> pl.DataFrame:
    """One row per measurement. Progress goes to stderr."""
    rows = []
    for name in plan.sets:
        data = load(name, plan.data)
        size = {"set": name, "rows": data.train.height, "features": len(data.features), "classes": data.classes}
        with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as scratch:
            folder = Path(scratch)
            (folder / "train").mkdir()
            half = -(-data.train.height // WORKERS)
            for part in range(WORKERS):
                data.train.slice(part * half, half).write_parquet(folder / "train" / f"{part}.parquet")
            data.test.write_parquet(folder / "test.parquet")
            for round_, contestant in order(plan):
                told = json.dumps([contestant, str(folder), plan.trees, round_])
                peak = peak_anonymous([sys.executable, str(Path(__file__).resolve()), "--measure", told], 1)
                found = json.loads((folder / "result.json").read_text())
                rows.append({**size, "contestant": contestant, "round": round_, "peak": peak / MEGABYTE, **found})
                print(rows[-1], file=sys.stderr)
    return pl.DataFrame(rows, infer_schema_length=None)


def main() -> None:
    """Forests on a Dask cluster of two workers."""
    everyone = [*ON_DASK, *(["spark"] if find_spec("pyspark") and shutil.which("java") else [])]
    parser = arguments(main.__doc__, sets="synthetic", contestants=",".join(everyone), trees=20, rounds=3)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        contestant, folder, trees, seed = json.loads(options.measure)
        found = measure(contestant, Path(folder), trees, seed)
        (Path(folder) / "result.json").write_text(json.dumps(found))
        return
    runs = run(plan_of(options))
    best = runs.group_by("set", "rows", "features", "classes", "contestant", maintain_order=True).agg(
        pl.col("seconds", "oob_seconds", "peak").min(), pl.col("accuracy").mean()
    )
    head = f"{options.trees} trees, two workers of one thread, best of {options.rounds} rounds.\n{machine()}."
    save("peers_dask", runs, head + "\n\n" + markdown(sized(best), COLUMNS), options.out)


if __name__ == "__main__":
    main()
