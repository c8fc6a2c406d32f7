"""Scores of the splits between the buckets of a histogram of many classes, sixteen buckets at a time.

A histogram has a row per class and one for all classes, `stride` = stride_for(buckets) apart. A row begins with a zero,
followed by the weight of the first bucket. So once the rows are summed up, entry b is the weight before bucket b.

The plain-Python body below is the oracle of the compiled version.
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
