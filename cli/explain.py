"""bigforest explain"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .cluster import SCHEDULER, running
from .groups import grouped, option

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
        ("unbiased", "The same by training rows out of bag, which favours no feature (MDI-oob)."),
        ("permutation", "Importance by permuting features among training rows out of bag."),
        ("local", "The same of single rows: --row, else a sample."),
        ("strength", "Strength of the trees, their correlation, and the bound of the error."),
        ("contributions", "What each feature adds to the answer on every row, along the path."),
        ("shap", "The same exactly: Shapley values; takes a while, and says about how long."),
        ("interactions", "What pairs of features add together, exactly, on chosen rows."),
        ("dependence", "How answers depend on a feature, or two: partial dependence."),
        ("effects", "The same by accumulated local effects, for features that go together."),
        ("proximities", "Nearest rows of training rows, outliers and prototypes."),
        ("filling", "Missing values of training rows, filled by the rows that are alike."),
        ("trees", "Depth, sizes, features that follow each other, rules of leaves."),
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
            metavar="[DATA]",
            show_default=False,
            help="Rows to explain; the table the forest was grown on for what is out of bag.",
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of the tables; <stem of FOREST>.explanation unless given.")
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(metavar="error|log_loss|mse", help="What permuting is judged by; error, or mse of numbers."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=COL,COL", help="Features that are permuted together; repeat for more."),
    ] = None,
    new_rows: Annotated[
        bool, typer.Option("--new-rows", help="DATA was not trained on: all of it is out of bag.")
    ] = False,
    classes: Annotated[
        list[str] | None, typer.Option("--class", metavar="CLASS", help="Class to explain; repeat for more.")
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option("--feature", metavar="COL[,COL]", help="Feature, or two, to vary; repeat for more."),
    ] = None,
    grid: Annotated[int, typer.Option(metavar="N", help="Values at which a feature is varied, at most.")] = 20,
    individual: Annotated[int, typer.Option(metavar="N", help="Rows whose own curves are kept.")] = 0,
    sample: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Rows that are drawn: of dependence and local 1000 unless given, interactions 100, proximities 10000.",
        ),
    ] = None,
    rows: Annotated[
        list[int] | None,
        typer.Option(
            "--row",
            metavar="N",
            help="Row to explain by local, interactions, proximities and filling; repeat for more.",
        ),
    ] = None,
    neighbors: Annotated[int, typer.Option(metavar="N", help="Neighbors that are kept of each row.")] = 10,
    rules: Annotated[int, typer.Option(metavar="N", help="Leaves that are told as text.")] = 20,
    seed: Annotated[int, typer.Option(metavar="N", help="Of permutations and samples.")] = 0,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what it would take, disk, memory and time, and do nothing else.")
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
    """Why a forest answers as it does, as tables in a folder.

    Without options for parts, those that take little time. Finished tables are kept when a run is repeated. With --plan
    it only says what it would take, within a factor of two or three of the time, and exits with 1 when that would not
    fit.

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
    place = out if out is not None else f"{Path(forest).name.removesuffix('.forest')}.explanation"
    with running(scheduler, quiet=quiet) as (client, listener):
        found = bigforest.explain_forest(
            forest,
            data,
            place,
            **asked,
            overwrite=overwrite,
            listener=listener,
            scheduler=client,
        )
    tables = {name: _rows(found, name) for name in found.tables}
    facts = {"forest": forest, "out": place, "tables": tables, "seconds": perf_counter() - begin, **listener.facts}
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
