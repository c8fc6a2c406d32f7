"""bigforest plot"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .command import grouped

if TYPE_CHECKING:
    from rich.console import Console

    from .show import Facts


@grouped()
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
    format: Annotated[str, typer.Option(metavar="svg|png|html", help="Format of the files.")] = "svg",
    row: Annotated[int, typer.Option(metavar="N", help="Row of the waterfall, from 0.")] = 0,
    tree: Annotated[int, typer.Option(metavar="N", help="Tree to draw, from 0.")] = 0,
    depth: Annotated[int, typer.Option(metavar="N", help="Levels of the tree to draw, at most 8.")] = 3,
    features: Annotated[
        list[str] | None,
        typer.Option("--feature", metavar="COL", help="Feature of dependence, or two of surface; repeat for more."),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option("--class", metavar="CLASS", help="Class that waterfall, swarm, surface and interactions explain."),
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    threads: options.Threads = None,
    scratch: options.Scratch = None,
    memory: options.Memory = None,
) -> None:
    """Write plots of a forest to a folder. Needs bigforest[plot].

    Without --what, all plots that the forest and DATA allow are drawn.

    Example: bigforest plot flights.forest flights.parquet --what error,roc,swarm --out pictures
    """
    import bigforest

    from .progress import showing_progress
    from .show import show

    begin = perf_counter()
    with showing_progress(quiet=quiet) as listener:
        files = bigforest.plot_forest(
            forest,
            data,
            out=out if out is not None else f"{Path(forest).name.removesuffix('.forest')}.pictures",
            what=None if what is None else what.split(","),
            format=format,
            row=row,
            tree=tree,
            depth=depth,
            features=features,
            label=label,
            overwrite=overwrite,
            threads=threads,
            scratch=scratch,
            memory=memory,
            listener=listener,
        )
    facts = {"forest": forest, "files": [str(file) for file in files], "seconds": perf_counter() - begin}
    show(facts, _draw, json=json, quiet=quiet)


def _draw(console: Console, facts: Facts) -> None:
    from .show import duration, lines

    lines(console, [("files", "\n".join(facts["files"])), ("time", duration(facts["seconds"]))])
