"""Decision surfaces of trees and forests on two circles, a sine wave and a diagonal line, with wrong labels.

    python benchmarks/reproduce/shapes.py [--rows 2000] [--junk 0,2,8,32] [--trees 64] [--repeats 5] [--out FOLDER]

Trains a single tree, the same tree pruned by a third of the rows, a random forest, a rotation forest and a
sparse-oblique forest on `bigforest simulate shapes`, with 10% of the labels wrong and some columns of junk
beside the plane. Writes FOLDER/shapes.parquet and shapes.md (accuracy against labels without noise, on 20,000 fresh
rows) and one picture per number of junk columns: the surface that is shown is that of junk values 0.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib
import numpy as np
import polars as pl

matplotlib.use("Agg")
from matplotlib import pyplot as plt

sys.path.append(str(Path(__file__).resolve().parent.parent))

from tables import markdown, save

import bigforest
from bigforest.simulation.families import shape_class

HERE = Path(__file__).resolve().parent
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


def compare(given: argparse.Namespace, junk: int, seed: int, folder: Path) -> list[dict[str, Any]]:
    """Accuracy of every method on one draw; a picture of the first."""
    drawn = {"dims": 2 + junk, "seed": seed, "truth": True}
    frame = bigforest.simulate("shapes", rows=given.rows, **drawn).drop("truth")
    test = bigforest.simulate("shapes", rows=TEST_ROWS, sample=1, **drawn)
    forests = {name: train(Run(frame, seed, given.trees, folder)) for name, train in METHODS.items()}
    found = []
    for name, forest in forests.items():
        right = forest.predict(test)["prediction"] == test["truth"]
        found.append({"junk": junk, "seed": seed, "method": name, "accuracy": right.mean()})
    if seed == 0:
        draw(forests, found, junk, given.out / f"shapes-{junk}.png")
    return found


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


def report(table: pl.DataFrame, head: str) -> str:
    """Mean accuracy and its standard error, a row per method, a column per number of junk columns."""
    cell = pl.format(
        "{} ± {}",
        pl.col("accuracy").mean().round(4),
        (pl.col("accuracy").std() / pl.len().sqrt()).fill_null(0.0).round(4),
    )
    means = table.group_by("method", "junk", maintain_order=True).agg(cell.alias("cell"))
    wide = means.pivot("junk", index="method", values="cell", maintain_order=True)
    headings = {name: (f"{name} junk columns", "{}") for name in wide.columns[1:]}
    return f"{head}\n\n{markdown(wide, {'method': ('method', '{}'), **headings})}"


def main() -> None:
    """All numbers of junk columns, all repeats; pictures of the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--junk", default="0,2,8,32", help="comma-separated numbers of junk columns")
    parser.add_argument("--trees", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "shapes")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for junk in map(int, given.junk.split(",")):
        for seed in range(given.repeats):
            with TemporaryDirectory() as folder:
                rows += compare(given, junk, seed, Path(folder))
    table = pl.DataFrame(rows)
    head = f"{given.rows} rows, 10% of labels wrong, {given.trees} trees, mean of {given.repeats} draws."
    save("shapes", table, report(table, head), given.out)


if __name__ == "__main__":
    main()
