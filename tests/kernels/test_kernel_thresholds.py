"""Thresholds become the codes that a search in the whole dictionary finds, whatever pieces it is walked over in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigforest.kernels.predict.pack import nodes_to_codes

NUMBERS = st.integers(-30, 30).map(float) | st.sampled_from([np.inf, -np.inf, 0.5, -0.0])


@given(
    dictionary=st.sets(NUMBERS, min_size=1),
    thresholds=st.lists(NUMBERS, max_size=40),
    piece=st.integers(2, 40),
    lowest=st.integers(0, 1),
)
def test_nodes_to_codes__as_searched_in_the_whole(
    dictionary: set[float], thresholds: list[float], piece: int, lowest: int
) -> None:
    low = np.array(sorted(dictionary))
    given_ = np.array(thresholds)
    cells = np.repeat(given_, 2)
    whole = piece >= low.size
    nodes = (np.arange(given_.size) if whole else given_.argsort()).astype(np.uint32)
    for begin in range(0, max(low.size - 1, 1), piece - 1):
        values = low[begin : begin + piece].copy()
        done = nodes_to_codes(cells, nodes, values, lowest + begin, begin + piece >= low.size)
        nodes = nodes[done:]
    assert nodes.size == 0
    assert (cells[::2] == low.searchsorted(given_, side="right") - 1 + lowest).all()
    assert (cells[1::2] == given_).all()  # what is not a threshold is left alone
