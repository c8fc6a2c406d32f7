"""Packed trees, and rows in tiles: the data structures of prediction and of the out-of-bag report.

A node is two words of one array (`NodeLayout`), so that a step touches one cache line.

    word 2i      inner node: its threshold. Leaf: a NaN whose lowest bits number the leaf's ballot.
    word 2i + 1  inner node: the column of its feature in a tile, in the bits from `shift` up; in the bit below,
                 1 if a row without a value goes left; in the lower bits, the distance to its right child. Leaf: 0, so
                 a step from a leaf stays in the leaf.

A node on a category has the column of its feature plus the number of used features. Its word 2i is the number of its
set of levels (`LevelSets`), and the bit is 1 if levels outside the set go left. A column number of at least twice the
number of used features marks an oblique node.

The left child of i is i + 1 (preorder). Trees follow each other; `roots` uint64 holds the position of each
root. The ballot of a leaf is its contribution to the votes. Ballot b < classes votes for class b alone and needs no
table; ballot b >= classes is row b - classes of `mixed`, float64 [ballots, classes]. Most leaves of a tree grown to the
end are pure, so the table is rarely touched. For regression classes is 1, and every leaf has a row of `mixed`.

Values come in tiles, of float64, or of float32 or uint8 if that represents all values. If no node is oblique, tiles
are [tiles, used features, rows of a tile] in C order: one row of the table is one column of a tile. A projection takes
several values of a row, so in forests with oblique nodes tiles are [tiles, rows, used features + 1], and the last value
of a row is a zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.binary_search import first_from
from bigforest.kernels.compiler.jit import inlined

# Most rows of a tile that goes level by level (route.py).
TILE = 512
# Terms of a block of a direction, and the bit that is set in the last term if the next block continues the direction.
TERMS = 4
MORE = np.uint64(1 << 63)

_ONE = np.uint64(1)


class NodeLayout(NamedTuple):
    """Packed nodes.

    thresholds  float64 [2 * nodes], a view of links
    links       uint64 [2 * nodes]
    shift       uint64, bits of a link below the feature
    default     uint64, the bit below `shift`: set if a row without a value goes left
    ballot      uint64, mask of the bits of a leaf that number its ballot
    """

    thresholds: NDArray[Any]
    links: NDArray[Any]
    shift: np.uint64
    default: np.uint64
    ballot: np.uint64


class Directions(NamedTuple):
    """The directions of all nodes in a forest with oblique nodes.

    The column number of a node is the number of its first block. A block is TERMS terms, a cache line. The last block
    of a direction is padded with terms of weight 0 on the zero that ends a row of a tile. Most directions have one
    block. The first blocks have one used feature each, with weight 1. Then follow as many blocks of padding, for nodes
    on categories, and the blocks of oblique nodes.

    at      uint64 [2 * TERMS * blocks], word 2t is the column of the feature of term t, with MORE in the last term of a
            block if the next block belongs to the same direction
    weight  float64, a view of `at`: word 2t + 1 is the weight of term t
    """

    at: NDArray[np.uint64]
    weight: NDArray[np.float64]


class LevelSets(NamedTuple):
    """The levels that nodes on categories list. The codes of set s lie from low[s] to before low[s] + span[s].

    words[first[s]:first[s + 1]] has a bit for each code of this range. If the bits would take more than twice as many
    words as the codes, it has the codes of the set instead, less low[s] and ascending.

    features  uint64, number of used features
    mask      uint64 [sets], a bit for each code if all codes of the set are below 64, else 0. A step tests the bit
              without a branch, which would be mispredicted at every other node
    low       uint64 [sets]
    span      uint64 [sets]
    first     uint64 [sets + 1]
    words     uint32
    """

    features: np.uint64
    mask: NDArray[np.uint64]
    low: NDArray[np.uint64]
    span: NDArray[np.uint64]
    first: NDArray[np.uint64]
    words: NDArray[np.uint32]


class RouteInputs(NamedTuple):
    """Rows in tiles, and the nodes they are routed through.

    tiles       float64, float32 or uint8, C order: [tiles, used features, rows of a tile] if directions is None, else
                [tiles, rows of a tile, used features + 1]. Tiles beyond `rows`, and the rest of the last, are unused
    rows        number of rows
    by_level    True if the rows are few compared with the nodes, so that level by level is faster. A tile then has a
                power of two of rows, up to TILE
    directions  None if no node is oblique; sets: None if no node is on a category
    missing     None if no value is NaN, else True

    Kernels are compiled separately for fields that are None.
    """

    tiles: NDArray[Any]
    rows: int
    by_level: bool
    layout: NodeLayout
    directions: Directions | None
    sets: LevelSets | None
    missing: bool | None


@inlined
def is_listed(sets, number, code):
    """Return True if a code is in a set. Cost: one word, or a binary search in few words."""
    at = code - sets.low[number]  # wraps round for codes below the range
    if at >= sets.span[number]:
        return False
    begin, end = sets.first[number], sets.first[number + _ONE]
    if (end - begin) << np.uint64(5) >= sets.span[number]:
        return (np.uint64(sets.words[begin + (at >> np.uint64(5))]) >> (at & np.uint64(31))) & _ONE == _ONE
    words = sets.words[begin:end]
    return np.uint64(words[first_from(words, end - begin, at)]) == at
