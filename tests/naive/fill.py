"""The value that takes the place of the missing cells of a column where trees split on projections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

STEPS = 2**30


def fill(cells: Sequence[float], bins: Sequence[tuple[float, float]]) -> float:
    """Return the fill value of a column with these cells, NaN for missing.

    bins  the smallest and the largest value of each code, ascending; a cell counts as the smallest of its bin.
    """
    own = [next(low for low, high in bins if low <= cell <= high) for cell in cells if not math.isnan(cell)]
    finite = sorted(low for low in own if math.isfinite(low))
    if not finite:
        return 0.0
    if finite[0] == finite[-1]:
        found = 1.0 if finite[0] == 0.0 else 0.0
    else:
        unit = 1.0 if math.isfinite(finite[-1] - finite[0]) else 0.5
        low, span = finite[0] * unit, finite[-1] * unit - finite[0] * unit
        steps = [round((value * unit - low) / span * STEPS) for value in finite]
        found = (low + float(Fraction(sum(steps), len(steps) * STEPS)) * span) / unit
    free = found
    for low, high in bins:
        if low <= free <= high:
            free = math.nextafter(high, math.inf)
    if free == math.inf:
        free = math.nextafter(finite[0], -math.inf)
    return found if math.isinf(free) else free
