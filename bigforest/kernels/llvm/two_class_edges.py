"""Scores of the splits between the buckets of a histogram of two classes, and which buckets may hide better, sixteen
buckets at a time.

A bucket's weights are one uint32, class 1 shifted 16; the node weighs less than SCORED_WEIGHT. hist begins with a zero,
so once it is summed up, entry b is what lies before bucket b. Scores are those of pairwise.py.

No better split is missed by rounding. With weights below 2**15, d and w_l w_r are whole numbers of at most 2**28, so
exact in 32 bits; d**2 is at most 2**56, and a score that is not 0 at least 2**-28: float32 holds all of them. Each
conversion, product and quotient is off by 2**-24 of itself at most, that of d counts twice: a score by 5 * 2**-24, two
scores and the bar against each other by 11 * 2**-24, d**2 against bar * w_l w_r by 6 * 2**-24. All are below
SCORE_ERROR, by which the bar of the caller is lowered.

As plain Python the functions below are what they are when compiled, and their oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from bigforest.kernels.llvm.lanes import VECTOR, ZEROS, Lanes, emits
from bigforest.kernels.llvm.pairwise import TwoClassScores
from bigforest.kernels.llvm.selection import Selection


def _score(left, ones, weight):
    """Return scores by what is on the left, float64, -1 where a side is empty; and the weight of the lighter side."""
    ones_l = left >> 16
    w_l = ones_l + (left & 0xFFFF)
    w_r = int(weight) - w_l
    d = ones_l * int(weight) - int(ones) * w_l
    lighter = np.minimum(w_l, w_r)
    return np.where(lighter > 0, d * d / np.maximum(w_l * w_r, 1), -1.0), lighter


def score_buckets_two(hist, buckets, ones, weight, min_leaf, score):
    """Sum hist up, and score the split after every bucket; returns the highest, float64.

    hist   uint32 [>= buckets rounded up to LANES, and 1], read and written as far as that
    score  float32, alike: -1 where a side has less than min_leaf, which is 1 at least
    """
    size = int(buckets)
    hist[: size + 1] = np.cumsum(hist[: size + 1])
    found, lighter = _score(hist[1 : size + 1].astype(np.int64), ones, weight)
    score[:size] = np.where(lighter >= int(min_leaf), found, -1.0)
    return float(score[:size].max())


def open_buckets_two(hist, buckets, ones, weight, min_leaf, bar, out):
    """Write the buckets that may hide a split whose score reaches `bar` to `out`, ascending; returns how many (uint64).

    hist as score_buckets_two left it; bar float32, not 0; out uint32 [>= buckets + LANES].

    d**2 / (w_l w_r) is convex in the counts, so over a bucket its maximum is at a corner: all of one class of the
    bucket to the left and none of the other, or the edges of the bucket, which were offered themselves, unless min_leaf
    forbids them. A bucket of one class has edges only.
    """
    sums = hist[: int(buckets) + 1].astype(np.int64)
    before, after = sums[:-1], sums[1:]
    one, other = (after & ~0xFFFF) | (before & 0xFFFF), (before & ~0xFFFF) | (after & 0xFFFF)
    mixed = (one != before) & (other != before)
    chosen = mixed & (np.maximum(_score(one, ones, weight)[0], _score(other, ones, weight)[0]) > bar)
    for edge in (before, after):
        found, lighter = _score(edge, ones, weight)
        chosen |= (lighter < int(min_leaf)) & (found > bar) & (before != after)
    found = np.flatnonzero(chosen)
    out[: found.size] = found
    return np.uint64(found.size)


@emits(score_buckets_two, types.float64)
def _emit_score_buckets_two(lanes: Lanes, buckets: Any, ones: Any, weight: Any, least: Any) -> Any:
    builder = lanes.builder
    scores = TwoClassScores(lanes, ones, weight, least)
    before = cgutils.alloca_once_value(builder, ZEROS)
    with lanes.blocks(buckets) as base:
        place = builder.add(base, ir.Constant(base.type, 1))
        left = builder.add(lanes.running(lanes.load("hist", place)), builder.load(before))
        lanes.store(left, "hist", place)
        builder.store(lanes.last(left), before)
        scores.store(left, base, buckets)
    return scores.highest()


@emits(open_buckets_two, types.uint64, bar=types.float32)
def _emit_open_buckets_two(lanes: Lanes, buckets: Any, ones: Any, weight: Any, least: Any, bar: Any) -> Any:
    builder = lanes.builder
    scores, selection, bar = TwoClassScores(lanes, ones, weight, least), Selection(lanes, buckets), lanes.splat(bar)
    low, high = (ir.Constant(VECTOR, [half] * VECTOR.count) for half in (0xFFFF, 0xFFFF0000))
    with lanes.blocks(buckets) as base:
        before = lanes.load("hist", base)
        after = lanes.load("hist", builder.add(base, ir.Constant(base.type, 1)))
        changed = builder.xor(before, after)
        one, other = (builder.xor(before, builder.and_(changed, half)) for half in (high, low))
        corners = [scores.sides(left) for left in (one, other, before, after)]
        reach = [builder.fcmp_ordered(">", square, builder.fmul(bar, room)) for square, room, _ in corners]
        edge = (builder.and_(reach[k], builder.not_(corners[k][2])) for k in (2, 3))
        mixed = (builder.icmp_unsigned("!=", corner, before) for corner in (one, other))
        within = builder.and_(builder.and_(*mixed), builder.or_(reach[0], reach[1]))
        edges = builder.and_(builder.icmp_unsigned("!=", before, after), builder.or_(*edge))
        selection.add(base, builder.or_(within, edges))
    return selection.size()
