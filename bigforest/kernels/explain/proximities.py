"""RF-GAP proximities of rows that end in the same leaves (Rhodes, Cutler and Moon 2023), and filling values by them.

The proximity of row j to row i is, with c_j the multiplicity of row j in the bag of a tree and w_j its weight,

    p(i, j) = mean over the trees with i out of bag of [j in the leaf of i] * c_j w_j / sum over the leaf of c w

Over j, p(i, j) adds up to 1, and p(i, j) * target to the out-of-bag prediction of row i without shrinkage, power and
boosted stage.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.explain.replace import row_weight

_ZERO = np.uint64(0)
_ONE = np.uint64(1)


class LeafRows(NamedTuple):
    """The rows of each tree's bag by leaf. Only rows with a target are kept and numbered.

    leaf     uint32 [trees, rows], rank of the leaf of each row among the leaves of the tree
    bag      uint16 [trees, rows], how often the row is in the bag
    members  uint32 [trees, rows], rows of the bag, by leaf, then by number; entries beyond these are not used
    begin    int64 [trees + 1], where the leaves of a tree begin in `start`; each tree has one entry more than leaves
    start    uint32, where the rows of a leaf begin among the members of its tree, and after the last leaf, where they
             end
    weight   float64 [rows]; None if all weights are 1
    """

    leaf: NDArray[Any]
    bag: NDArray[Any]
    members: NDArray[Any]
    begin: NDArray[np.int64]
    start: NDArray[np.uint32]
    weight: NDArray[np.float64] | None


@inlined
def find_proximities(row, leaf_rows, proximities, reached):
    """Find the proximities of all rows to a row.

    proximities  float64 [kept rows], zeros, set
    reached      uint32 [kept rows], set to the rows with a proximity above 0

    Return the number of these rows.
    """
    count, voters = _ZERO, _ZERO
    for tree in range(np.uint64(leaf_rows.leaf.shape[0])):
        if leaf_rows.bag[tree, row] != 0:
            continue
        voters += _ONE
        leaf = np.uint64(leaf_rows.begin[tree]) + np.uint64(leaf_rows.leaf[tree, row])
        begin, end = np.uint64(leaf_rows.start[leaf]), np.uint64(leaf_rows.start[leaf + _ONE])
        total = 0.0
        for m in range(begin, end):
            other = np.uint64(leaf_rows.members[tree, m])
            total += np.float64(leaf_rows.bag[tree, other]) * row_weight(leaf_rows.weight, other)
        for m in range(begin, end):
            other = np.uint64(leaf_rows.members[tree, m])
            part = np.float64(leaf_rows.bag[tree, other]) * row_weight(leaf_rows.weight, other) / total
            if part == 0.0:  # rounded to 0 by far heavier rows: the row would be listed again and again
                continue
            if proximities[other] == 0.0:
                reached[count] = np.uint32(other)
                count += _ONE
            proximities[other] += part
    for r in range(count):
        proximities[np.uint64(reached[r])] /= np.float64(voters)
    return count


@inlined
def _keep(neighbor, proximity, i, row, value):
    """Insert a row of proximity `value` among the neighbors of row i, if it is near enough."""
    last = np.uint64(proximity.shape[1]) - _ONE
    lower = proximity[i, last] == value and neighbor[i, last] > row
    if not (value > proximity[i, last] or lower):
        return
    at = last
    while at > _ZERO:
        before = at - _ONE
        if proximity[i, before] > value or (proximity[i, before] == value and neighbor[i, before] < row):
            break
        neighbor[i, at], proximity[i, at] = neighbor[i, before], proximity[i, before]
        at = before
    neighbor[i, at], proximity[i, at] = np.uint32(row), value


@kernel
def find_neighbors(rows, leaf_rows, target, scratch, neighbor, proximity, sums):
    """Find the rows of largest proximity to each row of `rows`, and sum the proximities by class.

    rows        uint32 [rows], numbers of kept rows (LeafRows)
    target      uint16 [kept rows], the class of each; 0 for regression
    scratch     float64 [kept rows], zeros, the proximities of one row; uint32 [kept rows], the rows that have one
    neighbor, proximity  uint32 and float64 [rows, neighbors], zeros, set: by proximity, the lowest row first among
                ties; 0 if there are fewer
    sums        float64 [rows, classes, 2], zeros, set: proximities, and their squares

    Cost: trees * rows of a leaf. Oracle: tests/naive/explain.py proximities.
    """
    proximities, reached = scratch
    for i in range(np.uint64(rows.size)):
        count = find_proximities(np.uint64(rows[i]), leaf_rows, proximities, reached)
        for r in range(count):
            other = np.uint64(reached[r])
            value = proximities[other]
            proximities[other] = 0.0
            of_class = np.uint64(target[other])
            sums[i, of_class, 0] += value
            sums[i, of_class, 1] += value * value
            _keep(neighbor, proximity, i, other, value)


@inlined
def _is_missing(value, category):
    return value == 0.0 if category else value != value


@kernel
def fill_missing(rows, leaf_rows, scratch, kept, values, columns, codes, tally, filled, mass):
    """Fill the missing values of `rows` by their proximities to the rows that have the value.

    rows     uint32 [rows], numbers of kept rows; leaf_rows: LeafRows; scratch: see `find_neighbors`
    kept     uint32 [kept rows], number in `values` of each kept row
    values   [all rows, columns]; categories are codes
    columns  uint32 [columns], columns to fill; codes: int64 [columns], number of codes of a category, 0 for a number.
             Code 0 of a category, and NaN, are missing. Codes of at least `codes` are levels not seen in training; they
             fill nothing
    tally    float64 [most codes], zeros: scratch
    filled   float64 [rows, columns], NaN, set if a value is missing and a row of positive proximity has one. Numbers:
             the mean weighted by proximity. Categories: the code of largest proximity, the lowest among ties
    mass     float64 [rows, columns], zeros, set: sum of the proximities of the rows that have the value, at most 1

    Cost: trees * rows of a leaf, and the rows reached for each missing value. Oracle: tests/naive/explain.py filled.
    """
    proximities, reached = scratch
    for i in range(np.uint64(rows.size)):
        row = np.uint64(rows[i])
        count = find_proximities(row, leaf_rows, proximities, reached)
        for at in range(np.uint64(columns.size)):
            column, category = np.uint64(columns[at]), codes[at] > 0
            if not _is_missing(values[np.uint64(kept[row]), column], category):
                continue
            total, held = 0.0, 0.0
            for r in range(count):
                other = np.uint64(reached[r])
                value = np.float64(values[np.uint64(kept[other]), column])
                if _is_missing(value, category) or (category and value >= np.float64(codes[at])):
                    continue
                held += proximities[other]
                if category:
                    tally[np.uint64(value)] += proximities[other]
                else:
                    total += proximities[other] * value
            mass[i, at] = held
            if held == 0.0:
                continue
            if category:
                best = _ZERO
                for c in range(np.uint64(codes[at])):
                    if tally[c] > tally[best]:
                        best = c
                for c in range(np.uint64(codes[at])):
                    tally[c] = 0.0
                filled[i, at] = np.float64(best)
            else:
                filled[i, at] = total / held
        for r in range(count):
            proximities[np.uint64(reached[r])] = 0.0
