"""How good probabilities out of bag are: reliability, ROC and precision-recall, of a class against the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from bigforest.forest.contents import Contents
from bigforest.plot.draw import FAINT, altair, chart_of, finish_chart, labels_of, thinned
from bigforest.schema.labels import label_type, proba_names

# Classes that are shown, of several; bins of probability; steps that scores are rounded to; points that are drawn.
_CLASSES = 6
_BINS = 10
STEPS = 10_000
_POINTS = 300
_SIDE = 320


def shown_classes(forest: Contents) -> list[int]:
    """Codes of the classes that are shown: of two the second, else those with the most rows."""
    if len(forest.classes) == 2:
        return [1]
    rows = forest.oob.metrics["rows"].to_list()[: len(forest.classes)]
    return sorted(sorted(range(len(rows)), key=lambda code: (-rows[code], code))[:_CLASSES])


def _against_rest(forest: Contents, code: int) -> pl.LazyFrame:
    """Columns score and hit of every row out of bag: the probability of the class, and whether it is the true one."""
    label = pl.lit(forest.classes[code]).cast(label_type(forest.spec.target))
    voted = forest.oob.rows.filter(pl.col("trees") > 0)
    return voted.select(score=pl.col(proba_names(forest.spec.target)[code]), hit=pl.col("truth") == label)


def reliability_table(forest: Contents, code: int) -> pl.DataFrame:
    """Columns bin, score (mean), share (of hits), standard_error and rows; bins of equal width without empty ones."""
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


def ranking_table(forest: Contents, code: int) -> pl.DataFrame:
    """Columns score, found, false_alarms and precision: of the rows whose score, rounded down, is this or more.

    found         share of the rows of the class (recall, true positive rate); null where it has none
    false_alarms  share of the other rows (false positive rate); null without other rows
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
    """Area under the ROC curve by trapezoids; None where a class has no rows."""
    x, y = ([0.0, *ranking[name]] for name in ("false_alarms", "found"))
    if None in x or None in y:
        return None
    return float(sum((b - a) * (c + d) / 2 for a, b, c, d in zip(x, x[1:], y, y[1:], strict=False)))


def reliability_chart(forest: Contents) -> Any:
    """Share of hits against the mean probability, bin by bin, beside the diagonal."""
    alt = altair()
    table = _by_class(forest, reliability_table).with_columns(
        lower=(pl.col("share") - 2 * pl.col("standard_error")).clip(0.0),
        upper=(pl.col("share") + 2 * pl.col("standard_error")).clip(0.0, 1.0),
    )
    base = chart_of(table).encode(
        x=_unit(alt.X, "score", "mean out-of-bag probability"), color=_color(forest), y=_unit(alt.Y, "share", "")
    )
    bars = base.mark_rule().encode(y=_unit(alt.Y, "lower", "share of rows of the class"), y2=alt.Y2("upper"))
    line = base.mark_line(point=True)
    caption = ["bars are two standard errors to each side; rows are unweighted", *_left_out(forest)]
    return finish_chart(_square(_diagonal(), bars, line), "Reliability of the probabilities", caption)


def roc_chart(forest: Contents) -> Any:
    """Share of the class that is found against false alarms."""
    start = pl.DataFrame({"found": 0.0, "false_alarms": 0.0})
    rankings = {code: ranking_table(forest, code) for code in shown_classes(forest)}
    areas = {code: area_of(ranking) for code, ranking in rankings.items()}
    texts = {code: "unknown" if area is None else f"{area:.4f}" for code, area in areas.items()}
    table = _by_class(
        forest, lambda _, code: pl.concat([start, thinned(rankings[code], _POINTS)], how="diagonal"), texts
    )
    line = _curve(table, "false_alarms", "false positive rate", "found", "true positive rate", _color(forest, texts))
    caption = [f"the number of a class is the area; scores in steps of {1 / STEPS:g}", *_left_out(forest)]
    return finish_chart(_square(_diagonal(), line), "ROC out of bag", caption)


def precision_recall_chart(forest: Contents) -> Any:
    """Precision against the share of the class that is found."""
    table = _by_class(forest, lambda own, code: thinned(ranking_table(own, code), _POINTS))
    line = _curve(table, "found", "recall", "precision", "precision", _color(forest))
    caption = [f"scores in steps of {1 / STEPS:g}", *_left_out(forest)]
    return finish_chart(_square(line), "Out-of-bag precision and recall", caption)


def _by_class(
    forest: Contents, table: Callable[[Contents, int], pl.DataFrame], texts: dict[int, str] | None = None
) -> pl.DataFrame:
    """The table of each class that is shown, with its label, and the place of the row in it."""
    names = _names(forest, texts)
    found = [
        table(forest, code).with_columns(label=pl.lit(names[code])).with_row_index("at")
        for code in shown_classes(forest)
    ]
    return pl.concat(found, how="vertical_relaxed")


def _names(forest: Contents, texts: dict[int, str] | None) -> dict[int, str]:
    """Names of the classes that are shown, by their codes, each followed by its text."""
    names = labels_of(forest.classes)
    return {code: names[code] + (f": {texts[code]}" if texts else "") for code in shown_classes(forest)}


def _color(forest: Contents, texts: dict[int, str] | None = None) -> Any:
    return altair().Color(
        "label:N",
        title="class",
        sort=list(_names(forest, texts).values()),
        legend=altair().Legend(labelLimit=220),
    )


def _left_out(forest: Contents) -> list[str]:
    shown, classes = len(shown_classes(forest)), len(forest.classes)
    if classes <= 2:
        return []
    return [f"each class against the rest{f'; the {shown} of {classes} with most rows' if shown < classes else ''}"]


def _unit(channel: Any, name: str, title: str) -> Any:
    """An axis from 0 to 1."""
    return channel(f"{name}:Q", title=title, scale=altair().Scale(domain=[0, 1]))


def _curve(table: pl.DataFrame, x: str, x_title: str, y: str, y_title: str, color: Any) -> Any:
    """A line through the rows of each class in their order."""
    axes = {"x": _unit(altair().X, x, x_title), "y": _unit(altair().Y, y, y_title)}
    return chart_of(table).mark_line().encode(**axes, color=color, order=altair().Order("at:Q"))


def _diagonal() -> Any:
    alt = altair()
    ends = chart_of(pl.DataFrame({"a": [0.0, 1.0], "b": [0.0, 1.0]}))
    return ends.mark_line(color=FAINT, strokeDash=[4, 4]).encode(x=alt.X("a:Q"), y=alt.Y("b:Q"))


def _square(*layers: Any) -> Any:
    return altair().layer(*layers).properties(width=_SIDE, height=_SIDE)
