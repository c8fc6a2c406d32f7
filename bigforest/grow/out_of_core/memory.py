"""The memory of growing by passes, and the limits within a budget."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from bigforest.common.memory_estimate import Shape
from bigforest.grow.out_of_core.context import MemoryLimits, NodeStats
from bigforest.grow.out_of_core.row_file import TAG
from bigforest.grow.shared.memory import (
    COPIED,
    NODE,
    PassMemory,
    base_bytes,
    extra_bytes,
    tree_bytes,
    written_bytes,
)
from bigforest.sampling.bags import BLOCK_ROWS, bag_size, block_count, draws_bytes, kept_trees
from bigforest.schema.config import TrainConfig

# Fewest bag rows for which a subtree grown in memory must have room.
_LEAST_ROWS = 4_096
# Counts of the histogram of one feature, at most.
_MOST_CELLS = 1 << 18
# Bytes of a node whose threshold is looked up: half of the nodes are split.
_LOOKED_UP = 20
# Bytes of a level that a node in the upper part of a tree lists, once levels are no longer bits.
_LISTED_ABOVE = 12
# Bytes of a count that a node keeps until its bucket is opened; most buckets never are.
_KEPT_COUNT = 8
# A node has one part in this many of the room for its counts, or its keys: while it is scored, a count of its
# histograms takes as many bytes as this, and a key as many as Passes.scored.
_NODES = 8
_SCORED = 48
# Bytes of a count of a category besides, which may take all the room, while its levels are put in order, and of lists
# of levels for each count that there is room for.
_ORDERED = 96
LISTS = 16
# Nodes that are split by passes are this many times the bag's rows over those that are grown in memory: children are of
# unequal size, and come at several depths.
_TOP = 4


def limits_for(shape: Shape, config: TrainConfig, takes: PassMemory, workers: int, budget: int) -> MemoryLimits | None:
    """The limits within the budget; None if it is too small."""
    stats = NodeStats.of(shape)
    base = base_bytes(shape, config) + kept_trees(shape, config) * draws_bytes(shape, config) + takes.kept
    # While rows are written nothing is requested.
    free = budget - base - workers * takes.block
    written = takes.picked + TAG * BLOCK_ROWS
    if free < workers * written:
        return None
    # A count is 4 bytes in every task, for regression 8, and once more while tasks are added up. A key is in one task
    # only, and there twice while the blocks are joined.
    cell = np.dtype(stats.cell).itemsize
    category = shape.extras.category
    count = cell * (workers + 1) + _KEPT_COUNT + max(_SCORED, takes.scored) // _NODES
    room = free // (count + _ORDERED + LISTS if category else count)
    cells = min(_MOST_CELLS, room // (_NODES * takes.drawn))
    # A subtree is grown, and later written, each with all that is left of the budget, and where levels are listed the
    # upper part of the tree with half of it.
    share = (budget - base) // workers - COPIED
    rows = _most_rows(shape, takes, share // 2 if category else share)
    if cells < 4 * stats.parts or rows < _LEAST_ROWS or room < max(category * stats.parts, takes.asks):
        return None
    upper = _top_splits(shape, config, rows) * (category // 2) * _LISTED_ABOVE
    if upper > share // 2 or listed_bytes(shape, config, rows) > LISTS * room:
        return None
    # The values of a dictionary come before all else, and leave half for the blocks that are looked up; nothing is
    # counted while perceptrons are trained.
    training = max(share - takes.block - written, 0)
    return MemoryLimits(
        rows, max(room // _NODES, 1), cells, room, nodes=share // _LOOKED_UP, values=share // 16, training=training
    )


def learning_passes(shape: Shape, takes: PassMemory, limits: MemoryLimits) -> int:
    """How often a level of the trees reads the rows to train perceptrons: once if the rows of a node fit into
    memory."""
    if not takes.epochs:
        return 0
    return 1 if shape.rows * takes.trained <= limits.training else takes.epochs + 1


def _most_rows(shape: Shape, takes: PassMemory, memory: int) -> int:
    """Rows of a node that can be grown in so much memory, and written; it has two nodes per row at most."""

    def needed(rows: int) -> int:
        nodes = 2 * rows
        grown = rows * (8 + takes.row) + tree_bytes(rows, nodes, shape.classes)
        written = written_bytes(shape.classes) + nodes * (20 + NODE + 8 * shape.classes) + rows * takes.node
        return max(grown, written) + extra_bytes(shape, rows, nodes)

    return bisect_right(range(max(memory, 0)), memory, key=needed) - 1


def _top_splits(shape: Shape, config: TrainConfig, rows: int) -> int:
    """About how many nodes of a tree are split by passes if nodes of this many rows are grown in memory."""
    return _TOP * -(-bag_size(shape.rows, config) // rows)


def small_chunks(shape: Shape, config: TrainConfig, limits: MemoryLimits) -> int:
    """About how often a block holds rows of a small node of a tree, at most."""
    return _top_splits(shape, config, limits.rows) * block_count(shape.rows)


def listed_bytes(shape: Shape, config: TrainConfig, rows: int) -> int:
    """Bytes of the levels that the nodes of `_top_splits` list, as bits, twice while rows are sent down."""
    return 2 * _top_splits(shape, config, rows) * -(-shape.extras.category // 8)
