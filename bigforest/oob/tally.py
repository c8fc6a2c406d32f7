"""The votes of the trees on some rows, in memory and in files that processes hand to each other."""

from __future__ import annotations

import secrets
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import FormatError
from bigforest.places import inbox, made


class Tally(NamedTuple):
    """Votes so far; entry i is row i of the range. See kernels/route.py vote_out_of_bag."""

    votes: NDArray[np.float64]
    voters: NDArray[np.uint32]
    prediction: NDArray[np.uint16]

    def part(self, start: int, stop: int) -> Tally:
        """Entries `start` to before `stop`."""
        return Tally(self.votes[start:stop], self.voters[start:stop], self.prediction[start:stop])


def no_votes(rows: int, classes: int) -> Tally:
    return Tally(np.zeros((rows, classes)), np.zeros(rows, np.uint32), np.zeros(rows, np.uint16))


def write_tally(tally: Tally, folder: Path) -> Path:
    """A file with the arrays of the tally one after the other, and their CRC-32; each attempt has one of its own."""
    path = folder / f"tally-{secrets.token_hex(8)}.bin"
    with made(path) as here, here.open("wb") as file:
        crc = 0
        for array in tally:
            crc = zlib.crc32(array.data, crc)
            file.write(array.data)
        file.write(np.array([crc], "<u4").data)
    return path


def fetch_tally(path: Path, rows: int, classes: int) -> Tally:
    """Inverse of `write_tally`; removes the file. Raises FormatError when it is damaged."""
    tally = no_votes(rows, classes)
    with inbox([path]) as [here], here.open("rb", buffering=0) as file:
        crc = 0
        for array in tally:
            data = array.data.cast("B")
            while data and (count := file.readinto(data)):
                data = data[count:]
            crc = zlib.crc32(array.data, crc)
        if file.read() != np.array([crc], "<u4").tobytes():
            raise FormatError(f"{path} is damaged; do not touch the scratch folder during a run")
    path.unlink()
    return tally
