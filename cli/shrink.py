"""bigforest shrink"""

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
def shrink(
    forest: options.ForestFolder,
    out: Annotated[str, typer.Option(metavar="DIR", show_default=False, help="The shrunk forest, a folder.")],
    amount: Annotated[
        float | None,
        typer.Option("--lambda", metavar="LAMBDA", help="Lambda, in rows. Default: selected by out-of-bag loss."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="The training table. Default: its path in training."),
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    threads: options.Threads = None,
    scratch: options.Scratch = None,
    memory: options.Memory = None,
) -> None:
    """Shrink leaf values towards their ancestors.

    A step below a node of n rows is multiplied by n / (n + LAMBDA).
    Without --lambda the table is read again, and a new out-of-bag report is made.

    Example: bigforest shrink flights.forest --out shrunk.forest
    """
    import bigforest

    from .facts import inspection_facts
    from .progress import showing_progress
    from .show import show

    begin = perf_counter()
    with showing_progress(quiet=quiet) as listener:
        shrunk = bigforest.shrink_forest(
            forest,
            out,
            amount=amount,
            data=data,
            threads=threads,
            scratch=scratch,
            memory=memory,
            overwrite=overwrite,
            listener=listener,
        )
    found = inspection_facts(shrunk, trees=False, features=False)
    facts = {name: found[name] for name in ("forest", "trees", "oob", "shrinkage")}
    show({**facts, "seconds": perf_counter() - begin}, _draw, json=json, quiet=quiet)


def _draw(console: Console, facts: Facts) -> None:
    from .show import count, duration, lines, number_cell, out_of_bag, print_table, shrinkage_lines

    oob = facts["oob"]
    lines(
        console,
        [
            ("trees", count(facts["trees"])),
            *([("out of bag", out_of_bag(oob))] if oob else []),
            *shrinkage_lines(facts["shrinkage"]),
            ("time", duration(facts["seconds"])),
            ("forest", facts["forest"]),
        ],
    )
    tried = facts["shrinkage"]["tried"]
    if tried:
        console.print()
        print_table(
            console, ["lambda", "loss"], [[f"{row['lambda']:g}", number_cell(row["loss"])] for row in tried], left=0
        )
