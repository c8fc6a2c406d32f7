"""Intervals, sets of classes and rejection from rows whose truth is known, in exact arithmetic where it matters."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

import numpy as np


def bound(errors: Sequence[float], coverage: str) -> float | None:
    """Return the k-th smallest error, k = ceil(coverage * (n + 1)); None if there are fewer than k."""
    rank = ceil(Fraction(coverage) * (len(errors) + 1))
    return sorted(errors)[rank - 1] if rank <= len(errors) else None


def bins(predictions: Sequence[float], coverage: str) -> list[list[float]]:
    """Return the predictions in bins. A bin ends before a new value if it and the remaining rows are both enough."""
    rows = len(predictions)
    least = max(200, ceil(10 / (1 - Fraction(coverage))), ceil(Fraction(rows, 20)))
    found: list[list[float]] = [[]]
    for place, value in enumerate(sorted(predictions)):
        own = found[-1]
        if len(own) >= least and own[-1] != value and rows - place >= least:
            found.append([])
        found[-1].append(value)
    return found


def interval(
    predictions: Sequence[float],
    truths: Sequence[float],
    coverage: str,
    value: float,
    spreads: Sequence[float] | None = None,
    spread: float = 0.0,
) -> tuple[float, float] | None:
    """Return the interval around the prediction `value`; None if there are too few rows.

    spreads  spread of the trees on each calibration row; errors are scaled by it. None without scaling
    spread   spread of the trees on the predicted row
    """
    cut = bins(predictions, coverage)
    own = next((one for one in cut if value <= one[-1]), cut[-1]) if predictions else []
    scale = float(np.mean(spreads)) if spreads else 0.0
    if scale <= 2.0**-49 * max(map(abs, predictions), default=0.0):  # rounding
        scale = 0.0
    hard = [one / scale + 1.0 if scale else 1.0 for one in spreads or [0.0] * len(predictions)]
    rows = zip(predictions, truths, hard, strict=True)
    radius = bound([abs(truth - guess) / by for guess, truth, by in rows if own[0] <= guess <= own[-1]], coverage)
    if radius is None:
        return None
    radius *= spread / scale + 1.0 if scale else 1.0
    return value - radius, value + radius


def jackknife(
    errors: Sequence[float], left: Sequence[Sequence[bool]], coverage: str, values: Sequence[float]
) -> tuple[float, float] | None:
    """Return the interval of a row by calibration rows (Kim, Xu and Barber 2020).

    errors  error of each calibration row, by the trees that left it out
    left    [rows][trees], True if the tree left the calibration row out
    values  prediction of each tree for the row
    """
    guesses = [float(np.mean([value for value, out in zip(values, own, strict=True) if out])) for own in left]
    low = bound([-(guess - error) for guess, error in zip(guesses, errors, strict=True)], coverage)
    high = bound([guess + error for guess, error in zip(guesses, errors, strict=True)], coverage)
    return None if low is None or high is None else (-low, high)


def categories(truths: Sequence[int], classes: int, coverage: str) -> list[list[int]]:
    """The classes that are calibrated together."""
    counts = [list(truths).count(k) for k in range(classes)]
    alone = [bound([0.0] * count, coverage) is not None for count in counts]
    rarest = sorted(range(classes), key=lambda k: (counts[k], k))
    pool = [k for k in rarest if not alone[k]]
    others = [k for k in rarest if alone[k]]
    while pool and others and bound([0.0] * sum(counts[k] for k in pool), coverage) is None:
        pool.append(others.pop(0))
    return [*([pool] if pool else []), *([k] for k in others)]


def class_set(truths: Sequence[int], shares: Sequence[float], coverage: str, row: Sequence[float]) -> list[int] | None:
    """Return the set of classes of a row; None if there are too few rows.

    shares  share of the votes for the true class, of each calibration row
    row     share of the votes for each class, of the predicted row
    """
    found: list[int] = []
    for own in categories(truths, len(row), coverage):
        floor = bound([-share for truth, share in zip(truths, shares, strict=True) if truth in own], coverage)
        if floor is None:
            return None
        found += [k for k in own if row[k] >= -floor]
    return sorted(found)


def rejections(confidences: Sequence[float], wrong: Sequence[bool]) -> list[tuple[float, int, int]]:
    """Return (confidence, rows of at least this confidence, wrong rows among them), from the highest confidence."""
    pairs = list(zip(confidences, wrong, strict=True))
    found = []
    for confidence in sorted(set(confidences), reverse=True):
        own = [bad for one, bad in pairs if one >= confidence]
        found.append((confidence, len(own), sum(own)))
    return found


def isotonic(confidences: Sequence[float], wrong: Sequence[bool]) -> dict[float, Fraction]:
    """Return the error at each confidence. It does not rise with confidence: adjacent violators are pooled."""
    blocks: list[tuple[list[float], int, int]] = []
    for confidence in sorted(set(confidences)):
        own = [bad for one, bad in zip(confidences, wrong, strict=True) if one == confidence]
        blocks.append(([confidence], sum(own), len(own)))
        while len(blocks) > 1 and Fraction(*blocks[-2][1:]) <= Fraction(*blocks[-1][1:]):
            values, bad, rows = blocks.pop()
            before = blocks.pop()
            blocks.append((before[0] + values, before[1] + bad, before[2] + rows))
    return {value: Fraction(bad, rows) for values, bad, rows in blocks for value in values}


def answered(confidences: Sequence[float], wrong: Sequence[bool], risk: str, values: Sequence[float]) -> list[bool]:
    """Return True for each of `values` that is answered: its error is at most the risk.

    Its error is that of the nearest of `confidences` not above it, or of the lowest one.
    """
    errors = isotonic(confidences, wrong)
    nearest = [max((one for one in errors if one <= value), default=min(errors)) for value in values]
    return [errors[one] <= Fraction(risk) for one in nearest]
