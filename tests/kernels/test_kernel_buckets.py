"""Buckets of two classes, compiled, against exact fractions, and the places that are selected: odd sizes, ends of the
range of codes, scores of 0, buckets that min_leaf forbids."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.llvm.edges import open_buckets_two, score_buckets_two
from bigforest.kernels.llvm.pairwise import LANES, SCORE_ERROR, SCORED_WEIGHT
from bigforest.kernels.llvm.selection import select_codes, select_scores

SIZES = [1, 2, LANES - 1, LANES, LANES + 1, 3 * LANES, 77]
LAST = 2**32 - 1


@kernel
def _codes(*arguments):
    return select_codes(*arguments)


@kernel
def _scores(*arguments):
    return select_scores(*arguments)


@kernel
def _score(*arguments):
    return score_buckets_two(*arguments)


@kernel
def _open(*arguments):
    return open_buckets_two(*arguments)


@given(
    st.sampled_from(SIZES),
    st.sampled_from([1, 9, LAST]),
    st.sampled_from([0, 3, LAST - 3, LAST]),
    st.sampled_from([0, 1, 5, LAST]),
    st.integers(0, 2**32 - 1),
)
def test_select_codes__those_in_range(n: int, most: int, first: int, span: int, seed: int) -> None:
    code = np.random.default_rng(seed).integers(0, most, n + LANES, dtype=np.uint32, endpoint=True)
    if most == LAST:
        code[:n:2] |= np.uint32(LAST - 7)
    span = min(span, LAST - first)
    out = np.empty(n + LANES, np.uint32)
    found = int(_codes(code, np.uint64(n), np.uint32(first), np.uint32(span), out))
    assert out[:found].tolist() == [i for i in range(n) if first <= code[i] <= first + span]


@given(st.sampled_from(SIZES), st.sampled_from([-1.0, 0.0, 0.5, 2.0]), st.integers(0, 2**32 - 1))
def test_select_scores__those_that_reach(n: int, bar: float, seed: int) -> None:
    score = np.random.default_rng(seed).choice(np.array([-1.0, 0.0, 0.25, 0.5, 1.5], np.float32), n + LANES)
    out = np.empty(n + LANES, np.uint32)
    found = int(_scores(score, np.uint64(n), np.float32(bar), out))
    assert out[:found].tolist() == [i for i in range(n) if score[i] >= bar]


class Buckets(NamedTuple):
    """Rows of a node in the order of their codes: bucket, class and weight of each; both classes, ascending buckets."""

    bucket: NDArray[np.int64]
    kind: NDArray[np.int64]
    weight: NDArray[np.int64]
    buckets: int

    @property
    def hist(self) -> NDArray[np.uint32]:
        """As the kernels have it, with rubbish after the last bucket."""
        hist = np.full(self.buckets + 1 + LANES, 0xDEADBEEF, np.uint32)
        hist[: self.buckets + 1] = 0
        np.add.at(hist, self.bucket + 1, (self.weight << (16 * self.kind)).astype(np.uint32))
        return hist

    @property
    def ones(self) -> int:
        return int(self.weight[self.kind == 1].sum())

    @property
    def total(self) -> int:
        return int(self.weight.sum())

    def after(self, rows: int) -> tuple[Fraction, int]:
        """Score of the split after the first `rows` rows, and the weight of the lighter side."""
        w_l = int(self.weight[:rows].sum())
        d = int(self.weight[:rows] @ self.kind[:rows]) * self.total - self.ones * w_l
        room = w_l * (self.total - w_l)
        return Fraction(d * d, room) if room else Fraction(-1), min(w_l, self.total - w_l)


@st.composite
def _buckets(draw: st.DrawFn) -> Buckets:
    buckets, rows = draw(st.sampled_from(SIZES)), draw(st.sampled_from([2, 5, 100]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    heaviest = draw(st.sampled_from([1, 3, (SCORED_WEIGHT - 1) // rows]))
    kind = (rng.random(rows) < draw(st.sampled_from([0.1, 0.5]))).astype(np.int64)
    kind[rng.permutation(rows)[:2]] = 0, 1
    return Buckets(
        np.sort(rng.integers(0, buckets, rows)), kind, rng.integers(1, heaviest, rows, endpoint=True), buckets
    )


@given(_buckets(), st.sampled_from([1, 2, 40]))
def test_score_buckets_two__exact(given: Buckets, min_leaf: int) -> None:
    hist, score = given.hist, np.empty(given.buckets + LANES, np.float32)
    highest = _score(hist, np.uint64(given.buckets), given.ones, given.total, min_leaf, score)
    for b, found in enumerate(score[: given.buckets].tolist()):
        rows = int(np.searchsorted(given.bucket, b, "right"))
        left = given.weight[:rows] << (16 * given.kind[:rows])
        assert hist[b + 1] == left.sum()
        right, lighter = given.after(rows)
        if lighter < min_leaf:
            assert found == -1.0
        else:
            assert abs(Fraction(found) - right) <= right * Fraction(SCORE_ERROR) / 2
    assert highest == max(score[: given.buckets].tolist())


@given(_buckets(), st.sampled_from([1, 2, 40]), st.sampled_from([0.0, 0.3, 1.0]))
def test_open_buckets_two__all_that_may_be_better(given: Buckets, min_leaf: int, share: float) -> None:
    hist = given.hist
    _score(hist, np.uint64(given.buckets), given.ones, given.total, 1, np.empty(given.buckets + LANES, np.float32))
    inner: list[tuple[int, Fraction]] = []
    edges = [Fraction(-1)]
    for rows in range(1, given.bucket.size):
        score, lighter = given.after(rows)
        if lighter >= min_leaf and given.bucket[rows - 1] == given.bucket[rows]:
            inner.append((int(given.bucket[rows]), score))
        elif lighter >= min_leaf:
            edges.append(score)
    best = float(
        max([*edges, *(score * Fraction(share) for _, score in inner)])
    )  # as if another feature had offered it
    bar = np.float32(best * (1.0 - SCORE_ERROR) - 1e-30)
    out = np.empty(given.buckets + LANES, np.uint32)
    found = int(_open(hist, np.uint64(given.buckets), given.ones, given.total, min_leaf, bar, out))
    opened = out[:found].tolist()
    assert opened == sorted(set(opened))
    assert {bucket for bucket, score in inner if score >= best} <= set(opened)
    assert all(np.count_nonzero(given.bucket == bucket) for bucket in opened)


@pytest.mark.parametrize("min_leaf", [1, 3])
def test_open_buckets_two__one_class_hides_nothing(min_leaf: int) -> None:
    given = Buckets(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1]), np.ones(4, np.int64), 2)
    hist, score = given.hist, np.empty(2 + LANES, np.float32)
    assert _score(hist, np.uint64(2), 2, 4, min_leaf, score) == (4.0 if min_leaf == 1 else -1.0)
    out = np.empty(2 + LANES, np.uint32)
    found = int(_open(hist, np.uint64(2), 2, 4, min_leaf, np.float32(3.9), out))
    assert out[:found].tolist() == (
        [] if min_leaf == 1 else [0, 1]
    )  # where it forbids the edge, what is beside it is open
