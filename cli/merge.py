"""bigforest merge"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from rich.console import Console

    from .show import Facts


def merge(
    paths: Annotated[
        list[str], typer.Argument(metavar="FOREST", show_default=False, help="Forests of the same table.")
    ],
    out: Annotated[str, typer.Option(metavar="DIR", show_default=False, help="The merged forest, a folder.")],
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Merge forests of one table, grown with different seeds.

    Example: bigforest merge a.forest b.forest --out both.forest
    """
    import bigforest

    from .facts import merged_facts
    from .show import show

    show(merged_facts(bigforest.merge(paths, out, overwrite=overwrite)), _draw, json=json, quiet=quiet)


def _draw(console: Console, facts: Facts) -> None:
    from .show import count, lines, print_table, table_size

    lines(
        console,
        [
            *table_size(facts),
            ("trees", f"{count(facts['trees'])} with {count(facts['nodes'], 'node')}"),
            ("forest", facts["forest"]),
        ],
    )
    console.print()
    rows = [
        [piece["forest"], *(count(piece[name]) for name in ("seed", "first_tree", "trees"))]
        for piece in facts["merged"]
    ]
    print_table(console, ["merged from", "seed", "first tree", "trees"], rows)
