"""One block of rows at a time: send its rows down the newest splits of a tree, and count what the frontier asks for.
Oracle: tests/naive/tree.py, through grow/out_of_core/levels.py.

All row numbers are those within the block, so tables may be of any length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.columns.gather import gather
from bigforest.kernels.common.node_scan import (
    BITS16,
    BITS32,
    ONE,
    SHIFT16,
    SHIFT32,
    TWO,
    ZERO,
    ZERO_I64,
    as_key,
    class_of,
)
from bigforest.kernels.common.partition import partition
from bigforest.kernels.common.rng import LEFT, RIGHT, mix
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.scan.features import draw_feature, wanted_features

_THREE = np.uint64(3)
_SEVEN = np.uint64(7)
_BASIS = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)


# How a split sends rows: by their codes; so, but those without a value, of code 0, to the right; or by whether their
# level is listed, the listed ones to the left, or to the right.
BY_CODE, MISSING_RIGHT, LISTED_LEFT, LISTED_RIGHT = range(4)
# What stands for the code of a missing value that goes right. No feature has a code this large.
AFTER_ALL = 0xFFFFFFFF


class CodeSplits(NamedTuple):
    """Splits of nodes, parents before their children; nodes are numbered, the root has 0.

    node uint32, feature uint32, code uint32, codes up to it go left; left, right uint32, the children.
    way uint8, see above. listed uint8: the lists of all splits, as bits, level c of a split being bit c % 8 of
    listed[start + c // 8]; start uint64.
    """

    node: NDArray[np.uint32]
    feature: NDArray[np.uint32]
    code: NDArray[np.uint32]
    left: NDArray[np.uint32]
    right: NDArray[np.uint32]
    way: NDArray[np.uint8]
    start: NDArray[np.uint64]
    listed: NDArray[np.uint8]


class CodeProbes(NamedTuple):
    """Questions about codes of nodes, one entry each; bucket (code - low) >> shift, codes outside are passed over.

    node uint32, feature uint32, low uint32, shift uint32, buckets uint64, offset uint64 (where the
    buckets of this probe begin in the array of all), centre int64 (from where numbers to predict are counted).
    """

    node: NDArray[np.uint32]
    feature: NDArray[np.uint32]
    low: NDArray[np.uint32]
    shift: NDArray[np.uint32]
    buckets: NDArray[np.uint64]
    offset: NDArray[np.uint64]
    centre: NDArray[np.int64]


@inlined
def put_missing_last(fetched, n):
    """Give rows without a value a code after all others."""
    for i in range(n):
        fetched[i] = np.uint32(AFTER_ALL) if fetched[i] == np.uint32(0) else fetched[i]


@inlined
def look_up_sides(fetched, n, listed, left):
    """Make codes of levels 0 for the left side and 1 for the right one; left: side of the listed ones."""
    for i in range(n):
        level = np.uint64(fetched[i])
        here = (listed[level >> _THREE] >> np.uint8(level & _SEVEN)) & np.uint8(1)
        fetched[i] = np.uint32(here) ^ np.uint32(left)


@kernel
def route_block(codes, by_row, items, spare, fetched, splits, begin, end, below, above):
    """Sort the items of the nodes that are split by the children they go to, stably.

    codes         Codes of the block
    by_row        Rows without reach
    items, spare  uint64 [n] (see kernels/common/node_scan.py), mutated
    fetched       uint32 [n], scratch
    begin, end    uint64 [nodes], in and out: those of node i are items[begin[i]:end[i]], in an inner node all that
                  passed it
    below, above  uint32 [splits], in and out: largest code sent left, smallest sent right, over all blocks so far;
                  without meaning where levels are listed, above AFTER_ALL where no value was sent right
    """
    for k in range(np.uint64(splits.node.size)):
        node, left, right = np.uint64(splits.node[k]), np.uint64(splits.left[k]), np.uint64(splits.right[k])
        here = items[begin[node] : end[node]]
        gather(codes, by_row, np.uint64(splits.feature[k]), here, fetched)
        if splits.way[k] == MISSING_RIGHT:
            put_missing_last(fetched, np.uint64(here.size))
        elif splits.way[k] != BY_CODE:
            look_up_sides(fetched, np.uint64(here.size), splits.listed[splits.start[k] :], splits.way[k] == LISTED_LEFT)
        size_l, largest, smallest = partition(fetched, splits.code[k], here, spare)
        middle = begin[node] + size_l
        begin[left] = begin[node]
        end[left] = middle
        begin[right] = middle
        end[right] = end[node]
        if size_l > ZERO:
            below[k] = max(below[k], largest)
        if middle < end[node]:
            above[k] = min(above[k], smallest)


@kernel
def pack_places(items, places):
    """places[i] = row << 16 | multiplicity of items[i], uint32 [n], for rows of a block."""
    for i in range(np.uint64(items.size)):
        places[i] = np.uint32(((items[i] >> SHIFT32) << SHIFT16) | (items[i] & BITS16))


@kernel
def unpack_places(places, size, target, items):
    """Inverse of `pack_places` in a block of `rows` rows; False where a row is outside it.

    target  their classes, uint16 [size]; None where there are no classes
    """
    for i in range(np.uint64(items.size)):
        row = np.uint64(places[i]) >> SHIFT16
        if row >= np.uint64(size):
            return False
        items[i] = (row << SHIFT32) | (np.uint64(places[i]) & BITS16)
        if target is not None:
            items[i] |= np.uint64(target[row]) << SHIFT16
    return True


@inlined
def fold(state, words):
    """FNV-1a by words."""
    for i in range(np.uint64(words.size)):
        state = (state ^ words[i]) * _PRIME
    return state


@kernel
def checksum(head, words):
    """A number of two rows of words, uint64 [n], that is another one if any one word is another."""
    return fold(fold(_BASIS, head), words)


@kernel
def seal_chunks(index, words):
    """Put the checksums of chunks into their index.

    index  uint64 [chunks, 3]: where each begins, in bytes, rows, and out: the checksum of these two and of its words
    words  uint64 [n], those of all chunks, one after the other
    """
    chunks = np.uint64(index.shape[0])
    for k in range(chunks):
        begin = (index[k, ZERO] - index[ZERO, ZERO]) >> _THREE
        end = (index[k + ONE, ZERO] - index[ZERO, ZERO]) >> _THREE if k + ONE < chunks else np.uint64(words.size)
        index[k, TWO] = fold(fold(_BASIS, index[k, :TWO]), words[begin:end])


@inlined
def smallest_from(first, fetched, n):
    """The smallest code that is `first` or more; the largest uint32 where there is none."""
    least = np.uint32(0xFFFFFFFF)
    for i in range(n):
        least = min(least, fetched[i] if fetched[i] >= first else least)
    return least


@inlined
def number_of(item, value, centre):
    """The number to predict of an item, counted from the centre, and times its multiplicity."""
    number = value[item >> SHIFT32] - centre
    return number, np.int64(item & BITS16) * number


@kernel
def count_block(codes, by_row, items, begin, end, value, probes, parts, weighted, fetched, counts, low, high, spread):
    """Add the rows of the block to the histograms of the probes.

    by_row    Rows without reach
    items, begin, end  from route_block
    value     int64 [rows of the block], numbers to predict; None for classes
    parts, weighted    of grow/out_of_core/node_stats.py
    fetched   uint32 [n], scratch
    counts    flat: part k of bucket b of probe p at (offset[p] + b) * parts + k, added to; uint32, int64 for numbers
    low, high uint32 [probes], in and out: smallest code of the node that the probe does not begin after, and largest,
              over all blocks so far
    spread    int64 [probes], in and out: not 0 if any number is not the centre
    """
    for p in range(np.uint64(probes.node.size)):
        node = np.uint64(probes.node[p])
        here = items[begin[node] : end[node]]
        if here.size == 0:
            continue
        smallest, largest = gather(codes, by_row, np.uint64(probes.feature[p]), here, fetched)
        first, shift, buckets, offset = probes.low[p], probes.shift[p], probes.buckets[p], probes.offset[p]
        if smallest < first:
            smallest = smallest_from(first, fetched, np.uint64(here.size))
        low[p] = min(low[p], smallest)
        high[p] = max(high[p], largest)
        for i in range(np.uint64(here.size)):
            item = here[i]
            bucket = np.uint64((fetched[i] - first) >> shift)
            at = (offset + bucket) * parts
            if value is not None:
                number, by_weight = number_of(item, value, probes.centre[p])
                spread[p] |= number
            if bucket < buckets:
                if value is None:
                    counts[at + class_of(item)] += np.uint32(item & BITS16)
                else:
                    counts[at] += np.int64(item & BITS16)
                    counts[at + ONE] += by_weight
                    counts[at + TWO] += max(by_weight, ZERO_I64)
                if weighted:
                    counts[at + parts - ONE] += np.uint32(1)


@kernel
def collect_block(codes, by_row, items, begin, end, value, probes, wanted, fetched, keys, numbers, ends):
    """Write the sort keys of the rows that fall into wanted buckets, probe by probe; arguments as in count_block.

    wanted   bool, flat: bucket b of probe p at offset[p] + b
    keys     uint64, out, with room for all rows of all probes and one more
    numbers  int64, out, as long: of each row its number, from the centre and by weight; None for classes
    ends     uint64 [probes], out: where the keys of a probe end
    """
    at = ZERO
    for p in range(np.uint64(probes.node.size)):
        node = np.uint64(probes.node[p])
        here = items[begin[node] : end[node]]
        if here.size > 0:
            gather(codes, by_row, np.uint64(probes.feature[p]), here, fetched)
            first, shift, buckets, offset = probes.low[p], probes.shift[p], probes.buckets[p], probes.offset[p]
            for i in range(np.uint64(here.size)):
                bucket = np.uint64((fetched[i] - first) >> shift)
                if bucket < buckets:
                    keys[at] = as_key(fetched[i], here[i])
                    if value is not None:
                        _, numbers[at] = number_of(here[i], value, probes.centre[p])
                    at += np.uint64(wanted[offset + bucket])
        ends[p] = at


@kernel
def pick_columns(matrix, items, begin, end, place, out):
    """The cells of ranges of items; a column is read for all ranges while it is in the cache.

    matrix      [columns, rows of the block]
    begin, end  uint64 [ranges], of items
    place       uint64 [ranges]: cell i of column c of range k becomes out[place[k] + c * (end[k] - begin[k]) + i]
    """
    for c in range(np.uint64(matrix.shape[0])):
        column = matrix[c]
        for k in range(np.uint64(begin.size)):
            at = place[k] + c * (end[k] - begin[k])
            for i in range(begin[k], end[k]):
                out[at] = column[items[i] >> SHIFT32]
                at += ONE


@kernel
def pick_tags(items, begin, end, place, out):
    """The same for what items say besides: class << 16 | multiplicity, uint32."""
    for k in range(np.uint64(begin.size)):
        at = place[k]
        for i in range(begin[k], end[k]):
            out[at] = np.uint32(items[i] & BITS32)
            at += ONE


@kernel
def number_items(tags, items):
    """items[i] = i << 32 | tags[i]: the items of rows that now stand in places 0, 1, ...; tags uint32, items uint64."""
    for i in range(np.uint64(tags.size)):
        items[i] = (i << SHIFT32) | np.uint64(tags[i])


@kernel
def draw_order(key, rules, draw):
    """Draw all features in the node `key`: draw.perm is their order then, the first drawn first.

    The same draws as find_feature of kernels/scan/features.py makes; returns how many it wants.
    """
    features = np.uint64(draw.perm.size)
    state = key
    for drawn in range(features):
        _, state = draw_feature(draw, drawn, state)
    return wanted_features(rules, key, features)


@kernel
def child_keys(key):
    """Keys of the left and of the right child of the node `key`."""
    return mix(key ^ LEFT), mix(key ^ RIGHT)
