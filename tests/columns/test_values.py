"""The value of a cell: cells of other types that are equal to a person are equal to a forest."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import bigforest
from bigforest.columns.types import level_text, places_of

SEVEN = [
    pl.Series([7]),
    pl.Series([7.0]),
    pl.Series([7]).cast(pl.Decimal(10, 2)),
    pl.Series(["7"]),
    pl.Series([" 7.0 "]),
]
YES = [pl.Series([True]), pl.Series(["true"]), pl.Series(["True"]), pl.Series([" TRUE"])]
ONE = [pl.Series([True]), pl.Series([1]), pl.Series([1.0]), pl.Series([1]).cast(pl.Decimal(10, 2)), pl.Series(["1"])]
DAY = [
    pl.Series([datetime.date(2024, 3, 1)]),
    pl.Series([datetime.datetime(2024, 3, 1)]).cast(pl.Datetime("ns")),
    pl.Series(["2024-03-01"]),
    pl.Series(["2024-03-01 00:00:00"]),
    pl.Series([" 2024-03-01T00:00:00.000 "]),
]
NOON = [
    pl.Series([datetime.datetime(2024, 3, 1, 12)]),
    pl.Series([datetime.datetime(2024, 3, 1, 12)]).cast(pl.Datetime("ns")),
    pl.Series(["2024-03-01 12:00:00"]),
    pl.Series(["2024-03-01T12:00"]),
]
NOON_IN_UTC = [
    pl.Series([datetime.datetime(2024, 3, 1, 12)]).dt.replace_time_zone("UTC"),
    pl.Series(["2024-03-01 12:00:00+00:00"]),
    pl.Series(["2024-03-01T13:00:00+01:00"]),
]
TIME = [pl.Series([datetime.time(3, 4, 5)]), pl.Series(["03:04:05"]), pl.Series(["03:04:05.000"])]
TWO_DAYS = [
    pl.Series([datetime.timedelta(2)]),
    pl.Series([datetime.timedelta(2)]).cast(pl.Duration("ns")),
    pl.Series(["2 days, 0:00:00"]),
]
HALF = [pl.Series([0.5]), pl.Series([0.5]).cast(pl.Decimal(10, 4)), pl.Series(["0.50"]), pl.Series([".5"])]
TOWN = [
    pl.Series(["NY"]),
    pl.Series([" NY"]),
    pl.Series(["NY\t"], dtype=pl.Categorical),
    pl.Series(["NY"], dtype=pl.Enum(["NY"])),
]
TENTH = [pl.Series([0.1], dtype=pl.Float32), pl.Series([0.1]), pl.Series(["0.1"]), pl.Series([Decimal("0.10")])]
WIDENED = [TENTH[0], TENTH[0].cast(pl.Float64), TENTH[0].cast(pl.Float64).cast(pl.String)]  # 0.10000000149011612


@pytest.mark.parametrize(
    "forms",
    [SEVEN, YES, ONE, DAY, NOON, NOON_IN_UTC, TIME, TWO_DAYS, HALF, TOWN, TENTH, WIDENED],
    ids=["seven", "yes", "one", "day", "noon", "noon in UTC", "time", "two days", "half", "town", "tenth", "widened"],
)
def test_places_of__equal_values_of_all_types(forms: list[pl.Series]) -> None:
    for values in forms:
        for known in forms:
            both_text = values.dtype == known.dtype == pl.String
            if both_text and values[0].strip() != known[0].strip():
                continue  # two texts are equal if they are the same without spaces
            assert places_of(pl.concat([values, values.clear(2)]), known).to_list() == [0, None, None]


def test_places_of__different_values() -> None:
    assert places_of(pl.Series(["1", "7", "007", "ny", None, "yes"]), pl.Series([7, 1])).to_list() == [
        1,
        0,
        0,
        None,
        None,
        None,
    ]
    assert places_of(pl.Series([7]), pl.Series(["07", "007"])).to_list() == [None]  # either might be meant
    assert places_of(pl.Series([7]), pl.Series(["07", "7"])).to_list() == [1]
    assert places_of(pl.Series(["7", "7.0"]), pl.Series(["7.0"])).to_list() == [None, 0]
    assert places_of(pl.Series([True]), pl.Series([2, 0])).to_list() == [None]
    assert places_of(pl.Series([2, 1]), pl.Series([False, True])).to_list() == [None, 1]
    assert places_of(pl.Series([True]), pl.Series(["1", "true"])).to_list() == [1]
    assert places_of(pl.Series([0.1 + 1e-12, 2**24 + 1]), pl.Series([0.1, 2.0**24])).to_list() == [None, None]
    assert places_of(pl.Series([2**24 + 1]), pl.Series([2.0**24], dtype=pl.Float32)).to_list() == [None]
    assert places_of(pl.Series([2.0**53, 7.5]), pl.Series([2**53 + 1, 7])).to_list() == [None, None]
    assert places_of(pl.Series([7.5, float("nan"), 7.0]), pl.Series([7])).to_list() == [None, None, 0]
    assert places_of(pl.Series([datetime.date(2024, 3, 1)]), pl.Series([19783])).to_list() == [None]
    moments = pl.Series([datetime.datetime(2024, 3, 1, 1)])
    assert places_of(moments, DAY[0]).to_list() == [None]
    assert places_of(NOON_IN_UTC[1], NOON[0]).to_list() == [None]
    assert places_of(NOON[2], NOON_IN_UTC[0]).to_list() == [None]
    assert level_text(pl.Series(["7.50", "7.00"]).cast(pl.Decimal(10, 2))).to_list() == ["7.5", "7"]


def test_forest__takes_categories_and_classes_with_spaces_around_them() -> None:
    random = np.random.default_rng(0)
    town = random.choice(["NY", "LA", "SF"], 300)
    table = pl.DataFrame({"town": town, "x": random.normal(size=300), "y": np.where(town == "NY", "in", "out")})
    padded = table.with_columns(pl.col("town").str.pad_start(4), pl.col("y").str.pad_end(5))
    options: dict[str, Any] = {"trees": 5, "min_level": 1}
    forest, other = bigforest.train(table, "y", **options), bigforest.train(padded, "y", **options)
    assert other.classes == ["in", "out"]
    assert other.predict(padded).equals(forest.predict(table))
    assert forest.predict(padded, unseen="error").equals(forest.predict(table))
    assert forest.score(padded) == forest.score(table)
    grouped = bigforest.train(
        table.with_columns(g=pl.col("town") + pl.Series([" ", ""] * 150)), "y", group="g", trees=2
    )
    assert grouped.spec.group is not None and grouped.spec.group.groups == 3


@pytest.mark.parametrize(
    "truth",
    [["True", "False"], ["true", "false"], [" TRUE", "FALSE "], pl.Series(["True", "False"], dtype=pl.Categorical)],
)
def test_score__of_booleans_in_text(truth: Any) -> None:
    table = pl.DataFrame({"x": [0.0, 1.0] * 50, "y": [True, False] * 50})
    forest = bigforest.train(table, "y", trees=5)
    assert forest.score(table.drop("y"), pl.Series(list(truth) * 50)) == 1.0
    with pytest.raises(bigforest.DataError, match="labels that the forest does not know, such as 'yes', 'no'"):
        forest.score(table.drop("y"), ["yes", "no"] * 50)
    for strange in (
        pl.Series([b"\xff", b"no"] * 50),
        pl.Series([[True]] * 100),
        pl.Series([True] * 100, dtype=pl.Object),
    ):
        with pytest.raises(bigforest.DataError, match=r"are labels of type (Binary|List|Object)"):
            forest.score(table.with_columns(y=strange))


MOMENTS = [datetime.datetime(2024, 3, 1), datetime.datetime(2024, 3, 1, 12, 30)]


@pytest.mark.parametrize(
    ("classes", "names"),
    [
        ([False, True], [True, "TRUE", 1, "1.0", np.True_]),
        ([1, 2], [2, 2.0, "2.0", " 2 ", np.float32(2.0), Decimal("2.00")]),
        ([np.float32(0.1), np.float32(0.3)], [0.3, "0.3", np.float32(0.3), float(np.float32(0.3))]),
        ([Decimal("0.50"), Decimal("2.00")], [2, "2", Decimal(2)]),
        (["a", "b"], ["b", " b "]),
        (MOMENTS, [MOMENTS[1], str(MOMENTS[1]), "2024-03-01T12:30", np.datetime64(MOMENTS[1], "ns")]),
        ([moment.date() + datetime.timedelta(moment.hour) for moment in MOMENTS], ["2024-03-13 00:00:00"]),
        (["1", "2"], [2, 2.0, np.float32(2.0), np.int8(2), Decimal("2.00")]),
        (
            [datetime.timedelta(1), datetime.timedelta(2)],
            [pd.Timedelta(days=2), "2 days, 0:00:00", np.timedelta64(2, "D"), np.timedelta64(2 * 86_400 * 10**9, "ns")],
        ),
    ],
    ids=lambda given: repr(given[0]),
)
def test_classes__are_named_by_equal_values(classes: list[Any], names: list[Any], tmp_path: Path) -> None:
    table = pl.DataFrame({"x": range(60), "y": classes * 30})
    forest = bigforest.train(table, "y", trees=3, task="classification")
    whole = forest.explain(table[:4], parts="contributions", classes=forest.classes)["contributions"]
    for number, name in enumerate(names):
        store = bigforest.encode_store(
            table, tmp_path / f"{number}", target="y", task="classification", class_weight={name: 3}
        )
        assert store.weight is not None and store.weight.tolist() == [1, 3] * 30
        alone = forest.explain(table[:4], parts="contributions", classes=[name])["contributions"]
        assert alone.equals(whole.filter(pl.Series([False, True] * 4)))
        assert forest.score(table, [name] * 60) == forest.score(table, [forest.classes[1]] * 60)


def test_booleans__are_0_and_1_of_other_tables() -> None:
    flag = pl.Series([True, False, None, True, False] * 20)
    table = pl.DataFrame({"x": range(100), "flag": flag, "y": pl.Series([True, False, False, False, True] * 20)})
    codes = table.with_columns(pl.col("flag", "y").cast(pl.Int8))
    for data, others in ((table, codes), (codes, table)):
        forest = bigforest.train(data, "y", categories=["flag"], min_level=1, trees=5, task="classification")
        by: dict[str, Any] = {"coverage": 0.8, "coverage_by": data["flag"]}
        expected, score, covered = forest.predict_proba(data), forest.score(data), forest.predict(data, **by)
        for dtype in (pl.Boolean, pl.Float64, pl.Decimal(4, 2)):
            given = others.with_columns(pl.col("flag").cast(pl.Int8).cast(dtype), pl.col("y").cast(pl.Int8).cast(dtype))
            assert forest.predict_proba(given, unseen="error").equals(expected)
            assert forest.score(given) == score
            assert forest.predict(given, **by).equals(covered)
        with pytest.raises(bigforest.DataError, match="labels that the forest does not know, such as '2'"):
            forest.score(data.with_columns(y=pl.lit(2)))


def test_coverage_by__takes_equal_values_of_other_types() -> None:
    random = np.random.default_rng(0)
    site, x = random.integers(1, 4, 900), random.normal(size=900)
    noise = random.normal(size=900) * np.where(site == 3, 10.0, 0.1)
    table = pl.DataFrame({"x": x, "site": site, "y": x + noise})
    forest = bigforest.train(table, "y", exclude=["site"], trees=30)
    by: dict[str, Any] = {"coverage": 0.9, "coverage_by": table["site"]}
    expected = forest.predict(table, **by)
    for dtype in (pl.Float64, pl.Decimal(10, 2), pl.String):
        assert forest.predict(table.with_columns(pl.col("site").cast(dtype)), **by).equals(expected)
    floats = table.with_columns(pl.col("site").cast(pl.Float64).cast(pl.String))
    assert forest.predict(floats, **by).equals(expected)
    days = table.with_columns(pl.date(2024, 3, "site").alias("site"))
    by_day: dict[str, Any] = {"coverage": 0.9, "coverage_by": days["site"]}
    for dtype in (pl.Date, pl.Datetime("ns"), pl.String):
        assert forest.predict(days.with_columns(pl.col("site").cast(dtype)), **by_day).equals(expected)
    texts = table["site"].cast(pl.String).str.zfill(3)
    assert forest.predict(table, coverage=0.9, coverage_by=texts).equals(expected)


@pytest.mark.parametrize("dtype", [pl.String, pl.Decimal(10, 2), pl.Datetime, pl.Duration, pl.Float64, pl.Boolean])
def test_level_text__any_name(dtype: Any) -> None:
    """A series named like a pattern is no pattern."""
    values = pl.Series("^a$", [1, 0, None]).cast(pl.String if dtype == pl.String else dtype)
    assert level_text(values).equals(level_text(values.alias("a")).alias("^a$"), check_names=True)
