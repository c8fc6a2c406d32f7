"""Forests in subspaces (Ho 1995) as a user has them: from a table to answers, the same however they are grown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.errors import ConfigError
from bigforest.forest.parts import part_paths
from bigforest.grow.families.subspace import tree_subspace
from bigforest.options.train_config import TrainConfig

DIGITS = Path(__file__).parents[2] / "examples" / "data" / "digits.parquet"
CAP: dict[str, Any] = {"family": "subspace-cap", "subspace": 20, "steps": 20}
PERCEPTRON: dict[str, Any] = {"family": "subspace-perceptron", "subspace": 20, "max_epochs": 5}
MIXED = {**CAP, "subspace": "20,63,5"}
FAMILIES = pytest.mark.parametrize("options", [CAP, PERCEPTRON], ids=["cap", "perceptron"])
MORE = pytest.mark.parametrize("options", [CAP, PERCEPTRON, MIXED], ids=["cap", "perceptron", "mixed"])
compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")


def digits(rows: int = 600) -> pl.DataFrame:
    """Pixels of digits, of which some are the same in all."""
    return pl.read_parquet(DIGITS).head(rows)


def bits(rows: int = 600) -> pl.DataFrame:
    """The same, ink or not."""
    return digits(rows).with_columns(pl.exclude("target") >= 8)


def parts_of(forest: Path) -> list[bytes]:
    return [part.read_bytes() for part in part_paths(forest)]


def right(forest: bf.Forest, frame: pl.DataFrame, **rule: Any) -> pl.Series:
    """Whether each row is answered rightly; a rejected one is not."""
    return forest.predict(frame, **rule)["prediction"].eq_missing(frame["target"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subspace": 3}, "subspace is an option of the family subspace-cap or subspace-perceptron, not of axis"),
        ({"ties": "reject"}, "ties is an option of the family subspace-cap or"),
        ({**CAP, "max_epochs": 3}, "max_epochs is an option of the family subspace-perceptron, not of subspace-cap"),
        ({**CAP, "bootstrap": True}, "the family subspace-cap grows every tree on all rows: bootstrap must be off"),
        ({**CAP, "sample_fraction": 0.5}, "sample_fraction needs bags"),
        ({**CAP, "sampling": "balanced"}, "sampling needs bags"),
        ({**CAP, "impurity": "entropy"}, "impurity is an option of the family axis"),
        ({**CAP, "weight": "w"}, "weight is an option of the family axis"),
        ({**CAP, "class_weight": "balanced"}, "class_weight is an option of the family axis"),
        ({**CAP, "mtry": 3}, "mtry is an option of the family axis"),
        ({**CAP, "subspace": 0}, "subspace must be a whole number from 1 to"),
        ({**CAP, "subspace": "2,3,2"}, "subspace must be different sizes, which .*, not '2,3,2': give each once"),
        ({**CAP, "subspace": "2,0"}, "subspace must be a whole number from 1 to .* such as 50,100,200, not '2,0'"),
        ({**CAP, "subspace": "2,,3"}, "several of them separated by commas"),
        ({**CAP, "subspace": "9" * 5000}, "subspace must be a whole number from 1 to 2147483647"),
        ({**CAP, "subspace": ",".join(map(str, range(1, 102)))}, "subspace must be at most 100 sizes, not 101"),
        ({**CAP, "subspace_per": "forest"}, "subspace_per must be one of tree, node"),
        ({**CAP, "steps": 1}, "steps must be a whole number from 2 to 65536"),
        ({**PERCEPTRON, "max_epochs": 0}, "max_epochs must be a whole number from 1 to"),
        ({**PERCEPTRON, "ties": "coin"}, "ties must be one of lowest, reject, random"),
    ],
)
def test_config__refuses(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TrainConfig.of(**options)


def test_config__numbers_are_not_told_apart() -> None:
    with pytest.raises(ConfigError, match="the family subspace-cap is for classification"):
        TrainConfig.of(**CAP).for_task("regression")


def test_config__defaults() -> None:
    config = TrainConfig.of(family="subspace-cap")
    assert (config.bootstrap, config.tie_rule, config.steps, config.subspace_per) == (False, "reject", 50, "tree")
    assert [config.subspace_sizes(features) for features in (400, 852, 150)] == [(100,), (100,), (75,)]


def test_tree_subspace__none_twice_until_all_are_used() -> None:
    config = TrainConfig.of(family="subspace-cap", subspace=3, trees=56, seed=5)
    assert config.subspace_sizes(8) == (3,)
    seen = {tuple(tree_subspace(config, 8, tree).tolist()) for tree in range(56)}
    assert len(seen) == 56
    assert all(list(space) == sorted(set(space)) and len(space) == 3 for space in seen)
    with pytest.raises(ConfigError, match=r"8 features has 56 subspaces of 3, and no two .* or subspace_per node"):
        TrainConfig.of(family="subspace-cap", subspace=3, trees=57).subspace_sizes(8)
    with pytest.raises(ConfigError, match=r"has 1 subspace of 8, .* ask for at most 1 tree,"):
        TrainConfig.of(family="subspace-cap", subspace=8, subspace_per="node", trees=2).subspace_sizes(8)


def test_tree_subspace__of_mixed_sizes_in_turn() -> None:
    """Each size has as many trees as any other, or one more, and all its subspaces are of use."""
    config = TrainConfig.of(family="subspace-cap", subspace="2,8,3", trees=5)
    with pytest.raises(ConfigError, match=r"has 1 subspace of 8, .* ask for at most 4 trees,"):
        config.subspace_sizes(8)
    config = TrainConfig.of(family="subspace-cap", subspace="2,6,3", trees=84)
    spaces = [tuple(tree_subspace(config, 8, tree).tolist()) for tree in range(84)]
    assert [len(space) for space in spaces] == [2, 6, 3] * 28
    assert len(set(spaces)) == 84
    with pytest.raises(ConfigError, match=r"has 28 subspaces of 2, .* ask for at most 84 trees,"):
        TrainConfig.of(family="subspace-cap", subspace="2,6,3", trees=85).subspace_sizes(8)
    # There are 28 subspaces of 2 and of 6, and their orders have nothing to do with each other.
    ranks = [[sorted(own).index(space) for space in own] for own in (spaces[::3], spaces[1::3])]
    assert sum(one == two for one, two in zip(*ranks, strict=True)) < 10


@compiled
@MORE
@pytest.mark.parametrize("table", [digits, bits])
def test_train__a_tree_sees_its_subspace_only(options: dict[str, Any], table: Any) -> None:
    frame = table()
    forest = bf.train(frame, trees=6, **options)
    forest.check()
    assert not forest.has_oob
    assert set(forest.nodes.select("kind").collect()["kind"].cast(pl.String)) == {"oblique", "leaf"}
    names = forest.features["name"].to_list()
    terms = forest.nodes.select("tree", "terms").explode("terms").unnest("terms").drop_nulls().collect()
    for tree in range(6):
        seen = {names[place] for place in tree_subspace(forest.config, len(names), tree)}
        assert set(terms.filter(pl.col("tree") == tree)["feature"].cast(pl.String)) <= seen


@compiled
@FAMILIES
@pytest.mark.parametrize("table", [digits, bits])
def test_train__trees_know_their_rows(options: dict[str, Any], table: Any) -> None:
    frame = table()
    forest = bf.train(frame, trees=1, **{**options, "subspace": 64})
    assert right(forest, frame).all()
    small = bf.train(frame, trees=3, **{**options, "subspace": 2, "subspace_per": "node"})
    assert right(small, frame).all()  # nodes that two features cannot split have looked at all


@compiled
@FAMILIES
def test_predict__two_trees_answer_where_both_are_right(options: dict[str, Any]) -> None:
    """Ho 1995, section 5: with ties rejected, two trees are no better than either."""
    frame, unseen = digits(), digits(1797)[600:]
    options = {**options, "subspace": 40, "seed": 3}
    forest = bf.train(frame, trees=2, **options)
    leaves = forest.nodes.filter(pl.col("kind") == "leaf").select("counts").collect()["counts"]
    assert (leaves.list.max() == leaves.list.sum()).all()  # so that posteriors are 0 or 1
    singles = []
    for tree in range(2):
        nodes = forest.nodes.filter(pl.col("tree") == tree)
        singles.append(answers_of(nodes.collect(), unseen, forest))
    truth = unseen["target"].to_numpy()
    both = (singles[0] == truth) & (singles[1] == truth)
    np.testing.assert_array_equal(right(forest, unseen).to_numpy(), both)
    assert both.mean() < min((single == truth).mean() for single in singles)
    refused = forest.predict(unseen)["prediction"].is_null().to_numpy()
    np.testing.assert_array_equal(refused, singles[0] != singles[1])
    assert right(forest, unseen, ties="lowest").sum() > both.sum()
    assert forest.predict(unseen, vote="stochastic")["prediction"].null_count() == 0


def answers_of(nodes: pl.DataFrame, frame: pl.DataFrame, forest: bf.Forest) -> np.ndarray[Any, Any]:
    """The classes that a tree of pure leaves answers, walked in plain Python."""
    tree = nodes.to_dicts()
    found = []
    for row in frame.to_dicts():
        node = tree[0]
        while node["left"] is not None:
            total = 0.0
            for term in node["terms"]:
                total += term["weight"] * row[term["feature"]]
            node = tree[node["left"] if total <= node["threshold"] else node["right"]]
        found.append(forest.classes[int(np.argmax(node["counts"]))])
    return np.array(found)


@compiled
@pytest.mark.parametrize(
    ("options", "per", "table"),
    [(CAP, "tree", digits), (CAP, "node", bits), (PERCEPTRON, "node", digits), (MIXED, "tree", bits)],
)
def test_train__any_threads_files_and_store(options: dict[str, Any], per: str, table: Any, tmp_path: Path) -> None:
    frame = table(300)
    (tmp_path / "data").mkdir()
    for number in range(3):
        frame[100 * number : 100 * number + 100].write_parquet(tmp_path / "data" / f"{number}.parquet")
    store = bf.encode_store(frame, tmp_path / "kept.store")
    forests = [
        bf.train(data, out=tmp_path / f"{number}", trees=18, threads=threads, subspace_per=per, **options)
        for number, (data, threads) in enumerate([(frame, 1), (tmp_path / "data", 2), (store, 4)])
    ]
    contents = [parts_of(forest.directory) for forest in forests]
    assert len(contents[0]) > 1
    assert contents[0] == contents[1] == contents[2]


@compiled
@MORE
def test_resume__adds_trees_in_subspaces_of_their_own(options: dict[str, Any], tmp_path: Path) -> None:
    frame = bits(300)
    frame.write_parquet(tmp_path / "bits.parquet")
    grown = bf.train(tmp_path / "bits.parquet", out=tmp_path / "grown", trees=5, **options)
    bf.train(resume=grown.directory, trees=12)
    at_once = bf.train(tmp_path / "bits.parquet", out=tmp_path / "at-once", trees=12, **options)
    assert parts_of(tmp_path / "grown") == parts_of(at_once.directory)


@compiled
def test_train__extreme_columns_are_no_hindrance() -> None:
    draw = np.random.default_rng(1)
    x = draw.normal(size=(200, 3))
    frame = pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "target": (x[:, 0] > x[:, 1]).astype(int)})
    frame = frame.with_columns(
        d=pl.Series([np.inf, -np.inf, 1e308, -1e308] * 50), e=pl.lit(5.0), f=pl.Series([5e-324, 0.0] * 100)
    )
    for options in (CAP, PERCEPTRON):
        forest = bf.train(frame, trees=10, **{**options, "subspace": 3})
        forest.check()
        assert right(forest, frame).mean() > 0.9


@FAMILIES
def test_predict__does_not_depend_on_the_units_of_columns(options: dict[str, Any]) -> None:
    """A column in much larger units would settle by itself which class means are far apart, and the direction."""
    random = np.random.default_rng(0)
    cells = random.normal(size=(80, 4))
    target = (cells[:, 0] + cells[:, 1] > 0).astype(int)
    options = options | {"subspace": 3, "trees": 4}
    found = [bf.train(own, target, **options).predict(own) for own in (cells, cells * 2.0 ** np.array([0, 30, -30, 7]))]
    assert found[0].tolist() == found[1].tolist()
