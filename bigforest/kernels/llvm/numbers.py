"""Functions of one or two numbers, written here because Numba would compile a separate function for each type of
argument; and prefetching.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature
from numba.extending import lower_builtin, type_callable

from bigforest.kernels.llvm.lanes import NUMBER, Lanes, emits


def smaller(number, other):
    """Return min(number, other)."""
    return min(number, other)


def larger(number, other):
    """Return max(number, other)."""
    return max(number, other)


def _emit_choice(plain: Callable[..., Any], precedes: Callable[..., Any]) -> None:
    """Compile calls of `plain` to a choice: the second number if it precedes the first, else the first."""

    @type_callable(plain)
    def typer(context: Any) -> Any:
        def typed(number: Any, other: Any) -> Any:
            kind = context.unify_types(number, other)
            return signature(kind, kind, kind)

        return typed

    @lower_builtin(plain, types.Number, types.Number)
    def lower(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        number, other = values
        compare = context.get_function(precedes, signature(types.boolean, *sig.args))
        return builder.select(compare(builder, (other, number)), other, number)


_emit_choice(smaller, operator.lt)
_emit_choice(larger, operator.gt)


def bits_of(number):
    """Return the bits of a float64 as int64."""
    return np.float64(number).view(np.int64)


@emits(bits_of, types.int64, number=types.float64)
def _emit_bits_of(lanes: Lanes, number: Any) -> Any:
    return lanes.builder.bitcast(number, ir.IntType(64))


def float_of(bits):
    """Return the float64 that has these bits (int64)."""
    return np.int64(bits).view(np.float64)


@emits(float_of, types.float64)
def _emit_float_of(lanes: Lanes, bits: Any) -> Any:
    return lanes.builder.bitcast(bits, ir.DoubleType())


# Arguments of llvm.prefetch: read access; keep in all caches; data, not instructions.
_READ, _KEEP, _DATA = 0, 3, 1


def prefetch(array, index):
    """Prefetch array[index]. The index is an integer, and may be out of bounds."""


@emits(prefetch)
def _emit_prefetch(lanes: Lanes, index: Any) -> None:
    builder = lanes.builder
    address = builder.bitcast(lanes.pointer("array", index), ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [address.type, NUMBER, NUMBER, NUMBER])
    function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
    builder.call(function, [address, *(ir.Constant(NUMBER, value) for value in (_READ, _KEEP, _DATA))])
