"""Exact comparison of scores, so that equal splits compare as equal and the tie rule decides, not rounding.

The Gini decrease of a split orders like sq_l / w_l + sq_r / w_r, with sq the sum of squared class weights of a side
and w its weight. As a fraction that is (sq_l * w_r + sq_r * w_l) / (w_l * w_r). A node weighs less than 2**31, so the
numerator stays below 2**94, the denominator below 2**62, and products of 64 bits compare them without error.

The decrease of variance orders like (sum_l * w_r - sum_r * w_l)**2 / (w_l * w_r). For sums below 2**62 in magnitude and
weights below 2**31 in sum, cross products stay below 2**251.

The mean of a level (kernels/categories/ordering.py) is compared as a fraction, too: its numerator and a weight have 64
bits each.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from bigforest.kernels.llvm.lanes import Lanes, emits

_WIDE = ir.IntType(256)
_PRODUCT = ir.IntType(128)


def compare_gini(sq_l, w_l, sq_r, w_r, other_sq_l, other_w_l, other_sq_r, other_w_r):
    """Sign (1, 0, -1) of the first Gini score minus the other; int64 arguments, all weights positive.

    Compiled callers get the version below; this one serves plain Python, whose integers have no width.
    """
    sq_l, w_l, sq_r, w_r = int(sq_l), int(w_l), int(sq_r), int(w_r)
    other_sq_l, other_w_l = int(other_sq_l), int(other_w_l)
    other_sq_r, other_w_r = int(other_sq_r), int(other_w_r)
    one = (sq_l * w_r + sq_r * w_l) * (other_w_l * other_w_r)
    two = (other_sq_l * other_w_r + other_sq_r * other_w_l) * (w_l * w_r)
    return (one > two) - (one < two)


@emits(compare_gini, types.int64)
def _emit_compare_gini(lanes: Lanes, *numbers: Any) -> Any:
    builder = lanes.builder
    sq_l, w_l, sq_r, w_r, other_sq_l, other_w_l, other_sq_r, other_w_r = (
        builder.zext(value, _PRODUCT) for value in numbers
    )
    half, low_half = ir.Constant(_PRODUCT, 64), ir.Constant(_PRODUCT, 2**64 - 1)

    def cross(sql: Any, wl: Any, sqr: Any, wr: Any, denominator: Any) -> tuple[Any, Any]:
        """Emit the product of 95 and 62 bits, in an upper part and one of 64 bits: two multiplications of 64 bits
        each."""
        numerator = builder.add(builder.mul(sql, wr), builder.mul(sqr, wl))
        lower = builder.mul(builder.and_(numerator, low_half), denominator)
        upper = builder.mul(builder.lshr(numerator, half), denominator)
        return builder.add(upper, builder.lshr(lower, half)), builder.and_(lower, low_half)

    one = cross(sq_l, w_l, sq_r, w_r, builder.mul(other_w_l, other_w_r))
    two = cross(other_sq_l, other_w_l, other_sq_r, other_w_r, builder.mul(w_l, w_r))
    equal = builder.icmp_unsigned("==", one[0], two[0])
    return builder.select(equal, _sign(builder, one[1], two[1]), _sign(builder, one[0], two[0]))


def _sign(builder: Any, one: Any, two: Any) -> Any:
    """Emit code of the sign of one - two."""
    number = ir.IntType(64)
    more = builder.zext(builder.icmp_signed(">", one, two), number)
    less = builder.zext(builder.icmp_signed("<", one, two), number)
    return builder.sub(more, less)


def compare_variance(sum_l, w_l, sum_r, w_r, other_sum_l, other_w_l, other_sum_r, other_w_r):
    """Sign (1, 0, -1) of the first decrease of variance minus the other; int64 arguments, all weights positive.

    The weights of both have the same sum, and so have the sums. Compiled as compare_gini is.
    """
    sum_l, w_l, sum_r, w_r = int(sum_l), int(w_l), int(sum_r), int(w_r)
    other_sum_l, other_w_l = int(other_sum_l), int(other_w_l)
    other_sum_r, other_w_r = int(other_sum_r), int(other_w_r)
    one = (sum_l * w_r - sum_r * w_l) ** 2 * (other_w_l * other_w_r)
    two = (other_sum_l * other_w_r - other_sum_r * other_w_l) ** 2 * (w_l * w_r)
    return (one > two) - (one < two)


@emits(compare_variance, types.int64)
def _emit_compare_variance(lanes: Lanes, *numbers: Any) -> Any:
    builder = lanes.builder
    sum_l, w_l, sum_r, w_r, other_sum_l, other_w_l, other_sum_r, other_w_r = (
        builder.sext(value, _WIDE) for value in numbers
    )

    def cross(suml: Any, wl: Any, sumr: Any, wr: Any, denominator_l: Any, denominator_r: Any) -> Any:
        difference = builder.sub(builder.mul(suml, wr), builder.mul(sumr, wl))
        return builder.mul(builder.mul(difference, difference), builder.mul(denominator_l, denominator_r))

    one = cross(sum_l, w_l, sum_r, w_r, other_w_l, other_w_r)
    two = cross(other_sum_l, other_w_l, other_sum_r, other_w_r, w_l, w_r)
    return _sign(builder, one, two)


def compare_means(total, weight, other_total, other_weight):
    """Sign (1, 0, -1) of total / weight minus the other; int64 arguments, the weights positive.

    Compiled in 128 bits, which hold all products; a division would take longer than all of it.
    """
    one, two = int(total) * int(other_weight), int(other_total) * int(weight)
    return (one > two) - (one < two)


@emits(compare_means, types.int64)
def _emit_compare_means(lanes: Lanes, *numbers: Any) -> Any:
    builder = lanes.builder
    total, weight, other_total, other_weight = (builder.sext(number, _PRODUCT) for number in numbers)
    return _sign(builder, builder.mul(total, other_weight), builder.mul(other_total, weight))
