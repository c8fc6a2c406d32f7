"""Checksums of the files of a store, from pieces that are written by different processes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.store.format import BLOCK_ROWS, CHECKSUM_TYPE

# The polynomial of CRC-32; bit 31 - k stands for x**k.
_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
_X_TO_8 = 1 << 23


class BlockChecksums:
    """CRC-32 of every block of a column that comes in chunks of any size, or of a piece of one, see `joined_blocks`.

    before  rows of the column before the piece.
    """

    def __init__(self, before: int = 0) -> None:
        self._done: list[int] = []
        self._crc = 0
        self._held = before % BLOCK_ROWS

    def add(self, cells: NDArray[Any]) -> None:
        """The next cells of the column, contiguous."""
        while len(cells):
            piece = cells[: BLOCK_ROWS - self._held]
            self._crc = zlib.crc32(piece.data, self._crc)
            self._held += len(piece)
            if self._held == BLOCK_ROWS:
                self._done.append(self._crc)
                self._crc = self._held = 0
            cells = cells[len(piece) :]

    def result(self) -> NDArray[np.uint32]:
        """The checksums, [blocks]."""
        return np.array([*self._done, self._crc] if self._held else self._done, CHECKSUM_TYPE)


def joined_blocks(pieces: Sequence[NDArray[np.uint32]], rows: Sequence[int], width: int) -> NDArray[np.uint32]:
    """The checksums of the blocks of a column, [blocks], from those of pieces of some rows each, one at least.

    width  bytes of a cell.
    """
    found: list[int] = []
    before = 0
    for own, count in zip(pieces, rows, strict=True):
        rest = own.tolist()
        if held := before % BLOCK_ROWS:
            found[-1] = joined_crc(found[-1], rest.pop(0), min(count, BLOCK_ROWS - held) * width)
        found += rest
        before += count
    return np.array(found, CHECKSUM_TYPE)


def joined_crc(first: int, second: int, size: int) -> int:
    """The CRC-32 of some bytes with the checksum `first` and `size` more with the checksum `second`."""
    power, square = _ONE, _X_TO_8
    while size:
        if size & 1:
            power = _product(power, square)
        square = _product(square, square)
        size >>= 1
    return _product(power, first) ^ second


def _product(one: int, two: int) -> int:
    """The product of two polynomials modulo that of CRC-32."""
    product, bit = 0, _ONE
    while bit:
        if one & bit:
            product ^= two
        two = two >> 1 ^ (_POLYNOMIAL if two & 1 else 0)
        bit >>= 1
    return product
