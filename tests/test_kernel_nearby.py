"""The copy of a subtree's codes has those of its rows, whatever the widths, and the items number its rows."""

from __future__ import annotations

import numpy as np
import pytest

from bigforest.kernels.jit import kernel
from bigforest.kernels.layout import Codes
from bigforest.kernels.nearby import copy_codes, make_nearby
from bigforest.kernels.rows import by_rows
from bigforest.kernels.transpose import SQUARE, row_items, transpose


@kernel
def _copy(by_row, items, nearby):
    copy_codes(by_row, items, nearby)


@pytest.mark.parametrize("rows", [SQUARE, SQUARE + 1, 77, 300])
@pytest.mark.parametrize("columns", [0, SQUARE - 1, SQUARE, 2 * SQUARE - 1, 49])
def test_copy_codes__columns_of_the_rows_named(rows: int, columns: int) -> None:
    random = np.random.default_rng(rows * 100 + columns)
    widths = {1: columns, 2: 2, 4: 3} if rows % 2 else {1: 5, 2: columns, 4: columns}
    kinds = {1: np.uint8, 2: np.uint16, 4: np.uint32}
    matrices = {
        width: random.integers(0, 256**width, (columns, 2 * rows), dtype=kinds[width])
        for width, columns in widths.items()
    }
    place = np.array([(width, slot) for width, columns in widths.items() for slot in range(columns)], np.uint32)
    codes = Codes(matrices[1], matrices[2], matrices[4], place)
    for array in codes:
        array.flags.writeable = False  # as in a store
    nearby = make_nearby(codes, rows, numbers=False)
    chosen = np.sort(random.choice(2 * rows, rows, replace=False))
    below = random.integers(0, 2**32, rows, dtype=np.uint64)
    items = chosen.astype(np.uint64) << np.uint64(32) | below
    _copy(by_rows(codes), items, nearby)
    assert np.array_equal(items, np.arange(rows, dtype=np.uint64) << np.uint64(32) | below)
    for width, copied in ((1, nearby.u8), (2, nearby.u16), (4, nearby.u32)):
        assert np.array_equal(copied[:, :rows], matrices[width][:, chosen])


@pytest.mark.parametrize("kind", [np.uint8, np.uint32])
@pytest.mark.parametrize("rows", [1, SQUARE - 1, SQUARE, 2 * SQUARE + 3])
@pytest.mark.parametrize("columns", [1, SQUARE, 3 * SQUARE + 5])
def test_transpose__part_of_the_columns(kind: type, rows: int, columns: int) -> None:
    random = np.random.default_rng(rows * 100 + columns)
    table = random.integers(0, 256, (rows, columns + 9), dtype=kind)
    table.flags.writeable = False
    expected = random.integers(0, 256, (columns + 1, rows + 5), dtype=kind)
    out = expected.copy()
    transpose(table, row_items(rows), 7, 7 + columns, out, 3)
    expected[:columns, 3 : 3 + rows] = table[:, 7 : 7 + columns].T
    assert np.array_equal(out, expected)
