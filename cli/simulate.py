"""bigforest simulate"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from . import options
from .command import command
from .options import Given, flag, option
from .show import Facts, count, duration, lines, percent

# Options by argument of `bigforest.simulate`, with its defaults, in the order of --help.
SIMULATE = {
    "dims": option(int, "P", "Number of columns x0, x1, ... Default for shapes: 2; all others are noise."),
    "rotate": flag("Rotate all rows by one random rotation.", "--rotate"),
    "scale": flag("Multiply every column by a random factor from 0 to 10.", "--scale"),
    "affine": flag("Rotate, then scale.", "--affine"),
    "outliers": option(int, "N", "Rows to append, from the same means with 4 times the covariance.", default=0),
    "noise": option(float, "F", "Share of wrong labels in shapes. Default: 0.1."),
    "truth": flag("Also write the label without noise, as truth.", "--truth"),
    "sample": option(int, "N", "Another number draws other rows from the same distribution.", default=0),
    "seed": option(int, "N", "Random seed. The same seed and options give the same table.", default=0),
    "out": option(str, "FILE", "The table. Default: KIND.parquet."),
}


def _draw(facts: Facts) -> None:
    lines(
        ("rows", count(facts["rows"])),
        ("features", count(facts["dims"])),
        ("Bayes error", _bayes(facts["bayes"])),
        ("time", duration(facts["seconds"])),
        ("table", facts["out"]),
    )


def _bayes(bayes: Facts | None) -> str:
    if bayes is None:
        return "not worked out, because that takes long with this many dims (see bigforest.bayes_error)"
    spread = f" +- {percent(bayes['standard_error'])}" if bayes["standard_error"] else ""
    return f"{percent(bayes['error'])}{spread}, {bayes['how']}"


@command(_draw, settings=SIMULATE, run=options.run_options("overwrite"))
def simulate(
    kind: Annotated[
        str, options.argument("KIND", "trunk, parity, multimodal, modified-trunk, orthant, sparse-parity or shapes.")
    ],
    rows: Annotated[int, typer.Option(metavar="N", show_default=False, help="Rows to draw.")],
    *,
    settings: Given,
    run: Given,
) -> Facts:
    """Draw a table of any size from a known distribution.

    Example: bigforest simulate trunk --rows 1000 --dims 100 --rotate
    """
    import bigforest

    settings.setdefault("out", f"{kind}.parquet")
    table = bigforest.simulate(kind, rows=rows, **settings, **run)
    columns = len(table.collect_schema())
    bayes = bigforest.bayes_error(
        kind, **{name: settings[name] for name in ("dims", "noise", "seed") if name in settings}
    )
    return {
        "out": settings["out"],
        "rows": rows + settings.get("outliers", 0),
        "dims": columns - 1 - settings.get("truth", False),
        "bayes": None if bayes is None else asdict(bayes),
    }
