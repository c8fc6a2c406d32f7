"""The nodes of the rows of a bag between passes: on disk, block by block, rows sorted by node.

So a pass routes rows through the newest splits alone, and a bag is drawn once or twice. A file (storage/array_file.py)
has the rows of one tree in one run of blocks, a block of it for each:

    begin, end  uint32 [nodes]  where the rows of each node begin and end; of an inner node, all that passed it
    places      uint32 [rows]   row of the block << 16 | multiplicity, times weight

Each pass that routes rows writes a new file, and each attempt of a task its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.node_scan import SHIFT32
from bigforest.kernels.out_of_core.row_files import pack_places, unpack_places
from bigforest.kernels.tree.bags import pack_rows
from bigforest.sampling.bags import Sampler
from bigforest.storage.array_file import ArrayFile, damaged, writing_arrays
from bigforest.storage.paths import downloads

# Bytes of a row in such a file.
ROW_NODE_BYTES = 4

_TYPES = {"begin": "<u4", "end": "<u4", "places": "<u4"}
# In place of a block where there is none: a block has the root at least.
_NOTHING = [np.empty(0, np.uint32)] * 3

# Items of a block sorted by nodes, and uint64 [nodes], where those of each node begin and end.
NodeItems = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]


def numbered(tags: NDArray[Any]) -> NDArray[np.uint64]:
    """The items of the rows 0, 1, ..., from their lower halves."""
    items = np.arange(tags.size, dtype=np.uint64)
    items <<= SHIFT32
    items |= tags
    return items


@contextmanager
def row_nodes(
    sampler: Sampler, tree: int, kept: Path | None, out: Path | None
) -> Iterator[tuple[Callable[..., NodeItems], Callable[..., None]]]:
    """The rows of one tree in a run of blocks: gives what takes those of the next block, and what keeps them.

    kept  the file of the last pass that wrote one, None to draw the bag.
    out   where to keep the rows, None for nowhere.
    """
    with ExitStack() as files:
        blocks = None
        if kept is not None:
            [here] = files.enter_context(downloads([kept]))
            blocks = files.enter_context(closing(ArrayFile.of(here, _TYPES).each()))
        sink = None if out is None else files.enter_context(writing_arrays(out, _TYPES))

        def take(
            block: int, rows: int, target: NDArray[np.uint16] | None, nodes: int, items: NDArray[np.uint64]
        ) -> NodeItems:
            """The `rows` rows of a block; nodes that are newer than the file have none.

            target  their classes, None for regression; items: room for the items, uint64 [BLOCK_ROWS]

            Raises FormatError for a damaged file, and DataError where a row weighs too much.
            """
            begin, end = np.zeros(nodes, np.uint64), np.zeros(nodes, np.uint64)
            if kept is None or blocks is None:
                bag = sampler.weighed_block(tree, block)
                here = items[: np.count_nonzero(bag)]
                pack_rows(target, bag, here)
                end[0] = here.size
                return here, begin, end
            starts, ends, places = next(blocks, _NOTHING)
            known, here = starts.size, items[: places.size]
            sound = places.size <= rows and 0 < known == ends.size <= nodes
            if not sound or not unpack_places(places, rows, target, here):
                raise damaged(kept)
            begin[:known], end[:known] = starts, ends
            return here, begin, end

        def keep(items: NDArray[np.uint64], begin: NDArray[np.uint64], end: NDArray[np.uint64]) -> None:
            """Write the rows of the block that was taken last, if they are to be kept."""
            if sink is not None:
                places = np.empty(items.size, np.uint32)
                pack_places(items, places)
                sink(begin, end, places)

        yield take, keep
