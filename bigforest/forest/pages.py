"""Pages of a Parquet file, and the bytes of values and levels in them.

They are data pages of version 1: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
Levels say which values are null, and where lists begin.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.forest.thrift import Field, i32, struct, varint

# Encodings and codecs by their numbers in the format.
PLAIN, RLE, DELTA, DICTIONARY, SPLIT = 0, 3, 5, 8, 9
RAW, LZ4 = 0, 7
_LEVELS = i32(RLE)


@dataclass(slots=True, kw_only=True)
class Pages:
    """The pages of a column, as they are made.

    codec, encoding  of the values, by their numbers
    values           how many there are, nulls counted
    plain            bytes of the pages with heads, were they not compressed
    dictionary       bytes of the page of the dictionary, which comes first; 0 without one
    pages            heads and bodies, in turn
    """

    codec: int
    encoding: int
    values: int = 0
    plain: int = 0
    dictionary: int = 0
    pages: list[bytes] = field(default_factory=list)

    def add_dictionary(self, words: int, body: bytes) -> None:
        """Add the page of so many words, before all others."""
        self._add(2, body, 7, struct({1: i32(words), 2: i32(PLAIN)}))
        self.dictionary = sum(map(len, self.pages))

    def add(self, values: int, levels: bytes, encoded: Any) -> None:
        """Add a page of so many values."""
        self._add(
            0, b"".join((levels, encoded)), 5, struct({1: i32(values), 2: i32(self.encoding), 3: _LEVELS, 4: _LEVELS})
        )
        self.values += values

    def _add(self, kind: int, body: bytes, place: int, own: Field) -> None:
        packed = body if self.codec == RAW else _lz4().compress(body, asbytes=True)
        crc = zlib.crc32(packed)
        signed = crc - (1 << 32) if crc >> 31 else crc
        head = struct({1: i32(kind), 2: i32(len(body)), 3: i32(len(packed)), 4: i32(signed), place: own})[1]
        self.pages += [head, packed]
        self.plain += len(head) + len(body)


@lru_cache(maxsize=1)
def _lz4() -> Any:
    return pa.Codec("lz4_raw")


def differences(values: NDArray[Any]) -> Any:
    """Unsigned numbers of 32 or 64 bits as what each is more than the one before."""
    from bigforest.kernels.pages import BLOCK, BLOCK_BYTES, HEAD_BYTES, pack_differences

    blocks = -(-values.size // BLOCK)
    out = np.empty(HEAD_BYTES + blocks * (BLOCK_BYTES + BLOCK * values.itemsize), np.uint8)
    size = pack_differences(values, 8 * values.itemsize, np.empty(BLOCK, np.uint64), out)
    return out[:size].data


def split(values: NDArray[Any]) -> Any:
    """Numbers of 64 bits, the lowest bytes of all first."""
    from bigforest.kernels.pages import split_bytes

    out = np.empty(values.nbytes, np.uint8)
    split_bytes(values, out)
    return out.data


def bits(values: NDArray[Any]) -> Any:
    """Flags of 8 bits as single bits."""
    return np.packbits(values, bitorder="little").data


def packed(values: NDArray[Any], width: int) -> bytes:
    """A run of numbers of so many bits each."""
    from bigforest.kernels.pages import pack_numbers

    groups = -(-values.size // 8)
    padded = np.zeros(8 * groups, np.uint32)
    padded[: values.size] = values
    out = np.empty(groups * width, np.uint8)
    pack_numbers(padded, width, out)
    return varint(groups << 1 | 1) + out.tobytes()


def bit_run(flags: NDArray[np.bool_]) -> bytes:
    """A run of levels that are 0 or 1."""
    return varint(-(-flags.size // 8) << 1 | 1) + np.packbits(flags, bitorder="little").tobytes()


def run(level: int, count: int) -> bytes:
    """A run of equal levels."""
    return varint(count << 1) + bytes([level])


@lru_cache(maxsize=8)
def starts(values: int, width: int) -> bytes:
    """The levels that say that a list begins every `width` values."""
    flags = np.ones(values, np.bool_)
    flags[::width] = False
    return sized(bit_run(flags))


def sized(levels: bytes) -> bytes:
    """Levels, and before them how many bytes they are."""
    return len(levels).to_bytes(4, "little") + levels
