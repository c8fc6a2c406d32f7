"""Commands about predictions: predict, oob (errors on out-of-bag rows) and validate (on other rows)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import typer

from . import options
from .command import command
from .options import Given, flag, option
from .running import STREAM, default_output, output_at
from .show import (
    TREES_ALONE,
    Facts,
    class_scores,
    count,
    duration,
    lines,
    mean_error,
    number_cells,
    number_errors,
    out_of_bag,
    percent,
    print_table,
    rounded,
    share_error,
    show,
    validation_lines,
)

# Options by argument of `predict_file`, with its defaults, in the order of --help.
PREDICT = {
    "proba": flag("Also write one column p_<class> per class.", "--proba"),
    "keep": option(list[str], "COL", "Column of DATA to copy to the output; repeat for more."),
    **options.VOTES,
    "unseen": option(
        str,
        "larger|missing|error",
        "A level that did not occur in training goes to the larger child, is missing, or is an error.",
        default="larger",
    ),
    "quantiles": option(
        list[str],
        "LIST",
        "Regression: also write these quantiles, such as 0.1,0.5,0.9. The forest needs --keep-targets.",
        read=options.values_of_lists,
    ),
    "coverage": option(
        float,
        "SHARE",
        "Also write prediction intervals (regression: low, high) or sets (classification: set) that contain the true "
        "value with about this probability, such as 0.9. Calibrated on out-of-bag rows, or on those held out by "
        "--calibration in training.",
    ),
    "reject_above": option(
        float,
        "RISK",
        "Classification: no prediction (null) for rows whose error, estimated on out-of-bag rows, is above this limit.",
    ),
    "coverage_by": option(
        str,
        "COL",
        "With --coverage: calibrate each category of this column separately. DATA and the training table must have the "
        "column.",
    ),
    "jackknife": flag(
        "With --coverage, regression: intervals by the jackknife+ after bootstrap. Their coverage is at least "
        "1 - 2 (1 - SHARE) under the conditions in the guide on intervals.",
        "--jackknife",
    ),
    "out": option(
        str,
        "FILE",
        "Output file: Parquet, CSV or NDJSON by its ending; - is CSV on standard output. "
        "Default: <stem of DATA>.predictions.parquet.",
    ),
}


def _draw_predict(facts: Facts) -> None:
    if facts["predictions"] == STREAM:
        return
    rejected = f", {count(facts['rejected'])} of them without a prediction" if facts["rejected"] else ""
    pairs = [("rows", count(facts["rows"]) + rejected)]
    rows, weighted = facts["scored"], ", by weight" if facts["weighted"] else ""
    if facts["mse"] is not None:
        pairs += [("labelled", count(rows, "row") + weighted), *number_errors(facts, rows).items()]
    if facts["accuracy"] is not None:
        wrong = "; rows without a prediction count as wrong" if rejected else ""
        of = f"{count(rows, 'labelled row')}{weighted}{wrong}"
        pairs.append(("accuracy", f"{percent(facts['accuracy'], rows)} of {of}"))
    if facts["metrics"]:
        whole = facts["metrics"][-1]
        names = ("f1", "precision", "recall")
        f1, precision, recall = (rounded(whole[name], share_error(whole[name], rows)) for name in names)
        pairs.append(("F1", f"{f1}, precision {precision}, recall {recall}, means of the classes"))
        pairs.append(("Brier score", rounded(whole["brier"], mean_error(whole["brier"], rows))))
        pairs += class_scores(whole, len(facts["metrics"]) - 1, rows).items()
    if facts["unscored"] is not None:
        pairs.append(("no metrics", facts["unscored"]))
    lines(*pairs, ("time", duration(facts["seconds"])), ("predictions", facts["predictions"]))


@command(
    _draw_predict, settings=PREDICT, run=options.run_options("overwrite", "threads", "scratch", "memory", "scheduler")
)
def predict(forest: options.ForestFolder, data: options.Data, *, settings: Given, run: Given) -> Facts:
    """Predict every row of a table, in order, to a file.

    If the table has the target, accuracy, log loss and other metrics are shown. They are weighted if it has the weight
    column of training.

    Example: bigforest predict flights.forest new.parquet --proba --keep id
    """
    import bigforest

    output = settings.pop("out") if "out" in settings else default_output(data, ".predictions.parquet")
    with output_at(output, run.get("scratch")) as written:
        scores = bigforest.predict_file(forest, data, written, **settings, **run)
    return {"predictions": output, **asdict(scores)}


# Most classes of a confusion matrix that fits a terminal. With more, the most frequent mistakes are listed.
MATRIX_CLASSES = 12
# Number of mistakes to list.
MISTAKES = 20
METRICS = ("precision", "recall", "f1", "log_loss", "brier", "auc")


def oob(forest: options.ForestFolder, json: options.Json = False) -> None:
    """Show the out-of-bag report: error, metrics, confusion, curve.

    Example: bigforest oob flights.forest
    """
    import bigforest

    from .facts import oob_facts

    show(oob_facts(bigforest.read_forest(forest)), _draw_oob, json=json)


def _draw_oob(facts: Facts) -> None:
    from bigforest.planning.sizes import milestones

    lines(("out of bag", out_of_bag(facts, len(facts["metrics"]) - 1)), ("trees", count(facts["trees"])))
    typer.echo()
    if "confusion" in facts:
        _draw_metrics(facts["metrics"])
        typer.echo()
        _draw_confusion(facts["confusion"])
        typer.echo()
    curve = [facts["curve"][trees - 1] for trees in milestones(len(facts["curve"]))]
    measure = next(name for name in curve[0] if name not in ("trees", "rows"))
    errors = [row[measure] for row in curve]
    rows_of = [row["rows"] for row in curve]
    cells = list(map(percent, errors, rows_of)) if "confusion" in facts else number_cells(errors)
    rows = [[count(row["trees"]), cell, count(row["rows"])] for row, cell in zip(curve, cells, strict=True)]
    if facts["rounds"]:
        typer.echo(f"{TREES_ALONE}:\n")
    print_table(["trees", measure.replace("_", " "), "rows"], rows, left=0)


def _draw_metrics(metrics: list[dict[str, Any]]) -> None:
    """Print the metrics of all classes together, and of each class if there are at most MATRIX_CLASSES classes."""
    names = [name for name in METRICS if any(row[name] is not None for row in metrics)]
    rows = metrics[-1:] + (metrics[:-1] if len(metrics) <= MATRIX_CLASSES + 1 else [])
    labels = ["all", *(str(row["class"]) for row in rows[1:])]
    whole = rows[0]
    errors = {
        name: (mean_error if name in ("log_loss", "brier") else share_error)(whole[name] or 0.0, whole["rows"])
        for name in names
    }
    body = [
        [label, count(row["rows"]), *("" if row[name] is None else rounded(row[name], errors[name]) for name in names)]
        for label, row in zip(labels, rows, strict=True)
    ]
    print_table(["class", "rows", *(name.replace("_", " ") for name in names)], body)


def _draw_confusion(pairs: list[dict[str, Any]]) -> None:
    """Print the confusion matrix, or the most frequent mistakes if there are more than MATRIX_CLASSES classes."""
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


def _draw_validation(facts: Facts) -> None:
    from bigforest.planning.sizes import milestones

    curve = facts["curve"]
    written = [("curve", facts["out"])] if facts["out"] else []
    lines(*validation_lines(curve[-1], facts["rounds"]), ("time", duration(facts["seconds"])), *written)
    typer.echo()
    steps = [curve[trees - 1] for trees in milestones(len(curve))]
    rows = [[count(row["trees"]), percent(row["error"], row["rows"]), count(row["rejected"])] for row in steps]
    print_table(["trees", "error", "rejected"], rows, left=0)


# Options by argument of `validate_forest`, in the order of --help.
VALIDATE = {
    "out": option(str, "FILE", "Also write the error after each tree to this Parquet file."),
    **options.VOTES,
}


@command(
    _draw_validation,
    settings=VALIDATE,
    run=options.run_options("overwrite", "threads", "scratch", "memory"),
)
def validate(forest: options.ForestFolder, data: options.Data, *, settings: Given, run: Given) -> Facts:
    """Evaluate a forest on labelled rows, by number of trees.

    All rows have the same weight.

    Example: bigforest validate flights.forest test.parquet --out curve.parquet
    """
    import bigforest

    opened = bigforest.read_forest(forest)
    curve = bigforest.validate_forest(opened, data, **settings, **run)
    rounds = int(opened.rounds.amount)
    return {"forest": forest, "rounds": rounds, "curve": curve.to_dicts(), "out": settings.get("out")}
