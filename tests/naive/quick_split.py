"""The answer of split.py for large nodes: rough scores by numpy, then exact ones for all near the best."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tests.naive import split as naive
from tests.naive.split import SCORES, Split, Table, threshold_between

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
    per_row = np.zeros((len(places), table.classes), np.int64)
    per_row[np.arange(len(places)), np.asarray(table.target)[places]] = np.asarray(weights)[places]
    total = per_row.sum(axis=0)
    best = None
    best_rough = -np.inf
    best_score: Fraction | int | None = None
    for feature in features:
        values = table.low[places, feature]
        order = np.argsort(values, kind="stable")
        values = values[order]
        edges = np.flatnonzero(values[1:] != values[:-1])
        left = np.cumsum(per_row[order], axis=0)[edges]
        enough = np.minimum(left.sum(axis=1), (total - left).sum(axis=1)) >= min_leaf
        edges, left = edges[enough], left[enough]
        if not len(edges):
            continue
        rough = _rough(left, impurity) + _rough(total - left, impurity)
        best_rough = max(best_rough, rough.max())
        for at in np.flatnonzero(rough >= best_rough - NEAR * total.sum()):
            sides = left[at].tolist(), (total - left[at]).tolist()
            score = SCORES[impurity](*sides)
            if best_score is None or score > best_score:
                best_score = score
                edge = edges[at]
                high = table.high[places[order[edge]], feature]
                best = Split(feature, threshold_between(float(high), float(values[edge + 1])), *sides)
    return best


def _rough(counts: Counts, impurity: str) -> NDArray[np.float64]:
    weight = counts.sum(axis=1)
    if impurity == "gini":
        return (counts * counts).sum(axis=1) / weight
    if impurity == "error":
        return counts.max(axis=1).astype(np.float64)
    return (_n_log2_n(counts).sum(axis=1) - _n_log2_n(weight)) / 2**20


def _n_log2_n(counts: Counts) -> NDArray[np.float64]:
    return np.rint(counts * np.log2(np.maximum(counts, 1)) * 2**20)
