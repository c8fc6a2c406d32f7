"""Charts of explanations: dependence on features, interactions, contributions, importance, and a map of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import floor, log10
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.types import cells
from bigforest.errors import counted
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
    most_different,
    number_text,
    one_line,
    texts_of,
)

# Small charts side by side in the plot of dependence, and most classes in them.
_COLUMNS = 3
_CLASSES = 6
# Most levels of a category that are shown; width of the small chart of a feature, in pixels.
MOST_LEVELS = 16
_WIDE = 220


def dependence_table(curves: pl.DataFrame, feature: str) -> pl.DataFrame:
    """Return the partial dependence on a feature: columns value, level (text), prediction and class (text).

    curves  the table `dependence`

    For a category, `value` is null; for a number, `level` is null. If there are more than MOST_LEVELS levels, return
    those with the lowest and the highest predictions for the class whose prediction varies most with this feature.
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
    """Return the classes by the variation of their predictions, descending.

    The variation of a class is the largest standard deviation of its prediction along a feature.
    """
    spread = curves.group_by("class", "feature", maintain_order=True).agg(pl.col("prediction").std(ddof=0))
    largest = spread.group_by("class", maintain_order=True).agg(pl.col("prediction").max())
    return largest.sort("prediction", descending=True, maintain_order=True)["class"].to_list()


def dependence_chart(curves: pl.DataFrame, regression: bool, steps: Mapping[str, float]) -> Any:
    """Draw a small chart per feature, all with the same y axis; steps: units of dates, see `milliseconds`.

    Only the _CLASSES classes whose predictions vary most are drawn.
    """
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
        step = steps.get(feature)
        if step is not None:
            table = table.with_columns(pl.col("value") * step)
        color = {"color": alt.Color("class:N", title="class")} if len(kept) > 1 else {}
        base = chart_of(table).properties(width=_WIDE, height=150)
        if table["level"].null_count():
            x = _number_axis(alt.X, "value", feature, step)
            charts.append(base.mark_line(interpolate="linear", point=True).encode(x=x, y=y, **color))
        else:
            of = curves.filter(pl.col("feature") == feature)["level"].n_unique()
            left_out = left_out or of > table["level"].n_unique()
            # 16 lines of text need this angle. Long labels are cut, so that in wide fonts they do not reach the title.
            axis = alt.Axis(labelAngle=-60, labelLimit=120, titlePadding=18)
            x = _level_axis(alt.X, table["level"], feature, of, axis=axis)
            charts.append(base.mark_point(filled=True, size=50).encode(x=x, y=y, **color))
    caption = ["mean prediction over a sample of rows, all with this value"]
    if left_out:
        caption.append("for categories with many levels, those with the lowest and the highest predictions")
    only = kept[0] if len(kept) == 1 and not regression else ""
    title = f"Partial dependence for class {one_line(only)}" if only != "" else "Partial dependence"
    return finish_chart(alt.concat(*charts, columns=_COLUMNS), title, caption)


def _number_axis(channel: Any, name: str, feature: str, step: float | None, **scale: Any) -> Any:
    """Return the axis of the values of a feature of numbers or dates.

    channel  alt.X or alt.Y
    name     column of the values; for dates in milliseconds
    step     unit of the dates (`milliseconds`); None for numbers
    """
    kind, scale = ("Q", {"zero": False, **scale}) if step is None else ("T", {"type": "utc", **scale})
    return channel(f"{name}:{kind}", title=one_line(feature, 30), scale=altair().Scale(**scale))


def _level_axis(channel: Any, levels: pl.Series, feature: str, of: int, **options: Any) -> Any:
    """Return the axis of the levels of a feature, in the order of the column `levels`.

    channel  alt.X or alt.Y
    of       number of levels of the feature, of which some may be left out
    """
    order = levels.unique(maintain_order=True).to_list()
    shown = f", {len(order)} of {of} levels" if of > len(order) else ""
    return channel(f"{levels.name}:N", title=f"{one_line(feature, 30)}{shown}", sort=order, **options)


def _for_class(table: pl.DataFrame) -> str:
    """Return the end of a title that names the class of a table about a single class; empty for regression."""
    label = table["class"][0] if "class" in table.columns and table.height else None
    return "" if label is None else f" for class {one_line(label)}"


def _drawn_rows(rows: int, of: int) -> str:
    """Return the beginning of a caption: the number of drawn rows, and of all rows that they were drawn from."""
    return counted(rows, "row") + (f", drawn from {of:,}" if of > rows else "")


# Most features in the plot of interactions.
_FEATURES = 15
# Most levels of a category on a surface.
_LEVELS = 30


def pairs_table(interactions: pl.DataFrame, most: int = _FEATURES) -> pl.DataFrame:
    """Return columns feature, other (texts) and interaction, for pairs of the `most` features that interact most.

    interactions  the table `interaction-pairs`, of one class.

    Each pair is in two rows, one for each order.
    """
    pairs = interactions.filter(pl.col("feature") != pl.col("other")).select("feature", "other", "interaction")
    both = pl.concat([pairs, pairs.select(feature="other", other="feature", interaction="interaction")])
    sums = both.group_by("feature", maintain_order=True).agg(pl.col("interaction").sum())
    kept = sums.sort("interaction", descending=True, maintain_order=True)["feature"].head(most).to_list()
    table = both.filter(pl.col("feature").is_in(kept) & pl.col("other").is_in(kept))
    table = table.sort(pl.col("feature").cast(pl.Enum(kept)), maintain_order=True)
    return table.with_columns(texts_of(table[column], kept) for column in ("feature", "other"))


def interactions_chart(interactions: pl.DataFrame, rows: int) -> Any:
    """Draw a cell for each pair of features. Its colour is the mean absolute interaction; rows: number of rows."""
    alt = altair()
    table = pairs_table(interactions)
    order = table["feature"].unique(maintain_order=True).to_list()
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
    return finish_chart(cells.properties(width=side, height=side), f"Interactions{_for_class(interactions)}", caption)


def surface_table(surfaces: pl.DataFrame, feature: str, other: str) -> pl.DataFrame:
    """Return the cells of a surface: columns x, y and prediction; for numbers also right and top.

    surfaces  the table `dependence-pairs`

    For a category, x or y is a level. For numbers, a cell goes from x to right, or from y to top. Edges between cells
    are midpoints of neighbouring values; the outer edges are the lowest and the highest value. If a category has more
    than _LEVELS levels, return those with the lowest and the highest mean predictions.
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
    steps: Mapping[str, float],
) -> Any:
    """Draw the mean prediction by the values of two features.

    label  class whose probability is drawn; None for regression
    steps  units of dates, see `milliseconds`
    """
    alt = altair()
    table = surface_table(surfaces, feature, other)
    axes: dict[str, Any] = {}
    for name, end, level, title in (("x", "right", "level_a", feature), ("y", "top", "level_b", other)):
        axis = alt.X if name == "x" else alt.Y
        if end in table.columns:
            step = steps.get(title)
            if step is not None:
                table = table.with_columns(pl.col(name, end) * step)
            axes |= {name: _number_axis(axis, name, title, step, nice=False), f"{name}2": end}
        else:
            sloping = {"axis": alt.Axis(labelAngle=-40)} if name == "x" else {}
            axes[name] = _level_axis(axis, table[name], title, surfaces[level].n_unique(), **sloping)
    title = "prediction" if label is None else "probability"
    color = alt.Color("prediction:Q", title=title, scale=alt.Scale(range=[PALE, DEEP], zero=False))
    whose = f" of class {one_line(label)}" if label is not None else ""
    caption = [f"mean {title}{whose} over a sample of rows, all with these two values"]
    cells = chart_of(table).mark_rect().encode(color=color, **axes)
    return finish_chart(cells.properties(width=340, height=300), "Predictions over two features", caption)


# Most features with a step of their own in a waterfall, and most features in a swarm.
_STEPS = 10
_CONTRIBUTING = 15
# Bins of the axis of a swarm. Points of the same bin are drawn next to each other.
_BINS = 80
# Prefix of the columns of contributions.
_PREFIX = "c_"


def waterfall_table(contributions: pl.DataFrame, values: dict[str, Any], most: int = _STEPS) -> pl.DataFrame:
    """Return columns step (a text), begin, end and change, from the base to the prediction, the largest changes first.

    contributions  the table of contributions, of a single row.
    values         values of the row, by feature.
    most           number of features with a step of their own; all others share one more step.
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
    """Draw bars from the base to the prediction of a row; scale_name: see `scale_of` in explain/refine.py."""
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
    decimals = 2 - floor(log10(largest))  # the largest change has three digits, the others as many decimals
    labels = pl.Series("label", [number_text(round(change, decimals), 3, "+") for change in table["change"]], pl.String)
    text.data = chart_of(table.with_columns(labels, right=pl.max_horizontal("begin", "end"))).data
    base_text, prediction = (number_text(first[name]) for name in ("base", "prediction"))
    caption = [f"from {base_text}, the {scale_name} without any feature, to {prediction}{_for_class(contributions)}"]
    chart = alt.layer(bars, text).properties(width=WIDTH)
    return finish_chart(chart, f"Contributions to the prediction of row {row}", caption)


def swarm_table(contributions: pl.DataFrame, rows: pl.DataFrame, categories: Collection[str]) -> pl.DataFrame:
    """Return columns feature (a text), change, offset and level, for the features with the largest mean contributions.

    change  contribution of the feature to the prediction of a row
    offset  distance of the point from the axis, see `_offsets`
    level   rank of the value among the rows, from 0 to 1; null for categories and missing values

    Parameters: `rows`, the explained rows in their order, and `categories`, the names of features that are categories.
    """
    names = [name for name in contributions.columns if name.startswith(_PREFIX)]
    sizes = {name: float(np.abs(contributions[name].to_numpy()).mean()) for name in names}
    ranked = sorted(names, key=lambda name: -sizes[name])[:_CONTRIBUTING]
    texts = labels_of([name.removeprefix(_PREFIX) for name in ranked])
    largest = max((float(np.abs(contributions[name].to_numpy()).max()) for name in ranked), default=0.0) or 1.0
    pieces = []
    for name, text in zip(ranked, texts, strict=True):
        change = contributions[name].to_numpy()
        offset = _offsets(np.round(change / largest * _BINS / 2).astype(np.int64))
        level = pl.Series([None] * change.size, dtype=pl.Float64)
        feature = name.removeprefix(_PREFIX)
        if feature in rows.columns and feature not in categories:
            values = cells(rows, feature).to_physical().cast(pl.Float64).fill_nan(None)
            level = (values.rank("average") - 1) / max(1, values.count() - 1)
        pieces.append(
            pl.DataFrame({"feature": [text] * change.size, "change": change, "offset": offset, "level": level})
        )
    return pl.concat(pieces)


def _offsets(bins: Any) -> Any:
    """Return an offset for each point, from -1 to 1: multiples 0, 1, -1, 2, -2, ... of a step for the points of a bin.

    bins  int64 [points], bin of each point
    """
    offset = np.zeros(bins.size)
    largest = 1
    for place in np.unique(bins):
        inside = np.flatnonzero(bins == place)
        number = np.arange(inside.size)
        offset[inside] = np.where(number % 2 == 1, (number + 1) // 2, -(number // 2))
        largest = max(largest, inside.size // 2)
    return offset / max(largest, 6)


def swarm_chart(
    contributions: pl.DataFrame, rows: pl.DataFrame, categories: Collection[str], of: int, scale_name: str
) -> Any:
    """Draw a point per row and feature.

    categories  names of the features that are categories
    of          number of rows of the table that the rows were drawn from
    scale_name  see `scale_of` in explain/refine.py
    """
    alt = altair()
    table = swarm_table(contributions, rows, categories)
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

    # Points without a level are a separate layer: the scale of colours would draw them in the lowest colour.
    layers = [
        points(part, colored)
        for part, colored in ((table.filter(~has_level), alt.value(FAINT)), (table.filter(has_level), color))
        if part.height
    ]
    zero = chart_of(pl.DataFrame({"at": [0.0]})).mark_rule(color=FAINT).encode(x=alt.X("at:Q"))
    caption = [f"{_drawn_rows(rows.height, of)}; categories and missing values are grey"]
    chart = alt.layer(zero, *layers).properties(width=WIDTH, height=max(HEIGHT // 2, 34 * len(order)))
    return finish_chart(chart, f"Contributions of features to predictions{_for_class(contributions)}", caption)


# Columns of the matrix of proximities that are multiplied at a time.
_MULTIPLIED = 4096
# Most classes that have a separate colour.
_COLOURED = 7


def coordinates(neighbors: pl.DataFrame) -> tuple[pl.Series, NDArray[np.float64], float]:
    """Return row numbers, two coordinates of each row, float64 [rows, 2], and the share of the scatter they explain.

    neighbors  the table `neighbors`.

    Classical scaling of the Hellinger distances between the proximities of rows to their neighbors: the first two
    principal components of the matrix of the square roots of proximities, [rows, neighbors]. The proximities of the
    drawn rows to each other do not suffice: in a large table they are mostly 0, even for two rows with the same
    neighbors. The largest coordinate of an axis, by size, is positive, so that the plot is the same every time.
    """
    rows = neighbors["row"].unique().sort()
    at = rows.search_sorted(neighbors["row"]).to_numpy()
    _, column = np.unique(neighbors["neighbor"].to_numpy(), return_inverse=True)
    order = np.argsort(column, kind="stable")
    at, column, value = at[order], column[order], np.sqrt(neighbors["proximity"].to_numpy())[order]
    gram = np.zeros((rows.len(), rows.len()))
    for first in range(0, int(column.max(initial=-1)) + 1, _MULTIPLIED):
        begin, end = np.searchsorted(column, [first, first + _MULTIPLIED])
        piece = np.zeros((rows.len(), _MULTIPLIED))
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
    """Return columns row, x, y and target (text for classes, otherwise a number), and the share of the scatter.

    target  target of all rows of the table, not only of the drawn ones.

    The _COLOURED most frequent classes of the drawn rows have texts; the others become OTHERS.
    """
    rows, place, share = coordinates(neighbors)
    values = target.alias("").gather(rows)  # without a name: see `cells` in columns/types.py
    if classes:
        counts = values.value_counts(sort=True)[""].to_list()
        values = texts_of(values, sorted(counts[:_COLOURED], key=str))
    else:
        values = values.cast(pl.Float64)
    return pl.DataFrame({"row": rows, "x": place[:, 0], "y": place[:, 1], "target": values}), share


def map_chart(neighbors: pl.DataFrame, target: pl.Series, classes: bool) -> Any:
    """Draw a point per row, coloured by its target. Parameters as for `map_table`."""
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
    caption = [
        f"{_drawn_rows(table.height, target.len())}; {share:.0%} of their scatter",
        "rows with large proximities (RF-GAP) are close to each other",
    ]
    return finish_chart(points.properties(width=400, height=360), "Map of rows by proximity", caption)
