"""One tree: conditions, classes and rows of its nodes down to some level."""

from __future__ import annotations

from typing import Any

import polars as pl

from bigforest.forest.contents import Contents
from bigforest.plot.draw import COLORS, FAINT, INK, altair, chart_of, finished, labels_of, one_line

DEPTH = 3
MOST_DEPTH = 8
_CLASSES = 7
_NAMED = 3
# Width of a leaf, in pixels, distance of levels, and height of a bar; the width of a bar among leaves one apart.
_LEAF, _LEVEL, _BAR = 118, 84, 12
_WIDE = 0.8
# Levels that lines keep off a node, for its texts.
_GAP = 0.28


def tree_tables(forest: Contents, number: int, depth: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Nodes, bars and edges of a tree down to a level.

    nodes  node, x (leaves of the picture are 1 apart), depth, text (the condition, or the answer), rows (a text)
    bars   node, begin, end (places of x), depth and label: shares of classes; of numbers one bar without a label
    edges  x, depth and x2, depth2 of a node and its child
    """
    columns = ["node", "left", "right", "depth", "kind", "feature", "threshold", "default_left", "levels", "terms"]
    frame = (
        forest.nodes.filter((pl.col("tree") == number) & (pl.col("depth") <= depth))
        .select(*columns, "weight", "counts", "value")
        .collect()
    )
    nodes = {row["node"]: row for row in frame.iter_rows(named=True)}
    places: dict[int, float] = {}
    leaf = 0.0
    for node in sorted(nodes):  # in preorder, so that leaves come from left to right
        if nodes[node]["left"] not in nodes:
            places[node], leaf = leaf, leaf + 1.0
    for node in sorted(nodes, reverse=True):
        if node not in places:
            places[node] = (places[nodes[node]["left"]] + places[nodes[node]["right"]]) / 2
    step = 1.0 if forest.spec.weight is None else forest.spec.weight.step
    unit = "rows" if forest.spec.weight is None else "by weight"
    listed, bars, edges = [], [], []
    for node, row in nodes.items():
        split = row["left"] is not None
        text = condition(row) if split else _answer(forest, row)
        more = " ..." if split and row["left"] not in nodes else ""
        listed.append((node, places[node], row["depth"], text + more, f"{row['weight'] * step:,.6g} {unit}"))
        bars += _bars(forest, row, places[node])
        if row["left"] in nodes:
            edges += [(places[node], row["depth"], places[row[side]], row["depth"] + 1) for side in ("left", "right")]
    return (
        pl.DataFrame(listed, schema=["node", "x", "depth", "text", "rows"], orient="row"),
        pl.DataFrame(bars, schema=["node", "begin", "end", "depth", "label"], orient="row"),
        pl.DataFrame(
            edges, schema={"x": pl.Float64, "depth": pl.Int64, "x2": pl.Float64, "depth2": pl.Int64}, orient="row"
        ),
    )


def condition(row: dict[str, Any]) -> str:
    """What sends a row to the left, as a short text; `row` is a row of NODES."""
    if row["kind"] == "axis":
        return f"{one_line(row['feature'], 18)} ≤ {row['threshold']:.5g}"
    if row["kind"] == "category":
        levels = [one_line(level, 10) for level in row["levels"]]
        rest = f", {len(levels) - _NAMED} more" if len(levels) > _NAMED else ""
        inside = "not in" if row["default_left"] else "in"
        return f"{one_line(row['feature'], 14)} {inside} {{{', '.join(levels[:_NAMED])}{rest}}}"
    terms = [f"{term['weight']:.2g} {one_line(term['feature'], 10)}" for term in row["terms"]]
    rest = f" + {len(terms) - 2} more" if len(terms) > 2 else ""
    return f"{' + '.join(terms[:2])}{rest} ≤ {row['threshold']:.4g}"


def _answer(forest: Contents, row: dict[str, Any]) -> str:
    if forest.is_regression:
        return f"{row['value']:.5g}"
    counts = row["counts"]
    return one_line(forest.classes[counts.index(max(counts))], 18)


def _bars(forest: Contents, row: dict[str, Any], place: float) -> list[tuple[Any, ...]]:
    begin = place - _WIDE / 2
    if forest.is_regression:
        return [(row["node"], begin, begin + _WIDE, row["depth"], "")]
    names, counts = labels_of(forest.classes), row["counts"]
    total, found = sum(counts), []
    for name, part in [
        *zip(names[:_CLASSES], counts[:_CLASSES], strict=False),
        ("(others)", sum(counts[_CLASSES:])),
    ]:
        if part:
            end = begin + _WIDE * part / total
            found.append((row["node"], begin, end, row["depth"], name))
            begin = end
    return found


def tree_chart(forest: Contents, number: int, depth: int) -> Any:
    """The tree from the root down; rows for which a condition holds go to the left."""
    alt = altair()
    nodes, bars, edges = tree_tables(forest, number, depth)
    wide, deep = round(nodes["x"].to_numpy().max()) + 1, int(nodes["depth"].to_numpy().max())
    x_scale = alt.Scale(domain=[-0.6, wide - 0.4], nice=False, zero=False)
    y_scale = alt.Scale(domain=[-0.4, deep + 0.5], nice=False, zero=False, reverse=True)

    def x(name: str) -> Any:
        return alt.X(field=name, type="quantitative", scale=x_scale, axis=None)

    y = alt.Y(field="depth", type="quantitative", scale=y_scale, axis=None)
    lines = (
        chart_of(edges.with_columns(pl.col("depth") + _GAP, pl.col("depth2") - _GAP))
        .mark_rule(color=FAINT)
        .encode(x=x("x"), x2=alt.X2(field="x2"), y=y, y2=alt.Y2(field="depth2"))
    )
    order = [*labels_of(forest.classes)[:_CLASSES], *(["(others)"] if len(forest.classes) > _CLASSES else [])]
    color = (
        alt.value(COLORS[0])
        if forest.is_regression
        else alt.Color(
            field="label",
            type="nominal",
            title="class",
            sort=order,
            scale=alt.Scale(domain=order, range=list(COLORS[: len(order)])),
        )
    )
    blocks = (
        chart_of(bars).mark_bar(height=_BAR, opacity=1).encode(x=x("begin"), x2=alt.X2(field="end"), y=y, color=color)
    )
    base = chart_of(nodes).encode(x=x("x"), y=y)
    text = base.mark_text(dy=-14, fontSize=11, color=INK).encode(text=alt.Text(field="text", type="nominal"))
    rows = base.mark_text(dy=15, fontSize=9, color=INK).encode(text=alt.Text(field="rows", type="nominal"))
    chart = alt.layer(*([lines] if edges.height else []), blocks, text, rows)
    chart = chart.properties(width=max(260, _LEAF * wide), height=_LEVEL * (deep + 1))
    caption = ["rows for which the condition holds go to the left", "numbers of rows are those of the bag"]
    return finished(chart, f"Tree {number}, {deep} levels", caption)
