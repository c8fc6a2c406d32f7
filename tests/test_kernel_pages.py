"""The encodings of pages against readers that look at one bit after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigforest.kernels.pages import (
    BLOCK,
    BLOCK_BYTES,
    HEAD_BYTES,
    keep_values,
    pack_differences,
    pack_numbers,
    split_bytes,
)
from tests.naive.pages import differences_of, numbers_of


@given(st.data(), st.sampled_from([32, 64]))
def test_pack_differences__any_numbers(data: st.DataObject, bits: int) -> None:
    most = 2**bits - 1
    near = st.integers(0, data.draw(st.sampled_from([0, 1, 9, 300, most])))
    extreme = st.sampled_from([0, 1, most // 2, most // 2 + 1, most])
    pattern = data.draw(st.lists(near | extreme, min_size=1, max_size=20))
    size = data.draw(st.sampled_from([1, 2, 31, 32, 33, 34, BLOCK, BLOCK + 1, BLOCK + 2, 2 * BLOCK + 40]))
    values = np.resize(np.array(pattern, f"u{bits // 8}"), size)
    out = np.full(HEAD_BYTES + -(-size // BLOCK) * (BLOCK_BYTES + BLOCK * values.itemsize), 0xAA, np.uint8)
    with np.errstate(over="ignore"):
        end = int(pack_differences(values, bits, np.empty(BLOCK, np.uint64), out))
    assert differences_of(out.tobytes(), bits) == (values.tolist(), end)


def test_pack_differences__none() -> None:
    out = np.empty(HEAD_BYTES, np.uint8)
    end = int(pack_differences(np.empty(0, np.uint32), 32, np.empty(BLOCK, np.uint64), out))
    assert out[:end].tolist() == [128, 1, 4, 0, 0]


@pytest.mark.parametrize("width", [1, 2, 3, 8, 11, 31, 32])
def test_pack_numbers__any_width(width: int) -> None:
    values = np.random.default_rng(width).integers(0, 2**width, 40).astype(np.uint32)
    out = np.empty(5 * width, np.uint8)
    pack_numbers(values, width, out)
    assert numbers_of(out.tobytes(), width) == values.tolist()


def test_split_bytes__lowest_first() -> None:
    values = np.array([0x0102030405060708, 0x1112131415161718], np.uint64)
    out = np.empty(16, np.uint8)
    split_bytes(values, out)
    assert out.reshape(8, 2).tolist() == [[byte, 16 + byte] for byte in range(8, 0, -1)]


@pytest.mark.parametrize("there", [[], [True] * 5, [False] * 5, [False, True, True, False, True]])
def test_keep_values__those_that_are_there(there: list[bool]) -> None:
    values = np.arange(10, 10 + len(there), dtype=np.uint32)
    out = np.zeros_like(values)
    kept = int(keep_values(values, np.array(there, np.bool_), out))
    assert out[:kept].tolist() == values[np.array(there, np.bool_)].tolist()
