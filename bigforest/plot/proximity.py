"""Rows as points: near each other where the forest takes them for alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.errors import counted
from bigforest.plot.draw import COLORS, FAINT, OTHERS, altair, chart_of, finish_chart, one_line, texts_of

# Columns of the matrix that are multiplied at a time.
_COLUMNS = 4096
# Classes that have a colour of their own.
_CLASSES = 7


def coordinates(neighbors: pl.DataFrame) -> tuple[pl.Series, NDArray[np.float64], float]:
    """Return rows, their two coordinates, float64 [rows, 2], and the share of the scatter that these have.

    neighbors  the table of the same name.

    Classical scaling of the Hellinger distances between the proximities of rows: of the matrix of their square roots,
    the first two principal components. The proximities of the drawn rows to each other do not suffice: in a large table
    they are mostly 0, even for two rows that have the same neighbors. On each axis, the coordinate of the largest size
    is positive, so that a picture can be repeated.
    """
    rows = neighbors["row"].unique().sort()
    at = rows.search_sorted(neighbors["row"]).to_numpy()
    _, column = np.unique(neighbors["neighbor"].to_numpy(), return_inverse=True)
    order = np.argsort(column, kind="stable")
    at, column, value = at[order], column[order], np.sqrt(neighbors["proximity"].to_numpy())[order]
    gram = np.zeros((rows.len(), rows.len()))
    for first in range(0, int(column.max(initial=-1)) + 1, _COLUMNS):
        begin, end = np.searchsorted(column, [first, first + _COLUMNS])
        piece = np.zeros((rows.len(), _COLUMNS))
        piece[at[begin:end], column[begin:end] - first] = value[begin:end]
        gram += piece @ piece.T
    centred = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
    sizes, vectors = np.linalg.eigh(centred)
    sizes, vectors = np.maximum(sizes[::-1], 0.0), vectors[:, ::-1]
    axes = np.zeros((rows.len(), 2))
    for axis in range(min(2, rows.len())):
        coordinate = vectors[:, axis] * np.sqrt(sizes[axis])
        axes[:, axis] = coordinate if coordinate[np.abs(coordinate).argmax()] >= 0 else -coordinate
    return rows, axes, float(sizes[:2].sum() / sizes.sum()) if sizes.sum() > 0 else 0.0


def map_table(neighbors: pl.DataFrame, target: pl.Series, classes: bool) -> tuple[pl.DataFrame, float]:
    """Return columns row, x, y and target (a text of classes, else a number), and the share of the scatter.

    target  of all rows of the table.
    """
    rows, place, share = coordinates(neighbors)
    values = target.alias("").gather(rows)  # as in `cells`
    if classes:
        counts = values.value_counts(sort=True)[""].to_list()
        values = texts_of(values, sorted(counts[:_CLASSES], key=str))
    else:
        values = values.cast(pl.Float64)
    return pl.DataFrame({"row": rows, "x": place[:, 0], "y": place[:, 1], "target": values}), share


def map_chart(neighbors: pl.DataFrame, target: pl.Series, classes: bool, of: int) -> Any:
    """Draw a point per row, coloured by its target. `of`: rows of the table that they were drawn from."""
    alt = altair()
    table, share = map_table(neighbors, target, classes)
    title = one_line(target.name, 24)
    if classes:
        order = sorted(set(table["target"]) - {OTHERS}) + ([OTHERS] if OTHERS in set(table["target"]) else [])
        colors = [FAINT if name == OTHERS else COLORS[at % len(COLORS)] for at, name in enumerate(order)]
        color = alt.Color("target:N", title=title, sort=order, scale=alt.Scale(domain=order, range=colors))
    else:
        color = alt.Color("target:Q", title=title, scale=alt.Scale(range=[COLORS[0], COLORS[1]], zero=False))
    axis = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
    points = (
        chart_of(table)
        .mark_circle(size=28, opacity=0.75)
        .encode(
            x=alt.X("x:Q", title=None, axis=axis, scale=alt.Scale(zero=False)),
            y=alt.Y("y:Q", title=None, axis=axis, scale=alt.Scale(zero=False)),
            color=color,
            tooltip=[alt.Tooltip("row:Q"), alt.Tooltip(field="target", type=color["type"])],
        )
    )
    drawn = counted(table.height, "row") + (f", drawn from {of:,}" if of > table.height else "")
    caption = [
        f"{drawn}; {share:.0%} of their scatter",
        "rows with large proximities (RF-GAP) are close to each other",
    ]
    return finish_chart(points.properties(width=400, height=360), "Map of rows by proximity", caption)
