"""Sending rows down the trees: the loop of prediction and of the out-of-bag report.

A node is two words of one array (`Layout`), so that a step touches one cache line.

    word 2i      inner node: its threshold. Leaf: a NaN whose lowest bits number the leaf's ballot.
    word 2i + 1  inner node: the place of its feature in a tile, in the bits from `shift` up, in the bit below those
                 whether a row without a value goes left, and in the rest how far on its right child stands. Leaf: 0, so
                 that a step from a leaf stays there.

A node on a category has the place of its feature plus the number of used features. In place of a threshold it has the
number of its set of levels (`LevelSets`), and the bit says whether a row goes left that is not in the set. A place from
twice the number of used features on is that of an oblique node: the number of its direction (`Directions`) follows.

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
    default     uint64, the bit below those: set where a row without a value goes left
    ballot      uint64, mask of the bits of a leaf that number its ballot
    """

    thresholds: NDArray[Any]
    links: NDArray[Any]
    shift: np.uint64
    default: np.uint64
    ballot: np.uint64


class Directions(NamedTuple):
    """Directions of oblique nodes: number d has the terms first[d]:first[d + 1].

    begin       uint64, place of the first direction; those of features are below it
    first       uint64 [directions + 1]
    at          uint64 [terms], where the feature's values begin in a flat tile
    weight      float64 [terms]
    """

    begin: np.uint64
    first: NDArray[np.uint64]
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
        if column < directions.begin:
            return np.float64(tile[row + (column << TILE_SHIFT)])
        number = column - directions.begin
        projection = 0.0
        for term in range(directions.first[number], directions.first[number + _ONE]):
            projection += directions.weight[term] * np.float64(tile[row + directions.at[term]])
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
    place[row] = node + _ONE if left else node + (link & (layout.default - _ONE))
    return threshold == threshold


@inlined
def descend(tile, layout, directions, sets, missing, active, listed, place):
    """Move the first `listed` rows of the list `active` to their leaves.

    tile is flat. active uint32 [TILE] holds rows of the tile and is used up; place uint32 [TILE] holds the node
    where each of them stands and is updated. Leaves are dropped at every other level only: a row that waits in
    its leaf costs a step, but the list is rewritten half as often, which together is a tenth faster.
    Cost: one visit per row and level. Oracle: tests/naive/predict.py find_leaf.
    """
    while listed > np.uint64(0):
        for i in range(listed):
            step(tile, layout, directions, sets, missing, place, np.uint64(active[np.uint64(i)]))
        kept = np.uint64(0)
        for i in range(listed):
            row = np.uint64(active[np.uint64(i)])
            active[kept] = row
            kept += np.uint64(step(tile, layout, directions, sets, missing, place, row))
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
def vote(tiles, rows, layout, directions, sets, missing, roots, mixed, votes, scratch):
    """Add the ballots of all trees, in their order, to votes float64 [rows, classes]; scratch is `new_scratch`.

    directions is Directions, or None where no node is oblique; sets is LevelSets, or None where no node is on a
    category; missing is None where no value is NaN, else True. Row r of the votes is column r % TILE of tile r // TILE;
    there may be more tiles than rows need. Tomasi 2017, section 5; Ho 1995, section 3 (soft votes). Cost: rows * trees
    * depth visits of about 2 ns. Oracle: tests/naive/predict.py sum_of_votes.
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
            descend(flat[np.uint64(number) * size :], layout, directions, sets, missing, active, here, place)
            for j in range(here):
                row = np.uint64(j)
                add_ballot(layout, np.uint64(place[row]), mixed, classes, votes, first + row)


@inlined
def list_out_of_bag(bag, first, here, root, active, place, out):
    """List the rows of a tile that are not in the bag of a tree, in `active` and `out`, at its root; their number."""
    listed = np.uint64(0)
    for j in range(here):
        out[listed] = np.uint32(j)
        active[listed] = np.uint32(j)
        place[np.uint64(j)] = np.uint32(root)
        listed += np.uint64(bag[first + np.uint64(j)] == 0)
    return listed


@inlined
def whole_square(number):
    """The square as a whole number."""
    return np.int64(np.rint(number * number))


@kernel
def vote_out_of_bag(
    tiles,
    rows,
    layout,
    directions,
    sets,
    missing,
    roots,
    mixed,
    bags,
    truth,
    votes,
    voters,
    prediction,
    wrong,
    reached,
    scratch,
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
            listed = list_out_of_bag(bags[tree], first, here, root, active, place, out)
            descend(flat[np.uint64(number) * size :], layout, directions, sets, missing, active, listed, place)
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
def average_out_of_bag(
    tiles,
    rows,
    layout,
    directions,
    sets,
    missing,
    roots,
    mixed,
    bags,
    truth,
    unit,
    votes,
    voters,
    squared,
    reached,
    scratch,
):
    """`vote_out_of_bag` for numbers: the prediction is votes over voters.

    truth    float64 [rows]
    unit     float64, by what errors are multiplied before they are squared and rounded to a whole number
    votes    float64 [rows, 1], added to
    squared  int64 [trees], added to: by how much this tree changed the sum of these squares

    Oracle: tests/naive/oob.py.
    """
    active, place, out = scratch[0], scratch[1], scratch[2]
    size = np.uint64(tiles.shape[1] * TILE)
    flat = tiles.reshape(-1)
    for t in range(roots.size):
        tree = np.uint64(t)
        root = roots[tree]
        for number in range((rows + TILE - 1) // TILE):
            first = np.uint64(number) * np.uint64(TILE)
            here = min(np.uint64(TILE), np.uint64(rows) - first)
            listed = list_out_of_bag(bags[tree], first, here, root, active, place, out)
            descend(flat[np.uint64(number) * size :], layout, directions, sets, missing, active, listed, place)
            for i in range(listed):
                j = np.uint64(out[np.uint64(i)])
                row = first + j
                if voters[row] == 0:
                    reached[tree] += 1
                else:
                    squared[tree] -= whole_square((votes[row, 0] / np.float64(voters[row]) - truth[row]) * unit)
                add_ballot(layout, np.uint64(place[j]), mixed, _ONE, votes, row)
                voters[row] += np.uint32(1)
                squared[tree] += whole_square((votes[row, 0] / np.float64(voters[row]) - truth[row]) * unit)


@kernel
def draw_rows(key, numbers, random):
    """Fill random uint64 [rows] with one draw per row of the stream `key`, by its number (uint64 [rows])."""
    for i in range(numbers.size):
        row = np.uint64(i)
        random[row] = mix(key + (numbers[row] + _ONE) * np.uint64(GOLDEN))
