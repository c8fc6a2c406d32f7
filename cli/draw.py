"""Commands that draw a forest: plot, single charts, and report, one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .command import command
from .options import Given, option
from .show import Facts, duration, lines, size

# Options by argument of `plot_forest`, with its defaults, in the order of --help.
PLOT = {
    "what": option(
        list[str],
        "NAME,...",
        "error, rounds, confusion, reliability, roc, precision-recall, rejection, importance, unbiased, permutation, "
        "dependence, waterfall, swarm, surface, interactions, map, depth, leaves, tree, time. Default: all that can "
        "be drawn, except surface and interactions.",
        read=options.values_of_lists,
    ),
    "out": option(str, "DIR", "Folder of the files. Default: <stem of FOREST>.pictures."),
    "format": option(str, "svg|png|html", "Format of the files.", default="svg"),
    "row": option(int, "N", "Row of the waterfall, from 0.", default=0),
    "tree": option(int, "N", "Tree to draw, from 0.", default=0),
    "depth": option(int, "N", "Levels of the tree to draw, at most 8.", default=3),
    "features": option(list[str], "COL", "Feature of dependence, or two of surface; repeat for more.", "--feature"),
    "label": option(
        str,
        "CLASS",
        "Class that waterfall, swarm, surface and interactions explain, and positive class of reliability, roc and "
        "precision-recall.",
        "--class",
    ),
}


def _draw_plots(facts: Facts) -> None:
    lines(("files", "\n".join(facts["files"])), ("time", duration(facts["seconds"])))


@command(_draw_plots, plot=PLOT, run=options.run_options("overwrite", "threads", "scratch", "memory"))
def plot(
    forest: options.ForestFolder,
    data: Annotated[
        str | None,
        options.argument(
            "DATA",
            "Rows for dependence, waterfall, swarm, surface, interactions; the training table for unbiased, "
            "permutation, map.",
        ),
    ] = None,
    *,
    plot: Given,
    run: Given,
) -> Facts:
    """Write plots of a forest to a folder. Needs bigforest[plot].

    Without --what, all plots that the forest and DATA allow are drawn.

    Example: bigforest plot flights.forest flights.parquet --what error,roc,swarm --out pictures
    """
    import bigforest

    plot.setdefault("out", options.named_after(forest, ".pictures"))
    files = bigforest.plot_forest(forest, data, **plot, **run)
    return {"forest": forest, "files": [str(file) for file in files]}


def _draw_report(facts: Facts) -> None:
    lines(("report", facts["file"]), ("size", size(facts["bytes"])), ("time", duration(facts["seconds"])))


@command(_draw_report, run=options.run_options("overwrite", "threads", "scratch", "memory"))
def report(
    forest: options.ForestFolder,
    data: Annotated[
        str | None,
        options.argument("DATA", "The training table. Adds slices with large errors and the dependence on features."),
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="The page. Default: <stem of FOREST>.html.")] = None,
    trees: Annotated[int, typer.Option(metavar="N", help="Trees to draw.")] = 3,
    *,
    run: Given,
) -> Facts:
    """Write a report about a forest as one HTML file.

    Needs bigforest[plot]. The file is self-contained, can be printed, and has a light and a dark theme.

    Example: bigforest report flights.forest flights.parquet --out report.html
    """
    import bigforest

    output = out if out is not None else options.named_after(forest, ".html")
    file: Path = bigforest.report_forest(forest, data, output, trees=trees, **run)
    return {"forest": forest, "file": str(file), "bytes": file.stat().st_size}
