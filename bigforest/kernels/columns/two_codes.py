"""Features of which a copied subtree has the codes 0 and 1 alone, as flags do: one word of a row holds 64 of them.

A node reads these words once, for all such features that it draws, and learns which of them are constant in it, as in
small nodes most are. Oracle: tests/kernels/test_kernel_two_codes.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.layout import Codes
from bigforest.kernels.common.node_scan import ONE, SHIFT32, ZERO
from bigforest.kernels.compiler.jit import helper, inlined

# Words of fewer features are not worth reading, nor those of which a node draws none on average.
FEWEST_FEATURES = 8
# Bytes of the words of the copy, at most, and of those of a node.
_BYTES = 300_000
# Rows that are packed, or looked at, together.
_ROWS = np.uint64(512)
_BITS6 = np.uint64(63)
_64 = np.uint64(64)


class TwoCodes(NamedTuple):
    """Word f // 64 has feature f, as bit f % 64.

    fewest  words of fewer features are not packed
    bits    uint64 [words, room], the codes of the rows of the copy
    packed  uint64 [words], features whose codes `bits` has
    any     bool [1], whether there are such
    here    uint64 [words], those whose codes `node` has: none outside the copy
    node    uint64 [words, room], the words of the node's rows
    """

    fewest: int
    bits: NDArray[np.uint64]
    packed: NDArray[np.uint64]
    any: NDArray[np.bool_]
    here: NDArray[np.uint64]
    node: NDArray[np.uint64]


def make_two_codes(codes: Codes, reach: int, mtry: int) -> TwoCodes:
    """Room for a copy of `reach` rows, of which too many are not packed; none where too few codes have one byte."""
    features = codes.place.shape[0]
    fewest = max(FEWEST_FEATURES, features // max(mtry, 1))
    words = -(-features // 64)
    room = min(reach, _BYTES // (8 * words)) if len(codes.u8) >= fewest else 0
    bits, node = (np.empty((words, room), np.uint64) for _ in range(2))
    return TwoCodes(fewest, bits, np.zeros(words, np.uint64), np.zeros(1, np.bool_), np.zeros(words, np.uint64), node)


@inlined
def has_two_codes(column, n):
    """Whether the first n codes of a column are 0 or 1."""
    for begin in range(ZERO, n, _ROWS):
        high = column[begin]
        for code in column[begin : min(begin + _ROWS, n)]:
            high = max(high, code)
        if high > np.uint8(1):
            return False
    return True


@inlined
def pack_word(u8, place, n, word, packed, out):
    """out[i] = the codes of the `packed` features of a word in row i of u8, for i < n."""
    for begin in range(ZERO, n, _ROWS):
        rows = out[begin : min(begin + _ROWS, n)]
        rows[:] = ZERO
        for bit in range(_64):
            if packed >> bit & ONE:
                column = u8[np.uint64(place[word * _64 + bit, 1])][begin : min(begin + _ROWS, n)]
                for i in range(np.uint64(rows.size)):
                    rows[i] |= np.uint64(column[i]) << bit


@helper
def pack_two_codes(u8, place, n, constant, two):
    """Pack the first n rows of the copy, whose codes of one byte are u8; place: of Codes; constant: scan/draw.py."""
    two.any[ZERO] = False
    if n > np.uint64(two.bits.shape[1]):
        return
    for word in range(np.uint64(two.packed.size)):
        packed, found = ZERO, 0
        for feature in range(word * _64, min(word * _64 + _64, np.uint64(place.shape[0]))):
            bit = ONE << (feature & _BITS6)
            varies, width, slot = constant[word] & bit == ZERO, place[feature, 0], np.uint64(place[feature, 1])
            if varies and width == np.uint32(1) and has_two_codes(u8[slot], n):
                packed |= bit
                found += 1
        two.packed[word] = ZERO
        two.here[word] = ZERO
        if found >= two.fewest:
            two.any[ZERO] = True
            two.packed[word] = packed
            pack_word(u8, place, n, word, packed, two.bits[word])


@helper
def read_two_codes(items, cached, constant, two):
    """Read the words of the node of these items; features that are constant in it are added to `constant`.

    cached: whether items number rows of the copy.
    """
    n = np.uint64(items.size)
    for word in range(np.uint64(two.packed.size)):
        packed = two.packed[word] & ~constant[word]
        two.here[word] = packed if cached else ZERO
        if two.here[word] != ZERO:
            bits, node, some, every = two.bits[word], two.node[word], ZERO, ~ZERO
            for i in range(n):
                node[i] = bits[items[i] >> SHIFT32]
            for i in range(n):
                some |= node[i]
                every &= node[i]
            constant[word] |= packed & ~(some & ~every)


@inlined
def unpack_code(n, word, bit, two, out):
    """out[i] = the code of a feature in row i of the node, for i < n."""
    node = two.node[word]
    for i in range(n):
        out[i] = np.uint32(node[i] >> bit & ONE)
