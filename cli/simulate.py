"""bigforest simulate"""

from __future__ import annotations

from dataclasses import asdict
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from rich.console import Console

    from .show import Facts


def simulate(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            show_default=False,
            help="trunk, parity, multimodal, modified-trunk, orthant, sparse-parity or shapes.",
        ),
    ],
    rows: Annotated[int, typer.Option(metavar="N", show_default=False, help="Rows to draw.")],
    dims: Annotated[
        int | None,
        typer.Option(metavar="P", help="Columns, named x0 and so on. Default of shapes: 2, others are noise."),
    ] = None,
    rotate: Annotated[bool, typer.Option("--rotate", help="Rotate all rows by one random rotation.")] = False,
    scale: Annotated[
        bool, typer.Option("--scale", help="Multiply every column by a random factor from 0 to 10.")
    ] = False,
    affine: Annotated[bool, typer.Option("--affine", help="Rotate, then scale.")] = False,
    outliers: Annotated[
        int, typer.Option(metavar="N", help="Rows to append, from the same means with 4 times the covariance.")
    ] = 0,
    noise: Annotated[
        float | None, typer.Option(metavar="F", help="Share of wrong labels in shapes. Default: 0.1.")
    ] = None,
    truth: Annotated[bool, typer.Option("--truth", help="Also write the label without noise, as truth.")] = False,
    sample: Annotated[
        int, typer.Option(metavar="N", help="Another number draws other rows from the same distribution.")
    ] = 0,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Random seed. The same seed and options give the same table.")
    ] = 0,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="The table. Default: KIND.parquet.")] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw a table of any size from a known distribution.

    Example: bigforest simulate trunk --rows 1000 --dims 100 --rotate
    """
    import bigforest

    from .progress import showing_progress
    from .show import show

    output = out if out is not None else f"{kind}.parquet"
    begin = perf_counter()
    with showing_progress(quiet=quiet) as listener:
        table = bigforest.simulate(
            kind,
            rows=rows,
            dims=dims,
            rotate=rotate,
            scale=scale,
            affine=affine,
            outliers=outliers,
            noise=noise,
            truth=truth,
            sample=sample,
            seed=seed,
            out=output,
            overwrite=overwrite,
            listener=listener,
        )
    names = table.collect_schema().names()
    bayes = bigforest.bayes_error(kind, dims=dims, noise=noise, seed=seed)
    facts = {
        "out": output,
        "rows": rows + outliers,
        "dims": len(names) - 1 - truth,
        "bayes": None if bayes is None else asdict(bayes),
        "seconds": perf_counter() - begin,
    }
    show(facts, _draw, json=json, quiet=quiet)


def _draw(console: Console, facts: Facts) -> None:
    from .show import count, duration, lines

    lines(
        console,
        [
            ("rows", count(facts["rows"])),
            ("features", count(facts["dims"])),
            ("Bayes error", _bayes(facts["bayes"])),
            ("time", duration(facts["seconds"])),
            ("table", facts["out"]),
        ],
    )


def _bayes(bayes: Facts | None) -> str:
    from .show import percent

    if bayes is None:
        return "not worked out, because that takes long with this many dims (see bigforest.bayes_error)"
    spread = f" +- {percent(bayes['standard_error'])}" if bayes["standard_error"] else ""
    return f"{percent(bayes['error'])}{spread}, {bayes['how']}"
