"""Tables are read as training read them: text stays text, and columns that are not read cannot block."""

from __future__ import annotations

import datetime as dt
import gzip
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

import bigforest as bf
from bigforest.errors import DataError
from bigforest.source.files import SeparatedPath
from bigforest.source.open import open_source

ROWS = 40


def table() -> pl.DataFrame:
    """Numbers, text, booleans and dates, and a target that follows from the first."""
    number = [float(k % 7) for k in range(ROWS)]
    return pl.DataFrame(
        {
            "num": number,
            "txt": ["uv"[k % 2] for k in range(ROWS)],
            "flag": [k % 3 == 0 for k in range(ROWS)],
            "day": [dt.date(2024, 1, 1 + k % 9) for k in range(ROWS)],
            "y": [int(one > 2) for one in number],
        }
    )


@pytest.fixture(scope="module")
def forest() -> bf.Forest:
    return bf.train(table(), "y", trees=4, seed=1)


@pytest.mark.parametrize("name", ["num", "txt", "flag", "day"])
def test_predict__a_column_without_values(name: str, forest: bf.Forest, tmp_path: Path) -> None:
    """Whatever the reader makes of it: pandas has NaN or None in it, and no type tells what it was."""
    expected = forest.predict(table().with_columns(pl.lit(None).alias(name)))["prediction"].to_list()
    frame = table().to_pandas()
    batches: list[Any] = [
        frame.assign(**{name: np.nan}),
        frame.assign(**{name: None}),
        frame.assign(**{name: pd.Series([pd.NA] * ROWS, dtype="string")}),
        table().with_columns(pl.lit(None, pl.String).alias(name)),
        table().with_columns(pl.lit(np.nan).alias(name)).to_arrow(),
    ]
    for batch in batches:
        found = forest.predict(batch)
        assert pl.Series(found["prediction"]).to_list() == expected
    for row in (0, 3):
        cells = table().row(row, named=True) | {name: float("nan")}
        assert forest.predict([cells])["prediction"].to_list() == expected[row : row + 1]
    frame.assign(**{name: np.nan}).to_parquet(tmp_path / "t.parquet")
    bf.predict_file(forest, tmp_path / "t.parquet", tmp_path / "p.parquet")
    assert pl.read_parquet(tmp_path / "p.parquet")["prediction"].to_list() == expected
    with pytest.raises(DataError, match="'num' is String"):
        forest.predict(table().with_columns(num=pl.lit("a")))


ODD = {
    "numbers and text": [k if k % 2 else str(k) for k in range(ROWS)],
    "text and dates": [dt.date(2020, 1, 1) if k % 2 else "soon" for k in range(ROWS)],
    "objects": [object() for _ in range(ROWS)],
    "large integers": [10**60] * ROWS,
}


@pytest.mark.parametrize("kind", ODD)
def test_columns_that_are_not_read__may_hold_anything(kind: str, forest: bf.Forest) -> None:
    values, rows = ODD[kind], table()
    expected, others = forest.predict(rows), rows.to_dict(as_series=False)
    frames: list[Any] = [
        rows.to_pandas().assign(note=pd.Series(values, dtype=object)),
        others | {"note": values},
        [row | {"note": value} for row, value in zip(rows.iter_rows(named=True), values, strict=True)],
    ]
    for frame in frames:
        assert list(forest.predict(frame)["prediction"]) == expected["prediction"].to_list()
        found = bf.train(frame, "y", exclude=["note"], trees=4, seed=1)
        assert found.predict(rows).equals(expected)
        if values[0] != 10**60:  # which float64 holds
            with pytest.raises(DataError, match="note"):
                bf.train(frame, "y", trees=1)


def test_columns_that_are_not_read__may_hold_objects(forest: bf.Forest, tmp_path: Path) -> None:
    objects = pl.Series("note", [object() for _ in range(ROWS)], dtype=pl.Object)
    expected, frame = forest.predict(table()), table().with_columns(objects)
    for given in (frame, frame.lazy()):
        assert bf.train(given, "y", exclude=["note"], trees=4, seed=1).predict(table()).equals(expected)
        bf.predict_file(forest, given, tmp_path / "p.parquet", overwrite=True)
        assert pl.read_parquet(tmp_path / "p.parquet").equals(expected)
        with pytest.raises(DataError, match=r"note|Object"):
            bf.train(given, "y", trees=1)
        with pytest.raises(DataError, match=r"objects of Python, which no file can hold|'Object'"):
            bf.predict_file(forest, given, tmp_path / "k.parquet", keep=["note"])


_NAIVE = dt.datetime(2024, 1, 1, 12)
_ZONED = _NAIVE.replace(tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "cells",
    [
        [_NAIVE, _ZONED],
        [_ZONED, None, _NAIVE],
        [_NAIVE.time(), _ZONED.timetz()],
        [pd.Timestamp(_NAIVE), pd.NaT, _ZONED],
        [_NAIVE.date(), _NAIVE],
        [_ZONED, _NAIVE.date()],
        [{"at": _NAIVE.date()}, {"at": _NAIVE}],
    ],
)
def test_times__with_and_without_a_zone_are_refused(cells: list[Any]) -> None:
    """They would be taken for times in UTC, and datetimes among dates for dates."""
    tables: list[Any] = [
        {"a": cells},
        [{"a": cell} for cell in cells],
        pd.DataFrame({"a": pd.Series(cells, dtype=object)}),
        np.array([[cell] for cell in cells], object),
    ]
    for table in tables:
        with pytest.raises(DataError, match=r"time zone|found value of type"):
            bf.train(table, [*"xyz"][: len(cells)], trees=1)
    assert bf.train({"a": [cells[0], None, cells[0]]}, [*"xyz"], trees=1).spec.rows == 3


def test_columns_that_are_not_read__in_files(forest: bf.Forest, tmp_path: Path) -> None:
    odd = pa.array([dt.datetime(2020, 1, 1)] * ROWS, pa.timestamp("us", "No/Where"))
    whole = table().to_arrow().append_column("at", odd)
    (tmp_path / "hive/part=1").mkdir(parents=True)
    pq.write_table(whole, tmp_path / "t.parquet")
    pq.write_table(whole, tmp_path / "hive/part=1/t.parquet")
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_file(file, whole.schema) as writer:
        writer.write_table(whole)
    for name in ("t.parquet", "t.arrow", "hive"):
        bf.predict_file(forest, tmp_path / name, tmp_path / "p.parquet", overwrite=True)
        assert pl.read_parquet(tmp_path / "p.parquet").equals(forest.predict(table()))
        assert bf.train(tmp_path / name, "y", exclude=["at"], trees=1).trees == 1
        with pytest.raises(DataError, match="'at' cannot be read"):
            bf.train(tmp_path / name, "y", trees=1)
    assert forest.predict(whole).num_rows == ROWS


@pytest.mark.parametrize(
    "write",
    [
        lambda frame, file: frame.write_parquet(f"{file}.parquet"),
        lambda frame, file: frame.write_ndjson(f"{file}.ndjson"),
    ],
)
def test_text_of_training__stays_text(write: Any, tmp_path: Path) -> None:
    """The partitions and values of new rows may look like numbers and dates."""
    for code in ("01001", "01002", "2A001"):
        for folder in ("t", "n")[: 1 + (code[0] == "0")]:
            (tmp_path / folder / f"code={code}").mkdir(parents=True)
            own = table().with_columns(
                text=pl.lit("2024-01-02" if folder == "n" else "a" + code), y=pl.lit(int(code[-1]))
            )
            write(own, tmp_path / folder / f"code={code}" / "0")
    forest = bf.train(tmp_path / "t", "y", trees=10, task="classification")
    bf.predict_file(forest, tmp_path / "n", tmp_path / "p.parquet", keep=["code", "text"])
    found = pl.read_parquet(tmp_path / "p.parquet")
    assert found["code"].unique().sort().to_list() == ["01001", "01002"] and found["text"].unique().to_list() == [
        "2024-01-02"
    ]
    assert (found["prediction"] == found["code"].str.tail(1).cast(pl.Int64)).all()


def test_folders__texts_of_one_number_are_different(tmp_path: Path) -> None:
    for name in ("1", "01"):
        (tmp_path / f"z={name}").mkdir()
        table().write_parquet(tmp_path / f"z={name}/0.parquet")
    source = open_source(tmp_path, scratch=tmp_path)
    assert source.schema["z"] == pl.String and source.column("z").unique().sort().to_list() == ["01", "1"]


PARTS = {
    "gaps": (pl.col("n").cast(pl.Float64), pl.Float64()),
    "narrow": (pl.col("n").cast(pl.Int8), pl.Int64()),
    "unsigned": (pl.col("n").cast(pl.UInt64), pl.Int128()),
    "decimal": (pl.col("n").cast(pl.Decimal(10, 2)), pl.Decimal(38, 2)),
    "null": (pl.lit(None).alias("n"), pl.Int64()),
    "no values": (pl.lit(np.nan).alias("t"), pl.String()),
    "no text": (pl.lit(None, pl.String).alias("n"), pl.Int64()),
    "categories": (pl.col("t").cast(pl.Categorical), pl.String()),
    "enum": (pl.col("t").cast(pl.Enum(["v", "u"])), pl.String()),
    "nanoseconds": (pl.col("d").cast(pl.Datetime("ns")), pl.Datetime("ns")),
    "days": (pl.col("d").cast(pl.Date), pl.Datetime("us")),
}


@pytest.mark.parametrize("case", PARTS)
@pytest.mark.parametrize("first", [True, False])
def test_folder__parts_of_several_types(case: str, first: bool, tmp_path: Path) -> None:
    whole = pl.DataFrame({"n": [1, 2, 3], "t": ["u", "v", "u"], "d": [dt.datetime(2024, 1, day) for day in (1, 2, 3)]})
    change, dtype = PARTS[case]
    [name] = whole.select(change).columns
    parts = [whole.with_columns(change), whole]
    for number, part in enumerate(parts if first else parts[::-1]):
        part.write_parquet(tmp_path / f"{number}.parquet")
    source = open_source(tmp_path, scratch=tmp_path)
    assert source.schema[name] == dtype and source.rows == 6
    has_values = (
        change.meta.output_name() and "lit" not in str(change)[:4] and case not in ("null", "no values", "no text")
    )
    expected = [whole[name] if has_values else pl.Series([None] * 3, dtype=whole[name].dtype), whole[name]]
    expected = [one.cast(dtype) for one in (expected if first else expected[::-1])]
    assert source.column(name).equals(pl.concat(expected))


@pytest.mark.parametrize("first", [True, False])
def test_folder__large_integers_beside_a_column_without_values(first: bool, tmp_path: Path) -> None:
    large = pl.DataFrame({"n": [2**60 + 1, 3, None]})
    parts = [large, pl.DataFrame({"n": [None, float("nan")]}, schema={"n": pl.Float64})]
    for number, part in enumerate(parts if first else parts[::-1]):
        part.write_parquet(tmp_path / f"{number}.parquet")
    column = open_source(tmp_path, scratch=tmp_path).column("n")
    assert column.dtype == pl.Int64 and column.drop_nulls().to_list() == [2**60 + 1, 3] and len(column) == 5
    pl.DataFrame({"n": [0.5]}).write_parquet(tmp_path / "2.parquet")
    with pytest.raises(DataError, match=f"{int(not first)}.parquet: column 'n' has integers beyond 2..53"):
        open_source(tmp_path, scratch=tmp_path)


def test_folder__of_integers_of_128_bits_is_read_in_order(tmp_path: Path) -> None:
    whole = pl.DataFrame({"n": pl.Series(range(50), dtype=pl.Int128), "x": [k / 4 for k in range(50)]})
    for number, (begin, rows) in enumerate([(0, 7), (7, 1), (8, 30), (38, 12)]):
        part = whole.slice(begin, rows)
        part = part.with_columns(pl.col("n").cast(pl.Int64)) if number == 1 else part
        part.write_parquet(tmp_path / f"{number}.parquet", row_group_size=4)
    source = open_source(tmp_path, scratch=tmp_path)
    for first, stop, rows in [(0, None, 50), (0, None, 9), (5, 9, 2), (7, 8, 3), (36, 45, 4), (45, 45, 4), (0, 50, 1)]:
        batches = list(source.batches(["x", "n"], rows, first, stop))
        size = (50 if stop is None else stop) - first
        assert [batch.height for batch in batches] == [min(rows, size - at) for at in range(0, size, rows)]
        assert not batches or pl.concat(batches).equals(whole.slice(first, size).select("x", "n"))


@pytest.mark.parametrize("repeated", [False, True])
def test_batches__of_long_text_are_small(repeated: bool, tmp_path: Path) -> None:
    """Repeated text is short in the file, and long when it is read."""
    texts = [f"{k % 7 if repeated else k} " + "word " * 1_000 for k in range(9_000)]
    frame = pl.DataFrame({"text": texts, "x": range(9_000)})
    for number, part in enumerate((frame[:100], frame[100:])):
        part.write_parquet(tmp_path / f"{number}.parquet")
    source = open_source(tmp_path, scratch=tmp_path)
    for first, stop in [(0, None), (50, 8_999), (99, 101)]:
        batches = list(source.batches(["x", "text"], 1 << 18, first, stop))
        assert pl.concat(batches).equals(frame[first:stop].select("x", "text"))
        assert max(batch.estimated_size() for batch in batches) < 45e6 / 2
    assert source.column("text").to_list() == texts
    assert [batch.height for batch in source.batches(["x"], 1 << 18)] == [9_000]
    assert {batch.height for batch in source.batches(["x", "text"], 90)} == {90}


def test_folder__of_integers_of_128_bits_and_other_types(tmp_path: Path) -> None:
    (folder := tmp_path / "t").mkdir()
    for number, others in ((2**53, [0.5, None]), (2**100, [None, None])):
        pl.DataFrame({"n": pl.Series([number, -1], dtype=pl.Int128)}).write_parquet(folder / "0.parquet")
        pl.DataFrame({"n": others}).write_parquet(folder / "1.parquet")
        assert open_source(folder, scratch=tmp_path).column("n").to_list() == [number, -1, *others]
    pl.DataFrame({"n": [0.5]}).write_parquet(folder / "1.parquet")
    with pytest.raises(DataError, match=r"0.parquet: column 'n' has integers beyond 2\*\*53, which are not exact"):
        open_source(folder, scratch=tmp_path)


@pytest.mark.parametrize("pack", [gzip.compress, lambda text: pa.compress(text, "zstd", asbytes=True)])
def test_text__may_be_compressed(pack: Any, tmp_path: Path) -> None:
    ending = "gz" if pack is gzip.compress else "zst"
    for kind, text in (("csv", table().write_csv()), ("ndjson", table().write_ndjson())):
        (tmp_path / f"t.{kind}").write_text(text)
        (tmp_path / f"t.{kind}.{ending}").write_bytes(pack(text.encode()))
        plain, packed = (open_source(tmp_path / f"t.{kind}{end}", scratch=tmp_path) for end in ("", f".{ending}"))
        assert packed.name == "t" and packed.schema == plain.schema
        assert_frame_equal(packed.columns(list(packed.schema)), plain.columns(list(plain.schema)))
    (tmp_path / "hive/k=1").mkdir(parents=True)
    (tmp_path / f"hive/k=1/0.csv.{ending}").write_bytes(pack(b"a\n1\n"))
    assert open_source(tmp_path / "hive", scratch=tmp_path).columns(["a", "k"]).row(0) == (1, 1)


OBJECTS = {
    "integers": ([1, None, 2**70], [1.0, None, 2.0**70], pl.Float64()),
    "unsigned": ([2**63, 1], [2.0**63, 1.0], pl.UInt64()),
    "huge": ([10**50, 2**200], [1e50, 2.0**200], pl.Float64()),
    "mixed": ([1, 2.5, np.int8(3), Decimal("0.5"), None], [1.0, 2.5, 3.0, 0.5, None], pl.Float64()),
    "decimals": ([Decimal("1.25"), float("nan"), Decimal(2)], [1.25, None, 2.0], pl.Decimal(38, 2)),
    "small decimals": ([Decimal("1e-45"), Decimal("3e-45")], [1e-45, 3e-45], pl.Float64()),
    "not finite": ([Decimal("NaN"), Decimal("Infinity"), Decimal(1)], [None, np.inf, 1.0], pl.Float64()),
    "text": ([float("nan"), "a", None, np.str_("b")], [None, "a", None, "b"], pl.String()),
    "marks": ([pd.NA, 3, None], [None, 3.0, None], pl.Int64()),
    "booleans": ([True, None, np.bool_(False), float("nan")], [True, None, False, None], pl.Boolean()),
    "booleans of numpy": ([np.bool_(True), float("nan"), False], [True, None, False], pl.Boolean()),
    "booleans and NaN": ([True, float("nan")], [True, None], pl.Boolean()),
    "booleans and numbers": ([np.bool_(True), 2.5, 0, None], [1.0, 2.5, 0.0, None], pl.Float64()),
    "float32 and float64": ([np.float32(0.5), 0.1, 1e300], [0.5, 0.1, 1e300], pl.Float64()),
    "text of numpy": (["a", np.str_("b"), None], ["a", "b", None], pl.String()),
    "durations": ([np.timedelta64(2, "h"), np.timedelta64("NaT")], [dt.timedelta(hours=2), None], pl.Duration()),
    "nanoseconds": (
        [np.datetime64("2024-01-02T03", "ns"), np.datetime64("2024-01-02T04", "ns")],
        [dt.datetime(2024, 1, 2, 3), dt.datetime(2024, 1, 2, 4)],
        pl.Datetime(),
    ),
    "days": ([np.datetime64("2024-01-02"), None], [dt.date(2024, 1, 2), None], pl.Date()),
    "nothing": ([None, float("nan"), pd.NA], [None] * 3, pl.Null()),
}


@pytest.mark.parametrize("case", OBJECTS)
def test_objects__of_python(case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One column, from whichever table of objects."""
    values, expected, dtype = OBJECTS[case]
    tables: list[Any] = [
        {"c": values},
        [{"c": value} for value in values],
        pd.DataFrame({"c": pd.Series(values, dtype=object)}),
        np.array([[value] for value in values], object),
    ]
    for given in tables:
        source = open_source(given, scratch=tmp_path)
        [(name, found_type)] = source.schema.items()
        assert found_type.base_type() == dtype.base_type(), type(given)
        found = source.column(name)
        assert (found.cast(pl.Float64) if found.dtype.is_numeric() else found).to_list() == expected
    assert capfd.readouterr().err == ""  # no panic of Polars
    with pytest.raises(DataError, match="is not exact in float64"):
        open_source({"c": [2**200 + 1, 1]}, scratch=tmp_path)


@pytest.mark.parametrize(
    "make", [list, lambda values: np.array(values, object), lambda values: pd.Series(values, dtype=object)]
)
@pytest.mark.parametrize("values", [[2.5, 2**53 + 1, None], [2**53 + 1, 2.5, None], [None, 2.5, -(2**63) + 1]])
def test_numbers__whole_ones_among_floats_are_exact_or_refused(make: Any, values: list[Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not exact in float64"):
        open_source({"c": make(values)}, scratch=tmp_path)
    fine = [2.5, 2**53, None, 7]
    assert open_source({"c": make(fine)}, scratch=tmp_path).column("c").to_list() == fine


@pytest.mark.parametrize("unit", ["h", "m", "s", "ms", "us", "ns"])
def test_times__of_numpy_in_any_unit(unit: str, tmp_path: Path) -> None:
    moments = np.array(["2024-01-02T03", "NaT"], f"M8[{unit}]")
    lengths = np.array([50, "NaT"], "m8[h]").astype(f"m8[{unit}]")
    columns = {"moment": moments, "length": lengths, "months": moments.astype("M8[M]")}
    for given in (
        columns,
        pd.DataFrame({"moment": moments, "length": lengths}),
        [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
    ):
        source = open_source(given, scratch=tmp_path)
        assert source.column("moment").to_list() == [dt.datetime(2024, 1, 2, 3), None]
        assert source.column("length").to_list() == [dt.timedelta(hours=50), None]
        if "months" in source.schema:
            assert source.column("months").to_list() == [dt.date(2024, 1, 1), None]
    with pytest.raises(DataError):
        open_source({"c": np.array([5], "m8[Y]")}, scratch=tmp_path)
    with pytest.raises(DataError, match="is not a column of one type"):
        open_source({"c": [np.datetime64("2024-01-02T03", "ns"), dt.datetime(2024, 1, 2)]}, scratch=tmp_path)


@pytest.mark.parametrize(
    "times",
    [
        [np.timedelta64(200_000, "D"), np.timedelta64(1, "ns")],
        [np.datetime64("2600-01-01"), None, np.datetime64("2020-01-01T00:00:00.000000001")],
        np.array([2**62, 5], "m8[D]"),
        np.array([2**60, 5], "M8[s]"),
        np.array([2**40, 5], "M8[D]"),
    ],
    ids=["durations of two units", "moments of two units", "long", "late", "late day"],
)
def test_times__beyond_the_range_of_a_unit_are_refused(times: Any, tmp_path: Path) -> None:
    """numpy and Polars wrap them, or make them missing, without a word."""
    with pytest.raises(DataError, match="some of its times are beyond the range of the unit that holds them"):
        open_source({"c": times}, scratch=tmp_path)


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("s", "UTC"), pa.duration("s")], ids=str)
def test_times__of_arrow_in_seconds_beyond_milliseconds_are_refused(kind: Any, tmp_path: Path) -> None:
    """Polars wraps them without a word."""
    late = pa.table({"a": pa.array([2**60, 5, None]).cast(kind), "b": [1, 2, 3]})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_file(file, late.schema) as writer:
        writer.write_table(late)
    frames = [late.to_pandas(), late.to_pandas(types_mapper=pd.ArrowDtype)]
    tables: list[Any] = [late, late.to_reader(), tmp_path / "t.arrow", *frames]
    for given in tables:
        with pytest.raises(DataError, match=r"column 'a' .*(out of bounds|beyond the range)"):
            open_source(given, scratch=tmp_path)
    early = pa.table({"a": pa.array([10**9, 5, None]).cast(kind)})
    milliseconds = open_source(early, scratch=tmp_path).column("a").to_physical().to_list()
    assert milliseconds == [10**12, 5000, None]


def test_times__of_a_list_with_missing_ones_need_no_unit_of_their_own(tmp_path: Path) -> None:
    """numpy 2.5 warns of a missing duration without a unit."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for missing in (None, float("nan"), pd.NaT):
            source = open_source({"c": [np.timedelta64(2, "h"), missing]}, scratch=tmp_path)
            assert source.column("c").to_list() == [dt.timedelta(hours=2), None]


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow", "pandas", "polars"])
def test_predict_file__no_rows(kind: str, forest: bf.Forest, tmp_path: Path) -> None:
    rows, file = table().head(0), tmp_path / f"t.{kind}"
    data: Any = {"pandas": rows.to_pandas(), "polars": rows}.get(kind, file)
    if data is file:
        {"parquet": rows.write_parquet, "csv": rows.write_csv, "arrow": rows.write_ipc}[kind](file)
    done = bf.predict_file(forest, data, tmp_path / "p.parquet", proba=True, keep=["txt"])
    found = pl.read_parquet(tmp_path / "p.parquet")
    assert done.rows == found.height == 0 and found.columns == ["txt", "prediction", "p_0", "p_1"]
    assert found.schema["prediction"] == forest.predict(table()).schema["prediction"]
    with pytest.raises(DataError, match="the table has no rows"):
        bf.validate_forest(forest, data)


@pytest.mark.parametrize(
    "values",
    [
        [2**70 + (k << 30) for k in range(ROWS)],
        [-(2**64) - (k << 20) for k in range(ROWS)],
        [Decimal(k).scaleb(30) for k in range(ROWS)],
        pl.Series([Decimal(k) / 8 for k in range(ROWS)], dtype=pl.Decimal(38, 25)),
    ],
    ids=["integers", "negative", "decimals", "digits"],
)
def test_numbers_beyond_64_bits__that_float64_holds(values: Any, tmp_path: Path) -> None:
    """They are the features that floats would be; other ones are refused, as two of them may be one float64."""
    floats = {"c": [float(one) for one in values], "y": [int(k > 20) for k in range(ROWS)]}
    expected = bf.train(floats, "y", trees=3, seed=1)
    frame = pl.DataFrame({"c": values, "y": floats["y"]})
    frame.write_parquet(tmp_path / "t.parquet")
    for data in ({**floats, "c": values}, pd.DataFrame({**floats, "c": list(values)}), frame, tmp_path / "t.parquet"):
        found = bf.train(data, "y", trees=3, seed=1)
        assert found.predict_proba(floats).equals(expected.predict_proba(floats))
        assert found.predict_proba(frame).equals(expected.predict_proba(floats))
    with pytest.raises(DataError, match=r"more than 64 bits|too many digits"):
        bf.train({**floats, "c": [2**90 + 1, *range(1, ROWS)]}, "y")


def test_separator__is_remembered(tmp_path: Path) -> None:
    """By a run that is resumed, and by the forest, for new rows whose header it divides."""
    file, out = tmp_path / "t.csv", tmp_path / "f"
    table().write_csv(file, separator=":")
    bf.train(SeparatedPath(file, ":"), "y", trees=2, seed=1, out=out)
    expected = bf.train(table(), "y", trees=3, seed=1).predict_proba(table())
    forest = bf.train(SeparatedPath(file, ":"), "y", trees=3, seed=1, resume=out)
    assert forest.spec.separator == ":" and forest.trees == 3
    table().write_csv(tmp_path / "comma.csv")
    for name in ("t.csv", "comma.csv"):
        bf.predict_file(out, tmp_path / name, tmp_path / "p.parquet", proba=True, overwrite=True)
        assert pl.read_parquet(tmp_path / "p.parquet").select(expected.columns).equals(expected)
    assert bf.train(resume=out, trees=4).trees == 4


class PathLike:
    """A path of another package."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


@pytest.mark.parametrize("make", [pd.Index, np.array, pl.Series, pa.array, tuple, list])
def test_names__of_other_packages(make: Any, forest: bf.Forest) -> None:
    names = make(["num", "flag"])
    assert bf.train(table(), "y", exclude=names, trees=1).spec.feature_names == ["txt", "day"]
    assert forest.predict(table(), keep=names).columns == ["num", "flag", "prediction"]


def test_names_and_paths__of_other_packages(tmp_path: Path) -> None:
    table().write_parquet(tmp_path / "t.parquet")
    data = PathLike(tmp_path / "t.parquet")
    forest = bf.train(data, "y", trees=np.int64(1), seed=np.int8(1), out=PathLike(tmp_path / "f"))
    assert bf.read_forest(PathLike(tmp_path / "f")).predict(table()).equals(forest.predict(table()))
    found = forest.explain(data, parts=np.array(["dependence"]), features=pd.Index(["txt"]), grid=np.int64(3))
    assert found["dependence"]["feature"].unique().to_list() == ["txt"]
    candidates = {"one": {"mtry": np.int64(1)}, "two": {}}
    assert bf.compare(data, "y", candidates=candidates, options={"trees": np.int64(1)}).candidates.height == 2
