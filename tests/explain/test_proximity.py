"""Proximities against the definition, and that they are what the forest answers out of bag."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.columns.arrow_arrays import read_only
from bigforest.errors import ConfigError
from bigforest.kernels.explain.proximities import LeafRows, find_neighbors
from tests.explain.made import PLAIN, bags_of, grown_case
from tests.naive.explain import proximities


@pytest.mark.parametrize(
    "options",
    [{}, {"min_leaf": 5}, {"task": "regression"}, {"sample_fraction": 0.4, "replace": False}, {"sampling": "balanced"}],
    ids=["pure", "large leaves", "numbers", "without replacement", "balanced"],
)
def test_proximities__are_those_of_the_definition(options: dict[str, Any]) -> None:
    case = grown_case(80, **options)
    found = case.forest.explain(case.frame, parts="proximities", neighbors=100, threads=1)
    kept, times = case.kept, bags_of(case)
    leaves = case.forest.apply(case.frame)[kept].T.tolist()
    table = found["neighbors"]
    for at, row in enumerate(kept):
        expected = proximities(leaves, times, [1.0] * len(kept), at)
        near = sorted((j for j in range(len(kept)) if expected[j] > 0), key=lambda j: (-round(expected[j], 12), j))
        own = table.filter(row=row)
        np.testing.assert_allclose(own["proximity"].to_numpy(), [expected[j] for j in near], atol=1e-12)
        got = dict(zip(own["neighbor"].to_list(), own["proximity"].to_list(), strict=True))
        assert {kept[j]: pytest.approx(expected[j]) for j in near} == got
        assert own["rank"].to_list() == list(range(1, len(near) + 1))
    check_answers(case.forest, case.frame, table, found)


def check_answers(forest: bf.Forest, frame: pl.DataFrame, table: pl.DataFrame, found: bf.Explanation) -> None:
    """Assert that proximities times targets are the answers out of bag."""
    report = forest.oob.rows.filter(pl.col("trees") > 0).collect()
    labelled = table.join(
        frame.with_row_index("neighbor").select(pl.col("neighbor").cast(pl.UInt64), "y"), on="neighbor"
    )
    if forest.is_regression:
        means = labelled.group_by("row").agg((pl.col("proximity") * pl.col("y")).sum()).sort("row")
        np.testing.assert_allclose(means["proximity"].to_numpy(), report["prediction"].to_numpy(), rtol=1e-9)
        return
    for label in forest.classes:
        own = found["proximity-classes"].filter(pl.col("class") == label).sort("row")
        shares = own.join(report.select("row", f"p_{label}"), on="row", how="inner")
        assert len(shares) == len(report)
        np.testing.assert_allclose(shares["proximity"].to_numpy(), shares[f"p_{label}"].to_numpy(), atol=1e-12)


def test_proximities__weigh_rows() -> None:
    weights = np.random.default_rng(0).choice([0.25, 1.0, 3.0], 200)
    frame = grown_case().frame.with_columns(w=pl.Series(weights))
    forest = bf.train(frame, "y", trees=5, weight="w", threads=1, **PLAIN)
    found = forest.explain(frame, parts="proximities", neighbors=200)
    check_answers(forest, frame, found["neighbors"], found)


def test_proximities__of_chosen_rows() -> None:
    case = grown_case()
    every = case.forest.explain(case.frame, parts="proximities", neighbors=4)["neighbors"]
    some = case.kept[3], case.kept[40]
    found = case.forest.explain(case.frame, parts="proximities", neighbors=4, rows=some, threads=2)["neighbors"]
    assert found.equals(every.filter(pl.col("row").is_in(some)))
    with pytest.raises(ConfigError, match="from 0 to 199, not 200"):
        case.forest.explain(case.frame, parts="proximities", rows=[200])


def test_outliers__and_prototypes() -> None:
    random = np.random.default_rng(0)
    rows = 300
    matrix = random.normal(size=(rows, 2)) + np.repeat([[0, 0], [6, 6], [0, 6]], 100, axis=0)
    labels = np.repeat(["a", "b", "c"], 100)
    labels[0] = "b"  # in the middle of others
    matrix[0] = 0
    forest = bf.train((matrix, labels), trees=30, **PLAIN)
    found = forest.explain((matrix, labels), parts="proximities")
    scores = found["outliers"].sort("score", descending=True, nulls_last=True)
    assert scores["row"][0] == 0
    prototypes = found["prototypes"]
    first = prototypes.filter(number=1)
    assert first["class"].to_list() == ["a", "b", "c"]
    assert [labels[row] for row in first["row"].to_list()] == ["a", "b", "c"]
    assert 0 not in prototypes["row"].to_list()
    again = forest.explain((matrix, labels), parts="proximities", threads=1, memory="1GB")
    assert all(found[name].equals(again[name]) for name in found.tables)


def test_find_neighbors__touches_each_row_once() -> None:
    """Rows whose share is 0 beside heavy ones, in every tree: nothing is written beyond the scratch."""
    trees, rows = 5, 6
    weight = np.array([1.0, 1e-200, 1e-200, 1e-200, 1e150, 1e150])
    bag = np.ones((trees, rows), np.uint16)
    bag[:, 0] = 0
    members = np.tile(np.array([1, 2, 3, 4, 5, 0], np.uint32), (trees, 1))
    start = np.tile(np.array([0, 5], np.uint32), trees)
    lists = map(read_only, (np.zeros((trees, rows), np.uint32), bag, members))
    known = LeafRows(*lists, np.arange(0, 2 * trees + 1, 2), start, weight)
    beyond = np.full(100, 77, np.uint32)
    scratch = (np.zeros(rows), beyond[:rows])
    place, found, sums = np.zeros((1, 4), np.uint32), np.zeros((1, 4)), np.zeros((1, 1, 2))
    find_neighbors(np.zeros(1, np.uint32), known, np.zeros(rows, np.uint16), scratch, place, found, sums)
    assert (beyond[rows:] == 77).all()
    assert place[0, :2].tolist() == [4, 5]
    np.testing.assert_allclose(found[0], [0.5, 0.5, 0.0, 0.0])
    np.testing.assert_allclose(sums[0, 0], [1.0, 0.5])
