"""The forest in the form the kernels read: 16 bytes per node and a table of the mixed leaves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import FormatError
from bigforest.forest.parts import Nodes

_MAX_NODES = 2**32 - 1


class Packed(NamedTuple):
    """Some consecutive trees; the layout of a node is described in kernels/route.py.

    words   uint64 [2 * nodes]
    roots   uint64 [trees]
    used    int64 [used features], positions in the dataspec, ascending; never empty
    counts  uint32 [mixed leaves, classes], class counts of the leaves that hold more than one class
    """

    words: NDArray[np.uint64]
    roots: NDArray[np.uint64]
    used: NDArray[np.int64]
    counts: NDArray[np.uint32]

    def ballots(self, vote: str) -> NDArray[np.float64]:
        """What each mixed leaf adds to the votes, float64 [mixed leaves, classes].

        "soft": the class fractions (Ho 1995). "hard": 1 for the most frequent class, the lowest of equals
        (Breiman 2001).
        """
        if vote == "hard":
            unit = np.zeros(self.counts.shape)
            unit[np.arange(len(unit)), self.counts.argmax(axis=1)] = 1.0
            return unit
        fractions: NDArray[np.float64] = self.counts / self.counts.sum(axis=1, dtype=np.uint64)[:, None]
        return fractions


def pack(parts: Iterable[Nodes]) -> Packed:
    """Pack checked parts, in their order. Raises FormatError beyond 4,294,967,295 nodes."""
    from bigforest.kernels.route import LEAF, TILE

    parts = list(parts)
    sizes = [part.feature.size for part in parts]
    if sum(sizes) > _MAX_NODES:
        raise FormatError(f"the forest has {sum(sizes):,} nodes; predict with at most {_MAX_NODES:,} at a time")
    classes = parts[0].counts.shape[1]
    used = np.unique(np.concatenate([np.unique(part.feature) for part in parts]))
    used = used[used >= 0].astype(np.int64)
    place = np.zeros(int(used[-1]) + 1 if used.size else 1, dtype=np.uint64)
    place[used] = np.arange(used.size, dtype=np.uint64) * np.uint64(TILE)
    words = np.empty(2 * sum(sizes), dtype=np.uint64)
    roots, mixed, begin, ballots = [], [], 0, classes
    for part, size in zip(parts, sizes, strict=True):
        own = words[2 * begin : 2 * (begin + size)]
        leaf = part.feature < 0
        root = np.repeat(part.starts[:-1], np.diff(part.starts)) + begin
        position = np.arange(begin, begin + size)
        target = np.where(leaf, position, root + part.right).astype(np.uint64)
        own[1::2] = (np.where(leaf, 0, place[part.feature]) << np.uint64(32)) | target
        own.view(np.float64)[::2] = part.threshold
        counts = part.counts[leaf]
        pure = np.count_nonzero(counts, axis=1) == 1
        ballot = np.where(pure, counts.argmax(axis=1), ballots - 1 + np.cumsum(~pure))
        own[::2][leaf] = LEAF + ballot.astype(np.uint64)
        roots.append(part.starts[:-1] + begin)
        mixed.append(counts[~pure])
        begin += size
        ballots += len(mixed[-1])
    if used.size == 0:
        used = np.zeros(1, dtype=np.int64)  # single leaves read no feature, but a tile must have one
    return Packed(words, np.concatenate(roots).astype(np.uint64), used, np.concatenate(mixed))
