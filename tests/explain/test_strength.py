"""Strength, correlation and bound against the definition, vote by vote."""

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
from tests.explain.made import PLAIN, bags_of, grown_case, mixed_case
from tests.naive.explain import answers, strength
from tests.naive.predict import find_leaf
from tests.thorough import examples


@settings(max_examples=examples(10))
@given(st.integers(0, 10_000), st.integers(1, 40))
def test_strength__of_rows_no_tree_has_seen(seed: int, rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        case = mixed_case(Path(folder), rows, seed, trees=7)
        found = case.forest.explain(case.frame, parts="strength", new_rows=True, threads=1)
    says = [[own.index(max(own)) for own in answers(tree)] for tree in case.trees]
    votes = [
        [votes[find_leaf(tree, case.rows[row], case.names)] for row in case.kept]
        for tree, votes in zip(case.trees, says, strict=True)
    ]
    truth = [case.truth[row] for row in case.kept]
    table = found["strength"]
    assert table["trees"].to_list() == [1, 2, 5, 7]
    for line in table.iter_rows(named=True):
        expected = strength(votes[: line["trees"]], truth, [1.0] * len(truth), 3)
        for name, value in expected.items():
            assert line[name] == (None if value is None else pytest.approx(value, abs=1e-9)), name
    for k, label in enumerate(case.forest.classes):
        of_class = [i for i, own in enumerate(truth) if own == k]
        line = (
            found["strength-classes"]
            .filter(trees=7)
            .filter(found["strength-classes"].filter(trees=7)["class"] == label)
        )
        assert line["rows"].item() == len(of_class)
        if of_class:
            some = [[tree[i] for i in of_class] for tree in votes]
            expected = strength(some, [k] * len(of_class), [1.0] * len(of_class), 3)
            assert line["strength"].item() == pytest.approx(expected["strength"])


@pytest.mark.parametrize(
    "options", [{}, {"vote": "hard"}, {"vote": "hard", "min_leaf": 8, "shrink": 40.0}], ids=["axis", "hard", "shrunk"]
)
def test_strength__looks_at_votes_out_of_bag(options: dict[str, Any]) -> None:
    case = grown_case(**options)
    line = check_votes(case.forest, case.frame)
    if options.get("vote") == "hard":
        assert line["error"] == pytest.approx(case.forest.oob.error)


def test_strength__of_projections_looks_at_votes_out_of_bag() -> None:
    matrix = np.random.default_rng(0).normal(size=(200, 4))
    frame = pl.DataFrame(matrix).with_columns(y=pl.Series(np.where(matrix[:, 0] > matrix[:, 1], "a", "b")))
    check_votes(bf.train(frame, "y", trees=6, threads=1, family="sparse-oblique", **PLAIN), frame)


def check_votes(forest: bf.Forest, frame: pl.DataFrame) -> dict[str, Any]:
    """Assert that the strength is that of the votes of trees for rows that are not in their bags, and return it."""
    bags = forest.inbag()
    kept, votes = bags["row"].to_list(), []
    for tree in range(forest.trees):
        says = forest.predict(frame, trees=[tree])["prediction"].to_list()
        pairs = zip(kept, bags[str(tree)].to_list(), strict=True)
        votes.append([forest.classes.index(says[row]) if count == 0 else None for row, count in pairs])
    codes = [forest.classes.index(frame["y"][row]) for row in kept]
    line = forest.explain(frame, parts="strength")["strength"].row(-1, named=True)
    for name, value in strength(votes, codes, [1.0] * len(codes), 2).items():
        assert line[name] == pytest.approx(value, abs=1e-9), name
    return line


@pytest.mark.parametrize("amount", [0.0, 5.0])
def test_strength__of_numbers(amount: float) -> None:
    case = grown_case(task="regression", shrink=amount)
    found = case.forest.explain(case.frame, parts="strength")["strength"].row(-1, named=True)
    assert found["mse"] == pytest.approx(case.forest.oob.error)
    errors = []
    for tree, bag in zip(case.trees, bags_of(case), strict=True):
        own = [row for row, count in zip(case.kept, bag, strict=True) if count == 0]
        says = answers(tree, amount or "soft")
        squares = [(says[find_leaf(tree, case.rows[row], case.names)][0] - case.truth[row]) ** 2 for row in own]
        errors.append(np.mean(squares))
    assert found["tree_mse"] == pytest.approx(np.mean(errors))
    assert found["correlation"] == pytest.approx(found["mse"] / np.mean(np.sqrt(errors)) ** 2)
    assert found["bound"] >= found["mse"] * (1 - 1e-12)
