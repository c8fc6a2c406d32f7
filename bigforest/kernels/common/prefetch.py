"""Prefetching a cache line."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bigforest.kernels.compiler.jit import compiled_as

# To read, and to keep in all caches; data, not instructions.
_READ, _KEEP, _DATA = 0, 3, 1


def prefetch(array, index):
    """Prefetch array[index] (uint64). The index may be out of bounds."""


@intrinsic
def _prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(array)(context, builder, value=args[0]).data
        place = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        builder.call(function, [place, *(ir.Constant(word, value) for value in (_READ, _KEEP, _DATA))])
        return context.get_dummy_value()

    return types.void(array, types.uint64), codegen


@compiled_as(prefetch)
def _compiled(array, index):
    def ask(array, index):
        _prefetch(array, index)

    return ask
