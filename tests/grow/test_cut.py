"""max_leaf_nodes, min_impurity_decrease and ccp_alpha: against plain Python, scikit-learn, and all ways of growing."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import bigforest as bf
from bigforest.errors import ConfigError
from bigforest.events import silent
from bigforest.execution.resources import Resources
from bigforest.grow.forest import ForestJob, grow_tree
from bigforest.grow.memory import GrowPlan
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.options.train_config import TrainConfig
from bigforest.sampling.bags import Sampler
from bigforest.training.run import grow_forest
from tests.grown import assert_same, frame_of, store_of, table_of
from tests.naive.cut import grow_cut
from tests.oob.test_votes import table
from tests.strategies import Data, configs, sparse_configs, tables
from tests.thorough import cases, examples

CUTS: list[dict[str, Any]] = [
    {"max_leaf_nodes": 2},
    {"max_leaf_nodes": 7},
    {"min_impurity_decrease": 0.02},
    {"ccp_alpha": 0.01},
    {"max_leaf_nodes": 12, "min_impurity_decrease": 0.001, "ccp_alpha": 0.002},
]
WHOLE = GrowPlan(workers=1, limits=None, group=1, memory=0)
PASSES = GrowPlan(workers=2, limits=MemoryLimits(rows=40, collects=100, cells=64, room=1000), group=2, memory=0)


@st.composite
def cut_options(draw: st.DrawFn) -> dict[str, Any]:
    """Values of the options, many of them exactly the decrease of some split."""
    return {
        "max_leaf_nodes": draw(st.sampled_from([None, None, 2, 3, 5, 9])),
        "min_impurity_decrease": draw(st.sampled_from([0.0, 0.0, 0.001, 0.02, 0.0625, 0.125, 0.25])),
        "ccp_alpha": draw(st.sampled_from([0.0, 0.0, 0.001, 0.02, 0.0625, 0.125, 0.25])),
    }


@settings(max_examples=examples(150), deadline=None)
@given(data=tables(max_rows=40), config=st.one_of(configs(), configs(), sparse_configs()), options=cut_options())
def test_grow_tree__is_the_tree_that_is_grown_best_first(
    data: Data, config: TrainConfig, options: dict[str, Any]
) -> None:
    config = replace(config, **options).for_task("classification")
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(frame_of(data), Path(folder))
        found, known = grow_tree(store, config, 1), table_of(store, data)
        weights = Sampler(store, config).bag(1).tolist()
    assert_same(found, grow_cut(known, weights, config, 1))


@pytest.mark.parametrize("options", CUTS)
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_tree__is_that_of_scikit_learn(task: str, options: dict[str, Any]) -> None:
    draw = np.random.default_rng(4)
    x = draw.random((300, 3))
    signal = 2 * x[:, 0] + x[:, 1] * x[:, 2] + 0.2 * draw.random(300)
    y = np.digitize(signal, (0.8, 1.5)) if task == "classification" else signal
    peer = DecisionTreeClassifier if task == "classification" else DecisionTreeRegressor
    theirs = peer(random_state=0, min_samples_leaf=12, **options).fit(x, y)
    whole = peer(random_state=0, min_samples_leaf=12).fit(x, y).get_n_leaves()
    frame = pl.DataFrame(x, ["a", "b", "c"]).with_columns(y=y)
    ours = bf.train(frame, "y", task=task, family="tree", min_leaf=12, shrink="off", **options)
    nodes = ours.nodes.collect()
    assert nodes["left"].null_count() == theirs.get_n_leaves() < whole
    np.testing.assert_allclose(ours.predict(frame)["prediction"].to_numpy(), theirs.predict(x), rtol=1e-12)
    np.testing.assert_allclose(ours.feature_importances, theirs.feature_importances_, rtol=1e-9)


@pytest.mark.parametrize("rows", [3, 7, 10, 49])
def test_tree__a_split_that_decreases_impurity_by_just_the_option(rows: int) -> None:
    """It is kept by min_impurity_decrease and pruned by ccp_alpha, however the decrease is rounded."""
    cells = [0.0] + [1.0] * (rows - 1)
    decrease = 2 * (rows - 1) / rows**2  # the impurity of the root; the children have none
    frame = pl.DataFrame({"a": cells, "y": ["b" if cell else "c" for cell in cells]})
    for option, kept in (("min_impurity_decrease", 2), ("ccp_alpha", 1)):
        for value, leaves in ((decrease * (1 - 1e-9), 2), (decrease, kept), (decrease * (1 + 1e-9), 1)):
            forest = bf.train(frame, "y", family="tree", shrink="off", **{option: value})
            assert forest.nodes.collect()["left"].null_count() == leaves, (option, value)


FORESTS: dict[str, dict[str, Any]] = {
    "numbers": {},
    "categories and missing values": {"columns": ("a", "level", "gaps")},
    "random splits": {"splitter": "random", "columns": ("a", "level", "gaps")},
    "regression": {"target": "number", "columns": ("a", "level", "gaps")},
    "sparse-oblique": {"family": "sparse-oblique"},
    "rotation": {"family": "rotation"},
    "subspaces": {"family": "subspace-cap"},
    "entropy": {"impurity": "entropy", "target": "three"},
    "weights": {"weight": "weight"},
}


def store_and_config(options: dict[str, Any], folder: Path) -> tuple[Any, TrainConfig]:
    options = {"target": "two", **options}
    columns, target = options.pop("columns", ("a", "b", "few")), options.pop("target")
    weight = options.pop("weight", None)
    frame = table().with_columns(pl.col("a").clip(-9, 9)).select(*columns, target, *filter(None, [weight]))
    store = bf.encode_store(frame, folder / "t.store", target=target, weight=weight)
    config = TrainConfig.of(trees=3, seed=2, weight=weight, **options)
    return store, config.for_task(store.spec.target.task).with_defaults()


@pytest.mark.parametrize("cut", cases([CUTS[4], CUTS[1], CUTS[3], CUTS[0], CUTS[2]], quick=1))
@pytest.mark.parametrize("case", FORESTS)
def test_passes__give_the_files_of_growing_in_memory(case: str, cut: dict[str, Any], tmp_path: Path) -> None:
    """The leaves of rows out of bag are among them."""
    store, config = store_and_config({**FORESTS[case], **cut}, tmp_path)
    found = []
    for name, way in (("whole", WHOLE), ("passes", PASSES)):
        with patch("bigforest.grow.forest.compile_for"):  # it grows a tree, too
            grow_forest(ForestJob(store, config, tmp_path / name, Resources(threads=2), silent), plan=way)
        files = sorted((tmp_path / name).rglob("part-*"))
        found.append({str(path.relative_to(tmp_path / name)): path.read_bytes() for path in files})
    assert found[0] == found[1]
    assert any("leaves" in name for name in found[0]) == config.bootstrap
    whole = replace(config, max_leaf_nodes=None, min_impurity_decrease=0.0, ccp_alpha=0.0)
    assert grow_tree(store, whole, 0).feature.size > grow_tree(store, config, 0).feature.size > 1


@pytest.mark.parametrize(
    "more",
    [
        {"sampling": "adaboost"},
        {"shrink": 3.0},
        {"target": "number", "keep_targets": True},
        {"weight": "wide"},
        {"stop_oob": 0.5, "trees": 60},
        {"family": "rotation", "axes_from": "auto"},
    ],
    ids=str,
)
def test_train__goes_with_other_options(more: dict[str, Any]) -> None:
    options: dict[str, Any] = {"trees": 12, "target": "two", "keep_votes": True, **more}
    columns = ["a", "b", "few", options["target"], *filter(None, [options.get("weight")])]
    frame = table().with_columns(pl.col("a").clip(-9, 9)).select(columns)
    forest = bf.train(frame, max_leaf_nodes=5, ccp_alpha=0.002, **options)
    leaves = forest.nodes.filter(pl.col("left").is_null()).group_by("tree").len().collect()["len"]
    assert leaves.max() == 5
    votes = forest.oob_votes.collect()
    expected = forest.apply(frame)[votes["row"].to_numpy(), votes["tree"].to_numpy()]
    np.testing.assert_array_equal(votes["leaf"].to_numpy(), expected)
    if options.get("keep_targets"):
        low, high = forest.predict(frame, quantiles=[0.1, 0.9])[:, -2:]
        assert (low <= high).all()
    if "shrink" in more:
        grown = bf.train(frame, max_leaf_nodes=5, ccp_alpha=0.002, **options | {"shrink": "off"})
        assert forest.predict_proba(frame).equals(grown.shrink(3.0).predict_proba(frame))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(({"max_leaf_nodes": value}, "max_leaf_nodes must be a whole number from 2 to") for value in (-1, 0, 1)),
        *(({"max_leaf_nodes": value}, "max_leaf_nodes must be") for value in (2.5, "many", True, 2**31)),
        *(({"min_impurity_decrease": value}, "must be at least 0") for value in (-0.1, float("nan"), "much", 10**400)),
        *(({"ccp_alpha": value}, "ccp_alpha must be at least 0") for value in (-1, float("nan"), float("inf"), None)),
    ],
)
def test_config__refuses(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TrainConfig(**options)


@pytest.mark.parametrize("options", [{"min_impurity_decrease": 1e308}, {"ccp_alpha": 1.7e308}, {"ccp_alpha": 1}])
def test_train__huge_values_leave_the_root(options: dict[str, Any]) -> None:
    forest = bf.train(table().select("a", "b", "two"), "two", trees=3, **options)
    assert forest.nodes.collect()["node"].to_list() == [0, 0, 0]
