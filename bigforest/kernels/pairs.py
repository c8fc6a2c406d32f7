"""For each of a few rows, a sum over the rows that do not come after it: all pairs, sixteen at a time.

Quadratic, but a pair costs a sixteenth of two instructions and nothing branches on the data, so up to PAIRS rows this
beats sorting. Written in vectors of LLVM, which fit themselves to the processor, because loops over arrays that
might overlap are not vectorised.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

PAIRS = 128
LANES = 16

_VECTOR = ir.VectorType(ir.IntType(32), LANES)


def sums_up_to(code, add, n, out):
    """out[i] = sum of add[j] over all j < n with code[j] <= code[i], for i < n.

    code, add, out uint32 [>= n rounded up to LANES]; the rounding of code and out is read and written, its values
    mean nothing. Sums wrap at 2**32. Cost: n * n / 16 steps. Compiled callers get vectors.
    """
    for i in range(int(n)):
        out[i] = np.uint32(int(add[:n][code[:n] <= code[i]].sum()) & 0xFFFFFFFF)


@intrinsic
def _sums_up_to(typingctx: Any, code: Any, add: Any, n: Any, out: Any) -> Any:
    def splat(builder: Any, scalar: Any) -> Any:
        first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        codes, adds, outs = (
            context.make_array(kind)(context, builder, value=value).data
            for kind, value in zip((code, add, out), (args[0], args[1], args[3]), strict=True)
        )
        rows = args[2]
        zero = ir.Constant(_VECTOR, [0] * LANES)
        total = cgutils.alloca_once(builder, _VECTOR)
        with cgutils.for_range_slice(
            builder, ir.Constant(rows.type, 0), rows, ir.Constant(rows.type, LANES), inc=True
        ) as (base, _):
            block = builder.bitcast(builder.gep(codes, [base]), _VECTOR.as_pointer())
            mine = builder.load(block, align=4)
            builder.store(zero, total)
            with cgutils.for_range(builder, rows) as loop:
                other = splat(builder, builder.load(builder.gep(codes, [loop.index])))
                value = splat(builder, builder.load(builder.gep(adds, [loop.index])))
                counted = builder.select(builder.icmp_unsigned("<=", other, mine), value, zero)
                builder.store(builder.add(builder.load(total), counted), total)
            target = builder.bitcast(builder.gep(outs, [base]), _VECTOR.as_pointer())
            builder.store(builder.load(total), target, align=4)
        return context.get_dummy_value()

    return types.void(code, add, types.intp, out), codegen


@overload(sums_up_to)
def _compiled(code, add, n, out):
    def vectors(code, add, n, out):
        _sums_up_to(code, add, np.intp(n), out)

    return vectors
