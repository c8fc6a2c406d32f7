"""bigforest compare"""

from __future__ import annotations

from pathlib import Path

import typer

from . import options
from .command import command
from .config import CONFIG
from .options import Given, count_or_word, option
from .show import Facts, count, duration, lines, number_cell, number_cells, print_table


def draw_candidates(candidates: list[Facts]) -> None:
    """Show the candidates of a comparison, a line each, and why some were retired."""
    headings = ["candidate", "trees", "loss", "difference", "standard error", "time", ""]
    numbers = [number_cells(row[name] for row in candidates) for name in ("loss", "difference", "standard_error")]
    rows = [
        [
            row["candidate"],
            count(row["trees"]),
            *cells,
            duration(row["seconds"]),
            "winner" if row["winner"] else "retired" if row["retired"] else "",
        ]
        for row, *cells in zip(candidates, *numbers, strict=True)
    ]
    print_table(headings, rows)
    retired = [(row["candidate"], row["retired"]) for row in candidates if row["retired"]]
    if retired:
        typer.echo()
        lines(*retired)


def _draw(facts: Facts) -> None:
    draw_candidates(facts["candidates"])
    typer.echo()
    metric = facts["metric"].replace("_", " ")
    won = next(row for row in facts["candidates"] if row["winner"])
    why = ", the first within a standard error of the lowest loss" if won["difference"] else ""
    crossed = "" if facts["cross_fitted"] is None else f", {number_cell(facts['cross_fitted'])} cross-fitted"
    lines(
        ("winner", f"{facts['winner']}, of {count(len(facts['candidates']), 'candidate')}{why}"),
        (metric, f"{number_cell(facts['loss'])} on the rows that chose it{crossed}"),
        *([("stopped", facts["stopped"])] if facts["stopped"] else []),
        ("time", duration(facts["seconds"])),
        ("forest", facts["forest"]),
    )


# Options by argument of `compare`, in the order of --help.
COMPARE = {
    "candidates": option(
        str,
        "FILE|N",
        "TOML file with a table of options for each candidate, the simplest first; or a number of the default "
        "candidates. Default: all of these.",
        read=count_or_word,
    ),
    "metric": option(
        str,
        "log_loss|error|auc|mse|poisson_deviance",
        "Loss to compare. Default: log_loss; regression: mse, or poisson_deviance with --impurity poisson.",
    ),
    "budget": option(str, "TIME", "Time limit after which no more trees are grown, such as 10m."),
    "out": option(
        str,
        "DIR",
        "Folder of the comparison. Default: <stem of DATA>.comparison. An interrupted one is continued.",
        panel=options.RUN,
    ),
}


@command(
    _draw,
    table=options.TABLE,
    config=CONFIG,
    settings=COMPARE,
    run=options.run_options("overwrite", "threads", "scratch", "memory", "scheduler"),
)
def compare(data: options.Data, *, table: Given, config: Given, settings: Given, run: Given) -> Facts:
    """Compare sets of options out of bag and keep the best forest.

    All candidates grow on one table, 25 trees at a time; those that fall behind are retired. Training options given
    here apply to all candidates.

    Example: bigforest compare flights.parquet --target late --trees 200 --budget 10m --out chosen
    """
    import bigforest

    from .running import default_output

    if "out" not in settings:
        settings["out"] = default_output(data, ".comparison")
    comparison = bigforest.compare(data, options=config, **table, **settings, **run)
    return {
        "comparison": str(comparison.path),
        "winner": comparison.winner,
        "forest": str(Path(comparison.path) / "winner.forest"),
        "metric": comparison.metric,
        "loss": comparison.loss,
        "cross_fitted": comparison.cross_fitted,
        "stopped": comparison.stopped,
        "candidates": comparison.candidates.to_dicts(),
    }
