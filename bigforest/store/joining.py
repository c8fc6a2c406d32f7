"""Files put together from others, range by range: each range is written once, by whichever process.

Ranges begin at multiples of their size, so that no two processes write to the same page of a shared file.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

# Bytes of a range, and of what is copied at once.
RANGE_BYTES = 1 << 26
COPY_BYTES = 1 << 20


class Piece(NamedTuple):
    """Some bytes of a file."""

    path: Path
    begin: int
    size: int


class FileRange(NamedTuple):
    """The bytes of the file `path` from `begin` on are those of the pieces, in order."""

    path: Path
    begin: int
    pieces: tuple[Piece, ...]


class JoinedFile:
    """A file that is made of others in order; `add` and `rest` give its ranges, to be written by `write_range`."""

    def __init__(self, path: Path) -> None:
        path.touch(exist_ok=False)
        self._path = path
        self._begin = self._held = 0
        self._pieces: list[Piece] = []

    def add(self, path: Path, size: int) -> list[FileRange]:
        """Make a file of `size` bytes the next one; the ranges whose bytes are all known now."""
        known: list[FileRange] = []
        done = 0
        while done < size:
            taken = min(size - done, RANGE_BYTES - self._held)
            self._pieces.append(Piece(path, done, taken))
            self._held += taken
            done += taken
            if self._held == RANGE_BYTES:
                known += self.rest()
        return known

    def rest(self) -> list[FileRange]:
        """The range that is not full yet, if any; nothing is added after it."""
        if not self._held:
            return []
        found = FileRange(self._path, self._begin, tuple(self._pieces))
        self._begin, self._held, self._pieces = self._begin + self._held, 0, []
        return [found]


def write_range(wanted: FileRange) -> None:
    """Task: write a range of a file that is there.

    Another worker may write the range too, if this one is slow or was taken for dead. Then the pieces are removed, and
    this worker must not touch the file any more: its readers would find that its time has changed. So a piece is opened
    anew for every read, which asks the file server; a check for existence may be answered from a cache. A write that is
    already on its way to the server puts the same bytes in the same place.
    """
    with wanted.path.open("r+b") as out:
        out.seek(wanted.begin)
        for piece in wanted.pieces:
            begin, end = piece.begin, piece.begin + piece.size
            while begin < end:
                found = _read(piece.path, begin, min(end - begin, COPY_BYTES), wanted.path)
                out.write(found)
                out.flush()
                begin += len(found)


def _read(path: Path, begin: int, size: int, joined: Path) -> bytes:
    """Some bytes of a piece of the file `joined`."""
    try:
        with path.open("rb", buffering=0) as content:
            content.seek(begin)
            found = content.read(size)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} is gone: another worker has written {joined}") from error
    if not found:
        raise OSError(f"{path} has become shorter")
    return found
