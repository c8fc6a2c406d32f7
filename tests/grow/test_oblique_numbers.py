"""Regression trees that split on projections against the oracle, node for node."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.grow.families.rotation import RotationFamily
from bigforest.grow.families.sparse_oblique import feature_scale
from bigforest.grow.forest import grow_tree, rules_of
from bigforest.options.train_config import TrainConfig
from bigforest.sampling.bags import Sampler
from tests.grow.test_mixed_forest import assert_same, store_of, table_of
from tests.kernels.test_exact_large import bits, bytes_, clumped, floats, skewed, table, ties, words
from tests.naive.quick_split import best_split
from tests.naive.rotation import rotated
from tests.naive.tree import Node, grow
from tests.strategies import Data, rotation_configs, sparse_configs, tables
from tests.thorough import cases, examples

COMPILED = not numba.config.DISABLE_JIT


def without_classes(config: TrainConfig) -> TrainConfig:
    """The configuration without what needs classes."""
    rotation = "pca" if config.rotation == "pca-classes" else config.rotation
    return replace(config, mean_difference="none", mean_difference_scope="tree", rotation=rotation)


def check_numbers(data: Data, config: TrainConfig, *, weighted: bool = False, seed: int = 0, tree: int = 0) -> None:
    """Assert that bigforest grows the oracle's tree, on the oracle's table in the coordinates of its axes for
    rotation, with random targets about the classes of the data."""
    config = without_classes(config)
    with tempfile.TemporaryDirectory() as folder:
        store, config = store_of(data, config, Path(folder), numbers=True, weighted=weighted, seed=seed)
        found = grow_tree(store, config, tree)
        sampler = Sampler(store, config)
        weights = sampler.search_weights(tree, 0, sampler.bag(tree)).tolist()
        rules = rules_of(store, config)
        scaled = replace(config, min_split=rules.min_split, min_leaf=rules.min_leaf)
        known = table_of(store, scaled)
        if config.family == "rotation":
            axes = RotationFamily().tree_axes(sampler, tree, feature_scale(store, "zscore")).tolist()
            nodes = grow(rotated(known, axes, np.flatnonzero(weights).tolist()), weights, scaled, tree, best_split)
            nodes = [_in_terms(node, axes) for node in nodes]
        else:
            nodes = grow(known, weights, scaled, tree, best_split)
        assert_same(found, nodes, store, config)


def _in_terms(node: Node, axes: list[list[float]]) -> Node:
    """A node on an axis as one on the terms of the axis."""
    if node.feature == -1:
        return node
    terms = tuple((feature, weight) for feature, weight in enumerate(axes[node.feature]) if weight)
    return node._replace(feature=-2, terms=terms, default_left=None)


@settings(max_examples=examples(200 if COMPILED else 20))
@given(
    data=tables(),
    config=st.one_of(sparse_configs(), sparse_configs(), rotation_configs()),
    weighted=st.booleans(),
    bins=st.sampled_from(["exact", "exact", 3]),
    seed=st.integers(0, 2**32 - 1),
    tree=st.integers(0, 2),
)
def test_grow_tree__random_tables_and_options(
    data: Data, config: TrainConfig, weighted: bool, bins: str | int, seed: int, tree: int
) -> None:
    check_numbers(data, replace(config, max_bins=bins), weighted=weighted, seed=seed, tree=tree)


# Larger tables, where every way of scanning takes part.


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize(
    ("kind", "bins"), cases([("rerf", "exact"), ("gaussian", 16), ("sporf", "exact"), ("very-sparse", 16)], quick=2)
)
def test_grow_tree__3_000_rows(kind: str, bins: str | int) -> None:
    config = TrainConfig(family="sparse-oblique", projection_kind=kind, projections=4, min_leaf=3, max_bins=bins)
    check_numbers(table(3000, 5, 7, [floats, clumped, ties, skewed]), config, seed=4)


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
def test_grow_tree__20_000_rows() -> None:
    config = TrainConfig(family="sparse-oblique", projections=3, projection_kind="sporf", density=0.7, max_depth=4)
    check_numbers(table(20_000, 9, 4, [words, bytes_, bits, floats]), config, weighted=True)


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("tail", [1e3, 1e300, 0.0])
def test_grow_tree__projections_in_clumps_and_far_apart(tail: float) -> None:
    # One value so large that all others share a bucket; or each value a fraction of the next; or last bits alone.
    draw = np.random.default_rng(3)
    rows = 3000
    signal = draw.normal(0, 1, rows)
    if tail:
        column = np.where(np.arange(rows) == 7, tail, signal)
        other = np.where(draw.random(rows) < 0.3, np.exp(draw.normal(0, 40, rows)), draw.random(rows))
    else:
        column = np.nextafter(1.0, np.where(draw.random(rows) < 0.5, 0.0, 2.0)) + np.round(signal) * 2.0**-52
        other = 2.0 ** -draw.integers(0, 1000, rows)
    target = np.digitize(signal + draw.normal(0, 0.5, rows), np.linspace(-1, 1, 7)[1:-1])
    data = Data(np.column_stack([column, other, signal * 1e-3]), target)
    config = TrainConfig(family="sparse-oblique", projections=3, projection_kind="sporf", density=0.7, max_depth=7)
    check_numbers(data, config, seed=1)
