"""Counter-based random numbers: a draw depends on its key and its counter alone, never on earlier draws.

The mixer is the finaliser of SplitMix64 (Steele, Lea and Flood 2014, section 3).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import inlined

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# The keys of children are made from the key of their parent and these.
LEFT = np.uint64(0x9E3779B97F4A7C15)
RIGHT = np.uint64(0xD1B54A32D192ED03)
# Streams of a node's directions: places of weights, weights, pairs of class means that are offered.
PLACES = np.uint64(0xA0761D6478BD642F)
WEIGHTS = np.uint64(0xE7037ED1A0B428DB)
OFFERS = np.uint64(0x8EBC6AF09C88C6E3)
# Number of features that a node draws, if it is random.
CHANCES = np.uint64(0x589965CC75374CC3)
# Columns that a node draws from the subspace of its tree.
COLUMNS = np.uint64(0x1D8E4E27C47D124F)
# Thresholds of random splits.
CUTS = np.uint64(0x2127599BF4325C37)

# Purposes separate the streams of one seed. kernels/refine/grow.py and kernels/explain/replace.py have one more each.
PURPOSE_BAG = np.uint64(1)
PURPOSE_GROW = np.uint64(2)
PURPOSE_TIE = np.uint64(3)
PURPOSE_STOCHASTIC = np.uint64(4)
PURPOSE_AXES = np.uint64(5)
PURPOSE_THRESHOLD = np.uint64(6)
PURPOSE_WEIGHT = np.uint64(7)
PURPOSE_HELD_OUT = np.uint64(8)


def scramble(z):
    """Scramble a uint64, or an array of them, by a bijection."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def to_fraction(random):
    """Map a random uint64, or an array of them, to a multiple of 2**-53 from 0 to below 1, float64."""
    return (random >> np.uint64(11)) * 2.0**-53


# The same functions, for kernels.
mix = inlined(scramble)
fraction = inlined(to_fraction)


@inlined
def below(random, bound):
    """Map a random uint64 to 0 .. bound - 1, bound < 2**32, by its upper half. Probabilities have a relative error of
    at most bound / 2**32."""
    return ((random >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)


@inlined
def split_state(key, feature):
    """Return the state of the stream that draws the random split on a feature (uint64) in the node of this key."""
    return mix(key ^ CUTS) + (feature + np.uint64(1)) * GOLDEN


@inlined
def level_number(state, level):
    """Return the number by which a level (code) is sorted in a random order; state: from `split_state`."""
    return mix(state ^ mix(np.uint64(level)))


def stream_key(seed: int, purpose: np.uint64, first: int, second: int) -> np.uint64:
    """Return the key of the stream (seed, purpose, first, second). Each purpose numbers its streams by `first` and
    `second`: mostly a tree, and a block or 0."""
    with np.errstate(over="ignore"):
        key = scramble(np.uint64(seed) + GOLDEN)
        for part, factor in ((purpose, GOLDEN), (first, RIGHT), (second, GOLDEN)):
            key = scramble(key ^ (np.uint64(part) * factor))
    return np.uint64(key)


def draw_rows(key: np.uint64, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the draws of the stream `key` for these row numbers, uint64 [rows]."""
    random: NDArray[np.uint64] = scramble(key + (numbers + np.uint64(1)) * GOLDEN)
    return random
