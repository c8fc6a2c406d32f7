"""Quantiles of the training targets in the leaves that a row ends in. Oracle: tests/naive/quantile.py.

Quantile regression forests (Meinshausen 2006, section 3): for a row that ends in a leaf of weight W, a tree assigns
the share w / W to each training row of weight w in this leaf. The predicted distribution is the mean over trees.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.binary_search import last_up_to
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.numbers import larger, smaller

# Shares are counted in steps of 1 / UNIT, so that sums over 2**20 trees fit 63 bits and are exact.
UNIT = 2.0**42

_ONE = np.uint64(1)


@kernel
def add_up_leaves(start, code, reach, codes):
    """Replace the weights of the targets of each leaf by cumulative weights; return True if the leaves are valid.

    start  uint64 [leaves + 1], ascending from 0: the targets of leaf i are entries start[i] to before start[i + 1]
    code   uint32 [entries], numbers of the targets, which must ascend within a leaf and be below `codes`
    reach  uint32 [entries], weights, which must be at least 1 and sum to less than 2**32 in a leaf; changed

    Safe for any `code` and `reach`.
    """
    for leaf in range(np.uint64(start.size) - _ONE):
        begin, end = start[leaf], start[leaf + _ONE]
        if begin >= end:
            return False
        total = np.uint64(0)
        for entry in range(begin, end):
            if np.uint64(code[entry]) >= codes or (entry > begin and code[entry] <= code[entry - _ONE]):
                return False
            if reach[entry] == 0:
                return False
            total += np.uint64(reach[entry])
            if total >> np.uint64(32):
                return False
            reach[entry] = np.uint32(total)
    return True


@inlined
def share_up_to(begin, end, code, reach, limit):
    """Return the share of the weight of a leaf on codes up to `limit`, in steps of 1 / UNIT; a binary search."""
    if np.uint64(code[begin]) > limit:
        return np.uint64(0)
    up_to = reach[last_up_to(code, begin, end - begin, limit)]
    return np.uint64(np.rint(np.float64(up_to) / np.float64(reach[end - _ONE]) * UNIT))


@kernel
def find_quantiles(leaves, start, code, reach, value, levels, out):
    """Set out[r, k] to the smallest target at which the distribution function of row r reaches levels[k].

    leaves  uint32 [rows, trees], the leaf of each tree that the row ends in
    start, code, reach  as `add_up_leaves` left them
    value   float64 [codes], the targets, ascending
    levels  float64 [quantiles], from 0 to 1
    out     float64 [rows, quantiles]

    A sum of shares also reaches a level if it is short by at most one step per tree, because shares are rounded. A sum
    of 0 reaches none. Cost: about trees * log2(codes) * log2(targets of a leaf) for each quantile.
    """
    trees = np.uint64(leaves.shape[1])
    for row in range(np.uint64(leaves.shape[0])):
        lowest, highest = np.uint64(value.size), np.uint64(0)
        for tree in range(trees):
            leaf = np.uint64(leaves[row, tree])
            lowest = smaller(lowest, np.uint64(code[start[leaf]]))
            highest = larger(highest, np.uint64(code[start[leaf + _ONE] - _ONE]))
        for k in range(np.uint64(levels.size)):
            least = larger(np.int64(np.ceil(levels[k] * np.float64(trees) * UNIT)) - np.int64(trees), np.int64(1))
            low, high = lowest, highest
            while low < high:
                middle = (low + high) >> _ONE
                share = np.uint64(0)
                for tree in range(trees):
                    leaf = np.uint64(leaves[row, tree])
                    share += share_up_to(start[leaf], start[leaf + _ONE], code, reach, middle)
                if share >= np.uint64(least):
                    high = middle
                else:
                    low = middle + _ONE
            out[row, k] = value[low]
