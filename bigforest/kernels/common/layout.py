"""Array shapes and types that kernels share.

An *item* is a row of a node in a uint64:

    bits   63 ... 32     31 ... 16     15 ... 0
           row number    class         multiplicity

Trees of a table with more than 2**32 rows must grow by passes. The multiplicity is how often the row is in the bag,
times its weight (Sampler.search_weights). If that exceeds 65,535, a DataError is raised, except that wide weights
(WeightSpec.wide) are clipped. For regression the class is 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Entries instead of the number of a feature, for a leaf and for a node that splits on a projection.
LEAF, OBLIQUE = -1, -2
# Entry of an inner node, where a leaf has the number of its ballot (its contribution to the votes); see
# kernels/predict/leaf_values.py.
NO_BALLOT = np.uint32(0xFFFFFFFF)
# Kinds of features: numbers without missing values, numbers with some, categories.
NUMBER, MISSING, CATEGORY = 0, 1, 2


class Terms(NamedTuple):
    """The directions of the oblique nodes of a tree. Node i has the terms start[i]:start[i + 1]; other nodes have none.

    start    int64 [nodes + 1]
    feature  int32 [terms], ascending within a node
    weight   float64 [terms], finite and not 0

    The projection of a row is the sum of weight * value in this order, starting from 0.0, in float64, each product and
    each sum rounded. A projection of at most the threshold goes left, so NaN (from infinities) goes right.
    """

    start: NDArray[np.int64]
    feature: NDArray[np.int32]
    weight: NDArray[np.float64]


class LevelLists(NamedTuple):
    """The levels that nodes on categories list. Node i lists code[start[i]:start[i + 1]]; other nodes list none.

    start  int64 [nodes + 1]
    code   uint32, ascending within a node
    """

    start: NDArray[np.int64]
    code: NDArray[np.uint32]


class CodeValues(NamedTuple):
    """The smallest value of each code. Feature f has low[offsets[f]:offsets[f + 1]].

    offsets  int64 [features + 1]
    low      float64, ascending within a feature, but NaN for code 0 if values are missing
    """

    offsets: NDArray[np.int64]
    low: NDArray[np.float64]


class Codes(NamedTuple):
    """The codes of a table. Feature f is row place[f, 1] of the matrix of width place[f, 0] bytes.

    u8, u16, u32  [features of that width, rows], C order, so that the codes of a feature are contiguous. Read-only, so
                  that every kernel is compiled for one signature.
    place         [features, 2] uint32: width in bytes (1, 2 or 4), and row in the matrix of that width.
    """

    u8: NDArray[np.uint8]
    u16: NDArray[np.uint16]
    u32: NDArray[np.uint32]
    place: NDArray[np.uint32]


class RowMajorCodes(NamedTuple):
    """Codes row by row, so that copying a row reads few cache lines.

    r8, r16, r32  [rows, columns of that width], C order; the transposes of u8, u16, u32.
    """

    r8: NDArray[np.uint8]
    r16: NDArray[np.uint16]
    r32: NDArray[np.uint32]
