"""From the numbers a kernel returns to the arrays of a forest table: thresholds and decreases of impurity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigforest.config import Impurity
from bigforest.forest.table import TreeArrays
from bigforest.kernels.grow import Nodes
from bigforest.store.store import Store

# Nodes whose class shares are worked out at a time.
_CHUNK = 65_536


def tree_arrays(store: Store, nodes: Nodes, impurity: Impurity) -> TreeArrays:
    """The tree `nodes`, grown on the codes of `store` under `impurity`, in values instead of codes."""
    split = nodes.feature >= 0
    threshold = np.full(split.size, np.nan)
    inner = np.flatnonzero(split)
    inner = inner[np.argsort(nodes.feature[inner], kind="stable")]  # nodes of one feature together
    for here in np.split(inner, np.flatnonzero(np.diff(nodes.feature[inner])) + 1) if inner.size else ():
        feature = nodes.feature[here[0]]
        below = store.high(feature)[nodes.left_code[here]]
        above = store.low(feature)[nodes.right_code[here]]
        threshold[here] = midpoint(below, above)
    return TreeArrays(
        feature=nodes.feature,
        left=np.where(split, np.arange(1, split.size + 1), 0).astype(np.uint32),
        right=nodes.right,
        depth=nodes.depth,
        threshold=threshold,
        gain=decrease(nodes, impurity),
        weight=nodes.counts.sum(axis=1, dtype=np.uint64),
        counts=nodes.counts,
    )


def midpoint(below: NDArray[np.float64], above: NDArray[np.float64]) -> NDArray[np.float64]:
    """Thresholds between neighbouring values, float64 [n] each: below <= threshold < above, always.

    The middle where it separates them; the lower value where the middle rounds up to the upper one or is not finite.
    """
    with np.errstate(invalid="ignore"):  # minus infinity and infinity have no middle
        middle = below / 2 + above / 2
    return np.where((below <= middle) & (middle < above), middle, below)


def decrease(nodes: Nodes, impurity: Impurity) -> NDArray[np.float64]:
    """Impurity of each node less that of its children, weighted by bag rows; float64 [nodes], nan in a leaf."""
    value = impurity_of(nodes.counts, impurity)
    weight = nodes.counts.sum(axis=1, dtype=np.float64)
    parent = np.flatnonzero(nodes.feature >= 0)
    left, right = parent + 1, nodes.right[parent].astype(np.int64)
    gain = np.full(value.size, np.nan)
    children = weight[left] * value[left] + weight[right] * value[right]
    gain[parent] = value[parent] - children / weight[parent]
    return gain


def impurity_of(counts: NDArray[np.uint32], impurity: Impurity) -> NDArray[np.float64]:
    """Impurity by class weights, counts [nodes, classes]: Gini 1 - sum p**2, entropy in bits, error 1 - max p.

    Tomasi 2017, section 3.
    """
    value = np.empty(len(counts))
    for start in range(0, len(counts), _CHUNK):
        share = counts[start : start + _CHUNK] / counts[start : start + _CHUNK].sum(axis=1, keepdims=True)
        if impurity == "gini":
            here = 1.0 - np.square(share).sum(axis=1)
        elif impurity == "error":
            here = 1.0 - share.max(axis=1)
        else:
            here = -(share * np.log2(share, where=share > 0.0, out=np.zeros_like(share))).sum(axis=1)
        value[start : start + _CHUNK] = here
    return value
