"""Weights by class packed into one number per row, so that they are summed together, in vectors."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import BITS16, ZERO, class_of
from bigforest.kernels.compiler.jit import inlined


@inlined
def pack_weights(items, log_width, add):
    """add[i] = multiplicity of items[i], shifted by 2**log_width (uint64) bits for each class before its own."""
    for i in range(np.uint64(items.size)):
        add[i] = (items[i] & BITS16) << (class_of(items[i]) << log_width)


@inlined
def sum_of_code(code, codes, add, n):
    """Sum of add[i] over the i < n with codes[i] == code: the weights by class of these rows, packed."""
    total = ZERO
    for i in range(n):  # a mask instead of a branch lets the compiler vectorise
        total += add[i] & (ZERO - np.uint64(codes[i] == code))
    return total
