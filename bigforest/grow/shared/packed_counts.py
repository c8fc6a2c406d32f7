"""Counts as they go from one process to another: in the narrowest integers, byte by byte, compressed.

A bucket holds few rows of those that one of many workers has, so that counts are alike: compressed they take about as
many bits as chance does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_CODEC = "zstd"


class PackedCounts(NamedTuple):
    """Counts that are packed.

    dtype    that they have unpacked
    narrow   of the narrow ones
    size     how many there are
    planes   compressed: the lowest byte of all narrow ones, then the next of all, and so on
    """

    dtype: str
    narrow: str
    size: int
    planes: bytes


def packed_counts(counts: NDArray[Any]) -> PackedCounts:
    """Integers [n]."""
    least = np.result_type(*map(np.min_scalar_type, (counts.min(initial=0), counts.max(initial=0))))
    kind = least if least.kind in "iu" else counts.dtype
    narrow = counts.astype(kind.newbyteorder("<"), copy=False)
    planes = np.ascontiguousarray(narrow.view(np.uint8).reshape(counts.size, kind.itemsize).T)
    return PackedCounts(counts.dtype.str, narrow.dtype.str, counts.size, pa.compress(planes, _CODEC, asbytes=True))


def unpacked_counts(packed: PackedCounts) -> NDArray[Any]:
    """Inverse of `packed_counts`."""
    narrow = np.dtype(packed.narrow)
    found = pa.decompress(packed.planes, packed.size * narrow.itemsize, _CODEC)
    planes = np.frombuffer(found, np.uint8).reshape(narrow.itemsize, packed.size)
    counts: NDArray[Any] = np.ascontiguousarray(planes.T).view(narrow).reshape(packed.size).astype(packed.dtype)
    return counts
