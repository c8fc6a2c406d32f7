"""Bits against the same done on columns of zeros and ones, a cell at a time."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigforest.columns.arrow_arrays import read_only
from bigforest.kernels.llvm.bit_sums import add_bits, weigh_bits
from bigforest.kernels.subspace.columns import PACKED_ROWS, PLANES, count_word, pack_bits

COMPILED = not numba.config.DISABLE_JIT
COLUMNS = [1, 31, 32, 63, 64, 65, 130]


@numba.njit
def weigh_all(bits, weight, found):  # type: ignore[no-untyped-def]
    """weigh_bits as compiled callers have it."""
    for row in range(found.size):
        found[row] = weigh_bits(bits[row], weight)


@numba.njit
def add_all(bits, value, total):  # type: ignore[no-untyped-def]
    """add_bits alike, for every row."""
    for row in range(bits.shape[0]):
        add_bits(bits[row], value[row], total)


@numba.njit
def count_all(bits, rows, number, planes, count):  # type: ignore[no-untyped-def]
    count_word(bits, rows, number, planes, count)


def packed(cells: np.ndarray) -> np.ndarray:
    """Rows of cells as words."""
    words = -(-cells.shape[1] // 64)
    wide = np.zeros((len(cells), 64 * words), np.uint8)
    wide[:, : cells.shape[1]] = cells
    return np.packbits(wide, axis=1, bitorder="little").view("<u8").astype(np.uint64)


@given(st.integers(0, 2**32), st.sampled_from(COLUMNS), st.sampled_from([1, 5, PACKED_ROWS, PACKED_ROWS + 3]))
def test_pack_bits__any_columns_and_rows(seed: int, columns: int, rows: int) -> None:
    random = np.random.default_rng(seed)
    cells = random.integers(0, 2, (columns + 2, rows), dtype=np.uint8)
    slots = random.permutation(columns + 2)[:columns]
    left_out = random.random(columns) < 0.1
    bits = np.full((rows, -(-columns // 64)), 2**64 - 1, np.uint64)
    pack_bits(read_only(cells), np.where(left_out, -1, slots), bits, np.empty(PACKED_ROWS, np.uint64))
    np.testing.assert_array_equal(bits, packed(np.where(left_out, 0, cells[slots].T)))


@given(st.integers(0, 2**32), st.sampled_from(COLUMNS))
def test_weigh_bits__and_add_bits(seed: int, columns: int) -> None:
    random = np.random.default_rng(seed)
    cells = random.random((7, columns)) < random.choice([0.0, 0.3, 1.0])
    bits = packed(cells)
    weight = np.zeros(64 * bits.shape[1], np.int32)
    weight[:columns] = random.integers(-(2**31) // columns, 2**31 // columns, columns)
    found = np.empty(7, np.int32)
    weigh_all(bits, weight, found)
    np.testing.assert_array_equal(found, cells @ weight[:columns].astype(np.int64))
    value = random.integers(-1000, 1000, 7).astype(np.int32)
    total = weight // 2
    add_all(bits, value, total)
    np.testing.assert_array_equal(total[:columns], weight[:columns] // 2 + value @ cells)
    np.testing.assert_array_equal(total[columns:], 0)


SIZES = [0, 1, 7, 8, 15, 16, 17, 63, 64, 1000] + ([8 * 255 + 7, 8 * 256, 100_003] if COMPILED else [])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_count_word__any_number_of_rows(size: int, share: float) -> None:
    random = np.random.default_rng(size)
    cells = random.random((max(size, 1) + 5, 130)) < share
    rows = random.permutation(len(cells))[:size].astype(np.uint32)
    bits = packed(cells)
    planes = random.integers(0, 2**63, (2, PLANES)).astype(np.uint64)
    for number in range(3):
        count = np.full(64, -1, np.int32)
        count_all(bits, rows, np.uint64(number), planes, count)
        expected = cells[rows][:, 64 * number : 64 * number + 64].sum(axis=0)
        np.testing.assert_array_equal(count[: expected.size], expected)
        assert not count[expected.size :].any()
