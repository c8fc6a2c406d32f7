"""Charts of trees (depth, leaf sizes, a single tree), of importance, and of the time of the run by stage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import polars as pl

from bigforest.columns.dataspec import FeatureSpec
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
    milliseconds,
    moment_text,
    number_text,
    one_line,
)
from bigforest.predict.forest import Forest
from bigforest.store.levels import level_text


def depth_table(forest: Forest) -> pl.DataFrame:
    """Return columns depth, leaves (number in all trees at this depth) and trees (number with this maximum depth)."""
    leaves = forest.nodes.filter(pl.col("left").is_null())
    deepest = leaves.group_by("tree").agg(pl.col("depth").max()).group_by("depth").agg(trees=pl.len())
    by_level = leaves.group_by("depth").agg(leaves=pl.len())
    return (
        by_level.join(deepest, on="depth", how="left")
        .with_columns(pl.col("trees").fill_null(0))
        .sort("depth")
        .collect()
    )


def leaves_table(forest: Forest) -> pl.DataFrame:
    """Return columns from, to and leaves: the number of leaves with at least `from` and fewer than `to` bag rows.

    Both are powers of 2. If rows are weighted, the total weight of the bag rows is used in place of their number.
    """
    step = 1.0 if forest.spec.weight is None else forest.spec.weight.step
    weight = pl.col("weight").cast(pl.Float64) * step
    place = weight.log(2).floor().cast(pl.Int32)
    return (
        forest.nodes.filter(pl.col("left").is_null())
        .group_by(bin=place)
        .agg(leaves=pl.len())
        .sort("bin")
        .select(pl.lit(2.0).pow("bin").alias("from"), pl.lit(2.0).pow(pl.col("bin") + 1).alias("to"), "leaves")
        .collect()
    )


def time_table(forest: Forest) -> pl.DataFrame:
    """Return columns stage (a text) and seconds, in the order of the run."""
    run = forest.run
    return pl.DataFrame({"stage": labels_of(run["stage"].to_list()), "seconds": run["seconds"]})


def depth_chart(forest: Forest) -> Any:
    """Draw the number of leaves by depth as bars, and the number of trees by their maximum depth as a line."""
    alt = altair()
    table = depth_table(forest)
    base = chart_of(table).encode(x=alt.X("depth:Q", title="depth; the root has 0"))
    bars = base.mark_bar(size=max(1, min(20, 360 // table.height))).encode(y=alt.Y("leaves:Q", title="leaves"))
    line = base.mark_line(color=COLORS[4], point=alt.OverlayMarkDef(color=COLORS[4], size=12)).encode(
        y=alt.Y("trees:Q", title="trees (line)")
    )
    chart = alt.layer(bars, line).resolve_scale(y="independent").properties(width=WIDTH, height=HEIGHT)
    return finish_chart(chart, "Depth", ["bars: leaves of all trees; line: trees with this maximum depth"])


def leaves_chart(forest: Forest) -> Any:
    """Draw the number of leaves by their number of bag rows, in powers of two."""
    alt = altair()
    table = leaves_table(forest)
    whole = forest.spec.weight is None
    texts = [_size(low, high, whole) for low, high, _ in table.rows()]
    chart = (
        chart_of(table.with_columns(size=pl.Series(texts, dtype=pl.String)))
        .mark_bar()
        .encode(
            x=alt.X(
                "size:N",
                title="bag rows in the leaf",
                sort=texts,
                axis=alt.Axis(labelAngle=-40),
            ),
            y=alt.Y("leaves:Q", title="leaves"),
        )
    )
    weighed = [] if whole else ["rows are weighted; the second number is not in the bin"]
    return finish_chart(chart.properties(width=WIDTH, height=HEIGHT), "Leaf sizes", weighed)


def _size(low: float, high: float, whole: bool) -> str:
    """Return the bin of sizes from `low` to before `high` as text; for whole numbers, to the last one in the bin."""
    if not whole:
        return f"{low:g} to {high:g}"
    return f"{low:g}" if high - low <= 1 else f"{low:,.0f} to {high - 1:,.0f}"


def time_chart(forest: Forest) -> Any:
    """Draw the seconds of each stage of the run."""
    alt = altair()
    table = time_table(forest)
    base = chart_of(table).encode(
        y=alt.Y("stage:N", title=None, sort=table["stage"].to_list()),
        x=alt.X("seconds:Q", title="seconds"),
    )
    text = base.mark_text(align="left", dx=4, color=INK).encode(text=alt.Text("seconds:Q", format=".3~g"))
    threads = int(forest.run["threads"].to_numpy().max())
    chart = alt.layer(base.mark_bar(), text).properties(width=WIDTH)
    return finish_chart(chart, "Time by stage", [f"on {counted(threads, 'thread')}"])


# Most features that are shown.
MOST_FEATURES = 20
TITLES = {
    "importance": "Importance by decrease of impurity",
    "unbiased": "Importance by decrease of impurity out of bag",
    "permutation": "Importance by permutation out of bag",
}


def importance_table(importance: pl.DataFrame) -> pl.DataFrame:
    """Return the MOST_FEATURES most important features: columns feature (text), importance, lower and upper.

    importance    table of explanations with columns feature, importance and standard_error; the error is null for fewer
                  than two trees, and counts as 0
    lower, upper  importance minus and plus two standard errors
    """
    names = pl.Series("feature", labels_of(importance["feature"].to_list()), dtype=pl.String)
    error = 2 * pl.col("standard_error").fill_null(0.0)
    return (
        importance.with_columns(names, pl.col("importance").fill_null(0.0))
        .sort("importance", descending=True, maintain_order=True)
        .head(MOST_FEATURES)
        .select("feature", "importance", lower=pl.col("importance") - error, upper=pl.col("importance") + error)
    )


def importance_chart(forest: Forest, importance: pl.DataFrame, kind: str) -> Any:
    """Draw bars of the most important features; kind: name of the table of explanations."""
    alt = altair()
    table = importance_table(importance)
    base = chart_of(table).encode(
        y=alt.Y("feature:N", title=None, sort=table["feature"].to_list()),
    )
    largest = table["upper"].abs().max() or 0.0
    axis = alt.Axis(format="~s", tickCount=6) if largest >= 10_000 else alt.Axis(tickCount=6)  # type: ignore[operator]
    bars = base.mark_bar().encode(x=alt.X("importance:Q", title="importance", axis=axis))
    spread = base.mark_rule(color=INK).encode(x=alt.X("lower:Q", title="importance"), x2=alt.X2("upper"))
    # With a boosted stage, features are permuted in whole predictions of rows (explain/permutation.py).
    sample = "rows" if kind == "permutation" and forest.files.is_refined else "trees"
    caption = [f"lines are two standard errors to each side, over the {sample}"]
    if importance.height > table.height:
        caption.append(f"the {table.height} most important of {importance.height} features")
    return finish_chart(alt.layer(bars, spread).properties(width=380), TITLES[kind], caption)


# Levels below the root of a tree that are drawn by default, and at most.
DEPTH = 3
MOST_DEPTH = 8
# Most classes that have a bar of their own in a node.
_CLASSES = 7
# Characters of a line of text that fit in the width of a leaf, and of a name that shares the line with other names.
_LINE, _NAME = 20, 9
# In pixels: distance of leaves, distance of levels, and height of a bar. Width of a bar, in distances of leaves.
_LEAF, _LEVEL, _BAR = 150, 92, 12
_WIDE = 0.8
# Gaps between a node and its edges below and above it, for its texts, in distances of levels.
_BELOW, _ABOVE = 0.26, 0.44


def tree_tables(forest: Forest, number: int, depth: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return tables of nodes, bars and edges of tree `number` down to a depth.

    nodes  node, x (nodes without drawn children are 1 apart), depth, above and text (the two lines of the condition;
           for a leaf an empty text and its prediction), rows (a text)
    bars   node, begin, end (positions on x), depth, label and value: a bar for each class, as wide as its share; for
           regression one bar, whose value is the mean
    edges  x, depth of a node; x2, depth2 of its child
    """
    columns = ["node", "left", "right", "depth", "kind", "feature", "threshold", "default_left", "levels", "terms"]
    frame = forest[number].nodes.filter(pl.col("depth") <= depth).select(*columns, "weight", "counts", "value")
    nodes = {row["node"]: row for row in frame.iter_rows(named=True)}
    places: dict[int, float] = {}
    leaf = 0.0
    for node in sorted(nodes):  # in preorder, so that leaves come from left to right
        if nodes[node]["left"] not in nodes:
            places[node], leaf = leaf, leaf + 1.0
    for node in sorted(nodes, reverse=True):
        if node not in places:
            places[node] = (places[nodes[node]["left"]] + places[nodes[node]["right"]]) / 2
    weights = forest.spec.weight
    listed, bars, edges, steps, categories = [], [], [], milliseconds(forest), _categories(forest)
    for node, row in nodes.items():
        split = row["left"] is not None
        above, text = condition(row, steps, categories) if split else ("", _answer(forest, row))
        more = " \N{HORIZONTAL ELLIPSIS}" if split and row["left"] not in nodes else ""
        weight = row["weight"]
        size = counted(weight, "row") if weights is None else f"{number_text(weight * weights.step)} by weight"
        mean = f", mean {number_text(row['value'])}" if split and forest.is_regression else ""
        listed.append((node, places[node], row["depth"], above, text + more, size + mean))
        bars += _bars(forest, row, places[node])
        if row["left"] in nodes:
            edges += [(places[node], row["depth"], places[row[side]], row["depth"] + 1) for side in ("left", "right")]
    return (
        pl.DataFrame(listed, schema=["node", "x", "depth", "above", "text", "rows"], orient="row"),
        pl.DataFrame(bars, schema=["node", "begin", "end", "depth", "label", "value"], orient="row"),
        pl.DataFrame(
            edges, schema={"x": pl.Float64, "depth": pl.Int64, "x2": pl.Float64, "depth2": pl.Int64}, orient="row"
        ),
    )


def condition(
    row: dict[str, Any], steps: dict[str, float], categories: dict[str, Callable[[float], list[str | None]]]
) -> tuple[str, str]:
    """Return the condition of a node in two lines: the feature, and its values. Rows that meet it go left.

    row         row of the table of nodes
    steps       units of dates, see `milliseconds`
    categories  for each category whose levels have values: function that returns the levels up to a threshold
    """
    if row["kind"] == "axis" and row["feature"] in categories:
        levels = categories[row["feature"]](row["threshold"])
        return one_line(row["feature"], _LINE), f"in {{{_first_levels(levels, _LINE - 2)}}}"
    if row["kind"] == "axis":
        return one_line(row["feature"], _LINE), f"≤ {moment_text(row['threshold'], steps.get(row['feature']))}"
    if row["kind"] == "category":  # with default_left, the listed levels go right
        inside = "not in" if row["default_left"] else "in"
        return one_line(row["feature"], _LINE), f"{inside} {{{_first_levels(row['levels'], _LINE - len(inside))}}}"
    first, *others = (f"{term['weight']:.2g} {one_line(term['feature'], _NAME)}" for term in row["terms"])
    rest = f" + {len(others)} more" if others else ""
    return f"{first}{rest}", f"≤ {number_text(row['threshold'])}"


def _categories(forest: Forest) -> dict[str, Callable[[float], list[str | None]]]:
    """Return the argument `categories` of `condition`."""

    def levels_up_to(place: int, feature: FeatureSpec, threshold: float) -> list[str | None]:
        return forest.levels.between(place, feature, high=threshold)

    features = enumerate(forest.spec.features)
    return {spec.name: partial(levels_up_to, place, spec) for place, spec in features if spec.has_level_values}


def _first_levels(levels: list[str | None], room: int) -> str:
    """Return as many of the first levels as fit in `room` characters, at least one, and the number of the others."""
    texts = [one_line(level_text(level), _NAME) for level in levels]
    shown = 1
    while shown < len(texts) and len(", ".join(texts[: shown + 1])) + len(", 99 more") <= room:
        shown += 1
    return ", ".join(texts[:shown]) + (f", {len(texts) - shown} more" if shown < len(texts) else "")


def _answer(forest: Forest, row: dict[str, Any]) -> str:
    """Return the prediction of a leaf as text: the mean, or the most frequent class, the first among ties."""
    if forest.is_regression:
        return number_text(row["value"])
    counts = row["counts"]
    return one_line(forest.classes[counts.index(max(counts))], 18)


def _bars(forest: Forest, row: dict[str, Any], place: float) -> list[tuple[Any, ...]]:
    """Return the rows of `bars` (`tree_tables`) of a node; place: its x."""
    begin = place - _WIDE / 2
    if forest.is_regression:
        return [(row["node"], begin, begin + _WIDE, row["depth"], "", row["value"])]
    names, counts = labels_of(forest.classes), row["counts"]
    total, bars = sum(counts), []
    for name, part in [
        *zip(names[:_CLASSES], counts[:_CLASSES], strict=False),
        (OTHERS, sum(counts[_CLASSES:])),
    ]:
        if part:
            end = begin + _WIDE * part / total
            bars.append((row["node"], begin, end, row["depth"], name, None))
            begin = end
    return bars


def _color(forest: Forest) -> Any:
    """Return the colours of bars: one for each class; for regression by the mean of the node."""
    alt = altair()
    if forest.is_regression:
        scale = alt.Scale(range=[PALE, DEEP], zero=False)
        return alt.Color("value:Q", title="mean", scale=scale)
    order = [*labels_of(forest.classes)[:_CLASSES], *([OTHERS] if len(forest.classes) > _CLASSES else [])]
    scale = alt.Scale(domain=order, range=list(COLORS[: len(order)]))
    return alt.Color("label:N", title="class", sort=order, scale=scale)


def tree_chart(forest: Forest, number: int, depth: int) -> Any:
    """Draw tree `number` down to a depth. Rows for which a condition holds go to the left."""
    alt = altair()
    nodes, bars, edges = tree_tables(forest, number, depth)
    wide, deep = round(nodes["x"].to_numpy().max()) + 1, int(nodes["depth"].to_numpy().max())
    x_scale = alt.Scale(domain=[-0.6, wide - 0.4], nice=False, zero=False)
    y_scale = alt.Scale(domain=[-0.5, deep + 0.5], nice=False, zero=False, reverse=True)

    def x(name: str) -> Any:
        return alt.X(f"{name}:Q", scale=x_scale, axis=None)

    y = alt.Y("depth:Q", scale=y_scale, axis=None)
    lines = (
        chart_of(edges.with_columns(pl.col("depth") + _BELOW, pl.col("depth2") - _ABOVE))
        .mark_rule(color=FAINT)
        .encode(x=x("x"), x2=alt.X2("x2"), y=y, y2=alt.Y2("depth2"))
    )
    blocks = (
        chart_of(bars)
        .mark_bar(height=_BAR, opacity=1)
        .encode(x=x("begin"), x2=alt.X2("end"), y=y, color=_color(forest))
    )
    base = chart_of(nodes).encode(x=x("x"), y=y)
    above = base.mark_text(dy=-28, fontSize=11, color=INK).encode(text=alt.Text("above:N"))
    text = base.mark_text(dy=-14, fontSize=11, color=INK).encode(text=alt.Text("text:N"))
    rows = base.mark_text(dy=15, fontSize=9, color=INK).encode(text=alt.Text("rows:N"))
    chart = alt.layer(*([lines] if edges.height else []), blocks, above, text, rows)
    chart = chart.properties(width=max(260, _LEAF * wide), height=_LEVEL * (deep + 1))
    caption = ["rows for which the condition holds go to the left", "numbers of rows are those of the bag"]
    return finish_chart(chart, f"Tree {number}, {counted(deep, 'level')}", caption)
