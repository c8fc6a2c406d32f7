"""The copy of a subtree's codes has those of its rows, whatever the widths, and the items number its rows.

The table by rows, of which it is made, and what is constant in it are here too.
"""

from __future__ import annotations

import numpy as np
import pytest

from bigforest.kernels.columns.code_cache import copy_codes, make_code_cache
from bigforest.kernels.columns.row_major import by_rows
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.common.transpose import row_items, transpose
from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.llvm.square import SQUARE


@kernel
def _copy(by_row, items, cache):
    copy_codes(by_row, items, cache)


def _codes(columns: dict[int, int], rows: int) -> Codes:
    """Random codes, some columns of each width in bytes."""
    random = np.random.default_rng(sum(columns.values()) * 1000 + rows)
    kinds = {1: np.uint8, 2: np.uint16, 4: np.uint32}
    matrices = [random.integers(0, 256**width, (columns[width], rows), dtype=kinds[width]) for width in kinds]
    place = np.array([(width, slot) for width in kinds for slot in range(columns[width])], np.uint32)
    codes = Codes(*matrices, place.reshape(-1, 2))
    for array in codes:
        array.flags.writeable = False  # as in a store
    return codes


@pytest.mark.parametrize("rows", [SQUARE, SQUARE + 1, 77, 300])
@pytest.mark.parametrize("columns", [0, SQUARE - 1, SQUARE, 2 * SQUARE - 1, 49])
def test_copy_codes__columns_of_the_rows_named(rows: int, columns: int) -> None:
    random = np.random.default_rng(rows * 100 + columns)
    codes = _codes({1: columns, 2: 2, 4: 3} if rows % 2 else {1: 5, 2: columns, 4: columns}, 2 * rows)
    cache = make_code_cache(codes, rows, regression=False)
    chosen = np.sort(random.choice(2 * rows, rows, replace=False))
    below = random.integers(0, 2**32, rows, dtype=np.uint64)
    items = chosen.astype(np.uint64) << np.uint64(32) | below
    _copy(by_rows(codes), items, cache)
    assert np.array_equal(items, np.arange(rows, dtype=np.uint64) << np.uint64(32) | below)
    for matrix, copied in zip(codes[:3], (cache.u8, cache.u16, cache.u32), strict=True):
        assert np.array_equal(copied[:, :rows], matrix[:, chosen])


@pytest.mark.parametrize("rows", [1, SQUARE - 1, SQUARE, 77, 300])
@pytest.mark.parametrize("columns", [0, 1, SQUARE - 1, SQUARE, 49])
def test_by_rows__transposed(rows: int, columns: int) -> None:
    codes = _codes({1: columns, 2: SQUARE, 4: columns}, rows)
    for by_column, by_row in zip(codes[:3], by_rows(codes)[:3], strict=True):
        assert np.array_equal(by_row, by_column.T)


@pytest.mark.parametrize("kind", [np.uint8, np.uint32])
@pytest.mark.parametrize("rows", [1, SQUARE - 1, SQUARE, 2 * SQUARE + 3])
@pytest.mark.parametrize("columns", [1, SQUARE, 3 * SQUARE + 5])
def test_transpose__part_of_the_columns(kind: type, rows: int, columns: int) -> None:
    random = np.random.default_rng(rows * 100 + columns)
    table = random.integers(0, 256, (rows, columns + 9), dtype=kind)
    table.flags.writeable = False
    expected = random.integers(0, 256, (columns + 1, rows + 5), dtype=kind)
    out = expected.copy()
    transpose(table, row_items(rows), 7, 7 + columns, out)
    expected[:columns, :rows] = table[:, 7 : 7 + columns].T
    assert np.array_equal(out, expected)
