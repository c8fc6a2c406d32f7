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
from numpy.typing import NDArray

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


def forest_of(run: Run, **options: Any) -> bigforest.Forest:
    """A forest with these options."""
    return bigforest.train(run.frame, "target", trees=run.trees, seed=run.seed, shrink="off", **options)


METHODS: dict[str, Callable[[Run], bigforest.Forest]] = {
    "tree": tree,
    "pruned tree": pruned,
    "random forest": partial(forest_of, family="axis", mtry="sqrt"),
    "rotation forest": partial(forest_of, family="rotation"),
    "rotation, axes chosen": partial(forest_of, family="rotation", axes_from="auto"),
    "sparse-oblique": partial(forest_of, family="sparse-oblique"),
}


def draw(
    frame: pl.DataFrame, forests: dict[str, bigforest.Forest], found: list[dict[str, Any]], junk: int, path: Path
) -> None:
    """The truth and the classes of every forest, with its accuracy; below them rows of the training and posteriors."""
    steps = (np.arange(PIXELS) + 0.5) / PIXELS * 2 - 1
    x, y = (grid.ravel() for grid in np.meshgrid(steps, steps))
    plane = pl.DataFrame({"x0": x, "x1": y} | {f"x{2 + k}": np.zeros(x.size) for k in range(junk)})
    figure, axes = plt.subplots(2, 1 + len(found), figsize=(2.4 * (1 + len(found)), 5.9))
    _surface(axes[0, 0], shape_class(x, y), "truth")
    axes[1, 0].scatter(frame["x0"], frame["x1"], c=frame["target"], s=1, cmap="coolwarm", rasterized=True)
    axes[1, 0].set(title="rows to learn from", xlim=(-1, 1), ylim=(-1, 1), aspect="equal")
    for column, row in enumerate(found, 1):
        shares = forests[row["method"]].predict_proba(plane).to_numpy()[:, 1]
        _surface(axes[0, column], shares > 0.5, f"{row['method']}: {row['accuracy']:.3f}")
        _surface(axes[1, column], shares, "posterior")
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
        axis.title.set_fontsize(9)
    figure.suptitle(f"{junk} columns of junk; accuracy against labels without noise")
    figure.tight_layout()
    figure.savefig(path, dpi=100, **({"metadata": {"Date": None}} if path.suffix == ".svg" else {}))
    plt.close(figure)


def _surface(axis: Any, values: NDArray[Any], title: str) -> None:
    """What is answered in the plane, from 0 to 1."""
    plane = values.reshape(PIXELS, PIXELS).astype(float)
    axis.imshow(plane, extent=(-1, 1, -1, 1), origin="lower", cmap="coolwarm", vmin=0.0, vmax=1.0)
    axis.set(title=title)
