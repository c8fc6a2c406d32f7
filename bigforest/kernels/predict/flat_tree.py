"""Packed trees, rows in tiles, and where a row goes at a node: the data structures of prediction and of the out-of-bag
report.

A node is two words of one array (`NodeLayout`), so that a step touches one cache line.

    word 2i      inner node: its threshold. Leaf: a NaN whose lowest bits number the leaf's ballot.
    word 2i + 1  inner node: the place of its feature in a tile, in the bits from `shift` up; in the bit below,
                 whether a row without a value goes left; in the rest, the distance to its right child. Leaf: 0, so that
                 a step from a leaf stays there.

A node on a category has the place of its feature plus the number of used features. In place of a threshold it has the
number of its set of levels (`LevelSets`), and the bit says whether a row goes left that is not in the set. A place of
at least twice the number of used features is that of an oblique node: the first block of its direction (`Directions`).

The left child of i is i + 1 (preorder). Trees follow each other; `roots` uint64 holds the position of each
root. Ballot b < classes votes for class b alone and needs no table; ballot b >= classes is row b - classes of
`mixed`, float64 [ballots, classes]. Most leaves of a tree grown to the end are pure, so the table is rarely
touched.

Values come in tiles, of float64, or of float32 or of one byte where these hold all of them. Where no node is oblique
they are [tiles, used features, rows of a tile] in C order: one row of the table is one column of a tile. A projection
takes several values of a row, so there they are [tiles, rows, used features + 1], and what comes last of a row is a
zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.binary_search import first_from
from bigforest.kernels.compiler.jit import inlined

# Most rows of a tile that goes level by level (route_levels.py).
TILE = 512
# Terms of a block of a direction, and the bit set in the last of them if the next block continues the direction.
TERMS = 4
MORE = np.uint64(1 << 63)

_ONE = np.uint64(1)


class NodeLayout(NamedTuple):
    """Packed nodes.

    thresholds  float64 [2 * nodes], a view of links
    links       uint64 [2 * nodes]
    shift       uint64, bits of a link below the feature
    default     uint64, the bit below those: set where a row without a value goes left
    ballot      uint64, mask of the bits of a leaf that number its ballot
    """

    thresholds: NDArray[Any]
    links: NDArray[Any]
    shift: np.uint64
    default: np.uint64
    ballot: np.uint64


class Directions(NamedTuple):
    """The directions of nodes in forests with oblique nodes: the one at place p begins with block p.

    A block is TERMS terms, a cache line. The last one is padded with terms of weight 0
    on the zero that ends a row of a tile. Most directions are one block, and so is a feature, with the weight 1. The
    blocks of categories are empty.

    at      uint64 [2 * TERMS * blocks], word 2t is the place of the feature of term t, with MORE in the last term of a
            block where the next one belongs to the same direction
    weight  float64, a view of it: word 2t + 1 is the weight of term t
    """

    at: NDArray[np.uint64]
    weight: NDArray[np.float64]


class LevelSets(NamedTuple):
    """The levels that nodes on categories list: set s is of codes low[s] to before low[s] + span[s].

    It has words[first[s]:first[s + 1]]: either a bit for each of these codes, or, where that takes more words than
    levels, the codes less low[s], ascending.

    features  uint64, used features
    mask      uint64 [sets], a bit for each code of a set whose codes are below 64; 0 of other sets. A step reads it
              without a branch on the kind of node or on the level, which would be mispredicted at every other node
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

    tiles       of float64, float32 or uint8, C order, whose rows follow each other; there may be more than are used.
                [tiles, used features, rows of a tile] where directions are None, else
                [tiles, rows of a tile, used features + 1]
    rows        their number
    by_level    whether they are few beside the nodes, so that going level by level is faster. The rows of a tile are a
                power of two then, up to TILE
    directions  None where no node is oblique; sets: None where none is on a category
    missing     None where no value is NaN, else True

    A field that is None is a separate compilation.
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
    """Return whether a code is in a set. Cost: one word, or a binary search in few words."""
    at = code - sets.low[number]  # wraps round below it
    if at >= sets.span[number]:
        return False
    begin, end = sets.first[number], sets.first[number + _ONE]
    if (end - begin) << np.uint64(5) >= sets.span[number]:
        return (np.uint64(sets.words[begin + (at >> np.uint64(5))]) >> (at & np.uint64(31))) & _ONE == _ONE
    words = sets.words[begin:end]
    return np.uint64(words[first_from(words, end - begin, at)]) == at
