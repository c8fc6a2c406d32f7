"""Rows that end in the same leaves: RF-GAP proximities (Rhodes, Cutler and Moon 2023)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.explain.permute import row_weight

_ZERO = np.uint64(0)
_ONE = np.uint64(1)


class LeafRows(NamedTuple):
    """The rows of each tree's bag by leaf; rows are numbered among those that are kept.

    leaf     uint32 [trees, rows], rank of the leaf of each row among the leaves of the tree
    bag      uint16 [trees, rows], how often the row is in the bag
    members  uint32 [trees, rows], rows of the bag, by leaf, then by number; entries beyond these are not used
    begin    int64 [trees + 1], where the leaves of a tree begin in `start`, which has one entry more than leaves
    start    uint32, where the rows of a leaf begin among the members of its tree
    weight   float64 [rows]; None if all weights are 1
    """

    leaf: NDArray[Any]
    bag: NDArray[Any]
    members: NDArray[Any]
    begin: NDArray[np.int64]
    start: NDArray[np.uint32]
    weight: NDArray[np.float64] | None


class Shares(NamedTuple):
    """Scratch: the proximities of one row. share float64 [all rows], zeros; touched uint32 [all rows]."""

    share: NDArray[np.float64]
    touched: NDArray[np.uint32]


@inlined
def mean_leaf_share(row, known, weight, share, touched):
    """Compute the proximities of a row; returns how many rows have one, which are listed in `touched`."""
    reached, voters = _ZERO, _ZERO
    for t in range(np.uint64(known.leaf.shape[0])):
        tree = np.uint64(t)
        if known.bag[tree, row] != 0:
            continue
        voters += _ONE
        leaf = np.uint64(known.begin[tree]) + np.uint64(known.leaf[tree, row])
        begin, end = np.uint64(known.start[leaf]), np.uint64(known.start[leaf + _ONE])
        total = 0.0
        for m in range(begin, end):
            other = np.uint64(known.members[tree, np.uint64(m)])
            total += np.float64(known.bag[tree, other]) * row_weight(weight, other)
        for m in range(begin, end):
            other = np.uint64(known.members[tree, np.uint64(m)])
            part = np.float64(known.bag[tree, other]) * row_weight(weight, other) / total
            if part == 0.0:  # too small for a number beside far heavier rows: it would be touched again and again
                continue
            if share[other] == 0.0:
                touched[reached] = np.uint32(other)
                reached += _ONE
            share[other] += part
    for r in range(reached):
        share[np.uint64(touched[np.uint64(r)])] /= np.float64(voters)
    return reached


@inlined
def _keep(place, proximity, i, row, value):
    """Insert a row among the nearest of row i if it is one of them."""
    last = np.uint64(proximity.shape[1]) - _ONE
    lower = proximity[i, last] == value and place[i, last] > row
    if not (value > proximity[i, last] or lower):
        return
    at = last
    while at > _ZERO:
        before = at - _ONE
        if proximity[i, before] > value or (proximity[i, before] == value and place[i, before] < row):
            break
        place[i, at], proximity[i, at] = place[i, before], proximity[i, before]
        at = before
    place[i, at], proximity[i, at] = np.uint32(row), value


@kernel
def find_neighbors(rows, known, target, scratch, place, proximity, sums):
    """The rows of largest proximity of each of some rows, and what its proximities come to by class.

        p(i, j) = mean over the trees that have not seen i of [j in the leaf of i] * c_j w_j / sum over the leaf of c w

    with c how often a row is in the bag, w its weight. Sum over j of p(i, j) = 1, and of p(i, j) * target is what the
    trees answer out of bag.

    rows        uint32 [rows]; known: LeafRows
    target      uint16 [all rows], the class of each
    scratch     Shares
    place, proximity  uint32 and float64 [rows, neighbors], zeros, set: by proximity, among ties the lowest row first; 0
                  where there are fewer
    sums        float64 [rows, classes, 2], zeros, set: proximities, and their squares

    Cost: trees * rows of a leaf. Oracle: tests/naive/explain.py proximities.
    """
    _find(rows, known, known.weight, target, scratch.share, scratch.touched, place, proximity, sums)


@inlined
def _find(rows, known, weight, target, share, touched, place, proximity, sums):
    for n in range(np.uint64(rows.size)):
        i = np.uint64(n)
        reached = mean_leaf_share(np.uint64(rows[i]), known, weight, share, touched)
        for r in range(reached):
            other = np.uint64(touched[np.uint64(r)])
            value = share[other]
            share[other] = 0.0
            of_class = np.uint64(target[other])
            sums[i, of_class, 0] += value
            sums[i, of_class, 1] += value * value
            _keep(place, proximity, i, other, value)
