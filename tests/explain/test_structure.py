"""What the trees look like, against the table of nodes, and rules against the rows that end in their leaves."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.execution import resources as resources_module
from bigforest.execution.resources import Resources
from bigforest.planning.sizes import Limits
from tests.explain.made import grown_case, mixed_case, oblique_case
from tests.naive.explain import answers, features_at


def test_trees__are_counted() -> None:
    case = grown_case()
    found = case.forest.explain(parts="trees", threads=2)
    nodes = case.forest.nodes.collect()
    leaves = nodes.filter(pl.col("left").is_null())
    expected = nodes.group_by("tree", maintain_order=True).agg(pl.len().alias("nodes"), pl.col("depth").max())
    table = found["trees"]
    assert table["nodes"].to_list() == expected["nodes"].to_list()
    assert table["depth"].to_list() == expected["depth"].to_list()
    assert table["leaves"].to_list() == leaves.group_by("tree", maintain_order=True).len()["len"].to_list()
    mean = leaves.group_by("tree", maintain_order=True).agg(
        (pl.col("depth") * pl.col("weight")).sum() / pl.col("weight").sum()
    )
    np.testing.assert_allclose(table["mean_depth"].to_numpy(), mean["depth"].to_numpy())
    splits = (
        nodes.filter(pl.col("feature").is_not_null())
        .group_by(pl.col("feature").cast(pl.String))
        .agg(
            pl.len().alias("nodes"),
            pl.col("tree").n_unique().alias("trees"),
            pl.col("depth").mean().alias("level"),
            pl.col("weight").sum(),
        )
    )
    both = found["tree-features"].join(splits, on="feature", suffix="_too")
    assert len(both) == 4
    for name in ("nodes", "trees", "level", "weight"):
        np.testing.assert_allclose(both[name].to_numpy(), both[f"{name}_too"].to_numpy())


def test_tree_features__wide_weights_are_summed_in_their_own_unit() -> None:
    draw = np.random.default_rng(0)
    table = pl.DataFrame({"a": draw.normal(size=80), "y": draw.normal(size=80), "w": draw.uniform(0.5, 2.0, 80)})
    forest = bf.train(table, "y", weight="w", trees=30, refine="off")
    weight = forest.spec.weight
    assert weight is not None and weight.wide
    splits = forest.nodes.filter(pl.col("kind") != "leaf").select("weight").collect()["weight"].to_list()
    assert sum(splits) > 2**63  # int64 would overflow
    found = forest.explain(parts="trees")["tree-features"]["weight"].to_list()
    assert found == [pytest.approx(sum(splits) * weight.step)]


def test_tree_pairs__are_parents_and_children(tmp_path: Path) -> None:
    for case in (mixed_case(tmp_path / "mixed", 5, 1), oblique_case(tmp_path / "oblique", 5, 2)):
        names = case.forest.spec.feature_names
        pairs: Counter[tuple[str, str]] = Counter()
        for tree in case.trees:
            for node in np.flatnonzero(tree.feature != -1).tolist():
                for child in (node + 1, int(tree.right[node])):
                    if tree.feature[child] != -1:
                        pairs.update(
                            (names[a], names[b]) for a in features_at(tree, node) for b in features_at(tree, child)
                        )
        found = case.forest.explain(parts="trees", rules=3)["tree-pairs"]
        assert {(a, b): count for a, b, count in found.rows()} == pairs


def test_trees__are_the_same_in_any_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = partial(Resources, limits=Limits(explain_bytes=1, explain_pairs=3))
    for case in (mixed_case(tmp_path / "mixed", 5, 1), oblique_case(tmp_path / "oblique", 5, 2)):
        first = case.forest.explain(parts="trees", rules=4, threads=1)
        with monkeypatch.context() as patched:
            patched.setattr(resources_module, "Resources", few)
            again = case.forest.explain(parts="trees", rules=4, threads=2, memory="1GB")
        assert all(first[name].equals(again[name], null_equal=True) for name in first.tables)


def test_rules__are_what_leads_to_the_leaf() -> None:
    """Rules on numbers alone are conditions of SQL, which select the rows of the leaf."""
    random = np.random.default_rng(1)
    matrix = random.normal(size=(300, 3)).round(2)
    labels = np.where(matrix[:, 0] + matrix[:, 1] ** 2 > 0.5, "p", "q")
    forest = bf.train((matrix, labels), trees=3, min_leaf=10)
    frame = pl.DataFrame(matrix, schema=["x0", "x1", "x2"])
    leaves = forest.apply(frame)
    rules = forest.explain(parts="trees", rules=8)["rules"]
    assert len(rules) == 8
    for line in rules.iter_rows(named=True):
        conditions = line["rule"].split(" and ")
        holds = np.ones(300, np.bool_)
        for text in conditions:
            words = text.split()
            if len(words) == 5:  # low < name <= high
                column = frame[words[2]].to_numpy()
                holds &= (float(words[0]) < column) & (column <= float(words[4]))
            else:
                column = frame[words[0]].to_numpy()
                holds &= column <= float(words[2]) if words[1] == "<=" else column > float(words[2])
        assert np.array_equal(holds, leaves[:, line["tree"]] == line["node"])
        assert line["share"] >= 0.5


def test_rules__let_a_missing_value_pass_only_where_it_does() -> None:
    """A missing value that one condition on a number keeps out is not let in by a later one on the same number."""
    random = np.random.default_rng(0)
    frame = pl.DataFrame(random.normal(size=(400, 2)), schema=["x", "y"])
    labels = ((frame["x"] > 0) ^ (frame["y"] > 0)).cast(pl.Int64).alias("target")
    frame = frame.with_columns(labels, x=frame["x"].set(pl.Series(random.random(400) < 0.2), None))
    forest = bf.train(frame, "target", trees=5, bootstrap=False)
    leaves, gone = forest.apply(frame), frame["x"].is_null().to_numpy()
    told = set()
    for line in forest.explain(parts="trees", rules=200)["rules"].iter_rows(named=True):
        on_x = [text for text in line["rule"].split(" and ") if "x" in text.split()[:3] or "(x" in text]
        passes = all("or missing" in text for text in on_x)
        told.add(passes)
        rows = gone & (leaves[:, line["tree"]] == line["node"])
        assert passes or not rows.any()
        if passes:  # and every other condition holds of some missing row only where it ends here
            others = [text for text in line["rule"].split(" and ") if text not in on_x]
            holds = gone.copy()
            for text in others:
                low, high = _bounds(text)
                holds &= ((frame["y"] > low) & (frame["y"] <= high)).to_numpy()
            assert np.array_equal(holds, rows)
    assert told == {True, False}


def _bounds(text: str) -> tuple[float, float]:
    """The bounds of a condition on a number: `y <= 1`, `y > 0`, or `0 < y <= 1`."""
    words = text.split()
    if len(words) == 5:
        return float(words[0]), float(words[4])
    return (float("-inf"), float(words[2])) if words[1] == "<=" else (float(words[2]), float("inf"))


@pytest.mark.parametrize("family", ["axis", "sparse-oblique"])
def test_rules__quote_levels_that_could_not_be_told_apart(family: str) -> None:
    levels = ["", "missing", None, "a"] * 50
    frame = pl.DataFrame({"c": levels, "y": ["no" if not level else "yes" for level in levels]})
    forest = bf.train(frame, target="y", trees=2, family=family)
    rules = forest.explain(frame, parts="trees")["rules"]["rule"].to_list()
    assert any("{missing, ''}" in rule or "{a, 'missing'}" in rule for rule in rules)


def test_rules__name_levels_missing_values_and_projections(tmp_path: Path) -> None:
    case = mixed_case(tmp_path / "mixed", 5, 3, trees=6)
    rules = " ".join(case.forest.explain(parts="trees", rules=100)["rules"]["rule"].to_list())
    assert "c1 in {" in rules or "c1 not in {" in rules
    assert "or missing)" in rules
    oblique = oblique_case(tmp_path / "oblique", 5, 1)
    texts = oblique.forest.explain(parts="trees", rules=100)["rules"]["rule"].to_list()
    assert any(" + " in text for text in texts)


def test_rules__come_in_the_order_of_what_they_tell() -> None:
    case = grown_case(task="regression")
    rules = case.forest.explain(parts="trees", rules=5)["rules"]
    interest = []
    for number, tree in enumerate(case.trees):
        own = answers(tree)
        root = float(tree.value[0])
        for node in np.flatnonzero(tree.feature == -1).tolist():
            interest.append(
                (-float(tree.weight[node]) / float(tree.weight[0]) * (own[node][0] - root) ** 2, number, node)
            )
    assert [(line["tree"], line["node"]) for line in rules.to_dicts()] == [(b, c) for _, b, c in sorted(interest)[:5]]
