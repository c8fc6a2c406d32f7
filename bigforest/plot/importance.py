"""Importance of features, with error bars: from a table of an explanation to a chart."""

from __future__ import annotations

from typing import Any

import polars as pl

from bigforest.plot.draw import INK, altair, chart_of, finish_chart, labels_of

# Features that are shown.
MOST_FEATURES = 20
TITLES = {
    "importance": "Importance by decrease of impurity",
    "unbiased": "Importance by decrease of impurity out of bag",
    "permutation": "Importance by permutation out of bag",
}


def importance_table(found: pl.DataFrame) -> pl.DataFrame:
    """The largest rows of a table of importance: feature (text), importance, lower and upper, by two standard errors.

    found  columns feature, importance and standard_error, which is null or nan of one tree alone.
    """
    names = pl.Series("feature", labels_of(found["feature"].to_list()), dtype=pl.String)
    error = 2 * pl.col("standard_error").fill_nan(None).fill_null(0.0)
    return (
        found.with_columns(names, pl.col("importance").fill_nan(None).fill_null(0.0))
        .sort("importance", descending=True, maintain_order=True)
        .head(MOST_FEATURES)
        .select("feature", "importance", lower=pl.col("importance") - error, upper=pl.col("importance") + error)
    )


def importance_chart(found: pl.DataFrame, kind: str) -> Any:
    """Bars of the most important features."""
    alt = altair()
    table = importance_table(found)
    base = chart_of(table).encode(
        y=alt.Y("feature:N", title=None, sort=table["feature"].to_list()),
    )
    largest = table["upper"].abs().max() or 0.0
    axis = alt.Axis(format="~s", tickCount=6) if largest >= 10_000 else alt.Axis(tickCount=6)  # type: ignore[operator]
    bars = base.mark_bar().encode(x=alt.X("importance:Q", title="importance", axis=axis))
    spread = base.mark_rule(color=INK).encode(x=alt.X("lower:Q", title="importance"), x2=alt.X2("upper"))
    caption = ["lines are two standard errors to each side, over the trees"]
    if found.height > table.height:
        caption.append(f"the {table.height} most important of {found.height} features")
    return finish_chart(alt.layer(bars, spread).properties(width=380), TITLES[kind], caption)
