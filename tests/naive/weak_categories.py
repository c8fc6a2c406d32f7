"""Ratio of the variance within levels to the variance between levels, in fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf


def variance_ratio(levels: Sequence[int], targets: Sequence[Sequence[int]], weights: Sequence[Fraction]) -> float:
    """Return the ratio from a one-way analysis of variance with random levels.

    It is inf if the variance between levels is not above 0, there is one level, or each row has another level.

    targets  [rows][outputs]
    weights  [rows], with mean 1
    """
    rows, groups = len(levels), sorted(set(levels))
    if len(groups) in (1, rows):
        return inf
    within, between = Fraction(0), Fraction(0)
    size = {group: sum(w for level, w in zip(levels, weights, strict=True) if level == group) for group in groups}
    for output in range(len(targets[0])):
        values = [Fraction(target[output]) for target in targets]
        mean = sum(w * value for w, value in zip(weights, values, strict=True)) / rows
        for group in groups:
            inside = [(w, v) for level, w, v in zip(levels, weights, values, strict=True) if level == group]
            own = sum(w * v for w, v in inside) / size[group]
            within += sum(w * (v - own) ** 2 for w, v in inside)
            between += size[group] * (own - mean) ** 2
    within /= rows - len(groups)
    typical = (rows - sum(each**2 for each in size.values()) / rows) / (len(groups) - 1)
    variance = (between / (len(groups) - 1) - within) / typical
    return float(within / variance) if variance > 0 else inf
