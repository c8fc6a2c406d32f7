"""The threshold between neighbouring values. Oracle: tests/naive/split.py."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.compiler.jit import inlined, kernel


@inlined
def midpoint(below, above):
    """Threshold between neighbouring values: below <= threshold < above, always.

    The middle where it separates them; the lower value where the middle rounds up to the upper one or is not finite.
    """
    middle = below / 2.0 + above / 2.0
    return middle if below <= middle and middle < above else below


@kernel
def midpoints(below, above, out):
    """out[i] = midpoint(below[i], above[i]), float64 [n]."""
    for i in range(np.uint64(out.size)):
        out[i] = midpoint(below[i], above[i])
