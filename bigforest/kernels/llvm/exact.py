"""Exact comparison of scores. Equal splits compare as equal, so ties are decided by the tie rule and not by rounding.

Gini: a larger score sq_l / w_l + sq_r / w_r is a larger decrease, with sq the sum of squared class weights of a side
and w its weight. As a fraction it is (sq_l * w_r + sq_r * w_l) / (w_l * w_r). A node weighs less than 2**31, so
the numerator is below 2**94 and the denominator below 2**62. Fractions are compared by cross products.

Variance: a larger score (sum_l * w_r - sum_r * w_l)**2 / (w_l * w_r) is a larger decrease. For sums below 2**62 in
magnitude and weights below 2**31 in total, cross products are below 2**251.

Means of levels (kernels/scan/level_order.py) are also compared as fractions. Numerator and weight have 64 bits each.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from bigforest.kernels.llvm.lanes import Lanes, emits

_WIDE = ir.IntType(256)
_PRODUCT = ir.IntType(128)


def compare_gini(sq_l, w_l, sq_r, w_r, other_sq_l, other_w_l, other_sq_r, other_w_r):
    """Return the sign (1, 0, -1) of the first Gini score minus the other; int64 arguments, all weights positive.

    Compiled callers use the emitter below. This body is for plain Python, whose integers have no limit.
    """
    sq_l, w_l, sq_r, w_r = int(sq_l), int(w_l), int(sq_r), int(w_r)
    other_sq_l, other_w_l = int(other_sq_l), int(other_w_l)
    other_sq_r, other_w_r = int(other_sq_r), int(other_w_r)
    score = (sq_l * w_r + sq_r * w_l) * (other_w_l * other_w_r)
    other_score = (other_sq_l * other_w_r + other_sq_r * other_w_l) * (w_l * w_r)
    return (score > other_score) - (score < other_score)


@emits(compare_gini, types.int64)
def _emit_compare_gini(lanes: Lanes, *numbers: Any) -> Any:
    builder = lanes.builder
    sq_l, w_l, sq_r, w_r, other_sq_l, other_w_l, other_sq_r, other_w_r = (
        builder.zext(value, _PRODUCT) for value in numbers
    )
    half, low_half = ir.Constant(_PRODUCT, 64), ir.Constant(_PRODUCT, 2**64 - 1)

    def cross(sql: Any, wl: Any, sqr: Any, wr: Any, denominator: Any) -> tuple[Any, Any]:
        """Emit the product of a numerator below 2**94 and a denominator below 2**62, by two multiplications. Return the
        upper part and the lowest 64 bits of the product."""
        numerator = builder.add(builder.mul(sql, wr), builder.mul(sqr, wl))
        lower = builder.mul(builder.and_(numerator, low_half), denominator)
        upper = builder.mul(builder.lshr(numerator, half), denominator)
        return builder.add(upper, builder.lshr(lower, half)), builder.and_(lower, low_half)

    score = cross(sq_l, w_l, sq_r, w_r, builder.mul(other_w_l, other_w_r))
    other_score = cross(other_sq_l, other_w_l, other_sq_r, other_w_r, builder.mul(w_l, w_r))
    equal = builder.icmp_unsigned("==", score[0], other_score[0])
    return builder.select(equal, _sign(builder, score[1], other_score[1]), _sign(builder, score[0], other_score[0]))


def _sign(builder: Any, number: Any, other: Any) -> Any:
    """Emit the sign of number - other, int64."""
    kind = ir.IntType(64)
    more = builder.zext(builder.icmp_signed(">", number, other), kind)
    less = builder.zext(builder.icmp_signed("<", number, other), kind)
    return builder.sub(more, less)


def compare_variance(sum_l, w_l, sum_r, w_r, other_sum_l, other_w_l, other_sum_r, other_w_r):
    """Return the sign (1, 0, -1) of the first decrease of variance minus the other; int64 arguments, all weights
    positive.

    Both splits have the same total weight and the same total sum.
    """
    sum_l, w_l, sum_r, w_r = int(sum_l), int(w_l), int(sum_r), int(w_r)
    other_sum_l, other_w_l = int(other_sum_l), int(other_w_l)
    other_sum_r, other_w_r = int(other_sum_r), int(other_w_r)
    score = (sum_l * w_r - sum_r * w_l) ** 2 * (other_w_l * other_w_r)
    other_score = (other_sum_l * other_w_r - other_sum_r * other_w_l) ** 2 * (w_l * w_r)
    return (score > other_score) - (score < other_score)


@emits(compare_variance, types.int64)
def _emit_compare_variance(lanes: Lanes, *numbers: Any) -> Any:
    builder = lanes.builder
    sum_l, w_l, sum_r, w_r, other_sum_l, other_w_l, other_sum_r, other_w_r = (
        builder.sext(value, _WIDE) for value in numbers
    )

    def cross(suml: Any, wl: Any, sumr: Any, wr: Any, denominator_l: Any, denominator_r: Any) -> Any:
        difference = builder.sub(builder.mul(suml, wr), builder.mul(sumr, wl))
        return builder.mul(builder.mul(difference, difference), builder.mul(denominator_l, denominator_r))

    score = cross(sum_l, w_l, sum_r, w_r, other_w_l, other_w_r)
    other_score = cross(other_sum_l, other_w_l, other_sum_r, other_w_r, w_l, w_r)
    return _sign(builder, score, other_score)


def compare_means(total, weight, other_total, other_weight):
    """Return the sign (1, 0, -1) of total / weight minus the other mean; int64 arguments, positive weights.

    Compiled in 128 bits, which hold all products. A single division would take longer.
    """
    mean, other_mean = int(total) * int(other_weight), int(other_total) * int(weight)
    return (mean > other_mean) - (mean < other_mean)


@emits(compare_means, types.int64)
def _emit_compare_means(lanes: Lanes, *numbers: Any) -> Any:
    builder = lanes.builder
    total, weight, other_total, other_weight = (builder.sext(number, _PRODUCT) for number in numbers)
    return _sign(builder, builder.mul(total, other_weight), builder.mul(other_total, weight))
