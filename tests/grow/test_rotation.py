"""Rotation trees against the oracle; the axes they are grown on; and what becomes of columns that cannot be turned."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest as bf
from bigforest.grow.families.rotation import RotationFamily, moments
from bigforest.grow.families.sparse_oblique import feature_scale
from bigforest.grow.forest import grow_tree
from bigforest.grow.out_of_core.probes import Spans
from bigforest.kernels.common.rng import stream_key
from bigforest.kernels.oblique.directions import draw_axes
from bigforest.options.train_config import TrainConfig
from bigforest.sampling.bags import Sampler
from tests.grown import frame_of, store_of, table_of, terms_of
from tests.naive.bag import bag_of
from tests.naive.oblique import scales
from tests.naive.quick_split import best_split as quick_split
from tests.naive.rotation import moments_of, random_axes, rotated, sampled
from tests.naive.tree import grow
from tests.strategies import Data, rotation_configs, tables
from tests.thorough import examples

COMPILED = not numba.config.DISABLE_JIT


def check_rotation(data: Data, config: TrainConfig, tree: int = 0, some: Collection[int] = ()) -> None:
    """Assert that bigforest grows the oracle's tree on the oracle's axes (its own, if they are principal ones).

    some  features that axes are made from; all if there are none.
    """
    some = sorted({feature % data.values.shape[1] for feature in some}) or range(data.values.shape[1])
    if len(some) < data.values.shape[1]:
        config = replace(config, axes_from=tuple(f"x{feature}" for feature in some))
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(frame_of(data), Path(folder), config.max_bins)
        found = grow_tree(store, config, tree)
        table = table_of(store, data)
        axes = RotationFamily().tree_axes(Sampler(store, config), tree, feature_scale(store, "zscore")).tolist()
    if config.rotation == "random":
        scale = scales(table, "zscore")
        drawn = random_axes(config.seed, tree, config.axes or len(some), len(some), config.orthogonal)
        drawn = [[axis[some.index(k)] if k in some else 0.0 for k in range(len(scale))] for axis in drawn]
        drawn += [[float(k == own) for k in range(len(scale))] for own in range(len(scale)) if own not in some]
        assert axes == [[a * s for a, s in zip(axis, scale, strict=True)] for axis in drawn]
    weights = bag_of(data.target.tolist(), tree, config)
    expected = grow(rotated(table, axes, np.flatnonzero(weights).tolist()), weights, config, tree, quick_split)
    assert found.feature.tolist() == [-1 if node.feature == -1 else -2 for node in expected]
    assert found.counts.tolist() == [node.counts for node in expected]
    for number, node in enumerate(expected):
        if node.feature >= 0:
            assert found.threshold[number] == node.threshold
            assert found.right[number] == node.right
            terms = terms_of(found, number)
            assert terms == tuple((f, weight) for f, weight in enumerate(axes[node.feature]) if weight)


@settings(max_examples=examples(200 if COMPILED else 20))
@given(data=tables(), config=rotation_configs(), tree=st.integers(0, 2), some=st.sets(st.integers(0, 4)))
def test_grow_tree__random_tables_and_options(data: Data, config: TrainConfig, tree: int, some: set[int]) -> None:
    check_rotation(data, config, tree, some)


def check_moments(data: Data, config: TrainConfig, tree: int) -> None:
    """Assert that the sums that components follow from are the oracle's, in memory and by blocks of a few rows."""
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(frame_of(data), Path(folder), config.max_bins)
        table = table_of(store, data)
        sampler = Sampler(store, config)
        low, high = table.low.min(axis=0), table.low.max(axis=0)
        rows = range(store.rows)
        found = moments(sampler, tree, rows, Spans(low, high), lambda feature: table.low[:, feature])
    expected = moments_of(table, config, tree, bag_of(data.target.tolist(), tree, config))
    assert len(found) == len(expected)
    for one, other in zip(found.tolist(), expected, strict=True):
        assert [line[: len(other)] for line in one[: len(other)]] == other
        assert sum(map(sum, one)) == sum(map(sum, other))  # and nothing besides


@settings(max_examples=examples(100 if COMPILED else 20))
@given(
    data=tables(),
    config=rotation_configs(),
    tree=st.integers(0, 2),
    kind=st.sampled_from(["pca", "pca-classes"]),
    size=st.sampled_from([None, 1, 2, 3]),
)
def test_moments__random_tables_and_options(
    data: Data, config: TrainConfig, tree: int, kind: Any, size: int | None
) -> None:
    check_moments(data, replace(config, rotation=kind, axes=None, orthogonal=True, axis_features=size), tree)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_tree_axes__are_components_of_the_sampled_rows(size: int) -> None:
    draw = np.random.default_rng(size)
    values = draw.normal(size=(300, 8)) @ draw.normal(size=(8, 8))
    data = Data(values, draw.integers(0, 3, 300))
    config = TrainConfig(family="rotation", rotation="pca-classes", axis_features=size, seed=4)
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(frame_of(data), Path(folder))
        scale = feature_scale(store, "zscore")
        axes = RotationFamily().tree_axes(Sampler(store, config), 1, scale) / scale
        table = table_of(store, data)
    weights = bag_of(data.target.tolist(), 1, config)
    for subset in range(8 // size):
        group = axes[subset * size : (subset + 1) * size]
        own = np.flatnonzero(group.any(axis=0))
        assert own.size == size
        count = sampled(table, config, 1, subset, weights)
        covariance = np.atleast_2d(np.cov((values * scale)[:, own].T, fweights=count))
        turned = group[:, own] @ covariance @ group[:, own].T
        assert np.allclose(group @ group.T, np.eye(size))
        assert np.allclose(turned, np.diag(np.diag(turned)), atol=1e-3)
        assert np.allclose(np.sort(np.diag(turned)), np.linalg.eigvalsh(covariance), atol=1e-3)


def test_tree_axes__rows_out_of_bag_do_not_count() -> None:
    """Values of rows out of bag are changed within the range; deviations are handed over, so only components see it."""
    draw = np.random.default_rng(3)
    values, target = draw.random((200, 4)), np.arange(200) % 3
    values[:2] = [[0.0] * 4, [1.0] * 4]
    config = TrainConfig(family="rotation", rotation="pca-classes", axis_features=4)
    out = np.flatnonzero(np.array(bag_of(target.tolist(), 0, config)) == 0)
    changed = values.copy()
    changed[out[out > 1]] = draw.random((out[out > 1].size, 4))
    found = {}
    for name, one in {"as they are": values, "changed": changed}.items():
        for kind in ("pca", "pca-classes"):
            with tempfile.TemporaryDirectory() as folder:
                store = store_of(frame_of(Data(one, target)), Path(folder))
                sampler = Sampler(store, replace(config, rotation=kind))
                found[name, kind] = RotationFamily().tree_axes(sampler, 0, np.ones(4)).tolist()
    assert found["as they are", "pca-classes"] == found["changed", "pca-classes"]
    assert found["as they are", "pca"] != found["changed", "pca"]


@pytest.mark.parametrize("orthogonal", [True, False])
def test_draw_axes__moments_are_those_of_directions_drawn_uniformly(orthogonal: bool) -> None:
    features = 4
    axes = np.empty((20_000 if COMPILED else 400, features))
    with np.errstate(over="ignore"):
        draw_axes(stream_key(1, np.uint64(5), 0, 0), orthogonal, axes)
    assert np.allclose((axes**2).sum(axis=1), 1.0)
    # A point drawn in a box and pulled to the sphere fails the second: its fourth moment is larger.
    near = 0.01 if COMPILED else 0.1
    assert np.allclose((axes**2).mean(axis=0), 1 / features, atol=near)
    assert np.allclose((axes**4).mean(axis=0), 3 / (features * (features + 2)), atol=near)
    if orthogonal:
        for group in axes[:100].reshape(-1, features, features):
            assert np.allclose(group @ group.T, np.eye(features), atol=1e-9)


@pytest.mark.parametrize(
    "options", [{"family": "rotation"}, {"family": "sparse-oblique", "normalize": "zscore"}], ids=str
)
@pytest.mark.parametrize("value", [3.5, 0.1, 7.0, -1e9])
def test_terms__of_standardised_features_without_constants(options: dict[str, Any], value: float) -> None:
    """The deviation of equal values was their rounding error, and their weight 1e15: all others were rounded away."""
    draw = np.random.default_rng(0)
    table = pl.DataFrame({"c": [value] * 200, "a": draw.normal(size=200), "b": draw.normal(size=200)})
    table = table.with_columns(y=pl.col("a") > pl.col("b"))
    forest = bf.train(table, "y", trees=3, refine="off", **options)
    terms = forest.nodes.filter(kind="oblique").select(pl.col("terms").explode().struct.field("feature")).collect()
    assert set(terms["feature"]) == {"a", "b"}


def test_tree_axes__principal_ones_turn_disjoint_subsets() -> None:
    draw = np.random.default_rng(0)
    data = Data(draw.normal(size=(300, 8)) @ draw.normal(size=(8, 8)), np.arange(300) % 2)
    config = TrainConfig.of(family="rotation", rotation="pca")
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(frame_of(data), Path(folder))
        scale = feature_scale(store, "zscore")
        first, second = (RotationFamily().tree_axes(Sampler(store, config), tree, scale) for tree in (0, 1))
    assert not np.array_equal(first != 0, second != 0)
    axes = first / scale
    assert np.allclose(axes @ axes.T, np.eye(8))
    groups = {tuple(np.flatnonzero(axis)) for axis in axes}
    assert sorted(len(group) for group in groups) == [2, 3, 3]
    assert sorted(feature for group in groups for feature in group) == list(range(8))
