"""bigforest report"""

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
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    threads: options.Threads = None,
    scratch: options.Scratch = None,
    memory: options.Memory = None,
) -> None:
    """Write a report about a forest as one HTML file.

    Needs bigforest[plot]. The file is self-contained, can be printed, and has a light and a dark theme.

    Example: bigforest report flights.forest flights.parquet --out report.html
    """
    import bigforest

    from .progress import showing_progress
    from .show import show

    begin = perf_counter()
    with showing_progress(quiet=quiet) as listener:
        file = bigforest.report_forest(
            forest,
            data,
            out if out is not None else f"{Path(forest).name.removesuffix('.forest')}.html",
            trees=trees,
            overwrite=overwrite,
            threads=threads,
            scratch=scratch,
            memory=memory,
            listener=listener,
        )
    facts = {
        "forest": forest,
        "file": str(file),
        "bytes": file.stat().st_size,
        "seconds": perf_counter() - begin,
    }
    show(facts, _draw, json=json, quiet=quiet)


def _draw(console: Console, facts: Facts) -> None:
    from .show import duration, lines, size

    lines(
        console,
        [("report", facts["file"]), ("size", size(facts["bytes"])), ("time", duration(facts["seconds"]))],
    )
