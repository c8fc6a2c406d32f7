"""Draw the rows of a bag, and pack them for growing. Oracle: tests/naive/bag.py."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.binary_search import first_from
from bigforest.kernels.common.node_scan import BITS32, ONE, SHIFT16, SHIFT32, ZERO
from bigforest.kernels.common.rng import GOLDEN, mix
from bigforest.kernels.compiler.jit import inlined, kernel

_SHIFT48 = np.uint64(48)


@inlined
def _below(random, bound):
    """Map a random uint64 to 0 .. bound - 1, bound <= 65,536, by its upper 48 bits. Probabilities are off by less than
    2**-32."""
    return ((random >> SHIFT16) * bound) >> _SHIFT48


@kernel
def draw_with_replacement(counts, draws, key):
    """Draw `draws` rows uniformly with replacement, and count them in counts, uint16 [rows], rows <= 65,536.

    Draws the same rows as `draw_strata` with one class, and compiles faster.
    """
    rows = np.uint64(counts.size)
    state = key
    for _ in range(draws):
        state += GOLDEN
        counts[_below(mix(state), rows)] += np.uint16(1)


@kernel
def draw_strata(counts, classes, ends, order, draws, replace, key):
    """Draw draws[c] rows of each class c uniformly, and count them in counts, uint16 [rows], rows <= 65,536.

    classes  uint16 [rows], class of each row
    ends     uint32 [classes], scratch
    order    uint16 [rows], scratch
    draws    int64 [classes], 0 for a class without rows
    replace  True if a row may be drawn again

    All classes, in their order, use one random stream. Without replacement, each row in turn is drawn with probability
    (draws left) / (rows left): selection sampling (Knuth, TAOCP 3.4.2 S).
    """
    for c in range(np.uint64(ends.size)):
        ends[c] = np.uint32(0)
    for row in range(np.uint64(counts.size)):
        ends[np.uint64(classes[row])] += np.uint32(1)
    before = np.uint32(0)
    for c in range(np.uint64(ends.size)):  # ends[c]: begin of class c in `order`, which the next loop moves to its end
        size = ends[c]
        ends[c] = before
        before += size
    for row in range(np.uint64(counts.size)):
        c = np.uint64(classes[row])
        order[np.uint64(ends[c])] = np.uint16(row)
        ends[c] += np.uint32(1)
    state = key
    begin = ZERO
    for c in range(np.uint64(ends.size)):
        end = np.uint64(ends[c])
        if replace and begin < end:
            for _ in range(draws[c]):
                state += GOLDEN
                counts[np.uint64(order[begin + _below(mix(state), end - begin)])] += np.uint16(1)
        else:
            remaining = np.uint64(draws[c])
            for at in range(begin, end):
                state += GOLDEN
                if _below(mix(state), end - at) < remaining:
                    counts[np.uint64(order[at])] += np.uint16(1)
                    remaining -= ONE
        begin = end


@inlined
def _part_of(random, total):
    """Return random * total / 2**64 (uint64), rounded down: a number from 0 to total - 1, uniform up to rounding."""
    low, high = random & BITS32, random >> SHIFT32
    first, second = total & BITS32, total >> SHIFT32
    carry = (low * first) >> SHIFT32
    middle = high * first + carry  # below 2**64
    last = low * second + (middle & BITS32)
    return high * second + (middle >> SHIFT32) + (last >> SHIFT32)


@kernel
def draw_by_weight(counts, ends, draws, key):
    """Draw `draws` rows with probabilities proportional to their weights, and count them in counts, uint16 [rows].

    ends  uint64 [rows], cumulative sums of the weights, at most 2**63; all weights are above 0

    The count of a row remains at most 65,535. Cost: draws * log2(rows) steps.
    """
    most = np.uint16(0xFFFF)
    total = ends[ends.size - 1]
    state = key
    for _ in range(draws):
        state += GOLDEN
        point = _part_of(mix(state), total)
        row = first_from(ends, np.uint64(ends.size), point + ONE)
        if counts[row] < most:
            counts[row] += np.uint16(1)


@kernel
def pack_rows(target, counts, items):
    """Set items (kernels/common/layout.py) to the rows with counts > 0, ascending.

    target  uint16 [rows], class of each row, rows <= 2**32; None for regression: items then have class 0
    counts  uint16 [rows], multiplicities, times the weights of the rows (Sampler.search_weights)
    items   uint64 [rows with counts > 0], out

    No branch depends on the data.
    """
    at = ZERO
    row = ZERO
    while at < np.uint64(items.size):
        items[at] = (row << SHIFT32) | np.uint64(counts[row])
        if target is not None:
            items[at] |= np.uint64(target[row]) << SHIFT16
        at += np.uint64(counts[row] > 0)
        row += ONE
