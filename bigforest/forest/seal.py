"""A checksum of a whole Parquet file, kept in the file.

Parquet can give its pages checksums but not its footer, in which a flipped byte may pass unseen or mislead one reader
and not another. So the footer has an entry of eight hexadecimal digits, the CRC-32 of the file as it is with zeros in
their place. A file without the entry, as other software writes it, has no checksum to differ.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import IO

_KEY = b"bigforest.crc32"
_ZEROS = b"00000000"
_PIECE = 1 << 20

# The entry to write into the metadata of a file that will be sealed.
UNSEALED = {_KEY: _ZEROS}


def seal(path: Path) -> None:
    """Put the checksum into the entry UNSEALED of the file."""
    with path.open("r+b") as file:
        place = _place(file)
        assert place is not None
        checksum = _checksum(file, place)
        file.seek(place)
        file.write(checksum)


def is_intact(path: Path) -> bool:
    """Whether the file is as it was sealed, or never was. Reads all of it, a piece at a time."""
    with path.open("rb") as file:
        place = _place(file)
        if place is None:
            return True
        expected = _checksum(file, place)
        file.seek(place)
        return file.read(len(_ZEROS)) == expected


def _place(file: IO[bytes]) -> int | None:
    """Where the digits stand: the footer, a Thrift structure, ends with its length in 4 bytes and PAR1."""
    end = file.seek(0, 2)
    file.seek(max(end - 8, 0))
    footer = int.from_bytes(file.read(4), "little")
    if footer > end - 8:
        return None
    begin = file.seek(end - 8 - footer)
    found = file.read(footer).rfind(_KEY)
    return None if found < 0 else begin + found + len(_KEY) + 2  # a byte for the type of the value, one for its length


def _checksum(file: IO[bytes], place: int) -> bytes:
    checksum = 0
    at = file.seek(0)
    while piece := file.read(_PIECE):
        for index in range(len(_ZEROS)):
            if 0 <= (inside := place + index - at) < len(piece):
                piece = piece[:inside] + b"0" + piece[inside + 1 :]
        checksum = zlib.crc32(piece, checksum)
        at += len(piece)
    return b"%08x" % checksum
