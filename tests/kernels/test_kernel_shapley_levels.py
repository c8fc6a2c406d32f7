"""What is done for sixteen rows at once is what plain Python does row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.llvm import shapley_levels
from bigforest.kernels.llvm.lanes import LANES
from tests.thorough import examples


@kernel
def carried(product, inverse, met, factors, size, level, before):
    shapley_levels.extend_products(product, inverse, met, factors, size, level, before)


@kernel
def scaled(below, product, value, size, here, level):
    shapley_levels.scale(below, product, value, size, here, level)


@kernel
def charged(below, inverse, gain, total, size, here, above, edge, before, own):
    shapley_levels.charge(below, inverse, gain, total, size, here, above, edge, before, own)


def twice(compiled: Any, plain: Any, arrays: list[Any], numbers: list[Any]) -> None:
    """Assert that both leave the same in the arrays."""
    expected, found = [array.copy() for array in arrays], [array.copy() for array in arrays]
    plain(*expected, *numbers)
    compiled(*found, *(np.uint64(number) if isinstance(number, int) else number for number in numbers))
    for one, two in zip(expected, found, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-15, atol=0.0)


@settings(max_examples=examples(100))
@given(st.integers(1, 9), st.integers(2, 6), st.data())
def test_levels__as_row_by_row(points: int, levels: int, data: st.DataObject) -> None:
    draw = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    level = data.draw(st.integers(1, levels - 1))
    before = data.draw(st.integers(0, level - 1))
    size = points * LANES
    product, inverse, below, total = (draw.uniform(0.1, 2.0, levels * size) for _ in range(4))
    met, gain = draw.integers(0, 2, levels * LANES).astype(np.float64), draw.normal(size=levels * LANES)
    factors = draw.uniform(0.1, 2.0, 4 * points)
    twice(carried, shapley_levels.extend_products, [product, inverse, met, factors], [size, level, before])
    twice(scaled, shapley_levels.scale, [below, product], [0.3, size, level * size, (level - 1) * size])
    own = data.draw(st.integers(0, levels * points - 1)) * LANES
    places = [size, level * size, (level - 1) * size, level, before, own]
    twice(charged, shapley_levels.charge, [below, inverse, gain, total], places)


@pytest.mark.parametrize("value", [0.0, -0.0])
def test_scale__by_nothing_is_nothing(value: float) -> None:
    below, product = np.ones(LANES), np.full(LANES, 1e300)
    scaled(below, product, value, np.uint64(LANES), np.uint64(0), np.uint64(0))
    assert not below.any()
