"""bigforest validate"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .command import grouped

if TYPE_CHECKING:
    from rich.console import Console

    from .show import Facts


@grouped()
def validate(
    forest: options.ForestFolder,
    data: options.Data,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also write the error after each tree to this Parquet file.")
    ] = None,
    vote: options.Vote = None,
    ties: options.Ties = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    threads: options.Threads = None,
    scratch: options.Scratch = None,
    memory: options.Memory = None,
) -> None:
    """Evaluate a forest on labelled rows, by number of trees.

    All rows have the same weight.

    Example: bigforest validate flights.forest test.parquet --out curve.parquet
    """
    import bigforest

    from .progress import showing_progress
    from .show import show

    begin = perf_counter()
    with showing_progress(quiet=quiet) as listener:
        curve = bigforest.validate_forest(
            forest,
            data,
            out,
            vote=vote,
            ties=ties,
            threads=threads,
            scratch=scratch,
            memory=memory,
            overwrite=overwrite,
            listener=listener,
        )
    facts = {"forest": forest, "curve": curve.to_dicts(), "out": out, "seconds": perf_counter() - begin}
    show(facts, _draw, json=json, quiet=quiet)


def _draw(console: Console, facts: Facts) -> None:
    from bigforest.common.sizes import milestones

    from .show import count, duration, lines, percent, print_table, validation_lines

    curve = facts["curve"]
    written = [("curve", facts["out"])] if facts["out"] else []
    lines(console, [*validation_lines(curve[-1]), ("time", duration(facts["seconds"])), *written])
    console.print()
    steps = [curve[trees - 1] for trees in milestones(len(curve))]
    rows = [[count(row["trees"]), percent(row["error"]), count(row["rejected"])] for row in steps]
    print_table(console, ["trees", "error", "rejected"], rows, left=0)
