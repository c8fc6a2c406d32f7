"""Scores and bounds of splits of regression targets against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigforest.kernels.common.node_scan import Node
from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.scan.regression import bound_buckets_sums, score_edges_sums
from bigforest.kernels.scan.target import make_regression_scratch

# What a float may be off by, in parts of the exact number.
EXACT = Fraction(1, 10**12)
SIZES = [1, 2, 15, 16, 17, 77]


@kernel
def _scores(*arguments):
    return score_edges_sums(*arguments)


@kernel
def _bounds(*arguments):
    bound_buckets_sums(*arguments)


def _node(weight: int, total: int) -> Node:
    return Node(np.empty(0, np.uint64), np.empty(0, np.int64), weight, total)


def _score(w_l: int, sum_l: int, weight: int, total: int) -> Fraction:
    return Fraction(sum_l**2, w_l) + Fraction((total - sum_l) ** 2, weight - w_l)


@given(st.sampled_from(SIZES), st.sampled_from([1, 10**6, 2**60]), st.integers(0, 2**32), st.sampled_from([1, 5, 400]))
def test_score_edges_sums__exact(n: int, most: int, seed: int, min_leaf: int) -> None:
    draw = np.random.default_rng(seed)
    weight = int(draw.integers(2, 2**31 - 1)) if seed % 2 else 1000
    total = int(draw.integers(0, weight))  # as counted from the mean, rounded down
    w_l = draw.integers(1, weight, n).astype(np.uint32)
    sum_l = draw.integers(-most, most, n, endpoint=True)
    score = np.full(n, np.nan)
    highest = _scores(w_l, sum_l, np.uint64(n), _node(weight, total), min_leaf, score, None)
    for left, one, found in zip(w_l.tolist(), sum_l.tolist(), score.tolist(), strict=True):
        if min(left, weight - left) < min_leaf:
            assert found == -1.0
        else:
            exact = _score(left, one, weight, total)
            assert abs(Fraction(found) - exact) <= EXACT * exact
    assert highest == score.max()


@given(st.sampled_from(SIZES), st.sampled_from([1, 10**6, 2**40]), st.integers(0, 2**32))
def test_bound_buckets_sums__largest_corner(buckets: int, most: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    inside = draw.integers(0, 4, buckets)
    inside[[0, -1]] += 1
    w_l = np.concatenate([[0], inside.cumsum()]).astype(np.uint32)
    weight = int(w_l[-1]) + 1 if buckets == 1 else int(w_l[-1])
    total = int(draw.integers(0, weight))
    middle, above = draw.integers(-most, most, buckets), draw.integers(0, most, (2, buckets))
    bound = np.full(buckets, np.nan)
    highest, least = middle + above[0], middle - above[1]
    sums = make_regression_scratch(1, None)
    for room, numbers in ((sums.edges.w_l, w_l), (sums.most, highest), (sums.least, least)):
        room[: numbers.size] = numbers
    _bounds(sums, np.uint64(buckets), _node(weight, total), bound)
    for b, found in enumerate(bound.tolist()):
        first, last = max(int(w_l[b]), 1), min(int(w_l[b + 1]), weight - 1)
        exact = max(_score(w, int(one), weight, total) for w, one in product((first, last), (highest[b], least[b])))
        assert abs(Fraction(found) - exact) <= EXACT * exact
