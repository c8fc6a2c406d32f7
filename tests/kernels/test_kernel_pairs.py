"""Scores of the splits of few rows, compiled, against exact fractions: ties, heavy rows, odd sizes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.llvm.pairwise import LANES, PAIRS, SCORE_ERROR, SCORED_WEIGHT, score_pairs_two

SIZES = [1, 2, 3, LANES - 1, LANES, LANES + 1, 2 * LANES, 77, PAIRS]


@kernel
def _two(*arguments):
    return score_pairs_two(*arguments)


@st.composite
def _nodes(draw: st.DrawFn) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], int]:
    """Codes, weights and classes of the rows of a node, and min_leaf."""
    n = draw(st.sampled_from(SIZES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    most = draw(st.sampled_from([1, 3, 1000, 2**32 - 1]))
    code = rng.integers(0, most, n, dtype=np.uint32, endpoint=True)
    heaviest = draw(st.sampled_from([1, 4, (SCORED_WEIGHT - 1000) // n]))
    add = rng.integers(1, heaviest, n, dtype=np.uint32, endpoint=True)
    kind = rng.integers(0, 2, n, dtype=np.uint32)
    return code, add, kind, draw(st.sampled_from([1, 2, 50]))


def _padded(values: NDArray[Any]) -> NDArray[np.uint32]:
    """The values, and rubbish in the rest of the last block."""
    rest = -values.size % LANES
    return np.concatenate([values, np.full(rest, 0xDEADBEEF)]).astype(np.uint32)


def _check(found: NDArray[np.float32], highest: float, exact: list[Fraction | None]) -> None:
    """Scores are right to half of SCORE_ERROR, -1 where there is none, and the highest is one of them."""
    for score, right in zip(found.tolist(), exact, strict=True):
        if right is None:
            assert score == -1.0
        else:
            assert abs(Fraction(score) - right) <= right * Fraction(SCORE_ERROR) / 2
    assert highest == max(found.tolist())


@given(_nodes(), st.sampled_from([0, 1, 400]), st.sampled_from([0, 1, 500]), st.sampled_from([np.uint32, np.uint64]))
def test_score_pairs_two__exact(
    node: tuple[NDArray[Any], NDArray[Any], NDArray[Any], int], before_ones: int, before_zeros: int, kind_of_add: Any
) -> None:
    code, add, kind, min_leaf = node
    n, ones, weight = code.size, int(add[kind == 1].sum()), int(add.sum())
    packed = _padded(np.where(kind == 1, add.astype(np.int64) << 16, add))
    out = np.empty(packed.size, np.uint32)
    score = np.empty(packed.size, np.float32)
    before = np.uint32(before_ones << 16 | before_zeros)
    ones, weight = ones + before_ones, weight + before_ones + before_zeros
    highest = _two(_padded(code), packed.astype(kind_of_add), n, before, ones, weight, min_leaf, out, score)
    exact: list[Fraction | None] = []
    for i in range(n):
        left = int(add[code <= code[i]].sum()) + before_ones + before_zeros
        ones_l = int(add[(code <= code[i]) & (kind == 1)].sum()) + before_ones
        assert (int(out[i]) >> 16, int(out[i]) & 0xFFFF) == (ones_l, left - ones_l)
        d = ones_l * weight - ones * left
        exact.append(Fraction(d * d, left * (weight - left)) if min(left, weight - left) >= min_leaf else None)
    _check(score[:n], highest, exact)
