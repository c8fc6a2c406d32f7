"""Draw features at random, and fetch the codes of drawn features. Oracle: tests/naive/tree.py."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.columns.gather import gather
from bigforest.kernels.common.node_scan import ONE, ZERO
from bigforest.kernels.common.rng import CHANCES, GOLDEN, below, mix
from bigforest.kernels.compiler.jit import inlined

_SHIFT6 = np.uint64(6)
_BITS6 = np.uint64(63)
_SHIFT11 = np.uint64(11)


class FeatureDraw(NamedTuple):
    """Scratch of the draw of features.

    perm  int64 [features], drawn features first; the identity between nodes
    undo  uint64 [features], place in perm from which each drawn feature was taken
    """

    perm: NDArray[np.int64]
    undo: NDArray[np.uint64]


def make_feature_draw(features: int) -> FeatureDraw:
    """Allocate scratch to draw from `features` features."""
    return FeatureDraw(np.arange(features), np.empty(features, np.uint64))


@inlined
def draw_feature(draw, drawn, state):
    """Draw one more feature; `drawn` (uint64) are drawn already. Return the feature and the new random state."""
    perm = draw.perm
    state += GOLDEN
    j = drawn + below(mix(state), np.uint64(perm.size) - drawn)
    feature = perm[j]
    perm[j] = perm[drawn]
    perm[drawn] = feature
    draw.undo[drawn] = j
    return feature, state


@inlined
def put_back(draw, drawn):
    """Undo the `drawn` draws, so that the draws of the next node depend only on its key."""
    perm = draw.perm
    while drawn > ZERO:
        drawn -= ONE
        j = draw.undo[drawn]
        feature = perm[drawn]
        perm[drawn] = perm[j]
        perm[j] = feature


@inlined
def wanted_features(rules, key, features):
    """Return the number of features that the node of this key draws: mtry, or with `rules.chance` a binomial number
    above 0."""
    count = np.uint64(rules.mtry)
    if rules.chance >= 0:
        count = ZERO
        state = mix(key ^ CHANCES)
        while count == ZERO:
            for _ in range(features):
                state += GOLDEN
                count += np.uint64(mix(state) >> _SHIFT11 < np.uint64(rules.chance))
    return count


@inlined
def wants_more(rules, mtry, features, drawn, usable):
    """Return True if another feature is to be drawn; usable: number of drawn features that are not constant."""
    return drawn < features and (usable < mtry if rules.redraw else (drawn < mtry or usable == ZERO))


@inlined
def fetch_codes(codes, node, feature, constant, out):
    """Fetch the codes of a feature (uint64) to `out`. Return the smallest and the largest code, both 0 if constant.

    constant  uint64 [words], a bit for each feature known to be constant in this node. Codes of these features are not
              read. The bit of the feature is set if its codes are equal. Draws do not depend on these bits
    """
    word = feature >> _SHIFT6
    bit = ONE << (feature & _BITS6)
    if constant[word] & bit:
        return np.uint32(0), np.uint32(0)
    low, high = gather(codes, feature, node.items, out)
    if low == high:
        constant[word] |= bit
        return np.uint32(0), np.uint32(0)
    return low, high
