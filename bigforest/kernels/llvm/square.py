"""Transpose a square of codes with vectors: a quarter of a shuffle per cell."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from bigforest.kernels.llvm.lanes import LANES, NUMBER, Lanes, emits

SQUARE = LANES
_STAGES = 4


def transpose_square(table, items, column, out, at):
    """Set out[column + c, at + r] to table[items[r] >> 32, column + c] for r, c < SQUARE.

    table, out  [., .] of unsigned integers of one width, C order
    items       uint64 [>= SQUARE]; column, at: uint64
    """
    rows = items[:SQUARE] >> np.uint64(32)
    column, at = int(column), int(at)
    out[column : column + SQUARE, at : at + SQUARE] = table[rows, column : column + SQUARE].T


@emits(transpose_square)
def _emit_transpose_square(lanes: Lanes, column: Any, at: Any) -> None:
    builder = lanes.builder
    source, target = lanes.arrays["table"], lanes.arrays["out"]
    word, byte = ir.IntType(64), ir.IntType(8).as_pointer()
    code = source.data.type.pointee
    vector, width = ir.VectorType(code, SQUARE), code.width // 8

    def address_of(array: Any, row: Any, offset: Any) -> Any:
        start = builder.add(builder.mul(row, builder.extract_value(array.strides, 0)), offset)
        data = builder.gep(builder.bitcast(array.data, byte), [start])
        return builder.bitcast(data, vector.as_pointer())

    vectors, offset = [], builder.mul(column, word(width))
    for r in range(SQUARE):
        row = builder.lshr(builder.load(lanes.pointer("items", word(r))), word(32))
        vectors.append(builder.load(address_of(source, row, offset), align=width))
    # Interleaving vectors i and i + 8 rotates the eight bits of (row, column) by one; four rotations swap row and
    # column.
    for _ in range(_STAGES):
        halves = zip(vectors[: SQUARE // 2], vectors[SQUARE // 2 :], strict=True)
        vectors = [_interleave(builder, *pair, half) for pair in halves for half in (0, SQUARE // 2)]
    offset = builder.mul(at, word(width))
    for c, transposed in enumerate(vectors):
        builder.store(transposed, address_of(target, builder.add(column, word(c)), offset), align=width)


def _interleave(builder: Any, vector: Any, other: Any, start: int) -> Any:
    order = [lane for k in range(start, start + SQUARE // 2) for lane in (k, SQUARE + k)]
    return builder.shuffle_vector(vector, other, ir.Constant(ir.VectorType(NUMBER, SQUARE), order))
