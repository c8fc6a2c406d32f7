"""Tables of zeros and ones as bits, 64 columns per word: counted and weighted a word at a time.

Column c is bit c % 64 of word c // 64. Oracle: tests/naive/subspace.py, without bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bigforest.kernels.common.node_scan import ONE, TWO, ZERO
from bigforest.kernels.compiler.jit import compiled_as, inlined, kernel

WORD = 64
# Rows that are packed at a time, so that a word of each stays in the first-level cache.
PACKED_ROWS = 512
# Bits of a counter of rows, and how many of them are kept in registers.
PLANES = 40
_LOW_PLANES = np.uint64(3)
_EIGHT = np.uint64(8)
_WORD = np.uint64(WORD)

_LANES = 32
_VECTOR = ir.VectorType(ir.IntType(32), _LANES)


def weigh_bits(words, weight):
    """Sum of weight[c] over the columns c that are set in a row, int32.

    words uint64 [n], the row; weight int32 [64 * n], whose sums fit. Compiled callers get vectors.
    """
    return np.int32(weight[_set_columns(words)].sum())


def add_bits(words, value, total):
    """total[c] += value over the columns c that are set; words uint64 [n], value int32, total int32 [64 * n]."""
    total[_set_columns(words)] += value


def _set_columns(words):
    """Numbers of the columns that are set."""
    return np.flatnonzero(np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little"))


class _Halves:
    """Emits a loop over the halves of a row's words, each beside the 32 numbers of its columns."""

    def __init__(self, context: Any, builder: Any, words: Any, numbers: Any) -> None:
        (kind, value), (kind_of_numbers, numbers_value) = words, numbers
        self._builder = builder
        array = context.make_array(kind)(context, builder, value=value)
        self._data = array.data
        self._size = cgutils.unpack_tuple(builder, array.shape, 1)[0]
        self._numbers = context.make_array(kind_of_numbers)(context, builder, value=numbers_value).data
        self.zero = ir.Constant(_VECTOR, [0] * _LANES)

    def splat(self, scalar: Any) -> Any:
        """All lanes equal."""
        first = self._builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)
        return self._builder.shuffle_vector(first, first, lanes)

    def each(self, emit: Callable[[Any, Any], None]) -> None:
        """Call emit(which lanes are set, pointer to their numbers) for either half of every word."""
        builder = self._builder
        digits = ir.Constant(_VECTOR, [1 << lane for lane in range(_LANES)])
        with cgutils.for_range(builder, self._size) as loop:
            word = builder.load(builder.gep(self._data, [loop.index]))
            for half in range(2):
                shifted = builder.lshr(word, ir.Constant(word.type, 32 * half))
                bits = builder.and_(self.splat(builder.trunc(shifted, ir.IntType(32))), digits)
                place = builder.add(
                    builder.mul(loop.index, ir.Constant(loop.index.type, WORD)),
                    ir.Constant(loop.index.type, _LANES * half),
                )
                pointer = builder.bitcast(builder.gep(self._numbers, [place]), _VECTOR.as_pointer())
                emit(builder.icmp_unsigned("!=", bits, self.zero), pointer)


@intrinsic
def _weigh_bits(typingctx: Any, words: Any, weight: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        halves = _Halves(context, builder, (words, args[0]), (weight, args[1]))
        total = cgutils.alloca_once_value(builder, halves.zero)

        def emit(chosen: Any, pointer: Any) -> None:
            here = builder.select(chosen, builder.load(pointer, align=4), halves.zero)
            builder.store(builder.add(builder.load(total), here), total)

        halves.each(emit)
        reduce = builder.module.declare_intrinsic(
            f"llvm.vector.reduce.add.v{_LANES}i32", (), ir.FunctionType(ir.IntType(32), [_VECTOR])
        )
        return builder.call(reduce, [builder.load(total)])

    return types.int32(words, weight), codegen


@intrinsic
def _add_bits(typingctx: Any, words: Any, value: Any, total: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        halves = _Halves(context, builder, (words, args[0]), (total, args[2]))
        added = halves.splat(args[1])

        def emit(chosen: Any, pointer: Any) -> None:
            here = builder.select(chosen, added, halves.zero)
            builder.store(builder.add(builder.load(pointer, align=4), here), pointer, align=4)

        halves.each(emit)
        return context.get_dummy_value()

    return types.void(words, types.int32, total), codegen


@compiled_as(weigh_bits)
def _weigh_in_vectors(words, weight):
    def vectors(words, weight):
        return _weigh_bits(words, weight)

    return vectors


@compiled_as(add_bits)
def _add_in_vectors(words, value, total):
    def vectors(words, value, total):
        _add_bits(words, np.int32(value), total)

    return vectors


@kernel
def pack_bits(columns, slots, bits, word):
    """bits[r, c // 64] gets columns[slots[c], r] as bit c % 64.

    columns uint8 [slots, rows] of zeros and ones; slots int64 [columns], -1 for a column of zeros; bits uint64 [rows,
    words]; word uint64 [PACKED_ROWS], scratch. About a sixth of a nanosecond per cell.
    """
    count = np.uint64(slots.size)
    for first in range(0, bits.shape[0], PACKED_ROWS):
        rows = min(PACKED_ROWS, bits.shape[0] - first)
        for number in range(np.uint64(bits.shape[1])):
            for r in range(rows):
                word[r] = ZERO
            for bit in range(min(_WORD, count - number * _WORD)):
                slot = slots[number * _WORD + bit]
                if slot >= 0:
                    column = columns[np.uint64(slot), first : first + rows]
                    for r in range(rows):
                        word[r] |= np.uint64(column[r]) << bit
            for r in range(rows):
                bits[np.uint64(first + r), number] = word[r]


@inlined
def add_three(one, two, three):
    """Bit by bit the sum of three words, in its lower and its upper bit."""
    odd = one ^ two
    return odd ^ three, (one & two) | (odd & three)


@inlined
def count_word(bits, rows, number, planes, count):
    """count[b] = rows that have bit b of word `number` set, int32 [64].

    rows    uint32 [n], n below 2**31
    planes  uint64 [2, PLANES], scratch

    Adds words bit by bit (Harley and Seal; Warren, Hacker's Delight, 5-1): `planes[0, i]` are the digits of 2**i so
    far, and `planes[1, i]` is a word of such digits that waits for another. Five operations per row.
    """
    n = np.uint64(rows.size)
    digit, waiting = planes[ZERO], planes[ONE]
    for b in range(_WORD):
        count[b] = np.int32(0)
    ones, twos, fours, eights = ZERO, ZERO, ZERO, ZERO
    groups = n // _EIGHT
    most = _LOW_PLANES
    while groups >> (most - _LOW_PLANES) != ZERO:
        digit[most] = ZERO
        most += ONE
    for group in range(groups):
        at = group * _EIGHT
        ones, two = add_three(ones, bits[rows[at], number], bits[rows[at + ONE], number])
        ones, other = add_three(ones, bits[rows[at + np.uint64(2)], number], bits[rows[at + np.uint64(3)], number])
        twos, four = add_three(twos, two, other)
        ones, two = add_three(ones, bits[rows[at + np.uint64(4)], number], bits[rows[at + np.uint64(5)], number])
        ones, other = add_three(ones, bits[rows[at + np.uint64(6)], number], bits[rows[at + np.uint64(7)], number])
        twos, more = add_three(twos, two, other)
        fours, carry = add_three(fours, four, more)
        level, before = _LOW_PLANES, group
        while before & ONE:
            digit[level], carry = add_three(digit[level], waiting[level], carry)
            before >>= ONE
            level += ONE
        waiting[level] = carry
    for at in range(groups * _EIGHT, n):
        carry = bits[rows[at], number]
        two = ones & carry
        ones ^= carry
        four = twos & two
        twos ^= two
        eights |= fours & four  # seven rows plus seven carry at most once
        fours ^= four
    digit[ZERO] = ones
    digit[ONE] = twos
    digit[TWO] = fours
    for level in range(most):
        add_bits(digit[level : level + ONE], np.int32(1) << np.int32(level), count)
    for level in range(_LOW_PLANES, most):
        if (groups >> (level - _LOW_PLANES)) & ONE:
            add_bits(waiting[level : level + ONE], np.int32(1) << np.int32(level), count)
    if eights != ZERO:
        digit[ZERO] = eights
        add_bits(digit[:ONE], np.int32(8), count)
