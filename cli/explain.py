"""Commands that show a forest: explain, as tables; plot, single charts; and report, one HTML page."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .command import command
from .config import PARTS
from .options import Given, flag, option
from .running import table_of
from .show import Facts, count, duration, lines, number_cells, print_table, size
from .train import draw_explanation_plan, plan_facts

if TYPE_CHECKING:
    import polars as pl


# Number of features that are printed; the tables have all of them.
SHOWN = 10

# A name in quotes, with the comma after it.
_QUOTED = re.compile(r'"((?:[^"]|"")*)",')


def _groups(texts: list[str]) -> dict[str, str]:
    """Return the lists of columns by the name of the group, from texts NAME=COL,COL. Raises BadParameter."""
    groups: dict[str, str] = {}
    for text in texts:
        name, equals, columns = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"a group is NAME=COL,COL,..., not {text!r}", param_hint="--group")
        if name in groups:
            raise typer.BadParameter(f"two groups are named {name!r}; name each differently", param_hint="--group")
        groups[name] = columns
    return groups


def _columns(text: str, features: Collection[str]) -> tuple[str, ...]:
    """Split a text into names at its commas. Quotes are read as in CSV.

    Names of features may contain commas. The next name is the longest beginning of the text that is a feature.
    """
    names, left = [], f"{text},"
    while left:
        quoted = _QUOTED.match(left)
        ends = [place for place, mark in enumerate(left) if mark == ","]
        end = next((end for end in reversed(ends) if left[:end] in features), ends[0])
        if quoted and left[:end] not in features:
            names.append(quoted[1].replace('""', '"'))
            end = quoted.end() - 1
        else:
            names.append(left[:end])
        left = left[end + 1 :]
    return tuple(names)


# Options by argument of `explain_forest`, with its defaults, in the order of --help.
EXPLAIN = {
    "out": option(str, "DIR", "Folder of the tables. Default: <stem of FOREST>.explanation."),
    "loss": option(
        str,
        "error|log_loss|mse|poisson_deviance",
        "Loss for permutation importance. Default: error; regression: mse, or poisson_deviance with the impurity "
        "poisson.",
    ),
    "groups": option(
        list[str],
        "NAME=COL,COL",
        "Features to permute together. Repeat for more.",
        "--group",
        read=_groups,
    ),
    "new_rows": flag("DATA is not the training table: all of its rows are out of bag.", "--new-rows"),
    "classes": option(
        list[str], "CLASS", "Class to explain; repeat for more. Default: all, or the second of two.", "--class"
    ),
    "features": option(
        list[str],
        "COL[,COL]",
        "Feature of dependence and effects, or two to vary together; repeat for more.",
        "--feature",
    ),
    "grid": option(int, "N", "Maximum number of values at which a feature is varied.", default=20),
    "individual": option(int, "N", "Number of sampled rows for which the curve of dependence is kept, too.", default=0),
    "sample": option(
        int,
        "N",
        "Number of rows to sample. Default: 1000 for dependence, effects and local, 100 for interactions, 10000 for "
        "proximities; for filling all rows with a missing value.",
    ),
    "rows": option(
        list[int],
        "N",
        "Row for local, interactions, proximities and filling, from 0, instead of a sample. Repeat for more.",
        "--row",
    ),
    "neighbors": option(int, "N", "Number of neighbors to keep for each row.", default=10),
    "rules": option(int, "N", "Number of leaves to show as rules.", default=20),
    "seed": option(int, "N", "Seed of permutations and samples.", default=0),
    "plan": flag("Show an estimate of disk, memory and time, and do nothing else.", "--plan"),
}


def _draw_explain(facts: Facts) -> None:
    if "fits" in facts:
        draw_explanation_plan(facts)
        return
    from bigforest import Explanation

    tables = Explanation(facts["out"])
    for name in ("importance", "unbiased", "permutation", "strength"):
        if name in facts["tables"] and name in (facts["parts"] or facts["tables"]):
            _print_head(tables[name], name)
            typer.echo()
    written = ", ".join(f"{name} ({count(rows)})" for name, rows in facts["tables"].items())
    lines(("tables", written), ("folder", facts["out"]), ("time", duration(facts["seconds"])))


@command(
    _draw_explain,
    parts=PARTS,
    settings=EXPLAIN,
    run=options.run_options("overwrite", "threads", "scratch", "memory", "scheduler"),
)
def explain(
    forest: options.ForestFolder,
    data: Annotated[
        str | None,
        options.argument("DATA", "Rows to explain. Parts that use out-of-bag rows need the training table.", table_of),
    ] = None,
    *,
    settings: Given,
    parts: Given,
    run: Given,
) -> Facts:
    """Explain the predictions of a forest, as tables in a folder.

    Options under Parts select what is computed; without them, the fast parts are. Finished tables are kept when a run
    is repeated. --plan only shows an estimate, whose time is accurate within a factor of two or three, and exits with 1
    if the run does not fit.

    Example: bigforest explain flights.forest flights.parquet --permutation --out why
    """
    import polars as pl

    import bigforest
    from bigforest.errors import naming_file

    settings["parts"] = list(parts) or None
    if "groups" in settings or "features" in settings:
        features = frozenset(bigforest.read_forest(forest).spec.feature_names)
        if "groups" in settings:
            settings["groups"] = {name: _columns(text, features) for name, text in settings["groups"].items()}
        if "features" in settings:
            settings["features"] = [_columns(text, features) for text in settings["features"]]
    out = settings.pop("out", options.named_after(forest, ".explanation"))
    if settings.pop("plan", False):
        limits = {name: run[name] for name in ("threads", "scratch", "memory") if name in run}
        return plan_facts(bigforest.plan_explanation(forest, data, **settings, **limits))
    found = bigforest.explain_forest(forest, data, out, **settings, **run)
    with naming_file(found.path):
        rows = {name: int(found.scan(name).select(pl.len()).collect().item()) for name in found.tables}
    return {"forest": forest, "out": out, "parts": list(parts), "tables": rows}


def _print_head(frame: pl.DataFrame, name: str) -> None:
    """Print the most important features of a table. Of "strength", print the last row, which is about all trees."""
    if name == "strength":
        frame = frame.tail(1)
    else:
        first = f"the first {SHOWN} of {frame.height}" if frame.height > SHOWN else "all"
        lines((name, f"{first} features"))
        frame = frame.sort("importance", descending=True, nulls_last=True).head(SHOWN)
    headings = [heading.replace("_", " ") for heading in frame.columns]
    columns = [number_cells(column) if column.dtype.is_float() else list(map(str, column)) for column in frame]
    if name == "strength":  # a single row, which is wider than narrow terminals
        cells = [cell for [cell] in columns]
        lines((name, "and correlation of the trees"), *zip(headings, cells, strict=True))
    else:
        print_table(headings, list(zip(*columns, strict=True)))


# Options by argument of `plot_forest`, with its defaults, in the order of --help.
PLOT = {
    "what": option(
        list[str],
        "NAME,...",
        "error, rounds, confusion, reliability, roc, precision-recall, rejection, importance, unbiased, permutation, "
        "dependence, waterfall, swarm, surface, interactions, map, depth, leaves, tree, time. Default: all that can "
        "be drawn, except surface and interactions.",
        read=options.values_of_lists,
    ),
    "out": option(str, "DIR", "Folder of the files. Default: <stem of FOREST>.pictures."),
    "format": option(str, "svg|png|html", "Format of the files.", default="svg"),
    "row": option(int, "N", "Row of the waterfall, from 0.", default=0),
    "tree": option(int, "N", "Tree to draw, from 0.", default=0),
    "depth": option(int, "N", "Levels of the tree to draw below the root, at most 8.", default=3),
    "features": option(
        list[str], "COL", "Feature of dependence, or one of the two of surface; repeat for more.", "--feature"
    ),
    "label": option(
        str,
        "CLASS",
        "Class that waterfall, swarm, surface and interactions explain, and positive class of reliability, roc and "
        "precision-recall.",
        "--class",
    ),
}


def _draw_plots(facts: Facts) -> None:
    lines(("files", "\n".join(facts["files"])), ("time", duration(facts["seconds"])))


@command(_draw_plots, settings=PLOT, run=options.run_options("overwrite", "threads", "scratch", "memory"))
def plot(
    forest: options.ForestFolder,
    data: Annotated[
        str | None,
        options.argument(
            "DATA",
            "Rows for dependence, waterfall, swarm, surface, interactions; the training table for unbiased, "
            "permutation, map.",
            table_of,
        ),
    ] = None,
    *,
    settings: Given,
    run: Given,
) -> Facts:
    """Write plots of a forest to a folder. Needs bigforest[plot].

    Without --what, all plots that the forest and DATA allow are drawn.

    Example: bigforest plot flights.forest flights.parquet --what error,roc,swarm --out pictures
    """
    import bigforest

    settings.setdefault("out", options.named_after(forest, ".pictures"))
    files = bigforest.plot_forest(forest, data, **settings, **run)
    return {"forest": forest, "files": [str(file) for file in files]}


def _draw_report(facts: Facts) -> None:
    lines(("report", facts["file"]), ("size", size(facts["bytes"])), ("time", duration(facts["seconds"])))


@command(_draw_report, run=options.run_options("overwrite", "threads", "scratch", "memory"))
def report(
    forest: options.ForestFolder,
    data: Annotated[
        str | None,
        options.argument(
            "DATA",
            "The training table, for sections about rows: slices with large errors, dependence on features, and more.",
            table_of,
        ),
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="The page. Default: <stem of FOREST>.html.")] = None,
    trees: Annotated[int, typer.Option(metavar="N", help="Number of trees to draw.")] = 3,
    *,
    run: Given,
) -> Facts:
    """Write a report about a forest as one HTML file.

    Needs bigforest[plot]. The file is self-contained, can be printed, and has a light and a dark theme.

    Example: bigforest report flights.forest flights.parquet --out report.html
    """
    import bigforest

    output = out if out is not None else options.named_after(forest, ".html")
    file: Path = bigforest.report_forest(forest, data, output, trees=trees, **run)
    return {"forest": forest, "file": str(file), "bytes": file.stat().st_size}
