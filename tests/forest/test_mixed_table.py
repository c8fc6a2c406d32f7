"""Forests with missing values, categories and regression targets: tables, prediction, and the report, by oracles."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest
from bigforest.errors import ConfigError, DataError, FormatError
from bigforest.execution.resources import Resources
from bigforest.forest import parts
from bigforest.forest.format import NODES, TREES
from bigforest.forest.nodes import join_trees
from bigforest.forest.parts import check_parts, part_paths, read_span
from bigforest.kernels.common.binary_search import first_from
from bigforest.kernels.predict import flat_tree
from bigforest.kernels.predict.flat_tree import LevelSets, is_listed
from bigforest.kernels.predict.pack import fill_sets, measure_sets
from bigforest.planning.sizes import Limits
from bigforest.predict import groups
from bigforest.predict.forest import Forest, read_forest
from bigforest.predict.packed_trees import pack
from bigforest.source.open import open_source
from tests.forests import random_tree
from tests.mixed import (
    CATEGORIES,
    CLASSES,
    MANY,
    mixed_levels,
    mixed_names,
    mixed_rows,
    mixed_spec,
    mixed_table,
    mixed_trees,
    write_mixed,
)
from tests.naive.predict import decide, sum_of_votes
from tests.predictions import write_predictions
from tests.thorough import examples


def expected(trees: list[Any], frame: pl.DataFrame, vote: str = "soft", unseen: str = "larger") -> list[list[float]]:
    """The sums of votes of every row."""
    names = mixed_names()
    if unseen == "missing":  # as if there were nothing
        for place, name in CATEGORIES.items():
            known = pl.col(name).cast(pl.String).is_in(mixed_levels().of(place).to_list())
            frame = frame.with_columns(pl.when(known).then(name).alias(name))
    return [sum_of_votes(trees, row, vote, names) for row in mixed_rows(frame)]


@pytest.mark.parametrize("regression", [False, True])
@pytest.mark.parametrize("rows", [None, 1, 5])
def test_write_part__reads_back_the_same(regression: bool, rows: int | None, tmp_path: Path) -> None:
    trees = mixed_trees(6, regression=regression)
    write_mixed(tmp_path, trees, mixed_spec(regression), (2,))
    for path in part_paths(tmp_path):
        rewrite(path, lambda table: table, rows)
    header, spans = check_parts(tmp_path)
    found = join_trees([nodes for span in spans for nodes in read_span(span, header)])
    wanted = join_trees(trees)
    inner = wanted.feature >= 0
    assert found.levels is not None and wanted.levels is not None
    assert found.levels.start.tolist() == wanted.levels.start.tolist()
    assert found.levels.code.tolist() == wanted.levels.code.tolist()
    assert found.default_left[inner].tolist() == wanted.default_left[inner].tolist()
    assert found.counts.tolist() == wanted.counts.tolist()
    assert (found.value is None) == (wanted.value is None) == (not regression)
    if found.value is not None and wanted.value is not None:
        assert found.value.tolist() == wanted.value.tolist()


@settings(deadline=None)
@given(st.data())
def test_load__equals_the_trees_at_once(data: st.DataObject) -> None:
    regression = data.draw(st.booleans())
    trees = mixed_trees(data.draw(st.integers(1, 5)), data.draw(st.integers(0, 99)), regression)
    cuts = tuple(sorted(data.draw(st.sets(st.integers(1, 4))) & set(range(1, len(trees)))))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        write_mixed(Path(folder), trees, mixed_spec(regression), cuts)
        patch.setattr(parts, "PIECE_BYTES", data.draw(st.sampled_from([1, 900, 1 << 20])))
        stock = groups.survey(Path(folder), 2)
        assert stock.list_entries.tolist() == [0 if tree.levels is None else tree.levels.code.size for tree in trees]
        if regression:
            assert stock.impure_leaves.tolist() == [int((tree.feature < 0).sum()) for tree in trees]
        found = stock.load(range(len(trees)), data.draw(st.sampled_from([1, 2])))
    at_once = pack([[tree] for tree in trees], mixed_spec(regression))
    assert found.used.tolist() == at_once.used.tolist()
    for one, two in ((found.layout, at_once.layout), (found.sets, at_once.sets)):
        assert (one is None) == (two is None)
        for left, right in zip(one or (), two or (), strict=True):
            assert np.asarray(left).tobytes() == np.asarray(right).tobytes()
    assert found.counts.tolist() == at_once.counts.tolist()


@given(st.lists(st.sets(st.integers(0, 200) | st.integers(2**32 - 40, 2**32 - 1), min_size=1), min_size=1, max_size=4))
def test_level_sets__hold_what_is_listed(listed: list[set[int]]) -> None:
    # They are compiled into kernels only.
    plain, search = (getattr(function, "py_func", function) for function in (is_listed, first_from))
    start = np.cumsum([0, *map(len, listed)])
    codes = np.array([code for own in listed for code in sorted(own)], np.uint32)
    mask, low, span, first = (np.empty(len(listed) + more, np.uint64) for more in (0, 0, 0, 1))
    measure_sets(start, codes, mask, low, span, first)
    words = np.empty(int(first[-1]), np.uint32)
    assert words.size <= 2 * codes.size
    fill_sets(start, codes, first, words)
    assert mask.tolist() == [sum(1 << code for code in own) if max(own) < 64 else 0 for own in listed]
    sets = LevelSets(np.uint64(1), mask, low, span, first, words)
    with np.errstate(over="ignore"), patch.object(flat_tree, "first_from", search):
        for number, own in enumerate(listed):
            near = {code + step for code in own for step in (-1, 0, 1, 31, 32)} | {0, 2**32 - 1}
            for code in (code for code in near if 0 <= code < 2**32):
                assert plain(sets, np.uint64(number), np.uint64(code)) == (code in own)


@settings(deadline=None, max_examples=examples(40))
@given(st.data())
def test_predict__any_rows(data: st.DataObject) -> None:
    """Missing values, unseen and many levels; wide and narrow tiles, node by node and level by level; and numbers."""
    regression = data.draw(st.booleans())
    seed = data.draw(st.integers(0, 999))
    trees = mixed_trees(data.draw(st.integers(1, 4)), seed, regression)
    frame = mixed_table(data.draw(st.integers(0, 3) | st.integers(0, 30)), seed)  # few go level by level
    if data.draw(st.booleans()):
        frame = frame.cast({"x0": pl.Float32, "x3": pl.Float32})
    if data.draw(st.booleans()):
        frame = frame.with_columns(pl.col("x0", "x3").fill_null(0.5))
    unseen = data.draw(st.sampled_from(["larger", "missing"]))
    votes = expected(trees, frame.cast({"x0": pl.Float64, "x3": pl.Float64}), unseen=unseen)
    with tempfile.TemporaryDirectory() as folder:
        forest = write_mixed(Path(folder), trees, mixed_spec(regression))
        found = forest.predict(frame, unseen=unseen)["prediction"].to_list()
        if regression:
            assert found == [row[0] / len(trees) for row in votes]
        else:
            assert found == [CLASSES[decide(row, "soft", "lowest", 0, 0)] for row in votes]
            shares = forest.predict_proba(frame, unseen=unseen).rows()
            assert shares == [tuple(vote / len(trees) for vote in row) for row in votes]


def test_predict__categories_and_projections(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    trees = mixed_trees(3, 6)
    for _ in range(3):
        tree = random_tree(random, 2, len(CLASSES), 9, [0.5, -1.0, 2.0], [1.0, -1.0, 0.3])
        assert tree.terms is not None
        terms = tree.terms._replace(feature=3 * tree.terms.feature)  # the numbers are x0 and x3
        trees.append(tree._replace(feature=np.where(tree.feature == 1, 3, tree.feature).astype(np.int32), terms=terms))
    forest = write_mixed(tmp_path, trees, mixed_spec())
    frame = mixed_table(90, 7).with_columns(pl.col("x0", "x3").fill_null(0.5))
    votes = expected(trees, frame)
    assert forest.predict_proba(frame).rows() == [tuple(vote / len(trees) for vote in row) for row in votes]


@pytest.fixture(scope="module", params=[False, True], ids=["classes", "numbers"])
def forest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Forest:
    regression = request.param
    return write_mixed(tmp_path_factory.mktemp("f"), mixed_trees(8, 1, regression), mixed_spec(regression), (3,))


def test_predict__every_way_gives_the_same(forest: Forest, tmp_path: Path) -> None:
    frame = mixed_table(4_000, 3).with_columns(pl.Series("id", range(4_000)))  # so many that threads share them
    wanted = forest.predict(frame)["prediction"]
    assert wanted.dtype == (pl.Float64 if forest.is_regression else pl.Int64)
    assert forest.predict(frame, threads=2)["prediction"].equals(wanted)
    assert forest.predict(frame.lazy(), keep=["id"]).collect()["prediction"].equals(wanted)
    assert frame.select(forest.expr()).to_series().equals(wanted)
    assert forest.predict(frame.to_arrow())["prediction"].to_pylist() == wanted.to_list()
    for way in (pl.Categorical, pl.Enum([*"zabcdé"])):
        assert forest.predict(frame.with_columns(pl.col("c1").cast(way)))["prediction"].equals(wanted)
    objects = np.array(frame.drop("id").rows(), object)
    assert forest.predict(objects).tolist() == wanted.to_list()
    pytest.importorskip("pandas")
    assert forest.predict(frame.to_pandas())["prediction"].tolist() == wanted.to_list()
    frame.write_parquet(tmp_path / "in.parquet", row_group_size=90)
    for unseen in ("larger", "missing"):
        source = open_source(tmp_path / "in.parquet", scratch=tmp_path)
        write_predictions(forest, source, tmp_path / "out.parquet", forest.rules.make(unseen=unseen), overwrite=True)
        wanted = forest.predict(frame, unseen=unseen)["prediction"]
        assert pl.read_parquet(tmp_path / "out.parquet")["prediction"].equals(wanted)


@pytest.mark.parametrize("regression", [False, True])
def test_predict__any_memory_gives_the_same(regression: bool, tmp_path: Path) -> None:
    forest = write_mixed(tmp_path, 4 * mixed_trees(4, 1, regression, most=600), mixed_spec(regression))
    sizes = groups.survey(tmp_path, 1).sizes()
    assert sizes.sum() > sizes.max() + 2_500_000  # several groups within the smallest budget
    doubles = mixed_table(5_000, 4)
    for frame in (doubles, doubles.cast({"x0": pl.Float32, "x3": pl.Float32})):
        wanted, again = forest.predict(frame), read_forest(tmp_path)
        with pytest.raises(ConfigError, match="needs at least") as refused:
            again.predict(frame, memory=1, threads=1)
        least = int(re.findall(r"at least (\d+)MB", str(refused.value))[0])
        for megabytes in (least, 1000):
            assert again.predict(frame, memory=f"{megabytes}MB", threads=1).equals(wanted)


def test_predict__unseen_levels_may_be_errors(forest: Forest, tmp_path: Path) -> None:
    frame = mixed_table(300, 5)
    for data in (frame, np.array(frame.rows(), object)):
        with pytest.raises(DataError, match=r"'c1' has levels .* among them 'é'|'c1' has levels .* 'z'"):
            forest.predict(data, unseen="error")
    with pytest.raises((DataError, pl.exceptions.ComputeError), match="has levels that did not occur in training"):
        forest.predict(frame.lazy(), unseen="error").collect()
    source = open_source(frame, scratch=tmp_path)
    with pytest.raises(DataError, match=r"rows 0 to 299: 'c1' has levels"):
        write_predictions(forest, source, tmp_path / "out.parquet", forest.rules.make(unseen="error"))
    known = mixed_table(300, 5, unseen=False)
    assert forest.predict(known, unseen="error").equals(forest.predict(known))
    with pytest.raises(ConfigError, match="unseen must be one of larger, missing, error"):
        forest.predict(known, unseen="ignore")


def test_predict__refuses_other_types_and_arrays_of_numbers(forest: Forest) -> None:
    frame = mixed_table(9)
    for change, words in (
        (pl.col("c1").str.len_chars(), "'c1' is UInt32, in training it was String"),
        (pl.col("c2").cast(pl.String), "'c2' is String, in training it was Int32"),
    ):
        with pytest.raises(DataError, match=words):
            forest.predict(frame.with_columns(change))
    with pytest.raises(DataError, match="the features 'c1' are categories of text, and the array holds float64"):
        forest.predict(np.zeros((3, 4)))
    with pytest.raises(DataError, match="the feature 'x0' of the array cannot be read"):
        forest.predict(np.array([["a", "b", 1, 2.0]], object))
    nothing = pl.DataFrame({name: [None] * 3 for name in frame.columns})
    assert forest.predict(nothing)["prediction"].null_count() == 0


def test_forest__of_numbers_refuses_votes(tmp_path: Path) -> None:
    forest = write_mixed(tmp_path, mixed_trees(3, regression=True), mixed_spec(True))
    assert forest.classes == [] and "classes" not in repr(forest)
    frame = mixed_table(5)
    for refused in (
        lambda: forest.predict_proba(frame),
        lambda: forest.predict_proba(frame.lazy()),
        lambda: forest.expr(proba=True),
        lambda: bigforest.predict_file(forest, frame, tmp_path / "out.parquet", proba=True),
    ):
        with pytest.raises(ConfigError, match="'y' is a regression target, without class probabilities"):
            refused()
    for options in ({"vote": "hard"}, {"ties": "random"}):
        with pytest.raises(ConfigError, match="the trees of a regression forest are averaged"):
            forest.predict(frame, **options)
    assert forest.predict(frame[:0])["prediction"].dtype == pl.Float64
    assert forest.predict(np.empty((0, 4), object)).dtype == np.float64


@pytest.mark.parametrize("threads", [1, 2])
def test_predict_file__scores_numbers(threads: int, tmp_path: Path) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    resources = Resources(threads=threads, limits=Limits(batch_rows=70))
    forest = write_mixed(tmp_path / "f", mixed_trees(5, 2, True), mixed_spec(True))
    frame = mixed_table(300, 6)
    truth = np.random.default_rng(3).normal(10, 4, 300)
    given = pl.Series("y", [None, *truth[1:]])
    source = open_source(frame.with_columns(given), scratch=tmp_path)
    done = write_predictions(forest, source, tmp_path / "out.parquet", resources=resources)
    found = forest.predict(frame)["prediction"].to_numpy()
    assert (done.rows, done.scored, done.accuracy, done.metrics) == (300, 299, None, ())
    assert done.r2 == pytest.approx(metrics.r2_score(truth[1:], found[1:]), rel=1e-12)
    assert done.mse == pytest.approx(metrics.mean_squared_error(truth[1:], found[1:]), rel=1e-12)
    assert done.mae == pytest.approx(metrics.mean_absolute_error(truth[1:], found[1:]), rel=1e-12)
    text = open_source(frame.with_columns(y=pl.lit("high")), scratch=tmp_path)
    assert write_predictions(forest, text, tmp_path / "text.parquet").scored == 0


# Damage: each change of the table of a part must be refused, with these words.


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table], rows: int | None = None) -> None:
    """Write a changed table, in row groups of `rows` rows, as a file without a checksum."""
    table, metadata = pq.read_table(path), pq.read_schema(path).metadata
    pq.write_table(change(table).replace_schema_metadata(metadata), path, row_group_size=rows)


def put(name: str, kind: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    """Change the cell of the first node of this kind, or on this feature."""

    def damage(table: pa.Table) -> pa.Table:
        kinds, features = table["kind"].to_pylist(), table["feature"].to_pylist()
        row = next(row for row, names in enumerate(zip(kinds, features, strict=True)) if kind in names)
        cells = table[name].to_pylist()
        cells[row] = value
        field = NODES.field(name)
        if pa.types.is_dictionary(field.type):
            array = pa.array(cells, pa.string()).dictionary_encode().cast(field.type)
        else:
            array = pa.array(cells, field.type)
        return table.set_column(table.schema.get_field_index(name), field, array)

    return damage


DAMAGE = {
    "levels null": (put("levels", "category", None), "levels must be null except in category nodes"),
    "levels of a number": (put("levels", "axis", ["a"]), "levels must be null except in category nodes"),
    "levels empty": (put("levels", "c1", []), "a node on a category has no levels"),
    "levels unknown": (put("levels", "c1", ["a", "nowhere"]), "a node has a level that its category does not"),
    "levels of the other": (put("levels", "c2", ["a"]), "a node has a level that its category does not"),
    "levels not ascending": (put("levels", "c1", ["c", "a"]), "the levels of a node are not ascending"),
    "levels twice": (put("levels", "c1", ["a", "a"]), "the levels of a node are not ascending"),
    "missing is last": (put("levels", "c1", ["a", None]), "the levels of a node are not ascending"),
    "missing twice": (put("levels", "c1", [None, None]), "the levels of a node are not ascending"),
    "missing where none is": (put("levels", "c2", [None, "1"]), "a missing level of a category that is never missing"),
    "threshold": (put("threshold", "category", 0.5), "threshold must be null except in axis and oblique nodes"),
    "default null": (
        put("default_left", "category", None),
        "default_left must be null except in axis and category nodes",
    ),
    "feature null": (
        put("feature", "category", None),
        "feature must be null except in axis and category nodes",
    ),
    "feature a number": (put("feature", "category", "x0"), "of another kind than the feature it splits on"),
}
OF_NUMBERS = {
    "value null": (put("value", "leaf", None), "a node has no value"),
    "value nan": (put("value", "axis", float("nan")), "a value is not finite"),
    "value infinite": (put("value", "leaf", float("-inf")), "a value is not finite"),
    "counts": (put("counts", "leaf", [1]), "counts must be null where numbers are predicted"),
    "weight": (put("weight", "leaf", 0), "all 0"),
}


@pytest.mark.parametrize("name", [*DAMAGE, *OF_NUMBERS])
def test_read_parts__refuses(name: str, tmp_path: Path) -> None:
    write_mixed(tmp_path, mixed_trees(6, 1, name in OF_NUMBERS), mixed_spec(name in OF_NUMBERS))
    change, words = (DAMAGE | OF_NUMBERS)[name]
    rewrite(TREES.part(tmp_path, 0), change)
    with pytest.raises(FormatError, match=words):
        read_forest(tmp_path).check()


def test_read_forest__needs_its_levels(tmp_path: Path) -> None:
    write_mixed(tmp_path, mixed_trees(3), mixed_spec())
    path = tmp_path / "levels.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    with pytest.raises(FormatError, match="not a readable Parquet file"):
        read_forest(tmp_path)
    path.write_bytes(whole)
    rewrite(path, lambda table: table.slice(1))
    with pytest.raises(FormatError, match="levels and codes are not ascending"):
        read_forest(tmp_path)
    path.unlink()
    with pytest.raises(FormatError, match=r"levels\.parquet is missing"):
        read_forest(tmp_path)


def test_forest__copies_have_its_levels(forest: Forest, tmp_path: Path) -> None:
    forest.write(tmp_path / "copy")
    frame = mixed_table(50)
    assert read_forest(tmp_path / "copy").predict(frame).equals(forest.predict(frame))
    assert len(forest.levels.of(2)) == MANY
    lists = forest.nodes.filter(kind="category").collect()["levels"]
    assert lists.null_count() == 0 and lists.list.len().min() > 0
