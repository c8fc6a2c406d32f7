"""Random splits in the tree kernel by itself: of numbers, missing values and categories, for classes and numbers."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.options.train_config import TrainConfig
from tests.kernel import check_kernel, check_mixed_kernel
from tests.strategies import Data, configs, mixed_tables, tables, weights
from tests.thorough import examples

COMPILED = not numba.config.DISABLE_JIT
EXAMPLES = 300 if COMPILED else 30


@settings(max_examples=examples(EXAMPLES), deadline=None)
@given(data=tables(), config=configs(), numbers=st.booleans(), draw=st.data())
def test_grow__random_splits(data: Data, config: TrainConfig, numbers: bool, draw: st.DataObject) -> None:
    bag = draw.draw(weights(len(data.target)))
    gaps = draw.draw(st.sampled_from([(1,), (4,), (1, 300)]))
    check_kernel(data._replace(numbers=numbers), bag, replace(config, splitter="random"), gaps=gaps)


@settings(max_examples=examples(EXAMPLES), deadline=None)
@given(data=mixed_tables(), config=configs(), numbers=st.booleans(), draw=st.data())
def test_grow__mixed_random_splits(data: Data, config: TrainConfig, numbers: bool, draw: st.DataObject) -> None:
    bag = draw.draw(weights(len(data.target)))
    check_mixed_kernel(data._replace(numbers=numbers), bag, replace(config, splitter="random"))


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
def test_grow__random_thresholds_are_uniform_in_value() -> None:
    values = np.repeat(np.array([[0.0], [1.0], [2.0], [10.0]]), 2, axis=0)
    data = Data(values, np.arange(8) % 2)
    found = []
    for seed in range(600):
        config = TrainConfig(mtry="all", max_depth=1, seed=seed, splitter="random")
        found.append(check_kernel(data, [1] * 8, config)[0].threshold)
    assert 0.0 < min(found) < max(found) < 10.0
    np.testing.assert_allclose(np.histogram(found, 10)[0] / len(found), 0.1, atol=0.04)
