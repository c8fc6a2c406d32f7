"""Oblique nodes in the forest table and in prediction: read as written, damage refused, predictions as the oracle's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigforest.errors import FormatError
from bigforest.forest import nodes as forest_nodes
from bigforest.forest.files import Header
from bigforest.forest.format import NODES, TREES
from bigforest.forest.nodes import TreeArrays, join_trees, write_part
from bigforest.forest.parts import check_parts, read_span
from bigforest.kernels.common.layout import OBLIQUE
from bigforest.options.train_config import TrainConfig
from bigforest.predict.forest import read_forest
from bigforest.predict.packed_trees import pack
from bigforest.predict.predictor import Predictor
from bigforest.predict.rows import RowBatch
from bigforest.predict.vote_rule import VoteRule
from bigforest.store.levels import Levels
from tests.forests import forest_of, random_tree, spec_of, write_forest
from tests.naive.predict import sum_of_votes
from tests.strategies import EXTREMES

SPEC = spec_of(4, (5, 7, 9))
WEIGHTS = [1.0, -1.0, 0.5, -3e-7]


def trees(count: int = 5, splits: int = 7) -> list[TreeArrays]:
    random = np.random.default_rng(8)
    grown = [random_tree(random, 4, 3, splits, [0.5, -1.0, np.inf, 2.0], WEIGHTS) for _ in range(count - 1)]
    return [*grown, random_tree(random, 4, 3, splits, [0.5])]  # one without oblique nodes


@pytest.mark.parametrize("terms", [1 << 20, 1, 10])
def test_write_part__oblique_nodes_read_back_the_same(
    terms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forest_nodes, "GROUP_ENTRIES", terms)
    written = Header(SPEC, TrainConfig(trees=5, bootstrap=False), Levels.none(SPEC))
    for first, grown in ((0, trees()[:2]), (2, trees()[2:])):
        write_part(tmp_path, first, grown, written)
    header, spans = check_parts(tmp_path)
    for span, own in zip(spans, (trees()[:2], trees()[2:]), strict=True):
        groups = pq.ParquetFile(span.path).num_row_groups
        assert (groups == 1) == (terms == 1 << 20)
        found = join_trees(list(read_span(span, header)))
        wanted = join_trees(own)
        np.testing.assert_array_equal(found.feature, wanted.feature)
        assert found.terms is not None and wanted.terms is not None
        for array, expected in zip(found.terms, wanted.terms, strict=True):
            np.testing.assert_array_equal(array, expected)


@given(st.data())
def test_write_part__the_same_file_however_the_nodes_come(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name in ("GROUP_NODES", "GROUP_ENTRIES"):
            patch.setattr(forest_nodes, name, data.draw(st.integers(1, 9)))
        home, config, grown = Path(folder), TrainConfig(trees=3, bootstrap=False), trees(3, 5)
        cuts = data.draw(st.lists(st.integers(0, 11), max_size=4).map(sorted))
        pieces = [tree.rows(*pair) for tree in grown for pair in pairwise([0, *cuts, tree.feature.size])]
        ways = [grown, pieces, [join_trees(grown[:2]), *grown[2:]]]
        for way in range(3):
            (home / str(way)).mkdir()
        found = [
            write_part(home / str(way), 0, way_, Header(SPEC, config, Levels.none(SPEC))).read_bytes()
            for way, way_ in enumerate(ways)
        ]
        assert found[0] == found[1] == found[2]


def test_nodes__oblique_ones_name_their_terms(tmp_path: Path) -> None:
    found = forest_of(tmp_path, trees(), SPEC).nodes.collect()
    assert set(found["kind"].cast(pl.String)) == {"leaf", "axis", "oblique"}
    tree = trees()[0]
    assert tree.terms is not None
    for node, row in enumerate(found.filter(pl.col("tree") == 0).iter_rows(named=True)):
        own = slice(tree.terms.start[node], tree.terms.start[node + 1])
        terms = [
            {"feature": f"x{feature}", "weight": weight}
            for feature, weight in zip(tree.terms.feature[own], tree.terms.weight[own], strict=True)
        ]
        assert row["terms"] == (terms or None)
        assert (row["feature"] is None) == (tree.feature[node] < 0)


def test_importance__of_an_oblique_node_is_shared_by_its_features(tmp_path: Path) -> None:
    gained = np.zeros(4)
    for tree in trees():
        for node, feature in enumerate(tree.feature):
            decrease = tree.gain[node] * float(tree.weight[node])
            if feature >= 0:
                gained[feature] += decrease
            elif feature == OBLIQUE:
                assert tree.terms is not None
                own = tree.terms.feature[tree.terms.start[node] : tree.terms.start[node + 1]]
                gained[own] += decrease / own.size
    found = forest_of(tmp_path, trees(), SPEC).features["importance"]
    np.testing.assert_allclose(found, gained / gained.sum(), rtol=1e-12)


def term(feature: str | None, weight: float | None) -> dict[str, Any]:
    return {"feature": feature, "weight": weight}


DAMAGE: dict[str, tuple[Any, str]] = {
    "no terms": ([], "has no terms"),
    "null": (None, "terms must be null except in oblique nodes"),
    "null term": ([None], "lacks its feature or weight"),
    "no feature": ([term(None, 1.0)], "lacks its feature or weight"),
    "no weight": ([term("x0", None)], "lacks its feature or weight"),
    "unknown feature": ([term("x0", 1.0), term("x9", 1.0)], "feature that the dataspec does not have"),
    "twice": ([term("x1", 1.0), term("x1", 1.0)], "in the order of the features, each once"),
    "descending": ([term("x2", 1.0), term("x1", 1.0)], "in the order of the features, each once"),
    "weight 0": ([term("x0", 0.0)], "not finite, or is 0"),
    "weight inf": ([term("x0", np.inf)], "not finite, or is 0"),
    "weight nan": ([term("x0", np.nan)], "not finite, or is 0"),
}


def rewrite(path: Path, name: str, change: Callable[[list[Any], list[str]], None]) -> None:
    read = pq.read_table(path)
    values, kinds = read[name].to_pylist(), read["kind"].to_pylist()
    change(values, kinds)
    field = NODES.field(name)
    array = pa.array(values, field.type) if name == "terms" else pa.array(values).dictionary_encode().cast(field.type)
    pq.write_table(read.set_column(read.schema.get_field_index(name), field, array), path)


@pytest.mark.parametrize("name", DAMAGE)
def test_read_parts__refuses_terms(name: str, tmp_path: Path) -> None:
    write_forest(tmp_path, trees(), SPEC, [2])
    terms, words = DAMAGE[name]
    path = TREES.part(tmp_path, 2)
    rewrite(path, "terms", lambda values, kinds: values.__setitem__(kinds.index("oblique"), terms))
    with pytest.raises(FormatError, match=words) as error:
        read_forest(tmp_path).check()
    assert str(path) in str(error.value)


@pytest.mark.parametrize(("kind", "words"), [("leaf", "terms must be null"), ("axis", "terms must be null")])
def test_read_parts__refuses_terms_elsewhere(kind: str, words: str, tmp_path: Path) -> None:
    write_forest(tmp_path, trees(), SPEC)
    change = [term("x0", 1.0)]
    rewrite(TREES.part(tmp_path, 0), "terms", lambda values, kinds: values.__setitem__(kinds.index(kind), change))
    with pytest.raises(FormatError, match=words):
        read_forest(tmp_path).check()


def test_read_parts__refuses_an_oblique_node_with_a_feature(tmp_path: Path) -> None:
    write_forest(tmp_path, trees(), SPEC)
    path = TREES.part(tmp_path, 0)
    rewrite(path, "feature", lambda values, kinds: values.__setitem__(kinds.index("oblique"), "x0"))
    with pytest.raises(FormatError, match="feature must be null except in axis and category nodes"):
        read_forest(tmp_path).check()


@given(st.data())
def test_vote__oblique_nodes_on_any_values(data: st.DataObject) -> None:
    number = st.sampled_from([*EXTREMES, 0.1, float(np.float32(0.1))]) | st.floats(allow_nan=False)
    thresholds = data.draw(st.lists(number, min_size=1, max_size=4))
    weight = st.floats(allow_nan=False, allow_infinity=False).filter(bool)
    weights = data.draw(st.lists(st.sampled_from([1.0, -1.0]) | weight, min_size=1, max_size=4))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    splits = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))
    features = data.draw(st.sampled_from([3, 10]))  # directions of up to three blocks
    grown = [random_tree(random, features, 3, count, thresholds, weights) for count in splits]
    cell = st.sampled_from(thresholds) | number
    rows = data.draw(st.lists(st.tuples(*[cell] * features), min_size=1, max_size=9))
    spec = spec_of(features, (5, 7, 9))
    made = pack([grown], spec)
    ready = Predictor(
        made, made.leaf_votes("soft"), VoteRule("soft", "lowest", 0), spec, made.roots.size, float(made.roots.size), []
    )
    for dtype in (np.float64, np.float32):
        with np.errstate(over="ignore"):
            matrix = np.array(rows, dtype)
        sums = np.array([sum_of_votes(grown, row, "soft") for row in matrix.astype(np.float64).tolist()])
        for times in (1, 33_000 // len(rows) + 1):  # in one tile, and in more than one
            batch = RowBatch.of([np.tile(matrix[:, place], times) for place in made.used])
            predictions = ready.predict(batch, 0, proba=True)
            assert predictions.proba is not None
            assert np.array_equal(predictions.proba, np.tile(sums / len(grown), (times, 1)))


def test_predict__a_projection_that_is_no_number_goes_right(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    tree = random_tree(random, 2, 2, 1, [np.inf], [1.0])
    while tree.terms is None or tree.terms.feature.size < 2:
        tree = random_tree(random, 2, 2, 1, [np.inf], [1.0])
    tree.counts[1:] = [[1, 0], [0, 1]]
    tree.counts[0] = [1, 1]
    tree = tree._replace(weight=tree.counts.sum(axis=1, dtype=np.uint64))
    forest = forest_of(tmp_path, [tree], spec_of(2, ("left", "right"), "String"))
    rows = pl.DataFrame({"x0": [1.0, np.inf, np.inf, -np.inf], "x1": [1.0, np.inf, -np.inf, np.inf]})
    assert forest.predict(rows)["prediction"].to_list() == ["left", "left", "right", "right"]
