"""Interactions of pairs against the definition over all subsets, and against the package shap."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest as bf
from bigforest.errors import ConfigError
from tests.explain.made import Case, case_of, grown_case, oblique_case
from tests.naive.explain import interaction
from tests.thorough import examples


def dense(table: pl.DataFrame, rows: list[int], names: list[str], classes: list[Any] | None) -> np.ndarray:
    """The table as an array [rows, features, features, classes]; pairs that are not in it are 0."""
    found = np.zeros((len(rows), len(names), len(names), len(classes or [0])))
    labels = [0] * len(table) if classes is None else [classes.index(label) for label in table["class"].to_list()]
    for row, first, second, label, value in zip(
        table["row"].to_list(), table["feature"], table["other"], labels, table["interaction"].to_list(), strict=True
    ):
        found[rows.index(row), names.index(first), names.index(second), label] = value
    return found


def check(case: Case, vote: str = "soft") -> None:
    classes = case.forest.classes or None
    found = case.forest.explain(case.frame, parts="interactions", classes=classes, threads=1)
    names = case.forest.spec.feature_names
    got = dense(found["interactions"], [*range(len(case.rows))], names, classes)
    for i, row in enumerate(case.rows):
        trees = [interaction(tree, row, len(names), case.names, vote) for tree in case.trees]
        np.testing.assert_allclose(got[i], np.mean(trees, axis=0), rtol=1e-9, atol=1e-12)
    pairs = dense(found["interaction-pairs"].with_columns(row=0), [0], names, classes)
    np.testing.assert_allclose(pairs[0], np.abs(got).mean(axis=0), rtol=1e-12, atol=1e-300)
    by = ["row"] if classes is None else ["row", "class"]
    sums = found["interactions"].group_by(by).agg(pl.sum("interaction"), pl.first("base", "prediction"))
    total = (sums["base"] + sums["interaction"]).to_numpy()
    np.testing.assert_allclose(total, sums["prediction"].to_numpy(), atol=1e-9)


@settings(max_examples=examples(12))
@given(st.integers(0, 10_000), st.integers(1, 5), st.sampled_from(["classes", "numbers", "hard"]))
def test_interactions__are_those_over_all_subsets(seed: int, rows: int, kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(case_of(kind, Path(folder), rows, seed), "hard" if kind == "hard" else "soft")


def test_interactions__are_those_of_shap() -> None:
    shap = pytest.importorskip("shap")
    pytest.importorskip("sklearn")

    random = np.random.default_rng(3)
    matrix = random.normal(size=(300, 5)).astype(np.float32)
    target = matrix[:, 0] * matrix[:, 1] + np.abs(matrix[:, 2]) + random.normal(size=300) * 0.1
    forest = bf.train((matrix, target), task="regression", trees=5, max_depth=5, mtry=3)
    peer = shap.TreeExplainer(forest.to_sklearn(), feature_perturbation="tree_path_dependent")
    rows = [0, 7, 19]
    expected = peer.shap_interaction_values(matrix[rows])
    names = forest.spec.feature_names
    got = dense(forest.explain(matrix, parts="interactions", rows=rows)["interactions"], rows, names, None)[..., 0]
    both = expected + expected.transpose(0, 2, 1)
    both[:, range(5), range(5)] /= 2
    np.testing.assert_allclose(got, np.triu(both), atol=1e-9 * np.abs(both).max())


def test_interactions__of_chosen_rows_with_any_resources(tmp_path: Path) -> None:
    case = grown_case()
    first = case.forest.explain(case.frame, parts="interactions", sample=40, threads=1)["interactions"]
    again = case.forest.explain(case.frame, parts="interactions", sample=40, threads=2, memory="1GB")["interactions"]
    assert again.equals(first)
    rows = first["row"].unique().sort()[2:4].to_list()
    some = case.forest.explain(case.frame, tmp_path / "some", parts="interactions", rows=rows)
    assert some["interactions"].equals(first.filter(pl.col("row").is_in(rows)))
    assert rows == some["interactions"]["row"].unique(maintain_order=True).to_list()
    with pytest.raises(ConfigError, match="from 0 to 199, not 200"):
        case.forest.explain(case.frame, parts="interactions", rows=[200])
    with pytest.raises(ConfigError, match="needs at least"):
        case.forest.explain(case.frame, parts="interactions", memory="100MB")


def test_interactions__refuse_projections(tmp_path: Path) -> None:
    case = oblique_case(tmp_path, 5, 1)
    with pytest.raises(ConfigError, match="splits on projections"):
        case.forest.explain(case.frame, parts="interactions")
