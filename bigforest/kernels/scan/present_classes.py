"""The classes present in a node, renumbered: absent classes then cost nothing, and two classes are scanned as two.

The best split does not depend on the numbering of classes, nor on absent ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.node_scan import SHIFT16, ZERO, Node, class_of
from bigforest.kernels.compiler.jit import inlined

# Larger nodes lack few classes, and would save little compared to the cost of their rows.
FEW_ROWS = 4096
_CLASS = np.uint64(0xFFFF) << SHIFT16


class PresentClasses(NamedTuple):
    """Scratch of one growing tree.

    items   uint64 [FEW_ROWS], those of the current node, with new classes
    total   int64 [classes], weights of the new classes
    number  uint64 [classes], the new number of each class, shifted to its bits in items
    """

    items: NDArray[np.uint64]
    total: NDArray[np.int64]
    number: NDArray[np.uint64]


def make_present_classes(classes: int) -> PresentClasses:
    """Scratch for `classes` classes."""
    return PresentClasses(np.empty(FEW_ROWS, np.uint64), np.empty(classes, np.int64), np.empty(classes, np.uint64))


@inlined
def with_present_classes(node, scratch):
    """The node with its present classes only, in scratch; the node itself if it has all or many rows."""
    items, total = node.items, node.total
    if items.size > FEW_ROWS:
        return node
    found = ZERO
    for k in range(np.uint64(total.size)):
        scratch.number[k] = found << SHIFT16
        scratch.total[found] = total[k]
        found += np.uint64(total[k] > 0)
    if found == np.uint64(total.size):
        return node
    for i in range(np.uint64(items.size)):
        scratch.items[i] = (items[i] & ~_CLASS) | scratch.number[class_of(items[i])]
    return Node(scratch.items[: items.size], scratch.total[:found], node.weight, node.sq)
