"""Add the values of the leaves of small trees to rows, without a walk down the tree.

    each row begins with a bit for every leaf of the tree        1111
    each inner node, for the rows that go right there:
        clear the bits of the leaves of its left subtree         1100
    the lowest bit that is left is that of the row's leaf        ..1.. -> leaf 2

Leaves are numbered in preorder. A step of the inner loop does the same for many rows without a branch, so the compiler
makes vector instructions of it (Lucchese et al. 2015, QuickScorer). The nodes of a tree on the same category clear bits
together: the level of a row looks up the leaves that are left. Oracle: tests/naive/refine.py.
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

_ALL = np.uint32(0xFFFFFFFF)


class SmallTrees(NamedTuple):
    """Small trees, one after the other.

    nodes    int64 [trees + 1], where their inner nodes on numbers begin, and the last ones end
    leaves   int64 [trees + 1], the same of leaves; lookups: of the categories that a tree splits on
    place    int64 [inner nodes], place of the feature in a tile
    limit    float64, or float32 for tiles whose values are exact in it, [inner nodes]: values up to it go left
    default  bool [inner nodes], whether missing values go left
    keep     uint32 [inner nodes], a bit for each leaf that is not in the left subtree
    category int64 [lookups], number of the category
    first    int64 [lookups], where its masks begin
    mask     uint32, a bit for each leaf that rows of a group of levels can reach, by group: group 0 has all levels that
             no node lists, and missing values that none lists
    column   int64 [categories], place of a category in a tile
    codes    int64 [categories + 1], where the codes of each category begin, and the last ones end
    group    int32 [codes], group of each code
    value    float64 [leaves, outputs]
    """

    nodes: NDArray[np.int64]
    leaves: NDArray[np.int64]
    lookups: NDArray[np.int64]
    place: NDArray[np.int64]
    limit: NDArray[np.floating]
    default: NDArray[np.bool_]
    keep: NDArray[np.uint32]
    category: NDArray[np.int64]
    first: NDArray[np.int64]
    mask: NDArray[np.uint32]
    column: NDArray[np.int64]
    codes: NDArray[np.int64]
    group: NDArray[np.int32]
    value: NDArray[np.float64]


@inlined
def _find_groups(column, codes, groups):
    """Put the groups of the levels of some rows into `groups`, int32 [rows]. codes: int32, group of each code."""
    for r in range(np.uint64(groups.size)):
        code = np.uint64(np.int64(column[np.uint64(r)]))  # a missing value is larger than all codes
        groups[np.uint64(r)] = codes[code] if code < np.uint64(codes.size) else np.int32(0)


@inlined
def _clear_bits(column, trees, node, bits):
    """Clear the bits of the rows that go right at a node. column: [rows], of the tile; bits: uint32 [rows]."""
    keep, limit = trees.keep[node], trees.limit[node]
    if trees.default[node]:
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
def add_trees(tiles, rows, trees, first, last, bits, groups, sums):
    """Add the values of the trees `first` to before `last`, in their order, to the sums of the rows of tiles.

    tiles  [tiles, features, rows of a tile], of float64, float32 or uint8, whose rows follow each other
    rows   int64, number of rows
    trees  SmallTrees; first, last: int64
    bits   uint32 [LANES], scratch; groups: int32 [categories, LANES], the same
    sums   float64 [rows, outputs], added to

    Cost: a tree of 15 leaves takes about 2 ns for each row, and 1 ns more for each category that it splits on.
    """
    height = np.int64(tiles.shape[2])
    outputs = np.uint64(sums.shape[1])
    begin = np.int64(0)
    while begin < rows:
        tile, row = begin // height, begin % height
        size = min(np.int64(LANES), height - row, rows - begin)
        some = bits[:size]
        for category in range(trees.column.size):
            codes = trees.group[trees.codes[category] : trees.codes[category + 1]]
            _find_groups(tiles[tile, trees.column[category]][row : row + size], codes, groups[category, :size])
        for tree in range(first, last):
            for r in range(np.uint64(size)):
                some[np.uint64(r)] = _ALL
            for node in range(trees.nodes[tree], trees.nodes[tree + 1]):
                column = tiles[tile, trees.place[node]]
                _clear_bits(column[row : row + size], trees, node, some)
            for lookup in range(trees.lookups[tree], trees.lookups[tree + 1]):
                own, at = groups[trees.category[lookup]], np.uint64(trees.first[lookup])
                for r in range(np.uint64(size)):
                    some[np.uint64(r)] &= trees.mask[at + np.uint64(own[np.uint64(r)])]
            leaf = trees.leaves[tree]
            for r in range(np.uint64(size)):
                own_leaf, at = np.uint64(leaf + _lowest_bit(some[np.uint64(r)])), np.uint64(begin) + np.uint64(r)
                for k in range(outputs):
                    sums[at, np.uint64(k)] += trees.value[own_leaf, np.uint64(k)]
        begin += size
