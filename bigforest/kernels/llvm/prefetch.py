"""Prefetching a cache line."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from bigforest.kernels.llvm.lanes import NUMBER, Lanes, emits

# To read, and to keep in all caches; data, not instructions.
_READ, _KEEP, _DATA = 0, 3, 1


def prefetch(array, index):
    """Prefetch array[index] (uint64). The index may be out of bounds."""


@emits(prefetch)
def _emit_prefetch(lanes: Lanes, index: Any) -> None:
    builder = lanes.builder
    address = builder.bitcast(lanes.pointer("array", index), ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [address.type, NUMBER, NUMBER, NUMBER])
    function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
    builder.call(function, [address, *(ir.Constant(NUMBER, value) for value in (_READ, _KEEP, _DATA))])
