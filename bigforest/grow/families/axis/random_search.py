"""The search of a node too large for memory for a random split (node_search.py).

For each feature it requests the smallest and the largest code, draws the cut that kernels/scan/random_split.py draws,
and requests the counts above it. The levels of a category are counted at once. Subtrees grown in memory draw between
values too, which `own_codes` looks up in order, because dictionaries may be larger than memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.arrays import read_only
from bigforest.grow.out_of_core.context import Counts
from bigforest.grow.out_of_core.feature_search import FeatureSearch
from bigforest.grow.out_of_core.probes import Histogram, HistogramCounts
from bigforest.grow.shared.feature_kinds import Features
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.scan.categorical_missing import CATEGORY, MISSING
from bigforest.kernels.scan.random_split import CodeDictionary, draw_cut, draw_levels
from bigforest.kernels.tree.builder import CodeTree
from bigforest.store.store import Store

# Buckets of a request of which only the sum matters. A single bucket of all codes would need a shift by all bits.
_FEW = 2
# Bytes of a cell in OwnCodes, besides its code.
OWN_VALUE = 12


def dictionary_of(store: Store) -> CodeDictionary:
    """The values between which random splits are drawn."""
    offsets, low, _ = store.dictionaries
    return CodeDictionary(read_only(offsets), low)


@dataclass(slots=True)
class RandomSearch(FeatureSearch):
    """The search for the best of some random splits."""

    # For numbers that were requested: the number of the split (kernels/scan/categorical_missing.py), and the largest
    # code below its threshold.
    _cuts: dict[int, tuple[int, int]] = field(default_factory=dict, init=False)

    def _histogram(self, feature: int, most: int) -> Histogram:
        return FeatureSearch._histogram(self, feature, _FEW)

    def _offer_edges(self, probe: Histogram, answer: HistogramCounts) -> None:
        feature = probe.number
        if feature in self._cuts:
            self._offer_cut(feature, answer.counts.sum(axis=0))
        elif self._is_number(feature, answer):
            self._cut_number(feature, int(answer.low), int(answer.high))

    def _cut_number(self, feature: int, least: int, high: int) -> None:
        """Draw a cut between the codes `least` and `high`, and request the counts above it."""
        if least == high:
            self._offer_missing(feature)
            return
        assert self.context.values is not None
        values = dictionary_of(self.context.values)
        code, last = draw_cut(values, np.uint64(feature), np.uint64(least), np.uint64(high), self.key)
        self._cuts[feature] = 2 * feature + (last and feature in self._missing), int(code)
        self.pending.append(Histogram.ranges(feature, None, int(code) + 1, high, _FEW))

    def _offer_cut(self, feature: int, above: Counts) -> None:
        number, code = self._cuts[feature]
        left = self.scorer.total - above
        if number % 2:
            left -= self._missing[feature]
        self.scorer.offer(number, np.array([code]), left[np.newaxis])

    def _arrange(
        self, feature: int, levels: NDArray[np.int64], counts: Counts
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        numbers = np.empty(levels.size, np.uint64)
        cut = draw_levels(levels.astype(np.uint32), self.key, np.uint64(feature), numbers)
        places = np.empty(levels.size, np.uint32)
        places[np.lexsort((levels, numbers))] = np.arange(levels.size)
        return places, np.array([cut], np.int64)


class OwnCodes(NamedTuple):
    """Rows in their own codes: consecutive, except for categories, and with 0 for missing values.

    dictionary  their values; none of categories
    known       uint32, of the same length: their codes in the table
    kinds       Features.kinds
    """

    codes: Codes
    dictionary: CodeDictionary
    known: NDArray[np.uint32]
    kinds: NDArray[np.uint8]

    def known_again(self, nodes: CodeTree) -> CodeTree:
        """A tree grown on these codes, in codes of the table."""
        numeric = np.flatnonzero((nodes.feature >= 0) & (self.kinds[nodes.feature] != CATEGORY))
        start = self.dictionary.offsets[nodes.feature[numeric]]
        left, right = nodes.left_code.copy(), nodes.right_code.copy()
        left[numeric], right[numeric] = self.known[start + left[numeric]], self.known[start + right[numeric]]
        return nodes._replace(left_code=left, right_code=right)


def own_codes(codes: Codes, store: Store, features: Features) -> OwnCodes:
    """Rows of the store in their own codes; every dictionary is read in ascending order.

    Memory: the codes once more, and OWN_VALUE bytes a cell.
    """
    matrices: dict[int, NDArray[Any]] = {matrix.itemsize: matrix.copy() for matrix in codes[:3]}
    known, low = [], []
    for feature, (width, slot) in enumerate(codes.place.tolist()):
        column = matrices[width][slot]
        distinct = np.empty(0, np.uint32)
        if features.kinds[feature] != CATEGORY:
            distinct = np.unique(column).astype(np.uint32, copy=False)
            if features.kinds[feature] == MISSING and distinct[0] > 0:
                distinct = np.append(np.uint32(0), distinct)
            column[:] = np.searchsorted(distinct, column)
        known.append(distinct)
        low.append(store.low(feature)[distinct])
    dictionary = CodeDictionary(read_only(np.cumsum([0, *map(len, low)])), read_only(np.concatenate(low)))
    node_codes = Codes._make([*(read_only(matrices[width]) for width in (1, 2, 4)), codes.place])
    return OwnCodes(node_codes, dictionary, np.concatenate(known), features.kinds)
