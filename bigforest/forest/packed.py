"""The forest in the form the kernels read: 16 bytes per node, 8 more where float32 will do, and the mixed leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import FormatError
from bigforest.forest.parts import Nodes
from bigforest.kernels.layout import OBLIQUE

if TYPE_CHECKING:
    from bigforest.kernels.route import Directions, Layout

_MAX_NODES = 2**32 - 1
_NARROW_BALLOT_BITS = 22


class Packed(NamedTuple):
    """Some consecutive trees; layouts are described in kernels/route.py.

    wide    the nodes, for any values
    narrow  the nodes, for values that are all float32; None when they do not fit this form, as oblique ones do not
    directions  of the oblique nodes; None when there are none
    roots   uint64 [trees]
    used    int64 [used features], positions in the dataspec, ascending; never empty
    counts  uint32 [mixed leaves, classes], class counts of the leaves that hold more than one class
    """

    wide: Layout
    narrow: Layout | None
    directions: Directions | None
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

    def layout(self, narrow: bool) -> Layout:
        """The layout for values that are all float32 (`narrow`), or for any."""
        return self.narrow if narrow and self.narrow is not None else self.wide


def pack(parts: Sequence[Nodes]) -> Packed:
    """Pack checked parts, in their order. Raises FormatError beyond 4,294,967,295 nodes."""
    from bigforest.kernels.packing import count_mixed, pack_nodes
    from bigforest.kernels.route import Layout

    sizes = [part.feature.size for part in parts]
    if sum(sizes) > _MAX_NODES:
        raise FormatError(f"the forest has {sum(sizes):,} nodes; at most {_MAX_NODES:,} can be loaded")
    used, place = _used_features(parts)
    words = np.empty(2 * sum(sizes), dtype=np.uint64)
    bits = np.uint64(32)
    ballot = np.uint64(2**32 - 1)
    classes = parts[0].counts.shape[1]
    mixed = [np.empty((count_mixed(part.feature, part.counts), classes), np.uint32) for part in parts]
    begins = np.cumsum([0, *sizes])
    first_mixed = np.cumsum([0, *map(len, mixed)])
    direction = used.size
    for part, begin, end, own, first in zip(parts, begins, begins[1:], mixed, first_mixed, strict=False):
        here = words[2 * begin : 2 * end]
        layout = Layout(here.view(np.float64), here, bits, ballot)
        trees = (part.starts, part.feature, part.right, part.threshold, part.counts)
        pack_nodes(*trees, place, np.uint64(direction), layout, own, first)
        direction += int(np.count_nonzero(part.feature == OBLIQUE))
    roots = np.concatenate([part.starts[:-1] + begin for part, begin in zip(parts, begins, strict=False)])
    wide = Layout(words.view(np.float64), words, bits, ballot)
    directions = _directions(parts, place, used.size)
    narrow = _narrow(wide, used.size) if directions is None else None
    return Packed(wide, narrow, directions, roots.astype(np.uint64), used, np.concatenate(mixed))


def _used_features(parts: Sequence[Nodes]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Features that some node splits on, and for every feature its number among them."""
    present = [np.bincount(part.feature[part.feature >= 0]) for part in parts]
    present += [np.bincount(part.terms.feature) for part in parts if part.terms is not None]
    count = np.zeros(max(1, *(own.size for own in present)), dtype=np.int64)
    for own in present:
        count[: own.size] += own
    count[0] += not count.any()  # single leaves read no feature, but a tile must have one
    used = np.flatnonzero(count)
    place = np.zeros(count.size, dtype=np.uint64)
    place[used] = np.arange(used.size, dtype=np.uint64)
    return used, place


def _directions(parts: Sequence[Nodes], place: NDArray[np.uint64], features: int) -> Directions | None:
    """The terms of all oblique nodes, in the order of the nodes."""
    from bigforest.kernels.route import TILE_SHIFT, Directions

    terms = [part.terms for part in parts if part.terms is not None]
    if not terms:
        return None
    sizes = np.concatenate([np.diff(own.start) for own in terms])
    first = np.cumsum(np.concatenate([[0], sizes[sizes > 0]])).astype(np.uint64)
    at = place[np.concatenate([own.feature for own in terms])] << TILE_SHIFT
    return Directions(np.uint64(features), first, at, np.concatenate([own.weight for own in terms]))


def _narrow(wide: Layout, features: int) -> Layout | None:
    from bigforest.kernels.packing import narrow_nodes
    from bigforest.kernels.route import Layout

    shift = 32 - int(features - 1).bit_length()
    words = np.empty(wide.links.size, dtype=np.uint32)
    ballot = np.uint64(2**_NARROW_BALLOT_BITS - 1)
    narrow = Layout(words.view(np.float32), words, np.uint64(shift), ballot)
    return narrow if narrow_nodes(wide, narrow) else None
