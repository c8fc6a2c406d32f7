"""A small table of the rows of one subtree, so that projections of small nodes are read from the core's own cache.

The values are copied by columns, in addition to the codes (code_cache.py): a small node, and each node below it, reads
cells of a dozen columns that lie far apart in a large table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.columns.code_cache import (
    COPY_BYTES,
    FEWEST_ROWS,
    CodeCache,
    copy_codes,
    empty_code_cache,
    is_cached,
    row_bytes,
)
from bigforest.kernels.columns.gather import gather_column, on_column
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.common.node_scan import ONE, ZERO
from bigforest.kernels.compiler.jit import inlined


class ValueCache(NamedTuple):
    """The copied rows.

    code_cache  the codes of the rows; its span is that of the whole copy
    value       float64 [features, reach], the value of each code
    mean        float64 [pairs, reach], of Means.value
    """

    code_cache: CodeCache
    value: NDArray[np.float64]
    mean: NDArray[np.float64]


def make_value_cache(codes: Codes, pairs: int, rows: int, regression: bool) -> ValueCache:
    """Allocate room for the copy of up to `rows` rows, or of no rows if the table is too wide."""
    features = codes.place.shape[0]
    reach = min(COPY_BYTES // (row_bytes(codes) + 8 * (features + pairs)), rows)
    reach = reach if reach >= FEWEST_ROWS else 0
    code_cache = empty_code_cache(codes, reach, regression)
    return ValueCache(code_cache, np.empty((features, reach)), np.empty((pairs, reach)))


@inlined
def fill_value_cache(by_row, values, means, value, items, begin, end, cache):
    """Make the copy of the items begin..end if it pays. Return True if the items have row numbers of the copy."""
    code_cache = cache.code_cache
    n = end - begin
    if FEWEST_ROWS <= n <= np.uint64(cache.value.shape[1]) and not is_cached(code_cache.span, begin, end):
        rows = items[begin:end]
        if value is not None:
            gather_column(value, rows, code_cache.copied)
        for pair in range(np.uint64(cache.mean.shape[0])):
            gather_column(means.value[pair], rows, cache.mean[pair])
        copy_codes(by_row, rows, code_cache, ZERO)
        look_up_all(code_cache, values, n, cache.value)
        code_cache.span[ZERO, ZERO] = begin
        code_cache.span[ZERO, ONE] = end
    return is_cached(code_cache.span, begin, end)


@inlined
def look_up_all(code_cache, values, n, value):
    """Set value[f, i] to the value of code i of feature f in the copy, i < n."""
    for feature in range(np.uint64(value.shape[0])):
        low = values.low[values.offsets[feature] :]
        codes = code_cache.u8, code_cache.u16, code_cache.u32
        on_column(codes, code_cache.codes.place, feature, look_up_values, (low, n, value[feature]))


@inlined
def look_up_values(column, low, n, out):
    """Set out[i] to low[column[i]] for i < n."""
    for i in range(n):
        out[i] = low[np.uint64(column[i])]
