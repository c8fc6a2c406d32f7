"""bigforest predict"""

from __future__ import annotations

from dataclasses import asdict

from . import options
from .command import command
from .options import Given, flag, option
from .running import STREAM, output_at
from .show import (
    Facts,
    class_scores,
    count,
    duration,
    lines,
    mean_error,
    number_errors,
    percent,
    rounded,
    share_error,
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
        "value with about this probability, such as 0.9. Calibrated on out-of-bag rows.",
    ),
    "reject_above": option(
        float,
        "RISK",
        "Classification: no prediction (null) for rows whose error, estimated on out-of-bag rows, is above this limit.",
    ),
    "coverage_by": option(
        str,
        "COL",
        "With --coverage: calibrate each category of this column separately. DATA and the training table have the "
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


def _draw(facts: Facts) -> None:
    if facts["predictions"] == STREAM:
        return
    pairs = [("rows", count(facts["rows"]))]
    labelled = count(facts["scored"], "labelled row") + (", by weight" if facts["weighted"] else "")
    rows = facts["scored"]
    if facts["mse"] is not None:
        pairs += [("labelled", labelled.replace(" labelled", "")), *number_errors(facts, rows).items()]
    if facts["accuracy"] is not None:
        pairs.append(("accuracy", f"{percent(facts['accuracy'], rows)} of {labelled}"))
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


@command(_draw, settings=PREDICT, run=options.run_options("overwrite", "threads", "scratch", "memory", "scheduler"))
def predict(forest: options.ForestFolder, data: options.Data, *, settings: Given, run: Given) -> Facts:
    """Predict every row of a table, in order, to a file.

    If the table has the target, accuracy, log loss and other metrics are shown. They are weighted if it has the weight
    column of training.

    Example: bigforest predict flights.forest new.parquet --proba --keep id
    """
    import bigforest

    from .running import default_output

    output = settings.pop("out") if "out" in settings else default_output(data, ".predictions.parquet")
    with output_at(output, run.get("scratch")) as written:
        scores = bigforest.predict_file(forest, data, written, **settings, **run)
    return {"predictions": output, **asdict(scores)}
