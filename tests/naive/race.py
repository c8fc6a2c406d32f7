"""Losses, their errors and the race, one row at a time in plain Python."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tests.naive.shrinkage import half

Scores = Sequence[float | None]


def mean_loss(scores: Scores, weights: Sequence[float]) -> float:
    """The mean of the rows that have a score, by weight."""
    used = [(w, s) for w, s in zip(weights, scores, strict=True) if s is not None]
    return math.fsum(w * s for w, s in used) / math.fsum(w for w, _ in used)


def area_loss(scores: Scores, second: Sequence[bool], weights: Sequence[float]) -> float:
    """The share of the pairs of rows of both classes in which the row of the second class has the lower score."""
    rows = [(w, s, own) for w, s, own in zip(weights, scores, second, strict=True) if s is not None]
    wrong = total = 0.0
    for w, s, own in rows:
        for v, t, other in rows:
            if own and not other:
                total += w * v
                wrong += w * v * (1.0 if s < t else 0.5 if s == t else 0.0)
    return wrong / total


def influences_of_mean(scores: Scores, weights: Sequence[float]) -> list[float]:
    """Return the influence of each row on the mean."""
    loss = mean_loss(scores, weights)
    total = math.fsum(w for w, s in zip(weights, scores, strict=True) if s is not None)
    return [0.0 if s is None else w * (s - loss) / total for w, s in zip(weights, scores, strict=True)]


def influences_of_area(scores: Scores, second: Sequence[bool], weights: Sequence[float]) -> list[float]:
    """Return the influence of each row: its share of wrong pairs minus the loss (DeLong et al. 1988)."""
    loss = area_loss(scores, second, weights)
    found = []
    for w, s, own in zip(weights, scores, second, strict=True):
        if s is None:
            found.append(0.0)
            continue
        rows = list(zip(weights, scores, second, strict=True))
        others = [(v, t) for v, t, other in rows if t is not None and other != own]
        same = math.fsum(v for v, t, other in rows if t is not None and other == own)
        wrong = math.fsum(v * (0.5 if s == t else float((s < t) == own)) for v, t in others)
        found.append(w / same * (wrong / math.fsum(v for v, _ in others) - loss))
    return found


def paired_error(one: Sequence[float], two: Sequence[float], groups: Sequence[int]) -> float:
    """Return the standard error of a difference of losses, from influences; a group counts as one row."""
    sums: dict[int, float] = {}
    for a, b, group in zip(one, two, groups, strict=True):
        sums[group] = sums.get(group, 0.0) + a - b
    return math.sqrt(math.fsum(value * value for value in sums.values()))


def winner(scores: Mapping[str, Scores], weights: Sequence[float], groups: Sequence[int]) -> str:
    """The first candidate within a standard error of the best."""
    losses = {name: mean_loss(own, weights) for name, own in scores.items()}
    best = min(losses, key=losses.__getitem__)
    of_best = influences_of_mean(scores[best], weights)
    for name, own in scores.items():
        error = paired_error(influences_of_mean(own, weights), of_best, groups)
        if name == best or losses[name] - losses[best] <= error:
            return name
    raise AssertionError


def cross_fitted(scores: Mapping[str, Scores], weights: Sequence[float], groups: Sequence[int]) -> float:
    """The loss where each half of the rows is evaluated by the winner on the other half."""
    found: list[float | None] = [None] * len(weights)
    for side in (0, 1):
        own = {
            name: [s if half(group) == side else None for s, group in zip(each, groups, strict=True)]
            for name, each in scores.items()
        }
        chosen = winner(own, weights, groups)
        for row, group in enumerate(groups):
            if half(group) != side:
                found[row] = scores[chosen][row]
    return mean_loss(found, weights)
