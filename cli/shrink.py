"""bigforest shrink"""

from __future__ import annotations

from typing import Annotated

import typer

from . import options
from .command import command
from .options import Given
from .show import Facts, choice_lines, count, duration, lines, number_cells, out_of_bag, print_table


def _draw(facts: Facts) -> None:
    oob, tried = facts["oob"], facts["shrinkage"]["tried"]
    lines(
        ("trees", count(facts["trees"])),
        *([("out of bag", out_of_bag(oob))] if oob else []),
        *choice_lines(facts),
        ("time", duration(facts["seconds"])),
        ("forest", facts["forest"]),
    )
    if tried:
        typer.echo()
        losses = number_cells(row["loss"] for row in tried)
        print_table(
            ["lambda", "loss"], [[f"{row['lambda']:g}", loss] for row, loss in zip(tried, losses, strict=True)], left=0
        )


@command(_draw, run=options.run_options("overwrite", "threads", "scratch", "memory"))
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
    *,
    run: Given,
) -> Facts:
    """Shrink leaf values towards their ancestors.

    A step below a node of n rows is multiplied by n / (n + LAMBDA).
    Without --lambda the table is read again, and a new out-of-bag report is made.

    Example: bigforest shrink flights.forest --out shrunk.forest
    """
    import bigforest

    from .facts import revised_facts

    shrunk = bigforest.shrink_forest(forest, out, amount=amount, data=data, **run)
    return revised_facts(shrunk, "trees", "oob", "shrinkage", "power")
