"""Where the rows of a bag stand between passes: on disk, block by block, sorted by the nodes that they have come to.

So a pass sends rows down the newest splits alone, and a bag is drawn once or twice. A file holds the rows of one tree
in one run of blocks, as pieces in the order of the blocks:

    piece  uint64 rows, uint64 nodes, uint64 checksum (kernels/out_of_core/row_files.py) of these and what follows
           uint32 [nodes]  where the rows of each node begin; of an inner node, all that passed it
           uint32 [nodes]  where they end
           uint32 [rows]   row of the block << 16 | multiplicity, times weight
           a word of zeros where that makes whole words of 64 bits

little-endian. A file is written anew by each pass that sends rows down splits, each attempt of a task having its own.
"""

from __future__ import annotations

from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import FormatError
from bigforest.grow.shared.weighted_bags import weighed_block
from bigforest.kernels.out_of_core.row_files import checksum, pack_places, unpack_places
from bigforest.kernels.tree.bags import pack_rows
from bigforest.sampling.bags import Sampler
from bigforest.storage.atomic import write_whole
from bigforest.storage.paths import downloads, write_atomically

# Bytes of a row in such a file.
STANDING_ROW = 4

_WORD = np.dtype("<u8")
_HALF = np.dtype("<u4")

# Items of a block sorted by nodes, and uint64 [nodes], where those of each node begin and end.
Stood = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]


class RowNodes:
    """The rows of one tree in a run of blocks, which are taken, and kept, in order; a context manager."""

    def __init__(self, sampler: Sampler, tree: int, kept: Path | None, out: Path | None) -> None:
        """kept: the file of the last pass that wrote one, None to draw the bag.

        out: where to keep the rows, None for nowhere.
        """
        self._sampler = sampler
        self._tree = tree
        self._kept = kept
        self._out = out
        self._files = ExitStack()
        self._source: FileIO | None = None
        self._sink: FileIO | None = None

    def __enter__(self) -> RowNodes:
        if self._kept is not None:
            [kept] = self._files.enter_context(downloads([self._kept]))
            self._source = self._files.enter_context(kept.open("rb", buffering=0))
        if self._out is not None:
            out = self._files.enter_context(write_atomically(self._out))
            self._sink = self._files.enter_context(out.open("xb", buffering=0))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)

    def take(
        self, block: int, rows: int, target: NDArray[np.uint16] | None, nodes: int, items: NDArray[np.uint64]
    ) -> Stood:
        """The rows of the next block; nodes that were not there when they were kept have none.

        rows    of the block
        target  their classes, None where numbers are predicted; items: room for the items, uint64 [BLOCK_ROWS]

        Raises FormatError for a damaged file, and DataError where a row weighs too much.
        """
        begin, end = np.zeros(nodes, np.uint64), np.zeros(nodes, np.uint64)
        if self._source is None:
            bag = weighed_block(self._sampler, self._tree, block)
            here = items[: np.count_nonzero(bag)]
            pack_rows(target, bag, here)
            end[0] = here.size
            return here, begin, end
        head = self._read(3)
        kept, known, expected = head.tolist()
        if kept > rows or known > nodes:
            raise self._damaged()
        words = self._read(_words(known, kept))
        halves = words.view(_HALF)
        here = items[:kept]
        with np.errstate(over="ignore"):
            same = int(checksum(head[:2], words)) == expected
        if not same or not unpack_places(halves[2 * known : 2 * known + kept], rows, target, here):
            raise self._damaged()
        begin[:known], end[:known] = halves[:known], halves[known : 2 * known]
        return here, begin, end

    def keep(self, items: NDArray[np.uint64], begin: NDArray[np.uint64], end: NDArray[np.uint64]) -> None:
        """Write the rows of the block that was taken last, where they are to be kept."""
        if self._sink is None:
            return
        nodes = begin.size
        words = np.zeros(_words(nodes, items.size), _WORD)
        halves = words.view(_HALF)
        halves[:nodes], halves[nodes : 2 * nodes] = begin, end
        pack_places(items, halves[2 * nodes : 2 * nodes + items.size])
        with np.errstate(over="ignore"):
            head = np.array([items.size, nodes, 0], _WORD)
            head[2] = checksum(head[:2], words)
        write_whole(self._sink, head)
        write_whole(self._sink, words)

    def _read(self, words: int) -> NDArray[Any]:
        assert self._source is not None
        found = np.empty(words, _WORD)
        if self._source.readinto(found.data) != found.nbytes:
            raise self._damaged()
        return found

    def _damaged(self) -> FormatError:
        return FormatError(f"{self._kept}: the file is damaged; start the training again")


def _words(nodes: int, rows: int) -> int:
    return nodes + (rows + 1) // 2
