"""Trees in subspaces against the oracle, node for node, and what Ho (1995) says of them."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.config import TrainConfig
from tests.grown import check_tree
from tests.strategies import Data, binary_tables, subspace_configs, tables
from tests.test_exact_large import table

COMPILED = not numba.config.DISABLE_JIT
EXAMPLES = 300 if COMPILED else 20


@settings(max_examples=EXAMPLES)
@given(data=tables(max_rows=40), draw=st.data())
def test_grow_tree__random_tables_and_options(data: Data, draw: st.DataObject) -> None:
    check_tree(data, draw.draw(subspace_configs(data.values.shape[1])))


@settings(max_examples=EXAMPLES)
@given(data=binary_tables(), draw=st.data())
def test_grow_tree__zeros_and_ones(data: Data, draw: st.DataObject) -> None:
    features = data.values.shape[1]
    config = draw.draw(subspace_configs(min(features, 6)))
    check_tree(data, config if features < 20 else config_of(config, features))


def config_of(config: TrainConfig, features: int) -> TrainConfig:
    """The configuration with subspaces that need not all be listed by the oracle: of all features, or drawn by nodes."""
    from dataclasses import replace

    size = features if config.subspace_per == "tree" else config.subspace
    return replace(config, subspace=size)


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("family", ["subspace-cap", "subspace-perceptron"])
@pytest.mark.parametrize("classes", [2, 10])
def test_grow_tree__3_000_rows(family: str, classes: int) -> None:
    more = {"max_epochs": 3} if family == "subspace-perceptron" else {}
    config = TrainConfig(family=family, bootstrap=False, trees=1, subspace=5, max_depth=8, **more)
    check_tree(table(3000, classes, 7), config)
    draw = np.random.default_rng(classes)
    bits = (draw.random((3000, 70)) < 0.4).astype(np.float64)
    target = np.unique((bits[:, :8].sum(axis=1) + draw.integers(0, 2, 3000)) % classes, return_inverse=True)[1]
    check_tree(Data(bits, target), TrainConfig(**{**config_fields(config), "subspace": 70}))


def config_fields(config: TrainConfig) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(config)
