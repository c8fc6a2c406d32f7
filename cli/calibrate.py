"""bigforest calibrate"""

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
        ("leaves", count(facts["leaves"])),
        ("time", duration(facts["seconds"])),
        ("forest", facts["forest"]),
    )


@command(_draw, run=options.run_options("overwrite", "threads", "scratch"))
def calibrate(
    forest: options.ForestFolder,
    data: options.Data,
    out: Annotated[str, typer.Option(metavar="DIR", show_default=False, help="The calibrated forest, a folder.")],
    *,
    run: Given,
) -> Facts:
    """Re-estimate class probabilities of leaves from other rows.

    A leaf gets the class shares of the rows that end in it. A leaf that no row reaches is not changed.

    DATA has the target. Use rows that the forest was not trained on.

    Example: bigforest calibrate digits.forest more.parquet --out calibrated.forest
    """
    import bigforest

    from .facts import revised_facts

    return revised_facts(bigforest.calibrate_forest(forest, data, out, **run), "trees", "nodes", "leaves")
