"""Random streams by purpose: a block of rows does not depend on earlier draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

# Cells of a block. With the number of columns it fixes the rows of a block; changing it changes the table of a seed.
BLOCK_CELLS = 1 << 20
BLOCK_ROWS = 1 << 16


class Purpose(IntEnum):
    """Purpose of a random stream."""

    PARAMETERS = 0
    ROTATION = 1
    SCALE = 2
    ROWS = 3
    OUTLIERS = 4
    BAYES = 5


class BlockDraw(IntEnum):
    """Quantity drawn for a block of rows. Each has its own stream, so that a larger block begins with the rows of a
    smaller one."""

    CLASSES = 0
    VALUES = 1
    NOISE = 2


@dataclass(frozen=True, slots=True)
class RandomBlock:
    """Random numbers for some consecutive rows.

    spread  factor of the deviations from the mean: 1, or 2 for outliers, whose covariance is four times as large.
    """

    seed: int
    sample: int
    purpose: Purpose
    number: int
    rows: int
    spread: float = 1.0

    def stream(self, draw: BlockDraw) -> np.random.Generator:
        """Return the stream of one quantity, from its beginning."""
        return _generator([self.seed, self.sample], (self.purpose, self.number, draw))


def parameters(seed: int, purpose: Purpose) -> np.random.Generator:
    """Return the stream for parameters that all rows of a seed share."""
    return _generator([seed], (purpose,))


def random_blocks(
    rows: int, dims: int, seed: int, sample: int, purpose: Purpose, spread: float = 1.0
) -> Iterator[RandomBlock]:
    """Yield the blocks of a table of this many rows and columns, in order. Only the last may be shorter."""
    size = max(1, min(BLOCK_ROWS, BLOCK_CELLS // dims))
    for at in range(0, rows, size):
        yield RandomBlock(seed, sample, purpose, at // size, min(size, rows - at), spread)


def _generator(entropy: list[int], key: tuple[int, ...]) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy, spawn_key=key)))
