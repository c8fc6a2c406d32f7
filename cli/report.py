"""bigforest report"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .command import command
from .options import Given
from .show import Facts, duration, lines, size


def _draw(facts: Facts) -> None:
    lines(("report", facts["file"]), ("size", size(facts["bytes"])), ("time", duration(facts["seconds"])))


@command(_draw, run=options.run_options("overwrite", "threads", "scratch", "memory"))
def report(
    forest: options.ForestFolder,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            show_default=False,
            help="The training table. Adds slices with large errors and the dependence on features.",
        ),
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
