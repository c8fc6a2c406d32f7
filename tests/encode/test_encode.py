"""Every column becomes the codes its definition says, whatever pieces the table comes in."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bigforest.columns.types import flat_columns, type_name
from bigforest.encode.roles import column_roles
from bigforest.encode.targets import MAX_UNUSUAL_CLASSES, find_task
from bigforest.errors import BigForestError, DataError, OutputExistsError
from bigforest.events import Event, Notice, StageAdvanced, StageFinished, StageStarted, silent
from bigforest.execution.resources import Resources
from bigforest.options.train_config import TrainConfig
from bigforest.planning.sizes import USUAL, Limits
from bigforest.source.open import open_source
from bigforest.source.source import Source
from bigforest.store.store import Store
from tests.encoded import encode
from tests.naive import encode as naive
from tests.strategies import cuts, mixed_frames
from tests.thorough import examples


def encoded(
    data: Any, folder: Path, name: str = "a.store", threads: int = 1, limits: Limits = USUAL, **options: Any
) -> Store:
    """The store of a table, in `folder`; options are those of encode, or of its configuration. Floats are classes."""
    own = {key: options.pop(key) for key in ("target", "exclude", "resources", "listener") if key in options}
    arguments = {"target": None, "resources": Resources(threads=threads, limits=limits), "listener": silent, **own}
    arguments["config"] = TrainConfig(**{"task": "classification", **options})
    return encode(open_source(data, scratch=folder), path=folder / name, **arguments)


def content(store: Store) -> dict[str, bytes]:
    """Every file of a store."""
    return {file.name: file.read_bytes() for file in store.path.iterdir()}


def check(store: Store, frame: pl.DataFrame, target: str = "target", max_bins: str | int = "exact") -> None:
    """Assert that `store` is what the oracle makes of `frame`."""
    labels, kept, classes = naive.classes(frame[target].to_list())
    names = [name for name in frame.columns if name != target]
    assert list(store.spec.target.classes) == labels
    assert store.target.tolist() == classes
    assert store.rows == len(kept)
    assert store.spec.dropped == len(frame) - len(kept)
    assert (list(range(len(frame))) if store.row_numbers is None else store.row_numbers.tolist()) == kept
    assert [(f.name, f.dtype) for f in store.spec.features] == [(n, type_name(frame[n].dtype)) for n in names]
    levels = store.levels()
    for feature, name in enumerate(names):
        column = frame[name].gather(kept).to_list()
        codes, low, high, missing = naive.codes(column, max_bins)
        assert store.feature_codes(feature).tolist() == codes
        assert np.array_equal(store.low(feature), low, equal_nan=True)
        assert np.array_equal(store.high(feature), high, equal_nan=True)
        assert np.array_equal(store.values(0, store.rows)[:, feature], np.array(low)[codes], equal_nan=True)
        spec = store.spec.features[feature]
        assert spec.missing == missing
        assert spec.kind == ("category" if frame[name].dtype in (pl.String, pl.Categorical, pl.Enum) else "numeric")
        texts = {
            code: cell for code, cell in zip(codes, column, strict=True) if spec.kind == "category" and cell is not None
        }
        assert levels.of(feature).to_list() == [texts[code] for code in sorted(texts)]
    store.verify()


@settings(max_examples=examples(80))
@given(
    frame=mixed_frames(),
    max_bins=st.sampled_from(["exact", "exact", 2, 3, 7]),
    cells=st.sampled_from([1, 40, 10**6]),
)
def test_encode__equals_the_oracle(frame: pl.DataFrame, max_bins: str | int, cells: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(cells_per_read=cells)
        check(encoded(frame, Path(folder), max_bins=max_bins, limits=limits), frame, max_bins=max_bins)


def pieces(frame: pl.DataFrame, sizes: list[int], folder: Path) -> dict[str, Any]:
    """The table in every form that comes in pieces of these sizes."""
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    parts = [frame.slice(start, size) for start, size in zip(starts, sizes, strict=True)]
    chunks = pl.concat(parts, rechunk=False)
    table = pa.Table.from_batches([batch for part in parts for batch in part.to_arrow().to_batches()])
    (folder / "files").mkdir()
    for number, part in enumerate(parts):
        part.write_parquet(folder / "files" / f"part-{number}.parquet")
        part.write_ipc(folder / "files" / f"part-{number}.arrow")
    (folder / "rows").mkdir()
    for number in range(len(frame)):
        frame[number].write_parquet(folder / "rows" / f"{number:03}.parquet")
    frame.write_parquet(folder / "groups.parquet", row_group_size=2)
    with (
        pa.OSFile(str(folder / "stream.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    return {
        "chunks": chunks,
        "lazy": chunks.lazy().with_columns(pl.all()),
        "table": table,
        "reader": table.to_reader(max_chunksize=2),
        "dataset": ds.dataset(sorted(map(str, (folder / "files").glob("*.parquet"))), format="parquet"),
        "groups": folder / "groups.parquet",
        "many files": str(folder / "files" / "*.parquet"),
        "a file for each row": folder / "rows",
        "arrow files": folder / "files" / "*.arrow",
        "arrow stream": folder / "stream.arrow",
    }


@settings(max_examples=examples(15))
@given(data=st.data(), frame=mixed_frames(), max_bins=st.sampled_from(["exact", 3]))
def test_encode__pieces_give_the_same_bytes(data: st.DataObject, frame: pl.DataFrame, max_bins: str | int) -> None:
    frame = frame.select(pl.exclude(pl.Int128)).with_columns(f=pl.int_range(pl.len()) * 0.1)
    sizes = data.draw(cuts(len(frame)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = content(encoded(frame, folder, "whole.store", max_bins=max_bins))
        for kind, piecewise in pieces(frame, sizes, folder).items():
            store = encoded(piecewise, folder, f"{kind}.store", threads=2, max_bins=max_bins)
            assert content(store) == whole, kind


def test_encode__threads_and_order_of_ending_do_not_show(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    frame = pl.DataFrame({f"f{i}": random.integers(0, 10**i, 70_000) for i in range(8)}).with_columns(
        y=pl.col("f1") > 4
    )
    one = content(encoded(frame, tmp_path, "one.store"))
    for threads in (2, 4):
        store = encoded(frame, tmp_path, f"{threads}.store", threads=threads, limits=Limits(cells_per_read=1))
        assert content(store) == one
    assert {feature.width for feature in store.spec.features} == {1, 2, 4}


@pytest.mark.parametrize(
    ("distinct", "width"), [(1, 1), (2, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 4), (200_000, 4)]
)
@pytest.mark.parametrize("dtype", [pl.Int32, pl.Float64])
def test_encode__narrowest_width(distinct: int, width: int, dtype: type[pl.DataType], tmp_path: Path) -> None:
    values = np.random.default_rng(0).permutation(np.arange(max(distinct, 300)) % distinct)
    frame = pl.DataFrame({"x": pl.Series(values * 3 - 7, dtype=dtype), "y": values % 2 if distinct > 1 else values})
    frame = frame.with_columns(y=pl.int_range(pl.len()) % 2)
    store = encoded(frame, tmp_path)
    assert (store.spec.features[0].codes, store.spec.features[0].width) == (distinct, width)
    assert (store.feature_codes(0) == values).all()
    assert (store.low(0) == np.arange(distinct) * 3 - 7).all()


@pytest.mark.parametrize("order", [["target", "label", "class", "y"], ["y", "class", "label"], ["class", "y"], ["y"]])
def test_target__found_by_usual_names(order: list[str], tmp_path: Path) -> None:
    frame = pl.DataFrame({name: [0, 1] for name in ["x", *order]})
    expected = next(name for name in ("target", "label", "class", "y") if name in order)
    assert encoded(frame, tmp_path).spec.target.name == expected


def test_target__float_classes_and_their_limit(tmp_path: Path) -> None:
    few = pl.DataFrame({"x": range(300), "y": [i % MAX_UNUSUAL_CLASSES / 4 for i in range(300)]})
    assert encoded(few, tmp_path).spec.target.classes == tuple(i / 4 for i in range(MAX_UNUSUAL_CLASSES))
    many = few.with_columns(y=pl.col("x") % (MAX_UNUSUAL_CLASSES + 1) / 4)
    with pytest.raises(DataError, match="more than 100 distinct values: drop task"):
        encoded(many, tmp_path, "b.store")


def test_target__categories_by_text_not_by_physical_code(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1, 2, 3], "y": pl.Series(["b", "c", "a"], dtype=pl.Enum(["c", "b", "a"]))})
    store = encoded(frame, tmp_path)
    assert store.spec.target.classes == ("a", "b", "c")
    assert store.target.tolist() == [1, 2, 0]
    assert store.spec.target.dtype == "Enum"


def test_encode__says_which_columns_of_text_look_like_numbers(tmp_path: Path) -> None:
    numbers = [f"{k}.5" for k in range(10)]
    frame = pl.DataFrame(
        {
            "age": [*numbers, "NA", "NA"],
            "fare": [*numbers, "?", None],
            "price": [*(number.replace(".", ",") for number in numbers), "7", "NA"],
            "zip": [f"{k}" for k in range(12)],  # text on purpose
            "cost": [*numbers, "1", "2"],
            "cabin": [*numbers[:9], "A", "A", "B"],  # too few numbers
            "flat": [*numbers[:8], "A", "B", "C", "D"],  # too many words
            "share": [*(f"{number}%" for number in numbers), "7", None],
            "income": [*(f"-${k},000,{k}00.5" for k in range(10)), "7", "NA"],
            "tags": [*(f"{k},{k},{k}" for k in range(10)), "7", "NA"],
            "y": [*numbers, "nan", "0"],
        }
    )
    heard: list[Event] = []
    encoded(frame, tmp_path, target="y", listener=heard.append)
    plain, words, comma, signs = [event.message for event in heard if isinstance(event, Notice)]
    assert "all their values are numbers: 'cost'; convert them" in plain
    assert "'?', 'NA', 'nan' among numbers: 'y', 'age', 'fare'; if that means missing" in words
    assert "their numbers have a comma: 'price'; replace it by a point" in comma
    assert "marks between thousands: 'share', 'income'; remove these" in signs


def test_encode__says_which_columns_are_not_what_they_seem(tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(0), 60
    days = [date(2024, 1, 1) + timedelta(k) for k in range(rows)]
    frame = pl.DataFrame(
        {
            "id": np.arange(rows) + 7_000,
            "float_id": rng.permutation(rows).astype(float),
            "kept_id": np.sort(rng.choice(2 * rows, rows, replace=False)),  # of a part of the rows
            "name": [f"n{k}" for k in range(rows - 2)] + [None, "n0"],
            "price": [f"{k},5" for k in range(rows)],
            "salary": [f"{k + 1},000" for k in range(rows)],
            "american": [f"{day:%m/%d/%Y}" for day in days],
            "mixed": [f"{day:%d %b %Y}" if day.day % 2 else f"{day:%B %d, %Y} 12:30" for day in days],
            "number_day": [int(f"{day:%Y%m%d}") for day in days],
            "empty": pl.Series([None] * rows, dtype=pl.String),
            "nan": np.full(rows, np.nan),
            "one": ["a"] * rows,
            # No notice: measurements, days, few texts, a mark, years, whole numbers in a wide range.
            "measured": rng.normal(size=rows),
            "day": days,
            "kind": [f"k{k % 50}" for k in range(rows)],
            "marked": [None, "yes"] * (rows // 2),
            "year": np.arange(rows) % 50 + 1_950,
            "people": np.arange(rows) * 997,
            "target": ["a", "b"] * (rows // 2),
        }
    )
    heard: list[Event] = []
    encoded(frame, tmp_path, target="target", listener=heard.append)
    told = [event.message for event in heard if isinstance(event, Notice)]
    assert [message.partition(": ")[2].partition(";")[0] for message in told] == [
        "'price'",
        "'salary'",
        "'american', 'mixed'",
        "'number_day'",
        "'id', 'float_id', 'kept_id', 'name'",
        "'empty', 'nan'",
        "'one'",
    ]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ([f"name {k}" for k in range(60)], "'y' has 60 classes in 60 rows, too few to learn a class from"),
        ([f"name {k % 30}" for k in range(60)], None),
        ([0.0, 1.0, float("nan")] * 20, "'y' has floats that are 2 different whole numbers, so this is a regression"),
        ([1.0, 0.5, 2.0] * 20, None),
        ([float(k) for k in range(60)], "'y' has floats that are 60 different whole numbers, so this is a regression"),
        ([1.0, float("inf")] * 30, None),
        ([3.0] * 60, None),
        ([0, 9] * 30, "'y' has 2 different whole numbers, so this is a classification; set task to regression if"),
        (
            list(range(6)) * 10,
            "'y' has 6 different whole numbers from 0 to 5, each in at least 3 rows, so this is a",
        ),
        (
            [1, 2, 4, 7, 9] * 12,
            "'y' has 5 different whole numbers from 1 to 9, each in at least 3 rows, so this is a",
        ),
        ([0, 1, 2] * 19 + [3] * 3, "'y' has 4 different whole numbers from 0 to 3, some of them in fewer than 4 rows"),
        ([7] * 60, "'y' has no whole number but 7, so this is a classification; set task to regression if"),
        ([20, 21, 22] * 20, "'y' has 3 different whole numbers from 20 to 22, which are not numbered from 0 or 1, so"),
        (
            list(range(60)),
            "'y' has more than 30 different whole numbers, so this is a regression; set task to",
        ),
        ([Decimal("1.0"), Decimal(2)] * 30, "'y' has decimals that are 2 different whole numbers, so this is a regr"),
        ([Decimal(0), Decimal(9)] * 30, "'y' has 2 different whole numbers, so this is a classification; set task to"),
        (list(map(Decimal, range(60))), "'y' has more than 30 different whole numbers, so this is a regression; set"),
        (["1", "2"] * 30, None),
        ([True, False] * 30, None),
        (["a", "NA", "b"] * 20, "'y' has the class 'NA'; if that means missing, leave the cells empty (null)"),
    ],
)
def test_encode__says_what_a_target_may_be(target: list[Any], told: str | None, tmp_path: Path) -> None:
    heard: list[Event] = []
    frame = pl.DataFrame({"x": range(60), "y": target})
    with suppress(DataError):
        encoded(frame, tmp_path, task=None, listener=heard.append)
    messages = [event.message for event in heard if isinstance(event, Notice)]
    messages = [message for message in messages if "left out" not in message and "all rows have" not in message]
    assert [message[: len(told or "")] for message in messages] == [told] * bool(told)


COUNTS: dict[str, Callable[[np.random.Generator, int], NDArray[Any]]] = {
    "few": lambda random, rows: random.poisson(3, rows),
    "many": lambda random, rows: random.poisson(40, rows),
    "most 0": lambda random, rows: random.geometric(0.3, rows) - 1,
    "prices": lambda random, rows: np.rint(random.lognormal(3, 1, rows)).astype(np.int64),
    "years": lambda random, rows: random.integers(1990, 2020, rows),
    "percent": lambda random, rows: random.integers(0, 101, rows),
}


@pytest.mark.parametrize("name", COUNTS)
def test_task__of_counts_and_measurements_does_not_depend_on_the_number_of_rows(name: str, tmp_path: Path) -> None:
    """Neither in few rows, in which few values occur, nor in many, in which nearly all do."""
    for rows in (60, 300, 2_000, 50_000):
        values = COUNTS[name](np.random.default_rng(1), rows)
        source = open_source({"y": values}, scratch=tmp_path)
        assert find_task(source, flat_columns(source.schema)["y"], None).task == "regression", rows


@pytest.mark.parametrize("classes", [range(10), range(1, 27), [1, 2, 3, 5, 6, 7], [-1, 0, 1], [5, 900]], ids=str)
def test_task__of_numbered_classes_does_not_depend_on_the_number_of_rows(classes: Any, tmp_path: Path) -> None:
    for rows in (200, 500, 50_000):
        source = open_source({"y": np.random.default_rng(1).choice(classes, rows)}, scratch=tmp_path)
        assert find_task(source, flat_columns(source.schema)["y"], None).task == "classification", rows


@pytest.mark.parametrize(
    ("exclude", "options"),
    [
        ((), {"weight": "wrng"}),
        ((), {"group": "wrng"}),
        ((), {"weight": "y"}),
        (("wrng",), {}),
        ((), {"categories": ("wrng",)}),
        ((), {"family": "rotation", "axes_from": ("wrng",)}),
    ],
)
def test_roles__of_wrong_columns_are_refused_before_the_target_is_read(
    exclude: tuple[str, ...], options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole numbers are read to find the task, the other columns by name only."""
    source = open_source({"y": range(20), "x": range(20)}, scratch=tmp_path)
    monkeypatch.setattr(Source, "batches", lambda *_: pytest.fail("the target was read"))
    with pytest.raises(BigForestError, match=r"'wrng'|'y' is the target"):
        column_roles(source, "y", exclude, TrainConfig(**options))


def test_encode__says_what_it_does(tmp_path: Path) -> None:
    heard: list[Event] = []
    frame = pl.DataFrame({"a": range(5), "b": range(5), "y": [0, 1, None, 1, None]})
    store = encoded(frame, tmp_path, listener=heard.append)
    assert [type(event) for event in heard] == [StageStarted, Notice, StageAdvanced, StageFinished]
    assert heard[0] == StageStarted("encode", 2, "columns")
    assert heard[1] == Notice("2 rows have no value in 'y' and are left out")
    assert heard[2] == StageAdvanced("encode", 2)
    assert store.row_numbers is not None
    assert store.row_numbers.tolist() == [0, 1, 3]


def test_encode__excluded_columns_may_be_of_any_type(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1, 2], "text": ["a", None], "y": [0, 1], "label": ["u", "v"]})
    store = encoded(frame, tmp_path, target="y", exclude=["text", "label"])
    assert store.spec.feature_names == ["x"]


def test_encode__columns_without_values_are_missing_in_every_row(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1, 2, 3], "n": [None] * 3, "y": [0, 1, 1]})
    for limits in (USUAL, replace(USUAL, slice_rows=2)):
        store = encoded(frame, tmp_path, f"{limits.slice_rows}.store", target="y", limits=limits)
        feature = store.spec.features[1]
        assert (feature.dtype, feature.kind, feature.codes, feature.missing) == ("Null", "numeric", 1, True)
        assert store.feature_codes(1).tolist() == [0, 0, 0]


def test_encode__the_index_of_pandas_is_no_feature(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1, 2, 3], "y": [0, 1, 1]}, index=[7, 8, 9])
    frame.to_parquet(tmp_path / "a.parquet")
    assert "__index_level_0__" in pl.read_parquet_schema(tmp_path / "a.parquet")
    for data in (tmp_path / "a.parquet", pa.Table.from_pandas(frame), frame):
        shutil.rmtree(tmp_path / "a.store", ignore_errors=True)
        store = encoded(data, tmp_path, target="y")
        assert store.spec.feature_names == ["x"]


def table(**columns: Any) -> pl.DataFrame:
    """Two rows with a good feature and target, and the given columns."""
    return pl.DataFrame({"x": [1, 2], "y": [0, 1], **columns})


Wrong = tuple[pl.DataFrame, dict[str, Any], str]
WRONG: dict[str, Callable[[], Wrong]] = {
    "no target": lambda: (table().rename({"y": "late"}), {}, "no column is named .* or y; .* x, late"),
    "unknown target": lambda: (table(), {"target": "late"}, "no column 'late' for target; the columns are x, y"),
    "unknown separator": lambda: (
        pl.DataFrame({"x~y": ["1~2"]}),
        {"target": "y"},
        "the columns are x~y; if that is a whole header, write values with a comma",
    ),
    "unknown separator, no target": lambda: (
        pl.DataFrame({"x~y": ["1~2"]}),
        {},
        "such as 'x~y': the columns are x~y; if that is a whole header, write values with a comma",
    ),
    "one column": lambda: (pl.DataFrame({"x": [1]}), {"target": "y"}, "the columns are x$"),
    "near target": lambda: (table(late=[0, 1]), {"target": "latte"}, "did you mean 'late'"),
    "unknown exclude": lambda: (
        table(zip_code=[1, 2]),
        {"exclude": ["zipcode"]},
        "for exclude; did you mean 'zip_code'",
    ),
    "null target": lambda: (table(y=[None, None]), {}, "'y': every value is missing; choose"),
    "name of code 0": lambda: (table().rename({table().columns[0]: "x\0"}), {}, "has a zero byte, which no Arrow file"),
    "class of code 0": lambda: (table(y=["a", "a\0"]), {}, "has the class 'a\\\\x00'; a character of code 0"),
    "nan target": lambda: (table(y=[float("nan"), None]), {}, "'y': every value is missing"),
    "infinite class": lambda: (table(y=[1.0, float("inf")]), {}, "infinite"),
    "list target": lambda: (table(y=[[1], [2]]), {}, "target 'y' has type List"),
    "many classes": lambda: (
        pl.DataFrame({"x": range(70_000), "y": [f"n{number}" for number in range(70_000)]}),
        {},
        "more than the 65535 classes",
    ),
    "no feature": lambda: (table(), {"exclude": ["x"]}, "no feature is left besides target 'y'"),
    "lists": lambda: (
        table(a=[[1], [2]], b=[{"c": b"x"}] * 2),
        {},
        r"a \(List\(Int64\)\), b\.c \(Binary\); exclude them .*; lists that are all of one length can be cast to Array",
    ),
    "two of one name": lambda: (table(**{"b": [{"c": 1}] * 2, "b.c": [1, 2]}), {}, "two columns are called 'b.c'"),
    "floats as categories": lambda: (
        table(a=[0.5, 1.5]),
        {"categories": ["a"]},
        "'a' has type Float64, with numbers that are not whole; only text",
    ),
    "decimals as categories": lambda: (
        table(a=pl.Series([Decimal("0.5"), Decimal("1.0")])),
        {"categories": ["a"]},
        r"'a' has type Decimal\(.*\), with numbers that are not whole; only text",
    ),
    "near in case": lambda: (table(late=[0, 1]), {"target": "LATE"}, "for target; did you mean 'late'"),
    "near but for spaces": lambda: (table(late=[0, 1]), {"target": " late"}, "for target; did you mean 'late'"),
    "no category": lambda: (table(abc=[1, 2]), {"categories": ["abd"]}, "for categories; did you mean 'abc'"),
    "target as category": lambda: (
        table(),
        {"categories": ["y"]},
        "'y' is not a feature, so its values cannot be categories",
    ),
    "near large": lambda: (table(a=[2**53 + 1, 2**53]), {}, "'a' holds 9007199254740992 and 9007199254740993, which"),
    "near small": lambda: (table(a=[-(2**62) - 1, -(2**62)]), {}, "holds -4611686018427387905 and -46116860184273879"),
    "near binned": lambda: (table(a=[2**53 + 1, 2**53]), {"max_bins": 2}, "holds 9007199254740992 and 900719925474099"),
    "near decimal": lambda: (
        table(a=pl.Series([Decimal("9007199254740.993"), Decimal("9007199254740.992")])),
        {},
        "'a' holds 9007199254740.992 and 9007199254740.993, which are the same number",
    ),
    "wide target": lambda: (
        table(y=pl.Series([1, 2], dtype=pl.Int128)),
        {},
        "'y' has type Int128; classes are integers of at most 64 bits: cast it to Int64 or String, or choose the task",
    ),
    "wide": lambda: (
        table(a=pl.Series([2**64 + 1, 1], dtype=pl.Int128)),
        {},
        r"a \(18446744073709551617 is an .* than 64 bits",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_encode__unusable_table(case: str, tmp_path: Path) -> None:
    frame, options, message = WRONG[case]()
    with pytest.raises(DataError, match=message):
        encoded(frame, tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_encode__missing_feature_in_a_dropped_row_does_not_matter(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1, 2, None], "y": [0, 1, None]})
    check(encoded(frame, tmp_path), frame, "y")


def test_encode__existing_output_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.store").mkdir()
    with pytest.raises(OutputExistsError):
        encoded(table(), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.store"]


def test_encode__interrupted_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, StageAdvanced):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encoded(table(), tmp_path, listener=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_encode__parquet_damaged_inside_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": np.random.default_rng(0).normal(size=5000), "y": np.arange(5000) % 2}), path)
    raw = bytearray(path.read_bytes())
    raw[4:2000] = b"\x55" * 1996
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"t: the table cannot be read"):
        encoded(path, tmp_path)
