"""A forest in the format of another engine predicts the same, at thresholds and beside them and where values miss."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest import ConfigError, Forest
from bigforest.events import Event, StageAdvanced, StageFinished, StageStarted
from bigforest.export.trees import rounded_down
from bigforest.predict.export_file import SUFFIXES

ROWS = 10_000
OPTIONS: dict[str, Any] = {"trees": 12, "min_leaf": 2, "refine": "off"}
# Marks of tests that need other engines, which need not be installed (tests/conftest.py).
ONNX = pytest.mark.needs("onnx", "onnxruntime")
TREELITE = pytest.mark.needs("treelite")
DUCKDB = pytest.mark.needs("duckdb")


def numbers_table(rows: int, seed: int) -> pl.DataFrame:
    """Two numbers with ties and missing values, one without, a boolean, and three classes of text."""
    draw = np.random.default_rng(seed)
    x, y = draw.normal(size=rows), draw.integers(-5, 20, rows) / 3
    label = np.where(x + 0.3 * y > 1.5, "it's", np.where(y > 3, "b", "c"))
    table = pl.DataFrame({"x": x, "y": y, "z": draw.gamma(2, 1e6, rows), "flag": x > y, "target": label})
    gone = pl.Series(draw.random(rows) < 0.15)
    return table.with_columns(pl.when(gone).then(None).otherwise(pl.col("x")).alias("x"))


def category_table(rows: int, seed: int) -> pl.DataFrame:
    """Text, whole numbers and a boolean that are categories, some missing, and two classes of whole numbers."""
    draw = np.random.default_rng(seed)
    town, code = draw.choice(["a", "b'", "c", "d e", "é"], rows), draw.integers(90, 110, rows)
    late = (town == "a") | (code % 7 == 3) & (draw.random(rows) < 0.8)
    table = pl.DataFrame(
        {"town": town, "code": code, "wet": draw.random(rows) < 0.5, "x": draw.normal(size=rows), "target": late * 1}
    )
    gone = pl.Series(draw.random(rows) < 0.1)
    return table.with_columns(pl.when(gone).then(None).otherwise(pl.col("town")).alias("town"))


def target_table(rows: int, seed: int) -> pl.DataFrame:
    """Numbers to predict."""
    table = numbers_table(rows, seed)
    return table.with_columns(target=pl.col("y") * 1.7 + pl.col("z") / 1e6 + pl.col("x").fill_null(0.5))


def train(make: Any, **options: Any) -> Forest:
    categories = ["code", "wet"] if make is category_table else []
    return bigforest.train(make(1500, 1), "target", categories=categories, **OPTIONS | options)


def rows_at_thresholds(forest: Forest, make: Any, float32: bool) -> pl.DataFrame:
    """10,000 rows; numbers of a third of them are thresholds of the forest, or the next values below and above."""
    draw = np.random.default_rng(7)
    table = make(ROWS, 2).drop("target")
    nodes = forest.nodes.filter(pl.col("kind") == "axis").select("feature", "threshold").collect()
    for name in ("x", "y", "z"):
        if name not in table.columns:
            continue
        found = nodes.filter(pl.col("feature") == name)["threshold"].to_numpy()
        found = found[np.isfinite(found)]
        kind = np.float32 if float32 else np.float64
        near = draw.choice(found, ROWS).astype(kind)
        near = np.nextafter(near, kind(draw.choice([-1, 1]) * np.inf)) if name == "y" else near
        near = np.where(draw.random(ROWS) < 0.5, near, np.nextafter(near, kind(np.inf)))
        own = pl.Series(near.astype(np.float64))
        taken = pl.Series(draw.random(ROWS) < 0.34)
        table = table.with_columns(pl.when(taken).then(own).otherwise(pl.col(name)).alias(name))
        if float32:
            table = table.with_columns(pl.col(name).cast(pl.Float32).cast(pl.Float64))
    return table


def check_classes(forest: Forest, rows: pl.DataFrame, labels: Any, shares: Any, near: float) -> None:
    """Shares agree, and labels wherever the two best shares do not."""
    want = forest.predict_proba(rows).to_numpy()
    np.testing.assert_allclose(np.asarray(shares), want, rtol=0, atol=near)
    best = np.sort(want, axis=1)
    clear = best[:, -1] - best[:, -2] > 10 * near
    assert clear.mean() > 0.9
    assert (np.asarray(labels)[clear] == forest.predict(rows)["prediction"].to_numpy()[clear]).all()


NUMERIC = [numbers_table, target_table]
ALL = [*NUMERIC, category_table]


def _name(make: Any) -> str:
    return str(make.__name__)


@pytest.mark.parametrize("make", ALL, ids=_name)
def test_sql__predicts_the_same_in_sqlite(make: Any) -> None:
    forest = train(make)
    rows = rows_at_thresholds(forest, make, False).with_row_index("id")
    check_query(forest, rows, in_sqlite(forest.to_sql('new "rows"', keep=["id"]), rows))


@DUCKDB
@pytest.mark.parametrize("make", ALL, ids=_name)
def test_sql__predicts_the_same_in_duckdb(make: Any) -> None:
    forest = train(make, trees=5)
    rows = rows_at_thresholds(forest, make, False).with_row_index("id")
    check_query(forest, rows, in_duckdb(forest.to_sql(keep=["id"]), rows))


def in_sqlite(query: str, rows: pl.DataFrame, table: str = 'new "rows"') -> Any:
    connection = sqlite3.connect(":memory:")
    name, *columns = ('"' + name.replace('"', '""') + '"' for name in (table, *rows.columns))
    connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
    connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * rows.width)})", rows.iter_rows())
    found = connection.execute(query)
    return pl.DataFrame(found.fetchall(), [column[0] for column in found.description], orient="row")


def in_duckdb(query: str, rows: pl.DataFrame, table: str = "rows") -> Any:
    import duckdb

    with duckdb.connect() as connection:
        connection.register(table, rows.to_arrow())
        return pl.from_arrow(connection.sql(query).to_arrow_table())


DATABASES = [in_sqlite, pytest.param(in_duckdb, marks=DUCKDB)]


def in_onnx(forest: Forest, rows: pl.DataFrame, dtype: str = "float32") -> Any:
    """The outputs of ONNX Runtime."""
    import onnxruntime

    model = forest.to_onnx(dtype).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {"X": forest.to_matrix(rows).astype(dtype)})


def in_treelite(forest: Forest, rows: pl.DataFrame) -> Any:
    """The output of treelite."""
    import treelite

    return treelite.gtil.predict(forest.to_treelite(), forest.to_matrix(rows))


def check_query(forest: Forest, rows: pl.DataFrame, found: Any) -> None:
    found = found.sort("id")
    assert found.height == rows.height
    if forest.is_regression:
        want = forest.predict(rows)["prediction"].to_numpy()
        np.testing.assert_allclose(found["prediction"].to_numpy(), want, rtol=1e-12)
    else:
        names = forest.predict_proba(rows).columns
        check_classes(forest, rows, found["prediction"].to_numpy(), found.select(names).to_numpy(), 1e-12)


# Targets of each link, and options.
REFINED: dict[str, dict[str, Any]] = {
    "number": {},
    "count": {"impurity": "poisson", "task": "regression"},
    "two": {"power": 1.5},
    "three": {"vote": "hard"},
}


def refined(target: str, levels: bool) -> tuple[Forest, pl.DataFrame]:
    """A forest with a boosted stage, on numbers and perhaps levels with missing values; and other rows."""
    draw = np.random.default_rng(4)
    x = draw.random((900, 3)).astype(np.float32).astype(np.float64)
    level = draw.integers(0, 6, 900)
    signal = 2 * x[:, 0] - x[:, 1] + (0.4 * level if levels else 0) + 0.1 * draw.normal(size=900)
    table = pl.DataFrame(x, schema=["x", "y", "z"]).with_columns(
        pl.when(pl.Series(draw.random(900) < 0.2)).then(None).otherwise(pl.col("z")).alias("z"),
        town=pl.Series([None if one == 4 else f"l{one}" for one in level.tolist()]),
        number=pl.Series(signal),
        count=pl.Series(draw.poisson(np.exp(signal / 2)).astype(float)),
        two=pl.Series(np.where(signal > 0.7, "yes", "no")),
        three=pl.Series(np.where(signal > 1, "high", np.where(signal > 0.3, "low", "mid"))),
    )
    table = table.select("x", "y", "z", *(["town"] if levels else []), target)
    # Level l5 is not in training.
    train = table[:300].filter(pl.col("town").fill_null("") != "l5") if levels else table[:300]
    return bigforest.train(train, target, trees=8, refine=3, **REFINED[target]), table[300:].drop(target)


@pytest.mark.parametrize("run", DATABASES)
@pytest.mark.parametrize("target", REFINED)
def test_sql__has_the_boosted_stage(target: str, run: Any) -> None:
    forest, rows = refined(target, True)
    rows = rows.with_row_index("id")
    assert not forest.predict(rows).equals(forest.unrefined().predict(rows))
    query = forest.to_sql("a table", keep=["id"])
    check_query(forest, rows, run(query, rows, "a table"))
    # PostgreSQL and MySQL refuse exponentials of larger and smaller numbers.
    assert all(f"THEN {sign}700.0e0 " in query for sign in ("", "-")) == ("EXP(" in query)


@ONNX
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("target", REFINED)
def test_onnx__has_the_boosted_stage(target: str, dtype: str) -> None:
    forest, rows = refined(target, False)
    found = in_onnx(forest, rows, dtype)
    if forest.is_regression:
        np.testing.assert_allclose(found[0][:, 0], forest.predict(rows)["prediction"].to_numpy(), rtol=1e-5, atol=1e-5)
    else:
        check_classes(forest, rows, found[0], found[1], 1e-5)


def test_boosted_stage__is_refused_where_a_format_cannot_have_it() -> None:
    for target in ("number", "two"):
        forest, _ = refined(target, False)
        for export in (forest.to_treelite, forest.to_sklearn):
            with pytest.raises(ConfigError, match=r"boosted stage .*forest\.unrefined\(\)\), .*export to onnx or sql"):
                export()


# Words and marks of SQL, names of columns in the queries, and spaces.
NAMES = {"town": "select", "code": 'or"d`er', "wet": "f0", "x": "prediction", "target": "it's"}


@pytest.mark.parametrize("run", DATABASES)
def test_sql__names_and_text_may_be_anything(run: Any) -> None:
    """Text is compared byte by byte, without the spaces around it; numbers may have other types, and be NaN."""
    words = {"a": "A", "b'": "a", "c": "á", "d e": "d\\n'e", "é": "--"}
    draw = np.random.default_rng(2)

    def make(rows: int, seed: int) -> pl.DataFrame:
        table = category_table(rows, seed).with_columns(pl.col("town").replace_strict(words))
        return table.with_columns(f32=pl.Series(draw.normal(size=rows).astype(np.float32))).rename(NAMES)

    forest = bigforest.train(make(900, 1), NAMES["target"], categories=[NAMES["code"], "f0"], **OPTIONS)
    rows = make(900, 2).drop(NAMES["target"])
    odd, third = pl.int_range(900) % 2 == 1, pl.int_range(900) % 3 == 1
    rows = rows.with_columns(
        pl.when(odd).then(pl.format("\t {}\u00a0\n", "select")).otherwise("select").alias("select"),
        pl.when(third).then(float("nan")).otherwise("prediction").alias("prediction"),
        pl.col(NAMES["code"]).cast(pl.Float64),
        id=pl.int_range(900),
    )
    check_query(forest, rows, run(forest.to_sql("step0", keep=["id"]), rows, "step0"))


def test_sql__refuses_columns_that_databases_take_for_one() -> None:
    table = numbers_table(60, 1)
    twice = bigforest.train(table.with_columns(X=pl.col("y")), "target", trees=2)
    with pytest.raises(ConfigError, match="'x' and 'X' differ in upper and lower case alone"):
        twice.to_sql()
    with pytest.raises(ConfigError, match="'x' and 'X' differ in upper and lower case alone"):
        bigforest.train(table, "target", trees=2).to_sql(keep=["X"])
    with pytest.raises(ConfigError, match="'Target' and 'target' differ"):
        bigforest.train(table.with_columns(Target="y"), "target", trees=2).to_sql()
    with pytest.raises(ConfigError, match="empty or have a NUL, as ''"):
        bigforest.train(table.select("target", pl.col("x").alias("")), "target", trees=2).to_sql()
    with pytest.raises(ConfigError, match=r"empty or have a NUL, as 'a\\x00b'"):
        bigforest.train(table, "target", trees=2).to_sql("a\0b")


def test_sql__fails_in_a_table_without_a_column() -> None:
    """SQLite takes a name in quotes for a text if there is no such column."""
    forest = train(numbers_table)
    with pytest.raises(sqlite3.OperationalError, match="no such column"):
        in_sqlite(forest.to_sql(), numbers_table(5, 1).select("x", "y", "z"), "rows")


def test_sql__for_mysql_quotes_names_by_backticks_and_compares_bytes() -> None:
    table = pl.DataFrame({"a`b": ["u\\", "v'"] * 20, "wet": [True, False] * 20, "n": [0, 1] * 20})
    query = bigforest.train(table, "n", trees=2, mtry="all").to_sql("my rows", ["a`b"], dialect="mysql")
    assert "FROM `my rows` AS t" in query and "t.`a``b` AS k0" in query and "k0 AS `a``b`" in query
    assert "COLLATE utf8mb4_bin" in query and "X'755c'" in query and '"' not in query and "DOUBLE" not in query
    with pytest.raises(ConfigError, match="dialect must be one of"):
        train(numbers_table, trees=2).to_sql(dialect="oracle")


def test_sql__refuses_levels_and_classes_that_it_has_not() -> None:
    draw = np.random.default_rng(0)
    large = pl.DataFrame({"c": draw.integers(2**60, 2**60 + 3, 200), "n": draw.integers(0, 2, 200)})
    with pytest.raises(ConfigError, match=r"beyond 2\*\*53"):
        bigforest.train(large, "n", trees=2, categories=["c"]).to_sql()
    classes = large.select("n", c=pl.col("c").cast(pl.UInt64) + 2**63)
    with pytest.raises(ConfigError, match=r"up to 2\*\*63 - 1"):
        bigforest.train(classes, "c", trees=2, task="classification").to_sql()


@pytest.mark.parametrize("make", NUMERIC, ids=_name)
def test_sklearn__predicts_the_same_for_float32(make: Any) -> None:
    forest = train(make)
    model = forest.to_sklearn()
    rows = rows_at_thresholds(forest, make, True)
    table = rows.to_pandas().astype("float32")
    if forest.is_regression:
        np.testing.assert_allclose(model.predict(table), forest.predict(rows)["prediction"].to_numpy(), rtol=1e-12)
    else:
        check_classes(forest, rows, model.predict(table), model.predict_proba(table), 1e-12)
    assert (model.apply(table) == forest.apply(rows)).all()


@ONNX
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("make", NUMERIC, ids=_name)
def test_onnx__predicts_the_same(make: Any, dtype: str) -> None:
    forest = train(make)
    rows = rows_at_thresholds(forest, make, dtype == "float32")
    found = in_onnx(forest, rows, dtype)
    if forest.is_regression:
        want = forest.predict(rows)["prediction"].to_numpy()
        np.testing.assert_allclose(found[0][:, 0], want, rtol=1e-5, atol=1e-6)
    else:
        check_classes(forest, rows, found[0], found[1], 1e-5)


def one_class(rows: int, seed: int) -> pl.DataFrame:
    """Numbers and a single class."""
    return numbers_table(rows, seed).with_columns(target=pl.lit("only"))


def two_numbers(rows: int, seed: int) -> pl.DataFrame:
    """Numbers and two classes of whole numbers."""
    table = numbers_table(rows, seed)
    late = (table["x"].fill_null(0.0) + table["z"] / 1e7 > table["y"] / 4).cast(pl.Int64)
    return table.with_columns(target=late * 3 - 1)


def two_texts(rows: int, seed: int) -> pl.DataFrame:
    """Numbers and two classes of text."""
    return two_numbers(rows, seed).with_columns(target=pl.col("target").replace_strict({-1: "b", 2: "a"}))


@ONNX
@pytest.mark.parametrize("options", [{"shrink": "off"}, {"shrink": 3.0}, {"vote": "hard"}, {"power": 2.75}], ids=str)
@pytest.mark.parametrize("make", [two_numbers, two_texts], ids=_name)
def test_onnx__of_two_classes(make: Any, options: dict[str, Any]) -> None:
    """Of two classes a classifier of ONNX would take a sum for a score above or below 0."""
    forest = train(make, **options)
    rows = rows_at_thresholds(forest, make, True)
    check_classes(forest, rows, *in_onnx(forest, rows), 1e-5)


@ONNX
def test_onnx__of_one_class() -> None:
    labels, shares = in_onnx(train(one_class), one_class(50, 2))
    assert set(labels) == {"only"}
    assert shares.shape == (50, 1)
    assert (shares == 1.0).all()


@TREELITE
def test_treelite__of_one_class() -> None:
    assert (in_treelite(train(one_class), one_class(50, 2)) == 1.0).all()


@ONNX
@pytest.mark.parametrize("size", [1e-60, 1e37, 1e38, 1e100])
def test_onnx__refuses_numbers_that_are_no_float32(size: float) -> None:
    forest = train(lambda rows, seed: target_table(rows, seed).with_columns(target=pl.col("target") * size))
    with pytest.raises(ConfigError, match=r"float32, whose range does not hold predictions of the size \S+ added over"):
        forest.to_onnx()


@TREELITE
@pytest.mark.parametrize("make", ALL, ids=_name)
def test_treelite__predicts_the_same(make: Any) -> None:
    forest = train(make)
    rows = rows_at_thresholds(forest, make, False)
    found = in_treelite(forest, rows).reshape(ROWS, -1)
    if forest.is_regression:
        np.testing.assert_allclose(found[:, 0], forest.predict(rows)["prediction"].to_numpy(), rtol=1e-6)
    else:
        labels = np.array(forest.classes)[found.argmax(axis=1)]
        check_classes(forest, rows, labels, found, 1e-6)


def test_power__is_in_the_query_and_refused_where_a_format_has_none() -> None:
    forest = train(numbers_table, power=2.75)
    rows = rows_at_thresholds(forest, numbers_table, False).with_row_index("id")
    check_query(forest, rows, in_sqlite(forest.to_sql('new "rows"', keep=["id"]), rows))
    for export in (forest.to_treelite, forest.to_sklearn):
        with pytest.raises(ConfigError, match=r"the shares to the power of 2\.75; .*export forest\.sharpen\(1\)"):
            export()
    table, plain = rows.drop("id").to_pandas().astype("float32"), forest.sharpen(1)
    check_classes(plain, pl.from_pandas(table), *(getattr(plain.to_sklearn(), name)(table) for name in WAYS), 1e-12)


# What scikit-learn's estimators predict with.
WAYS = ("predict", "predict_proba")


def test_hard_votes__are_counted_in_every_format() -> None:
    forest = train(numbers_table, vote="hard")
    rows = rows_at_thresholds(forest, numbers_table, True).with_row_index("id")
    check_query(forest, rows, in_sqlite(forest.to_sql('new "rows"', keep=["id"]), rows))
    table = rows.drop("id").to_pandas().astype("float32")
    check_classes(forest, rows, forest.to_sklearn().predict(table), forest.to_sklearn().predict_proba(table), 1e-12)


def test_sql__tells_classes_apart_that_differ_in_case() -> None:
    """Most databases take "p_A" and "p_a" for one column."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=ROWS), draw.normal(size=ROWS)
    table = pl.DataFrame({"x": x, "y": y, "target": np.where(x > 0, "A", np.where(y > 0, "a", "b"))})
    forest = bigforest.train(table.head(300), "target", trees=7)
    rows = table.select("x", "y", id=pl.int_range(ROWS), Share0="x")
    query = forest.to_sql('new "rows"', keep=["id", "Share0"])
    connection = sqlite3.connect(":memory:")
    connection.execute('CREATE TABLE "new ""rows""" (x, y, id, Share0)')
    connection.executemany('INSERT INTO "new ""rows""" VALUES (?, ?, ?, ?)', rows.iter_rows())
    found = connection.execute(query)
    assert [column[0] for column in found.description] == ["id", "Share0", "prediction", "p_A", "p_a", "p_b"]
    own = found.fetchall()
    want = forest.predict(rows)["prediction"].to_list()
    assert [line[2] for line in own] == want
    np.testing.assert_allclose([line[3:] for line in own], forest.predict_proba(rows).to_numpy(), atol=1e-12)


@pytest.mark.parametrize("keep", [["Prediction"], ["p_a"], ["id", "ID"]])
def test_sql__refuses_to_keep_what_databases_would_mix_up(keep: list[str]) -> None:
    forest = train(
        lambda rows, seed: numbers_table(rows, seed).with_columns(
            target=pl.col("flag").replace_strict({True: "A", False: "b"})
        )
    )
    with pytest.raises(ConfigError, match="keep cannot have"):
        forest.to_sql(keep=keep)
    with pytest.raises(ConfigError, match="table must be the name of a table, not ''"):
        forest.to_sql("")


def test_unseen_levels__go_with_the_larger_child() -> None:
    forest = train(category_table)
    rows = category_table(ROWS, 3).drop("target").with_columns(town=pl.lit("zzz"), id=pl.int_range(ROWS))
    check_query(forest, rows, in_sqlite(forest.to_sql('new "rows"', keep=["id"]), rows))


@pytest.fixture(scope="module")
def infinite() -> tuple[Forest, pl.DataFrame]:
    """A forest with infinite thresholds, and its table."""
    draw = np.random.default_rng(2)
    x = draw.choice([-np.inf, -1.0, 0.5, 2.0, np.inf], 600)
    table = pl.DataFrame({"x": x, "z": draw.normal(size=600), "target": np.where((x < 0) & np.isinf(x), "a", "b")})
    return bigforest.train(table, "target", trees=4, mtry="all"), table


def test_infinite_values__go_where_they_go_in_training(infinite: tuple[Forest, pl.DataFrame]) -> None:
    forest, table = infinite
    assert not np.isfinite(forest.nodes.collect()["threshold"].drop_nulls().to_numpy()).all()
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE rows (x, z)")
    connection.executemany("INSERT INTO rows VALUES (?, ?)", table.select("x", "z").iter_rows())
    found = np.array([line[1:] for line in connection.execute(forest.to_sql())], float)
    np.testing.assert_allclose(found, forest.predict_proba(table).to_numpy(), rtol=0, atol=1e-12)


@ONNX
@TREELITE
def test_infinite_values__go_there_in_onnx_and_treelite(infinite: tuple[Forest, pl.DataFrame]) -> None:
    forest, table = infinite
    want = forest.predict_proba(table).to_numpy()
    np.testing.assert_allclose(in_treelite(forest, table).reshape(600, 2), want, atol=1e-6)
    np.testing.assert_allclose(in_onnx(forest, table)[1], want, atol=1e-6)


def test_rounded_down__leaves_every_float32_on_its_side() -> None:
    draw = np.random.default_rng(0)
    exact = draw.normal(size=2000).astype(np.float32)
    thresholds = np.concatenate(
        [exact.astype(np.float64), np.nextafter(exact.astype(np.float64), np.inf), draw.normal(size=2000) * 10.0**40]
    )
    thresholds = np.concatenate([thresholds, np.nextafter(exact.astype(np.float64), -np.inf), [np.inf, -np.inf, 1e-50]])
    found = rounded_down(thresholds)
    for step in (-np.inf, 0.0, np.inf):
        with np.errstate(over="ignore"):
            near = thresholds.astype(np.float32)
        values = near if step == 0.0 else np.nextafter(near, np.float32(step))
        assert ((values <= found) == (values.astype(np.float64) <= thresholds)).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"family": "sparse-oblique"}, "family axis or tree"),
        ({"family": "subspace-cap"}, "family axis or tree"),
        ({"ranks": True}, "train without ranks"),
        ({"sampling": "adaboost"}, "weights of trees, .*; train with another sampling"),
    ],
)
def test_export__refuses_what_no_format_can_say(options: dict[str, Any], words: str) -> None:
    table = bigforest.simulate("trunk", rows=200, dims=4)
    forest = bigforest.train(table, "target", trees=2, **options)
    for export in (forest.to_sql, forest.to_sklearn):
        with pytest.raises(ConfigError, match=words):
            export()


# Options that change which trees there are, and others that `exported_trees` checks: family, ranks, ties, vote, refine.
KNOWN = {
    *("trees", "seed", "mtry", "impurity", "max_depth", "min_split", "min_leaf", "min_level", "bootstrap", "stop_oob"),
    *("sample_fraction", "replace", "sampling", "group", "max_bins", "task", "categories", "weight", "class_weight"),
    *("keep_targets", "keep_votes", "vote", "constants", "splitter", "family", "feature_fraction", "ranks", "shrink"),
    *("projections", "projection_kind", "density", "mean_difference", "mean_difference_scope", "normalize", "axes"),
    *("orthogonal", "rotation", "axis_features", "axes_from", "subspace", "subspace_per", "steps", "max_epochs"),
    *("ties", "power", "calibration", "missing", "max_leaf_nodes", "min_impurity_decrease", "ccp_alpha", "refine"),
}


def test_options__are_all_known_to_exporters() -> None:
    """A new option may change what leaves say or where rows go: exporters follow or refuse it before it is added."""
    assert set(bigforest.TrainConfig.__dataclass_fields__) == KNOWN


@pytest.mark.parametrize("options", [{}, {"weight": "w"}, {"vote": "hard"}, {"task": "regression"}], ids=str)
def test_sklearn__has_the_shrunk_leaves(options: dict[str, str]) -> None:
    draw = np.random.default_rng(4)
    rows = draw.normal(size=(300, 3)).astype(np.float32).astype(np.float64)
    frame = pl.DataFrame(rows, schema=["a", "b", "c"]).with_columns(y=pl.Series(draw.integers(0, 3, 300)))
    if "weight" in options:
        frame = frame.with_columns(w=pl.Series(draw.uniform(0.01, 30.0, 300)))
    forest = bigforest.train(frame, "y", trees=3, **options).shrink(7.5)
    exported = forest.to_sklearn()
    if forest.is_regression:
        found, expected = exported.predict(rows), forest.predict(frame)["prediction"].to_numpy()
    else:
        found, expected = exported.predict_proba(rows), forest.predict_proba(frame).to_numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "options", [{}, {"impurity": "entropy"}, {"impurity": "error"}, {"task": "regression"}, {"weight": "w"}], ids=str
)
def test_sklearn__has_the_impurities(options: dict[str, str]) -> None:
    draw = np.random.default_rng(4)
    frame = pl.DataFrame(draw.normal(size=(200, 3)), schema=["a", "b", "c"])
    frame = frame.with_columns(y=pl.Series(draw.integers(0, 3, 200)))
    if "weight" in options:
        frame = frame.with_columns(w=pl.Series(draw.uniform(0.01, 30.0, 200)))
    forest = bigforest.train(frame, "y", trees=5, min_leaf=4, **options)
    exported = forest.to_sklearn()
    wanted = forest.explain(parts="importance")["importance"]["importance"]
    np.testing.assert_allclose(exported.feature_importances_, wanted, atol=1e-12)
    if not forest.is_regression:
        for tree, own in zip(exported.estimators_, forest, strict=True):
            shares = own.nodes["counts"].list.eval(pl.element() / pl.element().sum()).to_numpy()
            of_counts = {
                "entropy": lambda p: -(p[p > 0] * np.log2(p[p > 0])).sum(),
                "error": lambda p: 1 - p.max(),
                "gini": lambda p: 1 - (p**2).sum(),
            }[options.get("impurity", "gini")]
            np.testing.assert_allclose(tree.tree_.impurity, [of_counts(np.array(p)) for p in shares], atol=1e-5)


def test_sklearn__refuses_categories_by_name() -> None:
    with pytest.raises(ConfigError, match="'town'"):
        train(category_table, trees=2).to_sklearn()


@ONNX
def test_onnx__refuses_categories_by_name() -> None:
    with pytest.raises(ConfigError, match="'town'"):
        train(category_table, trees=2).to_onnx()


def test_sql__refuses_dates_and_nested_columns_by_name() -> None:
    table = pl.DataFrame({"day": pl.date_range(pl.date(2026, 1, 1), pl.date(2026, 2, 9), eager=True), "n": [0, 1] * 20})
    with pytest.raises(ConfigError, match="'day' "):
        bigforest.train(table, "n", trees=2).to_sql()
    nested = table.select(s=pl.struct(a="n"), target="n")
    with pytest.raises(ConfigError, match=r"'s\.a'"):
        bigforest.train(nested, "target", trees=2).to_sql()
    with pytest.raises(ConfigError, match="a NUL"):
        bigforest.train(pl.DataFrame({"c": ["a\0", "b"] * 20, "n": [0, 1] * 20}), "n", trees=2).to_sql()


def test_export_forest__writes_the_file_and_replaces_it_only_when_told(tmp_path: Path) -> None:
    forest = train(numbers_table, trees=2)
    out = tmp_path / "forest.sql"
    assert bigforest.export_forest(forest, out, to="sql", table="t", keep="x") == out
    assert out.read_text() == forest.to_sql("t", ["x"])
    with pytest.raises(bigforest.OutputExistsError):
        bigforest.export_forest(forest, out, to="sql")
    bigforest.export_forest(forest, out, overwrite=True)
    assert out.read_text() == forest.to_sql()
    with pytest.raises(ConfigError, match="the format is not known; set to to one of onnx"):
        bigforest.export_forest(forest, tmp_path / "forest.txt")
    with pytest.raises(ConfigError, match=r"ends in \.onnx"):
        bigforest.export_forest(forest, tmp_path / "forest.sql", to="onnx")
    with pytest.raises(ConfigError, match="to must be one of"):
        bigforest.export_forest(forest, out, to="pmml")


@pytest.mark.parametrize(
    "to", [pytest.param("onnx", marks=ONNX), pytest.param("treelite", marks=TREELITE), "sklearn", "sql"]
)
def test_export_forest__tells_of_each_tree_and_stopped_it_leaves_nothing(tmp_path: Path, to: str) -> None:
    forest, out = train(numbers_table), tmp_path / f"forest{SUFFIXES[to]}"
    events: list[Event] = []
    bigforest.export_forest(forest, out, to=to, listener=events.append)
    assert events[0] == StageStarted("export", forest.trees, "trees") and isinstance(events[-1], StageFinished)
    assert [event.done for event in events if isinstance(event, StageAdvanced)] == list(range(1, forest.trees + 1))
    out.unlink()

    def stop(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bigforest.export_forest(forest, out, to=to, listener=stop)
    assert not list(tmp_path.iterdir())


def test_export_forest__of_scikit_learn_is_read_by_joblib(tmp_path: Path) -> None:
    joblib = pytest.importorskip("joblib")
    forest = train(target_table, trees=2)
    bigforest.export_forest(forest, tmp_path / "forest.joblib", to="sklearn")
    rows = rows_at_thresholds(forest, target_table, True)
    found = joblib.load(tmp_path / "forest.joblib").predict(rows.to_pandas().astype("float32"))
    np.testing.assert_allclose(found, forest.predict(rows)["prediction"].to_numpy(), rtol=1e-12)
