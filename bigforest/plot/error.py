"""The out-of-bag error by number of trees: from the report of a forest to a table, and to a chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from bigforest.forest.contents import Contents
from bigforest.forest.format.schema import POISSON
from bigforest.metrics.numbers import poisson_deviances
from bigforest.oob.accumulator import least_counted
from bigforest.plot.draw import COLORS, HEIGHT, INK, WIDTH, altair, chart_of, finish_chart, thinned

# Points of the curve that are drawn.
_POINTS = 500


def error_table(forest: Contents) -> pl.DataFrame:
    """Columns trees, error, standard_error and rows, from the first tree on after which a row is out of bag.

    standard_error  of a share of wrong rows: binomial. Of a mean loss of numbers: as large a part of it as that of all
                    trees, grown with fewer rows. Null where rows have weights, which the report does not keep.
    """
    curve, rows = forest.oob.curve, pl.col("rows")
    error = pl.col(curve.columns[1])
    if forest.oob.weighted:
        spread = pl.lit(None, pl.Float64)
    elif forest.is_regression:
        losses = number_losses(forest)
        voted = forest.oob.rows.filter(pl.col("trees") > 0)
        mean, deviation = voted.select(losses.mean().alias("m"), losses.std().alias("s")).collect().row(0)
        part = deviation / mean if mean and deviation is not None and math.isfinite(mean) else None
        spread = error * pl.lit(part, pl.Float64) / rows.sqrt()
    else:
        spread = (error * (1 - error) / rows).sqrt()
    return curve.select("trees", error.alias("error"), spread.alias("standard_error"), "rows").filter(rows > 0)


def number_losses(forest: Contents) -> pl.Expr:
    """The loss of each row out of bag of a regression: the squared error, or the Poisson deviance if the curve has
    it."""
    truth, prediction = pl.col("truth").cast(pl.Float64), pl.col("prediction")
    if forest.oob.curve.columns[1] != POISSON:
        return (truth - prediction) ** 2
    return pl.map_batches([truth, prediction], _deviances, return_dtype=pl.Float64)


def _deviances(columns: Sequence[pl.Series]) -> pl.Series:
    """The Poisson deviance of each row, from the columns of truth and prediction."""
    truth, prediction = (column.to_numpy() for column in columns)
    return pl.Series(poisson_deviances(truth, np.maximum(prediction, least_counted(truth.max(initial=0.0)))))


def error_chart(forest: Contents) -> Any:
    """A line with a band of two standard errors, and the validation error where there is one."""
    alt = altair()
    table = thinned(error_table(forest), _POINTS).with_columns(
        lower=(pl.col("error") - 2 * pl.col("standard_error")).clip(0.0),
        upper=pl.col("error") + 2 * pl.col("standard_error"),
        curve=pl.lit("out of bag"),
    )
    if forest.has_validation:
        other = thinned(forest.validation.select("trees", "error"), _POINTS)
        table = pl.concat([table, other.with_columns(curve=pl.lit("validation"))], how="diagonal")
    base = chart_of(table).properties(width=WIDTH, height=HEIGHT)
    x = alt.X("trees:Q", title="trees")
    legend = alt.Legend(symbolType="stroke", symbolOpacity=1) if forest.has_validation else None
    color = alt.Color("curve:N", title=None, scale=alt.Scale(range=list(COLORS)), legend=legend)
    line = base.mark_line(point=table.height < 3).encode(x=x, y=alt.Y("error:Q", title=forest.oob.measure), color=color)
    band = base.mark_area(opacity=0.2, color=INK).encode(x=x, y=alt.Y("lower:Q"), y2=alt.Y2("upper"), color=color)
    caption = "rows are weighted" if forest.oob.weighted else "the band is two standard errors to each side"
    return finish_chart(alt.layer(band, line), "Out-of-bag error by number of trees", [caption])
