"""The keyed random numbers of bigforest/kernels/common/rng.py, in Python integers."""

from __future__ import annotations

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
LEFT = 0x9E3779B97F4A7C15
RIGHT = 0xD1B54A32D192ED03
PURPOSE_GROW = 2


def mix(z: int) -> int:
    """The finaliser of SplitMix64 on a number below 2**64."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def stream_key(seed: int, purpose: int, first: int, second: int) -> int:
    """Key of the stream of (seed, purpose, first, second)."""
    key = mix((seed + GOLDEN) & MASK)
    for number, factor in ((purpose, GOLDEN), (first, RIGHT), (second, GOLDEN)):
        key = mix(key ^ (number * factor & MASK))
    return key


def shuffled(key: int, count: int) -> list[int]:
    """Return 0 .. count - 1 in the order in which the node of this key draws its features."""
    order = list(range(count))
    state = key
    for place in range(count):
        state = (state + GOLDEN) & MASK
        other = place + ((mix(state) >> 32) * (count - place) >> 32)
        order[place], order[other] = order[other], order[place]
    return order
