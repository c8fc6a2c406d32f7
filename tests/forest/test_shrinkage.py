"""Shrunk values of leaves against their formula, by one lambda or several, from pieces of any size."""

from __future__ import annotations

import json
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest as bf
from bigforest.errors import ConfigError, FormatError
from bigforest.forest import parts
from bigforest.forest.ballots import LeafShrinking
from bigforest.forest.files import write_tables
from bigforest.forest.format import RUN
from bigforest.forest.nodes import TreeArrays
from bigforest.forest.run_file import Choices, Shrinkage, read_choices
from bigforest.kernels.common.layout import LEAF
from tests.forests import forest_of, random_tree, spec_of
from tests.naive.predict import find_leaf
from tests.naive.shrinkage import contributions, shrunk, value, weights_of_path
from tests.thorough import examples

AMOUNTS = st.sampled_from([0.0, 5e-324, 1e-300, 0.1, 1.0, 3.0, 1e3, 1e300, 1.7e308]) | st.floats(0.0, 1e6)


@st.composite
def trees(draw: st.DrawFn) -> list[TreeArrays]:
    """Some trees of one table, of classes or of numbers."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    classes, numbers = draw(st.integers(2, 4)), draw(st.booleans())
    splits = draw(st.lists(st.integers(0, 12), min_size=1, max_size=4))
    return [_tree(random, classes, count, numbers) for count in splits]


def _tree(random: np.random.Generator, classes: int, splits: int, numbers: bool) -> TreeArrays:
    tree = random_tree(random, 3, classes, splits, [0.1, 1.0, -1.0])
    if not numbers:
        return tree
    values = random.choice([0.0, 1.5, -2e9, 1e-9, 7.25], tree.feature.size)
    return tree._replace(counts=tree.counts[:, :0].copy(), value=values)


def leaves(tree: TreeArrays) -> list[int]:
    return np.flatnonzero(tree.feature == LEAF).tolist()


def check_formula(found: np.ndarray, grown: list[TreeArrays], amounts: list[float]) -> None:
    """The values of all leaves by each lambda are those of the formula, but for rounding."""
    expected = [
        [
            float(entry)
            for entries in zip(*(shrunk(tree, leaf, amount) for amount in amounts), strict=True)
            for entry in entries
        ]
        for tree in grown
        for leaf in leaves(tree)
    ]
    largest = max(
        abs(float(entry)) for tree in grown for node in range(tree.feature.size) for entry in value(tree, node)
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * max(1.0, largest))


@given(trees(), st.lists(AMOUNTS, min_size=1, max_size=3), st.integers(1, 30))
def test_leaf_shrinking__is_the_formula_for_pieces_of_any_size(
    grown: list[TreeArrays], amounts: list[float], size: int
) -> None:
    shrinking = LeafShrinking(np.array(amounts), max(1, grown[0].counts.shape[1]))
    rows = []
    for tree in grown:
        for begin in range(0, tree.feature.size, size):
            piece = tree.rows(begin, min(begin + size, tree.feature.size))
            rows.append(shrinking.values(piece))
    found = np.concatenate(rows)
    check_formula(found, grown, amounts)
    for place, amount in enumerate(amounts):
        own = found[:, place :: len(amounts)]
        if grown[0].value is None:
            assert (own >= 0).all() and (own <= 1 + 1e-12).all()
            np.testing.assert_allclose(own.sum(axis=1), 1.0, rtol=0, atol=1e-12)
        if amount == 0.0:  # to the last bit
            plain = [[float(v) for v in value(tree, leaf)] for tree in grown for leaf in leaves(tree)]
            assert own.tolist() == plain


@given(trees(), AMOUNTS)
def test_shrunk_values__are_mixes_of_their_paths_and_their_contributions_add_up(
    grown: list[TreeArrays], amount: float
) -> None:
    """Identities of the formula itself, exactly."""
    for tree in grown:
        for leaf in leaves(tree):
            weights = weights_of_path(tree, leaf, amount)
            assert sum(weights) == 1 and all(weight >= 0 for weight in weights)
            steps = contributions(tree, leaf, amount)
            root = value(tree, 0)
            assert shrunk(tree, leaf, amount) == [
                start + sum((step[k] for step in steps), Fraction(0)) for k, start in enumerate(root)
            ]
            if grown[0].value is None and amount > 0:  # no class of the bag has the share 0
                rows = int(tree.weight[0])
                least = [share * Fraction(amount) / (rows + Fraction(amount)) for share in root]
                assert all(own >= floor for own, floor in zip(shrunk(tree, leaf, amount), least, strict=True))


@settings(max_examples=examples(30))
@given(trees(), AMOUNTS, st.sampled_from(["soft", "hard"]), st.integers(40, 400))
def test_predict__answers_by_shrunk_leaves_all_at_once_or_in_groups(
    tmp_path_factory: pytest.TempPathFactory, grown: list[TreeArrays], amount: float, vote: str, piece: int
) -> None:
    numbers = grown[0].value is not None
    spec = spec_of(3, () if numbers else tuple(range(grown[0].counts.shape[1])))
    if numbers:
        spec = _of_numbers(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PIECE_BYTES", piece)
        forest = forest_of(tmp_path_factory.mktemp("f"), grown, spec).shrink(amount)
        rows = np.random.default_rng(1).choice([0.0, 0.5, 2.0, -3.0], (9, 3))
        frame = pl.DataFrame({f"x{i}": column for i, column in enumerate(rows.T)})
        ends = [[find_leaf(tree, row) for tree in grown] for row in rows.tolist()]
        values = [[[float(v) for v in shrunk(t, leaf, amount)] for t, leaf in zip(grown, e, strict=True)] for e in ends]
        for memory in (None, "1GB"):
            if numbers:
                expected = [sum(own[0] for own in row) / len(grown) for row in values]
                found = forest.predict(frame, memory=memory)["prediction"].to_list()
                assert found == pytest.approx(expected, rel=1e-12, abs=1e-3)
            elif vote == "soft":
                shares = forest.predict_proba(frame, memory=memory).to_numpy()
                np.testing.assert_allclose(shares, np.mean(values, axis=1), rtol=0, atol=1e-12)
            else:
                shares = forest.predict_proba(frame, vote="hard", memory=memory).to_numpy()
                assert (shares * len(grown)).round().sum(axis=1).tolist() == [len(grown)] * len(rows)
                clear = [all(np.sort(own)[-1] - np.sort(own)[-2] > 1e-12 for own in row) for row in values]
                votes = np.array([[np.eye(len(own))[int(np.argmax(own))] for own in row] for row in values])
                np.testing.assert_allclose(shares[clear], votes.mean(axis=1)[clear], rtol=0, atol=1e-12)


def _of_numbers(spec: Any) -> Any:
    from dataclasses import replace

    return replace(spec, target=replace(spec.target, dtype="Float64", classes=(), task="regression"))


@pytest.fixture(scope="module")
def forest(tmp_path_factory: pytest.TempPathFactory) -> bf.Forest:
    return bf.train(_table(), "y", trees=5, out=tmp_path_factory.mktemp("shrinkage") / "f", shrink=3)


def _table() -> pl.DataFrame:
    draw = np.random.default_rng(4)
    x = draw.random((2, 150))
    return pl.DataFrame({"a": x[0], "b": x[1], "y": np.where(x[0] + draw.normal(0, 0.4, 150) > 0.5, "u", "v")})


def without_pickle(forest: bf.Forest) -> bf.Forest:
    """The forest after it has been saved and loaded as skops does."""
    other = bf.Forest.__new__(bf.Forest)
    other.__setstate__(forest.__getstate__())
    return other


def test_lambda_is_kept_in_the_run_and_goes_wherever_the_forest_goes(forest: bf.Forest, tmp_path: Path) -> None:
    frame = _table()
    expected = forest.predict_proba(frame)
    assert forest.shrinkage == bf.read_forest(forest.directory).shrinkage == Shrinkage(3.0)
    plain = forest.shrink(0)
    assert not plain.predict_proba(frame).equals(expected)
    assert plain.nodes.collect().equals(forest.nodes.collect())
    pickled = (pickle.loads(pickle.dumps(each)) for each in (forest, plain.shrink(3)))
    for other in (plain.shrink(3.0), *pickled, without_pickle(forest), without_pickle(plain.shrink(3))):
        assert other.predict_proba(frame).equals(expected)
    forest.write(tmp_path / "copy")
    plain.write(tmp_path / "plain")
    assert bf.read_forest(tmp_path / "copy").predict_proba(frame).equals(expected)
    assert bf.read_forest(tmp_path / "copy").has_oob
    written = bf.read_forest(tmp_path / "plain")
    assert written.predict_proba(frame).equals(plain.predict_proba(frame))
    assert (written.shrinkage, written.revised, written.has_oob) == (Shrinkage(), "shrunk", False)
    temporary = bf.train(frame, "y", trees=5).shrink(3.0)
    assert pickle.loads(pickle.dumps(temporary)).predict_proba(frame).equals(expected)
    lazily = frame.lazy().select(forest.expr(proba=True)).collect().unnest("probabilities")
    assert lazily.equals(expected)


def test_trees_are_those_of_a_forest_that_is_not_shrunk(forest: bf.Forest) -> None:
    assert bf.train(_table(), "y", trees=5).nodes.collect().equals(forest.nodes.collect())


@pytest.mark.parametrize("amount", [-1.0, float("nan"), float("inf"), "3", None, True, 10**400])
def test_shrink__refuses_what_is_no_lambda(forest: bf.Forest, amount: Any) -> None:
    with pytest.raises(ConfigError, match="amount must be a finite number of rows, 0 or more"):
        forest.shrink(amount)
    with pytest.raises(ConfigError, match='shrink must be "auto", "off" or at least 0'):
        bf.TrainConfig(shrink=amount)


@pytest.mark.parametrize(
    "change",
    [
        {"lambda": -1.0},
        {"lambda": float("nan")},
        {"lambda": float("inf")},
        {"lambda": 10**400},
        {"lambda": None},
        {"lambda": "3"},
        {"lambda": 2.0},
        {"tried": [1.0, 3.0, 3.0]},
        {"tried": [3.0, 1.0]},
        {"tried": 3.0},
        {"losses": [0.1]},
        {"losses": [0.1, -0.1]},
        {"losses": []},
        {"cross_fitted": None},
        {"cross_fitted": "x"},
        {"more": 1},
    ],
)
def test_read_choices__refuses_damage(forest: bf.Forest, tmp_path: Path, change: dict[str, Any]) -> None:
    sound = {"lambda": 3.0, "tried": [1.0, 3.0], "losses": [0.2, 0.1], "cross_fitted": 0.1}
    table = pq.read_table(forest.directory / "run.parquet").cast(RUN.columns)
    place = tmp_path / "run.parquet"
    write_tables([table], place, RUN, forest.files.header, {"shrinkage": sound})
    assert read_choices(tmp_path).shrinkage == Shrinkage(3.0, (1.0, 3.0), (0.2, 0.1), 0.1)
    write_tables([table], place, RUN, forest.files.header, {"shrinkage": sound | change})
    with pytest.raises(FormatError, match="'shrinkage' of its metadata cannot be read"):
        read_choices(tmp_path)


def test_shrinkage__writes_what_it_reads(forest: bf.Forest, tmp_path: Path) -> None:
    table = pq.read_table(forest.directory / "run.parquet").cast(RUN.columns)
    for found in (Shrinkage(), Shrinkage(2.5), Shrinkage(0.0, (0.0, 1.0)), Shrinkage(1.0, (0.0, 1.0), (2.0, 1.0), 1.5)):
        entries = json.loads(json.dumps(Choices(found).entries()))
        write_tables([table], tmp_path / "run.parquet", RUN, forest.files.header, entries)
        assert read_choices(tmp_path).shrinkage == found
