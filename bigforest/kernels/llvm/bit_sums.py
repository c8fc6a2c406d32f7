"""Sums over the columns that are set in a row of bits, a word of 64 columns at a time.

Column c is bit c % 64 of word c // 64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from bigforest.kernels.llvm.lanes import NUMBER, Lanes, emits

WORD = 64
_HALF = 32
_VECTOR = ir.VectorType(NUMBER, _HALF)
_ZEROS = ir.Constant(_VECTOR, [0] * _HALF)


def weigh_bits(words, weight):
    """Return the sum of weight[c] over the columns c that are set in a row, int32.

    words   uint64 [n], the row
    weight  int32 [64 * n]; no sum of weights may overflow
    """
    return np.int32(weight[_set_columns(words)].sum())


def add_bits(words, value, total):
    """Add value to total[c] for the columns c that are set; words uint64 [n], value int32, total int32 [64 * n]."""
    total[_set_columns(words)] += value


def _set_columns(words):
    """Return the numbers of the columns that are set."""
    return np.flatnonzero(np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little"))


def _each_half(lanes: Lanes, numbers: str, emit: Callable[[Any, Any], None]) -> None:
    """Emit a loop over both halves of every word. It calls emit(mask, pointer) for the columns of each half.

    numbers  name of the argument of the kernel that is an array with an entry for each column
    emit     its arguments are the mask of the set columns and a pointer to their entries in this array
    """
    builder = lanes.builder
    digits = ir.Constant(_VECTOR, [1 << lane for lane in range(_HALF)])
    with cgutils.for_range(builder, lanes.size("words")) as loop:
        word = builder.load(lanes.pointer("words", loop.index))
        for half in range(2):
            shifted = builder.lshr(word, ir.Constant(word.type, _HALF * half))
            bits = builder.and_(lanes.splat(shifted, _HALF), digits)
            column = builder.add(
                builder.mul(loop.index, ir.Constant(loop.index.type, WORD)),
                ir.Constant(loop.index.type, _HALF * half),
            )
            pointer = builder.bitcast(lanes.pointer(numbers, column), _VECTOR.as_pointer())
            emit(builder.icmp_unsigned("!=", bits, _ZEROS), pointer)


@emits(weigh_bits, types.int32)
def _emit_weigh_bits(lanes: Lanes) -> Any:
    builder = lanes.builder
    total = cgutils.alloca_once_value(builder, _ZEROS)

    def emit(chosen: Any, pointer: Any) -> None:
        added = builder.select(chosen, builder.load(pointer, align=4), _ZEROS)
        builder.store(builder.add(builder.load(total), added), total)

    _each_half(lanes, "weight", emit)
    kind = ir.FunctionType(NUMBER, [_VECTOR])
    reduce = builder.module.declare_intrinsic(f"llvm.vector.reduce.add.v{_HALF}i32", (), kind)
    return builder.call(reduce, [builder.load(total)])


@emits(add_bits, value=types.int32)
def _emit_add_bits(lanes: Lanes, value: Any) -> None:
    builder, summand = lanes.builder, lanes.splat(value, _HALF)

    def emit(chosen: Any, pointer: Any) -> None:
        added = builder.select(chosen, summand, _ZEROS)
        builder.store(builder.add(builder.load(pointer, align=4), added), pointer, align=4)

    _each_half(lanes, "total", emit)
