"""bigforest calibrate"""

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
def calibrate(
    forest: options.ForestFolder,
    data: options.Data,
    out: Annotated[str, typer.Option(metavar="DIR", show_default=False, help="The calibrated forest, a folder.")],
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    threads: options.Threads = None,
    scratch: options.Scratch = None,
) -> None:
    """Re-estimate class probabilities of leaves from other rows.

    A leaf gets the class shares of the rows that end in it. A leaf that no row reaches is not changed.

    DATA has the target. Use rows that the forest was not trained on.

    Example: bigforest calibrate digits.forest more.parquet --out calibrated.forest
    """
    import bigforest

    from .facts import inspection_facts
    from .progress import showing_progress
    from .show import show

    begin = perf_counter()
    with showing_progress(quiet=quiet) as listener:
        calibrated = bigforest.calibrate_forest(
            forest,
            data,
            out,
            threads=threads,
            scratch=scratch,
            overwrite=overwrite,
            listener=listener,
        )
    found = inspection_facts(calibrated, trees=False, features=False)
    facts = {name: found[name] for name in ("forest", "trees", "nodes", "leaves")}
    show({**facts, "seconds": perf_counter() - begin}, _draw, json=json, quiet=quiet)


def _draw(console: Console, facts: Facts) -> None:
    from .show import count, duration, lines

    lines(
        console,
        [
            ("trees", count(facts["trees"])),
            ("leaves", count(facts["leaves"])),
            ("time", duration(facts["seconds"])),
            ("forest", facts["forest"]),
        ],
    )
