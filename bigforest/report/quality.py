"""Two sections of the report: accuracy with its uncertainty, and errors by class and by slice."""

from __future__ import annotations

from typing import Any

import polars as pl

from bigforest.common.errors import counted
from bigforest.plot.error import error_table
from bigforest.plot.pictures import Pictures
from bigforest.plot.rejection import has_rejection, limits_table
from bigforest.predict.forest import Forest
from bigforest.report import page
from bigforest.report.slices import LEAST_ROWS, slices, worst_rows
from bigforest.source import Source

_CLASSES = 10
# Columns whose names say too little in a page.
_HEADINGS = {
    "p_truth": "probability of the truth",
    "most_often": "most often predicted instead",
    "mse": "mean squared error",
    "mae": "mean absolute error",
    "poisson_deviance": "mean Poisson deviance",
    "brier": "Brier score",
    "auc": "area under ROC",
    "f1": "F1",
    "r2": "R²",
    "reject_above": "reject above",
}
_BIASED = (
    "The forest is boosted, so this error is biased: hard rows are often drawn, and so rarely out of bag. "
    "Evaluate it on a test set."
)


def quality(plot: Pictures) -> list[str]:
    """The error out of bag with its standard error, metrics, curves."""
    forest = plot.forest
    if not forest.has_oob:
        pieces = [
            page.text("There is no out-of-bag estimate: the trees were grown on all rows, or were merged or changed.")
        ]
    elif not forest.oob.rows_used:
        pieces = [page.text("There is no estimate: every row is in the bag of every tree.")]
    else:
        pieces = [page.text(_error(forest)), *([page.text(_BIASED)] if forest.config.boosts else [])]
        pieces += [page.picture(plot.error(), "Error by number of trees")]
        pieces += [page.heading("Metrics out of bag"), _metrics(forest)]
        if not forest.is_regression:
            pieces += [
                page.picture(plot.reliability(), "Reliability of the probabilities"),
                page.picture(plot.roc(), "ROC curves"),
                page.picture(plot.precision_recall(), "Precision and recall"),
            ]
        pieces += _rejection(plot) if has_rejection(forest) else []
    if forest.has_validation:
        last = forest.validation.row(-1, named=True)
        error = page.known_number(last["error"])
        sentence = f"On the validation table the error is {error}, on {counted(last['rows'], 'row')}."
        pieces.append(page.text(sentence))
    return pieces


def _rejection(plot: Pictures) -> list[str]:
    """What the error is where the least sure rows have no answer."""
    note = (
        "Effect of reject_above on these rows: the share of rows that are predicted, and the error "
        "among them. confidence: the lowest vote share of the predicted class at which a row is predicted."
    )
    found = limits_table(plot.forest)
    return [
        page.picture(plot.rejection(), "Error of the predicted rows"),
        *([page.heading("Rejection of uncertain rows"), page.text(note), _table(found)] if found.height else []),
    ]


def wrong(plot: Pictures, source: Source | None) -> list[str]:
    """Worst classes, worst rows, worst slices of the training table."""
    forest = plot.forest
    if not forest.has_oob or not forest.oob.rows_used:
        return []
    pieces = []
    if not forest.is_regression:
        pieces += [page.picture(plot.confusion(), "Confusion of classes", wide=len(forest.classes) > 12)]
        pieces += [page.heading("Worst classes"), _table(worst_classes(forest))]
    pieces += [page.heading("Rows with the largest out-of-bag loss"), _table(worst_rows(forest))]
    if source is not None:
        found = slices(forest, source)
        pieces.append(page.heading("Slices with the highest out-of-bag error"))
        if found.height:
            note = (
                f"Parts of the table, by one feature, with at least {LEAST_ROWS} rows. excess: error above that of all "
                "rows, in standard errors of the slice; among many slices, a few exceed 2 by chance."
            )
            pieces += [page.text(note), _table(found)]
        else:
            pieces.append(page.text("No slice has a higher error than all rows together."))
    return pieces


def worst_classes(forest: Forest) -> pl.DataFrame:
    """Columns class, rows, recall, precision, f1 and most_often (what its wrong rows are voted to be), worst first."""
    metrics, confusion = forest.oob.metrics, forest.oob.confusion
    assert confusion is not None
    wrong = confusion.filter(pl.col("truth") != pl.col("prediction")).sort("rows", descending=True, maintain_order=True)
    often = wrong.group_by("truth", maintain_order=True).first().select("truth", most_often="prediction")
    return (
        metrics.filter(pl.col("class").is_not_null() & (pl.col("rows") > 0))
        .select("class", "rows", "recall", "precision", "f1")
        .join(often, left_on="class", right_on="truth", how="left", maintain_order="left")
        .sort("recall", maintain_order=True)
        .head(_CLASSES)
    )


def _error(forest: Forest) -> str:
    last = error_table(forest).row(-1, named=True)
    error, spread = last["error"], last["standard_error"]
    sure = ", with row weights"
    if spread is not None:
        low, high = max(0.0, error - 1.96 * spread), error + 1.96 * spread
        sure = (
            f", standard error {page.known_number(spread, 2)}, 95% interval "
            f"{page.known_number(low)} to {page.known_number(high)}"
        )
    return f"The out-of-bag {forest.oob.measure} is {page.known_number(error)} on {counted(last['rows'], 'row')}{sure}."


def _metrics(forest: Forest) -> str:
    metrics = forest.oob.metrics
    if not forest.is_regression and metrics.height > 31:
        return _table(metrics.tail(1).with_columns(pl.lit("all").alias("class")))
    texts: list[Any] = [
        ["all" if cell is None and at == 0 else cell for at, cell in enumerate(row)] for row in metrics.rows()
    ]
    return page.html_table(_headings(metrics.columns), texts if not forest.is_regression else metrics.rows())


def _table(frame: pl.DataFrame) -> str:
    labels = [name for name in ("class", "truth", "prediction", "most_often") if name in frame.columns]
    texts = frame.with_columns(pl.col(name).cast(pl.String) for name in labels if not frame.schema[name].is_float())
    return page.html_table(_headings(frame.columns), texts.rows())


def _headings(columns: list[str]) -> list[str]:
    return [_HEADINGS.get(name, name) for name in columns]
