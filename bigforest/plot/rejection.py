"""The error-reject curve: how many answers are wrong where the least sure rows have none, by out-of-bag rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from typing import Any

import numpy as np
import polars as pl

from bigforest.common.errors import ConfigError
from bigforest.forest.grown import GrownForest
from bigforest.plot.draw import HEIGHT, INK, WIDTH, altair, chart_of, finish_chart, thinned

# Values of reject_above that are marked.
RISKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
# Points of the curve that are drawn.
_POINTS = 500
# Share of the rows before which the curve may leave the picture.
_FIRST = 0.05
# Texts this near each other touch: shares of the width and of the height.
_NEAR = (0.08, 0.05)


def has_rejection(forest: GrownForest) -> bool:
    """Whether out-of-bag rows say at which error rows are to be rejected: of classes, and where they are not biased."""
    return forest.has_oob and forest.oob.rows_used > 0 and not forest.is_regression and not forest.config.boosts


def rejection_table(forest: GrownForest) -> pl.DataFrame:
    """Columns confidence, predicted and error, from the surest rows on, which are predicted first.

    confidence  share of the votes for the predicted class: rows with this or more are predicted
    predicted   share of the out-of-bag rows that have it
    error       share of these that are wrong
    """
    curve = forest.calibration.reject_curve()
    predicted, error = curve.predicted / curve.predicted[-1], curve.wrong / curve.predicted
    return pl.DataFrame({"confidence": curve.confidence, "predicted": predicted, "error": error})


def limits_table(forest: GrownForest, risks: Sequence[float] = RISKS) -> pl.DataFrame:
    """Columns reject_above, confidence, predicted and error, as in `rejection_table`, of rows predicted by each risk.

    Risks of which too few rows are out of bag to say anything are left out; without a row that is predicted confidence
    and error are null.
    """
    curve = forest.calibration.reject_curve()
    found = []
    for risk in risks:
        try:
            least = forest.calibration.least_share(risk)
        except ConfigError:
            continue
        place = int(np.count_nonzero(curve.confidence >= least)) - 1
        rows, wrong = (int(counted[place]) if place >= 0 else 0 for counted in (curve.predicted, curve.wrong))
        share = None if isinf(least) else least
        found.append((risk, share, rows / int(curve.predicted[-1]), wrong / rows if rows else None))
    names = ("reject_above", "confidence", "predicted", "error")
    return pl.DataFrame(found, schema=dict.fromkeys(names, pl.Float64), orient="row")


def _apart(marks: pl.DataFrame, top: float) -> pl.Series:
    """The limits as texts, empty where they would touch the one to the left, or the axis."""
    texts, last = [], (-1.0, -1.0)
    for limit, predicted, error in marks.select("reject_above", "predicted", "error").iter_rows():
        apart = predicted - last[0] > _NEAR[0] or (error - last[1]) / top > _NEAR[1]
        texts.append(f"{limit:g}" if apart and error <= top and predicted >= _FIRST else "")
        last = (predicted, error) if apart else last
    return pl.Series(texts, dtype=pl.String)


def rejection_chart(forest: GrownForest) -> Any:
    """Error of the rows that are predicted against their share, with the points of some values of reject_above."""
    alt = altair()
    x = alt.X("predicted:Q", title="share of rows predicted", scale=alt.Scale(domain=[0, 1]))
    table = rejection_table(forest)
    # The error of the first few rows may be far above the others.
    top = float(np.max(table.filter(pl.col("predicted") >= _FIRST)["error"].to_numpy(), initial=0.0)) or 1.0
    y = alt.Y("error:Q", title="error of these rows", scale=alt.Scale(domainMax=top, nice=True))
    line = chart_of(thinned(table, _POINTS)).mark_line(clip=True).encode(x=x, y=y)
    marks = limits_table(forest).filter(pl.col("error").is_not_null())
    base = chart_of(marks.with_columns(text=_apart(marks, top))).encode(x=x, y=y)
    points = base.mark_point(filled=True, size=50, clip=True)
    names = base.mark_text(align="right", dx=-6, dy=-12, color=INK).encode(text=alt.Text("text:N"))
    caption = ["out-of-bag rows, unweighted, most certain first; points: limits of reject_above"]
    layers = alt.layer(line, points, names).properties(width=WIDTH, height=HEIGHT)
    return finish_chart(layers, "Error of the predicted rows", caption)
