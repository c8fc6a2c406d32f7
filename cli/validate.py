"""bigforest validate"""

from __future__ import annotations

import typer

from . import options
from .command import command
from .options import Given, option
from .show import Facts, count, duration, lines, percent, print_table, validation_lines


def _draw(facts: Facts) -> None:
    from bigforest.planning.sizes import milestones

    curve = facts["curve"]
    written = [("curve", facts["out"])] if facts["out"] else []
    lines(*validation_lines(curve[-1]), ("time", duration(facts["seconds"])), *written)
    typer.echo()
    steps = [curve[trees - 1] for trees in milestones(len(curve))]
    rows = [[count(row["trees"]), percent(row["error"]), count(row["rejected"])] for row in steps]
    print_table(["trees", "error", "rejected"], rows, left=0)


# By the names of `validate_forest`; the order is that of --help.
VALIDATE = {
    "out": option(str, "FILE", "Also write the error after each tree to this Parquet file."),
    **options.VOTES,
}


@command(
    _draw,
    how=VALIDATE,
    run=options.run_options("overwrite", "threads", "scratch", "memory"),
)
def validate(forest: options.ForestFolder, data: options.Data, *, how: Given, run: Given) -> Facts:
    """Evaluate a forest on labelled rows, by number of trees.

    All rows have the same weight.

    Example: bigforest validate flights.forest test.parquet --out curve.parquet
    """
    import bigforest

    curve = bigforest.validate_forest(forest, data, **how, **run)
    return {"forest": forest, "curve": curve.to_dicts(), "out": how.get("out")}
