"""Boosted forests: against plain Python with equality, and the same for all threads, budgets and interruptions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import bigforest
from bigforest.errors import BigForestError, ConfigError, FormatError
from bigforest.events import Event, StageAdvanced
from bigforest.forest.files import write_tree_votes
from bigforest.forest.format import BOOSTING
from bigforest.kernels.tree.bags import draw_by_weight
from bigforest.options.train_config import TrainConfig
from bigforest.predict.forest import Forest
from bigforest.sampling.boosting import RowWeights, TreeVote
from tests.commands import Run, folder, run
from tests.fuzz import damage
from tests.grown import frame_of
from tests.naive import boosting as naive
from tests.naive.split import Table
from tests.strategies import Data, tables
from tests.thorough import cases, examples
from tests.training.test_run import files

__all__ = ["folder", "run"]  # fixtures

COMPILED = not numba.config.DISABLE_JIT
WAYS = ("arc-x4", "adaboost")
METHODS = st.sampled_from(WAYS)


def options(sampling: str, **changes: Any) -> TrainConfig:
    return TrainConfig.of(sampling=sampling, **changes)


# Bags and weights.


@settings(max_examples=examples(100 if COMPILED else 10))
@given(
    st.lists(st.one_of(st.integers(1, 5), st.integers(1, 2**55)), min_size=1, max_size=40),
    st.integers(0, 60),
    st.integers(0, 2**64 - 1),
)
@example([2**62, 1, 2**62], 50, 0)
@example([1], 70_000, 3)
@example([2612804106661519774, 1998881932701481623], 1, 1)  # the first number that the second row has
def test_draw_by_weight__agrees_with_the_naive_one(weights: list[int], draws: int, key: int) -> None:
    counts = np.zeros(len(weights), np.uint16)
    draw_by_weight(counts, np.cumsum(np.array(weights, np.uint64)), draws, np.uint64(key))
    expected = [0] * len(weights)
    for draw in range(1, draws + 1):
        point = naive.rng.mix((key + draw * naive.rng.GOLDEN) & naive.rng.MASK) * sum(weights) >> 64
        row = next(row for row in range(len(weights)) if point < sum(weights[: row + 1]))
        expected[row] = min(expected[row] + 1, 65_535)
    assert counts.tolist() == expected


def test_draw_by_weight__rows_are_drawn_in_proportion() -> None:
    weights = np.array([1, 2, 3, 10, 84], np.uint64)
    counts = np.zeros(5, np.uint16)
    draw_by_weight(counts, np.cumsum(weights), 10_000, np.uint64(5))
    expected = 100.0 * weights.astype(np.float64)
    assert ((counts - expected) ** 2 / expected).sum() < 18.5  # 4 degrees of freedom, p = 0.001


@given(
    METHODS,
    st.integers(1, 12).flatmap(
        lambda rows: st.lists(st.lists(st.booleans(), min_size=rows, max_size=rows), min_size=1, max_size=12)
    ),
)
def test_row_weights__agree_with_the_naive_ones(sampling: str, wrong: list[list[bool]]) -> None:
    config = options(sampling)
    found = RowWeights(len(wrong[0]), config)
    expected = naive.first_weights(len(wrong[0]), config)
    for trees in range(1, len(wrong) + 1):
        assert found.weights.tolist() == expected
        tree_votes = found.add(np.array(wrong[trees - 1]))
        expected, error, vote = naive.next_weights(expected, wrong[:trees], config)
        assert (tree_votes.error, tree_votes.vote) == (error, vote)
    assert found.weights.tolist() == expected


def test_adaboost__rows_that_are_wrong_have_half_of_the_weight() -> None:
    found = RowWeights(10, options("adaboost"))
    wrong = np.arange(10) < 3
    tree_votes = found.add(wrong)
    assert tree_votes.error == pytest.approx(0.3)
    assert tree_votes.vote == pytest.approx(math.log(7 / 3))
    assert found.weights[wrong].sum() == pytest.approx(found.weights[~wrong].sum(), rel=1e-12)
    assert np.ptp(found.weights[wrong]) == 0


def test_adaboost__starts_again_where_a_tree_is_wrong_on_nothing_or_half() -> None:
    for wrong, error in ((np.zeros(9, bool), 0.0), (np.arange(9) < 5, 5 / 9)):
        found = RowWeights(9, options("adaboost"))
        before = found.weights.copy()
        found.add(np.arange(9) == 0)
        assert not np.array_equal(found.weights, before)
        found = RowWeights(9, options("adaboost"))
        tree_votes = found.add(wrong)
        assert np.array_equal(found.weights, before)
        assert tree_votes.error == pytest.approx(error)
        assert 0.0 < tree_votes.vote < math.inf


# Forests.


def nodes_of(forest: Forest, tree: int) -> list[tuple[Any, ...]]:
    """Feature, threshold, depth, counts and terms of each node, as the oracle has them."""
    found = forest[tree].nodes
    place = {name: number for number, name in enumerate(forest.features["name"])}
    rows = []
    for row in found.iter_rows(named=True):
        feature = -2 if row["kind"] == "oblique" else -1 if row["feature"] is None else place[row["feature"]]
        terms = tuple((place[term["feature"]], term["weight"]) for term in row["terms"] or ())
        rows.append((feature, row["threshold"], row["depth"], row["counts"], terms))
    return rows


def check_forest(data: Data, **given: Any) -> None:
    """Assert that a forest, its errors, votes, report and predictions are those of the oracle."""
    frame = frame_of(data)
    forest = bigforest.train(frame, "y", task="classification", threads=2, **given)
    table = Table(data.values, data.values, data.target.tolist(), data.classes)
    made = naive.boost(table, forest.config)
    assert forest.boosting["error"].to_list() == made.errors
    assert forest.boosting["vote"].to_list() == made.votes
    for tree, nodes in enumerate(made.trees):
        expected = [
            (node.feature, None if math.isnan(node.threshold) else node.threshold, node.depth, node.counts, node.terms)
            for node in nodes
        ]
        assert nodes_of(forest, tree) == expected, tree
    report = forest.oob.rows.collect()
    for row in range(len(data.target)):
        prediction, voters = naive.out_of_bag(made, row, data.classes)
        assert report["prediction"][row] == prediction
        assert report["trees"][row] == len(voters)
        own = [column[row] for column in report.iter_columns() if column.name.startswith("p_")]
        assert own == (
            [None] * data.classes if not voters else pytest.approx(naive.shares(made, row, data.classes, voters))
        )
    for some in (None, [0, len(made.trees) - 1]):
        chosen = sorted(set(some or range(len(made.trees))))
        expected = [naive.shares(made, row, data.classes, chosen) for row in range(len(data.target))]
        assert forest.predict_proba(frame, trees=some).to_numpy().tolist() == expected


@settings(max_examples=examples(30 if COMPILED else 2), deadline=None)
@given(
    tables(max_rows=40, max_features=4, max_classes=4),
    METHODS,
    st.sampled_from(["axis", "axis", "sparse-oblique"]),
    st.sampled_from([{}, {"max_depth": 1}, {"max_depth": 2, "sample_fraction": 0.5}, {"min_leaf": 3, "seed": 7}]),
)
def test_train__agrees_with_the_naive_forest(data: Data, sampling: str, family: str, more: dict[str, Any]) -> None:
    if family == "sparse-oblique":  # which takes finite values that projections do not overflow
        data = data._replace(values=np.clip(data.values, -1e6, 1e6))
    check_forest(data, sampling=sampling, family=family, trees=5, **more)


def frame(rows: int = 300) -> pl.DataFrame:
    draw = np.random.default_rng(1)
    size, noise = draw.integers(0, 40, rows), draw.normal(size=rows)
    kind = np.where(size + 9 * noise < 12, "small", np.where(size + 5 * draw.normal(size=rows) < 25, "middle", "large"))
    level = [None if number < 2 else f"level {number}" for number in draw.integers(0, 12, rows)]
    return pl.DataFrame({"size": size, "noise": noise + draw.normal(size=rows), "level": level, "kind": kind})


CASES: dict[str, dict[str, Any]] = {
    "axis": {},
    "random splits, ranks": {"splitter": "random", "ranks": True, "exclude": ["level"]},
    "oblique": {"family": "sparse-oblique", "exclude": ["level"]},
    "rotation": {"family": "rotation", "exclude": ["level"]},
    "kept votes, shrunk": {"keep_votes": True, "shrink": 2.0},
}


def train(sampling: str, case: str, **more: Any) -> Forest:
    return bigforest.train(frame(), "kind", **{"trees": 12, "sampling": sampling, "seed": 4, **CASES[case], **more})


@pytest.mark.parametrize(
    ("sampling", "case"),
    cases([(sampling, case) for sampling in WAYS[::-1] for case in CASES], quick=len(CASES) + 1),
)
def test_train__threads_budgets_and_interruptions_change_no_bit(sampling: str, case: str, tmp_path: Path) -> None:
    """One thread without interruption; four and then a budget; fewer trees by a budget, and then the others."""
    forest = train(sampling, case, threads=1, out=tmp_path / "one")
    expected = files(tmp_path / "one")

    def interrupt(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == "grow" and event.done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(sampling, case, threads=4, out=tmp_path / "resumed", listener=interrupt)
    assert any((tmp_path / "resumed.unfinished" / "forest" / "trees").iterdir())
    bigforest.train(frame(), resume=tmp_path / "resumed", memory="2GB")
    train(sampling, case, trees=5, memory="2GB", out=tmp_path / "more")
    bigforest.train(frame(), resume=tmp_path / "more", trees=12, threads=4)
    for name in ("resumed", "more"):
        found = files(tmp_path / name)
        assert found.keys() == expected.keys()
        for file, content in expected.items():
            assert found[file] == content, (name, file)
    forest = bigforest.read_forest(tmp_path / "one")
    whole = forest.predict_proba(frame()).to_numpy()
    assert np.array_equal(whole, forest.predict_proba(frame(), memory="500MB").to_numpy())
    assert whole.sum(axis=1) == pytest.approx(1.0)
    forest.write(tmp_path / "copy")
    assert np.array_equal(whole, bigforest.read_forest(tmp_path / "copy").predict_proba(frame()).to_numpy())
    assert forest.score(frame()) > 0.9


@pytest.mark.parametrize("sampling", cases(WAYS[::-1], quick=1))
def test_train__several_blocks_of_rows(sampling: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    values = draw.integers(0, 50, (70_000 if COMPILED else 300, 2))
    table = pl.DataFrame(values, schema=["a", "b"], orient="row").with_columns(y=(pl.col("a") + pl.col("b")) // 40)
    for threads in (1, 3):
        bigforest.train(
            table, "y", sampling=sampling, trees=3, max_depth=4, threads=threads, out=tmp_path / f"{threads}"
        )
    assert files(tmp_path / "1") == files(tmp_path / "3")
    forest = bigforest.read_forest(tmp_path / "1")
    wrong = np.array(
        [forest.predict(table, trees=[tree]).to_series().to_numpy() != table["y"].to_numpy() for tree in range(3)]
    )
    weights = RowWeights(table.height, forest.config)
    assert [weights.add(own).error for own in wrong] == forest.boosting["error"].to_list()


def test_train__boosting_learns_what_stumps_cannot() -> None:
    draw = np.random.default_rng(3)
    values = draw.normal(size=(600, 5))
    table = pl.DataFrame(values).with_columns(y=pl.Series((values**2).sum(axis=1) > 4.35))
    made = {
        sampling: bigforest.train(table[:300], "y", sampling=sampling, trees=60, max_depth=1, mtry="all", vote="hard")
        for sampling in ("uniform", *WAYS)
    }
    scores = {sampling: forest.score(table[300:]) for sampling, forest in made.items()}
    assert scores["adaboost"] > scores["uniform"] + 0.1
    assert scores["arc-x4"] > scores["uniform"] + 0.05


# What is refused.

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no bag": ({"bootstrap": False}, "sampling needs bags"),
    "family": ({"family": "subspace-cap"}, "sampling needs bags"),
    "without replacement": ({"replace": False}, "with replacement"),
    "groups": ({"group": "size"}, "not whole groups"),
    "weights": ({"weight": "size"}, "weights of its own"),
    "class weights": ({"class_weight": "balanced"}, "weights of its own"),
    "soft votes": ({"vote": "soft"}, "vote must be 'hard'"),
    "stopping": ({"stop_oob": 0.1}, "stop_oob cannot use it"),
    "choosing lambda": ({"shrink": "auto"}, "shrink cannot be chosen by it"),
    "numbers": ({"task": "regression"}, "sampling .* is for classification, and this is a regression"),
    "trees": ({"trees": 100_000, "sampling": "arc-x4"}, "at most .* trees"),
    "memory": ({"memory": "20MB"}, "needs"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("plan", [False, True])
def test_train__refuses_before_the_work(case: str, plan: bool, tmp_path: Path) -> None:
    given, message = REFUSED[case]
    target = "size" if case == "numbers" else "kind"
    if plan and case == "memory":
        assert not bigforest.plan_training(frame(), target, sampling="adaboost", **given).fits
        return
    with pytest.raises(ConfigError, match=message):
        if plan:
            bigforest.plan_training(frame(), target, **{"sampling": "adaboost", **given})
        else:
            bigforest.train(frame(), target, out=tmp_path / "f", **{"sampling": "adaboost", **given})
    assert not list(tmp_path.glob("f*"))


@pytest.mark.parametrize("sampling", WAYS)
def test_forest__refuses_what_would_need_its_bags_or_an_honest_error(sampling: str, tmp_path: Path) -> None:
    forest = train(sampling, "axis", trees=5, out=tmp_path / "f")
    table = frame()
    for refused, message in (
        (forest.inbag, "known only while it grows"),
        (lambda: forest.explain(table, parts="permutation"), "ask for importance, contributions"),
        (lambda: forest.predict(table, coverage=0.9), "biased"),
        (lambda: forest.predict(table, reject_above=0.1), "biased"),
        (
            lambda: bigforest.merge([forest, train(sampling, "axis", trees=2, seed=9)], tmp_path / "m"),
            "follows from those before",
        ),
        (lambda: bigforest.calibrate_forest(forest, table, tmp_path / "c"), "calibrating changes trees"),
        (lambda: bigforest.prune_forest(forest, table, tmp_path / "p"), "changes trees"),
        (lambda: bigforest.shrink_forest(forest, tmp_path / "s", data=table), "biased"),
    ):
        with pytest.raises(ConfigError, match=message):
            refused()
    with pytest.raises(ConfigError, match="all its trees have equal votes"):
        bigforest.train(table, "kind", trees=2).boosting  # noqa: B018
    if sampling == "adaboost":
        with pytest.raises(ConfigError, match="votes have weights"):
            forest.to_sql()
    else:
        forest.to_sql()


def test_explain__contributions_add_up_to_the_weighted_votes() -> None:
    forest, table = train("adaboost", "axis"), frame()
    expected = forest.predict_proba(table).to_numpy()
    found = forest.explain(table, parts=["contributions", "dependence"])["contributions"]
    changes = ["base", *(name for name in found.columns if name.startswith("c_"))]
    for place, label in enumerate(forest.classes):
        own = found.filter(pl.col("class") == label).sort("row")
        assert own.select(pl.sum_horizontal(changes)).to_series().to_numpy() == pytest.approx(expected[:, place])
        assert own["prediction"].to_numpy() == pytest.approx(expected[:, place])
    assert "permutation" not in forest.explain(table).tables


# Its file.


def tree_votes(*votes: float) -> list[TreeVote]:
    return [TreeVote(0.25, vote) for vote in votes]


def test_read_forest__refuses_votes_that_cannot_be(tmp_path: Path) -> None:
    train("adaboost", "axis", trees=2, out=tmp_path / "f")
    damage.unlist(tmp_path / "f")
    forest = bigforest.read_forest(tmp_path / "f")
    write_tree_votes(tmp_path / "f", tree_votes(2.0, 1.0), forest.files.header)
    bigforest.read_forest(tmp_path / "f").predict(frame())
    wrong = [(1.0,), (1.0, 1.0, 1.0), (1.0, 0.0), (1.0, -1.0), (math.nan, 1.0), (math.inf, 1.0), (1e300, 1.0)]
    for votes in wrong:
        write_tree_votes(tmp_path / "f", tree_votes(*votes), forest.files.header)
        with pytest.raises(FormatError, match="error and a vote for each tree"):
            bigforest.read_forest(tmp_path / "f").predict(frame())


def test_read_forest__refuses_a_file_that_is_missing_or_of_another_forest(tmp_path: Path) -> None:
    forest = train("adaboost", "axis", trees=2, out=tmp_path / "f")
    train("adaboost", "axis", trees=2, seed=5, out=tmp_path / "g")
    BOOSTING.at(tmp_path / "f").write_bytes(BOOSTING.at(tmp_path / "g").read_bytes())
    with pytest.raises(FormatError, match="another forest"):
        bigforest.read_forest(tmp_path / "f")
    BOOSTING.at(tmp_path / "f").unlink()
    with pytest.raises(BigForestError, match=BOOSTING.name):
        bigforest.read_forest(tmp_path / "f")
    assert forest.trees == 2


def test_cli__boosting_and_its_bias_are_told(run: Run, folder: Path) -> None:
    found = run.json("train", "things.parquet", "--sampling", "adaboost", "--trees", "5", "--out", "f")
    assert found["oob"]["biased"] is True
    assert json.dumps(run.json("oob", "f")["biased"]) == "true"
    assert "biased" in run("oob", "f").out
    assert run("train", "things.parquet", "--sampling", "adaboost", "--stop-oob", "0.1", "--out", "g").code == 2
    assert "--stop-oob" in run.err


def test_sklearn__estimators_boost() -> None:
    estimators = pytest.importorskip("bigforest.sklearn")
    table = frame().drop("level")
    found = estimators.BigForestClassifier(5, sampling="adaboost", random_state=4)
    found.fit(table.drop("kind"), table["kind"])
    forest = bigforest.train(table, "kind", sampling="adaboost", trees=5, seed=4)
    assert np.array_equal(found.predict_proba(table.drop("kind")), forest.predict_proba(table).to_numpy())
    assert found.forest_.boosting.equals(forest.boosting)
