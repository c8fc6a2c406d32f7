"""bigforest merge"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from . import options
from .command import command
from .options import Given
from .show import Facts, count, lines, print_table, table_size


def _draw(facts: Facts) -> None:
    lines(
        *table_size(facts),
        ("trees", f"{count(facts['trees'])} with {count(facts['nodes'], 'node')}"),
        ("forest", facts["forest"]),
    )
    typer.echo()
    rows = [
        [piece["forest"], *(count(piece[name]) for name in ("seed", "first_tree", "trees"))]
        for piece in facts["merged"]
    ]
    print_table(["merged from", "seed", "first tree", "trees"], rows)


@command(_draw, run=options.run_options("overwrite"), progress=False)
def merge(
    paths: Annotated[
        list[str], typer.Argument(metavar="FOREST", show_default=False, help="Forests of the same table.")
    ],
    out: Annotated[str, typer.Option(metavar="DIR", show_default=False, help="The merged forest, a folder.")],
    *,
    run: Given,
) -> Facts:
    """Merge forests of one table, grown with different seeds.

    Example: bigforest merge a.forest b.forest --out both.forest
    """
    import bigforest

    from .facts import training_facts

    forest = bigforest.merge(paths, out, **run)
    pieces = () if forest.origin is None else forest.origin.merged
    return {**training_facts(forest), "merged": list(map(asdict, pieces))}
