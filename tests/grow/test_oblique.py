"""Sparse-oblique trees against the oracle, node for node."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.options.train_config import TrainConfig
from tests.grown import check_large_tree, check_tree
from tests.kernels.test_exact_large import Column, Draw, bits, clumped, floats, skewed, table, ties, words
from tests.naive.split import SCORES
from tests.strategies import Data, sparse_configs, tables
from tests.thorough import cases, examples

COMPILED = not numba.config.DISABLE_JIT
EXAMPLES = 400 if COMPILED else 30


@settings(max_examples=examples(EXAMPLES))
@given(data=tables(), config=sparse_configs(), tree=st.integers(0, 2))
def test_grow_tree__random_tables_and_options(data: Data, config: TrainConfig, tree: int) -> None:
    check_tree(data, config, tree)


@settings(max_examples=examples(EXAMPLES // 8))
@given(data=tables(max_rows=200, max_features=3, max_classes=3), config=sparse_configs())
def test_grow_tree__a_few_hundred_rows(data: Data, config: TrainConfig) -> None:
    check_tree(data, config)


# Larger tables, where every way of scanning takes part.


def check_oblique(data: Data, config: TrainConfig, tree: int = 0) -> None:
    """`check_large_tree`, where sums of features must have been found worth their while."""
    assert any(node.feature == -2 for node in check_large_tree(data, config, tree))


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize(
    ("kind", "classes"), cases([("rerf", 3), ("sporf", 2), ("gaussian", 10), ("very-sparse", 3)], quick=3)
)
def test_grow_tree__3_000_rows(kind: str, classes: int) -> None:
    config = TrainConfig(family="sparse-oblique", projection_kind=kind, seed=classes, projections=6, min_leaf=3)
    check_oblique(table(3000, classes, 7), config)


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("impurity", SCORES)
@pytest.mark.parametrize("min_leaf", cases([20, 1], quick=1))
def test_grow_tree__any_impurity_and_large_leaves(impurity: str, min_leaf: int) -> None:
    for classes in (2, 5):
        config = TrainConfig(
            family="sparse-oblique", impurity=impurity, min_leaf=min_leaf, projections=5, normalize="zscore"
        )
        check_oblique(table(1500, classes, 3), config)


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize(("classes", "kinds"), [(2, [words, ties, bits]), (7, [floats, skewed, clumped])])
def test_grow_tree__20_000_rows(classes: int, kinds: list[Callable[[Draw, Column], Column]]) -> None:
    data = table(20_000, classes, 4, kinds)
    config = TrainConfig(family="sparse-oblique", projections=4, projection_kind="sporf", density=0.6, max_depth=4)
    check_oblique(data, config)


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("tail", [1e3, 1e300, 0.0])
def test_grow_tree__projections_in_clumps_and_far_apart(classes: int, tail: float) -> None:
    # One value so large that all others share a bucket; or each value a fraction of the next; or last bits alone.
    draw = np.random.default_rng(classes)
    rows = 3000
    signal = draw.normal(0, 1, rows)
    if tail:
        column = np.where(np.arange(rows) == 7, tail, signal)
        other = np.where(draw.random(rows) < 0.3, np.exp(draw.normal(0, 40, rows)), draw.random(rows))
    else:
        column = np.nextafter(1.0, np.where(draw.random(rows) < 0.5, 0.0, 2.0)) + np.round(signal) * 2.0**-52
        other = 2.0 ** -draw.integers(0, 1000, rows)
    target = np.digitize(signal + draw.normal(0, 0.5, rows), np.linspace(-1, 1, classes + 1)[1:-1])
    data = Data(np.column_stack([column, other, signal * 1e-3]), target)
    config = TrainConfig(family="sparse-oblique", projections=6, projection_kind="sporf", density=0.7, max_depth=7)
    check_large_tree(data, config)


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
def test_grow_tree__capped_codes() -> None:
    config = TrainConfig(family="sparse-oblique", projections=5, projection_kind="sporf", density=0.5, max_bins=16)
    check_oblique(table(2500, 3, 9), config)


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 10])
def test_grow_tree__hundreds_of_features(classes: int) -> None:
    data = table(1500, classes, 10, [words, ties, bits, skewed] * 70)
    check_oblique(data, TrainConfig(family="sparse-oblique", max_depth=6))
