"""Partial dependence: the mean prediction when a feature has a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from bigforest.plot.draw import altair, chart_of, finish_chart, most_different, one_line, texts_of

_COLUMNS = 3
_CLASSES = 6
# Levels that are shown of a category; width of a picture, in pixels.
MOST_LEVELS = 16
_WIDE = 220


def dependence_table(found: pl.DataFrame, feature: str) -> pl.DataFrame:
    """The rows of a feature in the table `dependence`: value (of numbers) or level (text), prediction, class (text).

    Of many levels those with the lowest and the highest predictions for the class whose prediction varies most.
    """
    own = found.filter(pl.col("feature") == feature)
    levels: pl.Expr | pl.Series = pl.lit(None, pl.String).alias("level")
    if own["value"].null_count():
        if own["level"].n_unique() > MOST_LEVELS:
            first = own.filter(pl.col("class") == pl.lit(_by_variation(own)[0]))
            predictions = dict(zip(first["level"].to_list(), first["prediction"].to_list(), strict=True))
            own = own.filter(pl.col("level").is_in(most_different(predictions, MOST_LEVELS), nulls_equal=True))
        levels = texts_of(own["level"])
    return own.select("value", levels, "prediction", texts_of(own["class"]))


def _by_variation(found: pl.DataFrame) -> list[Any]:
    """The classes, those whose predictions vary most with some feature first."""
    spread = found.group_by("class", "feature", maintain_order=True).agg(pl.col("prediction").std(ddof=0))
    largest = spread.group_by("class", maintain_order=True).agg(pl.col("prediction").max())
    return largest.sort("prediction", descending=True, maintain_order=True)["class"].to_list()


def dependence_chart(found: pl.DataFrame, regression: bool, steps: Mapping[str, float]) -> Any:
    """A small picture per feature, all on the same scale; `steps`: of dates, see `milliseconds`."""
    alt = altair()
    if "class" not in found.columns:
        found = found.with_columns(pl.lit("").alias("class"))
    kept = _by_variation(found)[:_CLASSES]
    found = found.filter(pl.any_horizontal(pl.col("class") == pl.lit(label) for label in kept))
    features = found["feature"].unique(maintain_order=True).to_list()
    low, high = float(found["prediction"].min()), float(found["prediction"].max())  # type: ignore[arg-type]
    room = (high - low) * 0.05 or 0.5
    y = alt.Y(
        "prediction:Q",
        title="prediction" if regression else "probability",
        scale=alt.Scale(domain=[low - room, high + room], zero=False, nice=False),
    )
    charts, left_out = [], False
    for feature in features:
        table = dependence_table(found, feature)
        color = {"color": alt.Color("class:N", title="class")} if len(kept) > 1 else {}
        base = chart_of(table).properties(width=_WIDE, height=150)
        if table["level"].null_count():
            step = steps.get(feature)
            if step is not None:
                base.data = chart_of(table.with_columns(pl.col("value") * step)).data
            x = alt.X(
                "value:Q" if step is None else "value:T",
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
            x = alt.X("level:N", title=f"{one_line(feature, 30)}{some}", sort=order, axis=levels)
            charts.append(base.mark_point(filled=True, size=50).encode(x=x, y=y, **color))
    caption = ["mean prediction over a sample of rows, all with this value"]
    if left_out:
        caption.append("for categories with many levels, those with the lowest and the highest predictions")
    only = kept[0] if len(kept) == 1 and not regression else ""
    title = f"Partial dependence for class {one_line(only)}" if only != "" else "Partial dependence"
    return finish_chart(alt.concat(*charts, columns=_COLUMNS), title, caption)
