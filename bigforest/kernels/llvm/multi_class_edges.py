"""Scores of the splits between the buckets of a histogram of many classes, and bounds of the splits inside, sixteen
buckets at a time.

A histogram has a row per class and one for all classes, `stride` = stride_for(buckets) apart. A row begins with a zero,
followed by the weight of the first bucket. So once the rows are summed up, entry b is the weight before bucket b.

The plain-Python bodies below are the oracle of the compiled versions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.lanes import DOUBLES, LANES, NUMBER, VECTOR, ZEROS, Lanes, emits

_LANES, _ONE = np.uint64(LANES), np.uint64(1)


@inlined
def stride_for(buckets):
    """Return the distance between the rows of a histogram of `buckets` buckets (uint64)."""
    return (buckets + _LANES - _ONE) // _LANES * _LANES + _ONE


def score_edges(hist, stride, buckets, total, weight, min_leaf, edge):
    """Sum up the rows of a histogram, fill the row of all classes, and score the split after every bucket.

    hist   uint32 [>= (classes + 1) * stride], with the rows of classes filled; the first entry of each row and the
           entries after the last bucket are 0.
    total  int64 [classes], sums of these rows; weight < 2**31: the sum of `total`.
    edge   float64 [>= stride], out: sum of squares over weight, added over both sides; -1 if a side weighs less than
           min_leaf, which is at least 1 and below 2**31. The relative error is a few times 2**-53 per class.

    Returns the highest score.
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
def _emit_score_edges(lanes: Lanes, stride: Any, buckets: Any, weight: Any, least: Any) -> Any:
    builder, classes = lanes.builder, lanes.size("total")
    builder.store(ir.Constant(NUMBER, 0), lanes.pointer("hist", builder.mul(classes, stride)))
    weight, least = lanes.splat(weight), lanes.splat(least)
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
        enough = (builder.icmp_signed(">=", side, least) for side in (left, right))
        score = lanes.masked(score, builder.and_(*enough))
        lanes.store(score, "edge", base)
        builder.store(lanes.larger(score, builder.load(best)), best)
    return lanes.highest(builder.load(best))


def _indices(builder: Any, base: Any, row: Any, stride: Any) -> tuple[Any, Any]:
    """Return the indices, in a row of the histogram, of the counts before and after the buckets from `base` on."""
    before = builder.add(base, builder.mul(row, stride))
    return before, builder.add(before, ir.Constant(before.type, 1))


def bound_buckets(hist, stride, buckets, total, weight, whole, bound):
    """Set bound[b] to an upper bound of the scores of splits inside bucket b, or -1 if there are none.

    hist, total, weight  as after `score_edges`
    whole                sum of squares over weight of the node, float64
    bound                float64 [>= stride]

    The decrease is sum_k d_k**2 / (w w_l w_r) with d_k = w l_k - t_k w_l. Inside the bucket l_k and w_l grow together:
    if all of class k is on the left, w_l has grown by at least its weight w_k; if none, by at most inside - w_k. So d_k
    is between w l_k - t_k (w_l + inside - w_k) and w (l_k + w_k) - t_k (w_l + w_k); w_l w_r is concave, least at an
    end.
    """
    w = float(weight)
    rows = hist[: (total.size + 1) * int(stride)].reshape(total.size + 1, int(stride)).astype(np.float64)
    start, end = rows[-1, :-1], rows[-1, 1:]
    before, after = rows[:-1, :-1], rows[:-1, 1:]
    least = w * before - total[:, None] * (end - (after - before))
    most = w * after - total[:, None] * (start + (after - before))
    first, last = np.maximum(start, 1.0), np.minimum(end, w - 1.0)
    room = w * np.minimum(first * (w - first), last * (w - last))
    several = end - start > 1.0
    spread = np.maximum(least**2, most**2).sum(axis=0)
    bound[: int(stride) - 1] = np.where(several, whole + spread / np.where(several, room, 1.0), -1.0)


@emits(bound_buckets, weight=types.float64, whole=types.float64)
def _emit_bound_buckets(lanes: Lanes, stride: Any, buckets: Any, weight: Any, whole: Any) -> None:
    builder, classes = lanes.builder, lanes.size("total")
    weight, whole = lanes.splat(weight), lanes.splat(whole)
    unit = ir.Constant(DOUBLES, [1.0] * LANES)
    spread = cgutils.alloca_once(builder, DOUBLES)
    with lanes.blocks(buckets) as base:
        indices = _indices(builder, base, classes, stride)
        start, end = (lanes.real(lanes.load("hist", index), DOUBLES) for index in indices)
        builder.store(ir.Constant(DOUBLES, [0.0] * LANES), spread)
        with cgutils.for_range(builder, classes) as loop:
            indices = _indices(builder, base, loop.index, stride)
            before, after = (lanes.real(lanes.load("hist", index), DOUBLES) for index in indices)
            whole_class = lanes.real(lanes.spread("total", loop.index), DOUBLES)
            inside = builder.fsub(after, before)
            least = builder.fsub(builder.fmul(weight, before), builder.fmul(whole_class, builder.fsub(end, inside)))
            most = builder.fsub(builder.fmul(weight, after), builder.fmul(whole_class, builder.fadd(start, inside)))
            square = lanes.larger(builder.fmul(least, least), builder.fmul(most, most))
            builder.store(builder.fadd(builder.load(spread), square), spread)
        rest = builder.fsub(weight, unit)
        first = lanes.larger(start, unit)
        last = builder.select(builder.fcmp_ordered("<", end, rest), end, rest)
        one_end, other = (builder.fmul(side, builder.fsub(weight, side)) for side in (first, last))
        room = builder.fmul(weight, builder.select(builder.fcmp_ordered("<", one_end, other), one_end, other))
        score = builder.fadd(whole, builder.fdiv(builder.load(spread), room))
        several = builder.fcmp_ordered(">", builder.fsub(end, start), unit)
        lanes.store(lanes.masked(score, several), "bound", base)
