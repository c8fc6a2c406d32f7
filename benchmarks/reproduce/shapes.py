"""What decision surfaces are drawn of: methods on two circles, a sine wave and a diagonal line, and their picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import polars as pl

matplotlib.use("Agg")
from matplotlib import pyplot as plt

import bigforest
from bigforest.simulation.families import shape_class

TEST_ROWS = 20_000
PIXELS = 300


@dataclass(frozen=True, slots=True)
class Run:
    """What the methods are given: rows to train on, and a new folder for a forest that must be on disk."""

    frame: pl.DataFrame
    seed: int
    trees: int
    folder: Path


def tree(run: Run) -> bigforest.Forest:
    """A single tree, grown until pure."""
    return bigforest.train(run.frame, "target", family="tree", seed=run.seed)


def pruned(run: Run) -> bigforest.Forest:
    """A tree of two thirds of the rows, pruned by the others."""
    cut = run.frame.height * 2 // 3
    whole = bigforest.train(run.frame[:cut], "target", family="tree", seed=run.seed)
    return bigforest.prune_forest(whole, run.frame[cut:], run.folder / "pruned.forest")


def forest_of(family: str, run: Run) -> bigforest.Forest:
    """A forest of a family."""
    return bigforest.train(run.frame, "target", family=family, trees=run.trees, seed=run.seed, shrink="off")


METHODS: dict[str, Callable[[Run], bigforest.Forest]] = {
    "tree": tree,
    "pruned tree": pruned,
    "random forest": partial(forest_of, "axis"),
    "rotation forest": partial(forest_of, "rotation"),
    "sparse-oblique": partial(forest_of, "sparse-oblique"),
}


def draw(forests: dict[str, bigforest.Forest], found: list[dict[str, Any]], junk: int, path: Path) -> None:
    """The truth and the surface of every forest, with its accuracy."""
    steps = (np.arange(PIXELS) + 0.5) / PIXELS * 2 - 1
    x, y = (grid.ravel() for grid in np.meshgrid(steps, steps))
    plane = pl.DataFrame({"x0": x, "x1": y} | {f"x{2 + k}": np.zeros(x.size) for k in range(junk)})
    figure, axes = plt.subplots(2, 3, figsize=(9, 7.2))
    surfaces = {"truth": shape_class(x, y)}
    for row in found:
        forest = forests[row["method"]]
        surfaces[f"{row['method']}: {row['accuracy']:.3f}"] = forest.predict(plane)["prediction"].to_numpy()
    for axis, (title, classes) in zip(axes.flat, surfaces.items(), strict=True):
        axis.imshow(classes.reshape(PIXELS, PIXELS), extent=(-1, 1, -1, 1), origin="lower", cmap="coolwarm")
        axis.set(title=title, xticks=[], yticks=[])
    figure.suptitle(f"{junk} columns of junk; accuracy against labels without noise")
    figure.tight_layout()
    figure.savefig(path, dpi=100, **({"metadata": {"Date": None}} if path.suffix == ".svg" else {}))
    plt.close(figure)
