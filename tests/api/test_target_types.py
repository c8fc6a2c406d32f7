"""Predictions, and labels in the out-of-bag report, are of the very type of the training column."""

from __future__ import annotations

from decimal import Context, Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import bigforest

LEVELS = ["small", "unseen", "large", "medium"]
TYPES = [
    pl.String(),
    pl.Enum(LEVELS),
    pl.Enum(LEVELS[::-1]),
    pl.Categorical(),
    pl.Categorical(pl.Categories("sizes", "ns", pl.UInt8)),
    pl.Boolean(),
    *(pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.UInt8(), pl.UInt16(), pl.UInt32(), pl.UInt64()),
    *(pl.Float32(), pl.Float64()),
    *(pl.Date(), pl.Time(), pl.Duration("ms"), pl.Duration("us"), pl.Duration("ns")),
    *(pl.Datetime("ms"), pl.Datetime("us"), pl.Datetime("ns")),
    *(pl.Datetime("us", "Europe/Berlin"), pl.Datetime("ns", "America/New_York")),
    *(pl.Decimal(12, 2), pl.Decimal(38, 10), pl.Decimal(38, 0)),
]
# Three different values of each type, as integers: before 1970 and after it, and around the end of daylight saving.
AUTUMN = 1_604_188_800 + 86_400
TICKS = {"ms": 10**3, "us": 10**6, "ns": 10**9}


def made_of(place: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Three dates, times or decimals of this type."""
    if isinstance(dtype, pl.Decimal):
        unit = 10**37 if dtype.precision == 38 else 10**8
        numbers = [Decimal(number).scaleb(-dtype.scale, Context(prec=40)) for number in (-unit - 1, 15, 9 * unit)]
        return pl.Series([numbers[code] for code in place], dtype=dtype)
    if dtype == pl.Date:
        numbers = [-800, 0, 20_000]
    elif dtype == pl.Time:
        numbers = [0, 1, 86_399_999_999_999]
    else:
        ticks = TICKS[dtype.time_unit]  # type: ignore[attr-defined]
        numbers = [-1, 4 * 3_600 * ticks, 5 * 3_600 * ticks + 1]
        if isinstance(dtype, pl.Datetime):
            numbers = [-1, *(AUTUMN * ticks + number for number in numbers[1:])]
    return pl.Series([numbers[code] for code in place], dtype=pl.Int64).cast(dtype)


def table(dtype: pl.DataType) -> pl.DataFrame:
    draw = np.random.default_rng(4)
    size = draw.integers(0, 30, 120)
    place = pl.Series(np.searchsorted([10, 20], size + draw.normal(size=120)))
    if isinstance(dtype, pl.String | pl.Enum | pl.Categorical):
        target = pl.Series([LEVELS[(0, 3, 2)[code]] for code in place]).cast(dtype)
    elif dtype.is_temporal() or dtype == pl.Decimal:
        target = made_of(place, dtype)
    elif dtype == pl.Boolean:
        target = place > 0
    elif dtype == pl.UInt64:
        target = pl.Series([2**64 - 3 + code for code in place], dtype=dtype)
    else:
        target = place.cast(dtype)
    return pl.DataFrame({"size": size, "noise": draw.normal(size=120), "y": target})


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_labels__are_of_the_type_of_the_target(dtype: pl.DataType, tmp_path: Path) -> None:
    data = table(dtype)
    bigforest.train(data, "y", trees=4, task="classification", out=tmp_path / "t.forest")
    forest = bigforest.read_forest(tmp_path / "t.forest")
    assert forest.classes == sorted(data["y"].unique().to_list())
    bigforest.predict_file(forest, data, tmp_path / "p.parquet")
    lazy = data.lazy().with_columns(prediction=forest.expr())
    assert lazy.collect_schema()["prediction"] == dtype
    for found in (
        forest.predict(data)["prediction"],
        forest.predict(data.lazy()).collect()["prediction"],
        lazy.filter((pl.col("prediction") == pl.col("y")) | True).collect(engine="streaming")["prediction"],
        pl.read_parquet(tmp_path / "p.parquet")["prediction"],
    ):
        assert found.dtype == dtype
        assert (found == data["y"]).mean() > 0.8
        assert len(pl.concat([found.alias("y"), data["y"]])) == 240
    assert bigforest.predict_file(forest, data, tmp_path / "q.parquet").metrics[0]["class"] == forest.classes[0]
    assert forest.score(data) == (forest.predict(data)["prediction"] == data["y"]).mean()
    assert len(set(forest.predict_proba(data).columns)) == len(forest.classes)
    rows = forest.oob.rows.collect()
    assert (rows["truth"].dtype, rows["prediction"].dtype) == (dtype, dtype)
    assert rows["truth"].equals(data["y"])
    assert (rows["prediction"] == data["y"]).mean() == pytest.approx(1 - forest.oob.error, abs=0.1)
    assert forest.oob.confusion is not None
    assert forest.oob.confusion.schema["truth"] == forest.oob.confusion.schema["prediction"] == dtype
    assert forest.oob.metrics.schema["class"] == dtype
    assert forest.oob.metrics["class"].to_list() == [*forest.classes, None]


def test_ordered_pandas_categories__come_back_in_their_order() -> None:
    data = table(pl.String()).to_pandas()
    data["y"] = pd.Categorical(data["y"], categories=LEVELS, ordered=True)
    forest = bigforest.train(data, "y", trees=4)
    found = forest.predict(data)["prediction"]
    assert found.dtype == data["y"].dtype
    assert (found == data["y"]).mean() > 0.8 and (found <= "large").any()


def test_enum_of_stores__is_kept(tmp_path: Path) -> None:
    dtype = pl.Enum(LEVELS)
    data = table(dtype)
    data.write_parquet(tmp_path / "table.parquet")
    bigforest.encode_store(tmp_path / "table.parquet", tmp_path / "t.store", target="y")
    parts = [bigforest.train(tmp_path / "t.store", trees=2, seed=seed, out=tmp_path / f"{seed}") for seed in (1, 2)]
    merged = bigforest.merge(parts, tmp_path / "merged")
    pruned = bigforest.prune_forest(merged, data, tmp_path / "pruned")
    for forest in (*parts, merged, pruned):
        assert forest.predict(data)["prediction"].dtype == dtype
