"""The pictures of Ho 1995."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from ho_reference import TABLE_1
from ho_runs import FIGURE_TREES
from outcome import figure, save


def draw_figure(curves: pl.DataFrame, method: str, path: Path) -> None:
    """Accuracy against the number of trees with ties rejected, a panel for each set of features."""
    drawn, [axes] = figure(1, 2, width=4.4, height=3.6)
    for axis, features in zip(axes, ("f1", "f2"), strict=True):
        own = curves.filter(pl.col("trees") <= FIGURE_TREES[method], method=method, features=features, rows="test")
        for run, rows in own.filter(ties="reject").group_by("run", maintain_order=True):
            axis.plot(rows["trees"], 100 * rows["accuracy"], marker="o", markersize=3, label=run[0])
        axis.axhline(TABLE_1[method, features].accuracy, color="gray", linestyle=":", label="single tree, paper (NIST)")
        axis.set(title=f"{method}, {features}", xlabel="trees")
        axis.legend(fontsize=7)
    axes[0].set_ylabel("% right on the test set, ties rejected")
    save(drawn, path)


def draw_long(curves: pl.DataFrame, path: Path) -> None:
    """Error against the number of trees of all methods, ties to the lowest class."""
    drawn, [axes] = figure(1, 2, width=4.4, height=4.0)
    for axis, features in zip(axes, ("f1", "f2"), strict=True):
        own = curves.filter(features=features, rows="test", ties="lowest")
        for run, rows in own.group_by("run", maintain_order=True):
            axis.plot(rows["trees"], 100 - 100 * rows["accuracy"], label=run[0], linewidth=1.2)
        axis.set(title=features, xlabel="trees", xscale="log", yscale="log")
        axis.set_yticks([2, 3, 5, 10, 20], ["2", "3", "5", "10", "20"])
        axis.minorticks_off()
        axis.legend(fontsize=7)
    axes[0].set_ylabel("% wrong on the test set")
    save(drawn, path)
