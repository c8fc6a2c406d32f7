"""Sending rows down the trees: the loop of prediction and of the out-of-bag report.

A node is two words of one array (`Layout`), so that a step touches one cache line.

    word 2i      inner node: its threshold. Leaf: a NaN whose lowest bits number the leaf's ballot.
    word 2i + 1  inner node: the place of its feature in a tile, in the bits from `shift` up, and in those below how
                 far on its right child stands. Leaf: 0, so that a step from a leaf stays there.

A place past the used features is that of an oblique node: the number of its direction (`Directions`) beside them.

The left child of i is i + 1 (preorder). Trees follow each other; `roots` uint64 holds the position of each
root. Ballot b < classes is all for class b and needs no table; ballot b >= classes is row b - classes of
`mixed`, float64 [ballots, classes]. Most leaves of a tree grown to the end are pure, so the table is rarely
touched.

There are two layouts, which give the same answers: wide (float64 and uint64 words) for any values, and narrow
(float32 and uint32 words) for values that are all float32. A narrow threshold is the wide one rounded down:
then x <= threshold holds for the same float32 x. Half the bytes are worth a quarter to a third of the time.

Values come in tiles, of the thresholds' precision or of one byte each, [tiles, used features, TILE] in C order:
one row of the table is one column of a tile. All tiles of a call go through one tree before the next, so that
the tree stays in the cache, and within a tile the rows advance level by level, so that many independent loads
are under way at once. A row that reached its leaf drops out of the list without a branch: a branch that follows
the data would be mispredicted at every other step, which costs more than the step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.jit import inlined, kernel
from bigforest.kernels.rng import GOLDEN, mix

TILE = 256
TILE_SHIFT = np.uint64(8)

_ONE = np.uint64(1)


class Layout(NamedTuple):
    """Packed nodes.

    thresholds  float64 or float32 [2 * nodes], a view of links
    links       uint64 or uint32 [2 * nodes]
    shift       uint64, bits of a link below the feature
    ballot      uint64, mask of the bits of a leaf that number its ballot
    """

    thresholds: NDArray[Any]
    links: NDArray[Any]
    shift: np.uint64
    ballot: np.uint64


class Directions(NamedTuple):
    """Directions of oblique nodes: number d has the terms first[d]:first[d + 1].

    features    uint64, used features; an axis node's place is below it
    first       uint64 [directions + 1]
    at          uint64 [terms], where the feature's values begin in a flat tile
    weight      float64 [terms]
    """

    features: np.uint64
    first: NDArray[np.uint64]
    at: NDArray[np.uint64]
    weight: NDArray[np.float64]


def new_scratch() -> NDArray[np.uint32]:
    """What one call of a kernel below needs to itself: uint32 [3, TILE]."""
    return np.empty((3, TILE), np.uint32)


@inlined
def value_at(tile, directions, column, row):
    """What a node whose link begins with `column` looks at: a value, or a projection (layout.py Terms).

    directions None, where no node is oblique, is compiled apart: axis forests take no branch here.
    """
    if directions is None:
        return tile[row + (column << TILE_SHIFT)]
    else:  # noqa: RET505, only this form is dropped when directions is None
        if column < directions.features:
            return np.float64(tile[row + (column << TILE_SHIFT)])
        number = column - directions.features
        projection = 0.0
        for term in range(directions.first[number], directions.first[number + _ONE]):
            projection += directions.weight[term] * np.float64(tile[row + directions.at[term]])
        return projection


@inlined
def step(tile, layout, directions, place, row):
    """Move one row of the flat `tile` one level down from the node place[row]; False if that was a leaf."""
    node = np.uint64(place[row])
    threshold = layout.thresholds[node + node]
    link = np.uint64(layout.links[node + node + _ONE])
    left = value_at(tile, directions, link >> layout.shift, row) <= threshold
    place[row] = node + _ONE if left else node + (link & ((_ONE << layout.shift) - _ONE))
    return threshold == threshold


@inlined
def descend(tile, layout, directions, active, listed, place):
    """Move the first `listed` rows of the list `active` to their leaves.

    tile is flat. active uint32 [TILE] holds rows of the tile and is used up; place uint32 [TILE] holds the node
    where each of them stands and is updated. Leaves are dropped at every other level only: a row that waits in
    its leaf costs a step, but the list is rewritten half as often, which together is a tenth faster.
    Cost: one visit per row and level. Oracle: tests/naive/predict.py find_leaf.
    """
    while listed > np.uint64(0):
        for i in range(listed):
            step(tile, layout, directions, place, np.uint64(active[np.uint64(i)]))
        kept = np.uint64(0)
        for i in range(listed):
            row = np.uint64(active[np.uint64(i)])
            active[kept] = row
            kept += np.uint64(step(tile, layout, directions, place, row))
        listed = kept


@inlined
def add_ballot(layout, node, mixed, classes, votes, row):
    """Add the ballot of the leaf at `node` to votes[row]."""
    ballot = np.uint64(layout.links[node + node]) & layout.ballot
    if ballot < classes:
        votes[row, ballot] += 1.0
    else:
        for k in range(classes):
            votes[row, np.uint64(k)] += mixed[ballot - classes, np.uint64(k)]


@kernel
def vote(tiles, rows, layout, directions, roots, mixed, votes, scratch):
    """Add the ballots of all trees, in their order, to votes float64 [rows, classes]; scratch is `new_scratch`.

    directions is Directions, or None where no node is oblique. Row r of the votes is column r % TILE of tile
    r // TILE; there may be more tiles than rows need. Tomasi 2017, section 5; Ho 1995, section 3 (soft votes). Cost:
    rows * trees * depth visits of about 2 ns. Oracle: tests/naive/predict.py sum_of_votes.
    """
    active, place = scratch[0], scratch[1]
    size = np.uint64(tiles.shape[1] * TILE)
    flat = tiles.reshape(-1)
    classes = np.uint64(votes.shape[1])
    for tree in range(roots.size):
        root = roots[np.uint64(tree)]
        for number in range((rows + TILE - 1) // TILE):
            first = np.uint64(number) * np.uint64(TILE)
            here = min(np.uint64(TILE), np.uint64(rows) - first)
            for j in range(here):
                active[np.uint64(j)] = np.uint32(j)
                place[np.uint64(j)] = np.uint32(root)
            descend(flat[np.uint64(number) * size :], layout, directions, active, here, place)
            for j in range(here):
                row = np.uint64(j)
                add_ballot(layout, np.uint64(place[row]), mixed, classes, votes, first + row)


@kernel
def vote_out_of_bag(
    tiles, rows, layout, directions, roots, mixed, bags, truth, votes, voters, prediction, wrong, reached, scratch
):
    """Like `vote`, but a tree votes only on rows that are not in its bag; keeps count after every tree.

    bags        uint16 [trees, rows], times the row is in the bag
    truth       uint16 [rows]
    votes       float64 [rows, classes], added to
    voters      uint32 [rows], trees that voted so far, added to
    prediction  uint16 [rows], the class with most votes (the lowest of equals) where voters > 0, updated
    wrong       int64 [trees], added to: by how much this tree changed the number of rows whose prediction is
                wrong
    reached     int64 [trees], added to: rows that had no voter before this tree
    scratch     as `new_scratch` makes it

    Breiman 2001, section 3.1; Tomasi 2017, section 6. Cost as `vote` on the rows out of bag, which are 37% of
    all in a bootstrap. Oracle: tests/naive/oob.py.
    """
    active, place, out = scratch[0], scratch[1], scratch[2]
    size = np.uint64(tiles.shape[1] * TILE)
    flat = tiles.reshape(-1)
    classes = np.uint64(votes.shape[1])
    for t in range(roots.size):
        tree = np.uint64(t)
        root = roots[tree]
        for number in range((rows + TILE - 1) // TILE):
            first = np.uint64(number) * np.uint64(TILE)
            here = min(np.uint64(TILE), np.uint64(rows) - first)
            listed = np.uint64(0)
            for j in range(here):
                out[listed] = np.uint32(j)
                active[listed] = np.uint32(j)
                place[np.uint64(j)] = np.uint32(root)
                listed += np.uint64(bags[tree, first + np.uint64(j)] == 0)
            descend(flat[np.uint64(number) * size :], layout, directions, active, listed, place)
            for i in range(listed):
                j = np.uint64(out[np.uint64(i)])
                row = first + j
                add_ballot(layout, np.uint64(place[j]), mixed, classes, votes, row)
                best = np.uint64(0)
                for k in range(np.uint64(1), classes):
                    if votes[row, np.uint64(k)] > votes[row, best]:
                        best = np.uint64(k)
                if voters[row] == 0:
                    reached[tree] += 1
                elif prediction[row] != truth[row]:
                    wrong[tree] -= 1
                if best != truth[row]:
                    wrong[tree] += 1
                prediction[row] = best
                voters[row] += np.uint32(1)


@kernel
def draw_rows(key, numbers, random):
    """Fill random uint64 [rows] with one draw per row of the stream `key`, by its number (uint64 [rows])."""
    for i in range(numbers.size):
        row = np.uint64(i)
        random[row] = mix(key + (numbers[row] + _ONE) * np.uint64(GOLDEN))
