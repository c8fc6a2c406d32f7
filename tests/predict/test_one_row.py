"""Rows that are predicted one at a time, by calls which share memory and what they found in the table before."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest as bf

ROWS = 90
NUMBERS = np.random.Generator(np.random.PCG64(3)).random((ROWS, 3))
TABLE = pl.DataFrame(NUMBERS, schema=["a", "b", "c"]).with_columns(
    kind=pl.Series(["x", "y", "z"] * (ROWS // 3)),
    target=pl.Series(np.where(NUMBERS[:, 0] + NUMBERS[:, 1] > 1.0, "high", "low")),
)
GAPS = NUMBERS.copy()
GAPS[::2, 0] = GAPS[::5, 2] = np.nan


@pytest.mark.parametrize("options", [{}, {"family": "sparse-oblique"}, {"target": "c", "task": "regression"}])
def test_predict__one_row_after_the_other(options: dict[str, Any]) -> None:
    options = {"target": "target", **options}
    table = TABLE.select("a", "b", *{"c", options["target"]})
    table = table.with_columns(pl.when(pl.int_range(ROWS) % 7 > 0).then("a"))
    forest = bf.train(table, trees=9, **options)
    rows = GAPS[:, : len(forest.spec.features)]
    for method in (forest.predict, forest.predict_proba)[: 1 if forest.is_regression else 2]:
        whole = method(rows)
        for size in (1, 2, 1, 30, 1):
            parts = [method(rows[first : first + size]) for first in range(0, ROWS, size)]
            assert np.array_equal(np.concatenate(parts), whole)


def test_predict__frames_of_other_columns_in_turn() -> None:
    forest = bf.train(TABLE, "target", trees=9)
    whole = forest.predict(TABLE, keep=["kind"])
    turned = TABLE.select("kind", "c", pl.col("b").cast(pl.Float32).cast(pl.Float64), "a")
    for row in range(6):
        one = TABLE.slice(row, 1)
        assert forest.predict(one, keep=["kind"]).equals(whole.slice(row, 1))
        assert forest.predict(one.with_columns(b=pl.lit(None))).height == 1
        assert forest.predict(turned.slice(row, 1)).columns == ["prediction"]
    with pytest.raises(bf.DataError, match="lacks feature 'c'"):
        forest.predict(TABLE.drop("c"))
    with pytest.raises(bf.DataError, match="'c' is String"):
        forest.predict(TABLE.with_columns(c=pl.lit("word")))
