"""Trees do not depend on the copies of codes that a subtree makes."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from bigforest.grow.row_codes import by_rows
from bigforest.kernels.columns.code_cache import FEWEST_ROWS, make_code_cache
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.scan.impurity import GINI, VARIANCE
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.tree.builder import Roots, Rules
from bigforest.kernels.tree.grow import grow


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


# The copies do not depend on the target, so one is enough of the uncompiled kernels, of which this is the longest test.
@pytest.mark.parametrize("numbers", [False] if numba.config.DISABLE_JIT else [False, True])
def test_grow__far_copy_changes_no_tree(numbers: bool) -> None:
    """Rows of wide tables make the near copy small, and only the longer table has a far one."""
    columns, rows, used = 4_500, 10_000, 2_500
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
        near, far = make_code_cache(table, used, numbers).room
        assert (near >= FEWEST_ROWS, 0 < far < used) == (True, has_far)
        roots = Roots.single(used, np.uint64(5))
        trees.append(grow(table, by_rows(table), items.copy(), target, roots, rules)[0])
    assert trees[0].feature.size > 100
    for with_far, without in zip(*trees, strict=True):
        assert np.array_equal(with_far, without)
