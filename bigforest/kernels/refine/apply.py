"""Add the values of the leaves of small trees to rows, without a walk down the tree.

    each row begins with a bit for every leaf of the tree        1111
    each inner node, for the rows that go right there:
        clear the bits of the leaves of its left subtree         1100
    the lowest bit that is left is that of the row's leaf        ..1.. -> leaf 2

Leaves are numbered in preorder. A step of the inner loop does the same for many rows without a branch, so the compiler
makes vector instructions of it (Lucchese et al. 2015, QuickScorer). Oracle: tests/naive/refine.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import inlined, kernel

# Most leaves of a tree: as many as there are bits.
MAX_LEAVES = 32
# Rows that pass all trees together: their bits and columns stay in the core's cache.
LANES = 512

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_ALL = np.uint32(0xFFFFFFFF)


class SmallTrees(NamedTuple):
    """Small trees, one after the other.

    nodes    int64 [trees + 1], where their inner nodes begin, and the last ones end; leaves: the same of leaves
    place    int64 [inner nodes], place of the feature in a tile
    limit    float64, or float32 for tiles whose values are exact in it, [inner nodes]: values up to it go left
    default  bool [inner nodes], whether missing values and levels that are not listed go left
    keep     uint32 [inner nodes], a bit for each leaf that is not in the left subtree
    words    int64 [inner nodes + 1], where the words of listed levels begin, and the last ones end; numbers have none
    listed   uint64 [words], a bit for each code of the levels that are listed
    value    float64 [leaves, outputs]
    """

    nodes: NDArray[np.int64]
    leaves: NDArray[np.int64]
    place: NDArray[np.int64]
    limit: NDArray[np.floating]
    default: NDArray[np.bool_]
    keep: NDArray[np.uint32]
    words: NDArray[np.int64]
    listed: NDArray[np.uint64]
    value: NDArray[np.float64]


@inlined
def _clear_bits(column, trees, node, bits):
    """Clear the bits of the rows that go right at a node. column: [rows], of the tile; bits: uint32 [rows]."""
    keep, default = trees.keep[node], trees.default[node]
    begin, end = np.uint64(trees.words[node]), np.uint64(trees.words[node + 1])
    if begin < end:
        span = (end - begin) << np.uint64(6)
        for r in range(np.uint64(bits.size)):
            code = np.uint64(np.int64(column[np.uint64(r)]))
            at = begin + (code >> np.uint64(6)) if code < span else begin
            is_listed = code < span and (trees.listed[at] >> (code & np.uint64(63))) & _ONE == _ONE
            bits[np.uint64(r)] &= _ALL if is_listed != default else keep
        return
    limit = trees.limit[node]
    if default:
        for r in range(np.uint64(bits.size)):
            bits[np.uint64(r)] &= keep if column[np.uint64(r)] > limit else _ALL
    else:
        for r in range(np.uint64(bits.size)):
            bits[np.uint64(r)] &= _ALL if column[np.uint64(r)] <= limit else keep


@inlined
def _lowest_bit(bits):
    """Return the number of the lowest bit that is set, from 0, of a uint32 that is not 0."""
    lowest = np.int64(bits) & -np.int64(bits)
    return (np.float64(lowest).view(np.int64) >> np.int64(52)) - np.int64(1023)


@kernel
def add_trees(tiles, rows, trees, first, last, bits, sums):
    """Add the values of the trees `first` to before `last`, in their order, to the sums of the rows of tiles.

    tiles  [tiles, features, rows of a tile], of float64, float32 or uint8, whose rows follow each other
    rows   int64, number of rows
    trees  SmallTrees; first, last: int64
    bits   uint32 [LANES], scratch
    sums   float64 [rows, outputs], added to

    Cost: a tree of 15 leaves takes about 10 ns for each row of a category, and 5 ns without categories.
    """
    height = np.int64(tiles.shape[2])
    outputs = np.uint64(sums.shape[1])
    begin = np.int64(0)
    while begin < rows:
        tile, row = begin // height, begin % height
        size = min(np.int64(LANES), height - row, rows - begin)
        some = bits[:size]
        for tree in range(first, last):
            for r in range(np.uint64(size)):
                some[np.uint64(r)] = _ALL
            for node in range(trees.nodes[tree], trees.nodes[tree + 1]):
                column = tiles[tile, trees.place[node]]
                _clear_bits(column[row : row + size], trees, node, some)
            leaf = trees.leaves[tree]
            if outputs == _ONE:
                for r in range(np.uint64(size)):
                    own = np.uint64(leaf + _lowest_bit(some[np.uint64(r)]))
                    sums[np.uint64(begin) + np.uint64(r), _ZERO] += trees.value[own, _ZERO]
            else:
                for r in range(np.uint64(size)):
                    own = np.uint64(leaf + _lowest_bit(some[np.uint64(r)]))
                    for k in range(outputs):
                        sums[np.uint64(begin) + np.uint64(r), np.uint64(k)] += trees.value[own, np.uint64(k)]
        begin += size
