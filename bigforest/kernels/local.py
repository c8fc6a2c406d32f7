"""A small table of the rows of one subtree: what a projection needs of a small node then lies in the core's own cache.

A node of few rows reads a dozen columns of a large table in places far apart, and so do all nodes below it. So the
first node on the way down that is small enough copies its rows, and its items then number the rows of the copy, in
itself and in all nodes below. Depth first, these are all done before another copy is made.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.gather import gather
from bigforest.kernels.jit import inlined
from bigforest.kernels.layout import Codes
from bigforest.kernels.node import BITS32, ONE, SHIFT32, ZERO

# Bytes of the copy, and the fewest rows that pay for copying all columns.
_BYTES = 1_500_000
_FEWEST_ROWS = 256


class Local(NamedTuple):
    """The copy.

    codes   Codes of the copied rows; its u32 is a read-only view of `code`
    code    uint32 [features, reach]
    value   float64 [features, reach], the value of each code
    mean    float64 [pairs, reach], of Means.value
    span    uint64 [2], begin and end of the items that number rows of the copy
    """

    codes: Codes
    code: NDArray[np.uint32]
    value: NDArray[np.float64]
    mean: NDArray[np.float64]
    span: NDArray[np.uint64]


def make_local(features: int, pairs: int, rows: int) -> Local:
    """Room for the copy of up to `rows` rows, or of none where the table is too wide."""
    reach = min(_BYTES // (12 * features + 8 * pairs), rows)
    reach = reach if reach >= min(_FEWEST_ROWS, rows) else 0
    code = np.empty((features, reach), np.uint32)
    codes = Codes(
        np.empty((0, reach), np.uint8),
        np.empty((0, reach), np.uint16),
        code.view(),
        np.array([(4, slot) for slot in range(features)], np.uint32),
    )
    for array in codes:
        array.flags.writeable = False  # as in a store; other flags would be compiled apart
    return Local(codes, code, np.empty((features, reach)), np.empty((pairs, reach)), np.zeros(2, np.uint64))


@inlined
def is_local(local, begin, end):
    """Whether the items begin..end number rows of the copy."""
    return begin >= local.span[ZERO] and end <= local.span[ONE]


@inlined
def copy_rows(codes, by_row, values, means, items, local):
    """Copy the rows of `items`, and let these number the rows of the copy. The span is the caller's to set."""
    n = np.uint64(items.size)
    for feature in range(np.uint64(local.code.shape[0])):
        code, value = local.code[feature], local.value[feature]
        gather(codes, by_row, feature, items, code)
        start = np.uint64(values.offsets[feature])
        for i in range(n):
            value[i] = values.low[start + np.uint64(code[i])]
    for pair in range(np.uint64(local.mean.shape[0])):
        for i in range(n):
            local.mean[pair, i] = means.value[pair, items[i] >> SHIFT32]
    for i in range(n):
        items[i] = (i << SHIFT32) | (items[i] & BITS32)
