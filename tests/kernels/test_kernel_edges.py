"""Scores and bounds of a histogram of many classes, compiled, against exact fractions: empty buckets, heavy rows."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.llvm.edges import LANES, score_edges, stride_for
from bigforest.kernels.scan.many_classes import bound_many

SIZES = [1, 2, LANES - 1, LANES, LANES + 1, 3 * LANES, 77]
# What a float may be off by, in parts of the exact number.
EXACT = Fraction(1, 10**12)


@kernel
def _scores(*arguments):
    return score_edges(*arguments)


@kernel
def _bound(*arguments):
    return bound_many(*arguments)


class Histogram(NamedTuple):
    """counts int64 [classes, buckets], and room for it and its row of all classes as the kernels have it."""

    counts: NDArray[np.int64]
    hist: NDArray[np.uint32]
    stride: int

    @property
    def total(self) -> NDArray[np.int64]:
        return self.counts.sum(axis=1)

    def score(self, left: NDArray[np.int64]) -> Fraction | None:
        """Sums of squares over weights of both sides; None where one is empty."""
        score = Fraction(0)
        for side in (left.tolist(), (self.total - left).tolist()):
            if sum(side) == 0:
                return None
            score += Fraction(sum(here**2 for here in side), sum(side))
        return score


@st.composite
def _histograms(draw: st.DrawFn) -> Histogram:
    buckets, classes = draw(st.sampled_from(SIZES)), draw(st.integers(2, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    most = draw(st.sampled_from([1, 3, 1000, (2**31 - 1) // (buckets * classes)]))
    counts = rng.integers(0, most, (classes, buckets), endpoint=True)
    counts[:, rng.random(buckets) < draw(st.sampled_from([0.0, 0.5]))] = 0
    counts[0, 0] += 1
    stride = int(getattr(stride_for, "py_func", stride_for)(np.uint64(buckets)))
    hist = np.zeros((classes + 1, stride), np.uint32)
    hist[:-1, 1 : buckets + 1] = counts
    hist[-1] = 0xDEADBEEF
    return Histogram(counts, hist.ravel(), stride)


def _run(given: Histogram, min_leaf: int) -> tuple[NDArray[np.float64], float]:
    """What score_edges finds; the histogram holds sums from there on."""
    edge: NDArray[np.float64] = np.full(given.stride, np.nan)
    sizes: tuple[Any, ...] = (np.uint64(given.stride), np.uint64(given.counts.shape[1]))
    highest = _scores(given.hist, *sizes, given.total, int(given.total.sum()), min_leaf, edge)
    return edge, highest


@given(_histograms(), st.sampled_from([1, 2, 500]))
def test_score_edges__exact(histogram: Histogram, min_leaf: int) -> None:
    edge, highest = _run(histogram, min_leaf)
    sums = histogram.counts.cumsum(axis=1)
    whole = int(histogram.total.sum())
    for bucket, left in enumerate(sums.T):
        if min(int(left.sum()), whole - int(left.sum())) < min_leaf:
            assert edge[bucket] == -1.0
        else:
            right = histogram.score(left)
            assert right is not None
            assert abs(Fraction(float(edge[bucket])) - right) <= right * EXACT
    assert highest == edge[: sums.shape[1]].max()
    found = histogram.hist.reshape(-1, histogram.stride)
    assert (found[:, 0] == 0).all()
    assert (found[:-1, 1 : sums.shape[1] + 1] == sums).all()
    assert (found[-1] == found[:-1].sum(axis=0)).all()


@given(_histograms(), st.integers(0, 2**32 - 1))
def test_bound_many__no_split_inside_is_above_it(histogram: Histogram, seed: int) -> None:
    total = histogram.total
    rng = np.random.default_rng(seed)
    edges = np.concatenate([np.zeros((total.size, 1), np.int64), histogram.counts.cumsum(axis=1)], axis=1)
    for before, after in pairwise(edges.T):
        inside = after - before
        if inside.sum() <= 1:
            continue
        bound = Fraction(_bound(before, after, total, int(total.sum())))
        for moved in (rng.integers(0, inside, endpoint=True), inside * rng.integers(0, 1, inside.size, endpoint=True)):
            score = histogram.score(before + moved)
            assert score is None or score <= bound * (1 + EXACT)
