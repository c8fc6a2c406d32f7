"""Words that mean a missing value in a CSV file mean it in other tables to predict for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

import bigforest


def test_missing_words__float32_and_float64(tmp_path: Path) -> None:
    """-99.9 in float32 is another number than in float64."""
    sizes = [1.0, 2.0, -99.9, 4.0, 5.0, -99.9] * 8
    table = pl.DataFrame({"size": sizes, "target": [size > 3.0 or size < 0.0 for size in sizes]})
    table.write_csv(tmp_path / "t.csv")
    forest = bigforest.train(str(tmp_path / "t.csv"), trees=5, missing=["-99.9"], min_leaf=1)
    gaps = table.select(pl.when(pl.col("size") > 0.0).then("size"))
    expected = forest.predict_proba(gaps)
    assert not forest.predict_proba(gaps.fill_null(-99.5)).equals(expected)  # the word matters
    for dtype in (pl.Float64, pl.Float32):
        rows = table.select(pl.col("size").cast(dtype))
        assert forest.predict_proba(rows).equals(expected)
        assert np.array_equal(forest.predict_proba(rows.to_numpy()), expected.to_numpy())
