"""bigforest explain"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .command import command
from .config import PARTS
from .options import Given, flag, option
from .plan import draw_parts, plan_facts
from .show import Facts, count, duration, lines, number_cells, print_table

if TYPE_CHECKING:
    import polars as pl

# Rows of a table that are printed; the file has all rows.
SHOWN = 10

# A name in quotes, to the comma after it.
_QUOTED = re.compile(r'"((?:[^"]|"")*)",')


def _group(text: str) -> tuple[str, str]:
    name, equals, columns = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"a group is NAME=COL,COL,..., not {text!r}", param_hint="--group")
    return name, columns


def _groups(texts: list[str]) -> dict[str, str]:
    """Return the features of each group, by its name, as text."""
    groups: dict[str, str] = {}
    for name, columns in map(_group, texts):
        if name in groups:
            raise typer.BadParameter(f"two groups are named {name!r}; name each differently", param_hint="--group")
        groups[name] = columns
    return groups


def _columns(text: str, features: Collection[str]) -> tuple[str, ...]:
    """Return names separated by commas. The name of a feature may contain commas; quotes are read as in CSV."""
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
        "Features permuted together. Repeat for more.",
        "--group",
        read=_groups,
    ),
    "new_rows": flag("DATA is not the training table: all of its rows are out of bag.", "--new-rows"),
    "classes": option(list[str], "CLASS", "Class to explain; repeat for more.", "--class"),
    "features": option(
        list[str],
        "COL[,COL]",
        "Feature, or two, to vary; repeat for more.",
        "--feature",
    ),
    "grid": option(int, "N", "Maximum number of values at which a feature is varied.", default=20),
    "individual": option(int, "N", "Rows whose curves of single features are kept.", default=0),
    "sample": option(
        int,
        "N",
        "Rows to draw. Default: 1000 for dependence and local, 100 for interactions, 10000 for proximities.",
    ),
    "rows": option(
        list[int],
        "N",
        "Row to explain in local, interactions, proximities and filling. Repeat for more.",
        "--row",
    ),
    "neighbors": option(int, "N", "Neighbors kept for each row.", default=10),
    "rules": option(int, "N", "Leaves shown as rules in text.", default=20),
    "seed": option(int, "N", "Seed of permutations and samples.", default=0),
    "plan": flag("Show an estimate of disk, memory and time, and do nothing else.", "--plan"),
}


def _draw(facts: Facts) -> None:
    if "fits" in facts:
        draw_parts(facts)
        return
    from bigforest import Explanation

    tables = Explanation(facts["out"])
    for name in ("importance", "unbiased", "permutation", "strength"):
        if name in facts["tables"]:
            _print_head(tables[name], name)
            typer.echo()
    written = ", ".join(f"{name} ({count(rows)})" for name, rows in facts["tables"].items())
    lines(("tables", written), ("folder", facts["out"]), ("time", duration(facts["seconds"])))


@command(
    _draw,
    parts=PARTS,
    settings=EXPLAIN,
    run=options.run_options("overwrite", "threads", "scratch", "memory", "scheduler"),
)
def explain(
    forest: options.ForestFolder,
    data: Annotated[
        str | None, options.argument("DATA", "Rows to explain. Parts that use out-of-bag rows need the training table.")
    ] = None,
    *,
    settings: Given,
    parts: Given,
    run: Given,
) -> Facts:
    """Explain the predictions of a forest, as tables in a folder.

    Without options for parts, the fast ones are computed. Finished tables are kept when a run is repeated. --plan only
    shows an estimate, accurate within a factor of two or three for the time, and exits with 1 if the run does not fit.

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
    return {"forest": forest, "out": out, "tables": rows}


def _print_head(frame: pl.DataFrame, name: str) -> None:
    """Print the first rows of a small table: the largest importances, the strength of most trees."""
    if name == "strength":
        lines((name, "and correlation of the trees"))
        frame = frame.tail(1)
    else:
        first = f"the first {SHOWN} of {frame.height}" if frame.height > SHOWN else "all"
        lines((name, f"{first} features"))
        frame = frame.sort("importance", descending=True, nulls_last=True).head(SHOWN)
    columns = [number_cells(cells) if cells.dtype.is_float() else [str(cell) for cell in cells] for cells in frame]
    print_table([heading.replace("_", " ") for heading in frame.columns], list(zip(*columns, strict=True)))
