"""Conversions between the rows of a column and buckets of its offsets on disk, a slice of rows at a time.

A bucket is a range of offsets (ranking.py): first[bucket] is its smallest, uint64 [buckets], ascending from 0.
Oracle: the presort in memory, in tests/encode/test_external.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.binary_search import last_up_to
from bigforest.kernels.common.node_scan import ONE, ZERO
from bigforest.kernels.compiler.jit import inlined, kernel


@kernel
def count_within(keys, low, shift, first, last, finer, counts):
    """counts[range, (offset - first[range]) >> finer] += 1 for every key whose offset is in a range.

    first, last  uint64 [ranges], ascending, ranges first[r] <= offset <= last[r] that do not overlap
    counts       uint64 [ranges, cells]
    """
    for i in range(np.uint64(keys.size)):
        offset = (np.uint64(keys[i]) - low) >> shift
        at = last_up_to(first, ZERO, np.uint64(first.size), offset)
        if first[at] <= offset and offset <= last[at]:
            counts[at, (offset - first[at]) >> finer[at]] += ONE


@kernel
def split_slice(keys, low, shift, first, of_row, counts, place, grouped):
    """Group the offsets of a slice by bucket, in the order of the rows.

    keys          uint32 or uint64 [rows]
    of_row        uint32 [rows], set: the bucket of each row
    counts        uint64 [buckets], set: rows of the slice in each bucket
    place         uint64 [buckets], scratch
    grouped       uint32 or uint64 [rows], set: the offsets, one bucket after the other; empty to count only
    """
    for b in range(np.uint64(counts.size)):
        counts[b] = ZERO
    for i in range(np.uint64(keys.size)):
        bucket = last_up_to(first, ZERO, np.uint64(first.size), (np.uint64(keys[i]) - low) >> shift)
        of_row[i] = bucket
        counts[bucket] += ONE
    if grouped.size > 0:
        _places(counts, place)
        for i in range(np.uint64(keys.size)):
            bucket = np.uint64(of_row[i])
            grouped[place[bucket]] = (np.uint64(keys[i]) - low) >> shift
            place[bucket] += ONE


@kernel
def join_slice(of_row, counts, place, grouped, ranks):
    """Inverse of `split_slice`: ranks[i] (uint32 [rows]) = the next one of grouped in the bucket of row i."""
    _places(counts, place)
    for i in range(np.uint64(of_row.size)):
        bucket = np.uint64(of_row[i])
        ranks[i] = grouped[place[bucket]]
        place[bucket] += ONE


@inlined
def _places(counts, place):
    at = ZERO
    for b in range(np.uint64(counts.size)):
        place[b] = at
        at += counts[b]
