"""bigforest compare"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .cluster import SCHEDULER, running
from .command import grouped
from .config import CONFIG

if TYPE_CHECKING:
    from rich.console import Console

    from .show import Facts


@grouped(config=CONFIG, scheduler=SCHEDULER)
def compare(
    data: options.Data,
    target: options.Target = None,
    exclude: options.Exclude = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|N",
            help="TOML file with a table of options for each candidate, the simplest first; or a number of the default "
            "candidates. Default: all of these.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="log_loss|error|auc|mse",
            help="Loss to compare. Default: log_loss, mse for regression.",
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time limit after which no more trees are grown, such as 10m.")
    ] = None,
    *,
    config: dict[str, Any],
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the comparison. Default: <stem of DATA>.comparison. An interrupted one is continued.",
            rich_help_panel=options.RUN,
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    threads: options.Threads = None,
    scratch: options.Scratch = None,
    memory: options.Memory = None,
    scheduler: dict[str, Any],
) -> None:
    """Compare sets of options out of bag and keep the best forest.

    All candidates grow on one table, 25 trees at a time; those that fall behind are retired. Training options given
    here apply to all candidates.

    Example: bigforest compare flights.parquet --target late --trees 200 --budget 10m --out chosen
    """
    import bigforest
    from bigforest.api.functions import default_output

    from .show import show

    begin = perf_counter()
    with running(scheduler, quiet=quiet) as (client, listener):
        found = bigforest.compare(
            data,
            target,
            candidates=int(candidates) if candidates is not None and candidates.isdecimal() else candidates,
            metric=metric,
            budget=budget,
            out=out if out is not None else str(default_output(data, ".comparison")),
            options=config,
            exclude=exclude or (),
            overwrite=overwrite,
            threads=threads,
            scratch=scratch,
            memory=memory,
            listener=listener,
            scheduler=client,
        )
    facts = {
        "comparison": str(found.path),
        "winner": found.winner,
        "forest": str(Path(found.path) / "winner.forest"),
        "metric": found.metric,
        "loss": found.loss,
        "cross_fitted": found.cross_fitted,
        "stopped": found.stopped,
        "candidates": found.candidates.to_dicts(),
        "seconds": perf_counter() - begin,
        **listener.facts,
    }
    show(facts, _draw, json=json, quiet=quiet)


def draw_candidates(console: Console, candidates: list[Facts]) -> None:
    """Show the candidates of a comparison, a line each, and why those that retired did."""
    from .show import count, duration, lines, number_cell, print_table

    headings = ["candidate", "trees", "loss", "behind", "error", "time", ""]
    rows = [
        [
            row["candidate"],
            count(row["trees"]),
            "" if row["loss"] is None else number_cell(row["loss"]),
            "" if row["difference"] is None else number_cell(row["difference"]),
            "" if row["standard_error"] is None else number_cell(row["standard_error"]),
            duration(row["seconds"]),
            "winner" if row["winner"] else "retired" if row["retired"] else "",
        ]
        for row in candidates
    ]
    print_table(console, headings, rows)
    retired = [(row["candidate"], row["retired"]) for row in candidates if row["retired"]]
    if retired:
        console.print()
        lines(console, retired)


def _draw(console: Console, facts: Facts) -> None:
    from .show import count, duration, lines, number_cell

    draw_candidates(console, facts["candidates"])
    console.print()
    what = facts["metric"].replace("_", " ")
    crossed = "" if facts["cross_fitted"] is None else f", {number_cell(facts['cross_fitted'])} cross-fitted"
    lines(
        console,
        [
            ("winner", f"{facts['winner']}, of {count(len(facts['candidates']), 'candidate')}"),
            (what, f"{number_cell(facts['loss'])} on the rows that chose it{crossed}"),
            *([("stopped", facts["stopped"])] if facts["stopped"] else []),
            ("time", duration(facts["seconds"])),
            ("forest", facts["forest"]),
        ],
    )
