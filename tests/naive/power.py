"""Probabilities from shares of votes by a power, and the choice of the power, row by row."""

from __future__ import annotations

import math
from collections.abc import Sequence


def raised(shares: Sequence[float], power: float) -> list[float]:
    """Return p_k**a / sum of p_j**a; the zeros of a row without votes do not change."""
    largest = max(shares)
    if not largest:
        return list(shares)
    powers = [(share / largest) ** power for share in shares]
    return [one / math.fsum(powers) for one in powers]


def losses(shares: Sequence[Sequence[float] | None], truth: Sequence[int], power: float) -> list[float | None]:
    """Log loss of each row by a power; None where no tree leaves it out."""
    eps = 2.0**-52
    found: list[float | None] = []
    for row, own in zip(shares, truth, strict=True):
        found.append(None if row is None else -math.log(min(max(raised(row, power)[own], eps), 1 - eps)))
    return found


def chosen(by_power: Sequence[Sequence[float | None]], weights: Sequence[float]) -> int:
    """Return the place of the power of least loss; 0 unless it gains more than two standard errors on the first."""
    used = [row for row, loss in enumerate(by_power[0]) if loss is not None]
    sums = [math.fsum(float(own[row] or 0) * weights[row] for row in used) for own in by_power]
    best = sums.index(min(sums))
    gains = [(float(by_power[0][row] or 0) - float(by_power[best][row] or 0)) * weights[row] for row in used]
    return best if math.fsum(gains) ** 2 > 4 * math.fsum(gain**2 for gain in gains) else 0
