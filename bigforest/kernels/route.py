"""Sending rows down the trees: the loop of prediction and of the out-of-bag report.

A node is two words of one array (`Layout`), so that a step touches one cache line.

    word 2i      inner node: its threshold. Leaf: a NaN whose lowest bits number the leaf's ballot.
    word 2i + 1  inner node: the place of its feature in a tile, in the bits from `shift` up, in the bit below those
                 whether a row without a value goes left, and in the rest how far on its right child stands. Leaf: 0, so
                 that a step from a leaf stays there.

A node on a category has the place of its feature plus the number of used features. In place of a threshold it has the
number of its set of levels (`LevelSets`), and the bit says whether a row goes left that is not in the set. A place from
twice the number of used features on is that of an oblique node: the block its direction (`Directions`) begins with.

The left child of i is i + 1 (preorder). Trees follow each other; `roots` uint64 holds the position of each
root. Ballot b < classes is all for class b and needs no table; ballot b >= classes is row b - classes of
`mixed`, float64 [ballots, classes]. Most leaves of a tree grown to the end are pure, so the table is rarely
touched.

There are two layouts, which give the same answers: wide (float64 and uint64 words) for any values, and narrow
(float32 and uint32 words) for values that are all float32. A narrow threshold is the wide one rounded down:
then x <= threshold holds for the same float32 x. Half the bytes are worth a quarter to a third of the time.

Values come in tiles, of float64, or of float32 or of one byte where these hold all of them, [tiles, used features,
TILE] in C order: one row of the table is one column of a tile. Many tiles go through one tree before the next, so that
the tree stays in the cache, and within a tile the rows advance level by level, so that many independent loads
are under way at once, and a node can be asked for a level ahead. A row that reached its leaf drops out of the list
without a branch: a branch that follows the data would be mispredicted at every other step, which costs more than the
step. (Steps that drop no row, at every other level, were such a branch: the compiler made it of the choice of a child.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.jit import inlined
from bigforest.kernels.prefetch import prefetch

TILE = 512
TILE_SHIFT = np.uint64(9)
# Terms of a block of a direction.
TERMS = 4

_ONE = np.uint64(1)
# Words of a block, and where that of its last term is.
_BLOCK = np.uint64(2 * TERMS)
_LAST = np.uint64(2 * TERMS - 2)


class Layout(NamedTuple):
    """Packed nodes.

    thresholds  float64 or float32 [2 * nodes], a view of links
    links       uint64 or uint32 [2 * nodes]
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
    """What nodes look at in forests where some are oblique: that at place p begins with block p.

    A block is TERMS terms, a cache line. What is left of the last one has the weight 0, for the zeros that a tile has
    after the used features. Most directions are one block, and so is a feature, with the weight 1: the processor
    cannot foresee where a loop over terms ends, nor which nodes are oblique. There is nothing in the blocks of
    categories.

    at      uint64 [2 * TERMS * blocks], word 2t is where the values for term t begin in a flat tile; that of the last
            term of a block is one more where the next block belongs to the same direction
    weight  float64, a view of it: word 2t + 1 is the weight of term t
    """

    at: NDArray[np.uint64]
    weight: NDArray[np.float64]


class LevelSets(NamedTuple):
    """The levels that nodes on categories list: set s is of codes low[s] to before low[s] + span[s].

    It has words[first[s]:first[s + 1]]: either a bit for each of these codes, or, where that takes more words than
    levels, the codes less low[s], ascending.

    features  uint64, used features
    low       uint64 [sets]
    span      uint64 [sets]
    first     uint64 [sets + 1]
    words     uint32
    """

    features: np.uint64
    low: NDArray[np.uint64]
    span: NDArray[np.uint64]
    first: NDArray[np.uint64]
    words: NDArray[np.uint32]


class Way(NamedTuple):
    """Rows in tiles, and the nodes they are sent down.

    tiles       [tiles, used features, TILE], of float64, float32 or uint8; after the features comes one of zeros where
                there are directions; row r is column r % TILE of tile
                r // TILE, and there may be more tiles than rows need
    rows        their number
    together    tiles that go through a tree before the next
    directions  None where no node is oblique; sets: None where none is on a category
    missing     None where no value is NaN, else True

    A field that is None is compiled apart.
    """

    tiles: NDArray[Any]
    rows: int
    together: int
    layout: Layout
    directions: Directions | None
    sets: LevelSets | None
    missing: bool | None


def new_scratch() -> NDArray[np.uint32]:
    """What one call of a kernel that sends rows needs to itself: uint32 [3, TILE]."""
    return np.empty((3, TILE), np.uint32)


@inlined
def add_block(tile, directions, block, row, projection):
    """Add the terms of a block, one after the other; the sum, and whether it goes on in the next block."""
    word = block * _BLOCK
    for term in range(TERMS - 1):
        here = word + np.uint64(2 * term)
        projection += directions.weight[here + _ONE] * np.float64(tile[row + directions.at[here]])
    last = directions.at[word + _LAST]
    projection += directions.weight[word + _LAST + _ONE] * np.float64(tile[row + (last & ~_ONE)])
    return projection, last & _ONE


@inlined
def value_at(tile, directions, column, row):
    """What a node whose link begins with `column` looks at: a value, or a projection (layout.py Terms).

    directions None, where no node is oblique, is compiled apart: axis forests pay nothing for it.
    """
    if directions is None:
        return tile[row + (column << TILE_SHIFT)]
    else:  # noqa: RET505, only this form is dropped when directions is None
        projection, more = add_block(tile, directions, column, row, 0.0)
        while more:
            column += _ONE
            projection, more = add_block(tile, directions, column, row, projection)
        return projection


@inlined
def is_listed(sets, number, code):
    """Whether a code is in a set. Cost: one look at a word, or a binary search in few of them."""
    at = code - sets.low[number]  # wraps round below it
    if at >= sets.span[number]:
        return False
    begin, end = sets.first[number], sets.first[number + _ONE]
    if (end - begin) << np.uint64(5) >= sets.span[number]:
        return (np.uint64(sets.words[begin + (at >> np.uint64(5))]) >> (at & np.uint64(31))) & _ONE == _ONE
    while begin < end:
        middle = (begin + end) >> _ONE
        if np.uint64(sets.words[middle]) < at:
            begin = middle + _ONE
        else:
            end = middle
    return begin < sets.first[number + _ONE] and np.uint64(sets.words[begin]) == at


@inlined
def is_up_to(tile, layout, directions, missing, node, row):
    """Whether a row goes left at an axis or oblique node.

    missing None, where no value is NaN, is compiled apart: complete tables pay nothing for it.
    """
    link = np.uint64(layout.links[node + node + _ONE])
    value = value_at(tile, directions, link >> layout.shift, row)
    threshold = layout.thresholds[node + node]
    if missing is None:
        return value <= threshold
    else:  # noqa: RET505, only this form is dropped when missing is None
        return (value <= threshold) | ((value != value) & ((link & layout.default) != np.uint64(0)))


@inlined
def goes_left(tile, layout, directions, sets, missing, node, row):
    """Whether a row goes left at an inner node. sets None, where no node is on a category, is compiled apart."""
    if sets is None:
        return is_up_to(tile, layout, directions, missing, node, row)
    else:  # noqa: RET505, only this form is dropped when sets is None
        link = np.uint64(layout.links[node + node + _ONE])
        place = (link >> layout.shift) - sets.features  # of a feature that is a category; wraps round below
        if place >= sets.features:
            return is_up_to(tile, layout, directions, missing, node, row)
        code = np.uint64(tile[row + (place << TILE_SHIFT)])
        listed = is_listed(sets, np.uint64(layout.links[node + node]), code)
        return listed != ((link & layout.default) != np.uint64(0))


@inlined
def step(tile, layout, directions, sets, missing, place, row):
    """Move one row of the flat `tile` one level down from the node place[row]; False if that was a leaf."""
    node = np.uint64(place[row])
    threshold = layout.thresholds[node + node]
    link = np.uint64(layout.links[node + node + _ONE])
    left = goes_left(tile, layout, directions, sets, missing, node, row)
    child = node + _ONE if left else node + (link & (layout.default - _ONE))
    prefetch(layout.links, child + child)
    place[row] = child
    return threshold == threshold


@inlined
def look_ahead(layout, directions, active, listed, place):
    """Ask for the first blocks that the rows in a list need next; nothing where no node is oblique.

    There are few rows under way at once in the processor where each takes so many instructions, and so few cache lines.
    """
    if directions is not None:
        for i in range(listed):
            node = np.uint64(place[np.uint64(active[np.uint64(i)])])
            column = np.uint64(layout.links[node + node + _ONE]) >> layout.shift
            prefetch(directions.at, column * _BLOCK)


@inlined
def descend(tile, layout, directions, sets, missing, active, listed, place):
    """Move the first `listed` rows of the list `active` to their leaves.

    tile is flat. active uint32 [TILE] holds rows of the tile and is used up; place uint32 [TILE] holds the node
    where each of them stands and is updated. Cost: one visit per row and level. Oracle: tests/naive/predict.py
    find_leaf.
    """
    while listed > np.uint64(0):
        look_ahead(layout, directions, active, listed, place)
        kept = np.uint64(0)
        for i in range(listed):
            row = np.uint64(active[np.uint64(i)])
            active[kept] = row
            kept += np.uint64(step(tile, layout, directions, sets, missing, place, row))
        listed = kept


@inlined
def send(way, roots, goes, arrive, state, scratch):
    """Send the rows of a Way down trees: the walk of every kernel that sends rows.

    goes(state, tree, row)          whether a row goes down a tree.
    arrive(state, layout, tree, row, node)  called, tree by tree, for every row that has come to the leaf `node`.

    Both are inlined functions, compiled in. roots uint64 [trees]; trees are numbered by their places in it, rows from
    the first of the Way. scratch is `new_scratch`.
    """
    active, place, out = scratch[0], scratch[1], scratch[2]
    size = np.uint64(way.tiles.shape[1] * TILE)
    flat = way.tiles.reshape(-1)
    tiles = (way.rows + TILE - 1) // TILE
    for begin in range(0, tiles, way.together):
        for t in range(roots.size):
            tree = np.uint64(t)
            for number in range(begin, min(begin + way.together, tiles)):
                first = np.uint64(number) * np.uint64(TILE)
                listed = np.uint64(0)
                for j in range(min(np.uint64(TILE), np.uint64(way.rows) - first)):
                    out[listed] = np.uint32(j)
                    active[listed] = np.uint32(j)
                    place[np.uint64(j)] = np.uint32(roots[tree])
                    listed += np.uint64(goes(state, tree, first + np.uint64(j)))
                tile = flat[np.uint64(number) * size :]
                descend(tile, way.layout, way.directions, way.sets, way.missing, active, listed, place)
                for i in range(listed):
                    row = np.uint64(out[np.uint64(i)])
                    arrive(state, way.layout, tree, first + row, np.uint64(place[row]))
