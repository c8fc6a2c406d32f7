"""The inner loops of kernels/explain/contributions.py, for LANES rows at once, at all points of the integrals.

A level is an edge on the path in a tree. An array has size = points * LANES numbers for each level:

    index within a level   point * LANES + row
    begin, above           index of the first number of a level, and of the level above it

The plain-Python bodies are the oracle of the compiled versions.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from bigforest.kernels.llvm.lanes import DOUBLES, LANES, Lanes, emits


def extend_products(product, inverse, met, factors, size, level, before):
    """Set the products of a level: for each row, multiply the products of the level above by the factor of the edge.

    product, inverse  float64 [levels * size], products, and inverses of the factor of each edge. The entries of `level`
                      are set
    met               float64 [levels * LANES], 1 for each row that meets all conditions on the feature, else 0
    factors           float64 [4 * points], for each point the factor if conditions are met, the factor if not, and the
                      inverses of both
    before            level of the last edge on the same feature, whose factor is divided out
    """
    first, above, last = level * size, (level - 1) * size, before * size
    for index in range(int(size)):
        point, row = divmod(index, LANES)
        other = 0 if met[level * LANES + row] > 0.5 else 1
        product[first + index] = product[above + index] * factors[4 * point + other] * inverse[last + index]
        inverse[first + index] = factors[4 * point + 2 + other]


@emits(extend_products)
def _emit_extend_products(lanes: Lanes, size: Any, level: Any, before: Any) -> None:
    builder = lanes.builder
    met = lanes.load("met", builder.mul(level, ir.Constant(size.type, LANES)))
    is_met = builder.fcmp_ordered(">", met, ir.Constant(DOUBLES, [0.5] * LANES))
    begin, last = builder.mul(level, size), builder.mul(before, size)
    above = builder.sub(begin, size)
    with lanes.blocks(size) as base:
        factor = builder.udiv(base, ir.Constant(size.type, LANES // 4))  # four numbers for each point
        factor_met, factor_unmet, inverse_met, inverse_unmet = (
            lanes.spread("factors", builder.add(factor, ir.Constant(size.type, offset))) for offset in range(4)
        )
        result = lanes.load("product", builder.add(above, base))
        result = builder.fmul(result, builder.select(is_met, factor_met, factor_unmet))
        result = builder.fmul(result, lanes.load("inverse", builder.add(last, base)))
        lanes.store(result, "product", builder.add(begin, base))
        lanes.store(builder.select(is_met, inverse_met, inverse_unmet), "inverse", builder.add(begin, base))


def scale(below, product, value, size, begin, first):
    """Set below[begin : begin + size] to value * product[first : first + size]."""
    below[begin : begin + size] = value * product[first : first + size]


@emits(scale, value=types.float64)
def _emit_scale(lanes: Lanes, value: Any, size: Any, begin: Any, first: Any) -> None:
    builder, value = lanes.builder, lanes.splat(value)
    with lanes.blocks(size) as base:
        result = builder.fmul(value, lanes.load("product", builder.add(first, base)))
        lanes.store(result, "below", builder.add(begin, base))


def charge(below, inverse, gain, total, size, begin, above, edge, before, feature):
    """Close an edge (kernels/explain/contributions.py): add the sums below it, times the change of the ratio at it, to
    its feature, and add the sums to the level above.

    below    float64, sums of the levels, read from `begin` on and increased from `above` on
    inverse  float64 [levels * size], inverses of the factor of each edge
    gain     float64 [levels * LANES], met - share of each row at each edge
    total    float64; the LANES numbers of the feature, from `feature` on, are increased
    edge     level of the edge
    before   level of the last edge on the same feature
    """
    for index in range(int(size)):
        row = index % LANES
        value = below[begin + index]
        credit = gain[edge * LANES + row] * inverse[edge * size + index]
        credit -= gain[before * LANES + row] * inverse[before * size + index]
        total[feature + row] += value * credit
        below[above + index] += value


@emits(charge)
def _emit_charge(lanes: Lanes, size: Any, begin: Any, above: Any, edge: Any, before: Any, feature: Any) -> None:
    builder = lanes.builder
    width = ir.Constant(size.type, LANES)
    won, lost = (lanes.load("gain", builder.mul(level, width)) for level in (edge, before))
    level, last = builder.mul(edge, size), builder.mul(before, size)
    sums = cgutils.alloca_once_value(builder, lanes.load("total", feature))
    with lanes.blocks(size) as base:
        value = lanes.load("below", builder.add(begin, base))
        credit = builder.fsub(
            builder.fmul(won, lanes.load("inverse", builder.add(level, base))),
            builder.fmul(lost, lanes.load("inverse", builder.add(last, base))),
        )
        builder.store(builder.fadd(builder.load(sums), builder.fmul(value, credit)), sums)
        index = builder.add(above, base)
        lanes.store(builder.fadd(lanes.load("below", index), value), "below", index)
    lanes.store(builder.load(sums), "total", feature)
