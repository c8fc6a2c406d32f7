"""Ho's two trees as one would write them in plain numpy: what `subspaces.py` measures against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
Labels = NDArray[np.int64]
# Projections of the rows, and the cut: at most that goes left. None where there is none.
Cut = tuple[NDArray[np.float32], float] | None


def grow(rows: Matrix, labels: Labels, find_cut: Callable[..., Cut], **options: Any) -> tuple[int, int]:
    """Split until leaves are pure or cannot be split; returns the numbers of nodes and of rows in pure leaves."""
    nodes = right = 0
    waiting = [np.arange(labels.size)]
    while waiting:
        here = waiting.pop()
        nodes += 1
        own = labels[here]
        present = np.unique(own)
        if present.size == 1:
            right += here.size
            continue
        found = find_cut(rows[here], own, present, **options)
        if found is None:
            continue
        left = found[0] <= found[1]
        waiting += [here[~left], here[left]]
    return nodes, right


def cap(rows: Matrix, labels: Labels, present: Labels, steps: int) -> Cut:
    """Central axis projection of a node."""
    return _cut_axis(rows, labels, *_farthest(rows, labels, present)[1:], steps)


def perceptron(rows: Matrix, labels: Labels, present: Labels, steps: int, epochs: int) -> Cut:
    """A perceptron for a node, or central axis projection where that does not do."""
    means, first, second = _farthest(rows, labels, present)
    near = ((means - second) ** 2).sum(axis=1) < ((means - first) ** 2).sum(axis=1)
    far = near[np.searchsorted(present, labels)]
    weights, cut = _train(rows, far, epochs)
    projections = rows @ weights
    left = projections <= cut
    sides = np.array([[np.count_nonzero(left[labels == k] == side) for side in (True, False)] for k in present])
    if left.all() or not left.any() or (sides[:, 0] > sides[:, 1]).all() or (sides[:, 0] < sides[:, 1]).all():
        return _cut_axis(rows, labels, first, second, steps)
    return projections, cut


def _farthest(rows: Matrix, labels: Labels, present: Labels) -> tuple[Matrix, Matrix, Matrix]:
    """The means of the classes, and the two of them that are farthest apart."""
    means = np.stack([rows[labels == k].mean(axis=0) for k in present])
    square = (means**2).sum(axis=1)
    apart = square[:, None] + square - 2 * means @ means.T
    first, second = np.unravel_index(np.triu(apart, 1).argmax(), apart.shape)
    return means, means[first], means[second]


def _cut_axis(rows: Matrix, labels: Labels, first: Matrix, second: Matrix, steps: int) -> Cut:
    """The stop on the way from one mean to the other that leaves the fewest rows on the wrong side of their class."""
    axis = second - first
    projections = rows @ axis
    begin, end = float(first @ axis), float(second @ axis)
    if not begin < end:
        return None
    stops = np.linspace(begin, end, steps + 1)[1:-1].astype(np.float32)
    place = np.searchsorted(stops, projections)
    classes = labels.max() + 1
    counts = np.bincount(place * classes + labels, minlength=steps * classes).reshape(steps, classes)
    left = counts.cumsum(axis=0)[:-1]
    error = np.minimum(left, counts.sum(axis=0) - left).sum(axis=1)
    size = left.sum(axis=1)
    error[(size == 0) | (size == labels.size)] = labels.size + 1
    best = int(error.argmin())
    return (projections, float(stops[best])) if error[best] <= labels.size else None


def _train(rows: Matrix, far: NDArray[np.bool_], epochs: int) -> tuple[Matrix, float]:
    """Fixed-increment training, a row at a time; the weights with the fewest errors after a pass."""
    weights, cut = np.zeros(rows.shape[1], np.float32), 0.0
    best = (far.size + 1, weights, cut)
    wanted = far.tolist()
    for _ in range(epochs):
        for row, side in zip(rows, wanted, strict=True):
            if (row.dot(weights) > cut) != side:
                weights = weights + row if side else weights - row
                cut += -1.0 if side else 1.0
        errors = np.count_nonzero((rows @ weights > cut) != far)
        if errors < best[0]:
            best = (errors, weights, cut)
        if errors == 0:
            break
    return best[1], best[2]
