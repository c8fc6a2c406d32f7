"""Scores of many splits for regression (regression.py), sixteen at a time.

The plain-Python body below is the oracle of the compiled version.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bigforest.kernels.common.simd import DOUBLES, LANES, Lanes
from bigforest.kernels.compiler.jit import compiled_as


def score_sums(w_l, sum_l, n, weight, total, min_leaf, score):
    """score[i] = sum**2 / weight of both sides of the split that leaves w_l[i] and sum_l[i] on the left, for i < n.

    w_l uint32, sum_l int64, score float64 [>= n rounded up to LANES]; the padding is read and written. weight < 2**31
    and total are those of the node; -1 where a side has less than min_leaf, which is at least 1. Returns the highest.
    """
    n = int(n)
    one = sum_l[:n].astype(np.float64)
    left = w_l[:n].astype(np.float64)
    right = float(weight) - left
    two = float(total) - one
    allowed = np.minimum(left, right) >= int(min_leaf)
    room = np.where(allowed, left * right, 1.0)
    score[:n] = np.where(allowed, (one * one * right + two * two * left) / room, -1.0)
    return float(score[:n].max(initial=-1.0))


def _numerator(builder: Any, one: Any, whole: Any, left: Any, right: Any) -> Any:
    """Code of the numerator over left * right in the score of a split with sum `one` on the left."""
    two = builder.fsub(whole, one)
    return builder.fadd(builder.fmul(builder.fmul(one, one), right), builder.fmul(builder.fmul(two, two), left))


@intrinsic
def _score_sums(
    typingctx: Any, w_l: Any, sum_l: Any, n: Any, weight: Any, total: Any, min_leaf: Any, score: Any
) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = {"w_l": (w_l, args[0]), "sum_l": (sum_l, args[1]), "score": (score, args[6])}
        lanes = Lanes(context, builder, arrays)
        rows = args[2]
        weight, least = (lanes.splat(number) for number in (args[3], args[5]))
        whole = lanes.splat(builder.sitofp(args[4], ir.DoubleType()))
        best = cgutils.alloca_once_value(builder, ir.Constant(DOUBLES, [-1.0] * LANES))
        with lanes.blocks(rows) as base:
            light = lanes.load("w_l", base)
            heavy = builder.sub(weight, light)
            left, right = lanes.real(light, DOUBLES), lanes.real(heavy, DOUBLES)
            one = lanes.real(lanes.load("sum_l", base), DOUBLES)
            found = builder.fdiv(_numerator(builder, one, whole, left, right), builder.fmul(left, right))
            enough = builder.and_(builder.icmp_signed(">=", light, least), builder.icmp_signed(">=", heavy, least))
            found = lanes.masked(found, builder.and_(enough, lanes.inside(base, rows)))
            lanes.store(found, "score", base)
            builder.store(lanes.larger(found, builder.load(best)), best)
        return lanes.highest(builder.load(best))

    number = types.int64
    return types.float64(w_l, sum_l, types.intp, number, number, number, score), codegen


@compiled_as(score_sums)
def _compiled(w_l, sum_l, n, weight, total, min_leaf, score):
    def vectors(w_l, sum_l, n, weight, total, min_leaf, score):
        return _score_sums(w_l, sum_l, np.intp(n), np.int64(weight), np.int64(total), np.int64(min_leaf), score)

    return vectors


def next_reaching(score, begin, n, bar):
    """The first i from `begin` on with score[i] >= bar >= 0, or n, all uint64; score as score_sums leaves it."""
    for i in range(int(begin), int(n)):
        if score[i] >= bar:
            return np.uint64(i)
    return np.uint64(n)


def bound_sums(w_l, most, least, buckets, weight, total, bound):
    """bound[b] = the most that the score of a split inside of bucket b may be.

    w_l          uint32 [> buckets rounded up to LANES], weight before each bucket, and after the last
    most, least  int64 [>= buckets rounded up to LANES], largest and smallest sum on the left of such a split
    bound        float64, of that length; the padding is read and written

    The score is convex in the weight and the sum of the left side together, so that over all they may be, from none to
    all of the bucket's weight and from `least` to `most`, it is largest in a corner.
    """
    buckets = int(buckets)
    whole = float(weight)
    first = np.maximum(w_l[:buckets].astype(np.float64), 1.0)
    last = np.minimum(w_l[1 : buckets + 1].astype(np.float64), whole - 1.0)
    bound[:buckets] = -1.0
    for side in (most, least):
        one = side[:buckets].astype(np.float64)
        two = float(total) - one
        for left in (first, last):
            right = whole - left
            corner = (one * one * right + two * two * left) / (left * right)
            bound[:buckets] = np.maximum(bound[:buckets], corner)


@intrinsic
def _bound_sums(
    typingctx: Any, w_l: Any, most: Any, least: Any, buckets: Any, weight: Any, total: Any, bound: Any
) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = {"w_l": (w_l, args[0]), "most": (most, args[1]), "least": (least, args[2]), "bound": (bound, args[6])}
        lanes = Lanes(context, builder, arrays)
        weight, whole = (lanes.splat(builder.sitofp(number, ir.DoubleType())) for number in args[4:6])
        one = ir.Constant(DOUBLES, [1.0] * LANES)
        rest = builder.fsub(weight, one)
        with lanes.blocks(args[3]) as base:
            start = lanes.real(lanes.load("w_l", base), DOUBLES)
            end = lanes.real(lanes.load("w_l", builder.add(base, ir.Constant(base.type, 1))), DOUBLES)
            first = lanes.larger(start, one)
            last = builder.select(builder.fcmp_ordered("<", end, rest), end, rest)
            sides = [lanes.real(lanes.load(name, base), DOUBLES) for name in ("most", "least")]
            found = []
            for left in (first, last):
                right = builder.fsub(weight, left)
                corner = lanes.larger(*(_numerator(builder, side, whole, left, right) for side in sides))
                found.append(builder.fdiv(corner, builder.fmul(left, right)))
            lanes.store(lanes.larger(*found), "bound", base)
        return context.get_dummy_value()

    number = types.int64
    return types.void(w_l, most, least, types.intp, number, number, bound), codegen


@compiled_as(bound_sums)
def _compiled_bounds(w_l, most, least, buckets, weight, total, bound):
    def vectors(w_l, most, least, buckets, weight, total, bound):
        _bound_sums(w_l, most, least, np.intp(buckets), np.int64(weight), np.int64(total), bound)

    return vectors


@intrinsic
def _reaching(typingctx: Any, score: Any, base: Any, bar: Any) -> Any:
    """Bit i: whether score[base + i] >= bar, for a block."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = Lanes(context, builder, {"score": (score, args[0])})
        found = builder.fcmp_ordered(">=", lanes.load("score", args[1]), lanes.splat(args[2]))
        return builder.zext(builder.bitcast(found, ir.IntType(LANES)), ir.IntType(64))

    return types.uint64(score, types.intp, types.float64), codegen


@intrinsic
def _first_bit(typingctx: Any, bits: Any) -> Any:
    """Place of the lowest bit that is set, of some."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


@compiled_as(next_reaching)
def _compiled_next(score, begin, n, bar):
    def vectors(score, begin, n, bar):
        base = begin & ~np.uint64(LANES - 1)
        bits = np.uint64(0)
        if base < n:
            bits = _reaching(score, np.intp(base), bar) >> (begin - base) << (begin - base)
        while bits == np.uint64(0):
            base += np.uint64(LANES)
            if base >= n:
                return n
            bits = _reaching(score, np.intp(base), bar)
        return base + _first_bit(bits)

    return vectors
