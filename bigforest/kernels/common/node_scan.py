"""Data shared by the kernels that split a node: record of the node, best split so far, scratch, constants.

The rows of a node are `items` (layout.py), rows ascending. A sort key is an item with a code in place of the row, so
ordering keys orders codes. For regression it is code << 32 | index in the node.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.llvm.exact import compare_gini
from bigforest.kernels.llvm.lanes import LANES

# Typed constants: in Numba the sum of a signed and an unsigned number is a float, and a literal 0 is not an int64.
ZERO = np.uint64(0)
ONE = np.uint64(1)
TWO = np.uint64(2)
SHIFT16 = np.uint64(16)
SHIFT32 = np.uint64(32)
ZERO_I64 = np.int64(0)
BITS16 = np.uint64(0xFFFF)
BITS32 = np.uint64(0xFFFFFFFF)

# Most buckets of a histogram of up to MOST_BUCKETS**2 / 4 rows (`heavy_buckets`), and of a counting sort.
MOST_BUCKETS = 4096
SORT_BUCKETS = 4096

# Entries of BestSplit.split.
FEATURE, CODE, SQ_L, W_L, SQ_R, W_R = range(6)

# A float score below NEAR times the best score cannot be an equal score: rounding errors are about 1e-15 of a score.
NEAR = 1.0 - 1e-12


class Node(NamedTuple):
    """The node being split.

    items   uint64 [rows]
    total   int64 [classes], class weights; for regression see kernels/scan/target.py
    weight  sum of the multiplicities, below 2**31
    sq      sum of squares of the class weights; for regression the weighted sum of (target - floor(mean)), which is at
            least 0 and below the weight
    key     uint64, random key of the node
    """

    items: NDArray[np.uint64]
    total: NDArray[np.int64]
    weight: int
    sq: int
    key: np.uint64


class BestSplit(NamedTuple):
    """The best split found so far in a node.

    split  int64 [number, code, sq_l, w_l, sq_r, w_r], see FEATURE to W_R above. Codes up to `code` go left; w_l, w_r
           are the weights of the sides, and sq_l, sq_r their sums of squared class weights (for entropy and error their
           scores, for regression their sums). number is 2 * feature, plus 1 if missing values come last; for
           projections the number of the direction; -1 if no split was found.
    bar    float64 [1], a split with a lower score needs no exact comparison. It is NEAR times the score of `split` in
           the scale of the criterion. A batch of features raises it to just below the highest score of the batch before
           the splits are offered (scan/features.py). Not used with ScoreScratch.
    """

    split: NDArray[np.int64]
    bar: NDArray[np.float64]


class ScanScratch(NamedTuple):
    """Scratch of one growing tree that all criteria share; `rows` is the size of the root.

    codes        uint32 [rows + LANES], codes of the current feature, in the order of the node's items
    keys         uint64 [rows + 1], sort keys
    positions    uint32 [most_buckets(rows) + 2], position of the next row of each bucket; numbers of opened buckets
    selected     uint32 [max(rows, MOST_BUCKETS) + LANES], indices of rows or of splits (kernels/llvm/selection.py)
    edge, bound  float64 [most_buckets(rows)]: score of the split after a bucket, upper bound of the scores inside it
    slot         uint32 [most_buckets(rows)], numbers of the buckets that are opened
    """

    codes: NDArray[np.uint32]
    keys: NDArray[np.uint64]
    positions: NDArray[np.uint32]
    selected: NDArray[np.uint32]
    edge: NDArray[np.float64]
    bound: NDArray[np.float64]
    slot: NDArray[np.uint32]


class Scan(NamedTuple):
    """The scan of one column of a node, which offers its splits to `best`.

    min_leaf  smallest weight of a side
    number    int64, entry FEATURE of best.split if a split of the column is taken
    work      scratch; work.codes are the codes of the column, unless a function has them as an argument
    """

    node: Node
    min_leaf: int
    number: int
    best: BestSplit
    work: ScanScratch


class CachedColumn(NamedTuple):
    """Codes of the feature of a split, if the scan has kept them.

    codes      uint32 [>= rows], in the order of the node's items
    low, high  the smallest and the largest code (uint32); equal if `codes` has to be filled
    """

    codes: NDArray[np.uint32]
    low: np.uint32
    high: np.uint32


def make_scan_scratch(rows: int) -> ScanScratch:
    """Allocate ScanScratch for nodes of up to `rows` rows."""
    buckets = most_buckets(rows)
    return ScanScratch(
        np.empty(rows + LANES, np.uint32),
        np.empty(rows + 1, np.uint64),
        np.empty(buckets + 2, np.uint32),
        np.empty(max(rows, MOST_BUCKETS) + LANES, np.uint32),
        np.empty(buckets, np.float64),
        np.empty(buckets, np.float64),
        np.empty(buckets, np.uint32),
    )


@inlined
def with_codes(work, codes):
    """Return the scratch with `codes` in place of its array of codes."""
    return ScanScratch(codes, *work[1:])


@inlined
def as_key(code, item):
    """Return the sort key of a row: its code in the upper half, class and multiplicity in the lower half."""
    return (np.uint64(code) << SHIFT32) | (item & BITS32)


@inlined
def class_of(item):
    """Return the class of an item or of a key, uint64."""
    return (item >> SHIFT16) & BITS16


@inlined
def shift_for(span, most):
    """Return the number of bits to drop (uint32) so that codes 0..span are in at most `most` buckets (both uint64)."""
    shift = np.uint32(0)
    while (span >> np.uint64(shift)) >= most:
        shift += np.uint32(1)
    return shift


@inlined
def buckets_for(n, least, most, rows):
    """Return the number of buckets for n rows (uint64): a power of two from `least` to `most`, about one for every
    `rows` rows."""
    buckets = np.uint64(least)
    while buckets < np.uint64(most) and buckets * np.uint64(rows) < n:
        buckets *= TWO
    return buckets


@helper
def heavy_buckets(n, least, most, rows):
    """Return the number of buckets for n rows, as `buckets_for`; if that is `most`, a power of two of at least
    2 * sqrt(n).

    If a feature has no influence, the class weights on the left are a random walk, which deviates from its mean by
    about sqrt(n). With sqrt(n) rows in a bucket, most bounds would be above the best edge, and most buckets opened.
    """
    buckets = buckets_for(n, least, most, rows)
    if buckets == np.uint64(most):
        while buckets * buckets < np.uint64(4) * n:
            buckets *= TWO
    return buckets


@inlined
def buckets_from(low, span, shift):
    """Return the first code (uint32) and the number (uint64) of buckets of 2**shift codes, for the codes from `low` on.

    span  the largest code less `low`, uint64

    The first bucket has the code `low` alone: often many rows have it, such as all zeros, or all missing values. So the
    buckets begin below `low`. A first code below 0 wraps around in 32 bits, and so do differences from it:

        low = 1, span = 12, shift = 2     codes   -2 -1  0  1 |  2  3  4  5 |  6  7  8  9 | 10 11 12 13
    """
    before = (ONE << np.uint64(shift)) - ONE
    return np.uint32(low - np.uint32(before)), ((span + before) >> np.uint64(shift)) + ONE


@inlined
def last_code(first, b, shift):
    """Return the largest code (uint32) of bucket b (uint64), see `buckets_from`."""
    return np.uint32(first + np.uint32(((b + ONE) << np.uint64(shift)) - ONE))


def most_buckets(rows: int) -> int:
    """Return a bound of the buckets of a histogram of up to `rows` rows, see `heavy_buckets` and `buckets_from`."""
    return max(MOST_BUCKETS, 4 * (math.isqrt(rows) + 1)) + 1


@inlined
def take_split(split, number, code, sq_l, w_l, sq_r, w_r):
    """Write the entries of BestSplit.split."""
    split[FEATURE], split[CODE] = number, code
    split[SQ_L], split[W_L] = sq_l, w_l
    split[SQ_R], split[W_R] = sq_r, w_r


@inlined
def offer_gini(scan, code, sq_l, w_l, sq_r, w_r):
    """Make this split the best if it is better, or equal with a lower code of the same number.

    Of equal splits with different numbers, the one offered first is kept. Return True if the split was taken.
    """
    split = scan.best.split
    if split[FEATURE] >= 0:
        sign = compare_gini(sq_l, w_l, sq_r, w_r, split[SQ_L], split[W_L], split[SQ_R], split[W_R])
        later = scan.number != split[FEATURE] or code > split[CODE]
        if sign < 0 or (sign == 0 and later):
            return False
    take_split(split, scan.number, code, sq_l, w_l, sq_r, w_r)
    return True


@inlined
def is_perfect(best):
    """Return True if each side of the best split by Gini has a single class."""
    split = best.split
    return split[SQ_L] == split[W_L] * split[W_L] and split[SQ_R] == split[W_R] * split[W_R]
