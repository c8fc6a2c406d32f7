"""Predictions, and labels in the out-of-bag report, are of the very type of the training column."""

from __future__ import annotations

import datetime
import json
import pickle
from decimal import Context, Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import bigforest
from bigforest import DataError
from bigforest.columns.dataspec import Label, TargetSpec
from bigforest.columns.labels import label_codes, label_series, label_texts, label_type
from bigforest.events import Event, StageAdvanced
from tests.commands import Run
from tests.thorough import cases

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
# One type of each kind, and one that has an order of its own.
KINDS = [pl.String(), pl.Enum(LEVELS[::-1]), pl.Boolean(), pl.UInt64(), pl.Float32(), pl.Date(), pl.Decimal(38, 10)]
KEPT = [pl.Enum(LEVELS), pl.Datetime("ns", "America/New_York"), pl.Time(), pl.Decimal(38, 10)]
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


@cache
def forest_of(dtype: pl.DataType) -> bigforest.Forest:
    """Four trees that classify by `table(dtype)`."""
    return bigforest.train(table(dtype), "y", trees=4, task="classification")


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_labels__are_of_the_type_of_the_target(dtype: pl.DataType) -> None:
    data, forest = table(dtype), bigforest.read_forest(forest_of(dtype).directory)
    assert forest.classes == sorted(data["y"].unique().to_list())
    found, rows = forest.predict(data)["prediction"], forest.oob.rows.collect()
    assert (found.dtype, rows["truth"].dtype, rows["prediction"].dtype) == (dtype, dtype, dtype)
    assert (found == data["y"]).mean() > 0.8
    assert rows["truth"].equals(data["y"])
    assert (rows["prediction"] == data["y"]).mean() == pytest.approx(1 - forest.oob.error, abs=0.1)


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_labels__are_of_the_type_of_the_target_everywhere(dtype: pl.DataType, tmp_path: Path) -> None:
    data, forest = table(dtype), forest_of(dtype)
    report = bigforest.predict_file(forest, data, tmp_path / "p.parquet")
    lazy = data.lazy().with_columns(prediction=forest.expr())
    assert lazy.collect_schema()["prediction"] == dtype
    for found in (
        forest.predict(data.lazy()).collect()["prediction"],
        lazy.filter((pl.col("prediction") == pl.col("y")) | True).collect(engine="streaming")["prediction"],
        pl.read_parquet(tmp_path / "p.parquet")["prediction"],
    ):
        assert found.dtype == dtype
        assert (found == data["y"]).mean() > 0.8
        assert len(pl.concat([found.alias("y"), data["y"]])) == 240
    assert report.metrics[0]["class"] == forest.classes[0]
    assert forest.score(data) == (forest.predict(data)["prediction"] == data["y"]).mean()
    assert len(set(forest.predict_proba(data).columns)) == len(forest.classes)
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


@pytest.mark.parametrize("dtype", cases(KEPT, quick=2), ids=str)
def test_type__is_kept_by_stores_merging_and_what_is_made_of_forests(dtype: pl.DataType, tmp_path: Path) -> None:
    data = table(dtype)
    data.write_parquet(tmp_path / "table.parquet")
    bigforest.encode_store(tmp_path / "table.parquet", tmp_path / "t.store", target="y", task="classification")
    parts = [bigforest.train(tmp_path / "t.store", trees=2, seed=seed, out=tmp_path / f"{seed}") for seed in (1, 2)]
    merged = bigforest.merge(parts, tmp_path / "merged")
    pruned = bigforest.prune_forest(merged, data, tmp_path / "pruned")
    calibrated = bigforest.calibrate_forest(merged, data, tmp_path / "calibrated")
    merged.write(tmp_path / "copy")
    copied = bigforest.read_forest(tmp_path / "copy")
    for forest in (*parts, merged, pruned, calibrated, copied, pickle.loads(pickle.dumps(merged))):
        assert forest.predict(data)["prediction"].dtype == dtype
        assert (forest.predict(data)["prediction"] == data["y"]).mean() > 0.8
    assert parts[0].oob.rows.collect()["truth"].equals(data["y"])


@pytest.mark.parametrize("dtype", cases(KEPT[1:], quick=1), ids=str)
def test_type__is_kept_by_a_resumed_training(dtype: pl.DataType, tmp_path: Path) -> None:
    data, out = table(dtype), tmp_path / "t.forest"
    data.write_parquet(tmp_path / "table.parquet")
    whole = bigforest.train(tmp_path / "table.parquet", "y", trees=6, task="classification")

    def stop(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == "grow":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bigforest.train(
            tmp_path / "table.parquet", "y", trees=6, task="classification", out=out, listener=stop, threads=1
        )
    forest = bigforest.train(resume=out)
    assert forest.oob.rows.collect().equals(whole.oob.rows.collect())
    assert forest.predict(data).equals(whole.predict(data))


@pytest.mark.parametrize("dtype", [dtype for dtype in TYPES if dtype.is_temporal() or dtype == pl.Decimal], ids=str)
def test_classes__of_equal_values_in_other_types_are_the_same(dtype: pl.DataType) -> None:
    data, forest = table(dtype), forest_of(dtype)
    target = forest.spec.target
    codes = label_codes(data["y"], target)
    assert codes is not None
    assert [forest.classes[code] for code in codes] == data["y"].to_list()
    others: list[pl.Series] = []
    if isinstance(dtype, pl.Datetime) and dtype.time_zone:
        others = [data["y"].dt.convert_time_zone("Asia/Tokyo")]
        assert label_codes(data["y"].dt.replace_time_zone(None), target) is None
        with pytest.raises(DataError, match="the true classes are labels that the forest does not know"):
            forest.score(data.with_columns(pl.col("y").dt.replace_time_zone(None)))
    elif dtype == pl.Date:
        others = [data["y"].cast(pl.Datetime("ns")), data["y"].cast(pl.Datetime("ms"))]
    elif isinstance(dtype, pl.Duration | pl.Datetime) and dtype.time_unit != "ns":
        others = [data["y"].dt.cast_time_unit("us")]
    elif dtype == pl.Decimal(12, 2):
        others = [data["y"].cast(pl.Float64), data["y"].cast(pl.Decimal(20, 5))]
    for other in others:
        found = label_codes(other, target)
        assert found is not None and (found == codes).all()
        assert forest.score(data.with_columns(other.alias("y"))) == forest.score(data)
    assert label_codes(pl.Series([True, None]), target) is None
    assert label_codes(pl.Series([1], dtype=pl.Int8), target) is None
    missing = label_codes(data["y"].clear(3), target)
    assert missing is not None and missing.tolist() == [-1, -1, -1]


def test_classes__as_text_are_all_different() -> None:
    """The hour that occurs twice in autumn, nanoseconds, and both sides of 1970."""
    hour = 1_604_210_400 * 10**9  # 06:00 UTC: 01:00 in New York, after 05:00 UTC was 01:00 as well
    for dtype, classes in (
        (pl.Datetime("ns", "America/New_York"), (-1, 0, 1, 999, hour - 3_600 * 10**9, hour)),
        (pl.Duration("ns"), (-1001, -1000, -999, -1, 0, 1, 999)),
        (pl.Time(), (0, 1, 2, 1000)),
    ):
        target = TargetSpec("y", str(dtype), classes)
        assert label_series(target).to_physical().to_list() == list(classes)
        assert len(set(label_texts(target))) == len(classes)


def test_class_weight__is_by_dates_and_decimals() -> None:
    for dtype, key, text in (
        (pl.Date(), datetime.date(1970, 1, 1), "1970-01-01"),
        (pl.Decimal(12, 2), Decimal("0.150"), "0.15"),
    ):
        data = table(dtype)
        for name in (key, text):
            forest = bigforest.train(data, "y", trees=2, task="classification", class_weight={name: 3.0})
            assert forest.spec.weight is not None and forest.spec.weight.classes == (1.0, 3.0, 1.0)
        assert f"p_{text}" in forest.predict_proba(data).columns


def test_dates__of_many_values_are_classes_only_where_said() -> None:
    data = pl.DataFrame({"x": range(300), "y": pl.Series(range(300), dtype=pl.Int32) // 2 + 500})
    data = data.with_columns(pl.col("y").cast(pl.Date))
    with pytest.raises(bigforest.DataError, match="more than 100 different values"):
        bigforest.train(data, "y", trees=2)
    assert len(bigforest.train(data, "y", trees=2, task="classification").classes) == 150
    assert len(bigforest.train(data.head(150), "y", trees=2).classes) == 75
    with pytest.raises(bigforest.DataError, match="a regression predicts"):
        bigforest.train(data, "y", trees=2, task="regression")


@pytest.mark.parametrize("dtype", [pl.Date(), pl.Datetime("ms"), pl.Datetime("us", "UTC"), pl.Duration("ms")], ids=str)
def test_values__that_python_has_not_are_refused(dtype: pl.DataType) -> None:
    far = 2**31 - 1 if dtype == pl.Date else 2**62
    data = pl.DataFrame({"x": [1, 2] * 20, "y": pl.Series([0, far] * 20, dtype=pl.Int64).cast(dtype)})
    with pytest.raises(bigforest.DataError, match="years after 9999"):
        bigforest.train(data, "y", trees=2)


@pytest.mark.parametrize(
    ("dtype", "classes"),
    [
        ("Date", (0, 2**31 - 1)),
        ("Date", (0, 2**40)),
        ("Time", (-1, 0)),
        ("Time", (0, 86_400 * 10**9)),
        ("Datetime", (0, 1)),
        ("Duration", (0, 1)),
        ("Datetime(time_unit='us', time_zone='No/Zone')", (0, 1)),
        ("Datetime(time_unit='us', time_zone=None)", (0, 2**62)),
        ("Datetime(time_unit='s', time_zone=None)", (0, 1)),
        ("Datetime(time_unit='us', time_zone=None)", ("a", "b")),
        ("Datetime(time_unit='us', time_zone=None)", (0.5, 1.5)),
        ("Duration(time_unit='ms')", (0, 2**62)),
        ("Duration(time_unit='ns')", (0, 2**64)),
        ("Decimal", (0, 1)),
        ("Decimal(precision=3, scale=2)", (0, 1000)),
        ("Decimal(precision=3, scale=4)", (0, 1)),
        ("Decimal(precision=99, scale=4)", (0, 1)),
        ("Decimal(precision=38, scale=2)", (0, 10**38)),
        ("Decimal(precision=38, scale=2)", (False, True)),
    ],
)
def test_forged_types__are_refused(dtype: str, classes: tuple[Label, ...]) -> None:
    with pytest.raises(bigforest.FormatError):
        label_type(TargetSpec("y", dtype, classes))


def test_json__of_the_command_line_says_dates(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for dtype, label in ((pl.Date(), "1970-01-01"), (pl.Decimal(12, 2), "0.15")):
        bigforest.train(table(dtype), "y", trees=2, task="classification", out=tmp_path / label)
        for command in (["inspect"], ["oob"]):
            assert f'"{label}"' in json.dumps(Run(capsys).json(*command, tmp_path / label))


@pytest.mark.parametrize("options", [{"impurity": "gini"}, {"family": "subspace-cap"}, {"class_weight": "balanced"}])
def test_task__of_whole_numbers_is_the_only_one_of_the_options(options: dict[str, Any]) -> None:
    rare = pl.DataFrame({"x": range(8), "y": [0, 1, 2, 3] * 2})
    assert bigforest.train(rare, "y", trees=1).spec.target.is_regression
    assert bigforest.train(rare, "y", trees=1, **options).spec.target.task == "classification"
