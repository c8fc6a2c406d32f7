"""bigforest warm-up"""

from __future__ import annotations

from typing import Annotated

import typer

from . import options
from .command import command
from .options import Given
from .show import Facts, lines


def _draw(facts: Facts) -> None:
    lines(("compiled", ", ".join(facts["kinds"])))


@command(_draw, run=options.run_options("scheduler"))
def warm_up(
    kinds: Annotated[
        str,
        typer.Option(
            metavar="KINDS",
            help="Kinds of forests, separated by commas: classification, regression, families other than axis and "
            "tree, and others; or all. An unknown kind prints the list.",
        ),
    ] = "classification",
    *,
    passes: Annotated[bool, typer.Option("--passes", help="Also those for tables larger than memory.")] = False,
    run: Given,
) -> Facts:
    """Compile all kernels now, once per machine.

    Example: bigforest warm-up --kinds all
    """
    import bigforest

    named = kinds if kinds == "all" else [kind.strip() for kind in kinds.split(",")]
    return {"kinds": bigforest.warm_up(named, passes=passes, **run)}
