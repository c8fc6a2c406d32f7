"""Positions of values in ascending arrays, found without a branch on the data. Oracle: numpy.searchsorted."""

from __future__ import annotations

from bigforest.kernels.common.node_scan import ONE, ZERO
from bigforest.kernels.compiler.jit import inlined


@inlined
def last_up_to(values, first, size, bound):
    """Return the position of the last of values[first : first + size] that is at most `bound`; `first` if none is.

    values ascending; first, size uint64, size >= 1. Cost: log2(size) steps.
    """
    position = first
    left = size
    while left > ONE:
        half = left >> ONE
        position += half if values[position + half] <= bound else ZERO
        left -= half
    return position


@inlined
def first_from(values, size, bound):
    """Return the position of the first of values[:size] that is at least `bound`; the last position if none is.

    values ascending; size uint64, size >= 1. Cost: log2(size) steps.
    """
    position = ZERO
    left = size
    while left > ONE:
        half = left >> ONE
        position += half if values[position + half - ONE] < bound else ZERO
        left -= half
    return position
