"""Counts are the same after they have gone to another process, in few bytes."""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bigforest.grow.out_of_core.requests import packed_counts, unpacked_counts


@given(
    hnp.arrays(np.uint32, st.integers(0, 70), elements=st.sampled_from([0, 0, 0, 1, 255, 256, 65_536, 2**32 - 1]))
    | hnp.arrays(np.int64, st.integers(0, 70), elements=st.sampled_from([0, 0, 7, -1, -129, 2**40, -(2**62)]))
)
def test_packed_counts__are_unpacked_as_they_were(counts: np.ndarray) -> None:
    packed = packed_counts(counts)
    found = unpacked_counts(pickle.loads(pickle.dumps(packed)))
    assert found.dtype == counts.dtype
    assert found.tolist() == counts.tolist()
