"""The threshold between neighbouring values. Oracle: tests/naive/split.py."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import inlined


@inlined
def midpoint(below, above):
    """Return a threshold between neighbouring values: below <= threshold < above.

    It is the middle, or the lower value if the middle rounds up to the upper one or is not finite.
    """
    middle = below / 2.0 + above / 2.0
    return middle if below <= middle and middle < above else below


def midpoints(below: NDArray[np.float64], above: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the midpoint of each pair of float64 [n]."""
    with np.errstate(invalid="ignore"):
        middle = below / 2.0 + above / 2.0
    return np.where((below <= middle) & (middle < above), middle, below)
