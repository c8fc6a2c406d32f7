"""The flags of arrays for which kernels are compiled."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The array as if it were mapped from a file: kernels are compiled for these, and again for other flags."""
    found = array.view()
    found.flags.writeable = False
    return found
