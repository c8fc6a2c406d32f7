"""Columns of every type are compared in the order of their values, in training and in prediction alike."""

from __future__ import annotations

import tempfile
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest
from bigforest.columns.types import codes_by_column, flat_columns, kind_of, level_codes, numbers, type_name
from bigforest.errors import DataError
from bigforest.events import silent
from bigforest.planning.sizes import USUAL, Limits
from tests.encode.test_encode import content, encoded
from tests.naive import encode as naive
from tests.strategies import cuts
from tests.thorough import examples

NOW = 1_763_719_200_000_000_001  # nanoseconds since 1970
UNITS = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def decimals(scale: int, pool: list[int]) -> tuple[pl.DataType, list[int], int]:
    return pl.Decimal(19, scale), pool, 10**scale


# A type, the integers behind some of its values, and what these are divided by.
TYPES: dict[str, tuple[pl.DataType, list[int], int]] = {
    "date": (pl.Date(), [-700_000, -1, 0, 1, 20_000, 2_900_000], 1),
    "time": (pl.Time(), [0, 1, 10**9, 86_399_999_999_999], 1),
    "ms": (pl.Datetime("ms"), [-(10**12), -1, 0, 1, NOW // 10**6, NOW // 10**6 + 1], 1),
    "us": (pl.Datetime("us", "Europe/Rome"), [-1, 0, 1, NOW // 1000, NOW // 1000 + 1], 1),
    "ns": (pl.Datetime("ns"), [-NOW, -1, 0, 1, NOW, NOW + 1000, NOW + 2**60], 1),
    "utc": (pl.Datetime("ns", "UTC"), [NOW, NOW + 300, NOW + 1000], 1),
    "duration": (pl.Duration("us"), [-(10**15), -1, 0, 1, 10**15], 1),
    "long duration": (pl.Duration("ns"), [-(2**62) - 2**11, 0, 2**61, 2**62 + 2**11], 1),
    "int64": (pl.Int64(), [-(2**63), -(2**63) + 2**11, -(2**53), 0, 2**53, 2**53 + 2, 2**62, 2**63 - 1], 1),
    "uint64": (pl.UInt64(), [0, 1, 2**53 + 2, 2**63 - 1, 2**63 + 2**12, 2**64 - 1], 1),
    "int128": (pl.Int128(), [-(2**63), -1, 0, 2**53, 2**62, 2**63 - 1], 1),
    "cents": decimals(2, [-(10**17), -1, 0, 1, 10, 101, 10**15 - 1, 10**18]),
    "fine": decimals(18, [-(10**18), -1, 0, 1, 10**15 + 1, 10**18 - 10**4, 10**18]),
    "whole": decimals(0, [-1, 0, 1, 2**53, 10**18]),
}


@given(data=st.data(), scale=st.integers(0, 38), digits=st.integers(1, 38))
def test_decimals__are_the_nearest_float64(data: st.DataObject, scale: int, digits: int) -> None:
    scale = min(scale, digits)
    raw = data.draw(st.lists(st.integers(1 - 10**digits, 10**digits - 1), min_size=1, max_size=20))
    exact = [Fraction(number, 10**scale) for number in raw]
    series = pl.Series(
        [Decimal(number).scaleb(-scale, Context(prec=40)) for number in raw], dtype=pl.Decimal(38, scale)
    )
    assert numbers(series, str(series.dtype)).tolist() == [float(value) for value in exact]


def series_of(name: str, kind: str, raw: list[int]) -> pl.Series:
    """A column of the type from the integers behind its values."""
    dtype, _, divisor = TYPES[kind]
    if dtype == pl.Decimal:
        return pl.Series(name, [Decimal(number).scaleb(-len(str(divisor)) + 1) for number in raw], dtype=dtype)
    wide = pl.Series(name, raw, dtype=dtype if dtype.is_integer() else pl.Int64)
    return wide if dtype.is_integer() else wide.cast(pl.Int32 if dtype == pl.Date else pl.Int64).cast(dtype)


def floats(kind: str, raw: list[int]) -> list[float]:
    """What the values are compared as."""
    return [float(Fraction(number, TYPES[kind][2])) for number in raw]


@st.composite
def typed(draw: st.DrawFn, rows: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Columns of some types, and the same as floats."""
    chosen = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4, unique=True))
    made, plain = [], []
    for kind in chosen:
        raw = draw(st.lists(st.sampled_from(TYPES[kind][1]), min_size=rows, max_size=rows))
        made.append(series_of(kind, kind, raw))
        plain.append(pl.Series(kind, floats(kind, raw)))
    return pl.DataFrame(made), pl.DataFrame(plain)


@pytest.mark.parametrize("kind", TYPES)
def test_pools__values_differ_as_floats(kind: str) -> None:
    pool = TYPES[kind][1]
    assert len(set(floats(kind, pool))) == len(set(pool))
    assert sorted(floats(kind, pool)) == floats(kind, sorted(pool))


@settings(max_examples=examples(30))
@given(
    data=st.data(), rows=st.integers(2, 30), max_bins=st.sampled_from(["exact", "exact", 2, 3]), pieces=st.booleans()
)
def test_encode__order_of_every_type(data: st.DataObject, rows: int, max_bins: Any, pieces: bool) -> None:
    frame, plain = data.draw(typed(rows))
    frame = frame.with_columns(target=pl.int_range(pl.len()) % 2)
    with tempfile.TemporaryDirectory() as name:
        limits = Limits(presort_rows=data.draw(st.sampled_from([1, 3])), slice_rows=4) if pieces else USUAL
        store = encoded(frame, Path(name), max_bins=max_bins, limits=limits)
        store.verify()
        for place, feature in enumerate(store.spec.features):
            column = plain[feature.name].to_list()
            codes, low, high = naive.binned(column, max_bins if isinstance(max_bins, int) else rows)
            assert store.feature_codes(place).tolist() == codes
            assert store.low(place).tolist() == low
            assert store.high(place).tolist() == high
            assert feature.dtype == str(frame[feature.name].dtype)


@settings(max_examples=examples(12))
@given(data=st.data(), rows=st.integers(4, 40))
def test_forest__of_any_type_is_that_of_its_floats(data: st.DataObject, rows: int) -> None:
    """The same thresholds, and the same answers for frames, lazy queries and files, also to rows never seen."""
    frame, plain = data.draw(typed(rows))
    target = pl.Series("target", data.draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows)))
    target[0], target[1] = 0, 1
    half = max(2, rows // 2)
    options: dict[str, Any] = {"task": "classification", "trees": 3, "seed": 4, "threads": 1}
    forest = bigforest.train(frame.with_columns(target)[:half], **options)
    float_forest = bigforest.train(plain.with_columns(target)[:half], **options)
    assert forest.nodes.collect().equals(float_forest.nodes.collect())
    expected = float_forest.predict_proba(plain)
    assert forest.predict_proba(frame).equals(expected)
    assert forest.predict_proba(frame.lazy()).collect().equals(expected)
    writable = frame.select(pl.exclude(pl.Int128, pl.Time))
    if writable.width == frame.width:
        with tempfile.TemporaryDirectory() as name:
            frame.write_parquet(Path(name) / "t.parquet")
            bigforest.predict_file(forest, Path(name) / "t.parquet", Path(name) / "p.parquet", proba=True)
            assert pl.read_parquet(Path(name) / "p.parquet").drop("prediction").equals(expected)


@settings(max_examples=examples(60))
@given(
    raw=st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=20),
    family=st.sampled_from([pl.Datetime, pl.Duration]),
    given_unit=st.sampled_from(list(UNITS)),
    trained=st.sampled_from(list(UNITS)),
)
def test_numbers__in_the_unit_of_training(raw: list[int], family: Any, given_unit: Any, trained: Any) -> None:
    whole, parts = UNITS[trained], UNITS[given_unit]
    found = numbers(pl.Series(raw).cast(family(given_unit)), str(family(trained))).astype(np.float64)
    exact = [Fraction(number) * whole / parts for number in raw]
    for got, wanted in zip(found.tolist(), exact, strict=True):
        assert abs(Fraction(got) - wanted) <= max(abs(wanted), 1) * Fraction(1, 2**51)
        if wanted.denominator == 1 and abs(wanted) <= 2**53:
            assert got == wanted
    order = np.argsort(raw, kind="stable")
    assert (np.diff(found[order]) >= 0).all()


def test_predict__dates_as_datetimes_and_the_reverse() -> None:
    """pandas has datetimes where a table has dates."""
    days = pl.date_range(pl.date(1960, 1, 1), pl.date(2030, 1, 1), "200d", eager=True)
    frame = pl.DataFrame({"day": days, "y": [["a", "b", "c"][n // 5 % 3] for n in range(len(days))]})
    forest = bigforest.train(frame, "y", trees=5)
    for unit in UNITS:
        moments = frame.with_columns(pl.col("day").cast(pl.Datetime(unit)))
        assert forest.predict(moments).equals(forest.predict(frame))
        assert bigforest.train(moments, "y", trees=5).predict(frame).equals(forest.predict(frame))
    assert forest.predict(frame.to_pandas())["prediction"].tolist() == forest.predict(frame)["prediction"].to_list()
    with pytest.raises(DataError, match="'day' is Datetime"):
        forest.predict(frame.with_columns(pl.col("day").cast(pl.Datetime("us", "UTC"))))


@pytest.mark.parametrize("values", [["a", None, "b"], [1, 2, None], [1.5, 2.0, 3.0], [[1], [], None], [True] * 3])
def test_predict__a_column_without_values_in_training_may_be_of_any_type(values: list[Any], tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1, 2, 3], "gap": pl.Series([None] * 3), "y": ["a", "b", "a"]})
    forest = bigforest.train(frame, "y", trees=5)
    other = frame.with_columns(pl.Series("gap", values))
    expected = forest.predict_proba(frame)
    assert forest.predict_proba(other).equals(expected)
    other.write_parquet(tmp_path / "t.parquet")
    bigforest.predict_file(forest, tmp_path / "t.parquet", tmp_path / "p.parquet", proba=True)
    assert pl.read_parquet(tmp_path / "p.parquet").drop("prediction").equals(expected)
    lazy = other.lazy().select(forest.expr()).collect().to_series()
    assert lazy.to_list() == forest.predict(frame)["prediction"].to_list()


def test_numbers__keep_what_python_says_of_dates() -> None:
    moment = datetime(2024, 2, 29, 13, 14, 15, 678901)
    since = moment - datetime(1970, 1, 1)
    assert numbers(pl.Series([moment]), "Datetime(time_unit='us', time_zone=None)")[0] == since / timedelta(
        microseconds=1
    )
    assert numbers(pl.Series([moment]), "Datetime(time_unit='ms', time_zone=None)")[0] == since / timedelta(
        milliseconds=1
    )
    assert numbers(pl.Series([date(2024, 2, 29)]), "Date")[0] == (date(2024, 2, 29) - date(1970, 1, 1)).days
    assert numbers(pl.Series([time(1, 2, 3, 4)]), "Time")[0] == 3_723_000_004_000
    assert numbers(pl.Series([Decimal("0.10")]), "Decimal(precision=5, scale=1)")[0] == 0.1


@pytest.mark.parametrize(
    ("dtype", "other"),
    [
        (pl.Date, pl.Int32),
        (pl.Int32, pl.Date),
        (pl.Date, pl.Datetime("us", "UTC")),
        (pl.Datetime("us"), pl.Datetime("us", "UTC")),
        (pl.Datetime("us", "UTC"), pl.Datetime("us")),
        (pl.Duration("us"), pl.Datetime("us")),
        (pl.Time, pl.Duration("ns")),
        (pl.Float64, pl.String),
    ],
)
def test_predict__another_kind_is_refused(dtype: Any, other: Any) -> None:
    frame = pl.DataFrame({"x": pl.Series([1, 2, 3], dtype=pl.Int32), "y": [0, 1, 1]})
    forest = bigforest.train(
        frame.with_columns(pl.col("x").cast(pl.Int64).cast(dtype) if dtype == pl.Time else pl.col("x").cast(dtype)),
        "y",
        trees=2,
    )
    given = frame.with_columns(pl.col("x").cast(pl.Int64).cast(other) if other != pl.Date else pl.col("x").cast(other))
    for data in (given, given.lazy()):
        with pytest.raises(DataError, match=r"'x' is .*, in training it was .*: convert to what it was in training"):
            forest.predict(data)
    with pytest.raises(DataError, match="in training it was"):
        given.select(forest.expr())


def test_predict__time_zones_and_units_may_differ() -> None:
    hours = pl.datetime_range(datetime(2024, 1, 1), datetime(2024, 1, 20), "1h", eager=True).alias("x")
    frame = hours.to_frame().with_columns(y=pl.col("x").dt.day() > 9, x=pl.col("x").dt.replace_time_zone("UTC"))
    forest = bigforest.train(frame, "y", trees=5)
    assert forest.features["dtype"].to_list() == ["Datetime(time_unit='us', time_zone='UTC')"]
    expected = forest.predict_proba(frame)
    for unit in ("ms", "us", "ns"):
        local = frame.with_columns(pl.col("x").dt.convert_time_zone("Asia/Tokyo").dt.cast_time_unit(unit))
        assert forest.predict_proba(local).equals(expected)
    pandas = frame.with_columns(pl.col("x").dt.cast_time_unit("ns")).to_pandas()
    assert np.array_equal(forest.predict_proba(pandas).to_numpy(), expected.to_numpy())


def test_predict__offsets_with_minutes_are_times_in_utc(tmp_path: Path) -> None:
    hours = pl.datetime_range(datetime(2024, 1, 1), datetime(2024, 1, 20), "1h", eager=True, time_zone="UTC").alias("x")
    frame = hours.to_frame().with_columns(y=pl.col("x").dt.day() > 9)
    table = frame.to_arrow()
    table = table.set_column(0, "x", table["x"].cast(pa.timestamp("us", "+05:30")))  # which Polars refuses
    pq.write_table(table, tmp_path / "t.parquet")
    pandas = table.to_pandas()
    arrow_backed = pandas.astype({"x": pd.ArrowDtype(table.schema.field("x").type)})
    forest = bigforest.train(tmp_path / "t.parquet", "y", trees=5)
    assert forest.features["dtype"].to_list() == ["Datetime(time_unit='us', time_zone='UTC')"]
    expected = forest.predict_proba(frame).to_numpy()
    for given_table in (table, pandas, pandas.astype({"x": object}), arrow_backed):
        assert np.array_equal(pl.DataFrame(forest.predict_proba(given_table)).to_numpy(), expected)
    with pytest.raises(DataError, match="column 'x' cannot be read"):
        forest.predict(table.set_column(0, "x", table["x"].cast(pa.timestamp("us", "+99:99"))))


def test_decimals_of_256_bits__of_pandas_are_numbers(capfd: pytest.CaptureFixture[str]) -> None:
    """Polars would panic, and print where."""
    quarters = pa.array([None if place % 5 == 0 else Decimal(place) / 4 for place in range(60)])
    backed = pd.DataFrame({"a": pd.arrays.ArrowExtensionArray(quarters.cast(pa.decimal256(40, 2)))})
    y = np.arange(60) % 7 > 3
    forest = bigforest.train((backed, y), trees=3, listener=silent)
    plain = bigforest.train((pl.DataFrame({"a": quarters.cast(pa.float64())}), y), trees=3, listener=silent)
    assert np.array_equal(forest.predict_proba(backed).to_numpy(), plain.predict_proba(backed).to_numpy())
    assert not capfd.readouterr().err


def test_runs_and_long_doubles__are_their_values() -> None:
    table = pl.DataFrame({"a": [1] * 20 + [None] * 20 + [3] * 20, "b": ["u", "v", "w"] * 20, "y": [0, 0, 1] * 20})
    forest = bigforest.train(table, "y", trees=3)
    expected = forest.predict_proba(table).to_numpy()
    arrow = table.to_arrow(compat_level=pl.CompatLevel.oldest())
    for place, name in enumerate(("a", "b")):
        runs = pc.run_end_encode(arrow[name].combine_chunks())
        given_table = arrow.set_column(place, name, runs)
        backed = table.to_pandas().assign(**{name: pd.arrays.ArrowExtensionArray(runs)})
        for form in (given_table, given_table.to_reader(), backed):
            assert np.array_equal(pl.DataFrame(forest.predict_proba(form)).to_numpy(), expected)
        assert bigforest.train(given_table, "y", trees=3).predict_proba(table).to_numpy().tolist() == expected.tolist()
    wide = table["a"].to_numpy().astype(np.longdouble)
    for form in ({**table.to_dict(), "a": wide}, table.to_pandas().assign(a=wide)):
        assert np.array_equal(pl.DataFrame(forest.predict_proba(form)).to_numpy(), expected)
    plain = bigforest.train((wide[:, np.newaxis], table["y"]), trees=3)
    assert (
        plain.predict_proba(wide[:, np.newaxis]).tolist() == plain.predict_proba({"x0": table["a"]}).to_numpy().tolist()
    )


def test_kind_of__types_and_their_names() -> None:
    for dtype in (
        pl.Date(),
        pl.Time(),
        pl.Datetime("ms"),
        pl.Datetime("ns", "Asia/Tokyo"),
        pl.Duration("us"),
        pl.Int8(),
    ):
        assert kind_of(str(dtype)) == kind_of(dtype)
    assert kind_of(pl.Datetime("ms", "UTC")).family == "Datetime with a time zone"
    assert kind_of(pl.Decimal(10, 2)) == kind_of(pl.UInt8()) == ("number", 1)
    assert kind_of("Datetime(time_unit='h')") == ("number", 1)
    for text in (pl.String(), pl.Categorical(), pl.Enum(["a", "b"])):
        assert kind_of(text) == kind_of(type_name(text)) == ("text", 1)


# Missing values and levels.


@pytest.mark.parametrize("cut", [0, 1, 4])
def test_numbers__nulls_are_nan(cut: int) -> None:
    for series, expected in (
        (pl.Series([1, None, -3, 2**53, None]), [1, None, -3, 2.0**53, None]),
        (pl.Series([None, 0.5, float("nan"), -0.0, float("inf")]), [None, 0.5, None, 0.0, float("inf")]),
        (pl.Series([True, None, False]), [1, None, 0]),
        (pl.Series([date(1970, 1, 2), None]), [1, None]),
        (pl.Series([None, "0.25"]).cast(pl.Decimal(10, 2)), [None, 0.25]),
        (pl.Series([None, None], dtype=pl.Int8), [None, None]),
    ):
        found = numbers(series.slice(cut), str(series.dtype))
        wanted = np.array([np.nan if value is None else value for value in expected[cut:]], np.float64)
        assert np.array_equal(found.astype(np.float64), wanted, equal_nan=True)


def test_numbers__units_stay_exact_beside_nulls() -> None:
    exact = (2**53 - 1) * 1_000
    series = pl.Series([exact, None], dtype=pl.Duration("ns"))
    assert numbers(series, "Duration(time_unit='us')")[0] == exact // 1_000
    floats = numbers(pl.Series([-0.0, None, 1e300, float("inf")]), "Float64")
    assert floats.dtype == np.float64 and str(floats.tolist()) == "[-0.0, nan, 1e+300, inf]"


NAN = float("nan")
MANY_LEVELS = [f"~{number}" for number in range(5_000)]


@pytest.mark.parametrize(
    ("cells", "levels", "codes"),
    [
        (pl.Series(["b", "a", None, "c", "", "b"]), ["a", "b"], [1, 0, NAN, 2, 2, 1]),
        (pl.Series(["b", "a", None, "c"], dtype=pl.Categorical), ["a", "b"], [1, 0, NAN, 2]),
        (pl.Series(["b", None], dtype=pl.Enum(["c", "b"])), ["a", "b"], [1, NAN]),
        (pl.Series([True, False, None]), ["false", "true"], [1, 0, NAN]),
        (pl.Series([10, -9, None, 3], dtype=pl.Int8), ["-9", "10"], [1, 0, NAN, 2]),
        (pl.Series([2**64 - 1], dtype=pl.UInt64), ["0", str(2**64 - 1)], [1]),
        (
            pl.Series([10.0, -9.0, None, NAN, 9.5, 1e300, -0.0, float("inf")]),
            ["-9", "0", "10"],
            [2, 0, NAN, NAN, 3, 3, 1, 3],
        ),
        (pl.Series(["a", None]), [], [0, NAN]),
        (pl.Series([], dtype=pl.String), ["a"], []),
    ],
)
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("more", [[], MANY_LEVELS], ids=["cast", "join"])
def test_level_codes__by_value(
    cells: pl.Series, levels: list[str], codes: list[float], first: int, more: list[str]
) -> None:
    """Also where there are too many levels for a type of their own."""
    found = level_codes(cells, pl.Series([*levels, *more], dtype=pl.String), first)
    assert found.dtype == np.float64
    wanted = np.array(codes, np.float64)
    wanted[wanted == len(levels)] += len(more)  # the code of unknown levels
    assert np.array_equal(found, wanted + first, equal_nan=True)


@pytest.mark.parametrize("times", [1, 8_000, 20_000], ids=["all together", "two together", "one by one"])
def test_codes_by_column__are_those_of_each(times: int) -> None:
    table = [pl.Series(["b", "a", None, "c"]), pl.Series([3, 1, 2, None]), pl.Series([True, None, False, True])]
    levels = [pl.Series(["a", "b"]), pl.Series(["1", "2", "3", *MANY_LEVELS]), pl.Series(["false"])]
    types = ["String", "Int64", "Boolean"]
    found = codes_by_column([pl.concat([column] * times) for column in table], levels, [0, 1, 0], types)
    for codes, wanted in zip(found, ([1.0, 0.0, NAN, 2.0], [3.0, 1.0, 2.0, NAN], [1.0, NAN, 0.0, 1.0]), strict=True):
        assert np.array_equal(codes, wanted * times, equal_nan=True)


# Nested columns.


def nested_table(rows: int = 60) -> pl.DataFrame:
    """Arrays, structs and both within each other, and what they hold, flat."""
    random = np.random.default_rng(rows)
    image = random.integers(0, 9, (rows, 2, 3))
    return pl.DataFrame(
        {
            "image": pl.Series(image, dtype=pl.Array(pl.UInt8, (2, 3))),
            "where": [{"lat": float(i % 7), "at": {"day": date(2024, 1, 1 + i % 28)}} for i in range(rows)],
            "deep": pl.Series(
                [[{"a": i % 5}, {"a": i % 3}] for i in range(rows)], dtype=pl.Array(pl.Struct({"a": pl.Int16}), 2)
            ),
            "x": random.normal(size=rows),
            "y": (image.sum(axis=(1, 2)) > 24).astype(int),
        }
    )


NAMES = [
    *(f"image[{i}][{j}]" for i in range(2) for j in range(3)),
    *("where.lat", "where.at.day", "deep[0].a", "deep[1].a", "x"),
]


def flat(frame: pl.DataFrame) -> pl.DataFrame:
    """The nested table flat, by Python."""
    rows = frame.to_dicts()
    image = {f"image[{i}][{j}]": [int(row["image"][i][j]) for row in rows] for i in range(2) for j in range(3)}
    deep = {f"deep[{i}].a": pl.Series([row["deep"][i]["a"] for row in rows], dtype=pl.Int16) for i in range(2)}
    where = {
        "where.lat": [row["where"]["lat"] for row in rows],
        "where.at.day": [row["where"]["at"]["day"] for row in rows],
    }
    return pl.DataFrame({**image, **where, **deep, "x": frame["x"], "y": frame["y"]}).cast(
        dict.fromkeys(image, pl.UInt8)
    )


@settings(max_examples=examples(15))
@given(data=st.data(), cells=st.sampled_from([1, 60, 10**6]))
def test_encode__nested_columns_are_their_elements(data: st.DataObject, cells: int) -> None:
    """In memory, from files of any cut, and from Arrow's fixed-size lists, a few rows at a time."""
    frame, limits = nested_table(20), Limits(copy_cells=cells)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected = encoded(flat(frame), folder, "flat.store")
        assert expected.spec.feature_names == NAMES
        sizes = data.draw(cuts(len(frame)))
        for number, start in enumerate(np.cumsum([0, *sizes[:-1]]).tolist()):
            frame[start : start + sizes[number]].write_parquet(folder / f"{number}.parquet")
        pq.write_table(frame.to_arrow(), folder / "arrow.pq")
        tables = [frame, str(folder / "*.parquet"), folder / "arrow.pq", frame.lazy(), frame.to_arrow()]
        for number, table in enumerate(tables):
            store = encoded(table, folder, f"{number}.store", limits=limits)
            columns = [name.split("[")[0].split(".")[0] for name in NAMES]
            assert [feature.column for feature in store.spec.features] == columns
            ours, plain = content(store), content(expected)
            assert {file: ours[file] for file in ours if file != "manifest.json"} == {
                file: plain[file] for file in plain if file != "manifest.json"
            }


def test_forest__of_nested_columns(tmp_path: Path) -> None:
    frame = nested_table()
    forest = bigforest.train(frame, "y", trees=8, out=tmp_path / "f")
    assert forest.features["name"].to_list() == NAMES
    expected = bigforest.train(flat(frame), "y", trees=8).predict_proba(flat(frame))
    forest = bigforest.read_forest(tmp_path / "f")
    assert forest.predict_proba(frame).equals(expected)
    assert forest.predict_proba(flat(frame)).equals(expected)
    assert forest.predict_proba(frame.lazy()).collect().equals(expected)
    assert forest.predict_proba(flat(frame).lazy()).collect().equals(expected)
    assert frame.select(forest.expr(proba=True)).unnest("probabilities").equals(expected)
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=7)
    for memory in (None, "1GB"):
        out = tmp_path / f"{memory}.parquet"
        done = bigforest.predict_file(forest, tmp_path / "t.parquet", out, proba=True, keep=["image"], memory=memory)
        assert pl.read_parquet(out).drop("image", "prediction").equals(expected)
        assert done.scored == len(frame)
    with pytest.raises(DataError, match="'image\\[0\\]\\[0\\]'"):
        forest.predict(frame.drop("image"))
    nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    absent = frame.with_columns(pl.lit(None).alias(name) for name in nested)  # as NDJSON without any has them
    missing = frame.with_columns(pl.lit(None, frame.schema[name]).alias(name) for name in nested)
    assert forest.predict_proba(absent).equals(forest.predict_proba(missing))
    assert forest.to_matrix(absent).shape == (len(frame), len(NAMES))


@pytest.mark.parametrize("roles", [{}, {"weight": "m.w"}, {"group": "m.g"}])
def test_forest__of_a_target_weights_and_groups_in_nested_columns(roles: dict[str, str], tmp_path: Path) -> None:
    rows = [{"w": 1.0 + k % 3, "g": k // 2, "t": "ny"[k % 7 > 3], "v": k % 7} for k in range(60)]
    nested = pl.DataFrame({"m": rows, "x": [k * 37 % 60 / 8 for k in range(60)]})
    flat = nested.unnest("m", separator=".").select("m.w", "m.g", "m.t", "m.v", "x")
    of_nested, of_flat = (bigforest.train(frame, "m.t", trees=4, **roles) for frame in (nested, flat))
    for name, frame in (("nested", nested), ("flat", flat)):
        frame.write_parquet(tmp_path / f"{name}.parquet")
    done = [
        bigforest.predict_file(forest, tmp_path / f"{table}.parquet", tmp_path / f"p{number}.parquet", keep=["x"])
        for number, (forest, table) in enumerate([(of_flat, "flat"), (of_nested, "nested"), (of_nested, "flat")])
    ]
    assert done[0] == done[1] == done[2] and done[0].scored == 60 and done[0].weighted == ("weight" in roles)
    assert of_nested.score(nested) == of_nested.score(flat) == of_flat.score(flat)
    found = of_nested.explain(tmp_path / "nested.parquet", parts="permutation")["permutation"]
    assert found.equals(of_flat.explain(flat, parts="permutation")["permutation"])
    assert bigforest.validate_forest(of_nested, nested).equals(bigforest.validate_forest(of_flat, flat))
    new = nested.select("x", m=pl.col("m").struct.rename_fields(["w", "g", "other", "v"]))
    assert of_nested.predict(new).equals(of_flat.predict(flat))
    nested[:0].write_parquet(tmp_path / "empty.parquet")
    assert bigforest.predict_file(of_nested, tmp_path / "empty.parquet", tmp_path / "none.parquet").rows == 0


def test_encode__nested_columns_left_out_in_whole_or_part(tmp_path: Path) -> None:
    frame = nested_table().with_columns(text=pl.struct(a=pl.lit("t"), b=pl.col("x")))
    store = encoded(frame, tmp_path, target="y", exclude=["image", "where.at.day", "text.a"])
    assert [f.name for f in store.spec.features] == ["where.lat", "deep[0].a", "deep[1].a", "x", "text.b"]
    whole = encoded(frame, tmp_path, "b.store", target="y", exclude=["image", "where", "deep", "text"])
    assert [f.name for f in whole.spec.features] == ["x"]
    inner = frame.select("x", s=pl.struct(target="y", z=pl.col("x").round()))
    assert encoded(inner, tmp_path, "c.store", target="s.target").spec.target.name == "s.target"


def test_flat_columns__structs_and_arrays() -> None:
    schema = {
        "a": pl.Array(pl.Struct({"b": pl.Int8, "c": pl.Array(pl.Int8, 2)}), 2),
        "d": pl.List(pl.Int8),
        "e": pl.Array(pl.Int8, 0),
    }
    assert list(flat_columns(schema)) == ["a[0].b", "a[0].c[0]", "a[0].c[1]", "a[1].b", "a[1].c[0]", "a[1].c[1]", "d"]


def test_train__fixed_size_lists_of_arrow() -> None:
    values = pa.array(np.arange(40.0).tolist())
    table = pa.table({"e": pa.FixedSizeListArray.from_arrays(values, 4), "y": [0, 1] * 5})
    assert bigforest.train(table, "y", trees=1).features["name"].to_list() == [f"e[{i}]" for i in range(4)]
