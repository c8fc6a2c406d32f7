"""Prediction: every way in, every rule, against one row and one tree at a time."""

from __future__ import annotations

import math
import pickle
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigforest.errors import BigForestError, ConfigError, DataError, OutputExistsError
from bigforest.events import StageAdvanced, StageFinished, StageStarted
from bigforest.execution.resources import Resources
from bigforest.forest.nodes import TreeArrays
from bigforest.kernels.predict.flat_tree import TILE
from bigforest.planning.sizes import Limits
from bigforest.predict.forest import Forest
from bigforest.predict.packed_trees import pack
from bigforest.predict.predictor import Predictor
from bigforest.predict.rows import RowBatch
from bigforest.predict.vote_rule import VoteRule
from bigforest.source.open import open_source
from tests.forests import forest_of, random_tree, spec_of
from tests.metrics.test_metrics import check_metrics
from tests.naive.predict import decide, sum_of_votes
from tests.predictions import write_predictions
from tests.strategies import EXTREMES

FEATURES = 3
CLASSES = 3
THRESHOLDS = [0.0, 0.5, -1.5, 2.0, 1e-3]
WAYS = [("soft", "lowest"), ("hard", "lowest"), ("hard", "reject"), ("hard", "random"), ("stochastic", "lowest")]


def trees(
    count: int = 6, features: int = FEATURES, thresholds: list[float] = THRESHOLDS, weights: Sequence[float] = ()
) -> list[TreeArrays]:
    random = np.random.default_rng(3)
    return [random_tree(random, features, CLASSES, splits, thresholds, weights) for splits in range(1, count + 1)]


def table(rows: int = 40) -> pl.DataFrame:
    random = np.random.default_rng(rows)
    columns = {f"x{i}": random.choice([*THRESHOLDS, -9.0, 1.0, 9.0], rows) for i in range(FEATURES)}
    return pl.DataFrame({"id": range(rows), **columns})


def expected(
    grown: list[TreeArrays], rows: list[Any], vote: str = "soft", ties: str = "lowest", seed: int = 0
) -> tuple[list[int], list[list[float]]]:
    """Class (-1 if rejected) and shares of votes of every row."""
    sums = [sum_of_votes(grown, row, "hard" if vote == "hard" else "soft") for row in rows]
    codes = [decide(votes, vote, ties, seed, number) for number, votes in enumerate(sums)]
    return codes, [[votes / len(grown) for votes in row] for row in sums]


def rows_of(frame: pl.DataFrame) -> list[tuple[float, ...]]:
    return frame.select(f"x{i}" for i in range(FEATURES)).rows()


@pytest.fixture(scope="module")
def forest(tmp_path_factory: pytest.TempPathFactory) -> Forest:
    """A forest of the classes 5, 7 and 9."""
    return forest_of(tmp_path_factory.mktemp("forest"), trees(), spec_of(FEATURES, (5, 7, 9)))


def labelled(codes: list[int]) -> list[int | None]:
    return [None if code < 0 else (5, 7, 9)[code] for code in codes]


# The kernel and the rules.


def voting_of(grown: list[TreeArrays], rule: VoteRule) -> Predictor:
    spec = spec_of(FEATURES, (5, 7, 9))
    made = pack([grown], spec)
    return Predictor(made, made.leaf_votes(rule.ballots), rule, spec, made.roots.size, float(made.roots.size), [])


@given(st.data())
def test_vote__any_float64(data: st.DataObject) -> None:
    number = st.sampled_from([*EXTREMES, 0.1, float(np.float32(0.1))]) | st.floats(allow_nan=False)
    thresholds = data.draw(st.lists(number, min_size=1, max_size=5))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    splits = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))
    grown = [random_tree(random, 2, CLASSES, count, thresholds) for count in splits]
    cell = st.sampled_from(thresholds) | number
    rows = data.draw(st.lists(st.tuples(cell, cell), min_size=1, max_size=9))
    vote = data.draw(st.sampled_from(["soft", "hard"]))
    ready = voting_of(grown, VoteRule(vote, "lowest", 0))
    for narrow in (False, True):  # the second time as float32, whichever way these are rounded
        with np.errstate(over="ignore"):
            matrix = np.array(rows, np.float32 if narrow else np.float64)
        used = RowBatch.of([matrix[:, place].copy() for place in ready.packed.used])
        assert used.narrow == narrow
        predictions = ready.predict(used, 0, proba=True)
        codes, shares = expected(grown, matrix.astype(np.float64).tolist(), vote)
        assert predictions.codes.tolist() == codes
        assert predictions.proba is not None
        assert predictions.proba.tolist() == shares


@given(st.data())
def test_vote__values_of_one_byte(data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    thresholds = data.draw(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 127.5, 254.5, 255.0, 1e300]), min_size=1))
    grown = [random_tree(random, 2, CLASSES, count, thresholds) for count in (3, 8)]
    kind = data.draw(st.sampled_from([np.uint8, np.bool_]))
    rows = data.draw(
        st.lists(st.tuples(st.integers(0, 255), st.sampled_from([0, 1, 254, 255])), min_size=1, max_size=9)
    )
    matrix = np.array(rows, np.uint8).astype(kind)
    ready = voting_of(grown, VoteRule("soft", "lowest", 0))
    codes, shares = expected(grown, matrix.astype(np.float64).tolist())
    used = RowBatch.of([matrix[:, place].copy() for place in ready.packed.used])
    assert used.width == 1
    predictions = ready.predict(used, 0, proba=True)
    assert predictions.codes.tolist() == codes
    assert predictions.proba is not None
    assert predictions.proba.tolist() == shares


@given(
    st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5]), min_size=3, max_size=3), min_size=1, max_size=8),
    st.sampled_from([*WAYS, ("soft", "reject"), ("soft", "random")]),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**40),
)
def test_rule__decides(votes: list[list[float]], way: tuple[str, str], seed: int, first: int) -> None:
    votes = [row if any(row) else [0.0, 1.0, 0.0] for row in votes]
    numbers = np.arange(first, first + len(votes), dtype=np.uint64)
    found = VoteRule(*way, seed).decide(np.array(votes), numbers)
    assert found.tolist() == [decide(row, *way, seed, first + i) for i, row in enumerate(votes)]


def test_rule__stochastic_answers_have_the_posterior_as_their_chance() -> None:
    rows = 20_000
    found = VoteRule("stochastic", "lowest", 1).decide(
        np.tile([1.0, 0.0, 3.0], (rows, 1)), np.arange(rows, dtype=np.uint64)
    )
    share = np.bincount(found, minlength=3) / rows
    assert share[1] == 0
    assert abs(share[2] - 0.75) < 5 * math.sqrt(0.75 * 0.25 / rows)


def test_rule__random_ties_are_even() -> None:
    rows = 20_000
    found = VoteRule("hard", "random", 1).decide(np.tile([2.0, 0.0, 2.0], (rows, 1)), np.arange(rows, dtype=np.uint64))
    assert set(found.tolist()) == {0, 2}
    assert abs(np.mean(found == 0) - 0.5) < 5 * 0.5 / math.sqrt(rows)


# Every kind of table.


@pytest.mark.parametrize(("vote", "ties"), WAYS)
def test_predict__frame(vote: str, ties: str, forest: Forest) -> None:
    frame = table()
    codes, shares = expected(trees(), rows_of(frame), vote, ties)
    found = forest.predict(frame, vote=vote, ties=ties)
    assert found.schema == {"prediction": pl.Int64}
    assert found["prediction"].to_list() == labelled(codes)
    assert forest.predict_proba(frame, vote=vote).rows() == [tuple(row) for row in shares]
    assert forest.predict_proba(frame).columns == ["p_5", "p_7", "p_9"]


@pytest.mark.parametrize(("vote", "ties"), WAYS)
def test_predict__lazy_frame(vote: str, ties: str, forest: Forest) -> None:
    frame = table(700)
    expected = forest.predict(frame, vote=vote, ties=ties, keep=["id"])
    lazy = forest.predict(frame.lazy(), vote=vote, ties=ties, keep=["id"])
    assert isinstance(lazy, pl.LazyFrame)
    assert lazy.collect_schema() == expected.schema
    assert lazy.collect().equals(expected)
    assert lazy.collect(engine="streaming").equals(expected)
    proba = forest.predict_proba(frame.lazy(), vote=vote, keep="id")
    assert proba.collect_schema() == proba.collect().schema
    assert proba.collect(engine="streaming").equals(forest.predict_proba(frame, vote=vote, keep="id"))


def test_predict__lazy_frame_that_cannot_be_read(forest: Forest, tmp_path: Path) -> None:
    for query, fault in (
        (table().lazy().select("nothing"), "nothing"),
        (pl.scan_csv(tmp_path / "no.csv"), "No such file"),
    ):
        for predict in (forest.predict, forest.predict_proba):
            with pytest.raises(DataError, match=f"data: the table cannot be read: .*{fault}"):
                predict(query)


def test_predict_proba__lazy_frame_with_a_column_of_the_struct(forest: Forest) -> None:
    frame = table(50).rename({"id": "probabilities"})
    expected = forest.predict_proba(frame, keep="probabilities")
    assert forest.predict_proba(frame.lazy(), keep="probabilities").collect().equals(expected)


def test_predict__numpy_pandas_arrow(forest: Forest) -> None:
    frame = table()
    expected = forest.predict(frame)["prediction"].to_list()
    shares = forest.predict_proba(frame)
    matrix = frame.select("x0", "x1", "x2").to_numpy()
    for array in (matrix, np.asfortranarray(matrix), matrix[:, ::-1][:, ::-1]):
        assert forest.predict(array).tolist() == expected
        assert forest.predict(array).dtype == np.int64
        assert (forest.predict_proba(array) == shares.to_numpy()).all()
    pandas = frame.to_pandas().set_index("id", drop=False).rename(index=lambda i: i + 100)
    found = forest.predict(pandas, keep=["id"])
    assert isinstance(found, pd.DataFrame)
    assert found["prediction"].tolist() == expected
    assert found.index.equals(pandas.index)
    arrow = forest.predict(frame.to_arrow())
    assert isinstance(arrow, pa.Table)
    assert arrow["prediction"].to_pylist() == expected


@pytest.mark.parametrize(
    "dtype",
    [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128, pl.UInt8, pl.UInt64, pl.Float32, pl.Float16, pl.Boolean],
)
def test_predict__features_of_any_numeric_type(dtype: Any, forest: Forest) -> None:
    random = np.random.default_rng(1)
    frame = pl.DataFrame({f"x{i}": random.integers(0, 2, 300) for i in range(FEATURES)})
    assert forest.predict(frame.cast(dtype)).equals(forest.predict(frame.cast(pl.Float64)))


def test_predict__columns_of_several_types_and_chunks(forest: Forest) -> None:
    frame = table(50).with_columns(pl.col("x1").cast(pl.Int64), pl.col("x2").cast(pl.Float32))
    codes, _ = expected(trees(), rows_of(frame))
    assert forest.predict(pl.concat([frame[:7], frame[7:]], rechunk=False))["prediction"].to_list() == labelled(codes)


@pytest.mark.parametrize(
    ("dtype", "classes", "found"),
    [
        ("String", ("a", "b", "c"), pl.String()),
        ("Categorical", ("a", "b", "c"), pl.Categorical()),
        ("Enum", ("a", "b", "c"), pl.Enum(["a", "b", "c"])),
        ("UInt8", (1, 2, 200), pl.UInt8()),
        ("Float32", (0.5, 1.0, 2.0), pl.Float32()),
    ],
)
def test_predict__labels_in_the_type_of_the_target(
    dtype: str, classes: Any, found: pl.DataType, tmp_path: Path
) -> None:
    frame = table()
    codes, _ = expected(trees(), rows_of(frame))
    forest = forest_of(tmp_path, trees(), spec_of(FEATURES, classes, dtype))
    series = forest.predict(frame)["prediction"]
    assert series.dtype == found
    assert series.to_list() == [classes[code] for code in codes]
    assert frame.select(forest.expr()).to_series().equals(series)
    assert forest.predict_proba(frame).columns == [f"p_{label}" for label in classes]


def test_predict__boolean_target(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    grown = [random_tree(random, FEATURES, 2, 3, THRESHOLDS) for _ in range(4)]
    forest = forest_of(tmp_path, grown, spec_of(FEATURES, (False, True), "Boolean"))
    found = forest.predict(table())["prediction"]
    assert found.to_list() == [bool(code) for code in expected(grown, rows_of(table()))[0]]
    assert forest.predict_proba(table()).columns == ["p_false", "p_true"]


def test_predict__single_leaves_need_no_value(tmp_path: Path) -> None:
    grown = [random_tree(np.random.default_rng(i), FEATURES, CLASSES, 0, THRESHOLDS) for i in range(2)]
    forest = forest_of(tmp_path, grown, spec_of(FEATURES, (5, 7, 9)))
    assert forest.predict(table(3))["prediction"].to_list() == labelled(expected(grown, rows_of(table(3)))[0])


def test_predict__no_rows(forest: Forest) -> None:
    for memory in (None, "1GB"):
        kept = forest.predict(table()[:0], keep=["id"], memory=memory)
        assert kept.schema == {"id": pl.Int64, "prediction": pl.Int64}
        assert forest.predict(np.empty((0, 3)), memory=memory).shape == (0,)
        assert forest.predict_proba(np.empty((0, 3)), memory=memory).shape == (0, 3)
    assert forest.predict(table()[:0].lazy()).collect().height == 0


@pytest.fixture(scope="module", params=["by node", "by level"])
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Forest, list[TreeArrays]]:
    """A forest that rows pass node by node, in several chunks and tiles of some hundred wide rows each, by several
    threads; and one of so many nodes that up to TILE + 1 rows pass it level by level."""
    random = np.random.default_rng(3)
    features, count, splits = (1000, 20, 100) if request.param == "by node" else (FEATURES, 1, 26_000)
    grown = [random_tree(random, features, CLASSES, splits, THRESHOLDS) for _ in range(count)]
    return forest_of(tmp_path_factory.mktemp("large"), grown, spec_of(features, (5, 7, 9))), grown


# Uncompiled kernels take seconds for several tiles. Of TILE + 117 rows, the last tile is not full.
SOME_ROWS = [1, TILE // 2, TILE + 1, TILE + 117]
ROWS = SOME_ROWS if numba.config.DISABLE_JIT else [*SOME_ROWS, 3, TILE // 2 + 1, TILE - 1, TILE, 3 * TILE + 5]


@pytest.mark.parametrize("rows", ROWS)
def test_predict__any_number_of_rows_threads_and_chunks(rows: int, large: tuple[Forest, list[TreeArrays]]) -> None:
    forest, grown = large
    features = len(forest.spec.features)
    matrix = np.random.default_rng(rows).choice([*THRESHOLDS, -9.0, 1.0, 9.0], (rows, features))
    codes, shares = expected(grown, matrix.tolist(), "stochastic")
    frame = pl.DataFrame(matrix, schema=[f"x{i}" for i in range(features)])
    for threads in (1, 3):
        found = forest.predict(frame, vote="stochastic", threads=threads)["prediction"]
        assert found.to_list() == labelled(codes)
        assert forest.predict_proba(matrix, threads=threads).tolist() == shares


def test_predict__from_several_threads_at_once(tmp_path: Path) -> None:
    forest = forest_of(tmp_path, trees(), spec_of(FEATURES, (5, 7, 9)))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda rows: forest.predict(table(rows), threads=1), [30] * 8))
    assert all(frame.equals(found[0]) for frame in found)


def test_predict__float32(tmp_path: Path) -> None:
    random = np.random.default_rng(8)
    grown = [random_tree(random, 300, CLASSES, 40, THRESHOLDS) for _ in range(3)]
    forest = forest_of(tmp_path, grown, spec_of(300, (5, 7, 9)))
    matrix = random.choice(np.array(THRESHOLDS, np.float32), (20, 300))
    codes, _ = expected(grown, matrix.astype(np.float64).tolist())
    assert forest.predict(matrix).tolist() == labelled(codes)


# Expressions.


def test_expr__in_a_streaming_query(forest: Forest, tmp_path: Path) -> None:
    frame = table(2000)
    frame.write_parquet(tmp_path / "in.parquet", row_group_size=300)
    query = pl.scan_parquet(tmp_path / "in.parquet").with_columns(answer=forest.expr(), share=forest.expr(proba=True))
    query.sink_parquet(tmp_path / "out.parquet")
    found = pl.read_parquet(tmp_path / "out.parquet")
    assert found["answer"].equals(forest.predict(frame)["prediction"])
    assert found["share"].struct.unnest().equals(forest.predict_proba(frame))
    assert found.drop("answer", "share").equals(frame)


def test_expr__row_numbers_key_the_draws(forest: Forest) -> None:
    frame = table(500)
    expected = forest.predict(frame, vote="stochastic")["prediction"]
    shuffled = frame.sample(fraction=1, shuffle=True, seed=1)
    found = shuffled.select("id", forest.expr(vote="stochastic", row="id")).sort("id")
    assert found["prediction"].equals(expected)
    with pytest.raises(ConfigError, match="number of the row"):
        forest.expr(vote="stochastic")
    with pytest.raises(ConfigError, match="number of the row"):
        forest.expr(vote="hard", ties="random")


@pytest.mark.parametrize(
    ("numbers", "message"),
    [(pl.lit("a"), "must be whole"), (pl.col("id").cast(pl.Int64) - 1, "0 or more"), (pl.lit(None, pl.Int64), "nulls")],
)
def test_expr__row_numbers_that_are_none(numbers: pl.Expr, message: str, forest: Forest) -> None:
    frame = table().with_columns(n=numbers)
    with pytest.raises((DataError, pl.exceptions.ComputeError), match=f"'n' holds row numbers.*{message}"):
        frame.select(forest.expr(vote="stochastic", row="n"))
    with pytest.raises(ConfigError, match="row must be the name of a column, not 5"):
        forest.expr(row=5)  # type: ignore[arg-type]


def test_expr__is_pickled_with_its_forest(forest: Forest) -> None:
    """As queries that are sent to other processes."""
    rows = table().lazy().with_row_index("n")
    for query in (
        rows.select("n", forest.expr()),
        rows.select(forest.expr(ties="random", vote="hard", row="n")),
        forest.predict(rows, keep=["id"]),
        forest.predict_proba(rows),
    ):
        assert pickle.loads(pickle.dumps(query)).collect().equals(query.collect())


def test_expr__reads_only_features_that_are_used(tmp_path: Path) -> None:
    grown = trees(features=1)
    forest = forest_of(tmp_path, grown, spec_of(FEATURES, (5, 7, 9)))
    assert table().select("x0").select(forest.expr()).to_series().equals(forest.predict(table())["prediction"])


@pytest.mark.parametrize("missing", [["x0"], ["x0", "x1", "x2"]])
def test_expr__of_a_table_without_features_names_them(missing: list[str], forest: Forest) -> None:
    """In our words, not those of Polars, which finds a lacking column first."""
    message = f"the data lacks features? {', '.join(map(repr, missing))}, which the forest was trained on"
    frame = table().drop(missing)
    for query in (frame.select, frame.with_columns):
        with pytest.raises((DataError, pl.exceptions.ComputeError), match=message):
            query(forest.expr())
    with pytest.raises((DataError, pl.exceptions.ComputeError), match=message):
        frame.lazy().select(forest.expr()).collect(engine="streaming")


# What is refused.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop("x1"), "lacks feature 'x1'"),
        (lambda frame: frame.drop("x1"), "trained on; give a table that has it"),  # x2 is no guess, it is a feature
        (lambda frame: frame.rename({"x1": "x11"}), "did you mean 'x11'"),
        (lambda frame: frame.rename({"x1": "X1"}).with_columns(x11=0.0), r"did you mean 'X1'\?"),
        (lambda frame: frame.rename({"x1": " x1"}).with_columns(x11=0.0), r"did you mean ' x1'\?"),
        (lambda frame: frame.with_columns(pl.col("x1").cast(pl.String)), "'x1' is String, in training it was Float64"),
        (lambda frame: frame.with_columns(x1=pl.date(2020, 1, 1)), "'x1' is Date, in training it was Float64"),
        (lambda frame: frame.with_columns(x1=pl.struct("x1")), "lacks feature 'x1', .*; its 'x1' is Struct"),
    ],
)
def test_predict__refuses_data(
    change: Callable[[pl.DataFrame], pl.DataFrame], words: str, forest: Forest, tmp_path: Path
) -> None:
    frame = change(table())
    with pytest.raises(DataError, match=words):
        forest.predict(frame)
    with pytest.raises((DataError, pl.exceptions.ComputeError), match=words):
        forest.predict(frame.lazy()).collect()
    with pytest.raises(DataError, match=words):
        write_predictions(forest, open_source(frame, scratch=tmp_path), tmp_path / "out.parquet")
    assert not list(tmp_path.glob("*out*"))


def test_predict__nan_in_any_place_of_a_chunk(forest: Forest) -> None:
    oblique = trees(weights=(1.0, -0.5))
    found = rf"'x2' \(1 of {2 * TILE + 2:,} rows\)"
    for row in (0, TILE - 1, TILE, TILE + 3, 2 * TILE + 1):
        frame = table(2 * TILE + 2).with_columns(x2=pl.when(pl.col("id") != row).then("x2"))
        codes, _ = expected(trees(), rows_of(frame))
        for data in (frame, frame.with_columns(pl.col("x2").fill_null(float("nan")))):
            assert forest.predict(data)["prediction"].to_list() == labelled(codes)
        assert forest.predict(frame.select("x0", "x1", "x2").to_numpy()).tolist() == labelled(codes)
        with tempfile.TemporaryDirectory() as folder, pytest.raises(DataError, match=found):
            forest_of(Path(folder), oblique, spec_of(FEATURES, (5, 7, 9))).predict(frame)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (np.zeros((4, 2)), "shape"),
        (np.zeros(3), "shape"),
        (np.array([["a", "b", "c"]]), "type"),
        (np.zeros((1, 3), complex), "type"),
        ([1.0, 2.0, 3.0], "shape"),
        ({1.0, 2.0}, "a table cannot be made of set; give a table of Polars"),
        ("rows.parquet", "'rows.parquet' is a path; use predict_file for files"),
    ],
)
def test_predict__refuses_arrays(data: Any, words: str, forest: Forest) -> None:
    with pytest.raises(DataError, match=words):
        forest.predict(data)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"vote": "loud"}, "vote must be one of"),
        ({"ties": "coin"}, "ties must be one of"),
        ({"vote": "stochastic", "ties": "reject"}, "no ties"),
        ({"keep": ["nothing"]}, "no column 'nothing'"),
        ({"keep": ["id", "id"]}, "twice"),
        ({"threads": 0}, "threads"),
    ],
)
def test_predict__refuses_options(options: dict[str, Any], words: str, forest: Forest) -> None:
    for data in (table(), table().lazy()):
        with pytest.raises(BigForestError, match=words):
            forest.predict(data, **options)


def test_predict__kept_column_with_the_name_of_a_prediction(forest: Forest, tmp_path: Path) -> None:
    frame = table().with_columns(prediction=1, p_5=2)
    with pytest.raises(ConfigError, match="'prediction'"):
        forest.predict(frame, keep=["prediction"])
    with pytest.raises(ConfigError, match="'p_5'"):
        forest.predict_proba(frame, keep=["p_5"])
    assert forest.predict(frame, keep=["p_5"]).columns == ["p_5", "prediction"]
    with pytest.raises(ConfigError, match="'p_5'"):
        write_predictions(forest, open_source(frame, scratch=tmp_path), tmp_path / "out", proba=True, keep=["p_5"])


# Files.


def test_predict_file__same_as_in_memory(forest: Forest, tmp_path: Path) -> None:
    resources = Resources(limits=Limits(batch_rows=300))
    frame = table(1000)
    frame.write_parquet(tmp_path / "in.parquet", row_group_size=170)
    source = open_source(tmp_path / "in.parquet", scratch=tmp_path)
    for vote, ties in WAYS:
        options: dict[str, Any] = {"resources": resources, "keep": ["id"], "overwrite": True}
        done = write_predictions(forest, source, tmp_path / "out.parquet", forest.rules.make(vote, ties), **options)
        assert (done.rows, done.scored, done.accuracy, done.log_loss) == (1000, 0, None, None)
        expected = forest.predict(frame, vote=vote, ties=ties, keep=["id"])
        assert pl.read_parquet(tmp_path / "out.parquet").equals(expected)
    events: list[Any] = []
    write_predictions(
        forest, source, tmp_path / "proba.parquet", proba=True, resources=resources, listener=events.append
    )
    both = pl.concat([forest.predict(frame), forest.predict_proba(frame)], how="horizontal")
    assert pl.read_parquet(tmp_path / "proba.parquet").equals(both)
    assert events[0] == StageStarted("predict", 1000, "rows")
    assert [event.done for event in events if isinstance(event, StageAdvanced)] == [300, 600, 900, 1000]
    assert isinstance(events[-1], StageFinished)


@pytest.mark.parametrize("threads", [1, 2])
def test_predict_file__scores(threads: int, forest: Forest, tmp_path: Path) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    resources = Resources(threads=threads, limits=Limits(batch_rows=300))
    random = np.random.default_rng(4)
    truth = random.choice([5, 7, 9], 1000)
    frame = table(1000).with_columns(y=truth)
    source = open_source(frame, scratch=tmp_path)
    out = tmp_path / "out.parquet"
    done = write_predictions(forest, source, out, forest.rules.make("hard"), resources=resources)
    found = forest.predict(frame, vote="hard")["prediction"].to_numpy()
    shares = forest.predict_proba(frame, vote="hard").to_numpy()
    assert shares.min() == 0
    assert done.scored == 1000
    assert done.accuracy == metrics.accuracy_score(truth, found)
    assert done.log_loss == pytest.approx(metrics.log_loss(truth, shares, labels=[5, 7, 9]), rel=1e-12)
    codes = {5: 0, 7: 1, 9: 2}
    votes = [codes[label] for label in found.tolist()]
    check_metrics(pl.DataFrame(done.metrics), (5, 7, 9), [codes[label] for label in truth], votes, shares)


def test_predict_file__rejected_rows_count_as_wrong_and_null_labels_not_at_all(forest: Forest, tmp_path: Path) -> None:
    frame = table(300)
    found = forest.predict(frame, vote="hard", ties="reject")["prediction"]
    assert found.null_count() > 0
    truth = found.fill_null(5).alias("y").to_frame().with_columns(pl.when(frame["id"] >= 10).then(pl.col("y")))
    source = open_source(pl.concat([frame, truth], how="horizontal"), scratch=tmp_path)
    done = write_predictions(forest, source, tmp_path / "out.parquet", forest.rules.make("hard", "reject"))
    assert (done.scored, done.rejected) == (290, found.null_count())
    assert done.accuracy == found[10:].is_not_null().sum() / 290


@pytest.mark.parametrize("target", [pl.lit(6), pl.lit("five"), pl.lit(5.5), pl.lit(None, pl.Int64), pl.lit(True)])
def test_predict_file__unknown_labels_are_not_scored(target: pl.Expr, forest: Forest, tmp_path: Path) -> None:
    source = open_source(table().with_columns(y=target), scratch=tmp_path)
    done = write_predictions(forest, source, tmp_path / "out.parquet")
    assert (done.rows, done.scored, done.accuracy, done.log_loss, done.metrics) == (40, 0, None, None, ())
    none = source.schema["y"] == pl.Int64 and target.meta.eq(pl.lit(None, pl.Int64))
    told = "no row has a 'y' to compare with" if none else "labels in 'y' that the forest does not know"
    assert done.unscored is not None and told in done.unscored


@pytest.mark.parametrize(
    "label", [pl.lit(5, pl.UInt8), pl.lit(5.0), pl.lit("5"), pl.lit(" 5.0"), pl.lit(5).cast(pl.Decimal(10, 2))]
)
def test_predict_file__labels_of_another_type_are_scored(label: pl.Expr, forest: Forest, tmp_path: Path) -> None:
    source = open_source(table().with_columns(y=label), scratch=tmp_path)
    done = write_predictions(forest, source, tmp_path / "out.parquet")
    assert (done.scored, done.unscored) == (40, None)
    without = open_source(table(), scratch=tmp_path)
    assert write_predictions(forest, without, tmp_path / "without.parquet").unscored is None


def test_predict_file__output_exists(forest: Forest, tmp_path: Path) -> None:
    source = open_source(table(), scratch=tmp_path)
    out = tmp_path / "out.parquet"
    write_predictions(forest, source, out)
    before = out.read_bytes()
    with pytest.raises(OutputExistsError):
        write_predictions(forest, source, out)
    assert out.read_bytes() == before


def test_predict_file__output_is_the_table_itself(forest: Forest, tmp_path: Path) -> None:
    out, link = tmp_path / "out.parquet", tmp_path / "link.parquet"
    write_predictions(forest, open_source(table(), scratch=tmp_path), out, keep=table().columns)
    link.symlink_to(out)
    before = out.read_bytes()
    for data, place in ((out, out), (link, out), (out, link)):
        with pytest.raises(ConfigError, match="is a file of the table to predict for"):
            write_predictions(forest, open_source(data, scratch=tmp_path), place, overwrite=True)
    assert out.read_bytes() == before
