"""Forests on a Dask cluster: bigforest, XGBoost's and LightGBM's random forests, on workers of one thread each.

Spark's, on two workers of its own, takes part where pyspark and Java are.

    pip install -e '.[bench,bench-dask]'
    python benchmarks/peers_dask.py [--data DIR] [--sets synthetic] [--most N] [--trees 20] [--workers 2] [--rounds 3]
    python benchmarks/peers_dask.py --rows 1000000 --leaves [--trees 10] [--workers 2 4 6] [--rounds 1]

All read the same Parquet files, one for each worker, and grow the same number of trees on bags of N draws with
replacement (0.632 N without, where a library has no other), with mtry = floor(sqrt(features)) and no limit of depth,
LightGBM with at most LEAVES leaves, with --leaves XGBoost too. XGBoost and LightGBM split at 255 edges, bigforest at
any value. --rows is for the table of larger_table.py with that many rows to train on. Seconds are from the files to the
forest, after one tree for compiling and first use; bigforest's out-of-bag report is in them and shown apart. Processor
seconds are those of the client with the scheduler and of the workers. Memory is the peak of the anonymous memory of all
these processes, which hold no more than one contestant at a time. As root on Linux, bytes are those that all of these
send each other, counted in a network namespace of their own. Workers may be more than processors: then they take turns.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import peers_spark
import polars as pl
from datasets import TARGET, Dataset, load
from larger_table import write_table
from memory import MEGABYTE, peak_anonymous
from numpy.typing import NDArray
from runs import Plan, arguments, machine, order, plan_of
from tables import markdown, save, sized
from who_pays import spending

# Most leaves of a tree of LightGBM, whose workers exchange histograms leaf by leaf: a tree until pure on the synthetic
# set has 23,000, and takes minutes. Without a limit of the pool it holds the histograms of all leaves, gigabytes.
LEAVES = 2_048
# Expected share of different rows among N draws with replacement.
DISTINCT = 1.0 - math.exp(-1.0)
COLUMNS = {
    "set": ("data", "{}"),
    "size": ("rows x features", "{}"),
    "workers": ("workers", "{}"),
    "contestant": ("contestant", "{}"),
    "test_error": ("test error", "{:.4f}"),
    "seconds": ("files to forest (s)", "{:.1f}"),
    "cpu": ("processor (s)", "{:.1f}"),
    "oob_seconds": ("of these out of bag (s)", "{:.1f}"),
    "peak": ("peak anonymous memory (MB)", "{:.0f}"),
    "sent": ("sent (MB)", "{:.0f}"),
}

# Rows of the table of --rows that are kept for testing.
_TEST_ROWS = 100_000

Predictor = Callable[[], NDArray[np.int64]]


def fit_bigforest(client: Any, folder: Path, trees: int, seed: int) -> tuple[Predictor, float]:
    """Grow the forest; gives how to predict the test rows, and seconds of the out-of-bag report."""
    import bigforest

    out = Path(tempfile.mkdtemp(dir=folder)) / "bigforest"
    forest = bigforest.train(
        folder / "train", target=TARGET, trees=trees, mtry="sqrt", refine="off", seed=seed, out=out, scheduler=client
    )
    seconds = dict(forest.run.select("stage", "seconds").iter_rows())
    test = pl.read_parquet(folder / "test.parquet")
    return lambda: forest.predict(test)["prediction"].cast(pl.Int64).to_numpy(), seconds["oob"]


def fit_xgboost(client: Any, folder: Path, trees: int, seed: int, *, leaves: int = 0) -> tuple[Predictor, float]:
    """The same with XGBoost, whose forests draw rows without replacement; leaves: of a tree at most, 0 for no limit."""
    from xgboost.dask import DaskXGBRFClassifier

    features, target = _dask_frames(folder)
    share = math.isqrt(features.shape[1]) / features.shape[1]
    model = DaskXGBRFClassifier(
        n_estimators=trees,
        max_depth=0,
        max_leaves=leaves,
        grow_policy="lossguide" if leaves else "depthwise",
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


def alone() -> list[str]:
    """What begins a command that is to run in a network namespace of its own; nothing where that cannot be."""
    # XGBoost asks for the address of the default route.
    words = ["unshare", "-n", "sh", "-c", 'ip link set lo up && ip route add default dev lo && exec "$@"', "sh"]
    able = (
        shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    )
    return words if able else []


def sent_bytes() -> int:
    """Bytes that have been sent within this machine, in this network namespace."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next((int(line.split(":")[1].split()[0]) for line in lines if line.strip().startswith("lo:")), 0)


def measure(contestant: str, folder: Path, trees: int, seed: int, workers: int, leaves: bool) -> dict[str, float]:
    """Seconds, bytes and accuracy of one contestant, in this process and its workers."""
    from distributed import Client, LocalCluster

    if contestant == "spark":
        return peers_spark.measure(folder, trees, seed)
    warnings.simplefilter("ignore")
    fit = partial(fit_xgboost, leaves=LEAVES) if leaves and contestant == "xgboost" else ON_DASK[contestant]
    options = {"threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None, "silence_logs": 50}
    with LocalCluster(n_workers=workers, **options) as cluster, Client(cluster) as client:
        fit(client, folder, 1, seed)[0]()
        before = sent_bytes()
        with spending(client) as spent:
            predict, oob = fit(client, folder, trees, seed)
        found = {"seconds": spent["wall"], "cpu": spent["client"] + spent["sum"], "oob_seconds": oob}
        found["sent"] = (sent_bytes() - before) / MEGABYTE
        truth = pl.read_parquet(folder / "test.parquet")[TARGET].cast(pl.Int64).to_numpy()
        return {**found, "accuracy": float((predict() == truth).mean())}


def larger(rows: int) -> Dataset:
    """The table of larger_table.py with this many rows to train on."""
    with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as scratch:
        path = Path(scratch) / "table.parquet"
        write_table(path, rows + _TEST_ROWS)
        frame = pl.read_parquet(path)
    return Dataset("larger", frame[:rows], frame[rows:])


def run(plan: Plan, sets: Sequence[Dataset], options: argparse.Namespace, workers: int) -> pl.DataFrame:
    """One row per measurement. Progress goes to stderr."""
    rows, apart, most = [], alone(), options.most
    for data in sets:
        train = data.train if most is None else data.train.head(most)
        size = {"set": data.name, "rows": train.height, "features": len(data.features), "classes": data.classes}
        size["workers"] = workers
        with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as scratch:
            folder = Path(scratch)
            (folder / "train").mkdir()
            share = -(-train.height // workers)
            for part in range(workers):
                train.slice(part * share, share).write_parquet(folder / "train" / f"{part}.parquet")
            data.test.write_parquet(folder / "test.parquet")
            for round_, contestant in order(plan):
                told = json.dumps([contestant, str(folder), plan.trees, round_, workers, options.leaves])
                command = [*apart, sys.executable, str(Path(__file__).resolve()), "--measure", told]
                peak = peak_anonymous(command, 1)
                found = json.loads((folder / "result.json").read_text())
                rows.append({**size, "contestant": contestant, "round": round_, "peak": peak / MEGABYTE, **found})
                print(rows[-1], file=sys.stderr)
    return pl.DataFrame(rows, infer_schema_length=None)


def main() -> None:
    """Forests on a Dask cluster."""
    everyone = [*ON_DASK, *(["spark"] if find_spec("pyspark") and shutil.which("java") else [])]
    parser = arguments(main.__doc__, sets="synthetic", contestants=",".join(everyone), trees=20, rounds=3)
    parser.add_argument("--most", type=int, help="rows to train on, at most")
    parser.add_argument("--rows", type=int, help="rows of the table of larger_table.py, instead of --sets")
    parser.add_argument("--leaves", action="store_true", help="XGBoost has at most LEAVES leaves too")
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        contestant, folder, *others = json.loads(options.measure)
        found = measure(contestant, Path(folder), *others)
        (Path(folder) / "result.json").write_text(json.dumps(found))
        return
    plan = plan_of(options)
    sets = [larger(options.rows)] if options.rows else [load(name, plan.data) for name in plan.sets]
    runs = pl.concat([run(plan, sets, options, workers) for workers in options.workers], how="diagonal")
    best = runs.group_by("set", "rows", "features", "classes", "workers", "contestant", maintain_order=True).agg(
        pl.col("seconds", "cpu", "oob_seconds", "peak", "sent").min(), pl.col("accuracy").mean()
    )
    head = f"{options.trees} trees, workers of one thread, best of {options.rounds} rounds.\n{machine()}."
    save("peers_dask", runs, head + "\n\n" + markdown(sized(best), COLUMNS), options.out)


if __name__ == "__main__":
    main()
