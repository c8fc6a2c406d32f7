"""The figures of Randomer forests on simulations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
import polars as pl
from cells import DIMS, TRANSFORMS
from matplotlib import pyplot as plt
from methods import FISHERFACES, FORESTS

COLOURS = {
    "RF": "tab:blue",
    "RF(r)": "tab:cyan",
    "RerF": "tab:green",
    "RerF(r)": "tab:brown",
    "RerF(d)": "tab:red",
    "RerF(d+r)": "tab:purple",
    FISHERFACES: "tab:gray",
    "Bayes": "black",
}
# Forests whose error is drawn against the number of trees.
CURVES = (("trunk", 2), ("trunk", 126), ("parity", 3), ("multimodal", 8))


def draw_transforms(means: pl.DataFrame, path: Path) -> None:
    """Figure 3: error against p, a row of panels per simulation and a column per transformation."""
    kinds = [kind for kind in DIMS if means.filter((pl.col("kind") == kind) & (pl.col("transform") != "raw")).height]
    if not kinds:
        return
    figure, axes = _grid(len(kinds), len(TRANSFORMS))
    for row, kind in zip(axes, kinds, strict=True):
        of_kind = means.filter(pl.col("kind") == kind)
        dims = of_kind.filter(pl.col("transform") != "raw")["dims"].unique().to_list()
        for axis, transform in zip(row, TRANSFORMS, strict=True):
            table = of_kind.filter((pl.col("transform") == transform) & pl.col("dims").is_in(dims))
            _lines(axis, table, "error", f"{kind}, {transform}")
            tops = of_kind.filter(pl.col("dims").is_in(dims)).select(pl.col("error") + pl.col("standard_error"))
            axis.set_ylim(0, 1.05 * tops.to_series().max())
        row[0].set_ylabel("error")
    _finish(figure, axes, path)


def draw_curves(simulations: pl.DataFrame, path: Path) -> None:
    """Figure A1: mean out-of-bag error against the number of trees."""
    figure, axes = _grid(1, len(CURVES))
    for axis, (kind, dims) in zip(axes[0], CURVES, strict=True):
        here = simulations.filter((pl.col("kind") == kind) & (pl.col("dims") == dims) & (pl.col("transform") == "raw"))
        for method in FORESTS:
            of_method = here.filter(pl.col("method") == method)
            if of_method.height:
                trees = of_method["curve_trees"][0].to_numpy()
                errors = np.array(of_method["curve_error"].to_list(), dtype=float)
                axis.plot(trees, np.nanmean(errors, axis=0), color=COLOURS[method], label=method)
        axis.set(title=f"{kind}, p = {dims}", xlabel="trees", xscale="log")
    axes[0, 0].set_ylabel("out-of-bag error")
    _finish(figure, axes, path)


def draw_panels(table: pl.DataFrame, kinds: list[str], what: str, label: str, path: Path) -> None:
    """A column of the table against p, a panel per simulation."""
    figure, axes = _grid(1, len(kinds))
    for axis, kind in zip(axes[0], kinds, strict=True):
        _lines(axis, table.filter(pl.col("kind") == kind), what, kind)
        axis.set_ylim(bottom=0)
    axes[0, 0].set_ylabel(label)
    _finish(figure, axes, path)


def _lines(axis: Any, table: pl.DataFrame, what: str, title: str) -> None:
    """One line per method, with error bars of one standard error where it is the error."""
    for method, colour in COLOURS.items():
        own = table.filter(pl.col("method") == method).sort("dims")
        if own.height:
            bars = own["standard_error"] if what == "error" else None
            style = "--" if method == "Bayes" else "-"
            line = {"color": colour, "label": method, "linestyle": style, "linewidth": 1.2}
            # The dots show methods that were measured at one p only.
            axis.errorbar(own["dims"], own[what], bars, marker="o", markersize=3, **line)
    ticks = table["dims"].unique().sort().to_list()
    axis.set(title=title, xlabel="p", xscale="log", xticks=ticks, xticklabels=ticks)
    axis.minorticks_off()
    axis.tick_params(axis="x", labelsize=7)


def _grid(rows: int, columns: int) -> tuple[Any, Any]:
    return plt.subplots(rows, columns, figsize=(3.4 * columns + 0.6, 3.1 * rows + 0.5), squeeze=False)


def _finish(figure: Any, axes: Any, path: Path) -> None:
    """Name all methods once, below the panels."""
    named = {}
    for axis in axes.flat:
        lines, names = axis.get_legend_handles_labels()
        named |= dict(zip(names, lines, strict=True))
    figure.legend(named.values(), named.keys(), loc="lower center", ncols=len(named) or 1, fontsize=8, frameon=False)
    _save(figure, path, bottom=0.35 / figure.get_figheight())


def _save(figure: Any, path: Path, bottom: float = 0.0) -> None:
    figure.tight_layout(rect=(0, bottom, 1, 1))
    dated = {"metadata": {"Date": None}} if path.suffix == ".svg" else {}
    figure.savefig(path, dpi=120, bbox_inches="tight", **dated)
    plt.close(figure)
