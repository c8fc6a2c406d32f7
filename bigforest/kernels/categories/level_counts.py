"""Give each level of a category in a node a slot, and sum the statistics of its rows. Scratch: LevelOrder of
ordering.py.

No loop over rows branches on whether a level is new, which the processor cannot predict.

Oracle: tests/naive/levels.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import BITS16, ONE, TWO, ZERO, ZERO_I64, class_of
from bigforest.kernels.compiler.jit import inlined

# Up to this many codes are counted in several tables, and levels are found by scanning codes, not rows.
CLOSE = 128
_LOG_HALF = np.uint64(5)
_BITS = np.int64(32)
_LOWER = np.int64(0xFFFFFFFF)
# Number of tables for classes, minus one. Regression has two tables.
_TABLES = np.uint64(3)


@inlined
def level_weights(item):
    """Return the multiplicity of an item, int64; in the upper half for an odd class, so a sum holds both weights."""
    return np.int64((item & BITS16) << ((class_of(item) & ONE) << _LOG_HALF))


@inlined
def put_level(slots, code, both, levels):
    """Write level `code`, whose weights of both classes are `both`, to slot `slots`; return its weight."""
    inside = both >> _BITS
    weight = (both & _LOWER) + inside
    levels.code[slots] = code
    levels.weight[slots] = weight
    levels.sum[slots] = inside
    return weight


@inlined
def count_close(codes, low, span, items, levels, sums):
    """Give slots as `take_slots`, where all codes are in low..low + span (uint64), span at most CLOSE. Slots ascend by
    code."""
    close = levels.close
    for entry in range(span << TWO):
        close[entry] = ZERO_I64
    for i in range(np.uint64(items.size)):
        # Consecutive rows go to different tables: an addition waits for an earlier one to the same entry.
        if sums is None:
            close[np.uint64(codes[i] - low) + (i & _TABLES) * span] += level_weights(items[i])
        else:
            at = np.uint64(codes[i] - low) + (i & ONE) * span
            close[at + at] += sums.rows[i, ZERO]
            close[at + at + ONE] += sums.rows[i, ONE]
    slots = ZERO
    for at in range(span):
        if sums is None:
            other = at + span + span
            both = close[at] + close[at + span] + close[other] + close[other + span]
            slots += np.uint64(put_level(slots, low + np.uint32(at), both, levels) != ZERO_I64)
        else:
            other = at + span
            weight = close[at + at] + close[other + other]
            levels.code[slots] = low + np.uint32(at)
            levels.weight[slots] = weight
            levels.sum[slots] = close[at + at + ONE] + close[other + other + ONE]
            slots += np.uint64(weight != ZERO_I64)
    return slots


@inlined
def take_slots(codes, low, high, items, levels, sums):
    """Give every level among the rows, from code `low` to `high`, a slot. Return the number of levels (uint64).

    levels.sum becomes the sum of the targets, or the weight of odd classes, by which levels of two classes are ordered.
    """
    span = np.uint64(high - low) + ONE
    if span <= np.uint64(CLOSE) and span <= np.uint64(items.size) << TWO:
        return count_close(codes, low, span, items, levels, sums)
    totals = levels.totals
    for i in range(np.uint64(items.size)):
        at = np.uint64(codes[i])
        if sums is None:
            totals[at] += level_weights(items[i])
        else:
            totals[at + at] += sums.rows[i, ZERO]
            totals[at + at + ONE] += sums.rows[i, ONE]
    slots = ZERO
    for i in range(np.uint64(items.size)):  # the first row of a level takes its sums, so later rows find zeros
        at = np.uint64(codes[i])
        if sums is None:
            weight = put_level(slots, codes[i], totals[at], levels)
            totals[at] = ZERO_I64
        else:
            weight = totals[at + at]
            levels.code[slots] = codes[i]
            levels.weight[slots] = weight
            levels.sum[slots] = totals[at + at + ONE]
            totals[at + at] = ZERO_I64
            totals[at + at + ONE] = ZERO_I64
        slots += np.uint64(weight != ZERO_I64)
    return slots
