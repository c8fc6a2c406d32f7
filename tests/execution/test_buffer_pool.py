"""Memory that is used again."""

from __future__ import annotations

import pickle
import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigforest.execution.process_cache import BufferPool

SHAPES = st.tuples(
    st.one_of(st.tuples(st.integers(0, 40)), st.tuples(st.integers(0, 5), st.integers(0, 40))),
    st.sampled_from(["<u1", "<u2", "<u4", "<i8", "<f8"]),
)


@given(st.lists(st.lists(SHAPES, min_size=1, max_size=5), min_size=1, max_size=4))
def test_room__gives_arrays_side_by_side(steps: list[list[tuple[tuple[int, ...], str]]]) -> None:
    room = BufferPool()
    for wanted in steps:
        arrays = room.arrays(*wanted)
        for number, (array, (shape, kind)) in enumerate(zip(arrays, wanted, strict=True)):
            assert (array.shape, array.dtype.str) == (shape, np.dtype(kind).str)
            assert array.flags.c_contiguous
            assert array.flags.writeable
            assert array.flags.aligned
            array[...] = number
        assert all((array == number).all() for number, array in enumerate(arrays))


def test_room__is_used_again() -> None:
    room = BufferPool()
    largest = room.words(100)
    assert room.words(60).ctypes.data == largest.ctypes.data
    assert room.arrays(((3, 4), np.float64), ((2,), np.uint8))[0].ctypes.data == largest.ctypes.data


def test_room__is_of_each_thread_and_process_its_own() -> None:
    room, found = BufferPool(), []
    here = room.words(10)
    thread = threading.Thread(target=lambda: found.append(room.words(10)))
    thread.start()
    thread.join()
    there = pickle.loads(pickle.dumps(room)).words(10)
    assert not any(np.shares_memory(here, other) for other in (*found, there))
