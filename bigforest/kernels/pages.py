"""Values on their way into a page of a Parquet file. Oracle: what other readers of Parquet find there.

The encodings are those of the Parquet format: https://parquet.apache.org/docs/file-format/data-pages/encodings/.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.jit import inlined, kernel

# Values in a block of differences, and in a quarter of it, which has a width of its own.
BLOCK = 128
QUARTER = 32
# Bytes that a block takes besides its values, at most: the smallest difference, and a width per quarter.
BLOCK_BYTES = 14
# Bytes of the head before all blocks, at most.
HEAD_BYTES = 24

_ONE = np.uint64(1)
_SEVEN = np.uint64(7)
_EIGHT = np.uint64(8)
_HALF = np.uint64(32)
_WORD = np.uint64(64)
_BYTE = np.uint64(0xFF)
_LOW = np.uint64(0xFFFFFFFF)


@kernel
def keep_values(values, there, out):
    """Put those of `values` [n] that are `there`, bool [n], into the front of `out` [n]; returns how many."""
    kept = np.uint64(0)
    for i in range(np.uint64(values.size)):
        out[kept] = values[i]  # without a branch, which would be guessed wrong as often as not
        kept += np.uint64(there[i])
    return kept


@kernel
def split_bytes(values, out):
    """BYTE_STREAM_SPLIT of values uint64 [n] into out uint8 [8 * n]: the lowest bytes of all come first."""
    size = np.uint64(values.size)
    for byte in range(_EIGHT):
        shift = _EIGHT * byte
        for i in range(size):
            out[byte * size + i] = np.uint8((values[i] >> shift) & _BYTE)


@kernel
def pack_numbers(values, width, out):
    """Numbers uint32 [n] of `width` bits each, lowest bits first, n a multiple of 8, into out uint8 [n * width / 8]."""
    filled = place = word = np.uint64(0)
    for i in range(np.uint64(values.size)):
        word, filled, place = _put(np.uint64(values[i]), np.uint64(width), word, filled, out, place)


@kernel
def pack_differences(values, bits, scratch, out):
    """DELTA_BINARY_PACKED of values uint32 or uint64 [n] in two's complement of so many `bits`; returns bytes written.

    scratch  uint64 [BLOCK]
    out      uint8 [HEAD_BYTES + blocks * (BLOCK_BYTES + BLOCK * bytes of a value)] at least, blocks ceil(n / BLOCK)
    """
    size = np.uint64(values.size)
    sign = _ONE << (np.uint64(bits) - _ONE)
    mask = sign | (sign - _ONE)
    before = np.uint64(values[0]) if size else np.uint64(0)
    place = _put_varint(np.uint64(BLOCK), out, np.uint64(0))
    place = _put_varint(np.uint64(BLOCK // QUARTER), out, place)
    place = _put_varint(size, out, place)
    place = _put_signed((before ^ sign) - sign, out, place)
    for begin in range(_ONE, size, np.uint64(BLOCK)):
        count = min(np.uint64(BLOCK), size - begin)
        # Differences as unsigned numbers in their order.
        smallest = mask
        for i in range(count):
            value = np.uint64(values[begin + i])
            scratch[i] = ((value - before) & mask) ^ sign
            smallest = min(smallest, scratch[i])
            before = value
        place = _put_signed(smallest - sign, out, place)
        widths = place
        place += np.uint64(BLOCK // QUARTER)
        for quarter in range(np.uint64(BLOCK // QUARTER)):
            first = quarter * np.uint64(QUARTER)
            last = max(first, min(count, first + np.uint64(QUARTER)))
            width = _rebase(scratch, first, last, smallest)
            out[widths + quarter] = np.uint8(width)
            place = _put_quarter(scratch, first, width, out, place) if width and last > first else place
    return place


@inlined
def _rebase(numbers, first, last, smallest):
    """Count numbers[first:last] from the smallest, make the rest of their quarter 0; bits of the largest."""
    both = np.uint64(0)
    for i in range(first, last):
        numbers[i] -= smallest
        both |= numbers[i]
    for i in range(last, first + np.uint64(QUARTER)):
        numbers[i] = np.uint64(0)
    width = np.uint64(0)
    while width < _WORD and both >> width:
        width += _ONE
    return width


@inlined
def _put_quarter(numbers, first, width, out, place):
    """Append a quarter of a block, every number in `width` bits; returns where it ends."""
    if width <= _EIGHT:
        for group in range(first, first + np.uint64(QUARTER), _EIGHT):
            place = _put_eight(numbers, group, width, out, place)
        return place
    filled = word = np.uint64(0)
    low = min(width, _HALF)
    for i in range(first, first + np.uint64(QUARTER)):
        word, filled, place = _put(numbers[i] & _LOW, low, word, filled, out, place)
        if width > _HALF:
            word, filled, place = _put(numbers[i] >> _HALF, width - _HALF, word, filled, out, place)
    return place


@inlined
def _put_eight(numbers, first, width, out, place):
    """Append eight numbers of at most 8 bits, which fit one word; returns where they end. Three times as fast."""
    word = np.uint64(0)
    for i in range(_EIGHT):
        word |= numbers[first + i] << (width * i)
    for i in range(width):
        out[place + i] = np.uint8((word >> (_EIGHT * i)) & _BYTE)
    return place + width


@inlined
def _put(number, width, word, filled, out, place):
    """Append a number of at most 32 bits to the `filled` bits of `word`, and whole bytes of it to `out`."""
    word |= number << filled
    filled += width
    while filled >= _EIGHT:
        out[place] = np.uint8(word & _BYTE)
        word >>= _EIGHT
        filled -= _EIGHT
        place += _ONE
    return word, filled, place


@inlined
def _put_varint(number, out, place):
    """Append an unsigned number, seven bits to a byte; returns where it ends."""
    while number >> _SEVEN:
        out[place] = np.uint8((number & np.uint64(0x7F)) | np.uint64(0x80))
        number >>= _SEVEN
        place += _ONE
    out[place] = np.uint8(number)
    return place + _ONE


@inlined
def _put_signed(number, out, place):
    """Append a number of 64 bits in two's complement, its sign in the lowest bit; returns where it ends."""
    return _put_varint((number << _ONE) ^ (np.uint64(0) - (number >> np.uint64(63))), out, place)


def compile_pages() -> None:
    """Compile, or load from the cache, the kernels of this module for the arrays that forest/pages.py has."""
    out = np.empty(2 * (HEAD_BYTES + BLOCK_BYTES) + 8 * BLOCK, np.uint8)
    for kind in (np.uint8, np.uint32, np.uint64):
        values = np.zeros(8, kind)
        values.flags.writeable = False
        keep_values(values, np.zeros(8, np.bool_), np.empty(8, kind))
        if kind is not np.uint8:
            pack_differences(values, 8 * values.itemsize, np.empty(BLOCK, np.uint64), out)
    split_bytes(values, out)
    pack_numbers(np.zeros(8, np.uint32), 1, out)
