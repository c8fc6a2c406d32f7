"""Select the rows of a node whose codes lie in a range, or the splits whose scores reach a bar, sixteen at a time.

The plain-Python bodies below are the oracle of the compiled versions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from bigforest.kernels.llvm.lanes import LANES, VECTOR, Lanes, emits

_MASK, _BITS = ir.VectorType(ir.IntType(1), LANES), ir.IntType(LANES)


def select_codes(code, n, first, span, out):
    """Write the indices i < n with first <= code[i] <= first + span to `out`, ascending; return their number (uint64).

    code  uint32 [>= n rounded up to LANES], read up to this length; first, span uint32
    out   uint32 [>= n + LANES]

    Cost: n / 16 steps.
    """
    indices = np.flatnonzero(code[: int(n)].astype(np.int64) - int(first) <= int(span))
    indices = indices[code[indices] >= first]
    out[: indices.size] = indices
    return np.uint64(indices.size)


def select_scores(score, n, bar, out):
    """Write the indices i < n with score[i] >= bar to `out`, ascending; return their number (uint64).

    score float32, as long as code in select_codes; bar float32.
    """
    indices = np.flatnonzero(score[: int(n)] >= bar)
    out[: indices.size] = indices
    return np.uint64(indices.size)


class Selection:
    """Emitter of code that lists row numbers in the array `out`."""

    def __init__(self, lanes: Lanes, rows: Any) -> None:
        self._lanes, self._rows, builder = lanes, rows, lanes.builder
        kind = ir.FunctionType(VECTOR, [VECTOR, _MASK, VECTOR])
        name = f"llvm.experimental.vector.compress.v{LANES}i32"
        self._squeeze = cgutils.get_or_insert_function(builder.module, kind, name)
        self._count = builder.module.declare_intrinsic("llvm.ctpop", [_BITS])
        self._size = cgutils.alloca_once_value(builder, ir.Constant(rows.type, 0))

    def add(self, base: Any, chosen: Any) -> None:
        """Emit code to list the chosen ones of the sixteen rows from `base` on."""
        lanes, builder = self._lanes, self._lanes.builder
        chosen = builder.and_(chosen, lanes.inside(base, self._rows))
        bits = builder.bitcast(chosen, _BITS)
        with builder.if_then(builder.icmp_unsigned("!=", bits, ir.Constant(_BITS, 0))):
            size = self.size()
            rest = ir.Constant(VECTOR, ir.Undefined)
            lanes.store(builder.call(self._squeeze, [lanes.row_numbers(base), chosen, rest]), "out", size)
            more = builder.zext(builder.call(self._count, [bits]), size.type)
            builder.store(builder.add(size, more), self._size)

    def size(self) -> Any:
        """Emit the number of listed rows."""
        return self._lanes.builder.load(self._size)


@emits(select_codes, types.uint64, first=types.uint32, span=types.uint32)
def _emit_select_codes(lanes: Lanes, rows: Any, first: Any, span: Any) -> Any:
    builder, first, span = lanes.builder, lanes.splat(first), lanes.splat(span)
    selection = Selection(lanes, rows)
    with lanes.blocks(rows) as base:
        distance = builder.sub(lanes.load("code", base), first)
        selection.add(base, builder.icmp_unsigned("<=", distance, span))
    return selection.size()


@emits(select_scores, types.uint64, bar=types.float32)
def _emit_select_scores(lanes: Lanes, rows: Any, bar: Any) -> Any:
    bar = lanes.splat(bar)
    selection = Selection(lanes, rows)
    with lanes.blocks(rows) as base:
        selection.add(base, lanes.builder.fcmp_ordered(">=", lanes.load("score", base), bar))
    return selection.size()
