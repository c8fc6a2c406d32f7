"""Commands that make forests and other files from forests: calibrate, prune, shrink, merge and export."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from . import options
from .command import command
from .options import Given, option
from .show import Facts, choice_lines, count, duration, lines, number_cells, out_of_bag, print_table, size, table_lines


def _draw_calibrated(facts: Facts) -> None:
    lines(
        ("trees", count(facts["trees"])),
        ("leaves", count(facts["leaves"])),
        ("time", duration(facts["seconds"])),
        ("forest", facts["forest"]),
    )


@command(_draw_calibrated, run=options.run_options("overwrite", "threads", "scratch"))
def calibrate(
    forest: options.ForestFolder,
    data: options.Data,
    out: Annotated[str, typer.Option(metavar="DIR", show_default=False, help="The calibrated forest, a folder.")],
    *,
    run: Given,
) -> Facts:
    """Re-estimate class probabilities of leaves from other rows.

    A leaf gets the class shares of the rows that end in it. A leaf that no row reaches is not changed.

    DATA must have the target. Use rows that the forest was not trained on.

    Example: bigforest calibrate digits.forest more.parquet --out calibrated.forest
    """
    import bigforest

    from .facts import revised_facts

    return revised_facts(bigforest.calibrate_forest(forest, data, out, **run), "trees", "nodes", "leaves")


def _draw_pruned(facts: Facts) -> None:
    lines(
        ("trees", count(facts["trees"])),
        ("nodes", f"{count(facts['nodes'])} of {count(facts['nodes_before'])}"),
        ("leaves", f"{count(facts['leaves'])} of {count(facts['leaves_before'])}"),
        ("time", duration(facts["seconds"])),
        ("forest", facts["forest"]),
    )


@command(_draw_pruned, run=options.run_options("overwrite", "threads", "scratch"))
def prune(
    forest: options.ForestFolder,
    data: options.Data,
    out: Annotated[str, typer.Option(metavar="DIR", show_default=False, help="The pruned forest, a folder.")],
    on_ties: Annotated[
        str,
        typer.Option(
            metavar="keep|prune", help="Keep or prune a subtree that is correct as often as a leaf in its place."
        ),
    ] = "keep",
    *,
    run: Given,
) -> Facts:
    """Prune the trees of a forest on a tuning set.

    A subtree is replaced by a leaf if the leaf is correct on more rows of DATA.

    DATA must have the target. Use rows that the forest was not trained on.

    Example: bigforest prune flights.forest tuning.parquet --out pruned.forest
    """
    import bigforest

    from .facts import revised_facts

    grown = bigforest.read_forest(forest)
    before = revised_facts(grown, "nodes", "leaves")
    after = revised_facts(bigforest.prune_forest(grown, data, out, on_ties=on_ties, **run), "trees", "nodes", "leaves")
    return {**after, "nodes_before": before["nodes"], "leaves_before": before["leaves"]}


def _draw_shrunk(facts: Facts) -> None:
    oob, tried = facts["oob"], facts["shrinkage"]["tried"]
    lines(
        ("trees", count(facts["trees"])),
        *([("out of bag", out_of_bag(oob, facts["classes"]))] if oob else []),
        *choice_lines(facts),
        ("time", duration(facts["seconds"])),
        ("forest", facts["forest"]),
    )
    if tried:
        typer.echo()
        losses = number_cells(row["loss"] for row in tried)
        print_table(
            ["lambda", "loss"], [[f"{row['lambda']:g}", loss] for row, loss in zip(tried, losses, strict=True)], left=0
        )


@command(_draw_shrunk, run=options.run_options("overwrite", "threads", "scratch", "memory"))
def shrink(
    forest: options.ForestFolder,
    out: Annotated[str, typer.Option(metavar="DIR", show_default=False, help="The shrunk forest, a folder.")],
    amount: Annotated[
        float | None,
        typer.Option("--lambda", metavar="LAMBDA", help="Lambda, in rows. Default: selected by out-of-bag loss."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="The training table. Default: its path in training."),
    ] = None,
    *,
    run: Given,
) -> Facts:
    """Shrink leaf values towards their ancestors.

    The change of the value from a node of n rows to its child is multiplied by n / (n + LAMBDA). Without --lambda, the
    table is read again for a new out-of-bag report; with it, the new forest has no report. A boosted stage is dropped.

    Example: bigforest shrink flights.forest --out shrunk.forest
    """
    import bigforest

    from .facts import revised_facts

    shrunk = bigforest.shrink_forest(forest, out, amount=amount, data=data, **run)
    return revised_facts(shrunk, "trees", "classes", "oob", "calibration", "shrinkage", "power", "refine")


def _draw_merged(facts: Facts) -> None:
    lines(
        *table_lines(facts),
        ("trees", f"{count(facts['trees'])} with {count(facts['nodes'], 'node')}"),
        ("forest", facts["forest"]),
    )
    typer.echo()
    rows = [
        [piece["forest"], *(count(piece[name]) for name in ("seed", "first_tree", "trees"))]
        for piece in facts["merged"]
    ]
    print_table(["merged from", "seed", "first tree", "trees"], rows)


@command(_draw_merged, run=options.run_options("overwrite"))
def merge(
    paths: Annotated[list[str], options.argument("FOREST", "Forests of the same table.")],
    out: Annotated[str, typer.Option(metavar="DIR", show_default=False, help="The merged forest, a folder.")],
    *,
    run: Given,
) -> Facts:
    """Merge forests of one table, grown with different seeds.

    Example: bigforest merge a.forest b.forest --out both.forest
    """
    import bigforest

    from .facts import training_facts

    forest = bigforest.merge(paths, out, **run)
    pieces = () if forest.origin is None else forest.origin.merged
    return {**training_facts(forest), "merged": list(map(asdict, pieces))}


# Options by argument of `export_forest`, with its defaults, in the order of --help.
EXPORT = {
    "out": option(str, "FILE", "The file. Default: <stem of FOREST> and the suffix of the format."),
    "dtype": option(str, "float32|float64", "onnx: type of the rows.", default="float32"),
    "table": option(str, "NAME", "sql: table that the query reads.", default="rows"),
    "keep": option(list[str], "COL", "sql: column to copy to the result; repeat for more."),
    "dialect": option(
        str,
        "standard|mysql",
        "sql: standard for DuckDB, SQLite and PostgreSQL; mysql for MySQL and MariaDB.",
        default="standard",
    ),
}


def _draw_export(facts: Facts) -> None:
    time = duration(facts["seconds"])
    lines(("format", facts["to"]), ("size", size(facts["bytes"])), ("time", time), ("file", facts["file"]))


@command(_draw_export, settings=EXPORT, run=options.run_options("overwrite"))
def export(
    forest: options.ForestFolder,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="onnx|treelite|sklearn|sql",
            show_default=False,
            help="Format of the file. Default: by the ending of --out.",
        ),
    ] = None,
    *,
    settings: Given,
    run: Given,
) -> Facts:
    """Export a forest to a file for another engine.

    Supports the families axis and tree; categories only with treelite and sql.

    Example: bigforest export flights.forest --to sql --table flights
    """
    import bigforest
    from bigforest.predict.export_file import SUFFIXES, format_of

    to = format_of(to, settings.get("out"))
    settings.setdefault("out", options.named_after(forest, SUFFIXES[to]))
    written = bigforest.export_forest(forest, to=to, **settings, **run)
    return {"forest": forest, "to": to, "file": str(written), "bytes": written.stat().st_size}
