"""Predictions by the values of features: partial dependence, pairs that interact, and surfaces over two features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from bigforest.errors import counted
from bigforest.plot.draw import (
    DEEP,
    PALE,
    altair,
    chart_of,
    finish_chart,
    most_different,
    one_line,
    texts_of,
)

_COLUMNS = 3
_CLASSES = 6
# Levels that are shown of a category; width of a picture, in pixels.
MOST_LEVELS = 16
_WIDE = 220


def dependence_table(curves: pl.DataFrame, feature: str) -> pl.DataFrame:
    """Return the rows of a feature in the table `dependence`: value (of numbers) or level (text), prediction, class
    (text).

    Of many levels those with the lowest and the highest predictions for the class whose prediction varies most.
    """
    table = curves.filter(pl.col("feature") == feature)
    levels: pl.Expr | pl.Series = pl.lit(None, pl.String).alias("level")
    if table["value"].null_count():
        if table["level"].n_unique() > MOST_LEVELS:
            first = table.filter(pl.col("class") == pl.lit(_classes_by_variation(table)[0]))
            predictions = dict(zip(first["level"].to_list(), first["prediction"].to_list(), strict=True))
            table = table.filter(pl.col("level").is_in(most_different(predictions, MOST_LEVELS), nulls_equal=True))
        levels = texts_of(table["level"])
    return table.select("value", levels, "prediction", texts_of(table["class"]))


def _classes_by_variation(curves: pl.DataFrame) -> list[Any]:
    """Return the classes, first the class whose predictions vary most with some feature."""
    spread = curves.group_by("class", "feature", maintain_order=True).agg(pl.col("prediction").std(ddof=0))
    largest = spread.group_by("class", maintain_order=True).agg(pl.col("prediction").max())
    return largest.sort("prediction", descending=True, maintain_order=True)["class"].to_list()


def dependence_chart(curves: pl.DataFrame, regression: bool, steps: Mapping[str, float]) -> Any:
    """Draw a small picture per feature, all on the same scale; `steps`: of dates, see `milliseconds`."""
    alt = altair()
    if "class" not in curves.columns:
        curves = curves.with_columns(pl.lit("").alias("class"))
    kept = _classes_by_variation(curves)[:_CLASSES]
    curves = curves.filter(pl.any_horizontal(pl.col("class") == pl.lit(label) for label in kept))
    features = curves["feature"].unique(maintain_order=True).to_list()
    low, high = float(curves["prediction"].min()), float(curves["prediction"].max())  # type: ignore[arg-type]
    room = (high - low) * 0.05 or 0.5
    y = alt.Y(
        "prediction:Q",
        title="prediction" if regression else "probability",
        scale=alt.Scale(domain=[low - room, high + room], zero=False, nice=False),
    )
    charts, left_out = [], False
    for feature in features:
        table = dependence_table(curves, feature)
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
            levels = curves.filter(pl.col("feature") == feature)["level"].n_unique()
            shown = f", {len(order)} of {levels} levels" if levels > len(order) else ""
            left_out = left_out or bool(shown)
            # As steep as 16 lines of text need, and cut before they reach the title where fonts are wide.
            levels = alt.Axis(labelAngle=-60, labelLimit=120, titlePadding=18)
            x = alt.X("level:N", title=f"{one_line(feature, 30)}{shown}", sort=order, axis=levels)
            charts.append(base.mark_point(filled=True, size=50).encode(x=x, y=y, **color))
    caption = ["mean prediction over a sample of rows, all with this value"]
    if left_out:
        caption.append("for categories with many levels, those with the lowest and the highest predictions")
    only = kept[0] if len(kept) == 1 and not regression else ""
    title = f"Partial dependence for class {one_line(only)}" if only != "" else "Partial dependence"
    return finish_chart(alt.concat(*charts, columns=_COLUMNS), title, caption)


# Features of the picture of interactions, at most.
_FEATURES = 15
# Levels of a category on a surface, at most.
_LEVELS = 30


def pairs_table(interactions: pl.DataFrame, most: int = _FEATURES) -> pl.DataFrame:
    """Return columns feature, other (texts) and interaction, both orders of a pair, of the features that interact most.

    interactions  the table `interaction-pairs`, of one class.
    """
    pairs = interactions.filter(pl.col("feature") != pl.col("other")).select("feature", "other", "interaction")
    both = pl.concat([pairs, pairs.select(feature="other", other="feature", interaction="interaction")])
    sums = both.group_by("feature", maintain_order=True).agg(pl.col("interaction").sum())
    kept = sums.sort("interaction", descending=True, maintain_order=True)["feature"].head(most).to_list()
    table = both.filter(pl.col("feature").is_in(kept) & pl.col("other").is_in(kept))
    table = table.sort(pl.col("feature").cast(pl.Enum(kept)), maintain_order=True)
    return table.with_columns(texts_of(table[column], kept) for column in ("feature", "other"))


def interactions_chart(interactions: pl.DataFrame, rows: int) -> Any:
    """Draw cells whose colour is the mean size of what a pair adds beyond its features."""
    alt = altair()
    table = pairs_table(interactions)
    order = table["feature"].unique(maintain_order=True).to_list()
    label = interactions["class"][0] if "class" in interactions.columns and interactions.height else None
    whose = f" for class {one_line(label)}" if label is not None else ""
    side = max(160, 28 * len(order) + 40)
    cells = (
        chart_of(table)
        .mark_rect()
        .encode(
            x=alt.X("feature:N", title=None, sort=order, axis=alt.Axis(labelAngle=-40)),
            y=alt.Y("other:N", title=None, sort=order),
            color=alt.Color(
                "interaction:Q",
                title="mean |interaction|",
                scale=alt.Scale(domainMin=0, range=[PALE, DEEP]),
            ),
        )
    )
    caption = [
        f"contribution of a pair beyond its single features, over {counted(rows, 'row')}",
        "pairs without a common path are empty",
    ]
    return finish_chart(cells.properties(width=side, height=side), f"Interactions{whose}", caption)


def surface_table(surfaces: pl.DataFrame, feature: str, other: str) -> pl.DataFrame:
    """Return the rows of a pair in `dependence-pairs`: x, y (numbers or texts) and prediction; right, top of numbers.

    Cells of numbers go from x to right, from y to top; they reach to the middle between neighbouring values. Of a
    category of many levels those with the lowest and the highest mean predictions are there.
    """
    table = surfaces.filter((pl.col("feature_a") == feature) & (pl.col("feature_b") == other))
    for side in ("a", "b"):
        levels = f"level_{side}"
        if table[f"value_{side}"].null_count() and table[levels].n_unique() > _LEVELS:
            means = table.group_by(levels, maintain_order=True).agg(pl.col("prediction").mean())
            kept = most_different(dict(means.iter_rows()), _LEVELS)
            table = table.filter(pl.col(levels).is_in(kept, nulls_equal=True))
    columns: dict[str, pl.Series] = {"prediction": table["prediction"]}
    for name, end, suffix in (("x", "right", "a"), ("y", "top", "b")):
        value, level = table[f"value_{suffix}"], table[f"level_{suffix}"]
        if value.null_count():
            columns[name] = texts_of(level)
            continue
        values = np.unique(value.to_numpy())
        edges = np.concatenate([values[:1], (values[1:] + values[:-1]) / 2, values[-1:]])
        at = np.searchsorted(values, value.to_numpy())
        columns[name], columns[end] = pl.Series(edges[at]), pl.Series(edges[at + 1])
    return pl.DataFrame(columns)


def surface_chart(
    surfaces: pl.DataFrame,
    feature: str,
    other: str,
    label: Any,
    regression: bool,
    steps: Mapping[str, float],
) -> Any:
    """Draw the mean prediction over the values of two features; `steps`: of dates, see `milliseconds`."""
    alt = altair()
    table = surface_table(surfaces, feature, other)
    axes: dict[str, Any] = {}
    for name, end, level, title in (("x", "right", "level_a", feature), ("y", "top", "level_b", other)):
        axis = alt.X if name == "x" else alt.Y
        text = one_line(title, 30)
        if end in table.columns:
            step = steps.get(title)
            if step is not None:
                table = table.with_columns(pl.col(name, end) * step)
            scale = alt.Scale(zero=False, nice=False) if step is None else alt.Scale(type="utc", nice=False)
            axes[name] = axis(f"{name}:{'Q' if step is None else 'T'}", title=text, scale=scale)
            axes[f"{name}2"] = end
        else:
            levels = table[name].unique(maintain_order=True).to_list()
            of = surfaces[level].n_unique()
            text += f", {len(levels)} of {of} levels" if of > len(levels) else ""
            sloping = {"axis": alt.Axis(labelAngle=-40)} if name == "x" else {}
            axes[name] = axis(f"{name}:N", title=text, sort=levels, **sloping)
    title = "prediction" if regression else "probability"
    color = alt.Color("prediction:Q", title=title, scale=alt.Scale(range=[PALE, DEEP], zero=False))
    whose = f" of class {one_line(label)}" if label is not None else ""
    caption = [f"mean {title}{whose} over a sample of rows, all with these two values"]
    cells = chart_of(table).mark_rect().encode(color=color, **axes)
    return finish_chart(cells.properties(width=340, height=300), "Predictions over two features", caption)
