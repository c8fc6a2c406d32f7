"""Tables of zeros and ones as bits, 64 columns per word: counted and weighted a word at a time.

Column c is bit c % 64 of word c // 64. Oracle: tests/naive/subspace.py, without bits.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import ONE, TWO, ZERO
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.bit_sums import WORD, add_bits

# Rows that are packed at a time, so that a word of each stays in the first-level cache.
PACKED_ROWS = 512
# Bits of a counter of rows, and how many of them are kept in registers.
PLANES = 40
_LOW_PLANES = np.uint64(3)
_EIGHT = np.uint64(8)
_WORD = np.uint64(WORD)


@kernel
def pack_bits(columns, slots, bits, word):
    """bits[r, c // 64] gets columns[slots[c], r] as bit c % 64.

    columns uint8 [slots, rows] of zeros and ones; slots int64 [columns], -1 for a column of zeros; bits uint64 [rows,
    words]; word uint64 [PACKED_ROWS], scratch. About a sixth of a nanosecond per cell.
    """
    count = np.uint64(slots.size)
    for first in range(0, bits.shape[0], PACKED_ROWS):
        rows = min(PACKED_ROWS, bits.shape[0] - first)
        for number in range(np.uint64(bits.shape[1])):
            for r in range(rows):
                word[r] = ZERO
            for bit in range(min(_WORD, count - number * _WORD)):
                slot = slots[number * _WORD + bit]
                if slot >= 0:
                    column = columns[np.uint64(slot), first : first + rows]
                    for r in range(rows):
                        word[r] |= np.uint64(column[r]) << bit
            for r in range(rows):
                bits[np.uint64(first + r), number] = word[r]


@inlined
def add_three(one, two, three):
    """Bit by bit the sum of three words, in its lower and its upper bit."""
    odd = one ^ two
    return odd ^ three, (one & two) | (odd & three)


@inlined
def count_word(bits, rows, number, planes, count):
    """count[b] = rows that have bit b of word `number` set, int32 [64].

    rows    uint32 [n], n below 2**31
    planes  uint64 [2, PLANES], scratch

    Adds words bit by bit (Harley and Seal; Warren, Hacker's Delight, 5-1): `planes[0, i]` are the digits of 2**i so
    far, and `planes[1, i]` is a word of such digits that waits for another. Five operations per row.
    """
    n = np.uint64(rows.size)
    digit, waiting = planes[ZERO], planes[ONE]
    for b in range(_WORD):
        count[b] = np.int32(0)
    ones, twos, fours, eights = ZERO, ZERO, ZERO, ZERO
    groups = n // _EIGHT
    most = _LOW_PLANES
    while groups >> (most - _LOW_PLANES) != ZERO:
        digit[most] = ZERO
        most += ONE
    for group in range(groups):
        at = group * _EIGHT
        ones, two = add_three(ones, bits[rows[at], number], bits[rows[at + ONE], number])
        ones, other = add_three(ones, bits[rows[at + np.uint64(2)], number], bits[rows[at + np.uint64(3)], number])
        twos, four = add_three(twos, two, other)
        ones, two = add_three(ones, bits[rows[at + np.uint64(4)], number], bits[rows[at + np.uint64(5)], number])
        ones, other = add_three(ones, bits[rows[at + np.uint64(6)], number], bits[rows[at + np.uint64(7)], number])
        twos, more = add_three(twos, two, other)
        fours, carry = add_three(fours, four, more)
        level, before = _LOW_PLANES, group
        while before & ONE:
            digit[level], carry = add_three(digit[level], waiting[level], carry)
            before >>= ONE
            level += ONE
        waiting[level] = carry
    for at in range(groups * _EIGHT, n):
        carry = bits[rows[at], number]
        two = ones & carry
        ones ^= carry
        four = twos & two
        twos ^= two
        eights |= fours & four  # seven rows plus seven carry at most once
        fours ^= four
    digit[ZERO] = ones
    digit[ONE] = twos
    digit[TWO] = fours
    for level in range(most):
        add_bits(digit[level : level + ONE], np.int32(1) << np.int32(level), count)
    for level in range(_LOW_PLANES, most):
        if (groups >> (level - _LOW_PLANES)) & ONE:
            add_bits(waiting[level : level + ONE], np.int32(1) << np.int32(level), count)
    if eights != ZERO:
        digit[ZERO] = eights
        add_bits(digit[:ONE], np.int32(8), count)
