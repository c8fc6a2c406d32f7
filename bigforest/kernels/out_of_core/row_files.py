"""Pack the rows of a block for files in scratch, and unpack and check them (grow/out_of_core/row_file.py)."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import BITS16, BITS32, ONE, SHIFT16, SHIFT32, TWO, ZERO
from bigforest.kernels.compiler.jit import inlined, kernel

_THREE = np.uint64(3)
_BASIS = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)


@kernel
def pack_places(items, places):
    """Set places[i] to row << 16 | multiplicity of items[i], uint32 [n], for rows of a block."""
    for i in range(np.uint64(items.size)):
        places[i] = np.uint32(((items[i] >> SHIFT32) << SHIFT16) | (items[i] & BITS16))


@kernel
def unpack_places(places, size, target, items):
    """Invert `pack_places` in a block of `size` rows. Return False if a row is outside of the block.

    target  uint16 [size], classes of the rows of the block; None for regression
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
    """Return the FNV-1a hash that continues `state` by words."""
    for i in range(np.uint64(words.size)):
        state = (state ^ words[i]) * _PRIME
    return state


@kernel
def checksum(head, words):
    """Return a checksum, uint64, of two arrays of words, uint64. It changes if any one word changes."""
    return fold(fold(_BASIS, head), words)


@kernel
def seal_chunks(index, words):
    """Write the checksums of chunks into their index.

    index  uint64 [chunks, 3]: place of each chunk in the file, in bytes; its number of rows; out: a checksum of these
           two and of the words of the chunk
    words  uint64 [n], words of all chunks, one after the other
    """
    chunks = np.uint64(index.shape[0])
    for k in range(chunks):
        begin = (index[k, ZERO] - index[ZERO, ZERO]) >> _THREE
        end = (index[k + ONE, ZERO] - index[ZERO, ZERO]) >> _THREE if k + ONE < chunks else np.uint64(words.size)
        index[k, TWO] = fold(fold(_BASIS, index[k, :TWO]), words[begin:end])


@kernel
def pick_columns(matrix, items, begin, end, place, out):
    """Gather the cells of ranges of items. A column is read for all ranges while it is in the cache.

    matrix      [columns, rows of the block]
    begin, end  uint64 [ranges], range k has items[begin[k]:end[k]]
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
    """Gather the lower halves of the items of range k, class << 16 | multiplicity, into uint32 out[place[k]:]."""
    for k in range(np.uint64(begin.size)):
        at = place[k]
        for i in range(begin[k], end[k]):
            out[at] = np.uint32(items[i] & BITS32)
            at += ONE
