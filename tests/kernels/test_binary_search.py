"""Binary searches, compiled, against numpy.searchsorted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bigforest.kernels.common.binary_search import first_from, last_up_to
from bigforest.kernels.compiler.jit import kernel


@kernel
def _last(values, first, size, bound):
    return last_up_to(values, first, size, bound)


@kernel
def _first(values, size, bound):
    return first_from(values, size, bound)


def _ascending(size: int, seed: int, kind: type[np.generic]) -> NDArray[np.generic]:
    return np.sort(np.random.default_rng(seed).integers(0, 2 * size, size)).astype(kind)


@pytest.mark.parametrize("kind", [np.uint64, np.float64])
@given(size=st.integers(1, 40), before=st.integers(0, 5), seed=st.integers(0, 2**32), data=st.data())
def test_last_up_to__is_that_of_searchsorted(
    kind: type[np.generic], size: int, before: int, seed: int, data: st.DataObject
) -> None:
    values = _ascending(size, seed, kind)
    bound = kind(data.draw(st.integers(0, 2 * size + 1)))
    padded = np.concatenate([np.full(before, 2 * size + 2, kind), values, np.zeros(3, kind)])
    expected = max(int(values.searchsorted(bound, side="right")) - 1, 0)
    assert _last(padded, np.uint64(before), np.uint64(size), bound) == before + expected


@given(size=st.integers(1, 40), seed=st.integers(0, 2**32), data=st.data())
def test_first_from__is_that_of_searchsorted(size: int, seed: int, data: st.DataObject) -> None:
    values = _ascending(size, seed, np.uint64)
    bound = np.uint64(data.draw(st.integers(0, 2 * size + 1)))
    expected = min(int(values.searchsorted(bound, side="left")), size - 1)
    assert _first(np.append(values, np.zeros(3, np.uint64)), np.uint64(size), bound) == expected
