"""The result of split.py for large nodes: rough scores by numpy, then exact scores of the splits near the best."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tests.naive import split as naive
from tests.naive.split import SCORES, Split, Table, threshold_between, variance_score

SMALL = 12  # rows; below it plain Python is quicker
NEAR = 1e-9  # far above the error of a rough score in float64, relative to the node's weight

Counts = NDArray[np.int64]


def best_split(
    table: Table,
    rows: Sequence[int],
    weights: Sequence[int],
    features: Sequence[int],
    impurity: str,
    min_leaf: int,
) -> Split | None:
    """See tests/naive/split.py."""
    if len(rows) < SMALL:
        return naive.best_split(table, rows, weights, features, impurity, min_leaf)
    places = np.asarray(rows)
    per_row, centre = _totals(table, places, weights)
    total = per_row.sum(axis=0)
    score_of = SCORES[impurity] if table.classes else variance_score
    weight_of = _weight if table.classes else _first
    best = None
    best_rough = -np.inf
    best_score: Fraction | int | None = None
    for feature in features:
        values = table.low[places, feature]
        order = np.argsort(values, kind="stable")
        values = values[order]
        edges = np.flatnonzero(values[1:] != values[:-1])
        left = np.cumsum(per_row[order], axis=0)[edges]
        enough = np.minimum(weight_of(left), weight_of(total - left)) >= min_leaf
        edges, left = edges[enough], left[enough]
        if not len(edges):
            continue
        rough = _rough(left, impurity) + _rough(total - left, impurity)
        best_rough = max(best_rough, rough.max())
        for at in np.flatnonzero(rough >= best_rough - NEAR * (total.sum() if table.classes else best_rough)):
            sides = left[at].tolist(), (total - left[at]).tolist()
            score = score_of(*sides)
            if best_score is None or score > best_score:
                best_score = score
                edge = edges[at]
                high = table.high[places[order[edge]], feature]
                held = [[side[0], side[1] + centre * side[0]] if table.classes == 0 else side for side in sides]
                best = Split(feature, threshold_between(float(high), float(values[edge + 1])), *held)
    return best


def _totals(table: Table, places: NDArray[np.int64], weights: Sequence[int]) -> tuple[Counts, int]:
    """Return the total of each row (split.py Table), int64 [rows, parts], and the centre; 0 for classes.

    Numbers are relative to the centre, their mean rounded down. This does not change the order of splits.
    """
    own, target = np.asarray(weights)[places], np.asarray(table.target)[places]
    if table.classes:
        per_row = np.zeros((len(places), table.classes), np.int64)
        per_row[np.arange(len(places)), target] = own
        return per_row, 0
    centre = int((own * target).sum() // own.sum())
    return np.column_stack([own, own * (target - centre)]), centre


def _weight(counts: Counts) -> NDArray[np.int64]:
    return counts.sum(axis=1)


def _first(counts: Counts) -> NDArray[np.int64]:
    return counts[:, 0]


def _rough(counts: Counts, impurity: str) -> NDArray[np.float64]:
    if impurity == "variance":
        return counts[:, 1].astype(np.float64) ** 2 / counts[:, 0]
    weight = counts.sum(axis=1)
    if impurity == "gini":
        return (counts * counts).sum(axis=1) / weight
    if impurity == "error":
        return counts.max(axis=1).astype(np.float64)
    if impurity == "entropy":
        return (_n_log2_n(counts).sum(axis=1) - _n_log2_n(weight)) / 2**20
    return np.array([SCORES[impurity](row, [0] * len(row)) for row in counts.tolist()], np.float64)


def _n_log2_n(counts: Counts) -> NDArray[np.float64]:
    return np.rint(counts * np.log2(np.maximum(counts, 1)) * 2**20)
