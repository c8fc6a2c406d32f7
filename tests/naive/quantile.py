"""Quantile regression forests (Meinshausen 2006, section 3) in exact fractions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction


def quantile(leaves: Sequence[Mapping[float, int]], share: float) -> float:
    """The smallest target whose weight, with all below it, reaches the share of a row's distribution.

    leaves  for each tree the weights of the targets in the leaf that the row ends in.
    share   as it is written: 0.1 is a tenth.
    """
    weight: dict[float, Fraction] = {}
    for leaf in leaves:
        for target, own in leaf.items():
            weight[target] = weight.get(target, Fraction(0)) + Fraction(own, sum(leaf.values()) * len(leaves))
    reached = Fraction(0)
    for target in sorted(weight):
        reached += weight[target]
        if reached >= Fraction(str(share)):
            return target
    raise AssertionError("all together are less than 1")
