"""Fetch the codes of a node's rows."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import SHIFT32
from bigforest.kernels.compiler.jit import inlined


@inlined
def gather_column(column, items, out):
    """out[i] = column[row of items[i]]."""
    for i in range(np.uint64(items.size)):
        out[i] = column[items[i] >> SHIFT32]


@inlined
def gather_rows(table, slot, items, out):
    """out[i] = table[row of items[i], slot]."""
    for i in range(np.uint64(items.size)):
        out[i] = table[items[i] >> SHIFT32, slot]


@inlined
def gather(codes, by_row, feature, items, out):
    """out[i] = code of the row of items[i]; returns the smallest and the largest (uint32).

    codes Codes, by_row RowMajorCodes, feature uint64, items uint64 [n], out uint32 [>= n]. Rows ascend, so memory is
    read forward. About a nanosecond per row while the column fits the cache.
    """
    width = codes.place[feature, 0]
    slot = np.uint64(codes.place[feature, 1])
    few = items.size <= by_row.reach
    if width == np.uint32(1):
        if few:
            gather_rows(by_row.r8, slot, items, out)
        else:
            gather_column(codes.u8[slot], items, out)
    elif width == np.uint32(2):
        if few:
            gather_rows(by_row.r16, slot, items, out)
        else:
            gather_column(codes.u16[slot], items, out)
    elif few:
        gather_rows(by_row.r32, slot, items, out)
    else:
        gather_column(codes.u32[slot], items, out)
    low = np.uint32(0xFFFFFFFF)
    high = np.uint32(0)
    for i in range(np.uint64(items.size)):
        low = min(low, out[i])
        high = max(high, out[i])
    return low, high


@inlined
def look_again(codes, by_row, feature, items, looked):
    """The smallest and the largest of the codes of the rows of items, which are fetched where `looked` has none."""
    if looked.low == looked.high:
        return gather(codes, by_row, feature, items, looked.codes)
    return looked.low, looked.high
