"""The nodes of the rows of a bag between passes: on disk, block by block, rows sorted by node.

So a pass routes rows through the newest splits alone, and a bag is drawn once or twice. A file (storage/array_file.py)
has the rows of one tree in one run of blocks, a block of it for each:

    begin, end  uint32 [nodes]  where the rows of each node begin and end; of an inner node, all that passed it
    places      uint32 [rows]   row of the block << 16 | multiplicity, times weight

Each pass that routes rows writes a new file, and each attempt of a task its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.shared.weighted_bags import weighed_block
from bigforest.kernels.out_of_core.row_files import pack_places, unpack_places
from bigforest.kernels.tree.bags import pack_rows
from bigforest.sampling.bags import Sampler
from bigforest.storage.array_file import ArrayFile, damaged, writing_arrays
from bigforest.storage.paths import downloads

# Bytes of a row in such a file.
ROW_NODE_BYTES = 4

_TYPES = {"begin": "<u4", "end": "<u4", "places": "<u4"}

# Items of a block sorted by nodes, and uint64 [nodes], where those of each node begin and end.
Stood = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]


class RowNodes:
    """The rows of one tree in a run of blocks, taken and kept in order; a context manager."""

    def __init__(self, sampler: Sampler, tree: int, kept: Path | None, out: Path | None) -> None:
        """kept: the file of the last pass that wrote one, None to draw the bag.

        out: where to keep the rows, None for nowhere.
        """
        self._sampler = sampler
        self._tree = tree
        self._kept = kept
        self._out = out
        self._files = ExitStack()
        self._source: tuple[ArrayFile, FileIO] | None = None
        self._taken = 0
        self._sink: Callable[..., None] | None = None

    def __enter__(self) -> RowNodes:
        if self._kept is not None:
            [kept] = self._files.enter_context(downloads([self._kept]))
            source = ArrayFile.of(kept, _TYPES)
            self._source = source, self._files.enter_context(source.reading())
        if self._out is not None:
            self._sink = self._files.enter_context(writing_arrays(self._out, _TYPES))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)

    def take(
        self, block: int, rows: int, target: NDArray[np.uint16] | None, nodes: int, items: NDArray[np.uint64]
    ) -> Stood:
        """The rows of the next block; nodes that are newer than the file have none.

        rows    of the block
        target  their classes, None for regression; items: room for the items, uint64 [BLOCK_ROWS]

        Raises FormatError for a damaged file, and DataError where a row weighs too much.
        """
        begin, end = np.zeros(nodes, np.uint64), np.zeros(nodes, np.uint64)
        if self._source is None:
            bag = weighed_block(self._sampler, self._tree, block)
            here = items[: np.count_nonzero(bag)]
            pack_rows(target, bag, here)
            end[0] = here.size
            return here, begin, end
        source, file = self._source
        if self._taken >= source.blocks:
            raise damaged(source.path)
        starts, ends, places = source.block(file, self._taken)
        self._taken += 1
        known, here = starts.size, items[: places.size]
        sound = places.size <= rows and known == ends.size <= nodes
        if not sound or not unpack_places(places, rows, target, here):
            raise damaged(source.path)
        begin[:known], end[:known] = starts, ends
        return here, begin, end

    def keep(self, items: NDArray[np.uint64], begin: NDArray[np.uint64], end: NDArray[np.uint64]) -> None:
        """Write the rows of the block that was taken last, if they are to be kept."""
        if self._sink is None:
            return
        places = np.empty(items.size, np.uint32)
        pack_places(items, places)
        self._sink(begin, end, places)
