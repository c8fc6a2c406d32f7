"""bigforest export"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from rich.console import Console

    from .show import Facts


def export(
    forest: options.ForestFolder,
    to: Annotated[
        str, typer.Option(metavar="onnx|treelite|sklearn|sql", show_default=False, help="Format of the file.")
    ],
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The file. Default: the name of FOREST with the suffix of the format."),
    ] = None,
    dtype: Annotated[str, typer.Option(metavar="float32|float64", help="onnx: type of the rows.")] = "float32",
    table: Annotated[str, typer.Option(metavar="NAME", help="sql: table that the query reads.")] = "rows",
    keep: Annotated[
        list[str] | None, typer.Option(metavar="COL", help="sql: column to copy to the result; repeat for more.")
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Export a forest to a file for another engine.

    Supports the families axis and tree; categories only with treelite and sql.

    Example: bigforest export flights.forest --to sql --table flights
    """
    import bigforest
    from bigforest.api.export import SUFFIXES

    from .show import show

    stem = Path(forest.rstrip("/")).name.removesuffix(".forest")
    written = bigforest.export_forest(
        forest,
        out or f"{stem}{SUFFIXES.get(to, '')}",
        to=to,
        dtype=dtype,
        table=table,
        keep=keep or [],
        overwrite=overwrite,
    )
    show(
        {"forest": forest, "to": to, "file": str(written), "bytes": written.stat().st_size},
        _draw,
        json=json,
        quiet=quiet,
    )


def _draw(console: Console, facts: Facts) -> None:
    from .show import lines, size

    lines(console, [("format", facts["to"]), ("size", size(facts["bytes"])), ("file", facts["file"])])
