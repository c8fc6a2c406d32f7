"""The columns of a tree in a subspace, row by row, and scratch to find splits.

Ho 1995, section 2. All statistics are sums of whole numbers: rows with a bit set, or steps of a value's range.
Oracle: tests/naive/subspace.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.node_scan import ONE, SHIFT32, ZERO, class_of
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.bit_sums import WORD, weigh_bits
from bigforest.kernels.subspace.bits import PLANES, count_word

# Steps of a column's range in which its values are added up: the sums of 2**31 rows are exact in float64.
STEPS = 2.0**22


class SubspaceColumns(NamedTuple):
    """The columns: as bits if all of them are 0 or 1, else as values.

    feature   int32 [columns], their features, ascending
    bits      uint64 [rows of the table, words], see bits.py; no words where there are values
    value     float64 [rows of the table, columns]; no rows where there are bits
    low       float64 [columns], the smallest value
    per_step  float64 [columns], steps per unit of the value
    unit      float64 [columns], size of a step; 0 leaves the column out, with values 0 here
    scale     float64 [columns], the square of what makes the range of a column one from above 0.5 to 1: a power of
              four, which rounds nothing, and 1 for bits. Values are as in the table; directions are for these
    """

    feature: NDArray[np.int32]
    bits: NDArray[np.uint64]
    value: NDArray[np.float64]
    low: NDArray[np.float64]
    per_step: NDArray[np.float64]
    unit: NDArray[np.float64]
    scale: NDArray[np.float64]


class Subspace(NamedTuple):
    """A family of splits in a subspace, and scratch of one growing tree. `width`: columns, or the bits of all words.

    space    the columns of the tree
    drawn    uint64, columns that a node draws from them; if all, no draw is needed
    size     uint64 [1], columns of the current node: `drawn`, or all if these cannot split it
    steps    number of steps from mean to mean (`cut_axis`)
    epochs   of a perceptron (perceptron.py); 0 for none
    column   uint32 [columns], those of the node: the first `size`, ascending
    mask     uint64 [words], a bit for each of these
    start    int64 [classes + 1], where the rows of a class begin in `order`
    order    uint32 [rows], rows of the table, by class
    mean     float64 [classes, width], means of the classes minus `low`
    weight   float64 [width], of the current direction; undefined for other columns
    whole    int32 [width], the same for bits; 0 for other columns
    kept     float64 [width], weights of the best perceptron so far
    value    float64 [rows], projections, in the order of the items
    stop     float64 [steps + 1]
    hist     uint32 [steps + 1, classes]
    left     int64 [classes]
    far      bool [classes], whether a class is on the side of the second mean
    planes   uint64 [2, PLANES]; counted int32 [64]; picked uint64 [words]: scratch of bits.py
    """

    space: SubspaceColumns
    drawn: np.uint64
    size: NDArray[np.uint64]
    steps: int
    epochs: int
    column: NDArray[np.uint32]
    mask: NDArray[np.uint64]
    start: NDArray[np.int64]
    order: NDArray[np.uint32]
    mean: NDArray[np.float64]
    weight: NDArray[np.float64]
    whole: NDArray[np.int32]
    kept: NDArray[np.float64]
    value: NDArray[np.float64]
    stop: NDArray[np.float64]
    hist: NDArray[np.uint32]
    left: NDArray[np.int64]
    far: NDArray[np.bool_]
    planes: NDArray[np.uint64]
    counted: NDArray[np.int32]
    picked: NDArray[np.uint64]


def make_subspace(space: SubspaceColumns, drawn: int, steps: int, epochs: int, classes: int, rows: int) -> Subspace:
    """Subspace for nodes of up to `rows` rows of `classes` classes."""
    columns, words = space.feature.size, space.bits.shape[1]
    width = WORD * words if words else columns
    return Subspace(
        space,
        np.uint64(drawn),
        np.full(1, drawn, np.uint64),
        steps,
        epochs,
        np.arange(columns, dtype=np.uint32),
        np.full(words, 2**64 - 1, np.uint64),
        np.empty(classes + 1, np.int64),
        np.empty(rows, np.uint32),
        np.empty((classes, width)),
        np.zeros(width),
        np.zeros(width if words else 0, np.int32),
        np.zeros(width),
        np.empty(rows),
        np.empty(steps + 1),
        np.empty((steps + 1, classes), np.uint32),
        np.empty(classes, np.int64),
        np.empty(classes, np.bool_),
        np.empty((2, PLANES), np.uint64),
        np.empty(WORD, np.int32),
        np.empty(words, np.uint64),
    )


@kernel
def fill_subspace_values(column, low, place, start, stop, value):
    """value[r, place] = low[column[r]] for start <= r < stop; value float64 [rows, columns]."""
    for row in range(start, stop):
        value[np.uint64(row), place] = low[np.uint64(column[np.uint64(row)])]


@inlined
def has_bits(subspace):
    """Whether the columns are bits."""
    return subspace.space.bits.shape[1] > 0


@inlined
def group_by_class(items, total, start, order):
    """order = rows of the items, by class; start[k] = where those of class k begin. total int64 [classes]."""
    begin = np.int64(0)
    for k in range(np.uint64(total.size)):
        start[k] = begin
        begin += total[k]
    for i in range(np.uint64(items.size)):
        k = class_of(items[i])
        order[np.uint64(start[k])] = np.uint32(items[i] >> SHIFT32)
        start[k] += 1
    for k in range(np.uint64(total.size)):  # the end of each is the begin of the next
        start[k] -= total[k]
    start[np.uint64(total.size)] = begin


@inlined
def find_class_means(subspace, total):
    """Fill `mean` for the classes with positive total, int64 [classes]; after group_by_class."""
    space, mean = subspace.space, subspace.mean
    for k in range(np.uint64(total.size)):
        if total[k] == 0:
            continue
        rows = subspace.order[np.uint64(subspace.start[k]) : np.uint64(subspace.start[k + ONE])]
        size = np.float64(total[k])
        if has_bits(subspace):
            for number in range(np.uint64(space.bits.shape[1])):
                count_word(space.bits, rows, number, subspace.planes, subspace.counted)
                first = number * np.uint64(WORD)
                for b in range(np.uint64(WORD)):
                    mean[k, first + b] = np.float64(subspace.counted[b]) / size
        else:
            for j in range(subspace.size[0]):
                c = np.uint64(subspace.column[j])
                mean[k, c] = 0.0
            for i in range(np.uint64(rows.size)):
                row = np.uint64(rows[i])
                for j in range(subspace.size[0]):
                    c = np.uint64(subspace.column[j])
                    mean[k, c] += np.rint((space.value[row, c] - space.low[c]) * space.per_step[c])
            for j in range(subspace.size[0]):
                c = np.uint64(subspace.column[j])
                mean[k, c] = mean[k, c] / size * space.unit[c]


@inlined
def distance(subspace, one, two):
    """Square of the Euclidean distance of the means of two classes, of scaled columns, added up in their order."""
    total = 0.0
    for j in range(subspace.size[0]):
        c = np.uint64(subspace.column[j])
        apart = subspace.mean[two, c] - subspace.mean[one, c]
        total += apart * apart * subspace.space.scale[c]
    return total


@inlined
def farthest_classes(subspace, total):
    """The two classes (uint64) whose means are farthest apart, the lowest among ties; 0 and 0 if all are equal."""
    first, second = ZERO, ZERO
    most = 0.0
    for one in range(np.uint64(total.size)):
        if total[one] == 0:
            continue
        for two in range(one + ONE, np.uint64(total.size)):
            if total[two] > 0:
                here = distance(subspace, one, two)
                if here > most:
                    most = here
                    first, second = one, two
    return first, second


@inlined
def weigh_row(subspace, row):
    """Projection of a row of the table (uint64) on the current direction, float64."""
    if has_bits(subspace):
        return np.float64(weigh_bits(subspace.space.bits[row], subspace.whole))
    total = 0.0
    for j in range(subspace.size[0]):
        c = np.uint64(subspace.column[j])
        total += subspace.weight[c] * subspace.space.value[row, c]
    return total


@inlined
def weigh_rows(subspace, items):
    """subspace.value[i] = projection of the row of items[i]."""
    for i in range(np.uint64(items.size)):
        subspace.value[i] = weigh_row(subspace, items[i] >> SHIFT32)
