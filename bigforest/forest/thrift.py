"""Thrift's compact protocol, as far as the metadata of Parquet needs it: numbers, bytes, lists and structs.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

# The number of a type, and a value of it, encoded.
Field = tuple[int, bytes]


@lru_cache(maxsize=1024)
def i32(value: int) -> Field:
    """A number of 32 bits; of 64 it differs in its type alone."""
    return 5, _signed(value)


@lru_cache(maxsize=1024)
def i64(value: int) -> Field:
    """A number of 64 bits."""
    return 6, _signed(value)


def binary(value: bytes) -> Field:
    """Bytes, or text in UTF-8."""
    return 8, varint(len(value)) + value


def many(values: Sequence[Field]) -> Field:
    """A list of values of one type, one at least."""
    size, kind = len(values), values[0][0]
    head = bytes([size << 4 | kind]) if size < 15 else bytes([0xF0 | kind]) + varint(size)
    return 9, head + b"".join([content for _, content in values])


def struct(fields: dict[int, Field]) -> Field:
    """A struct of fields by their numbers, which ascend by less than 16."""
    out = bytearray()
    last = 0
    for number, (kind, content) in fields.items():
        out.append((number - last) << 4 | kind)
        out += content
        last = number
    return 12, bytes(out) + b"\0"


def varint(value: int) -> bytes:
    """An unsigned number, seven bits to a byte, lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _signed(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)
