"""The out-of-bag confusion matrix: from the report of a forest to a table, and to a chart."""

from __future__ import annotations

from typing import Any

import polars as pl

from bigforest.forest.contents import Contents
from bigforest.plot.draw import DEEP, OTHERS, PALE, altair, chart_of, finish_chart, labels_of, texts_of

# Classes that are shown by themselves.
MOST_CLASSES = 20


def confusion_table(forest: Contents, most: int = MOST_CLASSES) -> pl.DataFrame:
    """Columns truth, prediction (texts), rows, and share: of the rows of the true class, by weight.

    Of more than `most` classes those with the most wrong rows are shown by themselves, the others together.
    """
    found = forest.oob.confusion
    assert found is not None
    wrong = found.filter(pl.col("truth") != pl.col("prediction"))
    ends = pl.concat([wrong.select("truth", "rows"), wrong.select(truth="prediction", rows="rows")])
    sums = dict(ends.group_by("truth").agg(pl.col("rows").sum()).iter_rows())
    shown = forest.classes
    if len(shown) > most:
        ranked = sorted(range(len(shown)), key=lambda code: (-sums.get(shown[code], 0), code))[:most]
        shown = [shown[code] for code in sorted(ranked)]
    table = found.with_columns(texts_of(found[column], shown) for column in ("truth", "prediction"))
    table = table.group_by("truth", "prediction", maintain_order=True).agg(pl.col("rows", "weight").sum())
    share = pl.col("weight") / pl.col("weight").sum().over("truth")
    return table.select("truth", "prediction", "rows", share=share)


def confusion_chart(forest: Contents) -> Any:
    """Cells whose colour is the share of the true class, with the number of rows in them."""
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
