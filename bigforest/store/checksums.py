"""Checksums of the files of a store, from pieces that are written by different processes."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.store.format import BLOCK_ROWS, CHECKSUM_TYPE

# The polynomial of CRC-32; bit 31 - k stands for x**k.
_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
_X_TO_8 = 1 << 23


class BlockChecksums:
    """CRC-32 of every block of a column that comes in chunks of any size."""

    def __init__(self) -> None:
        self._done: list[int] = []
        self._crc = 0
        self._held = 0

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
