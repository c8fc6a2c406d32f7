"""bigforest warm-up"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from . import options
from .cluster import SCHEDULER, running
from .command import grouped


@grouped(scheduler=SCHEDULER)
def warm_up(
    kinds: Annotated[
        str,
        typer.Option(
            metavar="KINDS",
            help="Comma-separated, of classes, categories, numbers, categories-numbers, these with random splits "
            "(random, random-categories and so on), sparse-oblique, rotation, subspace-cap and subspace-perceptron; "
            "or all.",
        ),
    ] = "classes",
    *,
    passes: Annotated[bool, typer.Option("--passes", help="Also those for tables larger than memory.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    scheduler: dict[str, Any],
) -> None:
    """Compile all kernels now, once per machine.

    Example: bigforest warm-up --kinds all
    """
    import bigforest

    from .show import lines, show

    with running(scheduler, quiet=quiet) as (client, ledger):
        named = bigforest.warm_up(
            kinds if kinds == "all" else [kind.strip() for kind in kinds.split(",")],
            passes=passes,
            listener=ledger,
            scheduler=client,
        )
    show(
        {"kinds": named},
        lambda console, facts: lines(console, [("compiled", ", ".join(facts["kinds"]))]),
        json=json,
        quiet=quiet,
    )
