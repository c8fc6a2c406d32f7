"""Reads what kernels/pages.py writes, bit by bit: https://parquet.apache.org/docs/file-format/data-pages/encodings/."""

from __future__ import annotations


def bits_of(content: bytes) -> list[int]:
    """The bits of bytes, lowest first."""
    return [byte >> place & 1 for byte in content for place in range(8)]


def numbers_of(content: bytes, width: int) -> list[int]:
    """Numbers of so many bits each."""
    bits = bits_of(content)
    return [
        sum(bit << place for place, bit in enumerate(bits[begin : begin + width]))
        for begin in range(0, len(bits) - width + 1, width)
    ]


def differences_of(content: bytes, bits: int) -> tuple[list[int], int]:
    """The values of DELTA_BINARY_PACKED, modulo 2**bits, and where it ends."""
    block, place = _varint(content, 0)
    quarters, place = _varint(content, place)
    count, place = _varint(content, place)
    value, place = _signed(content, place)
    values = [value]
    while len(values) < count:
        smallest, place = _signed(content, place)
        widths = content[place : place + quarters]
        place += quarters
        for width in widths:
            if len(values) >= count:
                break
            size = block // quarters * width // 8
            found = numbers_of(content[place : place + size], width) if width else [0] * (block // quarters)
            place += size
            for number in found:
                value += smallest + number
                values.append(value)
    return [value % 2**bits for value in values[:count]], place


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while content[place] & 0x80:
        value |= (content[place] & 0x7F) << shift
        shift += 7
        place += 1
    return value | content[place] << shift, place + 1


def _signed(content: bytes, place: int) -> tuple[int, int]:
    value, place = _varint(content, place)
    return (value >> 1) ^ -(value & 1), place
