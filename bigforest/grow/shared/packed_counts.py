"""Counts as they go from one process to another: in the narrowest integers, byte by byte, compressed.

A bucket holds few rows of those that one of many workers has, so that counts are alike: compressed they take about as
many bits as chance does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_CODEC = "zstd"


# The type of the counts, the narrow type, how many there are, and compressed: the lowest byte of all narrow ones, then
# the next of all, and so on.
PackedCounts = tuple[str, str, int, bytes]


def packed_counts(counts: NDArray[Any]) -> PackedCounts:
    """Integers [n]."""
    least = np.result_type(*map(np.min_scalar_type, (counts.min(initial=0), counts.max(initial=0))))
    kind = least if least.kind in "iu" else counts.dtype
    narrow = counts.astype(kind.newbyteorder("<"), copy=False)
    planes = np.ascontiguousarray(narrow.view(np.uint8).reshape(counts.size, kind.itemsize).T)
    return counts.dtype.str, narrow.dtype.str, counts.size, pa.compress(planes, _CODEC, asbytes=True)


def unpacked_counts(packed: PackedCounts) -> NDArray[Any]:
    """Inverse of `packed_counts`."""
    kind, narrow, size, planes = packed
    width = np.dtype(narrow).itemsize
    by_plane = np.frombuffer(pa.decompress(planes, size * width, _CODEC), np.uint8).reshape(width, size)
    return np.ascontiguousarray(by_plane.T).view(narrow).reshape(size).astype(kind)
