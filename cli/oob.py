"""bigforest oob"""

from __future__ import annotations

from typing import Any

import typer

from . import options
from .show import Facts, count, lines, number_cells, out_of_bag, percent, print_table, show

# A square of more classes than this does not fit a terminal; the commonest mistakes are listed instead.
MATRIX_CLASSES = 12
MISTAKES = 20
METRICS = ("precision", "recall", "f1", "log_loss", "brier", "auc")


def oob(forest: options.ForestFolder, json: options.Json = False) -> None:
    """Show the out-of-bag report: error, metrics, confusion, curve.

    Example: bigforest oob flights.forest
    """
    import bigforest

    from .facts import oob_facts

    show(oob_facts(bigforest.read_forest(forest)), _draw, json=json)


def _draw(facts: Facts) -> None:
    from bigforest.planning.sizes import milestones

    lines(("out of bag", out_of_bag(facts)), ("trees", count(facts["trees"])))
    typer.echo()
    if "confusion" in facts:
        draw_metrics(facts["metrics"])
        typer.echo()
        _draw_confusion(facts["confusion"])
        typer.echo()
    curve = [facts["curve"][trees - 1] for trees in milestones(len(facts["curve"]))]
    _, measure, _ = curve[0]
    errors = [row[measure] for row in curve]
    cells = list(map(percent, errors)) if "confusion" in facts else number_cells(errors)
    rows = [[count(row["trees"]), cell, count(row["rows"])] for row, cell in zip(curve, cells, strict=True)]
    print_table(["trees", measure.replace("_", " "), "rows"], rows, left=0)


def draw_metrics(metrics: list[dict[str, Any]]) -> None:
    """A line for all classes, and one for each where they are few."""
    names = [name for name in METRICS if any(row[name] is not None for row in metrics)]
    rows = metrics[-1:] + (metrics[:-1] if len(metrics) <= MATRIX_CLASSES + 1 else [])
    labels = ["all", *(str(row["class"]) for row in rows[1:])]
    body = [
        [label, count(row["rows"]), *(f"{row[name]:.4f}" for name in names)]
        for label, row in zip(labels, rows, strict=True)
    ]
    print_table(["class", "rows", *(name.replace("_", " ") for name in names)], body)


def _draw_confusion(pairs: list[dict[str, Any]]) -> None:
    classes = list(dict.fromkeys([*(pair["truth"] for pair in pairs), *(pair["prediction"] for pair in pairs)]))
    if len(classes) <= MATRIX_CLASSES:
        cells = {(pair["truth"], pair["prediction"]): pair["rows"] for pair in pairs}
        labels = sorted(classes)
        body = [[str(truth), *(count(cells.get((truth, label), 0)) for label in labels)] for truth in labels]
        print_table(["truth \\ prediction", *map(str, labels)], body)
        return
    wrong = [pair for pair in pairs if pair["truth"] != pair["prediction"]]
    wrong.sort(key=lambda pair: -pair["rows"])
    body = [[str(pair["truth"]), str(pair["prediction"]), count(pair["rows"])] for pair in wrong[:MISTAKES]]
    print_table(["truth", "predicted", "rows"], body, left=2)
