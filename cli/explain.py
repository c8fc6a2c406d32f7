"""bigforest explain"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .cluster import SCHEDULER, running
from .command import grouped
from .groups import option

if TYPE_CHECKING:
    from rich.console import Console

    from .show import Facts

# Rows of a table that are shown; the file has all.
SHOWN = 10

# The options that ask for parts, by the names of the parts.
PARTS = {
    part: option(bool, False, None, text, f"--{part}")
    for part, text in (
        ("importance", "Importance of features by the decrease of impurity."),
        ("unbiased", "The same on out-of-bag rows, without bias towards features of many values (MDI-oob)."),
        ("permutation", "Importance by permuting features among out-of-bag rows."),
        ("local", "The same for single rows: --row, or a sample."),
        ("strength", "Strength and correlation of the trees, and the bound on the error."),
        ("contributions", "Contribution of each feature to the prediction of every row, along the path."),
        ("shap", "Exact Shapley values. Slow; prints an estimate of the time first."),
        ("interactions", "Exact Shapley interactions of pairs of features, on selected rows."),
        ("dependence", "Partial dependence on a feature, or on two."),
        ("effects", "Accumulated local effects, for correlated features."),
        ("proximities", "Proximities of training rows: nearest rows, outliers and prototypes."),
        ("filling", "Imputed missing values of training rows, from similar rows."),
        ("trees", "Depth and size of trees, pairs of features on paths, rules of leaves."),
    )
}


def _features(text: str) -> tuple[str, ...]:
    """A feature, or two with a comma between."""
    return tuple(text.split(","))


def _group(text: str) -> tuple[str, list[str]]:
    name, equals, columns = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"a group is NAME=COL,COL,..., not {text!r}", param_hint="--group")
    return name, columns.split(",")


@grouped(parts=PARTS, scheduler=SCHEDULER)
def explain(
    forest: options.ForestFolder,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            show_default=False,
            help="Rows to explain. Parts that use out-of-bag rows need the training table.",
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of the tables. Default: <stem of FOREST>.explanation.")
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            metavar="error|log_loss|mse", help="Loss for permutation importance. Default: error, mse for regression."
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=COL,COL", help="Features permuted together. Repeat for more."),
    ] = None,
    new_rows: Annotated[
        bool, typer.Option("--new-rows", help="DATA is not the training table: all of its rows are out of bag.")
    ] = False,
    classes: Annotated[
        list[str] | None, typer.Option("--class", metavar="CLASS", help="Class to explain; repeat for more.")
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option("--feature", metavar="COL[,COL]", help="Feature, or two, to vary; repeat for more."),
    ] = None,
    grid: Annotated[int, typer.Option(metavar="N", help="Maximum number of values at which a feature is varied.")] = 20,
    individual: Annotated[int, typer.Option(metavar="N", help="Rows whose individual curves are kept.")] = 0,
    sample: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Rows to draw. Default: 1000 for dependence and local, 100 for interactions, 10000 for proximities.",
        ),
    ] = None,
    rows: Annotated[
        list[int] | None,
        typer.Option(
            "--row",
            metavar="N",
            help="Row to explain in local, interactions, proximities and filling. Repeat for more.",
        ),
    ] = None,
    neighbors: Annotated[int, typer.Option(metavar="N", help="Neighbors kept for each row.")] = 10,
    rules: Annotated[int, typer.Option(metavar="N", help="Leaves shown as rules in text.")] = 20,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of permutations and samples.")] = 0,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show an estimate of disk, memory and time, and do nothing else.")
    ] = False,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    threads: options.Threads = None,
    scratch: options.Scratch = None,
    memory: options.Memory = None,
    *,
    parts: dict[str, Any],
    scheduler: dict[str, Any],
) -> None:
    """Explain the predictions of a forest, as tables in a folder.

    Without options for parts, the fast ones are computed. Finished tables are kept when a run is repeated. --plan only
    shows an estimate, accurate within a factor of two or three for the time, and exits with 1 if the run does not fit.

    Example: bigforest explain flights.forest flights.parquet --permutation --out why
    """
    from pathlib import Path

    import bigforest

    from .plan import draw_parts, plan_facts
    from .show import show

    asked: dict[str, Any] = {
        "parts": list(parts) or None,
        "loss": loss,
        "groups": dict(map(_group, group or [])),
        "new_rows": new_rows,
        "classes": classes,
        "features": None if features is None else [*map(_features, features)],
        "grid": grid,
        "individual": individual,
        "sample": sample,
        "rows": rows or (),
        "neighbors": neighbors,
        "rules": rules,
        "seed": seed,
        "threads": threads,
        "scratch": scratch,
        "memory": memory,
    }
    if plan:
        planned = bigforest.plan_explanation(forest, data, **asked)
        show(plan_facts(planned), draw_parts, json=json)
        raise typer.Exit(0 if planned.fits else 1)
    begin = perf_counter()
    output = out if out is not None else f"{Path(forest).name.removesuffix('.forest')}.explanation"
    with running(scheduler, quiet=quiet) as (client, listener):
        found = bigforest.explain_forest(
            forest,
            data,
            output,
            **asked,
            overwrite=overwrite,
            listener=listener,
            scheduler=client,
        )
    tables = {name: _rows(found, name) for name in found.tables}
    facts = {"forest": forest, "out": output, "tables": tables, "seconds": perf_counter() - begin, **listener.facts}
    shown = {
        name: _head(found, name) for name in ("importance", "unbiased", "permutation", "strength") if name in found
    }
    show(facts, lambda console, told: _draw(console, told, shown), json=json, quiet=quiet)


def _rows(found: Any, name: str) -> int:
    """Rows of a table."""
    import polars as pl

    return int(found.scan(name).select(pl.len()).collect().item())


def _head(found: Any, name: str) -> tuple[list[str], list[list[str]]]:
    """Headings and the first rows of a small table: of importances the largest, of strength that of most trees."""
    from .show import number_cell

    frame = found[name]
    if name == "strength":
        frame = frame.tail(1)
    else:
        frame = frame.sort("importance", descending=True, nulls_last=True).head(SHOWN)
    rows = [[number_cell(cell) if isinstance(cell, float) else str(cell) for cell in row] for row in frame.rows()]
    return frame.columns, rows


def _draw(console: Console, facts: Facts, shown: dict[str, tuple[list[str], list[list[str]]]]) -> None:
    from .show import count, duration, lines, print_table

    for name, (headings, rows) in shown.items():
        lines(console, [(name, "")])
        print_table(console, [heading.replace("_", " ") for heading in headings], rows)
        console.print()
    written = ", ".join(f"{name} ({count(rows)})" for name, rows in facts["tables"].items())
    lines(console, [("tables", written), ("folder", facts["out"]), ("time", duration(facts["seconds"]))])
