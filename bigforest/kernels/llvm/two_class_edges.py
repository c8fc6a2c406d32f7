"""Scores of the splits between the buckets of a histogram of two classes, and the buckets that may have a better split
inside, sixteen buckets at a time.

The weights of a bucket are one uint32, class 1 shifted 16; the node weighs less than SCORED_WEIGHT. hist begins with a
zero, so once it is summed up, entry b is the weight before bucket b. Scores are defined in pairwise.py.

No better split is missed by rounding. With weights below 2**15, d and w_l w_r are whole numbers of at most 2**28, so
exact in 32 bits; d**2 is at most 2**56, and a score that is not 0 at least 2**-28: float32 holds all of them. Each
conversion, product and quotient has a relative error of 2**-24 at most; the one of d counts twice. So a score is off by
5 * 2**-24, two scores and the bar by 11 * 2**-24, d**2 against bar * w_l w_r by 6 * 2**-24. All are below SCORE_ERROR,
by which callers lower the bar.

The plain-Python bodies below are the oracle of the compiled versions.
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
    """Return the scores of splits by their weights on the left, float64, -1 if a side is empty; and the lighter
    weights."""
    ones_l = left >> 16
    w_l = ones_l + (left & 0xFFFF)
    w_r = int(weight) - w_l
    d = ones_l * int(weight) - int(ones) * w_l
    lighter = np.minimum(w_l, w_r)
    return np.where(lighter > 0, d * d / np.maximum(w_l * w_r, 1), -1.0), lighter


def score_buckets_two(hist, buckets, ones, weight, min_leaf, score):
    """Sum hist up, and score the split after every bucket; return the highest score, float64.

    hist   uint32 [>= 1 + buckets rounded up to LANES], read and written up to this length
    score  float32 [>= buckets rounded up to LANES]: -1 if a side weighs less than min_leaf, which is 1 at least
    """
    size = int(buckets)
    hist[: size + 1] = np.cumsum(hist[: size + 1])
    scores, lighter = _score(hist[1 : size + 1].astype(np.int64), ones, weight)
    score[:size] = np.where(lighter >= int(min_leaf), scores, -1.0)
    return float(score[:size].max())


def open_buckets_two(hist, buckets, ones, weight, min_leaf, bar, out):
    """Write the buckets that may have a split inside whose score reaches `bar` to `out`, ascending; return their number
    (uint64).

    hist as after `score_buckets_two`; bar float32, not 0; out uint32 [>= buckets + LANES].

    d**2 / (w_l w_r) is convex in the counts, so its maximum over a bucket is at a corner: all rows of one class of the
    bucket on the left and none of the other, or an edge of the bucket. Edges were offered already, unless min_leaf
    forbids them. A bucket of one class has edges only.
    """
    sums = hist[: int(buckets) + 1].astype(np.int64)
    before, after = sums[:-1], sums[1:]
    ones_moved, zeros_moved = (after & ~0xFFFF) | (before & 0xFFFF), (before & ~0xFFFF) | (after & 0xFFFF)
    mixed = (ones_moved != before) & (zeros_moved != before)
    chosen = mixed & (np.maximum(_score(ones_moved, ones, weight)[0], _score(zeros_moved, ones, weight)[0]) > bar)
    for edge in (before, after):
        scores, lighter = _score(edge, ones, weight)
        chosen |= (lighter < int(min_leaf)) & (scores > bar) & (before != after)
    buckets_chosen = np.flatnonzero(chosen)
    out[: buckets_chosen.size] = buckets_chosen
    return np.uint64(buckets_chosen.size)


@emits(score_buckets_two, types.float64)
def _emit_score_buckets_two(lanes: Lanes, buckets: Any, ones: Any, weight: Any, least: Any) -> Any:
    builder = lanes.builder
    scores = TwoClassScores(lanes, ones, weight, least)
    before = cgutils.alloca_once_value(builder, ZEROS)
    with lanes.blocks(buckets) as base:
        index = builder.add(base, ir.Constant(base.type, 1))
        left = builder.add(lanes.running(lanes.load("hist", index)), builder.load(before))
        lanes.store(left, "hist", index)
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
        ones_moved, zeros_moved = (builder.xor(before, builder.and_(changed, half)) for half in (high, low))
        corners = [scores.sides(left) for left in (ones_moved, zeros_moved, before, after)]
        reach = [builder.fcmp_ordered(">", square, builder.fmul(bar, room)) for square, room, _ in corners]
        edge = (builder.and_(reach[k], builder.not_(corners[k][2])) for k in (2, 3))
        mixed = (builder.icmp_unsigned("!=", corner, before) for corner in (ones_moved, zeros_moved))
        within = builder.and_(builder.and_(*mixed), builder.or_(reach[0], reach[1]))
        edges = builder.and_(builder.icmp_unsigned("!=", before, after), builder.or_(*edge))
        selection.add(base, builder.or_(within, edges))
    return selection.size()
