"""Trees of Ho 1995 against plain numpy, on one core; and a forest of them on several.

    python benchmarks/subspaces.py --data DIR [--rounds 3] [--epochs 5] [--trees 200] [--threads 2]

DIR/mnist has MNIST's IDX files; the pixels are those of ho1995.py (20 x 20, binary). The trees see all 400 of them, the
forest has subspaces of 100. Contestants take turns within one process; seconds are CPU seconds of it, so that other
programs do not show. Writes results/subspaces.parquet and results/subspaces.md.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # one core for numpy, before it is loaded

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
from numpy_ho import cap, grow, perceptron
from runs import HERE, machine
from tables import markdown, save

import bigforest
from bigforest.grow.forest import compile_for, grow_tree
from bigforest.options.train_config import TrainConfig

STEPS = 50
COLUMNS = {
    "method": ("tree", "{}"),
    "contestant": ("by", "{}"),
    "nodes": ("nodes", "{:,}"),
    "seconds": ("CPU seconds, best", "{:.3f}"),
    "median": ("median", "{:.3f}"),
    "ratio": ("numpy / ours, best", "{:.1f}"),
}


def single_trees(store: bigforest.Store, epochs: int, rounds: int) -> pl.DataFrame:
    """One row per tree grown: CAP and PER on all features, by us and by numpy, in turn."""
    rows = np.stack([store.feature_codes(f) for f in range(len(store.spec.features))], axis=1).astype(np.float32)
    rows *= np.array([store.low(f)[-1] for f in range(len(store.spec.features))], np.float32)  # constants of 0
    labels = store.target[:].astype(np.int64)
    common = {"subspace": len(store.spec.features), "trees": 1, "steps": STEPS}
    configs = {
        "CAP": TrainConfig.of(family="subspace-cap", **common),
        "PER": TrainConfig.of(family="subspace-perceptron", max_epochs=epochs, **common),
    }
    ours: dict[str, Callable[[], int]] = {
        name: lambda config=config: grow_tree(store, config, 0).feature.size for name, config in configs.items()
    }
    numpy: dict[str, Callable[[], int]] = {
        "CAP": lambda: grow(rows, labels, cap, steps=STEPS)[0],
        "PER": lambda: grow(rows, labels, perceptron, steps=STEPS, epochs=epochs)[0],
    }
    compile_for(store.shape.extras, configs["CAP"], passes=False, scratch=None)
    found = []
    for number in range(rounds):
        for method in configs:
            for contestant, run in (("bigforest", ours[method]), ("numpy", numpy[method])):
                begin = time.process_time()
                nodes = run()
                spent = time.process_time() - begin
                found.append({"method": method, "contestant": contestant, "round": number, "nodes": nodes, "s": spent})
                print(found[-1])
    return pl.DataFrame(found)


def forest(store: bigforest.Store, trees: int, threads: int) -> dict[str, Any]:
    """CPU and wall seconds of growing a forest of CAP trees in subspaces of 100."""
    options = {"family": "subspace-cap", "subspace": 100, "steps": STEPS}
    bigforest.train(store, trees=2, threads=threads, **options)  # what is loaded or compiled once
    cpu = time.process_time()
    found = bigforest.train(store, trees=trees, threads=threads, **options)
    cpu = time.process_time() - cpu
    wall = dict(found.run.select("stage", "seconds").iter_rows())["grow"]
    return {"trees": trees, "threads": threads, "cpu": cpu, "wall": wall}


def main() -> None:
    """Both, and the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with mnist/*-ubyte.gz")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5, help="passes of a perceptron over the rows of a node")
    parser.add_argument("--trees", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        table = Path(folder) / "digits.parquet"
        images = given.data / "mnist" / "train-images-idx3-ubyte.gz"
        bigforest.images_to_features(images, table, size="20x20", crop=True, threshold=128)
        store = bigforest.encode_store(table, Path(folder) / "digits.store", target="target")
        runs = single_trees(store, given.epochs, given.rounds)
        grown = forest(store, given.trees, given.threads)
    best = runs.group_by("method", "contestant", maintain_order=True).agg(
        pl.col("nodes").first(), pl.col("s").min().alias("seconds"), pl.col("s").median().alias("median")
    )
    numpy = best.filter(pl.col("contestant") == "numpy").select("method", other="seconds")
    best = best.join(numpy, on="method", maintain_order="left").with_columns(
        ratio=pl.when(pl.col("contestant") != "numpy").then(pl.col("other") / pl.col("seconds"))
    )
    head = f"{store.rows:,} rows, 400 binary features, at most {given.epochs} passes, one core. Machine: {machine()}."
    tail = (
        "{trees} CAP trees in subspaces of 100 on {threads} threads: {cpu:.1f} s of CPU, {wall:.1f} s of growing; "
        "{share:.2f} cores in use."
    ).format(**grown, share=grown["cpu"] / grown["wall"])
    save("subspaces", runs, f"{head}\n\n{markdown(best, COLUMNS)}\n\n{tail}", given.out)


if __name__ == "__main__":
    main()
