"""Transpose codes or values in squares of SQUARE by SQUARE, with LLVM vectors: a quarter of an instruction each."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import compiled_as, kernel

SQUARE = 16
_STAGES = 4
_SIDE = np.uint64(SQUARE)
_LINE = np.uint64(64)
_ZERO = np.uint64(0)
_SHIFT32 = np.uint64(32)


@kernel
def transpose(table, items, start, stop, out, first):
    """out[c - start, first + r] = table[items[r] >> 32, c] for start <= c < stop and every r.

    table, out [., .] of unsigned integers of one width, C order; items uint64.
    """
    here = table[:, start:stop]
    columns, rows, first = np.uint64(stop - start), np.uint64(items.size), np.uint64(first)
    if columns < _SIDE or rows < _SIDE:
        for r in range(rows):
            for c in range(columns):
                out[c, first + r] = here[items[r] >> _SHIFT32, c]
        return
    for begin in range(_ZERO, columns, _LINE):  # so that source and target stay in the cache
        for r in range(_ZERO, rows, _SIDE):
            row = min(r, rows - _SIDE)
            for c in range(begin, min(begin + _LINE, columns), _SIDE):
                transpose_square(here, items[row:], min(c, columns - _SIDE), out, first + row)


def row_items(rows: int) -> NDArray[np.uint64]:
    """The items of `rows` rows, numbered in order."""
    return np.arange(rows, dtype=np.uint64) << _SHIFT32


def transpose_square(table, items, column, out, at):
    """out[column + c, at + r] = table[items[r] >> 32, column + c] for r, c < SQUARE.

    table, out [., .] of unsigned integers of one width, C order; items uint64 [>= SQUARE]; column, at uint64. Compiled
    callers get vectors.
    """
    rows = items[:SQUARE] >> np.uint64(32)
    column, at = int(column), int(at)
    out[column : column + SQUARE, at : at + SQUARE] = table[rows, column : column + SQUARE].T


@intrinsic
def _transpose_square(typingctx: Any, table: Any, items: Any, column: Any, out: Any, at: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, numbers, target = (
            context.make_array(kind)(context, builder, value=value)
            for kind, value in zip((table, items, out), (args[0], args[1], args[3]), strict=True)
        )
        word, byte = ir.IntType(64), ir.IntType(8).as_pointer()
        vector, width = ir.VectorType(ir.IntType(table.dtype.bitwidth), SQUARE), table.dtype.bitwidth // 8
        column = builder.mul(args[2], word(width))

        def place(array: Any, row: Any, offset: Any) -> Any:
            start = builder.add(builder.mul(row, builder.extract_value(array.strides, 0)), offset)
            data = builder.gep(builder.bitcast(array.data, byte), [start])
            return builder.bitcast(data, vector.as_pointer())

        vectors = []
        for r in range(SQUARE):
            row = builder.lshr(builder.load(builder.gep(numbers.data, [word(r)])), word(32))
            vectors.append(builder.load(place(source, row, column), align=width))
        # Interleaving vectors i and i + 8 rotates the eight bits of (row, column) by one; four rotations swap row and
        # column.
        for _ in range(_STAGES):
            halves = zip(vectors[: SQUARE // 2], vectors[SQUARE // 2 :], strict=True)
            vectors = [_interleave(builder, *pair, half) for pair in halves for half in (0, SQUARE // 2)]
        at = builder.mul(args[4], word(width))
        for c, transposed in enumerate(vectors):
            builder.store(transposed, place(target, builder.add(args[2], word(c)), at), align=width)
        return context.get_dummy_value()

    return types.void(table, items, column, out, at), codegen


def _interleave(builder: Any, one: Any, other: Any, start: int) -> Any:
    lanes = [lane for k in range(start, start + SQUARE // 2) for lane in (k, SQUARE + k)]
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), SQUARE), lanes))


@compiled_as(transpose_square)
def _compiled(table, items, column, out, at):
    def vectors(table, items, column, out, at):
        _transpose_square(table, items, np.uint64(column), out, np.uint64(at))

    return vectors
