"""Trees in subspaces against the oracle, node for node, and what Ho (1995) says of them."""

from __future__ import annotations

from dataclasses import replace
from math import comb
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.options.train_config import TrainConfig
from tests.grown import check_tree
from tests.kernels.test_exact_large import table
from tests.strategies import Data, binary_tables, subspace_configs, tables
from tests.thorough import cases, examples

COMPILED = not numba.config.DISABLE_JIT
EXAMPLES = 300 if COMPILED else 20


@settings(max_examples=examples(EXAMPLES))
@given(data=tables(max_rows=40), draw=st.data())
def test_grow_tree__random_tables_and_options(data: Data, draw: st.DataObject) -> None:
    features = data.values.shape[1]
    config = draw.draw(subspace_configs(features))
    check_tree(data, config, draw.draw(st.integers(0, most_trees(config, features, 3) - 1)))


def most_trees(config: TrainConfig, features: int, wanted: int) -> int:
    """The trees, up to those wanted, that have a subspace of their own each."""
    sizes = config.subspace_sizes(features)
    own = [comb(features, size) if config.subspace_per == "tree" or size == features else wanted for size in sizes]
    return min(wanted, *(place + len(sizes) * known for place, known in enumerate(own)))


@settings(max_examples=examples(EXAMPLES))
@given(data=binary_tables(), draw=st.data())
def test_grow_tree__zeros_and_ones(data: Data, draw: st.DataObject) -> None:
    features = data.values.shape[1]
    config = draw.draw(subspace_configs(min(features, 6)))
    if features > 16 and config.subspace_per == "tree":  # more subspaces than the oracle would list
        config = replace(config, subspace=features)
    check_tree(data, config)


@pytest.mark.parametrize("options", [{"family": "subspace-cap"}, {"family": "subspace-perceptron"}])
def test_grow_tree__xor_stops_where_all_means_are_one(options: dict[str, Any]) -> None:
    """Ho 1995, section 2.1, an abnormal stop: the leaf keeps a mixed posterior. A perceptron has no anchors either."""
    values = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]] * 3)
    for scale in (1.0, 0.3):
        nodes = check_tree(
            Data(values * scale, np.array([0, 0, 1, 1] * 3)), TrainConfig.of(subspace=2, trees=1, **options)
        )
        assert [node.counts for node in nodes] == [[6, 6]]


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("options", [{"family": "subspace-cap"}, {"family": "subspace-perceptron", "max_epochs": 3}])
@pytest.mark.parametrize("classes", cases([10, 2], quick=1))
def test_grow_tree__2_000_rows(options: dict[str, Any], classes: int) -> None:
    draw = np.random.default_rng(classes)
    bits = (draw.random((2000, 70)) < 0.4).astype(np.float64)
    raw = (bits[:, :8].sum(axis=1).astype(int) + draw.integers(0, 2, 2000)) % classes
    binary = Data(bits, np.unique(raw, return_inverse=True)[1])
    for data, size in ((table(2000, classes, 7), 5), (binary, 70)):
        check_tree(data, TrainConfig.of(trees=1, subspace=size, max_depth=7, **options))
