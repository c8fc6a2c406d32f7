"""The copies of a subtree's codes have those of its rows, whatever the widths, and the items number these.

The table by rows, of which they are made, is here too.
"""

from __future__ import annotations

import numpy as np
import pytest

from bigforest.kernels.columns.code_cache import copy_codes, empty_code_cache, make_code_cache
from bigforest.kernels.columns.row_major import by_rows
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.common.transpose import row_items, transpose
from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.llvm.square import SQUARE
from bigforest.kernels.scan.impurity import GINI, VARIANCE
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.tree.builder import Roots, Rules
from bigforest.kernels.tree.grow import grow


@kernel
def _copy(by_row, items, cache, first):
    copy_codes(by_row, items, cache, first)


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


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("rows", [SQUARE, SQUARE + 1, 77, 300])
@pytest.mark.parametrize("columns", [0, SQUARE - 1, SQUARE, 2 * SQUARE - 1, 49])
def test_copy_codes__columns_of_the_rows_named(rows: int, columns: int, first: int) -> None:
    random = np.random.default_rng(rows * 100 + columns)
    codes = _codes({1: columns, 2: 2, 4: 3} if rows % 2 else {1: 5, 2: columns, 4: columns}, 2 * rows)
    cache = empty_code_cache(codes, first, False, rows)
    chosen = np.sort(random.choice(2 * rows, rows, replace=False))
    below = random.integers(0, 2**32, rows, dtype=np.uint64)
    items = chosen.astype(np.uint64) << np.uint64(32) | below
    _copy(by_rows(codes), items, cache, np.uint64(first))
    assert np.array_equal(items, np.arange(first, first + rows, dtype=np.uint64) << np.uint64(32) | below)
    assert np.array_equal(cache.row[first:], chosen)
    for matrix, copied in zip(codes[:3], (cache.u8, cache.u16, cache.u32), strict=True):
        assert np.array_equal(copied[:, first:], matrix[:, chosen])


@pytest.mark.parametrize("numbers", [False, True])
def test_grow__far_copy_changes_no_tree(numbers: bool) -> None:
    """Rows of wide tables make the near copy small, and only the longer table has a far one."""
    columns, rows, used = 3_000, 20_000, 5_000
    codes = _codes({1: columns, 2: 0, 4: 0}, rows)
    shorter = Codes(*(np.ascontiguousarray(matrix[:, :used]) for matrix in codes[:3]), codes.place)
    for array in shorter:
        array.flags.writeable = False
    random = np.random.default_rng(1)
    value = random.integers(-9, 9, rows)
    value.flags.writeable = False
    target = RegressionTarget(value) if numbers else ClassTarget(2, None)
    kind = 0 if numbers else (codes.u8[:4, :used].sum(axis=0, dtype=np.int64) + random.integers(0, 99, used)) > 560
    items = (
        np.arange(used, dtype=np.uint64) << np.uint64(32) | np.uint64(1) | np.asarray(kind, np.uint64) << np.uint64(16)
    )
    rules = Rules(3, VARIANCE if numbers else GINI, -1, 2, 1, True)
    trees = []
    for table, has_far in ((codes, True), (shorter, False)):
        assert (0 < make_code_cache(table, used, numbers).room[1] < used) == has_far
        roots = Roots.single(used, np.uint64(5))
        trees.append(grow(table, by_rows(table), items.copy(), target, roots, rules)[0])
    assert trees[0].feature.size > 100
    for with_far, without in zip(*trees, strict=True):
        assert np.array_equal(with_far, without)


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
