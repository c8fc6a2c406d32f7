"""Contributions of features to predictions: of one row as a waterfall, of many as a swarm of points."""

from __future__ import annotations

from math import floor, log10
from typing import Any

import numpy as np
import polars as pl

from bigforest.columns.types import cells
from bigforest.errors import counted
from bigforest.plot.draw import (
    COLORS,
    FAINT,
    HEIGHT,
    INK,
    WIDTH,
    altair,
    chart_of,
    finish_chart,
    labels_of,
    number_text,
    one_line,
)

_STEPS = 10
_FEATURES = 15
# Bins of the axis, in which points are drawn next to each other.
_BINS = 80
_PREFIX = "c_"


def waterfall_table(contributions: pl.DataFrame, values: dict[str, Any], most: int = _STEPS) -> pl.DataFrame:
    """Return columns step (a text), begin, end and change, from the base to the prediction, the largest changes first.

    contributions  the row of the table of contributions.
    values         values of the row, by feature.
    """
    row = contributions.row(0, named=True)
    changes = {name.removeprefix(_PREFIX): row[name] for name in contributions.columns if name.startswith(_PREFIX)}
    ranked = sorted(changes, key=lambda name: -abs(changes[name]))
    steps = [(f"{one_line(name, 24)} = {one_line(values.get(name), 14)}", changes[name]) for name in ranked[:most]]
    rest = ranked[most:]
    if rest:
        steps.append(("1 other" if len(rest) == 1 else f"{len(rest)} others", sum(changes[name] for name in rest)))
    texts, changed = labels_of([text for text, _ in steps]), np.array([change for _, change in steps])
    ends = row["base"] + np.cumsum(changed)
    return pl.DataFrame({"step": texts, "begin": ends - changed, "end": ends, "change": changed})


def waterfall_chart(contributions: pl.DataFrame, values: dict[str, Any], row: int, scale_name: str) -> Any:
    """Draw bars from the base to the prediction; scale_name: see explain/boosted_stage.py."""
    alt = altair()
    table = waterfall_table(contributions, values)
    first = contributions.row(0, named=True)
    base = chart_of(table).encode(y=alt.Y("step:N", title=None, sort=table["step"].to_list()))
    ends = table["begin"].to_list() + table["end"].to_list()
    room = (max(ends) - min(ends)) * 0.12 or 0.1
    scale = alt.Scale(domain=[min(ends) - room, max(ends) + room], zero=False, nice=False)
    bars = base.mark_bar().encode(
        x=alt.X("begin:Q", title=scale_name, scale=scale),
        x2=alt.X2("end"),
        color=alt.condition("datum.change > 0", alt.value(COLORS[0]), alt.value(COLORS[4])),
    )
    text = base.mark_text(align="left", dx=4, color=INK).encode(
        x=alt.X("right:Q", scale=scale),
        text=alt.Text("label:N"),
    )
    largest = float(table["change"].abs().max() or 1.0)  # type: ignore[arg-type]
    decimals = 2 - floor(log10(largest))  # three digits of the largest, and as many decimals of the others
    labels = pl.Series("label", [number_text(round(change, decimals), 3, "+") for change in table["change"]], pl.String)
    text.data = chart_of(table.with_columns(labels, right=pl.max_horizontal("begin", "end"))).data
    whose = f" for class {one_line(first['class'])}" if first.get("class") is not None else ""
    base_text, prediction = (number_text(first[name]) for name in ("base", "prediction"))
    caption = [f"from {base_text}, the {scale_name} without any feature, to {prediction}{whose}"]
    chart = alt.layer(bars, text).properties(width=WIDTH)
    return finish_chart(chart, f"Contributions to the prediction of row {row}", caption)


def swarm_table(contributions: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return columns feature (a text), change, offset (of neighbouring points) and level, of the features that add
    most.

    level  of numbers and dates the share of the rows with a smaller value, the mean of ties; null of others and where
           missing.
    rows   the rows that are explained, in their order.
    """
    names = [name for name in contributions.columns if name.startswith(_PREFIX)]
    sizes = {name: float(np.abs(contributions[name].to_numpy()).mean()) for name in names}
    ranked = sorted(names, key=lambda name: -sizes[name])[:_FEATURES]
    texts = labels_of([name.removeprefix(_PREFIX) for name in ranked])
    largest = max((float(np.abs(contributions[name].to_numpy()).max()) for name in ranked), default=0.0) or 1.0
    pieces = []
    for name, text in zip(ranked, texts, strict=True):
        change = contributions[name].to_numpy()
        offset = _offsets(np.round(change / largest * _BINS / 2).astype(np.int64))
        values = cells(rows, name.removeprefix(_PREFIX)) if name.removeprefix(_PREFIX) in rows.columns else None
        level = pl.Series([None] * change.size, dtype=pl.Float64)
        if values is not None and (values.dtype.is_numeric() or values.dtype.is_temporal()):
            values = values.to_physical().cast(pl.Float64).fill_nan(None)
            level = (values.rank("average") - 1) / max(1, values.count() - 1)
        pieces.append(
            pl.DataFrame({"feature": [text] * change.size, "change": change, "offset": offset, "level": level})
        )
    return pl.concat(pieces)


def _offsets(bins: Any) -> Any:
    """Return offsets of the points of one bin: 0, 1, -1, 2, -2, ..., pressed together where there are many: from -1 to
    1."""
    offset = np.zeros(bins.size)
    largest = 1
    for place in np.unique(bins):
        inside = np.flatnonzero(bins == place)
        number = np.arange(inside.size)
        offset[inside] = np.where(number % 2 == 1, (number + 1) // 2, -(number // 2))
        largest = max(largest, inside.size // 2)
    return offset / max(largest, 6)


def swarm_chart(contributions: pl.DataFrame, rows: pl.DataFrame, of: int, scale_name: str) -> Any:
    """Draw a point per row and feature. `of`: rows of the table they were drawn from; scale_name: see
    explain/boosted_stage.py."""
    alt = altair()
    table = swarm_table(contributions, rows)
    order = table["feature"].unique(maintain_order=True).to_list()
    has_level = pl.col("level").is_not_null()
    color = alt.Color(
        "level:Q",
        title="value",
        scale=alt.Scale(domain=[0, 1], range=[COLORS[0], COLORS[4]]),
        legend=alt.Legend(labelExpr="datum.value == 0 ? 'low' : datum.value == 1 ? 'high' : ''", values=[0, 1]),
    )
    adds = f"contribution of the feature to the {scale_name}"

    def points(part: pl.DataFrame, color: Any) -> Any:
        return (
            chart_of(part)
            .mark_circle(size=12, opacity=0.7)
            .encode(
                x=alt.X("change:Q", title=adds),
                y=alt.Y("feature:N", title=None, sort=order),
                yOffset=alt.YOffset("offset:Q", scale=alt.Scale(domain=[-1.4, 1.4])),
                color=color,
            )
        )

    # Without a level the scale of colours would give the lowest one.
    layers = [
        points(part, colored)
        for part, colored in ((table.filter(~has_level), alt.value(FAINT)), (table.filter(has_level), color))
        if part.height
    ]
    zero = chart_of(pl.DataFrame({"at": [0.0]})).mark_rule(color=FAINT).encode(x=alt.X("at:Q"))
    drawn = counted(rows.height, "row") + (f", drawn from {of:,}" if of > rows.height else "")
    label = contributions["class"][0] if "class" in contributions.columns else None
    whose = f" for class {one_line(label)}" if label is not None else ""
    chart = alt.layer(zero, *layers).properties(width=WIDTH, height=max(HEIGHT // 2, 34 * len(order)))
    return finish_chart(
        chart, f"Contributions of features to predictions{whose}", [f"{drawn}; categories and missing values are grey"]
    )
