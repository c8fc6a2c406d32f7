"""bigforest plot"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from . import options
from .command import command
from .groups import option
from .show import Facts, duration, lines

# By the names of `plot_forest`, with its defaults; the order is that of --help.
PLOT = {
    "format": option(str, "svg", "svg|png|html", "Format of the files."),
    "row": option(int, 0, "N", "Row of the waterfall, from 0."),
    "tree": option(int, 0, "N", "Tree to draw, from 0."),
    "depth": option(int, 3, "N", "Levels of the tree to draw, at most 8."),
    "features": option(
        list[str] | None, None, "COL", "Feature of dependence, or two of surface; repeat for more.", "--feature"
    ),
    "label": option(
        str | None, None, "CLASS", "Class that waterfall, swarm, surface and interactions explain.", "--class"
    ),
}


def _draw(facts: Facts) -> None:
    lines(("files", "\n".join(facts["files"])), ("time", duration(facts["seconds"])))


@command(_draw, plot=PLOT, run=options.run_options("overwrite", "threads", "scratch", "memory"))
def plot(
    forest: options.ForestFolder,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            show_default=False,
            help="Rows for dependence, waterfall, swarm, surface, interactions; the training table for unbiased, "
            "permutation, map.",
        ),
    ] = None,
    what: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="error, confusion, reliability, roc, precision-recall, rejection, importance, unbiased, permutation, "
            "dependence, waterfall, swarm, surface, interactions, map, depth, leaves, tree, time. Default: all "
            "that can be drawn, except surface and interactions.",
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of the files. Default: <stem of FOREST>.pictures.")
    ] = None,
    *,
    plot: dict[str, Any],
    run: dict[str, Any],
) -> Facts:
    """Write plots of a forest to a folder. Needs bigforest[plot].

    Without --what, all plots that the forest and DATA allow are drawn.

    Example: bigforest plot flights.forest flights.parquet --what error,roc,swarm --out pictures
    """
    import bigforest

    files = bigforest.plot_forest(
        forest,
        data,
        out=out if out is not None else options.named_after(forest, ".pictures"),
        what=None if what is None else what.split(","),
        **plot,
        **run,
    )
    return {"forest": forest, "files": [str(file) for file in files]}
