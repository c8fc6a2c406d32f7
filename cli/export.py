"""bigforest export"""

from __future__ import annotations

from typing import Annotated

import typer

from . import options
from .command import command
from .options import Given, option
from .show import Facts, duration, lines, size

# Options by argument of `export_forest`, with its defaults.
FORMAT = {
    "out": option(str, "FILE", "The file. Default: the name of FOREST with the suffix of the format."),
    "dtype": option(str, "float32|float64", "onnx: type of the rows.", default="float32"),
    "table": option(str, "NAME", "sql: table that the query reads.", default="rows"),
    "keep": option(list[str], "COL", "sql: column to copy to the result; repeat for more."),
    "dialect": option(str, "standard|mysql", "sql: standard for DuckDB, SQLite and PostgreSQL.", default="standard"),
}


def _draw(facts: Facts) -> None:
    time = duration(facts["seconds"])
    lines(("format", facts["to"]), ("size", size(facts["bytes"])), ("time", time), ("file", facts["file"]))


@command(_draw, format=FORMAT, run=options.run_options("overwrite"))
def export(
    forest: options.ForestFolder,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="onnx|treelite|sklearn|sql",
            show_default=False,
            help="Format of the file. Default: that of the ending of --out.",
        ),
    ] = None,
    *,
    format: Given,
    run: Given,
) -> Facts:
    """Export a forest to a file for another engine.

    Supports the families axis and tree; categories only with treelite and sql.

    Example: bigforest export flights.forest --to sql --table flights
    """
    import bigforest
    from bigforest.predict.export_file import SUFFIXES, format_of

    to = format_of(to, format.get("out"))
    format.setdefault("out", options.named_after(forest, SUFFIXES[to]))
    written = bigforest.export_forest(forest, to=to, **format, **run)
    return {"forest": forest, "to": to, "file": str(written), "bytes": written.stat().st_size}
