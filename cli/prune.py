"""bigforest prune"""

from __future__ import annotations

from typing import Annotated

import typer

from . import options
from .command import command
from .options import Given
from .show import Facts, count, duration, lines


def _draw(facts: Facts) -> None:
    lines(
        ("trees", count(facts["trees"])),
        ("nodes", f"{count(facts['nodes'])} of {count(facts['nodes_before'])}"),
        ("leaves", f"{count(facts['leaves'])} of {count(facts['leaves_before'])}"),
        ("time", duration(facts["seconds"])),
        ("forest", facts["forest"]),
    )


@command(_draw, run=options.run_options("overwrite", "threads", "scratch"))
def prune(
    forest: options.ForestFolder,
    data: options.Data,
    out: Annotated[str, typer.Option(metavar="DIR", show_default=False, help="The pruned forest, a folder.")],
    on_ties: Annotated[
        str,
        typer.Option(
            metavar="keep|prune", help="What to do with a subtree that is correct as often as a leaf in its place."
        ),
    ] = "keep",
    *,
    run: Given,
) -> Facts:
    """Prune the trees of a forest on a tuning set.

    A subtree is replaced by a leaf if the leaf is correct on more of these rows.

    DATA has the target. Use rows that the forest was not trained on.

    Example: bigforest prune flights.forest tuning.parquet --out pruned.forest
    """
    import bigforest

    from .facts import revised_facts

    grown = bigforest.read_forest(forest)
    before = revised_facts(grown, "nodes", "leaves")
    after = revised_facts(bigforest.prune_forest(grown, data, out, on_ties=on_ties, **run), "trees", "nodes", "leaves")
    return {**after, "nodes_before": before["nodes"], "leaves_before": before["leaves"]}
