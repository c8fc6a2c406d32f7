"""Scores of the splits between the buckets of a histogram, and the buckets that may have a better split inside, sixteen
buckets at a time. The plain-Python bodies are the oracle of the compiled versions.

Two classes: the weights of a bucket are one uint32, with class 1 in the upper half. The node weighs less than
SCORED_WEIGHT. hist begins with a zero, so after it is summed up, entry b is the weight before bucket b.
kernels/scan/two_class.py defines the score d**2 / (w_l w_r).

Rounding hides no split that is as good as the best. Proof, with u = 2**-24:

- With weights below 2**15, d and w_l w_r are integers of at most 2**28, exact in 32 bits. d**2 is at most 2**56, and a
  score is 0 or at least 2**-28, so nothing overflows or underflows in float32.
- Rounding to float32 multiplies a number by 1 + e, with |e| <= u / (1 + u). Both 1 + e and 1 / (1 + e) are at least
  1 - u. So after k roundings, on either side of a comparison, score / bar is at least (1 - u)**k >= 1 - k u times its
  exact value.
- A score has 5 roundings: d (counted twice, because it is squared), the square, w_l w_r, and the quotient.
- Comparing a score with a bar made from another score has 11: 5 for each score, 1 for the bar as float32.
- Comparing d**2 with bar * w_l w_r has 6: d (twice), the square, w_l w_r, the bar, and the product.
- Callers lower the bar, or raise the score, by SCORE_ERROR, which is above 16 u. The 5 u beyond 11 u cover the
  roundings of the bar in float64, which are below 2**-50.

More classes: a histogram has a row per class and one for all classes, `stride` = stride_for(buckets) apart. A row
begins with a zero, followed by the weight of the first bucket. So once the rows are summed up, entry b is the weight
before bucket b.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.lanes import DOUBLES, LANES, NUMBER, VECTOR, ZEROS, Lanes, emits
from bigforest.kernels.llvm.pairwise import TwoClassScores
from bigforest.kernels.llvm.selection import Selection


def _score(left, ones, weight):
    """Return the scores of splits (float64, -1 if a side is empty), and the weights of their lighter sides.

    left  int64, weights on the left of each split, packed as in `hist`
    """
    ones_l = left >> 16
    w_l = ones_l + (left & 0xFFFF)
    w_r = int(weight) - w_l
    d = ones_l * int(weight) - int(ones) * w_l
    lighter = np.minimum(w_l, w_r)
    return np.where(lighter > 0, d * d / np.maximum(w_l * w_r, 1), -1.0), lighter


def score_buckets_two(hist, buckets, ones, weight, min_leaf, score):
    """Sum hist up, and score the split after every bucket. Return the highest score, float64.

    hist          uint32 [>= 1 + buckets rounded up to LANES], read and written up to this length
    ones, weight  weight of class 1 and of both classes in the node
    score         float32 [>= buckets rounded up to LANES], out: -1 if a side weighs less than min_leaf >= 1
    """
    size = int(buckets)
    hist[: size + 1] = np.cumsum(hist[: size + 1])
    scores, lighter = _score(hist[1 : size + 1].astype(np.int64), ones, weight)
    score[:size] = np.where(lighter >= int(min_leaf), scores, -1.0)
    return float(score[:size].max())


def open_buckets_two(hist, buckets, ones, weight, min_leaf, bar, out):
    """Find the buckets that may have a split inside with a score above `bar`. Return their number (uint64).

    hist  summed up by `score_buckets_two`
    bar   float32 >= -1; below 0 to find scores of 0
    out   uint32 [>= buckets + LANES], set to the buckets, ascending

    d**2 / (w_l w_r) is convex in the counts, so its maximum over a bucket is at a corner. A corner has all rows of one
    class of the bucket on the left and none of the other class, or it is an edge of the bucket. Edges were offered
    already, unless min_leaf forbids them. All corners of a bucket with one class are edges.
    """
    sums = hist[: int(buckets) + 1].astype(np.int64)
    before, after = sums[:-1], sums[1:]
    ones_moved, zeros_moved = (after & ~0xFFFF) | (before & 0xFFFF), (before & ~0xFFFF) | (after & 0xFFFF)
    both = (ones_moved != before) & (zeros_moved != before)
    chosen = both & (np.maximum(_score(ones_moved, ones, weight)[0], _score(zeros_moved, ones, weight)[0]) > bar)
    for edge in (before, after):
        scores, lighter = _score(edge, ones, weight)
        chosen |= (lighter < int(min_leaf)) & (scores > bar) & (before != after)
    buckets_chosen = np.flatnonzero(chosen)
    out[: buckets_chosen.size] = buckets_chosen
    return np.uint64(buckets_chosen.size)


@emits(score_buckets_two, types.float64)
def _emit_score_buckets_two(lanes: Lanes, buckets: Any, ones: Any, weight: Any, min_leaf: Any) -> Any:
    builder = lanes.builder
    scores = TwoClassScores(lanes, ones, weight, min_leaf)
    before = cgutils.alloca_once_value(builder, ZEROS)
    with lanes.blocks(buckets) as base:
        index = builder.add(base, ir.Constant(base.type, 1))
        left = builder.add(lanes.running(lanes.load("hist", index)), builder.load(before))
        lanes.store(left, "hist", index)
        builder.store(lanes.last(left), before)
        scores.store(left, base, buckets)
    return scores.highest()


@emits(open_buckets_two, types.uint64, bar=types.float32)
def _emit_open_buckets_two(lanes: Lanes, buckets: Any, ones: Any, weight: Any, min_leaf: Any, bar: Any) -> Any:
    builder = lanes.builder
    scores, selection, bar = TwoClassScores(lanes, ones, weight, min_leaf), Selection(lanes, buckets), lanes.splat(bar)
    low, high = (ir.Constant(VECTOR, [half] * VECTOR.count) for half in (0xFFFF, 0xFFFF0000))
    with lanes.blocks(buckets) as base:
        before = lanes.load("hist", base)
        after = lanes.load("hist", builder.add(base, ir.Constant(base.type, 1)))
        changed = builder.xor(before, after)
        ones_moved, zeros_moved = (builder.xor(before, builder.and_(changed, half)) for half in (high, low))
        corners = [scores.sides(left) for left in (ones_moved, zeros_moved, before, after)]
        reach = [builder.fcmp_ordered(">", square, builder.fmul(bar, room)) for square, room, _ in corners]
        edge = (builder.and_(reach[k], builder.not_(corners[k][2])) for k in (2, 3))
        both = (builder.icmp_unsigned("!=", corner, before) for corner in (ones_moved, zeros_moved))
        within = builder.and_(builder.and_(*both), builder.or_(reach[0], reach[1]))
        edges = builder.and_(builder.icmp_unsigned("!=", before, after), builder.or_(*edge))
        selection.add(base, builder.or_(within, edges))
    return selection.size()


_LANES, _ONE = np.uint64(LANES), np.uint64(1)


@inlined
def stride_for(buckets):
    """Return the distance between the rows of a histogram of `buckets` buckets (uint64)."""
    return (buckets + _LANES - _ONE) // _LANES * _LANES + _ONE


def score_edges(hist, stride, buckets, total, weight, min_leaf, edge):
    """Sum up the rows of a histogram, fill the row of all classes, and score the split after every bucket.

    hist   uint32 [>= (classes + 1) * stride], with the rows of classes filled; the first entry of each row and the
           entries after the last bucket are 0.
    total  int64 [classes], class weights of the node; weight: their sum, below 2**31.
    edge   float64 [>= stride], out: sum of squares over weight, added over both sides; -1 if a side weighs less than
           min_leaf, which is at least 1 and below 2**31. The relative error is a few times 2**-53 per class.

    Return the highest score.
    """
    rows = hist[: (total.size + 1) * int(stride)].reshape(total.size + 1, int(stride))
    np.cumsum(rows[:-1], axis=1, out=rows[:-1])
    rows[-1] = rows[:-1].sum(axis=0)
    left = rows[:-1, 1:].astype(np.float64)
    w_l = rows[-1, 1:].astype(np.float64)
    allowed = np.minimum(w_l, int(weight) - w_l) >= int(min_leaf)
    sides = (left**2).sum(axis=0), ((total[:, None] - left) ** 2).sum(axis=0)
    score = sides[0] / np.where(allowed, w_l, 1.0) + sides[1] / np.where(allowed, int(weight) - w_l, 1.0)
    edge[: int(stride) - 1] = np.where(allowed, score, -1.0)
    return float(edge[: int(stride) - 1].max())


@emits(score_edges, types.float64)
def _emit_score_edges(lanes: Lanes, stride: Any, buckets: Any, weight: Any, min_leaf: Any) -> Any:
    builder, classes = lanes.builder, lanes.size("total")
    builder.store(ir.Constant(NUMBER, 0), lanes.pointer("hist", builder.mul(classes, stride)))
    weight, min_leaf = lanes.splat(weight), lanes.splat(min_leaf)
    none = ir.Constant(DOUBLES, [0.0] * LANES)
    best = cgutils.alloca_once_value(builder, ir.Constant(DOUBLES, [-1.0] * LANES))
    w_l, sq_l, sq_r = (cgutils.alloca_once(builder, kind) for kind in (VECTOR, DOUBLES, DOUBLES))
    with lanes.blocks(buckets) as base:
        for total_of, zero in ((w_l, ZEROS), (sq_l, none), (sq_r, none)):
            builder.store(zero, total_of)
        with cgutils.for_range(builder, classes) as loop:
            before, after = _indices(builder, base, loop.index, stride)
            left_k = builder.add(lanes.running(lanes.load("hist", after)), lanes.spread("hist", before))
            lanes.store(left_k, "hist", after)
            builder.store(builder.add(builder.load(w_l), left_k), w_l)
            rest = builder.sub(lanes.spread("total", loop.index), left_k)
            for number, total_of in ((left_k, sq_l), (rest, sq_r)):
                real = lanes.real(number, DOUBLES)
                builder.store(builder.fadd(builder.load(total_of), builder.fmul(real, real)), total_of)
        left = builder.load(w_l)
        right = builder.sub(weight, left)
        lanes.store(left, "hist", _indices(builder, base, classes, stride)[1])
        score = builder.fadd(
            builder.fdiv(builder.load(sq_l), lanes.real(left, DOUBLES)),
            builder.fdiv(builder.load(sq_r), lanes.real(right, DOUBLES)),
        )
        enough = (builder.icmp_signed(">=", side, min_leaf) for side in (left, right))
        score = lanes.masked(score, builder.and_(*enough))
        lanes.store(score, "edge", base)
        builder.store(lanes.larger(score, builder.load(best)), best)
    return lanes.highest(builder.load(best))


def _indices(builder: Any, base: Any, row: Any, stride: Any) -> tuple[Any, Any]:
    """Return the indices, in the histogram, of a row's counts before and after the buckets from `base` on."""
    before = builder.add(base, builder.mul(row, stride))
    return before, builder.add(before, ir.Constant(before.type, 1))
