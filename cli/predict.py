"""bigforest predict"""

from __future__ import annotations

from dataclasses import asdict
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .cluster import SCHEDULER, running
from .command import grouped
from .streams import STREAM, output_at

if TYPE_CHECKING:
    from rich.console import Console

    from .show import Facts


@grouped(scheduler=SCHEDULER)
def predict(
    forest: options.ForestFolder,
    data: options.Data,
    proba: Annotated[bool, typer.Option("--proba", help="Also write one column p_<class> per class.")] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COL", help="Column of DATA to copy to the output; repeat for more."),
    ] = None,
    vote: options.Vote = None,
    ties: options.Ties = None,
    unseen: Annotated[
        str,
        typer.Option(
            metavar="larger|missing|error",
            help="A level that did not occur in training goes to the larger child, is missing, or is an error.",
        ),
    ] = "larger",
    quantiles: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Regression: also write these quantiles, such as 0.1,0.5,0.9. The forest needs --keep-targets.",
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Also write prediction intervals (regression: low, high) or sets (classification: set) that contain "
            "the true value with about this probability, such as 0.9. Calibrated on out-of-bag rows.",
        ),
    ] = None,
    reject_above: Annotated[
        float | None,
        typer.Option(
            metavar="RISK",
            help="Classification: no prediction (null) for rows whose error, estimated on out-of-bag rows, is above "
            "this limit.",
        ),
    ] = None,
    coverage_by: Annotated[
        str | None,
        typer.Option(
            metavar="COL",
            help="With --coverage: calibrate each category of this column separately. DATA and the training table "
            "have the column.",
        ),
    ] = None,
    jackknife: Annotated[
        bool,
        typer.Option(
            "--jackknife",
            help="With --coverage, regression: intervals by the jackknife+ after bootstrap. Their coverage is at least "
            "1 - 2 (1 - SHARE) under the conditions in the guide on intervals.",
        ),
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Output file: Parquet, CSV or NDJSON by its ending; - is CSV on standard output. "
            "Default: <stem of DATA>.predictions.parquet.",
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    threads: options.Threads = None,
    scratch: options.Scratch = None,
    memory: options.Memory = None,
    *,
    scheduler: dict[str, Any],
) -> None:
    """Predict every row of a table, in order, to a file.

    If the table has the target, accuracy, log loss and other metrics are shown. They are weighted if it has the weight
    column of training.

    Example: bigforest predict flights.forest new.parquet --proba --keep id
    """
    import bigforest
    from bigforest.api.functions import default_output

    from .show import show

    output = out if out is not None else str(default_output(data, ".predictions.parquet"))
    if output == STREAM and json:
        raise typer.BadParameter("predictions and --json cannot both go to standard output; give a file as --out")
    shares: list[Any] = [] if quantiles is None else quantiles.split(",")
    begin = perf_counter()
    with (
        output_at(output, scratch) as written,
        running(scheduler, quiet=quiet) as (client, ledger),
    ):
        done = bigforest.predict_file(
            forest,
            data,
            written,
            proba=proba,
            keep=keep or (),
            vote=vote,
            ties=ties,
            unseen=unseen,
            quantiles=shares,
            coverage=coverage,
            reject_above=reject_above,
            coverage_by=coverage_by,
            jackknife=jackknife,
            threads=threads,
            scratch=scratch,
            memory=memory,
            overwrite=overwrite,
            listener=ledger,
            scheduler=client,
        )
    facts = {"predictions": str(output), **asdict(done), "seconds": perf_counter() - begin, **ledger.facts}
    show(facts, _draw, json=json, quiet=quiet or output == STREAM)


def _draw(console: Console, facts: Facts) -> None:
    from .show import count, duration, lines, number_cell, percent

    pairs = [("rows", count(facts["rows"]))]
    labelled = count(facts["scored"], "labelled row") + (", by weight" if facts["weighted"] else "")
    if facts["mse"] is not None:
        pairs.append(("R2", f"{number_cell(facts['r2'])} of {labelled}"))
        pairs.append(("MSE", f"{number_cell(facts['mse'])}, MAE {number_cell(facts['mae'])}"))
    if facts["accuracy"] is not None:
        pairs.append(("accuracy", f"{percent(facts['accuracy'])} of {labelled}"))
        pairs.append(("log loss", f"{facts['log_loss']:.4f}"))
    if facts["metrics"]:
        whole = facts["metrics"][-1]
        pairs.append(("F1", f"{whole['f1']:.4f}, precision {whole['precision']:.4f}, recall {whole['recall']:.4f}"))
        pairs.append(("Brier score", f"{whole['brier']:.4f}"))
        if whole["auc"] is not None:
            pairs.append(("AUC", f"{whole['auc']:.4f}"))
    if facts["unscored"] is not None:
        pairs.append(("no metrics", facts["unscored"]))
    lines(console, [*pairs, ("time", duration(facts["seconds"])), ("predictions", facts["predictions"])])
