"""Counts as they go from one process to another: in the narrowest integers, without zeros where these are many.

A bucket holds few rows of those that one of many workers has, so that most counts take a byte.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class PackedCounts(NamedTuple):
    """Counts that are packed.

    dtype    that they have unpacked
    size     how many there are
    present  bits, those that are not zero, little-endian; None where all are kept
    kept     the counts, narrow
    """

    dtype: str
    size: int
    present: NDArray[np.uint8] | None
    kept: NDArray[Any]


def packed_counts(counts: NDArray[Any]) -> PackedCounts:
    """Integers [n], in as few bytes as either way takes."""
    kind = counts.dtype.str
    if not counts.size:
        return PackedCounts(kind, 0, None, counts)
    least = np.result_type(*map(np.min_scalar_type, (counts.min(), counts.max())))
    narrow = counts.astype(least if least.kind in "iu" else counts.dtype, copy=False)
    others = np.count_nonzero(narrow)
    if others * narrow.itemsize + -(-counts.size // 8) >= narrow.nbytes:
        return PackedCounts(kind, counts.size, None, narrow)
    there = narrow != 0
    return PackedCounts(kind, counts.size, np.packbits(there, bitorder="little"), narrow[there])


def unpacked_counts(packed: PackedCounts) -> NDArray[Any]:
    """Inverse of `packed_counts`."""
    if packed.present is None:
        return packed.kept.astype(packed.dtype)
    counts = np.zeros(packed.size, packed.dtype)
    counts[np.unpackbits(packed.present, count=packed.size, bitorder="little").view(np.bool_)] = packed.kept
    return counts
