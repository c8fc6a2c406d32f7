"""Ranks are those of sorting, for every type and any bits; bins are few, in order and even."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.encode.ranks import dense_ranks, quantile_bins


@settings(max_examples=100)
@given(
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=40)
    | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40)
    | st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=40).map(lambda v: np.array(v, np.uint64).tolist())
)
def test_dense_ranks__equals_sorting(values: list[float]) -> None:
    array = np.array(values)
    before = array.copy()
    ranks, distinct = dense_ranks(array)
    expected, codes = np.unique(array, return_inverse=True)
    assert ranks.tolist() == codes.tolist()
    assert distinct.tolist() == expected.tolist()
    assert array.tobytes() == before.tobytes()


def test_dense_ranks__minus_zero_is_written_zero() -> None:
    for dtype in (np.float32, np.float64):
        ranks, distinct = dense_ranks(np.array([0.0, -0.0, 1.0, -1.0], dtype))
        assert ranks.tolist() == [1, 1, 2, 0]
        assert not np.signbit(distinct[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint64, np.int32, np.int8])
def test_dense_ranks__many_rows_of_every_type(dtype: type[np.number[Any]]) -> None:
    random = np.random.default_rng(5)
    bits = random.integers(0, 256, 100_000 * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype)
    values = bits[~np.isnan(bits)] if np.dtype(dtype).kind == "f" else bits
    ranks, distinct = dense_ranks(values)
    expected, codes = np.unique(values, return_inverse=True)
    assert (ranks == codes).all()
    assert (distinct == expected).all()


@given(counts=st.lists(st.integers(1, 50), min_size=1, max_size=30), max_bins=st.integers(2, 12))
def test_quantile_bins__few_ascending_and_even(counts: list[int], max_bins: int) -> None:
    bins = quantile_bins(np.array(counts), max_bins)
    assert set(np.diff(bins, prepend=0).tolist()) <= {0, 1}
    assert bins[0] == 0
    assert bins[-1] < max_bins or len(counts) <= max_bins
    filled = np.bincount(bins, weights=counts)
    assert filled.max() <= sum(counts) / max_bins + max(counts)


def test_quantile_bins__distinct_values_in_equal_parts() -> None:
    assert np.bincount(quantile_bins(np.ones(1000, np.int64), 10)).tolist() == [100] * 10
