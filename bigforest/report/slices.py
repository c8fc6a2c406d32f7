"""Rows with the largest out-of-bag loss, and slices of the table with the highest error."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.forest.contents import Contents
from bigforest.metrics.quantile_grid import quantile_grid
from bigforest.plot.draw import one_line
from bigforest.plot.error import number_losses
from bigforest.schema.labels import label_type, proba_names
from bigforest.source import Source

# Parts of a number by quantiles; levels of a category, the most frequent; rows that a slice has at least; features.
_PARTS = 5
_LEVELS = 20
LEAST_ROWS = 20
_FEATURES = 50
_EPSILON = float(np.finfo(np.float64).eps)


def row_errors(forest: Contents) -> pl.DataFrame:
    """Columns row and error of every row out of bag: 1 where it is wrong or rejected; for regression its loss."""
    voted = forest.oob.rows.filter(pl.col("trees") > 0)
    if forest.is_regression:
        error = number_losses(forest)
    else:
        error = pl.col("truth").ne_missing(pl.col("prediction")).cast(pl.Float64)
    return voted.select("row", error=error).collect(engine="streaming")


def worst_rows(forest: Contents, most: int = 10) -> pl.DataFrame:
    """Columns row, truth, prediction, loss and, of classes, p_truth: the rows of largest loss out of bag.

    loss  of classes -log of the probability of the true one, at least the eps of float64; for regression the squared
          error, or the Poisson deviance with that impurity.
    """
    voted = forest.oob.rows.filter(pl.col("trees") > 0)
    if forest.is_regression:
        found = voted.with_columns(loss=number_losses(forest))
        columns = ["row", "truth", "prediction", "loss"]
    else:
        kind = label_type(forest.spec.target)
        own = pl.coalesce(
            pl.when(pl.col("truth") == pl.lit(label).cast(kind)).then(pl.col(name))
            for label, name in zip(forest.classes, proba_names(forest.spec.target), strict=True)
        )
        found = voted.with_columns(p_truth=own).with_columns(loss=-pl.col("p_truth").clip(lower_bound=_EPSILON).log())
        columns = ["row", "truth", "prediction", "p_truth", "loss"]
    return found.select(columns).sort(["loss", "row"], descending=[True, False]).head(most).collect(engine="streaming")


def slices(forest: Contents, source: Source, most: int = 10) -> pl.DataFrame:
    """Columns feature, slice (a text), rows, error, standard_error and excess: slices whose error is above that of all.

    A slice is a fifth of a number by quantiles, one of its values if it has few, a level, or the missing values, with
    LEAST_ROWS rows or more. excess is the error above that of all rows, in standard errors of the slice; the table has
    the largest, and is about the rows it was found on: of many slices some are high by chance.
    """
    errors = row_errors(forest)
    rows, error = errors["row"].to_numpy(), errors["error"].to_numpy()
    mean, deviation = float(error.mean()), float(error.std())
    found = []
    for name in _looked_at(forest, source):
        column = source.column(name).alias("").gather(rows)  # as in `cells`
        for text, own in _parts(column):
            size = int(own.sum())
            if LEAST_ROWS <= size < error.size:
                part = error[own]
                spread = max(float(part.std(ddof=1)), 1e-3 * deviation) / size**0.5
                if part.mean() > mean and spread > 0:
                    high = float(part.mean())
                    found.append((name, text, size, high, spread, (high - mean) / spread))
    numbers = dict.fromkeys(("error", "standard_error", "excess"), pl.Float64)
    schema = {"feature": pl.String, "slice": pl.String, "rows": pl.Int64, **numbers}
    table = pl.DataFrame(found, schema=schema, orient="row")
    return table.sort("excess", descending=True, maintain_order=True).head(most)


def _looked_at(forest: Contents, source: Source) -> list[str]:
    """The most important features that are columns of the table."""
    ranked = forest.features.sort("importance", descending=True, maintain_order=True)["name"]
    return [name for name in ranked if name in source.schema and not source.schema[name].is_nested()][:_FEATURES]


def _parts(column: pl.Series) -> list[tuple[str, NDArray[np.bool_]]]:
    """Slices by a column: what they are, and the rows in them."""
    column = column.fill_nan(None) if column.dtype.is_float() else column
    missing = column.is_null().to_numpy()
    parts = [("missing", missing)] if missing.any() else []
    ordered = (column.dtype.is_numeric() or column.dtype.is_temporal()) and column.n_unique() > _LEVELS
    if ordered:
        values = column.to_physical().cast(pl.Float64).to_numpy()
        edges = quantile_grid(values[~missing], _PARTS + 1)
        shown = [column.filter(pl.Series(values == edge))[0] for edge in edges]
        for place, (low, high) in enumerate(pairwise(edges)):
            inside = (values >= low if place == 0 else values > low) & (values <= high) & ~missing
            sign = "from" if place == 0 else "above"
            parts.append((f"{sign} {_value(shown[place])} to {_value(shown[place + 1])}", inside))
        return parts
    counts = column.drop_nulls().value_counts(sort=True).head(_LEVELS)
    levels = sorted(counts.get_column(column.name).to_list(), key=str)
    return parts + [(f"is {one_line(level)}", (column == level).fill_null(False).to_numpy()) for level in levels]


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
