"""The rows of a node whose codes lie in a range, or the splits whose scores reach a bar, sixteen at a time.

As plain Python the functions below are what they are when compiled, and their oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bigforest.kernels.common.simd import LANES, VECTOR, Lanes
from bigforest.kernels.compiler.jit import compiled_as

_MASK, _BITS = ir.VectorType(ir.IntType(1), LANES), ir.IntType(LANES)


def select_codes(code, n, first, span, out):
    """Write the places i < n with first <= code[i] <= first + span to `out`, ascending; returns how many (uint64).

    code  uint32 [>= n rounded up to LANES], read as far as that; first, span uint32
    out   uint32 [>= n + LANES]

    Cost: n / 16 steps. Compiled callers get vectors.
    """
    found = np.flatnonzero(code[: int(n)].astype(np.int64) - int(first) <= int(span))
    found = found[code[found] >= first]
    out[: found.size] = found
    return np.uint64(found.size)


def select_scores(score, n, bar, out):
    """Write the places i < n with score[i] >= bar to `out`, ascending; returns how many (uint64).

    score float32, as long as code in select_codes; bar float32.
    """
    found = np.flatnonzero(score[: int(n)] >= bar)
    out[: found.size] = found
    return np.uint64(found.size)


class Selection:
    """Writes the code that lists places in the array `out` of some lanes."""

    def __init__(self, lanes: Lanes, rows: Any) -> None:
        self._lanes, self._rows, builder = lanes, rows, lanes.builder
        kind = ir.FunctionType(VECTOR, [VECTOR, _MASK, VECTOR])
        name = f"llvm.experimental.vector.compress.v{LANES}i32"
        self._squeeze = cgutils.get_or_insert_function(builder.module, kind, name)
        self._count = builder.module.declare_intrinsic("llvm.ctpop", [_BITS])
        self._size = cgutils.alloca_once_value(builder, ir.Constant(rows.type, 0))

    def add(self, base: Any, chosen: Any) -> None:
        """List the rows of the block at `base` in the lanes that are chosen."""
        lanes, builder = self._lanes, self._lanes.builder
        chosen = builder.and_(chosen, lanes.inside(base, self._rows))
        bits = builder.bitcast(chosen, _BITS)
        with builder.if_then(builder.icmp_unsigned("!=", bits, ir.Constant(_BITS, 0))):
            size = self.size()
            rest = ir.Constant(VECTOR, ir.Undefined)
            lanes.store(builder.call(self._squeeze, [lanes.places(base), chosen, rest]), "out", size)
            more = builder.zext(builder.call(self._count, [bits]), size.type)
            builder.store(builder.add(size, more), self._size)

    def size(self) -> Any:
        """How many are listed."""
        return self._lanes.builder.load(self._size)


@intrinsic
def _select_codes(typingctx: Any, code: Any, n: Any, first: Any, span: Any, out: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = Lanes(context, builder, {"code": (code, args[0]), "out": (out, args[4])})
        first, span = lanes.splat(args[2]), lanes.splat(args[3])
        selection = Selection(lanes, args[1])
        with lanes.blocks(args[1]) as base:
            distance = builder.sub(lanes.load("code", base), first)
            selection.add(base, builder.icmp_unsigned("<=", distance, span))
        return selection.size()

    return types.intp(code, types.intp, types.uint32, types.uint32, out), codegen


@compiled_as(select_codes)
def _compiled_codes(code, n, first, span, out):
    def vectors(code, n, first, span, out):
        return np.uint64(_select_codes(code, np.intp(n), np.uint32(first), np.uint32(span), out))

    return vectors


@intrinsic
def _select_scores(typingctx: Any, score: Any, n: Any, bar: Any, out: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = Lanes(context, builder, {"score": (score, args[0]), "out": (out, args[3])})
        bar = lanes.splat(args[2])
        selection = Selection(lanes, args[1])
        with lanes.blocks(args[1]) as base:
            selection.add(base, builder.fcmp_ordered(">=", lanes.load("score", base), bar))
        return selection.size()

    return types.intp(score, types.intp, types.float32, out), codegen


@compiled_as(select_scores)
def _compiled_scores(score, n, bar, out):
    def vectors(score, n, bar, out):
        return np.uint64(_select_scores(score, np.intp(n), np.float32(bar), out))

    return vectors
