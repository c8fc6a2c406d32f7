"""Quantiles that are values."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigforest.metrics.numbers import quantile_grid


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40), st.sampled_from([2, 3, 5, 9]))
def test_quantile_grid__is_of_values_at_equal_shares(values: list[int], points: int) -> None:
    """Shares are exact, their number less 1 being a power of two: the first value with as many rows up to it."""
    ordered = sorted(values)
    shares = [Fraction(i, points - 1) for i in range(points)]
    expected = {ordered[max(ceil(share * len(values)), 1) - 1] for share in shares}
    assert quantile_grid(np.array(values, np.float64), points).tolist() == sorted(expected)
