"""Squares of bytes, and whole copies of a few rows, are the columns of those rows."""

from __future__ import annotations

import numpy as np
import pytest

from bigforest.kernels.jit import kernel
from bigforest.kernels.nearby import copy_squares
from bigforest.kernels.transpose import SQUARE


@kernel
def _copy(table, items, out):
    copy_squares(table, items, out)


@pytest.mark.parametrize(("rows", "columns"), [(SQUARE, SQUARE), (SQUARE + 1, 2 * SQUARE - 1), (77, 49), (300, 17)])
def test_copy_squares__columns_of_the_rows_named(rows: int, columns: int) -> None:
    random = np.random.default_rng(rows * columns)
    table = random.integers(0, 256, (2 * rows, columns), np.uint8)
    chosen = np.sort(random.choice(2 * rows, rows, replace=False))
    items = chosen.astype(np.uint64) << np.uint64(32) | random.integers(0, 2**32, rows, np.uint64)
    out = np.full((columns, rows + 3), 7, np.uint8)
    _copy(table, items, out)
    assert np.array_equal(out[:, :rows], table[chosen].T)
    assert (out[:, rows:] == 7).all()
