"""The inner loops of kernels/explain/contributions.py, for LANES rows at once, at all points of the integrals.

A level has points times rows numbers, row by row within a point, and levels follow each other in a one-dimensional
array: `here` and the like are where a level begins. The plain-Python bodies are the oracle of the compiled versions.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from bigforest.kernels.llvm.lanes import DOUBLES, LANES, Lanes, emits


def extend_products(product, inverse, met, factors, size, level, before):
    """Multiply the products of a level by the factor of the edge for each row.

    product, inverse  float64 [levels * size]: those of `level`, set, of the level above, and of the level `before` of
                      the last edge on the same feature, whose factor is divided out
    met      float64 [levels * LANES]: 1 for each row that meets all conditions on the feature, else 0
    factors  float64 [4 * points]: for each point the factor where they are met and where not, and the inverses of both
    size     points * LANES
    """
    here, above, last = level * size, (level - 1) * size, before * size
    for place in range(int(size)):
        point, row = divmod(place, LANES)
        other = 0 if met[level * LANES + row] > 0.5 else 1
        product[here + place] = product[above + place] * factors[4 * point + other] * inverse[last + place]
        inverse[here + place] = factors[4 * point + 2 + other]


@emits(extend_products)
def _emit_extend_products(lanes: Lanes, size: Any, level: Any, before: Any) -> None:
    builder = lanes.builder
    own = lanes.load("met", builder.mul(level, ir.Constant(size.type, LANES)))
    is_met = builder.fcmp_ordered(">", own, ir.Constant(DOUBLES, [0.5] * LANES))
    here, last = builder.mul(level, size), builder.mul(before, size)
    above = builder.sub(here, size)
    with lanes.blocks(size) as base:
        first = builder.udiv(base, ir.Constant(size.type, LANES // 4))  # four numbers for each point
        known, unknown, inverse_known, inverse_unknown = (
            lanes.spread("factors", builder.add(first, ir.Constant(size.type, place))) for place in range(4)
        )
        found = lanes.load("product", builder.add(above, base))
        found = builder.fmul(found, builder.select(is_met, known, unknown))
        found = builder.fmul(found, lanes.load("inverse", builder.add(last, base)))
        lanes.store(found, "product", builder.add(here, base))
        lanes.store(builder.select(is_met, inverse_known, inverse_unknown), "inverse", builder.add(here, base))


def scale(below, product, value, size, here, level):
    """below = value * product, of a level: `here` in `below`, `level` in `product`."""
    below[here : here + size] = value * product[level : level + size]


@emits(scale, value=types.float64)
def _emit_scale(lanes: Lanes, value: Any, size: Any, here: Any, level: Any) -> None:
    builder, value = lanes.builder, lanes.splat(value)
    with lanes.blocks(size) as base:
        found = builder.fmul(value, lanes.load("product", builder.add(level, base)))
        lanes.store(found, "below", builder.add(here, base))


def charge(below, inverse, gain, total, size, here, above, edge, before, own):
    """Charge an edge with the sums below it, and add these to the level above.

    below    float64: of the levels `here` and `above`, added to
    inverse  float64 [levels * size]; gain: float64 [levels * LANES], of each row met - share: of the edge, which is of
             the level `edge`, and of the last edge on the same feature, of the level `before`
    total    float64: what the feature has, from `own` on LANES numbers, added to
    size     points * LANES
    """
    for place in range(int(size)):
        row = place % LANES
        value = below[here + place]
        credit = gain[edge * LANES + row] * inverse[edge * size + place]
        credit -= gain[before * LANES + row] * inverse[before * size + place]
        total[own + row] += value * credit
        below[above + place] += value


@emits(charge)
def _emit_charge(lanes: Lanes, size: Any, here: Any, above: Any, edge: Any, before: Any, own: Any) -> None:
    builder = lanes.builder
    width = ir.Constant(size.type, LANES)
    won, lost = (lanes.load("gain", builder.mul(level, width)) for level in (edge, before))
    level, last = builder.mul(edge, size), builder.mul(before, size)
    found = cgutils.alloca_once_value(builder, lanes.load("total", own))
    with lanes.blocks(size) as base:
        value = lanes.load("below", builder.add(here, base))
        credit = builder.fsub(
            builder.fmul(won, lanes.load("inverse", builder.add(level, base))),
            builder.fmul(lost, lanes.load("inverse", builder.add(last, base))),
        )
        builder.store(builder.fadd(builder.load(found), builder.fmul(value, credit)), found)
        place = builder.add(above, base)
        lanes.store(builder.fadd(lanes.load("below", place), value), "below", place)
    lanes.store(builder.load(found), "total", own)
