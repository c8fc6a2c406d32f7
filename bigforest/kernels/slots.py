"""Give the levels of a category in a node slots, and sum what the rows of each hold. Scratch: category.py Levels.

Oracle: tests/naive/levels.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.jit import inlined
from bigforest.kernels.node import BITS16, BITS32, NONE, ONE, SHIFT32, TWO, ZERO, class_of

# Codes within so many are counted by code: no row needs a branch then, whose outcome is hard to guess.
CLOSE = 128
_LOG_HALF = np.uint64(5)
# Tables of classes less one; numbers have two.
_TABLES = np.uint64(3)


@inlined
def count_close(codes, low, span, items, levels, sums):
    """take_slots where all codes are from `low` on within `span` (uint64), CLOSE at most. Slots ascend by code."""
    held = levels.held
    for entry in range(span << TWO):
        held[entry] = NONE
    for i in range(np.uint64(items.size)):
        # Rows that follow each other are counted apart: an addition waits for the one before to the same place.
        if sums is None:  # odd classes in the upper half: for two of them that is the sum, for more it is not used
            at = np.uint64(codes[i] - low) + (i & _TABLES) * span
            held[at] += np.int64((items[i] & BITS16) << ((class_of(items[i]) & ONE) << _LOG_HALF))
        else:
            at = np.uint64(codes[i] - low) + (i & ONE) * span
            held[at + at] += sums.rows[i, ZERO]
            held[at + at + ONE] += sums.rows[i, ONE]
    found = ZERO
    for at in range(span):
        if sums is None:
            other = at + span + span
            both = np.uint64(held[at] + held[at + span] + held[other] + held[other + span])
            inside = np.int64(both >> SHIFT32)
            weight = np.int64(both & BITS32) + inside
        else:
            other = at + span
            weight = held[at + at] + held[other + other]
            inside = held[at + at + ONE] + held[other + other + ONE]
        levels.code[found] = low + np.uint32(at)
        levels.weight[found] = weight
        levels.sum[found] = inside
        found += np.uint64(weight != NONE)
    return found


@inlined
def take_slots(codes, low, high, items, levels, sums):
    """Give every level among the rows, from code `low` to `high`, a slot. Returns their number (uint64).

    levels.sum becomes that of the numbers, or of the classes, which is what two of them are ordered by.
    """
    span = np.uint64(high - low) + ONE
    if span <= np.uint64(CLOSE) and span <= np.uint64(items.size) << TWO:
        return count_close(codes, low, span, items, levels, sums)
    slot, code, weight, total = levels.slot, levels.code, levels.weight, levels.sum
    found = ZERO
    for i in range(np.uint64(items.size)):
        here = codes[i]
        mine = slot[np.uint64(here)]
        if mine == np.uint32(0):
            code[found] = here
            weight[found] = NONE
            total[found] = NONE
            found += ONE
            mine = np.uint32(found)
            slot[np.uint64(here)] = mine
        at, multiplicity = np.uint64(mine) - ONE, items[i] & BITS16
        weight[at] += np.int64(multiplicity)
        total[at] += np.int64(multiplicity * class_of(items[i])) if sums is None else sums.rows[i, ONE]
    return found


@inlined
def clear_slots(found, levels):
    """Forget the levels of a node."""
    for slot in range(found):
        levels.slot[np.uint64(levels.code[slot])] = np.uint32(0)
