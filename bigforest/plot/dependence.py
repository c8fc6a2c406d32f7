"""Partial dependence: the mean answer when a feature has a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from bigforest.plot.draw import altair, chart_of, finish_chart, labels_of, most_different, one_line

_COLUMNS = 3
_CLASSES = 6
# Levels that are shown of a category; width of a picture, in pixels.
MOST_LEVELS = 16
_WIDE = 220


def dependence_table(found: pl.DataFrame, feature: str) -> pl.DataFrame:
    """Of the table `dependence` the rows of a feature: value (of numbers) or level (a text), answer, class (a text).

    At most as many classes as there are colours, those whose answer varies most. Of many levels those with the lowest
    and the highest answers for the class whose answer varies most.
    """
    own = found.filter(pl.col("feature") == feature)
    if "class" not in own.columns:
        own = own.with_columns(pl.lit("").alias("class"))
    classes = own["class"].unique(maintain_order=True).to_list()
    names = labels_of(classes)
    spread = {label: own.filter(pl.col("class") == pl.lit(label))["answer"].to_numpy().std() for label in classes}
    kept = sorted(classes, key=lambda label: -spread[label])[:_CLASSES]
    if own["value"].null_count() and own["level"].n_unique() > MOST_LEVELS:
        first = own.filter(pl.col("class") == pl.lit(kept[0]))
        answers = dict(zip(first["level"].to_list(), first["answer"].to_list(), strict=True))
        own = own.filter(pl.col("level").is_in(most_different(answers, MOST_LEVELS), nulls_equal=True))
    pieces = []
    for label, name in zip(classes, names, strict=True):
        if label in kept:
            piece = own.filter(pl.col("class") == pl.lit(label))
            levels = labels_of(piece["level"].to_list()) if piece["value"].null_count() else None
            texts = pl.Series("level", levels if levels else [None] * piece.height, dtype=pl.String)
            pieces.append(piece.select("value", texts, "answer", pl.lit(name).alias("class")))
    return pl.concat(pieces)


def dependence_chart(found: pl.DataFrame, regression: bool, steps: Mapping[str, float] | None = None) -> Any:
    """A small picture per feature, all with the same answers; `steps`: of dates, see `milliseconds`."""
    alt = altair()
    features = found["feature"].unique(maintain_order=True).to_list()
    low, high = float(found["answer"].min()), float(found["answer"].max())  # type: ignore[arg-type]
    room = (high - low) * 0.05 or 0.5
    y = alt.Y(
        field="answer",
        type="quantitative",
        title="prediction" if regression else "probability",
        scale=alt.Scale(domain=[low - room, high + room], zero=False, nice=False),
    )
    charts, left_out = [], False
    for feature in features:
        table = dependence_table(found, feature)
        several = table["class"].n_unique() > 1
        color = {"color": alt.Color(field="class", type="nominal", title="class")} if several else {}
        base = chart_of(table).properties(width=_WIDE, height=150)
        if table["level"].null_count():
            step = (steps or {}).get(feature)
            if step is not None:
                base.data = chart_of(table.with_columns(pl.col("value") * step)).data
            x = alt.X(
                field="value",
                type="quantitative" if step is None else "temporal",
                title=one_line(feature, 30),
                scale=alt.Scale(zero=False) if step is None else alt.Scale(type="utc"),
            )
            charts.append(base.mark_line(interpolate="linear", point=True).encode(x=x, y=y, **color))
        else:
            order = table["level"].unique(maintain_order=True).to_list()
            levels = found.filter(pl.col("feature") == feature)["level"].n_unique()
            some = f", {len(order)} of {levels} levels" if levels > len(order) else ""
            left_out = left_out or bool(some)
            # As steep as 16 lines of text need, and cut before they reach the title where fonts are wide.
            levels = alt.Axis(labelAngle=-60, labelLimit=120, titlePadding=18)
            x = alt.X(field="level", type="nominal", title=f"{one_line(feature, 30)}{some}", sort=order, axis=levels)
            charts.append(base.mark_point(filled=True, size=50).encode(x=x, y=y, **color))
    caption = ["mean prediction over a sample of rows, all with this value"]
    if left_out:
        caption.append("for categories with many levels, those with the lowest and the highest predictions")
    return finish_chart(alt.concat(*charts, columns=_COLUMNS), "Partial dependence", caption)
