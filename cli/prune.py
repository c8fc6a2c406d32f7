"""bigforest prune"""

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
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    threads: options.Threads = None,
    scratch: options.Scratch = None,
) -> None:
    """Prune the trees of a forest on a tuning set.

    A subtree is replaced by a leaf if the leaf is correct on more of these rows.

    DATA has the target. Use rows that the forest was not trained on.

    Example: bigforest prune flights.forest tuning.parquet --out pruned.forest
    """
    import bigforest

    from .facts import inspection_facts
    from .progress import showing_progress
    from .show import show

    begin = perf_counter()
    grown = bigforest.read_forest(forest)
    with showing_progress(quiet=quiet) as listener:
        pruned = bigforest.prune_forest(
            grown,
            data,
            out,
            on_ties=on_ties,
            threads=threads,
            scratch=scratch,
            overwrite=overwrite,
            listener=listener,
        )
    before, after = (inspection_facts(one, trees=False, features=False) for one in (grown, pruned))
    facts = {
        "forest": after["forest"],
        "trees": after["trees"],
        "nodes": after["nodes"],
        "leaves": after["leaves"],
        "nodes_before": before["nodes"],
        "leaves_before": before["leaves"],
        "seconds": perf_counter() - begin,
    }
    show(facts, _draw, json=json, quiet=quiet)


def _draw(console: Console, facts: Facts) -> None:
    from .show import count, duration, lines

    lines(
        console,
        [
            ("trees", count(facts["trees"])),
            ("nodes", f"{count(facts['nodes'])} of {count(facts['nodes_before'])}"),
            ("leaves", f"{count(facts['leaves'])} of {count(facts['leaves_before'])}"),
            ("time", duration(facts["seconds"])),
            ("forest", facts["forest"]),
        ],
    )
