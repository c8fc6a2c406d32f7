"""Tables in CSV and NDJSON: blank lines, missing values, and dates in text."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import bigforest as bf
from bigforest.errors import DataError
from bigforest.source.csv_files import CsvFile
from bigforest.source.open import open_source
from bigforest.source.source import EVERYTHING, Reading


def read(path: Path) -> pl.DataFrame:
    """All columns of a table."""
    source = open_source(path, scratch=path.parent)
    return source.columns([*source.schema])


def test_csv__blank_lines_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t/1.csv").write_text('a,b,c\n1,2,x\n\n,,\n"4\n4",5,\n\r\n\n')
    (tmp_path / "t/2.csv").write_text("c,b,a\ny,8,7\n\nz,,9\n")
    expected = pl.DataFrame(
        {"a": ["1", None, "4\n4", "7", "9"], "b": [2, None, 5, 8, None], "c": ["x", None, None, "y", "z"]}
    )
    (tmp_path / "t/2.csv").write_text("\n\nc;b;a\ny;8;seven\n\nz;;nine\n")
    expected = expected.with_columns(a=pl.Series(["1", None, "4\n4", "seven", "nine"]))
    assert_frame_equal(read(tmp_path / "t"), expected)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("a,b\n1,2\n3,\n,", True),
        ("a,b\r\n1,\r\n", True),
        ("a\n1\n\n", True),
        ("a,b\n1\n2,3\n", False),
        ("a,b\n\n2,3", False),
        ('a,b\n"1,2",\n', False),  # where only quotes tell
    ],
)
def test_has_whole_lines(tmp_path: Path, text: str, whole: bool) -> None:
    (tmp_path / "t.csv").write_bytes(text.encode())
    assert CsvFile.open(tmp_path / "t.csv", EVERYTHING).has_whole_lines() is whole


def test_csv__a_line_with_more_values_does_not_make_up_for_one_with_fewer(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2,3\n4\n")
    with pytest.raises(DataError, match="line 2 has 3 values, and the header names 2 columns"):
        read(tmp_path / "t.csv")


def test_csv__marks_of_missing_values_among_numbers(tmp_path: Path) -> None:
    made = {
        "whole": ["1", "NA", "-3"],
        "real": ["?", "2.5", "1e3"],
        "others": ["nan", "null", "7"],
        "^late$": ["NA", "NA", "4"],
        "text": ["NA", "1", "x"],
        "marks": ["NA", "?", "NA"],
        "wide": ["None", "1", str(2**70)],
    }
    pl.DataFrame(made).write_csv(tmp_path / "t.csv")
    found = read(tmp_path / "t.csv")
    assert found["whole"].to_list() == [1, None, -3] and found.schema["whole"] == pl.Int64
    assert found["real"].to_list() == [None, 2.5, 1000.0]
    assert found["others"].to_list() == [None, None, 7]
    assert found.get_column("^late$").to_list() == [None, None, 4]
    assert found.select("text", "marks").to_dict(as_series=False) == {"text": made["text"], "marks": made["marks"]}
    assert found["wide"].to_list() == [None, 1, 2**70]


def test_csv__marks_of_missing_values_among_dates_and_booleans(tmp_path: Path) -> None:
    """R writes NA for all missing values but those of text."""
    day, moment = date(2026, 1, 2), datetime(2026, 1, 2, 3, 4)
    made = {"day": [day, None] * 30, "at": [None, moment] * 30, "flag": [True, None, False] * 20, "y": ["a", "b"] * 30}
    table = pl.DataFrame(made)
    forest = bf.train(table.drop_nulls("flag"), "y", trees=2)
    for mark in ("NA", "<NA>", "NULL", "\\N", " "):
        table.write_csv(tmp_path / "t.csv", null_value=mark)
        assert_frame_equal(read(tmp_path / "t.csv"), table)
        bf.predict_file(forest, tmp_path / "t.csv", tmp_path / "p.parquet", overwrite=True)
        assert pl.read_parquet(tmp_path / "p.parquet").equals(forest.predict(table))


def test_csv__text_after_many_numbers_is_text(tmp_path: Path) -> None:
    for last, dtype in (("x", pl.String), ("5", pl.Int64)):
        (tmp_path / "t.csv").write_text("a,b\n" + "NA,1\n2,1\n" * 700 + f"{last},1\n")
        assert read(tmp_path / "t.csv").schema["a"] == dtype


_CODES = {
    "codes": (["01", "1", "2"], pl.String()),
    "marks": (["NA", "007", " 7"], pl.String()),
    "late": (["1"] * 1200 + ["01"], pl.String()),
    "decimals": (["01", "1", "2.5"], pl.String()),
    "beyond": (["01", "1", str(2**70)], pl.String()),
    "one length": (["007", "010", "1234", "-05"], pl.Int64()),
    "marks, one length": (["NA", "007", "010"], pl.Int64()),
    "fractions": (["0.5", "00.5", "10", "0"], pl.Float64()),
}


@pytest.mark.parametrize("name", _CODES)
def test_csv__texts_of_one_number_are_different(name: str, tmp_path: Path) -> None:
    """Groups 01 and 1 would be one group."""
    texts, dtype = _CODES[name]
    for order in (1, -1):
        (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{text},1\n" for text in texts[::order]))
        source = open_source(tmp_path / "t.csv", scratch=tmp_path)
        assert source.schema == {"a": dtype, "b": pl.Int64}
        assert source.column("a").to_list() == texts[::order] or dtype != pl.String
        told = "01 and 1: 'a';" if dtype == pl.String else "as 00123: 'a';"  # codes, or numbers that lose their zeros
        assert [told in message for message in source.notices] == [True] * (name != "fractions")


@pytest.mark.parametrize(
    ("texts", "noticed"),
    [
        (["1.1", "1.2", "1.10"], True),
        (["NA", "1.50", " 1.5"], True),
        (["1.5", "1.25", "10"], False),
        (["1.50", "2.25", "3.10"], False),
        (["1.50", "2.5"], False),
        (["1", "1.0", "10", "2.5"], False),  # as pandas writes whole numbers in two files
    ],
)
def test_csv__numbers_written_in_two_ways_are_noticed(texts: list[str], noticed: bool, tmp_path: Path) -> None:
    """Sections 1.1 and 1.10 would be one group; prices 1.5 and 1.50 are."""
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{text},1\n" for text in texts * 3))
    source = open_source(tmp_path / "t.csv", scratch=tmp_path)
    assert source.schema["a"] == pl.Float64()
    assert ["as 1.1 and 1.10: 'a';" in message for message in source.notices] == [True] * noticed


@pytest.mark.parametrize(
    ("texts", "noticed"),
    [
        (["12345678901234567.5", "12345678901234568.5", "3"], True),
        (["123456789012345.5", "123456789012346.5", "3"], False),
        ([repr(0.1 + 0.2), "0.30000000000000000", "0.300000000000000000"], False),
        ([f"{0.1 * number:.18f}" for number in range(9)], False),  # as numpy.savetxt writes
    ],
)
def test_csv__numbers_that_are_one_float_are_noticed(texts: list[str], noticed: bool, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{text},1\n" for text in texts * 3))
    source = open_source(tmp_path / "t.csv", scratch=tmp_path)
    assert source.schema["a"] == pl.Float64()
    assert ["different ones are equal: 'a';" in message for message in source.notices] == [True] * noticed


def test_csv__numbers_of_training_are_numbers_with_zeros_too(tmp_path: Path) -> None:
    """Categories and classes of whole numbers as well."""
    table = pl.DataFrame({"a": [1, 2, 3] * 20, "b": [3, 1, 2, 2] * 15, "y": [1, 2, 1] * 20})
    forest = bf.train(table, "y", trees=3, categories=["b"], task="classification")
    padded = table.with_row_index("row").select(
        pl.when(pl.col("row") % 2 == 0).then(pl.format("0{}", name)).otherwise(pl.col(name)).alias(name)
        for name in table.columns
    )
    padded.write_csv(tmp_path / "t.csv")
    scores = bf.predict_file(forest, tmp_path / "t.csv", tmp_path / "p.parquet")
    assert pl.read_parquet(tmp_path / "p.parquet").equals(forest.predict(table))
    assert scores.scored == 60 and scores.accuracy == forest.score(table)


_FIRST = ["", "2026-01-02", "2026-01-02 03:04:05", "03:04:05", "x", "NA", "1"]


@pytest.mark.parametrize("first", _FIRST)
@pytest.mark.parametrize("rest", ["2026-01-02", "2026-01-02T03:04", "3.5", "y"])
def test_csv__types_are_those_that_polars_infers_from_all_rows(first: str, rest: str, tmp_path: Path) -> None:
    """Except for days among datetimes, which are text for Polars: pandas writes them in parts of a table."""
    found = []
    for order in (1, -1):
        lines = [f"{first},1"] * 1200 + [f"{rest},1"] * 3
        (tmp_path / "t.csv").write_text("\n".join(["a,b", *lines[::order], ""]))
        found.append(read(tmp_path / "t.csv").schema["a"])
    expected = pl.read_csv(tmp_path / "t.csv", infer_schema_length=None, try_parse_dates=True).schema["a"]
    unmarked = pl.read_csv(tmp_path / "t.csv", null_values="NA", infer_schema_length=None, try_parse_dates=True)
    dates = [text for text in (first, rest) if text.startswith("2026")]
    if {10} < {*map(len, dates)}:
        expected = pl.Datetime("us")
    assert found == 2 * [unmarked.schema["a"] if first == "NA" and rest != "y" else expected]


def test_csv__times_and_dates_of_several_forms_are_text(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("time,mixed,date,y\n12:30,1/2/2020,2020-01-01,0\n13:45:10,2020-01-02,2020-01-02,1\n")
    found = open_source(file, scratch=tmp_path).schema
    assert found == {"time": pl.String, "mixed": pl.String, "date": pl.Date, "y": pl.Int64}


def test_csv__text_of_training_stays_text_in_prediction(tmp_path: Path) -> None:
    """A file may have no words but those that are numbers, dates or times."""
    words = ["a", "1", "002", "2020-01-01", "true", "12:30"]
    rows = pl.DataFrame({"word": words * 5, "y": ["01", "1", "x"] * 10})
    rows.write_csv(tmp_path / "all.csv")
    forest = bf.train(tmp_path / "all.csv", "y", trees=3, threads=1)
    for word in words:
        some = rows.filter(word=word)
        some.write_csv(tmp_path / "some.csv")
        scores = bf.predict_file(forest, tmp_path / "some.csv", tmp_path / "out.parquet", overwrite=True)
        assert pl.read_parquet(tmp_path / "out.parquet").equals(forest.predict(some))
        assert scores.scored == some.height and scores.accuracy == forest.score(some)


def test_csv__long_numbers(tmp_path: Path) -> None:
    whole = [5, 2**64 - 1, 2**63 + 4096]
    longest = ["5", "1" + 60 * "0", "-3"]
    pl.DataFrame(
        {
            "whole": map(str, whole),
            "gaps": ["NA", str(2**63), "7"],
            "wide": [str(2**64 + 1), "1", "2"],
            "longest": longest,
        }
    ).write_csv(tmp_path / "t.csv")
    found = read(tmp_path / "t.csv")
    assert found.dtypes == [pl.UInt64, pl.UInt64, pl.Int128, pl.Float64]
    assert found["whole"].to_list() == whole and found["gaps"].to_list() == [None, 2**63, 7]
    assert found["longest"].to_list() == [5.0, 1e60, -3.0]
    rows = pl.DataFrame(
        {"id": [str(2**63 + 4096 * row) for row in range(30)], "y": [f"c{row % 2}" for row in range(30)]}
    )
    rows.write_csv(tmp_path / "t.csv")
    assert bf.train(tmp_path / "t.csv", "y", trees=2).features["dtype"].to_list() == ["UInt64"]


@pytest.mark.parametrize(("line", "noticed"), [('1, "{}"', True), ('1,"{}"', False), ('1, "{}"x', False)])
def test_csv__spaces_before_quotes_are_noticed(line: str, noticed: bool, tmp_path: Path) -> None:
    """CSV has no such quotes, so numbers in them are text."""
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(line.format(k) + "\n" for k in range(20)))
    notices = open_source(tmp_path / "t.csv", scratch=tmp_path).notices
    assert ['spaces before quotes, as in 1, "a"' in message and "'b';" in message for message in notices] == [
        True
    ] * noticed


@pytest.mark.parametrize(
    ("names", "noticed"),
    [
        ("5.1,3.5,setosa", True),  # the first row of iris
        ("5, 3.5, setosa", True),
        ("5.1,3.5,species", True),
        ("5.1,width,species", False),
        ("0,1,2", False),  # as numpy and pandas number columns
        ("4,5,6", False),
        ("length,4.5,setosa2", False),
        ("2019,2023,species", False),  # no values of their columns
    ],
)
def test_csv__names_that_look_like_values_are_noticed(names: str, noticed: bool, tmp_path: Path) -> None:
    rows = [f"{4 + k % 30 / 10},{2 + k % 50 / 10},{['setosa', 'virginica'][k % 2]}" for k in range(60)]
    (tmp_path / "t.csv").write_text("\n".join([names, *rows]))
    source = open_source(tmp_path / "t.csv", scratch=tmp_path)
    assert [message.startswith("the names of most columns") for message in source.notices] == [True] * noticed
    new = Reading(needed=frozenset(source.schema))
    assert not open_source(tmp_path / "t.csv", scratch=tmp_path, reading=new).notices


@pytest.mark.parametrize(
    ("form", "days", "noticed"),
    [
        ("%d/%m/%Y", [1, 12], True),
        ("%d-%m-%Y %H:%M", [1, 12], True),
        ("%d/%m/%Y", [1, 13], False),
        ("%d.%m.%Y", [1, 12], False),
        ("%Y-%m-%d", [1, 12], False),
    ],
)
def test_csv__dates_whose_month_could_be_first_are_noticed(
    form: str, days: list[int], noticed: bool, tmp_path: Path
) -> None:
    """Dates of the first of each month, written with the month first, would be days of January."""
    dates = [date(2000 + k % 20, 1 + k % 12, days[k % 60 == 59]) for k in range(1200)]
    table = pl.DataFrame({"day": [day.strftime(form) for day in dates], "y": [k % 2 for k in range(1200)]})
    table.write_csv(tmp_path / "t.csv")
    source = open_source(tmp_path / "t.csv", scratch=tmp_path)
    assert source.column("day").cast(pl.Date).to_list() == dates
    assert ["the day first, as 03/04/2024 for 3 April" in message for message in source.notices] == [True] * noticed
    asked = Reading(needed=frozenset({"day"}))  # new rows are read as in training
    assert not open_source(tmp_path / "t.csv", scratch=tmp_path, reading=asked).notices


def test_ndjson__integers_of_64_bits_without_a_sign(tmp_path: Path) -> None:
    """Polars reads them as integers of 128 bits, which cannot be classes."""
    labels = [3, 2**63 + 5]
    rows = pl.DataFrame({"id": [2**63 + 4097 * row for row in range(30)], "y": labels * 15})
    rows.write_ndjson(tmp_path / "t.ndjson")
    assert read(tmp_path / "t.ndjson").dtypes == [pl.UInt64, pl.UInt64]
    forest = bf.train(tmp_path / "t.ndjson", "y", trees=4, min_leaf=1, seed=1)
    assert forest.classes == labels and forest.features["dtype"].to_list() == ["UInt64"]
    other = bf.train(rows, "y", trees=4, min_leaf=1, seed=1)
    assert forest.predict_proba(rows).equals(other.predict_proba(rows))
    scores = bf.predict_file(forest, tmp_path / "t.ndjson", tmp_path / "out.parquet")
    assert scores.scored == 30 and scores.accuracy == forest.score(rows)


@pytest.mark.parametrize("first", ["1", "001", "2020-01-01", "12:30", "true", "NA", "2020-01-01 12:30", "x", "", "2.5"])
@pytest.mark.parametrize("second", ["7", "2021-02-03", "NA", "y", "false", "2020-01-01 12:30:10"])
def test_csv__files_of_a_folder_are_read_as_one_file(first: str, second: str, tmp_path: Path) -> None:
    """A column has the type that all its values have, in whichever files they are."""
    folder = tmp_path / "t"
    folder.mkdir()
    for place, value in enumerate([first, second]):
        (folder / f"{place}.csv").write_text("a,b\n" + f"{value},1\n" * 3)
    (tmp_path / "one.csv").write_text("a,b\n" + f"{first},1\n" * 3 + f"{second},1\n" * 3)
    assert_frame_equal(read(folder), read(tmp_path / "one.csv"))


def test_csv__a_validation_set_is_read_as_the_training_table(tmp_path: Path) -> None:
    rows = pl.DataFrame({"word": ["a", "001", "2", "b"] * 10, "y": ["01", "1", "01", "x"] * 10})
    rows.write_csv(tmp_path / "all.csv")
    rows.filter(word="001").write_csv(tmp_path / "some.csv")
    forest = bf.train(tmp_path / "all.csv", "y", trees=3, validate=tmp_path / "some.csv")
    assert forest.validation.equals(bf.validate_forest(forest, rows.filter(word="001")))
    with pytest.raises(DataError, match="there is no such file"):
        bf.train(tmp_path / "all.csv", "y", trees=3, validate=tmp_path / "none.csv", out=tmp_path / "f")


@pytest.mark.parametrize("odd", [('"5" pipe",1.5,p', '"5" pipe",1.5,p'), ('"a",1.5,"p', '"a",1.5,p"')])
def test_csv__quotes_that_enclose_rows_are_refused(odd: tuple[str, str], tmp_path: Path) -> None:
    """Polars reads the rows between two such lines as one value."""
    lines = [f'"item {row % 5}",{row},{"pq"[row % 2]}' for row in range(60)]
    lines[20], lines[30] = odd
    (tmp_path / "t.csv").write_text("\n".join(["name,v,y", *lines, ""]))
    with pytest.raises(DataError, match=r"t\.csv: line 2[23] .*; mend its quotes"):
        read(tmp_path / "t.csv")
    lines[20] = lines[30] = '"two ""odd""\nlines",1.5,p'
    (tmp_path / "t.csv").write_text("\n".join(["name,v,y", *lines, ""]))
    assert read(tmp_path / "t.csv")["name"].to_list()[20] == 'two "odd"\nlines'


def test_csv__lines_that_end_with_a_carriage_return_after_the_line_feed(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n\r" + "1,x\n\r2,y\n\r" * 30, newline="")
    with pytest.raises(DataError, match="line 2 ends with a carriage return alone; replace it by a line feed"):
        read(tmp_path / "t.csv")


def test_csv__blank_lines_of_one_column_are_missing_values(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n\n3\n")
    assert read(tmp_path / "t.csv")["a"].to_list() == [1, None, 3]


MOMENTS: dict[str, tuple[list[str | None], list[Any], pl.DataType]] = {
    "date": (["2024-01-02", None], [date(2024, 1, 2), None], pl.Date()),
    "datetime": (["2024-01-02T03:04:05", None], [datetime(2024, 1, 2, 3, 4, 5), None], pl.Datetime("us")),
    "space": (
        ["2024-01-02 03:04:05.25", "2024-01-02 03:04:05"],
        [datetime(2024, 1, 2, 3, 4, 5, 250000), datetime(2024, 1, 2, 3, 4, 5)],
        pl.Datetime("us"),
    ),
    "minutes": ([None, "2024-01-02T03:04"], [None, datetime(2024, 1, 2, 3, 4)], pl.Datetime("us")),
    "zone": (
        ["2024-01-02T03:04:05Z", "2024-01-02T03:04:05+02:00"],
        [datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2024, 1, 2, 1, 4, 5, tzinfo=UTC)],
        pl.Datetime("us", "UTC"),
    ),
    "time": (["03:04:05", None], [time(3, 4, 5), None], pl.Time()),
    "no date": (["2024-01-02", "soon"], ["2024-01-02", "soon"], pl.String()),
    "no such day": (["2024-02-30", None], ["2024-02-30", None], pl.String()),
    "zone without seconds": (
        ["2024-01-02T03:04Z", "2024-01-02 03:04:05+02:00"],
        [datetime(2024, 1, 2, 3, 4, tzinfo=UTC), datetime(2024, 1, 2, 1, 4, 5, tzinfo=UTC)],
        pl.Datetime("us", "UTC"),
    ),
    "date and datetime": (
        ["2024-01-02", "2024-01-02T03:04:05"],
        [datetime(2024, 1, 2), datetime(2024, 1, 2, 3, 4, 5)],
        pl.Datetime("us"),
    ),
    "date and zone": (["2024-01-02", "2024-01-02T03:04:05Z"], ["2024-01-02", "2024-01-02T03:04:05Z"], pl.String()),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_text__dates_are_those_of_both_kinds(name: str, tmp_path: Path) -> None:
    texts, values, dtype = MOMENTS[name]
    expected = pl.DataFrame({"a^": pl.Series(values, dtype=dtype), "b": [1, 2]})
    (tmp_path / "t.csv").write_text("a^,b\n" + "".join(f"{own or ''},{row + 1}\n" for row, own in enumerate(texts)))
    rows = [{"a^": own, "b": row + 1} for row, own in enumerate(texts)]
    (tmp_path / "t.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert_frame_equal(read(tmp_path / "t.csv"), expected)
    assert_frame_equal(read(tmp_path / "t.ndjson"), expected)


def test_ndjson__names_are_in_the_order_of_the_first_row(tmp_path: Path) -> None:
    """Also of more than 32, which Polars has in another order in each process."""
    names = [f"{place * 7 % 40}" for place in range(40)]
    rows = [dict.fromkeys(names, 1) | {"s": dict.fromkeys(names, 2)}, {"z": 3, "a": 4}]
    (tmp_path / "t.ndjson").write_text("\n" + "".join(json.dumps(row) + "\n" for row in rows))
    frame = read(tmp_path / "t.ndjson")
    assert frame.columns == [*names, "s", "a", "z"]
    assert [field.name for field in frame.schema["s"].fields] == names  # type: ignore[attr-defined]


def test_ndjson__dates_of_all_rows_of_all_files(tmp_path: Path) -> None:
    dates = ["2024-01-02"] * 1500
    for folder, last in (("t", "2024-01-03"), ("u", "later")):
        (tmp_path / folder).mkdir()
        for number, rows in enumerate((dates, [*dates, last])):
            frame = pl.DataFrame({"a": rows, "b": ["x"] * len(rows)})
            frame.write_ndjson(tmp_path / folder / f"{number}.ndjson")
    assert read(tmp_path / "t").schema == {"a": pl.Date, "b": pl.String}
    assert read(tmp_path / "u").schema == {"a": pl.String, "b": pl.String}


RECORDS = [
    {
        "x": row % 7 - 3.0,
        "a": {"k": row % 5} if row % 3 else {"c": "uv"[row % 2], "k": row % 5},
        "y": "pq"[row % 2],
        **({"z": row / 2} if row % 4 == 0 else {}),
    }
    for row in range(120)
]


def write_records(rows: Sequence[Mapping[str, Any]], file: Path) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_ndjson__files_that_lack_keys_are_one_table(tmp_path: Path) -> None:
    without, rest = ([row for row in RECORDS if ("z" in row) is has] for has in (False, True))
    write_records(without, tmp_path / "t/0.ndjson")
    write_records(rest[:10], tmp_path / "t/1.ndjson")
    write_records([{**row, "a": {"k": 0.5}} for row in rest[10:]], tmp_path / "t/2.ndjson")
    table = [*without, *rest[:10], *({**row, "a": {"k": 0.5}} for row in rest[10:])]
    whole = write_records(table, tmp_path / "whole.ndjson")
    source = open_source(tmp_path / "t", scratch=tmp_path)
    assert source.notices == ("some files have these columns in no row, and no values there: 'z'",)
    parts, one = (bf.train(place, "y", trees=5, out=tmp_path / f"{place.stem}.f") for place in (tmp_path / "t", whole))
    assert parts.spec.feature_names == ["x", "a.k", "a.c", "z"]
    assert parts.nodes.collect().equals(one.nodes.collect())
    bf.predict_file(parts, tmp_path / "t", tmp_path / "p.parquet")
    assert pl.read_parquet(tmp_path / "p.parquet").equals(parts.predict(table))


@pytest.mark.parametrize("first", [0, 1])
def test_records__nested_keys_of_all_rows(first: int, tmp_path: Path) -> None:
    """Polars takes the keys of the first row, which may lack some."""
    rows = [*RECORDS[first:], *RECORDS[:first], {"x": 1.0, "a": None, "y": "p"}, {"x": 1.0, "a": {"k": 0.5}, "y": "q"}]
    file = write_records(rows, tmp_path / "t.ndjson")
    places = {"file": file, "list": rows, "mapping": {name: [row.get(name) for row in rows] for name in "xazy"}}
    forests = {name: bf.train(data, "y", trees=5, exclude=["z"]) for name, data in places.items()}
    assert {*forests["list"].spec.feature_names} == {"x", "a.k", "a.c"}
    expected = forests["file"].predict_proba(rows)
    assert all(forest.predict_proba(rows).equals(expected) for forest in forests.values())
    assert expected.equals(pl.concat([forests["file"].predict_proba([row]) for row in rows]))


@pytest.mark.parametrize("place", ["file", "memory"])
def test_records__lack_features_that_were_missing_in_training(place: str, tmp_path: Path) -> None:
    forest = bf.train(RECORDS, "y", trees=5)
    assert [feature.name for feature in forest.spec.features if feature.missing] == ["a.c", "z"]

    def predicted(rows: list[dict[str, Any]]) -> Any:
        if place == "memory":
            return forest.predict(rows)
        bf.predict_file(forest, write_records(rows, tmp_path / "n.ndjson"), tmp_path / "p.parquet", overwrite=True)
        return pl.read_parquet(tmp_path / "p.parquet")

    rows = [{"x": row["x"], "a": {"k": 1}} for row in RECORDS[:20]]
    assert predicted(rows).equals(forest.predict([row | {"a": {"k": 1, "c": None}, "z": None} for row in rows]))
    assert predicted(rows[:1]).equals(predicted(rows)[:1])
    for odd, fault in (
        ([{"a": row["a"]} for row in rows], "lacks feature 'x'"),
        ([{"x": row["x"]} for row in rows], "lacks feature 'a.k'"),
        ([row | {"a": {"k": 1, "c": "u"}, "Z": 1.0} for row in rows], "lacks feature 'z', .* did you mean 'Z'"),
    ):
        with pytest.raises(DataError, match=fault):
            predicted(odd)
    with pytest.raises(DataError, match=r"lacks features 'a\.c', 'z'"):  # columns are complete in other tables
        forest.predict(pl.DataFrame(rows))


def test_ndjson__numbers_of_training_written_as_text(tmp_path: Path) -> None:
    """Polars writes decimals so."""
    frame = pl.DataFrame({"a": range(40), "b": ["1", "02"] * 20, "y": ["u", "v"] * 20})
    frame = frame.with_columns(pl.col("a").cast(pl.Decimal(9, 2)))
    forest = bf.train(frame, "y", trees=3, threads=1)
    frame.write_ndjson(tmp_path / "t.ndjson")
    bf.predict_file(forest, tmp_path / "t.ndjson", tmp_path / "out.parquet")
    assert pl.read_parquet(tmp_path / "out.parquet").equals(forest.predict(frame))


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet"])
@pytest.mark.parametrize("empty_first", [True, False])
def test_files__a_column_without_values_has_the_type_of_the_others(
    kind: str, empty_first: bool, tmp_path: Path
) -> None:
    full = pl.DataFrame({"real": [0.5, 2.0], "text": ["x", "y"], "day": [date(2026, 1, 2)] * 2, "number": [1, 2]})
    empty = full.with_columns(pl.lit(None).alias(name) for name in ("real", "text", "day"))
    parts = [empty, full] if empty_first else [full, empty]
    for number, part in enumerate(parts):
        getattr(part, f"write_{kind}")(tmp_path / f"{number}.{kind}")
    expected = pl.concat(parts, how="vertical_relaxed")
    assert_frame_equal(read(tmp_path), expected)


def test_csv__a_column_without_values_has_no_type(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + ",1\n" * 1500)
    (tmp_path / "u.csv").write_text("a,b\n" + ",1\n" * 1500 + "x,1\n")
    assert read(tmp_path / "t.csv").schema == {"a": pl.Null, "b": pl.Int64}
    assert read(tmp_path / "u.csv").schema == {"a": pl.String, "b": pl.Int64}


FORMS_OF_LINES = {"after": "{}, {}, {}", "before": "{} ,{} ,{}", "padded": "{:>9},{:<9},{:>7}", "tabs": "\t{}\t,{},{} "}


@pytest.mark.parametrize("form", FORMS_OF_LINES)
def test_csv__spaces_around_values_are_no_part_of_them(form: str, tmp_path: Path) -> None:
    rows = [("1", "0.5", "true"), ("-2", "NA", "false"), ("", "1e3", "True")]
    (tmp_path / "t.csv").write_text("a,b,c\n" + "".join(FORMS_OF_LINES[form].format(*row) + "\n" for row in rows))
    expected = pl.DataFrame({"a": [1, -2, None], "b": [0.5, None, 1000.0], "c": [True, False, True]})
    assert_frame_equal(read(tmp_path / "t.csv"), expected)
    (tmp_path / "d.csv").write_text("a,b\n" + " 2024-01-02 , x\n2024-01-03, y\n")
    assert read(tmp_path / "d.csv").schema == {"a": pl.Date, "b": pl.String}


def test_csv__a_header_that_begins_as_compressed_data_does(tmp_path: Path) -> None:
    """Polars takes a file that begins with x^ for one compressed by zlib."""
    (tmp_path / "t.csv").write_text("x^2,b\n1,2\n")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"x^2,b\n1,2\n"))
    for name in ("t.csv", "t.csv.gz"):
        assert_frame_equal(read(tmp_path / name), pl.DataFrame({"x^2": [1], "b": [2]}))
    (tmp_path / "u.csv").write_text("x^2,b\n1\n")
    with pytest.raises(DataError, match=r"u\.csv: line 2 has 1 value"):
        read(tmp_path / "u.csv")


@pytest.mark.parametrize("name", ["t.csv", "t.ndjson", "t.csv.gz", "t.jsonl.gz"])
def test_text__that_begins_with_a_byte_order_mark(name: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    text = (frame.write_csv() if "csv" in name else frame.write_ndjson()).encode("utf-8-sig")
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert_frame_equal(read(tmp_path / name), frame)
    assert [path.name for path in tmp_path.glob(f"*{name}*")] == [name]


@pytest.mark.parametrize("where", ["t", "t/*.parquet", "t/part", "iceberg", "iceberg/data"])
def test_folders__whose_metadata_say_which_files_are_valid_are_refused(where: str, tmp_path: Path) -> None:
    for place in ("t", "t/part", "iceberg/data"):
        (tmp_path / place).mkdir(parents=True)
        pl.DataFrame({"a": [1], "y": [2]}).write_parquet(tmp_path / place / "0.parquet")
    for mark in ("t/_delta_log/0.json", "iceberg/metadata/v1.metadata.json"):
        (tmp_path / mark).parent.mkdir()
        (tmp_path / mark).write_text("{}")
    with pytest.raises(DataError, match=r"read it with pl\.scan_(delta|iceberg)\(folder\)"):
        read(tmp_path / where)
    assert read(tmp_path / "t" / "0.parquet").height == 1


COLUMNS_OF_FORMS = {
    "whole numbers": (["1", "2", "3"], [1, 2, 3]),
    "floats": (["1.5", "2", "3"], [1.5, 2.0, 3.0]),
    "marks": (["1", "NA", " 3"], [1, None, 3]),
    "booleans": (["true", "False", "TRUE"], [True, False, True]),
    "days": (["2024-01-02", "2024/01/03"], [date(2024, 1, day) for day in (2, 3)]),
    "days first": (["02-01-2024", "3/1/2024"], [date(2024, 1, day) for day in (2, 3)]),
    "days with dots": (["02.01.2024", "3.1.2024"], [date(2024, 1, day) for day in (2, 3)]),
    "seconds with dots": (["02.01.2024 03:04:05.5"], [datetime(2024, 1, 2, 3, 4, 5, 500_000)]),
    "midnights": (["03/01/2024 04:05", "02/01/2024"], [datetime(2024, 1, 3, 4, 5), datetime(2024, 1, 2)]),
    "codes": (["1-2-3", "4-5-6"], ["1-2-3", "4-5-6"]),
    "short years": (["24-01-02", "02.01.24"], ["24-01-02", "02.01.24"]),
    "minutes": (["2024-01-02 03:04", "2024-01-02 03:05"], [datetime(2024, 1, 2, 3, at) for at in (4, 5)]),
    "seconds": (["2024-01-02T03:04:05", "2024-01-02 03:04"], [datetime(2024, 1, 2, 3, 4, at) for at in (5, 0)]),
    "zones": (
        [f"2024-01-02 03:04:0{at}+01:00" for at in (4, 5)],
        [datetime(2024, 1, 2, 2, 4, at, tzinfo=UTC) for at in (4, 5)],
    ),
    "times": (["03:04:05", "03:04:06"], [time(3, 4, at) for at in (5, 6)]),
}
FORMS_OF_KINDS = [
    *((form, "csv") for form in COLUMNS_OF_FORMS),
    *(
        (form, "ndjson") for form in ("days", "days with dots", "codes", "minutes", "seconds", "zones", "times")
    ),  # numbers in JSON are no text
]


@pytest.mark.parametrize(("form", "kind"), FORMS_OF_KINDS)
def test_text__several_columns_of_one_form(form: str, kind: str, tmp_path: Path) -> None:
    texts, values = COLUMNS_OF_FORMS[form]
    rest = [None] * (len(texts) - 1)
    columns = {"a": [texts[0], *rest], "b": texts, "c": texts[::-1], "d": [texts[0], *rest], "other": ["x", *rest]}
    getattr(pl.DataFrame(columns), f"write_{kind}")(tmp_path / f"t.{kind}")
    found = read(tmp_path / f"t.{kind}").to_dict(as_series=False)
    assert found == {
        "a": [values[0], *rest],
        "b": values,
        "c": values[::-1],
        "d": [values[0], *rest],
        "other": ["x", *rest],
    }


def test_csv__numbers_of_many_digits_that_are_one_float_are_named(tmp_path: Path) -> None:
    """Also if the first thousand rows have none of them."""
    codes = {
        "id": ["0.5"] * 1500 + ["1234567890123456789", "1234567890123456788"],
        "written twice": ["0.5"] * 1500 + ["1234567890123456789.5", "1234567890123456789.50"],
        "rounded": ["0.5"] * 1500 + ["1.2345678901234567e+18", "12345678901234567"],
    }
    rows = zip(*codes.values(), strict=True)
    path = tmp_path / "t.csv"
    path.write_text(",".join(codes) + "\n" + "".join(",".join(row) + "\n" for row in rows))
    [notice] = open_source(path, scratch=tmp_path).notices
    assert "so that different ones are equal: 'id'; if" in notice
