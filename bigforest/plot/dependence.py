"""Partial dependence: the mean answer when a feature has a value."""

from __future__ import annotations

from typing import Any

import polars as pl

from bigforest.plot.draw import altair, chart_of, finished, labels_of, one_line

_COLUMNS = 3
_CLASSES = 6


def dependence_table(found: pl.DataFrame, feature: str) -> pl.DataFrame:
    """Of the table `dependence` the rows of a feature: value (of numbers) or level (a text), answer, class (a text).

    At most as many classes as there are colours, those whose answer varies most.
    """
    own = found.filter(pl.col("feature") == feature)
    if "class" not in own.columns:
        own = own.with_columns(pl.lit("").alias("class"))
    classes = own["class"].unique(maintain_order=True).to_list()
    names = labels_of(classes)
    spread = {label: own.filter(pl.col("class") == pl.lit(label))["answer"].to_numpy().std() for label in classes}
    kept = sorted(classes, key=lambda label: -spread[label])[:_CLASSES]
    pieces = []
    for label, name in zip(classes, names, strict=True):
        if label in kept:
            piece = own.filter(pl.col("class") == pl.lit(label))
            levels = labels_of(piece["level"].to_list()) if piece["value"].null_count() else None
            texts = pl.Series("level", levels if levels else [None] * piece.height, dtype=pl.String)
            pieces.append(piece.select("value", texts, "answer", pl.lit(name).alias("class")))
    return pl.concat(pieces)


def dependence_chart(found: pl.DataFrame, numbers: bool) -> Any:
    """A small picture per feature, all with the same answers."""
    alt = altair()
    features = found["feature"].unique(maintain_order=True).to_list()
    low, high = float(found["answer"].min()), float(found["answer"].max())  # type: ignore[arg-type]
    room = (high - low) * 0.05 or 0.5
    y = alt.Y(
        field="answer",
        type="quantitative",
        title="answer" if numbers else "probability",
        scale=alt.Scale(domain=[low - room, high + room], zero=False, nice=False),
    )
    charts = []
    for feature in features:
        table = dependence_table(found, feature)
        several = table["class"].n_unique() > 1
        color = {"color": alt.Color(field="class", type="nominal", title="class")} if several else {}
        base = chart_of(table).properties(width=200, height=150)
        if table["level"].null_count():
            x = alt.X(field="value", type="quantitative", title=one_line(feature, 30), scale=alt.Scale(zero=False))
            charts.append(base.mark_line(interpolate="linear", point=True).encode(x=x, y=y, **color))
        else:
            order = table["level"].unique(maintain_order=True).to_list()
            x = alt.X(field="level", type="nominal", title=one_line(feature, 30), sort=order)
            charts.append(base.mark_point(filled=True, size=50).encode(x=x, y=y, **color))
    caption = ["mean over a sample of rows of the answer when all have this value"]
    return finished(alt.concat(*charts, columns=_COLUMNS), "Partial dependence", caption)
