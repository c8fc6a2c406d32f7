"""The target, weights and groups as arrays beside a table in memory: the forest is that of the whole table."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from polars.testing import assert_frame_equal
from scipy import sparse

import bigforest as bf
from bigforest.errors import ConfigError, DataError
from bigforest.source.in_memory import SparseTable, numbered_names, with_columns_beside
from bigforest.source.open import open_source

DRAW = np.random.default_rng(1)
X = np.where(DRAW.random((60, 3)) < 0.5, 0.0, DRAW.normal(size=(60, 3)))
Y = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
NAMES = ["x0", "x1", "x2"]
WHOLE = pl.DataFrame({**dict(zip(NAMES, X.T, strict=True)), "target": Y})

TABLES: dict[str, Callable[[], Any]] = {
    "numpy": lambda: X,
    "objects": lambda: X.astype(object),
    "records": lambda: pd.DataFrame(X, columns=NAMES).to_records(index=False),
    "list": X.tolist,
    "list of tuples": lambda: [tuple(row) for row in X.tolist()],
    "list of rows by name": lambda: [dict(zip(NAMES, row, strict=True)) for row in X.tolist()],
    "mapping": lambda: dict(zip(NAMES, X.T, strict=True)),
    "mapping of lists": lambda: {name: column.tolist() for name, column in zip(NAMES, X.T, strict=True)},
    "polars": lambda: WHOLE.drop("target"),
    "pandas": lambda: pd.DataFrame(X, columns=NAMES),
    "arrow": lambda: pa.table(dict(zip(NAMES, X.T, strict=True))),
    "csr": lambda: sparse.csr_matrix(X),
    "csc array": lambda: sparse.csc_array(X),
    "coo": lambda: sparse.coo_matrix(X),
}
TARGETS: dict[str, Callable[[], Any]] = {
    "numpy": lambda: Y,
    "a column of numpy": lambda: Y[:, None],
    "list": Y.tolist,
    "list of lists": lambda: Y[:, None].tolist(),
    "polars": lambda: pl.Series(Y),
    "a frame of polars": lambda: pl.DataFrame({"target": Y}),
    "pandas": lambda: pd.Series(Y, index=np.arange(60)[::-1]),
    "an array of pandas": lambda: pd.array(Y, "Int64"),
    "deque": lambda: deque(Y.tolist()),
    "a frame of pandas": lambda: pd.DataFrame({"target": Y}),
    "arrow": lambda: pa.array(Y),
    "arrow in chunks": lambda: pa.chunked_array([Y[:7], Y[7:]]),
}


def files(forest: bf.Forest) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (forest.directory / "trees").iterdir()}


@pytest.fixture(scope="module")
def forest() -> bf.Forest:
    """Three trees on WHOLE."""
    return bf.train(WHOLE, "target", trees=3)


@pytest.fixture(scope="module")
def expected(forest: bf.Forest) -> dict[str, bytes]:
    return files(forest)


@pytest.mark.parametrize("table", TABLES)
def test_train_and_predict__on_any_kind_of_table(table: str, expected: dict[str, bytes], forest: bf.Forest) -> None:
    made, found = TABLES[table], bf.train(TABLES[table](), Y, trees=3)
    assert files(found) == expected
    shares = found.predict_proba(made())
    named = {"polars": pl.DataFrame, "pandas": pd.DataFrame, "arrow": pa.Table, "records": pl.DataFrame}
    kind = next((named[name] for name in named if name in table), np.ndarray)
    kind = pl.DataFrame if "mapping" in table or "by name" in table else kind
    assert isinstance(shares, kind)
    assert np.array_equal(np.asarray(shares), forest.predict_proba(X))
    assert np.array_equal(found.apply(made()), forest.apply(X))
    assert np.array_equal(found.to_matrix(made()), X)
    assert found.score(made(), Y) == forest.score(X, Y)


@pytest.mark.parametrize("table", ["numpy", "pandas", "csr"])
def test_train__on_a_pair(table: str, expected: dict[str, bytes]) -> None:
    assert files(bf.train((TABLES[table](), Y), trees=3)) == expected


class Stream:
    """A table that another package hands on as Arrow does."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


def test_predict__for_an_arrow_stream() -> None:
    forest = bf.train(Stream(WHOLE), trees=3)  # the target is known by its name
    found = forest.predict(Stream(WHOLE), keep=["target"])
    assert isinstance(found, pa.Table)
    assert_frame_equal(pl.DataFrame(found), forest.predict(WHOLE, keep=["target"]))
    with pytest.raises(DataError, match="a table cannot be made of Series; give a table of Polars"):
        forest.predict(pl.Series([1]))


def test_list__of_pieces_of_a_table(expected: dict[str, bytes], forest: bf.Forest) -> None:
    table = WHOLE.to_arrow()
    pieces = {
        "batches": table.to_batches(max_chunksize=25),
        "arrow": [table.slice(0, 7), table.slice(7)],
        "polars": [WHOLE.head(7), WHOLE.slice(7)],
        "pandas": [WHOLE.head(7).to_pandas(), WHOLE.slice(7).to_pandas()],
    }
    for given in pieces.values():
        assert files(bf.train(given, "target", trees=3)) == expected
        assert_frame_equal(forest.predict(given), forest.predict(WHOLE))
        assert forest.score(given) == forest.score(WHOLE)
    with pytest.raises(DataError, match="the tables of the list do not have the same columns"):
        bf.train([WHOLE, WHOLE.drop("x1")], "target", trees=3)


def test_cells__of_several_types_are_those_of_columns() -> None:
    rows: list[list[Any]] = [["a", 1, 0.5, None], ["b", 2, 1.5, True], ["c", None, 2.5, False]] * 10
    names = [f"x{place}" for place in range(4)]
    columns = pl.DataFrame(rows, schema=names, orient="row")
    forest = bf.train(columns, ["p", "q", "r"] * 10, trees=3)
    records = np.array([tuple(row[:3]) for row in rows], dtype=[("x0", "U1"), ("x1", object), ("x2", float)])
    assert files(bf.train(records, ["p", "q", "r"] * 10, trees=3)) == files(
        bf.train(columns.drop("x3"), ["p", "q", "r"] * 10, trees=3)
    )
    wanted = forest.predict_proba(columns).to_numpy()
    for made in (rows, np.array(rows, object)):
        assert files(bf.train(made, ["p", "q", "r"] * 10, trees=3)) == files(forest)
        assert np.array_equal(forest.predict_proba(made), wanted)
    words = np.array([["a"], ["b"], ["c"]] * 10)
    assert bf.train(words, ["p", "q", "r"] * 10, trees=3).score(words, ["p", "q", "r"] * 10) == 1.0


@pytest.mark.parametrize("target", TARGETS)
def test_train__with_any_kind_of_target(target: str, expected: dict[str, bytes]) -> None:
    assert files(bf.train(X, TARGETS[target](), trees=3)) == expected


def test_train__of_a_frame_with_a_series(expected: dict[str, bytes]) -> None:
    assert files(WHOLE.drop("target").bigforest.train(pl.Series(Y), trees=3)) == expected  # type: ignore[attr-defined]


def test_target__keeps_its_name_and_type() -> None:
    late = pd.Series(pd.Categorical(["no", "yes"] * 30, ["yes", "no"], ordered=True), name="late")
    forest = bf.train(pd.DataFrame(X), late, trees=2)
    assert (forest.spec.target.name, forest.classes) == ("late", ["no", "yes"])
    assert bf.train((X, Y), "kind", trees=2).spec.target.name == "kind"
    assert bf.train(X, [1.5, *range(59)], trees=2).is_regression


def test_weights_and_groups__as_arrays(tmp_path: Path) -> None:
    weight, group = DRAW.integers(1, 4, 60), np.repeat(np.arange(20), 3)
    whole = WHOLE.with_columns(weight=weight, group=group)
    by_name = files(bf.train(whole, "target", weight="weight", group="group", trees=3))
    assert files(bf.train(X, Y, weight=weight.tolist(), group=pl.Series(group), trees=3)) == by_name
    assert files(bf.train(sparse.csr_matrix(X), Y, weight=weight, group=group, trees=3)) == by_name
    store = bf.encode_store((X, Y), tmp_path / "s", weight=pd.Series(weight), group=group)
    assert files(bf.train(store, trees=3)) == by_name
    assert bf.plan_training(X, Y, weight=weight).rows == 60


def test_names__that_are_there_already() -> None:
    frame = WHOLE.rename({"x0": "weight"})
    data, names = with_columns_beside(frame, {"target": "target", "weight": Y, "group": None})
    assert names == {"target": "target", "weight": "weight_", "group": None}
    assert_frame_equal(data, frame.with_columns(weight_=Y))
    with pytest.raises(DataError, match="X has a column 'target' too; drop it from X"):
        bf.train(WHOLE, WHOLE["target"])


@pytest.mark.parametrize("moment", [dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 12), np.datetime64("2024-01-01T12")])
def test_dates__in_rows_are_those_of_columns(moment: Any) -> None:
    rows = [[None if k == 3 else moment + dt.timedelta(days=k % 5), float(k)] for k in range(30)]
    columns = {"x0": [row[0] for row in rows], "x1": [row[1] for row in rows]}
    labels = [k % 5 > 2 for k in range(30)]
    forest = bf.train((rows, labels), trees=3)
    assert files(forest) == files(bf.train(columns, labels, trees=3))
    expected = forest.predict_proba(columns).to_numpy()
    for given in (rows, np.array(rows, object)):
        assert np.array_equal(forest.predict_proba(given), expected) and forest.score(given, labels) == 1.0
    with pytest.raises(DataError, match="feature 'x0' of the array is Time, in training it was Date"):
        forest.predict([[dt.time(12), 1.0]])
    with pytest.raises(DataError, match="feature 'x0' of the array"):
        forest.predict([["soon", 1.0]])


def test_integers_beyond_float64__in_rows_are_not_rounded() -> None:
    rows, labels = [[2**53 + k % 2, 0.5] for k in range(20)], [k % 2 for k in range(20)]
    with pytest.raises(DataError, match="9007199254740992 and 9007199254740993, which are the same number"):
        bf.train((rows, labels), trees=2)


@pytest.mark.parametrize("kind", [np.float64, np.longdouble])
def test_sparse__matrix_of_the_caller_is_not_changed(kind: type) -> None:
    matrix = sparse.csr_matrix(X.astype(kind))
    before = matrix.copy()
    bf.train(matrix, Y, trees=2)
    assert matrix.dtype == kind
    assert (matrix != before).nnz == 0


def test_sparse__is_a_table_by_itself(tmp_path: Path) -> None:
    """With the target in a column, and without one."""
    matrix = sparse.csc_matrix(np.column_stack([X, Y]))
    store = bf.encode_store(matrix, tmp_path / "s", target="x3")
    expected = bf.encode_store(np.column_stack([X, Y]), tmp_path / "d", target="x3")
    assert (store.fingerprint, store.spec) == (expected.fingerprint, expected.spec)
    forest = bf.train(store, trees=2, refine="off")
    bf.predict_file(forest, sparse.csr_matrix(X), tmp_path / "p.parquet")
    assert np.array_equal(pl.read_parquet(tmp_path / "p.parquet")["prediction"], forest.predict(X))
    assert bf.predict_file(forest, sparse.csr_matrix(X[:0]), tmp_path / "none.parquet").rows == 0
    with pytest.raises(DataError, match="the table has no rows"):
        bf.train((sparse.csr_matrix(X[:0]), []), trees=1)
    with pytest.raises(DataError, match="must have two dimensions"):
        bf.predict_file(forest, sparse.coo_array(X[0]), tmp_path / "p.parquet", overwrite=True)


def test_sparse__is_streamed_a_piece_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("in_memory", "spool"):
        monkeypatch.setattr(f"bigforest.source.{module}.PART_BYTES", 8 * 40 * 200)
    tall = sparse.random(300, 40, 0.1, "csc", random_state=np.random.default_rng(2))
    source = open_source(SparseTable(tall, numbered_names(tall), (pl.Series("y", range(300)),)), scratch=tmp_path)
    assert (source.rows, len(source.schema), len(source.files)) == (300, 41, 2)
    assert np.array_equal(source.columns(["x3", "y"]).to_numpy()[:, 0], tall[:, [3]].toarray()[:, 0])
    assert source.column("y").to_list() == list(range(300))


@pytest.mark.parametrize("part_bytes", [1, 8 * 4 * 7, 1 << 26])
def test_sparse_rows__are_answered_as_dense_ones(monkeypatch: pytest.MonkeyPatch, part_bytes: int) -> None:
    monkeypatch.setattr("bigforest.source.in_memory.PART_BYTES", part_bytes)
    thin = np.where(X > 0.2, X, 0.0)
    forest = bf.train(thin, Y, trees=5, keep_votes=False)
    made = sparse.csc_matrix(thin)
    for method in ("predict", "predict_proba", "apply", "to_matrix"):
        assert np.array_equal(getattr(forest, method)(made), getattr(forest, method)(thin)), method
    assert np.array_equal(forest.predict_proba(made, memory="1GB"), forest.predict_proba(thin))
    assert np.array_equal(forest.predict(made, vote="stochastic"), forest.predict(thin, vote="stochastic"))
    assert forest.score(made, Y) == forest.score(thin, Y)
    assert forest.predict(made[:0]).shape == (0,)
    with pytest.raises(DataError, match=r"the array has shape \(60, 1\); the forest was trained on"):
        forest.predict(made[:, :1])
    with pytest.raises(DataError, match="complex128"):
        forest.predict(made.astype(complex))
    with pytest.raises(ConfigError, match="no columns to keep"):
        forest.predict(made, keep=["x0"])


@pytest.mark.parametrize(
    ("data", "target", "options", "message"),
    [
        (X, Y[:-1], {}, "y has 59 rows, and X has 60"),
        (X, Y, {"weight": [1, 2]}, "weight has 2 rows, and X has 60"),
        (X, np.stack([Y, Y], 1), {}, "a column was expected, not an array of shape"),
        (X, 5, {}, "target must be the name of a column, as text, or its values, not 5"),
        (X, ["a", 1] * 30, {}, "y is not a column of one type"),
        (X, Y + 1j, {}, "of type complex128"),
        ({"a": [1, "b"]}, None, {}, "a is not a column of one type"),
        ({"a": [1, 2], "b": [1]}, None, {}, "a table cannot be made of this dict"),
        ([[1.0], [1.0, 2.0]], None, {}, "a table cannot be made of this list"),
        (np.array([[1, "b"], ["c", 2]], object), [0, 1], {}, "x0 is not a column of one type"),
        (sparse.csr_matrix(X.astype(complex)), Y, {}, "the sparse matrix has type complex128"),
    ],
)
def test_train__refuses_what_does_not_fit(data: Any, target: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        bf.train(data, target, **options)


def test_values_beside__in_another_order_of_the_index() -> None:
    """Rows are matched by their places, so that values of other rows would be learned."""
    table = pd.DataFrame({"a": range(40)})
    y = pd.Series([*"xy"] * 20, name="y")
    shuffled = table.sample(frac=1, random_state=0)
    message = r"has the index of X in another order, .* give \w+\.loc\[X\.index\], or \w+\.to_numpy\(\)"
    for data, target in ((shuffled, y), ((shuffled, y), None), ((shuffled, y.to_frame()), None)):
        with pytest.raises(DataError, match=f"^y {message}"):
            bf.train(data, target, trees=1)
    for role in ("weight", "group"):
        with pytest.raises(DataError, match=f"^{role} {message}"):
            bf.train(shuffled, y.loc[shuffled.index], trees=1, **{role: pd.Series(range(1, 41))})
    forest = bf.train(shuffled, y.loc[shuffled.index], trees=3)
    for other in (y.to_numpy(), y.set_axis(range(1, 41)), y.tolist()):
        assert bf.train(shuffled, other, trees=1).spec.rows == 40
    with pytest.raises(DataError, match=f"^y {message}"):
        forest.score(shuffled, y)
    assert forest.score(shuffled, y.loc[shuffled.index]) == forest.score(table, y)


def test_train__a_list_of_whole_numbers_others_and_none() -> None:
    target = [None, 1, 2.5, 2**60, 0.25] * 4
    made = bf.train({"a": target}, [*"xyxyx"] * 4, trees=2).predict({"a": target})
    same = pl.DataFrame({"a": target}, strict=False)
    assert_frame_equal(made, bf.train(same, [*"xyxyx"] * 4, trees=2).predict(same))
    assert bf.train({"a": range(20)}, target, trees=2, task="regression").spec.rows == 16


def test_train__refuses_arrays_beside_files(tmp_path: Path) -> None:
    WHOLE.write_parquet(tmp_path / "t.parquet")
    for data in (tmp_path / "t.parquet", WHOLE.lazy()):
        with pytest.raises(ConfigError, match="target as an array needs a table in memory, not"):
            bf.train(data, Y)
        with pytest.raises(ConfigError, match="weight as an array needs a table in memory"):
            bf.train(data, "target", weight=Y)
    with pytest.raises(ConfigError, match="the second of the pair"):
        bf.train((X, Y), Y)


def test_train__values_without_a_name_beside_a_column_without_one() -> None:
    """The index that pandas writes into CSV files is such a column."""
    table = WHOLE.drop("target").rename({"x0": ""})
    forest = bf.train(table, Y.tolist(), weight=Y + 1, trees=2)
    assert forest.spec.feature_names == ["", "x1", "x2"]
    assert forest.score(table, Y) > 0.8


def test_train__categories_of_pandas_that_are_intervals_or_periods() -> None:
    values = np.random.default_rng(3).normal(size=90)
    month = pd.Series(pd.date_range("2020-01-01", periods=90)).dt.to_period("M")
    frame = pd.DataFrame({"bin": pd.cut(values, [-9, -1, 0, 1, 9]), "month": pd.Categorical(month)})
    text = frame.astype(str)
    forest = bf.train(frame, values > 0, trees=3, min_level=1)
    assert [one.kind for one in forest.spec.features] == ["category", "category"]
    assert forest.score(frame, values > 0) > 0.9
    assert_frame_equal(pl.from_pandas(forest.predict_proba(text)), pl.from_pandas(forest.predict_proba(frame)))
    unordered = frame.assign(bin=frame["bin"].cat.as_unordered())
    assert bf.train(unordered, values > 0, trees=3, min_level=1).score(unordered, values > 0) > 0.9


def test_train__categories_of_pandas_that_are_numbers(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    code, flag, size, out = draw.integers(0, 6, (4, 90))
    plain = pl.DataFrame({"code": code, "flag": flag > 2, "size": size})
    frame = pd.DataFrame({"code": code, "flag": flag > 2}).astype("category")
    frame["size"] = pd.Categorical(size, ordered=True)
    target = pd.Series(pd.Categorical((code % 2 + flag) % 3), name="target")
    beside = bf.train(frame, target, trees=2)
    assert [one.kind for one in beside.spec.features] == ["category", "category", "numeric"]
    assert beside.classes == [0, 1, 2]
    expected = bf.train(plain, target, trees=2, categories=["code", "flag"]).predict_proba(plain)
    assert_frame_equal(pl.from_pandas(beside.predict_proba(frame)), expected)
    whole = frame.assign(out=pd.Categorical(out), target=target)
    path = tmp_path / "f.forest"
    bf.train(whole, trees=2, exclude="out", categories="code", out=path)
    assert bf.train(whole, resume=path, trees=3).config.categories == ("code", "flag")


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="numpy 1 has no such type")
def test_train__text_of_any_length_in_numpy() -> None:
    words = ["up", "down", "a longer word", "up"] * 10
    kind = np.dtypes.StringDType(na_object=None)
    own, plain = ({"word": values, "y": [0, 1, 1, 0] * 10} for values in (np.array(words, kind), words))
    forest = bf.train(plain, "y", trees=3, min_level=1)
    assert bf.train(own, "y", trees=3, min_level=1).predict_proba(own).equals(forest.predict_proba(plain))
    gaps = {"word": np.array([None, "up"], kind)}
    assert forest.predict_proba(gaps).equals(forest.predict_proba({"word": [None, "up"]}))
    of_rows = [np.array(words, dtype)[:, None] for dtype in (kind, str)]
    forests = [bf.train((rows, plain["y"]), trees=3, min_level=1) for rows in of_rows]
    shares = [one.predict_proba(rows) for one in forests for rows in of_rows]
    assert all(np.array_equal(each, shares[0]) for each in shares)


@pytest.mark.parametrize("make", [np.array, lambda rows: np.array(rows, np.float32), list, sparse.csr_array])
def test_categories__of_numbers_in_arrays(make: Any) -> None:
    """The kinds of array that training takes, prediction takes too."""
    rows = np.array([[k % 5, k * 7 % 11] for k in range(90)], np.float64)
    target = np.array([3.0, 0.0, 9.0, 1.0, 6.0])[rows[:, 0].astype(int)]
    data = make(rows) if make is not list else rows.tolist()
    forest = bf.train(data, target, categories=["x0"], min_level=1, mtry="all", trees=3, refine="off", shrink="off")
    assert forest.predict(data).tolist() == target.tolist()
    with pytest.raises(DataError, match="'x0' has levels that did not occur in training, among them 5"):
        forest.predict(np.array([[5.0, 1.0]]), unseen="error")


def test_train__categories_of_numbers_in_an_order_of_their_own(tmp_path: Path) -> None:
    """Which the values do not have."""
    size = np.random.default_rng(2).integers(0, 4, 90)
    frame = pd.DataFrame({"target": size % 2})
    for name, order in (("own", [2, 0, 3, 1]), ("up", [0, 1, 2, 3]), ("down", [3, 2, 1, 0])):
        frame[name] = pd.Categorical(size, order, ordered=True)
    frame.to_feather(tmp_path / "t.feather")
    for one in (frame, pa.Table.from_pandas(frame), tmp_path / "t.feather"):
        forest = bf.train(one, "target", trees=2, min_level=1)
        assert [feature.kind for feature in forest.spec.features] == ["category", "numeric", "numeric"]
        assert forest.score(frame, frame["target"]) == 1.0


def test_train__category_of_pandas_whose_integers_are_floats() -> None:
    """Pandas makes floats of integers with missing values, before `astype("category")`."""
    code = pd.Series(np.random.default_rng(5).integers(0, 6, 90)).mask(np.arange(90) % 9 == 0)
    target = np.arange(90) % 2 + code.fillna(0) % 2
    frame = pd.DataFrame({"code": code.astype("category"), "half": (code / 2).astype("category")})
    forest = bf.train(frame, target, trees=3, min_level=1, task="classification")
    assert [one.kind for one in forest.spec.features] == ["category", "numeric"]
    for same in (frame.assign(code=code), frame.assign(code=code.astype("Int64").astype("category"))):
        pd.testing.assert_frame_equal(forest.predict_proba(same), forest.predict_proba(frame))


def test_train__categories_of_numbers_stay_categories_in_arrow(tmp_path: Path) -> None:
    code = pd.Series(np.random.default_rng(5).integers(0, 6, 90))
    frame = pd.DataFrame({"code": code, "gaps": code.mask(code == 3), "even": code % 2 == 0}).astype("category")
    frame["half"], frame["target"] = (code / 2).astype("category"), np.arange(90) % 2 + code % 2
    table = pa.Table.from_pandas(frame)
    frame.to_feather(tmp_path / "t.feather")
    with pa.ipc.new_stream(tmp_path / "s.arrow", table.schema) as stream:
        stream.write_table(table)
    tables = [frame, table, table.to_batches()[0], tmp_path / "t.feather", tmp_path / "s.arrow"]
    tables.append((table.drop(["target"]), frame["target"]))
    names = ["code", "gaps", "even"]
    forests = [bf.train(one, "target" if one is not tables[-1] else None, trees=2, seed=3) for one in tables]
    forests.append(bf.train(pl.from_arrow(table), "target", trees=2, seed=3, categories=names))
    decimals = pl.from_pandas(frame).with_columns(pl.col("code", "gaps").cast(pl.Decimal(38, 2)))
    forests.append(bf.train(decimals, "target", trees=2, seed=3, categories=names))
    for forest in forests:
        assert [feature.name for feature in forest.spec.features if feature.kind == "category"] == names
        pd.testing.assert_frame_equal(forest.predict_proba(frame), forests[0].predict_proba(frame))
    assert bf.train(table.to_reader(), "target", trees=2).config.categories == ("code", "even")
    with pytest.raises(
        DataError,
        match="'half' has type Float64, with numbers that are not whole; only text, whole numbers and booleans",
    ):
        bf.train(frame, "target", trees=2, categories=["half"])


def test_train__tells_of_categories_of_numbers_that_parquet_files_lose(tmp_path: Path) -> None:
    code = np.random.default_rng(5).integers(0, 6, 90)
    frame = pd.DataFrame({"code": code, "text": code.astype(str), "target": code % 2}).astype("category")
    frame["size"] = pd.Categorical(code, ordered=True)
    frame.to_parquet(tmp_path / "t.parquet")
    for options, told in (({}, ["'code'"]), ({"categories": "code"}, [])):
        events: list[Any] = []
        bf.train(tmp_path / "t.parquet", "target", trees=2, listener=events.append, **options)
        texts = [str(event) for event in events if "were categories in pandas" in str(event)]
        assert [text.split(": ")[1].split(";")[0] for text in texts] == told


@pytest.mark.parametrize("levels", [pa.array([1.0, None, 3.0]), pa.array([1, None, 3])], ids=["floats", "integers"])
def test_categories__of_numbers_may_have_a_level_that_is_null(levels: Any) -> None:
    code = pa.array(np.arange(60) % 3)
    table = pa.table({"code": pa.DictionaryArray.from_arrays(code, levels), "target": np.arange(60) % 3 > 1})
    forest, plain = bf.train(table, "target", trees=2), {"code": [[1, None, 3][k % 3] for k in range(60)]}
    assert forest.spec.features[0].kind == "category" and forest.spec.features[0].missing
    assert forest.score(table) == forest.score(plain, np.arange(60) % 3 > 1) == 1.0


@pytest.mark.parametrize("kind", ["reader", "dataset"])
def test_train__tells_of_categories_of_floats_in_a_stream(kind: str) -> None:
    """Their values are known only when they have been read."""
    code = np.random.default_rng(5).integers(0, 6, 90).astype(float)
    columns = {"code": pa.array(code).dictionary_encode(), "half": pa.array(code / 2).dictionary_encode(), "size": code}
    table = pa.table({**columns, "target": pa.array(code % 2 > 0)})
    given = table.to_reader() if kind == "reader" else ds.dataset(table)
    events: list[Any] = []
    forest = bf.train(given, "target", trees=2, listener=events.append)
    assert {feature.kind for feature in forest.spec.features} == {"numeric"}
    texts = [str(event) for event in events if "were categories in pandas or Arrow" in str(event)]
    assert [text.split(": ")[1].split(";")[0] for text in texts] == ["'code'"]
