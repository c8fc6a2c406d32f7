"""The trees in numbers (depth, leaf sizes), the time of the run by stage, and importance with error bars."""

from __future__ import annotations

from typing import Any

import polars as pl

from bigforest.errors import counted
from bigforest.plot.draw import COLORS, HEIGHT, INK, WIDTH, altair, chart_of, finish_chart, labels_of
from bigforest.predict.forest import Forest


def depth_table(forest: Forest) -> pl.DataFrame:
    """Return columns depth, leaves (of all trees on this level) and trees (whose deepest leaf is there)."""
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
    """Return columns from, to and leaves: leaves that hold from 1, 2, 4, ... on to before 2, 4, 8, ... rows of their
    bag."""
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
    """Draw leaves by level, and as a line the trees whose deepest leaf is there."""
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
    """Draw leaves by the rows they hold, in powers of two."""
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
    """Return a bin of sizes as a text, from low to before high; of whole numbers to the last one in it."""
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


# Features that are shown.
MOST_FEATURES = 20
TITLES = {
    "importance": "Importance by decrease of impurity",
    "unbiased": "Importance by decrease of impurity out of bag",
    "permutation": "Importance by permutation out of bag",
}


def importance_table(importance: pl.DataFrame) -> pl.DataFrame:
    """Return the largest rows of a table of importance: feature (text), importance, lower and upper, by two standard
    errors.

    importance  columns feature, importance and standard_error, which is null of one tree alone.
    """
    names = pl.Series("feature", labels_of(importance["feature"].to_list()), dtype=pl.String)
    error = 2 * pl.col("standard_error").fill_null(0.0)
    return (
        importance.with_columns(names, pl.col("importance").fill_null(0.0))
        .sort("importance", descending=True, maintain_order=True)
        .head(MOST_FEATURES)
        .select("feature", "importance", lower=pl.col("importance") - error, upper=pl.col("importance") + error)
    )


def importance_chart(importance: pl.DataFrame, kind: str) -> Any:
    """Draw bars of the most important features."""
    alt = altair()
    table = importance_table(importance)
    base = chart_of(table).encode(
        y=alt.Y("feature:N", title=None, sort=table["feature"].to_list()),
    )
    largest = table["upper"].abs().max() or 0.0
    axis = alt.Axis(format="~s", tickCount=6) if largest >= 10_000 else alt.Axis(tickCount=6)  # type: ignore[operator]
    bars = base.mark_bar().encode(x=alt.X("importance:Q", title="importance", axis=axis))
    spread = base.mark_rule(color=INK).encode(x=alt.X("lower:Q", title="importance"), x2=alt.X2("upper"))
    caption = ["lines are two standard errors to each side, over the trees"]
    if importance.height > table.height:
        caption.append(f"the {table.height} most important of {importance.height} features")
    return finish_chart(alt.layer(bars, spread).properties(width=380), TITLES[kind], caption)
