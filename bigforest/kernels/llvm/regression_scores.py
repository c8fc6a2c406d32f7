"""Scores of many splits for regression (kernels/scan/regression.py), sixteen at a time.

The plain-Python bodies below are the oracle of the compiled versions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.lanes import DOUBLES, LANES, Lanes, emits

_LANES, _ONE, _NONE = np.uint64(LANES), np.uint64(1), np.uint64(0)


def score_sums(w_l, sum_l, n, weight, total, min_leaf, score):
    """score[i] = sum**2 / weight of both sides of the split that leaves w_l[i] and sum_l[i] on the left, for i < n.

    w_l uint32, sum_l int64, score float64 [>= n rounded up to LANES]; the padding is read, and that of score
    gets -1. weight < 2**31 and total are those of the node; -1 where a side has less than min_leaf, which is at least
    1. Returns the highest.
    """
    n = int(n)
    one = sum_l[:n].astype(np.float64)
    left = w_l[:n].astype(np.float64)
    right = float(weight) - left
    two = float(total) - one
    allowed = np.minimum(left, right) >= int(min_leaf)
    room = np.where(allowed, left * right, 1.0)
    score[:n] = np.where(allowed, (one * one * right + two * two * left) / room, -1.0)
    score[n : -(-n // LANES) * LANES] = -1.0
    return float(score[:n].max(initial=-1.0))


def _numerator(builder: Any, one: Any, whole: Any, left: Any, right: Any) -> Any:
    """Code of the numerator over left * right in the score of a split with sum `one` on the left."""
    two = builder.fsub(whole, one)
    return builder.fadd(builder.fmul(builder.fmul(one, one), right), builder.fmul(builder.fmul(two, two), left))


@emits(score_sums, types.float64)
def _emit_score_sums(lanes: Lanes, rows: Any, weight: Any, total: Any, least: Any) -> Any:
    builder = lanes.builder
    weight, least = lanes.splat(weight), lanes.splat(least)
    whole = lanes.splat(builder.sitofp(total, ir.DoubleType()))
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


@emits(bound_sums)
def _emit_bound_sums(lanes: Lanes, buckets: Any, weight: Any, total: Any) -> None:
    builder = lanes.builder
    weight, whole = (lanes.splat(builder.sitofp(number, ir.DoubleType())) for number in (weight, total))
    one = ir.Constant(DOUBLES, [1.0] * LANES)
    rest = builder.fsub(weight, one)
    with lanes.blocks(buckets) as base:
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


@inlined
def next_reaching(score, begin, n, bar):
    """The first i from `begin` on with score[i] >= bar >= 0, or n, all uint64; score as score_sums leaves it."""
    base = begin & ~(_LANES - _ONE)
    bits = _NONE
    if base < n:
        bits = _reaching(score, base, bar) >> (begin - base) << (begin - base)
    while bits == _NONE:
        base += _LANES
        if base >= n:
            return n
        bits = _reaching(score, base, bar)
    return base + _first_bit(bits)


def _reaching(score, base, bar):
    """Bit i, of LANES: whether score[base + i] >= bar."""
    return np.uint64(sum(1 << i for i in range(LANES) if score[int(base) + i] >= bar))


@emits(_reaching, types.uint64, bar=types.float64)
def _emit_reaching(lanes: Lanes, base: Any, bar: Any) -> Any:
    builder = lanes.builder
    found = builder.fcmp_ordered(">=", lanes.load("score", base), lanes.splat(bar))
    return builder.zext(builder.bitcast(found, ir.IntType(LANES)), ir.IntType(64))


def _first_bit(bits):
    """Place of the lowest bit that is set, of at least one; uint64."""
    return np.uint64((int(bits) & -int(bits)).bit_length() - 1)


@emits(_first_bit, types.uint64, bits=types.uint64)
def _emit_first_bit(lanes: Lanes, bits: Any) -> Any:
    return lanes.builder.cttz(bits, ir.Constant(ir.IntType(1), 1))
