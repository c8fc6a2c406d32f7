"""Places of values in ascending arrays, found without a branch on the data. Oracle: numpy.searchsorted."""

from __future__ import annotations

from bigforest.kernels.common.node_scan import ONE, ZERO
from bigforest.kernels.compiler.jit import inlined


@inlined
def last_up_to(values, first, size, bound):
    """Place of the last of values[first : first + size] that is at most `bound`; `first` where none is.

    values ascending; first, size uint64, size >= 1. Cost: log2(size) steps.
    """
    found = first
    left = size
    while left > ONE:
        half = left >> ONE
        found += half if values[found + half] <= bound else ZERO
        left -= half
    return found


@inlined
def first_from(values, size, bound):
    """Place of the first of values[:size] that is at least `bound`; the last place where none is.

    values ascending; size uint64, size >= 1. Cost: log2(size) steps.
    """
    found = ZERO
    left = size
    while left > ONE:
        half = left >> ONE
        found += half if values[found + half - ONE] < bound else ZERO
        left -= half
    return found
