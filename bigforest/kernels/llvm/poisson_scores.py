"""Scores of splits by the Poisson deviance (kernels/scan/regression.py), one at a time and sixteen at a time.

Half the deviance of numbers y from their mean is the sum of y log(y / mean). Its decrease by a split of a node with sum
S and weight W orders like

    1 + (S_l log(S_l W / (W_l S)) + S_r log(S_r W / (W_r S))) / S.

Splits are compared by this as float64 computes it by additions, multiplications and divisions in a fixed order, which
has the same bits on every machine; the logarithm, too, is made of these. Mirrored splits tie, and so do those that
change no mean. Sums are counted from a centre, which is `origin` above zero.

The plain-Python bodies below are the oracle of the compiled versions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from bigforest.kernels.llvm.lanes import DOUBLES, LANES, NUMBER, Lanes, emits

# The logarithm of fdlibm (Sun Microsystems 1993, e_log.c): x is 2**k (1 + f) with 1 + f from the root of 1/2 on, whose
# upper bits are _ROOT, and log(1 + f) a polynomial of f / (2 + f). ln 2 is in two parts, the first with few bits.
_ROOT = 0x3FE6A09E << 32
_MANTISSA_BITS, _BIAS = 52, 1023
_TO_EXPONENT = (_BIAS << _MANTISSA_BITS) - _ROOT
_MANTISSA = (1 << _MANTISSA_BITS) - 1
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_POLYNOMIAL = (
    1.479819860511658591e-01,
    1.531383769920937332e-01,
    1.818357216161805012e-01,
    2.222219843214978396e-01,
    2.857142874366239149e-01,
    3.999999999940941908e-01,
    6.666666666666735130e-01,
)


def logarithm(x):
    """The natural logarithm of float64 x > 0, right to the last bit or the one before; a finite number for 0."""
    bits = np.asarray(x, np.float64).view(np.int64) + _TO_EXPONENT
    k = np.float64((bits >> _MANTISSA_BITS) - _BIAS)
    f = np.asarray((bits & _MANTISSA) + _ROOT).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    series = _POLYNOMIAL[0]
    for term in _POLYNOMIAL[1:]:
        series = series * z + term
    half = 0.5 * f * f
    return k * _LN2_HIGH - (half - (s * (half + series * z) + k * _LN2_LOW) - f)


def _constant(kind: Any, number: float) -> Any:
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)


def _emit_log(builder: Any, x: Any) -> Any:
    """Code of `logarithm` of a number, or of a vector."""
    real = x.type
    wide, narrow = (
        ir.VectorType(ir.IntType(bits), real.count) if isinstance(real, ir.VectorType) else ir.IntType(bits)
        for bits in (64, 32)
    )
    bits = builder.add(builder.bitcast(x, wide), _constant(wide, _TO_EXPONENT))
    exponent = builder.trunc(builder.lshr(bits, _constant(wide, _MANTISSA_BITS)), narrow)
    k = builder.sitofp(builder.sub(exponent, _constant(narrow, _BIAS)), real)
    mantissa = builder.add(builder.and_(bits, _constant(wide, _MANTISSA)), _constant(wide, _ROOT))
    f = builder.fsub(builder.bitcast(mantissa, real), _constant(real, 1.0))
    s = builder.fdiv(f, builder.fadd(_constant(real, 2.0), f))
    z = builder.fmul(s, s)
    series = _constant(real, _POLYNOMIAL[0])
    for term in _POLYNOMIAL[1:]:
        series = builder.fadd(builder.fmul(series, z), _constant(real, term))
    half = builder.fmul(builder.fmul(_constant(real, 0.5), f), f)
    small = builder.fmul(s, builder.fadd(half, builder.fmul(series, z)))
    small = builder.fadd(small, builder.fmul(k, _constant(real, _LN2_LOW)))
    return builder.fsub(builder.fmul(k, _constant(real, _LN2_HIGH)), builder.fsub(builder.fsub(half, small), f))


@emits(logarithm, types.float64, x=types.float64)
def _emit_logarithm(lanes: Lanes, x: Any) -> Any:
    return _emit_log(lanes.builder, x)


def _sides(sum_l, w_l, weight, total, origin):
    """Sums from zero and weights of the left side, of the right side and of the node, as float64."""
    return tuple(
        (np.float64(sums) + np.float64(weights) * origin, np.float64(weights))
        for sums, weights in ((sum_l, w_l), (total - sum_l, weight - w_l), (total, weight))
    )


def _score(left, right, node):
    """The score of a split from `_sides`."""
    first, second = (sums * logarithm(sums * node[1] / (weight * node[0])) for sums, weight in (left, right))
    return 1.0 + (first + second) / node[0]


def poisson_score(sum_l, w_l, weight, total, origin):
    """The score of the split that leaves sum_l and w_l of a node's total and weight on the left; -1 where the sum of a
    side is not above 0. Neither side is empty."""
    left, right, node = _sides(int(sum_l), int(w_l), int(weight), int(total), float(origin))
    return float(_score(left, right, node)) if left[0] > 0.0 and right[0] > 0.0 else -1.0


def poisson_corner(sum_l, w_l, weight, total, origin):
    """poisson_score, if negative sums of a side count as 0, and one of 0 may be."""
    left, right, node = _sides(int(sum_l), int(w_l), int(weight), int(total), float(origin))
    return float(_score((max(left[0], 0.0), left[1]), (max(right[0], 0.0), right[1]), node))


class _Node:
    """Emits the scores of splits of a node, from numbers or from vectors of them."""

    def __init__(self, builder: Any, weight: Any, total: Any, origin: Any) -> None:
        """weight, origin: float64; total: int64."""
        self.builder = builder
        self.weight, self.total, self.origin = weight, total, origin
        self.whole = self._from_zero(total, weight)

    def sides(self, sum_l: Any, left: Any) -> tuple[Any, Any, Any, Any]:
        """Sum from zero and weight of both sides, of which `left` is the left weight."""
        right = self.builder.fsub(self.weight, left)
        two = self._from_zero(self.builder.sub(self.total, sum_l), right)
        return self._from_zero(sum_l, left), left, two, right

    def score(self, one: Any, left: Any, two: Any, right: Any) -> Any:
        """The score of a split into these sides."""
        builder = self.builder
        first, second = (
            builder.fmul(
                sums,
                _emit_log(builder, builder.fdiv(builder.fmul(sums, self.weight), builder.fmul(weight, self.whole))),
            )
            for sums, weight in ((one, left), (two, right))
        )
        share = builder.fdiv(builder.fadd(first, second), self.whole)
        return builder.fadd(_constant(share.type, 1.0), share)

    def allowed_score(self, sum_l: Any, left: Any) -> Any:
        """The score of a split, -1 where the sum of a side is not above 0."""
        builder = self.builder
        one, left, two, right = self.sides(sum_l, left)
        zero = _constant(one.type, 0.0)
        allowed = builder.and_(builder.fcmp_ordered(">", one, zero), builder.fcmp_ordered(">", two, zero))
        return builder.select(allowed, self.score(one, left, two, right), _constant(one.type, -1.0))

    def corner(self, sum_l: Any, left: Any) -> Any:
        """`poisson_corner`."""
        one, left, two, right = self.sides(sum_l, left)
        zero = _constant(one.type, 0.0)
        one, two = (self.builder.select(self.builder.fcmp_ordered(">", sums, zero), sums, zero) for sums in (one, two))
        return self.score(one, left, two, right)

    def _from_zero(self, sums: Any, weight: Any) -> Any:
        builder = self.builder
        return builder.fadd(builder.sitofp(sums, weight.type), builder.fmul(weight, self.origin))


@emits(poisson_score, types.float64, origin=types.float64)
def _emit_poisson_score(lanes: Lanes, sum_l: Any, w_l: Any, weight: Any, total: Any, origin: Any) -> Any:
    left, whole = (lanes.builder.sitofp(number, origin.type) for number in (w_l, weight))
    return _Node(lanes.builder, whole, total, origin).allowed_score(sum_l, left)


@emits(poisson_corner, types.float64, origin=types.float64)
def _emit_poisson_corner(lanes: Lanes, sum_l: Any, w_l: Any, weight: Any, total: Any, origin: Any) -> Any:
    left, whole = (lanes.builder.sitofp(number, origin.type) for number in (w_l, weight))
    return _Node(lanes.builder, whole, total, origin).corner(sum_l, left)


def _node_of(lanes: Lanes, weight: Any, total: Any, origin: Any) -> _Node:
    """A _Node of vectors."""

    def spread(number: Any) -> Any:
        first = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
        first = lanes.builder.insert_element(first, number, ir.Constant(NUMBER, 0))
        return lanes.builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(NUMBER, LANES), [0] * LANES))

    whole = lanes.builder.sitofp(weight, origin.type)
    return _Node(lanes.builder, spread(whole), spread(total), spread(origin))


def poisson_scores(w_l, sum_l, n, weight, total, min_leaf, origin, score):
    """score[i] = poisson_score of the split that leaves w_l[i] and sum_l[i] on the left, for i < n; as score_sums of
    regression_scores.py otherwise."""
    n = int(n)
    score[: -(-n // LANES) * LANES] = -1.0
    for i in range(n):
        if min(int(w_l[i]), int(weight) - int(w_l[i])) >= int(min_leaf):
            score[i] = poisson_score(sum_l[i], w_l[i], weight, total, origin)
    return float(score[:n].max(initial=-1.0))


@emits(poisson_scores, types.float64, origin=types.float64)
def _emit_poisson_scores(lanes: Lanes, rows: Any, weight: Any, total: Any, least: Any, origin: Any) -> Any:
    builder, node = lanes.builder, _node_of(lanes, weight, total, origin)
    weight, least = lanes.splat(weight), lanes.splat(least)
    best = cgutils.alloca_once_value(builder, _constant(DOUBLES, -1.0))
    with lanes.blocks(rows) as base:
        light = lanes.load("w_l", base)
        heavy = builder.sub(weight, light)
        enough = builder.and_(builder.icmp_signed(">=", light, least), builder.icmp_signed(">=", heavy, least))
        found = node.allowed_score(lanes.load("sum_l", base), lanes.real(light, DOUBLES))
        found = lanes.masked(found, builder.and_(enough, lanes.inside(base, rows)))
        lanes.store(found, "score", base)
        builder.store(lanes.larger(found, builder.load(best)), best)
    return lanes.highest(builder.load(best))


def poisson_bounds(w_l, most, least, buckets, weight, total, origin, bound):
    """bound[b] = the most that the score of a split inside of bucket b may be; as bound_sums of regression_scores.py.

    S log(S / W) is convex in the sum and the weight together, and so is the score.
    """
    for b in range(int(buckets)):
        first, last = max(int(w_l[b]), 1), min(int(w_l[b + 1]), int(weight) - 1)
        bound[b] = -1.0
        for sum_l in (most[b], least[b]):
            for left in (first, last):
                bound[b] = max(bound[b], poisson_corner(sum_l, left, weight, total, origin))


@emits(poisson_bounds, origin=types.float64)
def _emit_poisson_bounds(lanes: Lanes, buckets: Any, weight: Any, total: Any, origin: Any) -> None:
    builder, node = lanes.builder, _node_of(lanes, weight, total, origin)
    unit = _constant(DOUBLES, 1.0)
    rest = builder.fsub(node.weight, unit)
    with lanes.blocks(buckets) as base:
        start = lanes.real(lanes.load("w_l", base), DOUBLES)
        end = lanes.real(lanes.load("w_l", builder.add(base, ir.Constant(base.type, 1))), DOUBLES)
        last = builder.select(builder.fcmp_ordered("<", end, rest), end, rest)
        best = _constant(DOUBLES, -1.0)
        for name in ("most", "least"):
            sums = lanes.load(name, base)
            for light in (lanes.larger(start, unit), last):
                best = lanes.larger(node.corner(sums, light), best)
        lanes.store(best, "bound", base)
