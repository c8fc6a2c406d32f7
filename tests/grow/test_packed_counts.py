"""Counts are the same after they have gone to another process, in no more bytes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bigforest.grow.shared.packed_counts import packed_counts, unpacked_counts


@given(
    hnp.arrays(np.uint32, st.integers(0, 70), elements=st.sampled_from([0, 0, 0, 1, 255, 256, 65_536, 2**32 - 1]))
    | hnp.arrays(np.int64, st.integers(0, 70), elements=st.sampled_from([0, 0, 7, -1, -129, 2**40, -(2**62)]))
)
def test_packed_counts__are_unpacked_as_they_were(counts: np.ndarray) -> None:
    packed = packed_counts(counts)
    found = unpacked_counts(pickle.loads(pickle.dumps(packed)))
    assert found.dtype == counts.dtype
    assert found.tolist() == counts.tolist()
    assert packed.kept.nbytes + (0 if packed.present is None else packed.present.nbytes) <= counts.nbytes


@pytest.mark.parametrize(("counts", "most"), [([0] * 800, 100), ([0] * 792 + [9] * 8, 108), ([1] * 800, 800)])
def test_packed_counts__are_small(counts: list[int], most: int) -> None:
    packed = packed_counts(np.array(counts, np.uint32))
    assert packed.kept.nbytes + (0 if packed.present is None else packed.present.nbytes) <= most
