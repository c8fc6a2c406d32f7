"""What is measured of Ho 1995: single trees and forests on the digits."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

import bigforest

FAMILIES = {
    "CAP": "subspace-cap",
    "PER": "subspace-perceptron",
    "axis": "axis",
    "sparse-oblique": "sparse-oblique",
}
FEATURES = {"f1": "pixels", "f2": "neighbours"}
# Trees of the figures; the curve is drawn as far as the paper's.
FIGURE_TREES = {"CAP": 40, "PER": 10}
# Rows that leave the training set in order to estimate posteriors.
SECONDARY = 10_000
# Trees whose answers on the training set are counted.
_TRAINED = 5


@dataclass(frozen=True, slots=True)
class Options:
    """What decides a result beside its run.

    epochs, seed  of TrainConfig.
    threads, memory  where it runs: changes no result but the seconds.
    """

    epochs: int
    seed: int
    threads: int
    memory: str


@dataclass(frozen=True, slots=True)
class Run:
    """A forest: its method, the features, how many of them in a subspace (0 where there is none), its trees.

    calibrated  grown on all but the last SECONDARY rows, by which posteriors are estimated.
    """

    method: str
    features: str
    subspace: int
    trees: int
    calibrated: bool = False

    @property
    def name(self) -> str:
        """As a file and in a figure."""
        size = f"-{self.subspace}" if self.subspace else ""
        return f"{self.method}-{self.features}{size}{'-calibrated' if self.calibrated else ''}"

    def config(self, options: Options) -> dict[str, Any]:
        """Options of `bigforest.train`."""
        own: dict[str, Any] = {"subspace": self.subspace} if self.subspace else {}
        if self.method == "PER":
            own["max_epochs"] = options.epochs
        return {
            "family": FAMILIES[self.method],
            "seed": options.seed,
            "threads": options.threads,
            "shrink": "off",
            **own,
        }


def make_features(data: Path, folder: Path) -> None:
    """The digits as features, folder/f1-train.parquet and so on: ink put into 20 x 20, black or white."""
    folder.mkdir(parents=True, exist_ok=True)
    for features, kind in FEATURES.items():
        for part, images in (("train", "train"), ("test", "t10k")):
            out = folder / f"{features}-{part}.parquet"
            if not out.exists():
                source = data / "mnist" / f"{images}-images-idx3-ubyte.gz"
                bigforest.images_to_features(source, out, features=kind, size="20x20", crop=True, threshold=128)


def measure_single(method: str, features: str, folder: Path, options: Options) -> pl.DataFrame:
    """A tree that sees all features: one row. The seed draws the order of the rows, which perceptrons depend on."""
    train, test = (pl.read_parquet(folder / f"{features}-{part}.parquet") for part in ("train", "test"))
    train = train.sample(fraction=1.0, shuffle=True, seed=options.seed)
    begin = time.process_time()
    forest = bigforest.train(train, trees=1, **Run(method, features, train.width - 1, 1).config(options))
    seconds = time.process_time() - begin
    leaves = forest.nodes.filter(pl.col("kind") == "leaf").select("counts").collect()["counts"]
    right = forest.predict(test)["prediction"] == test["target"]
    by_class = test.select("target", right=right).group_by("target").agg(pl.col("right").mean()).sort("target")
    known = forest.predict(train)["prediction"] == train["target"]
    return pl.DataFrame(
        {
            "method": [method],
            "features": [features],
            "nodes": [2 * len(leaves) - 1],
            "leaves": [len(leaves)],
            "accuracy": [right.mean()],
            "trained": [known.mean()],
            "by_class": [by_class["right"].to_list()],
            "leaves_by_class": [np.bincount(leaves.list.arg_max().to_numpy(), minlength=10).tolist()],
            "seconds": [seconds],
        }
    )


def measure_forest(run: Run, folder: Path, options: Options) -> pl.DataFrame:
    """Accuracy after each tree: a row per tree and rule for ties, with the CPU seconds of training the whole forest."""
    train, test = (folder / f"{run.features}-{part}.parquet" for part in ("train", "test"))
    frame = pl.read_parquet(train)
    grown_on = frame[:-SECONDARY] if run.calibrated else frame
    with TemporaryDirectory() as scratch:
        place = Path(scratch) / "forest"
        begin = time.process_time()
        forest = bigforest.train(grown_on, out=place, trees=run.trees, **run.config(options))
        seconds = time.process_time() - begin
        if run.calibrated:
            forest = bigforest.calibrate_forest(forest, frame[-SECONDARY:], Path(scratch) / "calibrated")
        few = bigforest.train(grown_on, trees=min(run.trees, _TRAINED), **run.config(options))
        curves = [
            ("test", ties, bigforest.validate_forest(forest, test, ties=ties, memory=options.memory))
            for ties in ("reject", "lowest")
        ]
        curves.append(("train", "reject", bigforest.validate_forest(few, grown_on, ties="reject")))
    return pl.concat(
        curve.select(
            pl.lit(run.name).alias("run"),
            pl.lit(run.method).alias("method"),
            pl.lit(run.features).alias("features"),
            pl.lit(run.subspace).alias("subspace"),
            pl.lit(part).alias("rows"),
            pl.lit(ties).alias("ties"),
            "trees",
            (1.0 - pl.col("error")).alias("accuracy"),
            (pl.col("rejected") / pl.col("rows")).alias("rejected"),
            pl.lit(seconds).alias("seconds"),
        )
        for part, ties, curve in curves
    )
