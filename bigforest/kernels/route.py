"""Sending rows down the trees: the loop of prediction and of the out-of-bag report.

A node is 16 bytes, so that a step touches one cache line: two words of one array, seen as float64
(`thresholds`) and as uint64 (`links`, the same memory).

    word 2i      inner node: its threshold. Leaf: a NaN whose lower 32 bits number the leaf's ballot.
    word 2i + 1  lower 32 bits: position of the right child; in a leaf its own, so that a step from it stays.
                 Upper 32 bits: where the feature starts in a tile, its number among the used ones * TILE.

The left child of i is i + 1 (preorder). Trees follow each other; `roots` uint64 holds the position of each
root. Ballot b < classes is all for class b and needs no table; ballot b >= classes is the row b - classes of
`mixed`, float64 [ballots, classes]. Most leaves of a tree grown to the end are pure, so the table is rarely
touched.

Values come in tiles, float64 [tiles, used features, TILE] in C order: one row of the table is one column of a
tile. All tiles of a call go through one tree before the next, so that the tree stays in the cache, and within
a tile the rows advance level by level, so that many independent loads are under way at once. A row that
reached its leaf drops out of the list without a branch; a branch that follows the data would be mispredicted
at every other step.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.jit import inlined, kernel
from bigforest.kernels.rng import GOLDEN, mix

TILE = 256
# The bits of a quiet NaN; the number of a ballot is added to them.
LEAF = np.uint64(0x7FF8000000000000)

_LOWER = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_TWO = np.uint64(2)


@inlined
def descend(tile, thresholds, links, active, listed, place):  # type: ignore[no-untyped-def]
    """Move the first `listed` rows of the list `active` to their leaves.

    tile is flat. active uint32 [TILE] holds rows of the tile and is used up; place uint32 [TILE] holds the
    node where each of them stands and is updated. Cost: one visit per row and level. Oracle:
    tests/naive/predict.py find_leaf.
    """
    while listed > np.uint64(0):
        kept = np.uint64(0)
        for i in range(listed):
            row = np.uint64(active[np.uint64(i)])
            node = np.uint64(place[row])
            threshold = thresholds[node + node]
            link = links[node + node + _ONE]
            left = tile[row + (link >> _HALF)] <= threshold
            place[row] = node + _ONE if left else link & _LOWER
            active[kept] = row
            kept += np.uint64(threshold == threshold)
        listed = kept


@inlined
def add_ballot(links, node, mixed, classes, votes, row):  # type: ignore[no-untyped-def]
    """Add the ballot of the leaf at `node` to votes[row]."""
    ballot = links[node + node] & _LOWER
    if ballot < classes:
        votes[row, ballot] += 1.0
    else:
        for k in range(classes):
            votes[row, np.uint64(k)] += mixed[ballot - classes, np.uint64(k)]


@kernel
def vote(tiles, rows, thresholds, links, roots, mixed, votes):  # type: ignore[no-untyped-def]
    """Add the ballots of all trees, in their order, to votes float64 [rows, classes]; mutates nothing else.

    Row r of the votes is column r % TILE of tile r // TILE. Tomasi 2017, section 5; Ho 1995, section 3 (soft
    votes). Cost: rows * trees * depth visits of about 3 ns. Oracle: tests/naive/predict.py sum_of_votes.
    """
    active = np.empty(TILE, dtype=np.uint32)
    place = np.empty(TILE, dtype=np.uint32)
    size = np.uint64(tiles.shape[1] * TILE)
    flat = tiles.reshape(-1)
    classes = np.uint64(votes.shape[1])
    for tree in range(roots.size):
        root = roots[np.uint64(tree)]
        for number in range(np.uint64(tiles.shape[0])):
            first = np.uint64(number) * np.uint64(TILE)
            here = min(np.uint64(TILE), np.uint64(rows) - first)
            for j in range(here):
                active[np.uint64(j)] = np.uint32(j)
                place[np.uint64(j)] = np.uint32(root)
            descend(flat[np.uint64(number) * size :], thresholds, links, active, here, place)
            for j in range(here):
                row = np.uint64(j)
                add_ballot(links, np.uint64(place[row]), mixed, classes, votes, first + row)


@kernel
def vote_out_of_bag(  # type: ignore[no-untyped-def]
    tiles, rows, thresholds, links, roots, mixed, bags, truth, votes, voters, prediction, wrong, reached
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

    Breiman 2001, section 3.1; Tomasi 2017, section 6. Cost as `vote` on the rows out of bag, which are 37% of
    all in a bootstrap. Oracle: tests/naive/oob.py.
    """
    active = np.empty(TILE, dtype=np.uint32)
    place = np.empty(TILE, dtype=np.uint32)
    out = np.empty(TILE, dtype=np.uint32)
    size = np.uint64(tiles.shape[1] * TILE)
    flat = tiles.reshape(-1)
    classes = np.uint64(votes.shape[1])
    for t in range(roots.size):
        tree = np.uint64(t)
        root = roots[tree]
        for number in range(np.uint64(tiles.shape[0])):
            first = np.uint64(number) * np.uint64(TILE)
            here = min(np.uint64(TILE), np.uint64(rows) - first)
            listed = np.uint64(0)
            for j in range(here):
                out[listed] = np.uint32(j)
                active[listed] = np.uint32(j)
                place[np.uint64(j)] = np.uint32(root)
                listed += np.uint64(bags[tree, first + np.uint64(j)] == 0)
            descend(flat[np.uint64(number) * size :], thresholds, links, active, listed, place)
            for i in range(listed):
                j = np.uint64(out[np.uint64(i)])
                row = first + j
                add_ballot(links, np.uint64(place[j]), mixed, classes, votes, row)
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
def draw_rows(key, numbers, random):  # type: ignore[no-untyped-def]
    """Fill random uint64 [rows] with one draw per row of the stream `key`, by its number (uint64 [rows])."""
    for i in range(numbers.size):
        row = np.uint64(i)
        random[row] = mix(key + (numbers[row] + _ONE) * np.uint64(GOLDEN))
