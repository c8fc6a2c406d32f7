"""Charts of the accuracy on out-of-bag rows. Each is drawn from a table computed from the out-of-bag report.

error             by number of trees
rounds            loss by number of rounds of the boosted stage
confusion         rows by true and predicted class
rejection         error of the predicted rows if the least certain ones are rejected
reliability, ROC, precision-recall  of the probability of a class against the rest
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import isinf
from typing import Any

import numpy as np
import polars as pl

from bigforest.columns.labels import label_type, proba_names
from bigforest.errors import ConfigError
from bigforest.explain.options import ExplainOptions
from bigforest.forest.format import POISSON
from bigforest.metrics.numbers import poisson_deviances
from bigforest.oob.accumulator import loss_floor
from bigforest.plot.draw import (
    COLORS,
    DEEP,
    FAINT,
    HEIGHT,
    INK,
    OTHERS,
    PALE,
    WIDTH,
    altair,
    chart_of,
    finish_chart,
    labels_of,
    texts_of,
    thinned,
)
from bigforest.predict.forest import Forest


def error_table(forest: Forest) -> pl.DataFrame:
    """Return columns trees, error, rows and standard_error, for numbers of trees with which some row is out of bag."""
    curve = forest.oob.curve
    return with_standard_error(forest, curve.select("trees", pl.col(curve.columns[1]).alias("error"), "rows"))


def with_standard_error(forest: Forest, errors: pl.DataFrame) -> pl.DataFrame:
    """Return the out-of-bag errors with the column standard_error.

    errors  table with columns error and rows, the number of rows out of bag; errors on no rows are left out

    For classes, the standard error is binomial. For regression, it is the error times the relative standard deviation
    of the losses with all trees, divided by the root of the number of rows. It is null if rows are weighted, and if
    they are in groups, whose rows are not independent: the report has neither weights nor groups. For regression it is
    also null for a single row, and if all losses are 0.
    """
    error, rows = pl.col("error"), pl.col("rows")
    if forest.oob.weighted or forest.spec.group is not None:
        spread = pl.lit(None, pl.Float64)
    elif forest.is_regression:
        losses = number_losses(forest)
        voted = forest.oob.rows.filter(pl.col("trees") > 0)
        mean, deviation = voted.select(losses.mean().alias("m"), losses.std().alias("s")).collect().row(0)
        part = deviation / mean if mean and deviation is not None and math.isfinite(mean) else None
        spread = error * pl.lit(part, pl.Float64) / rows.sqrt()
    else:
        spread = (error * (1 - error) / rows).sqrt()
    return errors.filter(rows > 0).with_columns(standard_error=spread)


def number_losses(forest: Forest) -> pl.Expr:
    """Return an expression of the loss of each out-of-bag row of a regression: its squared error, or its Poisson
    deviance if this is the measure of the error curve."""
    truth, prediction = pl.col("truth").cast(pl.Float64), pl.col("prediction")
    if forest.oob.curve.columns[1] != POISSON:
        return (truth - prediction) ** 2
    return pl.map_batches([truth, prediction], _deviances, return_dtype=pl.Float64)


def _deviances(columns: Sequence[pl.Series]) -> pl.Series:
    """Return the Poisson deviance of each row, from the columns of truth and prediction."""
    truth, prediction = (column.to_numpy() for column in columns)
    return pl.Series(poisson_deviances(truth, np.maximum(prediction, loss_floor(truth.max(initial=0.0)))))


def error_chart(forest: Forest) -> Any:
    """Draw the out-of-bag error with a band of two standard errors, and the validation error if there is one."""
    alt = altair()
    table = thinned(error_table(forest)).with_columns(
        lower=(pl.col("error") - 2 * pl.col("standard_error")).clip(0.0),
        upper=pl.col("error") + 2 * pl.col("standard_error"),
        curve=pl.lit("out of bag"),
    )
    if forest.has_validation:
        validation = thinned(forest.validation.select("trees", "error"))
        table = pl.concat([table, validation.with_columns(curve=pl.lit("validation"))], how="diagonal")
    base = chart_of(table).properties(width=WIDTH, height=HEIGHT)
    x = alt.X("trees:Q", title="trees")
    legend = alt.Legend(symbolType="stroke", symbolOpacity=1) if forest.has_validation else None
    color = alt.Color("curve:N", title=None, scale=alt.Scale(range=list(COLORS)), legend=legend)
    line = base.mark_line(point=table.height < 3).encode(x=x, y=alt.Y("error:Q", title=forest.oob.measure), color=color)
    band = base.mark_area(opacity=0.2, color=INK).encode(x=x, y=alt.Y("lower:Q"), y2=alt.Y2("upper"), color=color)
    caption = "the band is two standard errors to each side"
    if forest.spec.group is not None:
        caption = "there is no band, because the rows of a group are not independent"
    if forest.oob.weighted:
        caption = "rows are weighted"
    captions = [caption, *(["trees alone, without the boosted stage"] if forest.rounds.amount else [])]
    return finish_chart(alt.layer(band, line), "Out-of-bag error by number of trees", captions)


def rounds_table(forest: Forest) -> pl.DataFrame:
    """Return columns rounds, loss and chosen, a row for each tried number of rounds; 0 means the trees alone."""
    rounds = forest.rounds
    table = pl.DataFrame(
        {"rounds": rounds.tried, "loss": rounds.losses}, schema={"rounds": pl.Float64, "loss": pl.Float64}
    )
    return table.with_columns(pl.col("rounds").cast(pl.Int64), chosen=pl.col("rounds") == rounds.amount)


def rounds_chart(forest: Forest) -> Any:
    """Draw the loss as a line, with a point at the chosen number of rounds."""
    alt = altair()
    table = rounds_table(forest)
    numbers = "mean Poisson deviance" if forest.config.criterion == "poisson" else "mean squared error"
    measure = numbers if forest.is_regression else "log loss"
    x = alt.X("rounds:Q", title="rounds of the boosted stage", axis=alt.Axis(tickMinStep=1))
    y = alt.Y("loss:Q", title=f"out-of-bag {measure}", scale=alt.Scale(zero=False))
    base = chart_of(table).properties(width=WIDTH, height=HEIGHT)
    point = base.mark_point(filled=True, size=80, color=COLORS[4], opacity=1).encode(x=x, y=y)
    point.data = chart_of(table.filter(pl.col("chosen"))).data
    captions = [
        f"the point is the number of rounds of the forest, {int(forest.rounds.amount)}; 0 are the trees alone",
        "each row is evaluated by the two of six sequences of trees grown without it, as in the report",
    ]
    line = base.mark_line(color=COLORS[0]).encode(x=x, y=y)
    return finish_chart(alt.layer(line, point), "Out-of-bag loss by rounds of the boosted stage", captions)


# Most classes that are shown separately.
MOST_CLASSES = 20


def confusion_table(forest: Forest, most: int = MOST_CLASSES) -> pl.DataFrame:
    """Return columns truth and prediction (texts), rows, and share (of the weight of the true class).

    If there are more than `most` classes, only those with the most wrong rows, by truth or prediction, are separate.
    The others become OTHERS.
    """
    confusion = forest.oob.confusion
    assert confusion is not None
    wrong = confusion.filter(pl.col("truth") != pl.col("prediction"))
    ends = pl.concat([wrong.select("truth", "rows"), wrong.select(truth="prediction", rows="rows")])
    sums = dict(ends.group_by("truth").agg(pl.col("rows").sum()).iter_rows())
    shown = forest.classes
    if len(shown) > most:
        ranked = sorted(range(len(shown)), key=lambda code: (-sums.get(shown[code], 0), code))[:most]
        shown = [shown[code] for code in sorted(ranked)]
    table = confusion.with_columns(texts_of(confusion[column], shown) for column in ("truth", "prediction"))
    table = table.group_by("truth", "prediction", maintain_order=True).agg(pl.col("rows", "weight").sum())
    share = pl.col("weight") / pl.col("weight").sum().over("truth")
    return table.select("truth", "prediction", "rows", share=share)


def confusion_chart(forest: Forest) -> Any:
    """Draw a cell for each pair of classes. Its colour is the share of the true class, its text the number of rows."""
    alt = altair()
    table = confusion_table(forest)
    order = [name for name in labels_of(forest.classes) if name in set(table["truth"]) | set(table["prediction"])]
    order += [OTHERS] if OTHERS in set(table["truth"]) | set(table["prediction"]) else []
    side = max(160, min(26 * len(order) + 60, 600))
    base = chart_of(table).encode(
        x=alt.X(
            "prediction:N",
            title="predicted class",
            sort=order,
            axis=alt.Axis(labelAngle=-40 if max(map(len, order)) > 3 else 0),
        ),
        y=alt.Y("truth:N", title="true class", sort=order),
    )
    cells = base.mark_rect().encode(
        color=alt.Color(
            "share:Q",
            title="share of the class",
            scale=alt.Scale(domain=[0, 1], range=[PALE, DEEP]),
        )
    )
    exact = len(order) < 8 or table["rows"].max() < 10_000  # type: ignore[operator]
    text = base.mark_text(fontSize=10).encode(
        text=alt.Text("rows:Q", format="d" if exact else ".2~s"),
        color=alt.condition("datum.share > 0.85", alt.value("white"), alt.value("black")),
    )
    caption = ["numbers are out-of-bag rows" + ("" if exact else ", rounded")]
    if OTHERS in order:
        caption.append(f"the {MOST_CLASSES} classes with the most wrong rows; {OTHERS} is the rest")
    return finish_chart(
        alt.layer(cells, text).properties(width=side, height=side), "Out-of-bag confusion matrix", caption
    )


# Values of reject_above that are marked on the curve.
RISKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
# The axis of errors covers the curve from this share of predicted rows on: with fewer rows, errors may be much larger.
_FIRST = 0.05
# Texts nearer to each other would touch: shares of the width and of the height.
_NEAR = (0.08, 0.05)


def has_rejection(forest: Forest) -> bool:
    """Return True if a rejection curve can be drawn: for classes and out-of-bag rows, without boosting.

    With boosting, out-of-bag errors are biased.
    """
    return forest.has_oob and forest.oob.rows_used > 0 and not forest.is_regression and not forest.config.boosts


def rejection_table(forest: Forest) -> pl.DataFrame:
    """Return columns confidence, predicted and error, by descending confidence.

    confidence  lowest probability of the predicted class with which a row is predicted, not rejected
    predicted   share of the out-of-bag rows that are predicted then
    error       share of wrong rows among the predicted ones
    """
    curve = forest.rules.calibration.reject_curve()
    predicted, error = curve.predicted / curve.predicted[-1], curve.wrong / curve.predicted
    return pl.DataFrame({"confidence": curve.confidence, "predicted": predicted, "error": error})


def limits_table(forest: Forest, risks: Sequence[float] = RISKS) -> pl.DataFrame:
    """Return columns reject_above, confidence, predicted and error: a row of `rejection_table` for each risk.

    risks  values of reject_above

    Risks for which too few rows are out of bag are left out. If all rows are predicted, confidence is 0. If no row is
    predicted, confidence and error are null.
    """
    curve = forest.rules.calibration.reject_curve()
    lines = []
    for risk in risks:
        try:
            least = curve.least_share(risk)
        except ConfigError:
            continue
        place = int(np.count_nonzero(curve.confidence >= least)) - 1
        rows, wrong = (int(counted[place]) if place >= 0 else 0 for counted in (curve.predicted, curve.wrong))
        share = None if isinf(least) else least
        lines.append((risk, share, rows / int(curve.predicted[-1]), wrong / rows if rows else None))
    names = ("reject_above", "confidence", "predicted", "error")
    return pl.DataFrame(lines, schema=dict.fromkeys(names, pl.Float64), orient="row")


def _spaced_labels(marks: pl.DataFrame, top: float) -> pl.Series:
    """Return the values of reject_above as texts; empty where a text would touch the text to its left or the axis, or
    its point lies above the chart.

    top  largest error of the chart
    """
    texts, last = [], (-1.0, -1.0)
    for limit, predicted, error in marks.select("reject_above", "predicted", "error").iter_rows():
        apart = predicted - last[0] > _NEAR[0] or (error - last[1]) / top > _NEAR[1]
        texts.append(f"{limit:g}" if apart and error <= top and predicted >= _FIRST else "")
        last = (predicted, error) if apart else last
    return pl.Series(texts, dtype=pl.String)


def rejection_chart(forest: Forest) -> Any:
    """Draw the error of the predicted rows against their share, with points at some values of reject_above."""
    alt = altair()
    x = alt.X("predicted:Q", title="share of rows predicted", scale=alt.Scale(domain=[0, 1]))
    table = rejection_table(forest)
    # The error of the first few rows may be far above the others.
    top = float(np.max(table.filter(pl.col("predicted") >= _FIRST)["error"].to_numpy(), initial=0.0)) or 1.0
    y = alt.Y("error:Q", title="error of these rows", scale=alt.Scale(domainMax=top, nice=True))
    line = chart_of(thinned(table)).mark_line(clip=True).encode(x=x, y=y)
    marks = limits_table(forest).filter(pl.col("error").is_not_null())
    base = chart_of(marks.with_columns(text=_spaced_labels(marks, top))).encode(x=x, y=y)
    points = base.mark_point(filled=True, size=50, clip=True)
    names = base.mark_text(align="right", dx=-6, dy=-12, color=INK).encode(text=alt.Text("text:N"))
    caption = ["out-of-bag rows, unweighted, most certain first; points: limits of reject_above"]
    layers = alt.layer(line, points, names).properties(width=WIDTH, height=HEIGHT)
    return finish_chart(layers, "Error of the predicted rows", caption)


# Most classes that are shown.
_CLASSES = 6
# Bins of probability.
_BINS = 10
# Scores are rounded down to multiples of 1 / STEPS.
STEPS = 10_000
_SIDE = 320


def shown_classes(forest: Forest, label: Any = None) -> dict[int, str]:
    """Return the texts of the classes to show, by code, ascending: the class `label` if given, otherwise the second of
    two, or the _CLASSES classes with most out-of-bag rows."""
    if label is not None:
        codes = [*ExplainOptions(classes=[label]).codes(forest.spec.target)]
    elif len(forest.classes) == 2:
        codes = [1]
    else:
        rows = forest.oob.metrics["rows"].to_list()[: len(forest.classes)]
        codes = sorted(sorted(range(len(rows)), key=lambda code: (-rows[code], code))[:_CLASSES])
    names = labels_of(forest.classes)
    return {code: names[code] for code in codes}


def _against_rest(forest: Forest, code: int) -> pl.LazyFrame:
    """Return columns score (probability of class `code`) and hit (True if it is the true class) of out-of-bag rows."""
    label = pl.lit(forest.classes[code]).cast(label_type(forest.spec.target))
    voted = forest.oob.rows.filter(pl.col("trees") > 0)
    return voted.select(score=pl.col(proba_names(forest.spec.target)[code]), hit=pl.col("truth") == label)


def reliability_table(forest: Forest, code: int) -> pl.DataFrame:
    """Return columns bin, score (mean), share (of hits), standard_error and rows. Bins have equal width; empty bins are
    left out."""
    place = (pl.col("score") * _BINS).floor().clip(0, _BINS - 1).cast(pl.Int32)
    rows, share = pl.col("rows"), pl.col("share")
    return (
        _against_rest(forest, code)
        .group_by(bin=place)
        .agg(score=pl.col("score").mean(), share=pl.col("hit").mean(), rows=pl.len())
        .sort("bin")
        .with_columns(standard_error=(share * (1 - share) / rows).sqrt())
        .collect(engine="streaming")
    )


def ranking_table(forest: Forest, code: int) -> pl.DataFrame:
    """Return columns score, found, false_alarms and precision, by descending score.

    score         rounded down to a multiple of 1 / STEPS; the rows with at least this score are predicted as the class
    found         share of the rows of the class that are predicted as the class (recall, true positive rate); null if
                  the class has no row
    false_alarms  share of the other rows that are predicted as the class (false positive rate); null if there are no
                  other rows
    precision     share of rows of the class among the predicted rows
    """
    step = (pl.col("score") * STEPS).floor().cast(pl.Int32)
    counted = (
        _against_rest(forest, code)
        .group_by(step=step)
        .agg(hits=pl.col("hit").sum().cast(pl.Int64), rows=pl.len().cast(pl.Int64))
        .sort("step", descending=True)
        .collect(engine="streaming")
    )
    hits, rows = pl.col("hits"), pl.col("rows")
    others = rows - hits
    return counted.select(
        score=pl.col("step") / STEPS,
        found=pl.when(hits.sum() > 0).then(hits.cum_sum() / hits.sum()),
        false_alarms=pl.when(others.sum() > 0).then(others.cum_sum() / others.sum()),
        precision=hits.cum_sum() / rows.cum_sum(),
    )


def area_of(ranking: pl.DataFrame) -> float | None:
    """Return the area under the ROC curve by trapezoids; None if the class, or the rest, has no rows."""
    x, y = ([0.0, *ranking[name]] for name in ("false_alarms", "found"))
    if None in x or None in y:
        return None
    return float(sum((b - a) * (c + d) / 2 for a, b, c, d in zip(x, x[1:], y, y[1:], strict=False)))


def reliability_chart(forest: Forest, label: Any = None) -> Any:
    """Draw the share of hits against the mean probability, bin by bin, with the diagonal."""
    alt, shown = altair(), shown_classes(forest, label)
    table = _joined({code: reliability_table(forest, code) for code in shown}, shown).with_columns(
        lower=(pl.col("share") - 2 * pl.col("standard_error")).clip(0.0),
        upper=(pl.col("share") + 2 * pl.col("standard_error")).clip(0.0, 1.0),
    )
    base = chart_of(table).encode(
        x=_unit(alt.X, "score", "mean out-of-bag probability"), color=_color(shown), y=_unit(alt.Y, "share", "")
    )
    bars = base.mark_rule().encode(y=_unit(alt.Y, "lower", "share of rows of the class"), y2=alt.Y2("upper"))
    line = base.mark_line(point=True)
    caption = ["bars are two standard errors to each side; rows are unweighted", *_left_out(forest, shown)]
    return finish_chart(_square(_diagonal(), bars, line), "Reliability of the probabilities", caption)


def roc_chart(forest: Forest, label: Any = None) -> Any:
    """Draw true positive rates against false positive rates, a line per class, with areas in the legend."""
    start, shown, tables = pl.DataFrame({"found": 0.0, "false_alarms": 0.0}), shown_classes(forest, label), {}
    for code in shown:
        ranking = ranking_table(forest, code)
        area = area_of(ranking)
        shown[code] += ": unknown" if area is None else f": {area:.4f}"
        tables[code] = pl.concat([start, thinned(ranking)], how="diagonal")
    line = _curve(tables, shown, "false_alarms", "false positive rate", "found", "true positive rate")
    caption = ["the number of a class is the area", _how_ranked(forest), *_left_out(forest, shown)]
    return finish_chart(_square(_diagonal(), line), "ROC out of bag", caption)


def precision_recall_chart(forest: Forest, label: Any = None) -> Any:
    """Draw precision against recall, a line per class."""
    shown = shown_classes(forest, label)
    tables = {code: thinned(ranking_table(forest, code)) for code in shown}
    line = _curve(tables, shown, "found", "recall", "precision", "precision")
    caption = [_how_ranked(forest), *_left_out(forest, shown)]
    return finish_chart(_square(line), "Out-of-bag precision and recall", caption)


def _joined(tables: Mapping[int, pl.DataFrame], shown: Mapping[int, str]) -> pl.DataFrame:
    """Join the tables of the shown classes, with columns label and at, the position of a row in its table."""
    labelled = [table.with_columns(label=pl.lit(shown[code])).with_row_index("at") for code, table in tables.items()]
    return pl.concat(labelled, how="vertical_relaxed")


def _color(shown: Mapping[int, str]) -> Any:
    alt = altair()
    return alt.Color("label:N", title="class", sort=list(shown.values()), legend=alt.Legend(labelLimit=220))


def _how_ranked(forest: Forest) -> str:
    """Return a line of the caption about `ranking_table`. Metrics of the report are weighted if rows have weights."""
    return f"scores in steps of {1 / STEPS:g}" + ("; rows are unweighted" if forest.oob.weighted else "")


def _left_out(forest: Forest, shown: Mapping[int, str]) -> list[str]:
    """Return a line of the caption about the shown classes; none for two classes."""
    classes = len(forest.classes)
    if classes <= 2:
        return []
    most = f"; the {len(shown)} of {classes} with most rows" if 1 < len(shown) < classes else ""
    return [f"each class against the rest{most}"]


def _unit(channel: Any, name: str, title: str) -> Any:
    """Return an axis from 0 to 1; channel: alt.X or alt.Y."""
    return channel(f"{name}:Q", title=title, scale=altair().Scale(domain=[0, 1]))


def _curve(
    tables: Mapping[int, pl.DataFrame], shown: Mapping[int, str], x: str, x_title: str, y: str, y_title: str
) -> Any:
    """Draw a line per class through the rows of its table, in their order."""
    axes = {"x": _unit(altair().X, x, x_title), "y": _unit(altair().Y, y, y_title)}
    lines = chart_of(_joined(tables, shown)).mark_line()
    return lines.encode(**axes, color=_color(shown), order=altair().Order("at:Q"))


def _diagonal() -> Any:
    alt = altair()
    ends = chart_of(pl.DataFrame({"a": [0.0, 1.0], "b": [0.0, 1.0]}))
    return ends.mark_line(color=FAINT, strokeDash=[4, 4]).encode(x=alt.X("a:Q"), y=alt.Y("b:Q"))


def _square(*layers: Any) -> Any:
    return altair().layer(*layers).properties(width=_SIDE, height=_SIDE)
