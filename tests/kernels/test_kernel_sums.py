"""Scores and bounds of splits of regression targets, compiled, against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.llvm.lanes import LANES
from bigforest.kernels.llvm.regression_scores import bound_sums, next_reaching, score_sums

# What a float may be off by, in parts of the exact number.
EXACT = Fraction(1, 10**12)
SIZES = [1, 2, LANES - 1, LANES, LANES + 1, 3 * LANES, 77]


@kernel
def _scores(*arguments):
    return score_sums(*arguments)


@kernel
def _bounds(*arguments):
    bound_sums(*arguments)


@kernel
def _next(*arguments):
    return next_reaching(*arguments)


def _score(w_l: int, sum_l: int, weight: int, total: int) -> Fraction:
    return Fraction(sum_l**2, w_l) + Fraction((total - sum_l) ** 2, weight - w_l)


def _padded(numbers: NDArray[np.generic]) -> NDArray[np.generic]:
    """The numbers, and rubbish behind them."""
    return np.concatenate([numbers, np.full(2 * LANES, 3, numbers.dtype)])


@given(st.sampled_from(SIZES), st.sampled_from([1, 10**6, 2**60]), st.integers(0, 2**32), st.sampled_from([1, 5, 400]))
def test_score_sums__exact(n: int, most: int, seed: int, min_leaf: int) -> None:
    draw = np.random.default_rng(seed)
    weight = int(draw.integers(2, 2**31 - 1)) if seed % 2 else 1000
    total = int(draw.integers(0, weight))  # as counted from the mean, rounded down
    w_l = draw.integers(0, weight, n, endpoint=True).astype(np.uint32)
    sum_l = draw.integers(-most, most, n, endpoint=True)
    score = np.full(n + 2 * LANES, np.nan)
    highest = _scores(_padded(w_l), _padded(sum_l), np.uint64(n), weight, total, min_leaf, score)
    for left, one, found in zip(w_l.tolist(), sum_l.tolist(), score[:n].tolist(), strict=True):
        if min(left, weight - left) < min_leaf:
            assert found == -1.0
        else:
            exact = _score(left, one, weight, total)
            assert abs(Fraction(found) - exact) <= EXACT * exact
    assert highest == score[:n].max()


@given(st.sampled_from(SIZES), st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
@example(1, 0, 0.0)
def test_next_reaching__all(n: int, seed: int, share: float) -> None:
    draw = np.random.default_rng(seed)
    reaching = draw.random(n) < share
    score = np.concatenate([np.where(reaching, 7.0, draw.choice([-1.0, 6.9], n)), np.full(2 * LANES, -1.0)])
    found = []
    at = _next(score, np.uint64(0), np.uint64(n), 7.0)
    while at < n:
        found.append(int(at))
        at = _next(score, at + np.uint64(1), np.uint64(n), 7.0)
    assert found == np.flatnonzero(reaching).tolist()
    assert at == n


@given(st.sampled_from(SIZES), st.sampled_from([1, 10**6, 2**40]), st.integers(0, 2**32))
def test_bound_sums__largest_corner(buckets: int, most: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    inside = draw.integers(0, 4, buckets)
    inside[[0, -1]] += 1
    w_l = np.concatenate([[0], inside.cumsum()]).astype(np.uint32)
    weight = int(w_l[-1]) + 1 if buckets == 1 else int(w_l[-1])
    total = int(draw.integers(0, weight))
    middle, above = draw.integers(-most, most, buckets), draw.integers(0, most, (2, buckets))
    bound = np.full(buckets + LANES, np.nan)
    highest, least = middle + above[0], middle - above[1]
    _bounds(_padded(w_l), _padded(highest), _padded(least), np.uint64(buckets), weight, total, bound)
    for b, found in enumerate(bound[:buckets].tolist()):
        first, last = max(int(w_l[b]), 1), min(int(w_l[b + 1]), weight - 1)
        exact = max(_score(w, int(one), weight, total) for w, one in product((first, last), (highest[b], least[b])))
        assert abs(Fraction(found) - exact) <= EXACT * exact
