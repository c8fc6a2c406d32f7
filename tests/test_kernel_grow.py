"""The tree kernel by itself: every width of codes, and weights no bag of a small table ever has."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.config import TrainConfig
from tests.kernel import WIDTHS, check_kernel
from tests.naive.quick_split import best_split as quick_split
from tests.naive.split import SCORES
from tests.strategies import Data, configs, tables, weights

COMPILED = not numba.config.DISABLE_JIT
HEAVIEST = 65_535


@settings(max_examples=500 if COMPILED else 60)
@given(data=tables(), config=configs(), width=st.sampled_from(sorted(WIDTHS)), draw=st.data())
def test_grow__any_weights(data: Data, config: TrainConfig, width: int, draw: st.DataObject) -> None:
    bag = draw.draw(weights(len(data.target)))
    check_kernel(data, bag, config, width)


@settings(max_examples=100 if COMPILED else 20)
@given(data=tables(max_rows=25), config=configs(), draw=st.data())
def test_grow__heavy_weights(data: Data, config: TrainConfig, draw: st.DataObject) -> None:
    heavy = st.sampled_from([1, 2, HEAVIEST - 1, HEAVIEST])
    bag = draw.draw(st.lists(heavy, min_size=len(data.target), max_size=len(data.target)))
    check_kernel(data, bag, config)


@pytest.mark.skipif(not COMPILED, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("impurity", SCORES)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("sign", [1, -1])
def test_grow__scores_closer_than_float64_can_tell(impurity: str, classes: int, sign: int) -> None:
    draw = np.random.default_rng(classes)
    rows = 4000
    bag = np.full(rows, HEAVIEST)
    bag[draw.integers(0, rows, 3)] -= 1
    half = draw.integers(0, classes, rows // 2)
    target = np.concatenate([half, half[::-1]])
    up = sign * np.arange(float(rows))
    data = Data(np.column_stack([up, -up]), target)
    config = TrainConfig(impurity=impurity, mtry="all", max_depth=3)
    check_kernel(data, bag.tolist(), config, 4, quick_split)
