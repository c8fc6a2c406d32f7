"""The forest in the form the kernels read: 16 bytes per node, or 8 where float32 will do, and the mixed leaves."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from bigforest.kernels.predict.flat_tree import Directions, LevelSets, NodeLayout

_NARROW_BALLOT_BITS = 22


class FlatTrees(NamedTuple):
    """Some consecutive trees; layouts are described in kernels/predict/flat_tree.py.

    wide    the nodes, for any values; None when `narrowed` has put others in their place
    narrow  the nodes, for values that are all float32; None when they do not fit this form, as oblique ones do not
    directions  of the oblique nodes; None for trees without such nodes
    sets    of the nodes on categories; None for trees without such nodes
    roots   uint64 [trees]
    used    int64 [used features], positions in the dataspec, ascending; never empty
    counts  uint32, or uint64 of wide weights [mixed leaves, classes], class counts of the leaves that hold more than
            one class; for regression, or if values are shrunk, the values of all leaves, float64 [leaves,
            classes * lambdas, or lambdas]
    """

    wide: NodeLayout | None
    narrow: NodeLayout | None
    directions: Directions | None
    sets: LevelSets | None
    roots: NDArray[np.uint64]
    used: NDArray[np.int64]
    counts: NDArray[Any]

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.layout(True).links.size // 2

    @property
    def nbytes(self) -> int:
        """Bytes of nodes and of what leaves hold."""
        layouts = [layout.links.nbytes for layout in (self.wide, self.narrow) if layout is not None]
        return sum(layouts) + self.counts.nbytes

    def leaf_nodes(self) -> list[NDArray[np.uint32]]:
        """The numbers of the leaves of each tree, within the tree."""
        leaves = np.flatnonzero(np.isnan(self.layout(True).thresholds[::2]))
        ends = [*self.roots.tolist(), self.nodes]
        return [
            (leaves[np.searchsorted(leaves, begin) : np.searchsorted(leaves, end)] - begin).astype(np.uint32)
            for begin, end in pairwise(ends)
        ]

    def ballots(self, vote: str) -> NDArray[np.float64]:
        """What each mixed leaf adds to the votes, float64 [mixed leaves, classes], see `cast_by`."""
        return cast_by(self.counts, vote)

    def weighted_ballots(self, vote: str, votes: NDArray[np.float64]) -> NDArray[np.float64]:
        """`ballots`, each multiplied by the vote of its tree, float64 [trees]; every leaf has values (`counts`)."""
        leaves = [own.size for own in self.leaf_nodes()]
        return self.ballots(vote) * np.repeat(votes, leaves)[:, None]

    def by(self, place: int, lambdas: int) -> FlatTrees:
        """The trees, packed with values by this many lambdas, with those by the lambda at `place` alone.

        `self`, which has no layout `narrow`, must not be used any more: its nodes are changed.
        """
        assert self.wide is not None and self.narrow is None
        width = self.counts.shape[1] // lambdas
        leaf = np.isnan(self.wide.thresholds[::2])
        self.wide.links[::2][leaf] -= np.uint64(self.counts.shape[1] - width)
        return self._replace(counts=self.counts[:, place::lambdas].copy())

    def layout(self, narrow: bool) -> NodeLayout:
        """The layout for values that are all float32 (`narrow`), or for any."""
        if narrow and self.narrow is not None:
            return self.narrow
        assert self.wide is not None
        return self.wide

    def with_narrow(self) -> FlatTrees:
        """The same with the layout `narrow` as well, if the nodes fit it."""
        assert self.wide is not None
        if self.directions is not None:
            return self
        words = np.empty(self.wide.links.size, np.uint32)
        return self._replace(narrow=_narrow(self.wide, self.used.size, self.sets is not None, words))

    def narrowed(self) -> FlatTrees:
        """The same with the layout `narrow` in the place of `wide`, if the nodes fit it, else as it is.

        `self` must not be used any more: its memory is used again, and half of it given back.
        """
        assert self.wide is not None
        if self.directions is not None:
            return self
        words = self.wide.links
        front = words[: words.size // 2].view(np.uint32)
        features, categories = self.used.size, self.sets is not None
        if _narrow(self.wide, features, categories, front) is None:
            return self
        words.resize(words.size // 2, refcheck=False)
        return self._replace(wide=None, narrow=_narrow_layout(features, categories, words.view(np.uint32)))


def cast_by(counts: NDArray[Any], vote: str) -> NDArray[np.float64]:
    """What leaves that hold several classes cast, float64 [leaves, classes]; counts: see FlatTrees.

    "soft": the class fractions (Ho 1995). "hard": 1 for the most frequent class, the lowest among ties (Breiman 2001),
    by its shrunk value where there is one. Numbers are what they are.
    """
    if vote == "hard":
        unit = np.zeros(counts.shape)
        unit[np.arange(len(unit)), counts.argmax(axis=1)] = 1.0
        return unit
    if counts.dtype == np.float64:
        return np.require(counts, requirements="W")  # a file's content may not be written to; kernels take one kind
    return counts / counts.sum(axis=1, dtype=np.uint64)[:, None]


def _narrow(wide: NodeLayout, features: int, categories: bool, words: NDArray[np.uint32]) -> NodeLayout | None:
    """The layout `narrow` in `words`, which may be the front half of those of `wide`; None if the nodes do not fit."""
    from bigforest.kernels.predict.flatten import fits_narrow, narrow_nodes

    narrow = _narrow_layout(features, categories, words)
    if not fits_narrow(wide, narrow):
        return None
    narrow_nodes(wide, features, narrow)
    return narrow


def _narrow_layout(features: int, categories: bool, words: NDArray[np.uint32]) -> NodeLayout:
    from bigforest.kernels.predict.flat_tree import NodeLayout

    places = 2 * features if categories else features
    shift = 32 - int(places - 1).bit_length()
    ballot = np.uint64(2**_NARROW_BALLOT_BITS - 1)
    return NodeLayout(words.view(np.float32), words, np.uint64(shift), np.uint64(2 ** (shift - 1)), ballot)
