"""Missing values of rows, filled from rows in the same leaves of trees that these rows are out of bag for."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.explain.neighbors import mean_leaf_share

_ZERO = np.uint64(0)


@kernel
def fill_missing(rows, known, scratch, kept, values, places, codes, tally, filled, mass):
    """Fill the missing values of some rows by their proximities (neighbors.py) to the rows that have the value.

    rows    uint32 [rows], numbered among those that are kept; known: LeafRows; scratch: Shares
    kept    uint32 [all kept rows], the row of `values` of each
    values  [all rows, columns]; categories are codes
    places  uint32 [places], columns that are filled; codes: int64 [places], of a category, 0 for a number. A category
            is missing where its code is 0, a number where it is NaN; a code beyond is a level not seen in training,
            with which nothing is filled
    tally   float64 [most codes], zeros: scratch
    filled  float64 [rows, places], NaN, set where a value is missing and some row of positive proximity has one: of
            numbers the mean weighted by proximity, of categories the code of largest proximity, the lowest among ties
    mass    float64 [rows, places], zeros, set: proximities of the rows that have the value, at most 1

    Cost: trees * rows of a leaf, and the rows reached for each missing value. Oracle: tests/naive/explain.py filled.
    """
    _fill(rows, known, known.weight, scratch.share, scratch.touched, kept, values, places, codes, tally, filled, mass)


@inlined
def _is_missing(value, category):
    return value == 0.0 if category else value != value


@inlined
def _fill(rows, known, weight, share, touched, kept, values, places, codes, tally, filled, mass):
    for n in range(np.uint64(rows.size)):
        i = np.uint64(n)
        row = np.uint64(rows[i])
        reached = mean_leaf_share(row, known, weight, share, touched)
        for p in range(np.uint64(places.size)):
            at = np.uint64(p)
            place, category = np.uint64(places[at]), codes[at] > 0
            if not _is_missing(values[np.uint64(kept[row]), place], category):
                continue
            total, held = 0.0, 0.0
            for r in range(reached):
                other = np.uint64(touched[np.uint64(r)])
                value = np.float64(values[np.uint64(kept[other]), place])
                if _is_missing(value, category) or (category and value >= np.float64(codes[at])):
                    continue
                held += share[other]
                if category:
                    tally[np.uint64(value)] += share[other]
                else:
                    total += share[other] * value
            mass[i, at] = held
            if held == 0.0:
                continue
            if category:
                best = _ZERO
                for c in range(np.uint64(codes[at])):
                    if tally[np.uint64(c)] > tally[best]:
                        best = np.uint64(c)
                for c in range(np.uint64(codes[at])):
                    tally[np.uint64(c)] = 0.0
                filled[i, at] = np.float64(best)
            else:
                filled[i, at] = total / held
        for r in range(reached):
            share[np.uint64(touched[np.uint64(r)])] = 0.0
