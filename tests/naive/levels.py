"""The order of the levels of a category in a node, as ARCHITECTURE.md says."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import floor

from tests.naive import rng

# Number of a level; None for a missing value, which is the lowest level.
Level = float | None
Counts = list[int]


def level_order(totals: Mapping[Level, list[int]], classes: int) -> list[Level]:
    """Return the levels by their mean, equal ones by number; totals: total of each level (split.py Table)."""
    ascending = sorted(totals, key=lambda level: (level is not None, level))
    if classes == 0:
        return sorted(ascending, key=lambda level: Fraction(totals[level][1], totals[level][0]))
    direction = [0, 1] if classes == 2 else principal_component(list(totals.values()))
    return sorted(ascending, key=lambda level: mean(totals[level], direction))


def level_groups(weights: Mapping[Level, int], least: int) -> list[list[Level]]:
    """Return groups of levels: each level that weighs `least` or is one of the heaviest, and the others together.

    There are at most as many heaviest levels as binary digits in the total weight. Of levels of equal weight, all or
    none are heaviest levels.
    """
    room = sum(weights.values()).bit_length()
    heaviest = sorted(weights.values(), reverse=True)
    least = min(least, heaviest[room] + 1 if len(heaviest) > room else 1)
    ascending = sorted(weights, key=lambda level: (level is not None, level))
    groups = [[level] for level in ascending if weights[level] >= least]
    light = [level for level in ascending if weights[level] < least]
    return [*groups, light] if light else groups


def mean(counts: Counts, direction: list[int]) -> Fraction:
    """Return the mean of the direction's entries for the classes of some rows."""
    return Fraction(sum(n * entry for n, entry in zip(counts, direction, strict=True)), sum(counts))


def principal_component(levels: list[Counts], start: list[int] | None = None) -> list[int]:
    """Return the first principal component of the class shares of levels, by ten steps of integer power iteration.

    start  first direction; None for the first direction in nodes
    """
    classes = range(len(levels[0]))
    together = [sum(level[k] for level in levels) for k in classes]
    direction = start or [rng.mix(k + 1) >> 48 for k in classes]
    for _ in range(10):
        middle = floor(mean(together, direction) * 2**14)
        deviation = [floor(mean(level, direction) * 2**14) - middle for level in levels]
        turned = [sum(level[k] * d for level, d in zip(levels, deviation, strict=True)) for k in classes]
        if not any(turned):
            break
        bits = max(map(abs, turned)).bit_length() - 16
        direction = [entry >> bits if bits > 0 else entry << -bits for entry in turned]
    return direction
