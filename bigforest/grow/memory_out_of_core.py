"""What growing by passes takes, and what fits into a budget of it."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from bigforest.common.memory_estimate import Shape
from bigforest.grow.families.perceptron_passes import HELD_ROW
from bigforest.grow.out_of_core.node_stats import NodeStats
from bigforest.grow.out_of_core.random_search import OWN_VALUE
from bigforest.grow.out_of_core.row_file import TAG
from bigforest.grow.out_of_core.upper_tree import MemoryLimits
from bigforest.grow.shared.memory_in_memory import (
    COPIED,
    NODE,
    ON_FEATURES,
    PROJECTED,
    TERM,
    WEIGHED,
    base_bytes,
    drawn_from,
    extra_bytes,
    max_pairs,
    space_row,
    target_bytes,
    tree_bytes,
    written_bytes,
)
from bigforest.sampling.bags import BLOCK_ROWS, bag_size, block_count, draws_bytes, kept_trees
from bigforest.schema.config import TrainConfig

# Fewest bag rows that a node grown in memory should have room for.
_LEAST_ROWS = 4_096
# Counts of the histogram of one feature, at most.
_MOST_CELLS = 1 << 18
# Bytes of a node whose threshold is looked up: half of the nodes are split.
_LOOKED_UP = 20
# Bytes of a level that a node in the upper part of a tree lists, once levels are no longer bits.
_LISTED_ABOVE = 12
# Bytes of a count that a node keeps until its bucket has been looked into; most buckets never are.
_KEPT_COUNT = 8
# A node has one part in this many of the room for its counts, or its keys: while it is judged, a count of its
# histograms takes as many bytes as this, and a key as many as Passes.judged.
_NODES = 8
_JUDGED = 48
# Bytes of a count of a category besides, which may take all the room, while its levels are put in order, and of lists
# of levels for each count that there is room for.
_ORDERED = 96
LISTS = 16
# Nodes that are split by passes are this many times the bag's rows over those that are grown in memory: children are of
# unequal size, and come at several depths.
_TOP = 4


def tally_of(shape: Shape) -> NodeStats:
    """What passes over the table count."""
    return NodeStats(0 if shape.extras.numbers else shape.classes, shape.extras.weighted)


def decoded_bytes(shape: Shape) -> int:
    """Bytes of a value of the table in scratch (grow/out_of_core/decoded_table.py), as far as is known."""
    return 1 if shape.bits else 8


class PassMemory(NamedTuple):
    """What growing by passes takes, in bytes.

    drawn  histograms of a node, at most
    block  of the current block, in each task
    picked of its rows by node, besides, in each task that writes them to disk
    row    of a row of a subtree, besides what every family's takes: its columns, as they are grown on
    node   of a node of a finished subtree, besides
    kept   for all trees that grow together
    judged of a row that is collected, while its node is judged
    asks   counts that a node asks for at once, where their number is given

    And how often the table is read: `level` times for a level of the trees, `before` times before the first.
    """

    drawn: int
    block: int
    picked: int
    row: int
    node: int = 0
    kept: int = 0
    asks: int = 0
    level: int = 2
    before: int = 0
    judged: int = 96


def passes_take(shape: Shape, config: TrainConfig) -> PassMemory:
    """What growing this forest by passes takes."""
    if config.family in ON_FEATURES:
        drawn = shape.features if config.feature_fraction is not None else config.drawn_features(shape.features)
        target = target_bytes(shape)
        picked = BLOCK_ROWS * (shape.row_bytes + target)
        block = picked + BLOCK_ROWS * (36 + (8 + target) * (drawn + 1))
        own = OWN_VALUE * shape.features if config.splitter == "random" else 0
        row = 2 * shape.row_bytes + target + own  # codes by columns and by rows
        return PassMemory(drawn, block, picked, row, judged=64 if shape.extras.numbers else 48)
    terms = math.ceil(TERM * config.max_terms(shape.features))
    if config.in_subspaces:
        return _subspaces_take(shape, config, terms)
    if config.family == "rotation":
        axes = drawn_from(shape.features, config)
        drawn = axes if config.feature_fraction is not None else config.drawn_features(axes)
        # Values of a row three times, its projections twice when they are written.
        block = BLOCK_ROWS * (24 * shape.features + 8 * axes + 68 + 12 * (drawn + 1))
        kept = 24 * axes * shape.features * kept_trees(shape, config)
        # The range of the axes is asked for, and what these are may follow from the rows.
        picked = BLOCK_ROWS * 8 * axes
        return PassMemory(drawn, block, picked, 24 * axes, terms, kept, before=1 + (config.rotation == "pca"))
    pairs, of_tree = max_pairs(shape, config), config.mean_difference_scope == "tree"
    drawn = config.drawn_projections(shape.features) + pairs
    # What is collected of a row, for each direction, besides its values.
    block = BLOCK_ROWS * (8 * shape.features + 68 + 12 * (drawn + 1))
    # Of each cell the value, its code by columns and by rows, the distinct values, and their steps.
    row = (24 + (4 if pairs else 0)) * shape.features + PROJECTED + (8 * pairs if of_tree else 0)
    kept = 12 * shape.features * pairs * kept_trees(shape, config)
    of_node = pairs > 0 and not of_tree
    picked = BLOCK_ROWS * 8 * shape.features
    before = int(pairs > 0 and of_tree)
    return PassMemory(drawn, block, picked, row + terms, terms, kept, level=2 + of_node, before=before)


def _subspaces_take(shape: Shape, config: TrainConfig, terms: int) -> PassMemory:
    """`passes_take` of trees in subspaces, whose nodes have this many bytes of terms: sums for means, then the
    stops."""
    seen = drawn_from(shape.features, config)
    value = decoded_bytes(shape)
    # Values of a row, those that a tree sees copied, and once more to be written.
    picked = BLOCK_ROWS * value * seen
    block = BLOCK_ROWS * (value * shape.features + 80) + picked
    row = 2 * value * seen + space_row(shape, config) + WEIGHED + terms
    asks = max(2 * seen * shape.classes, config.steps * (shape.classes + 1))
    return PassMemory(1, block, picked, row, terms, asks=asks, level=2 if config.family == "subspace-cap" else 1)


def limits_for(shape: Shape, config: TrainConfig, workers: int, budget: int) -> MemoryLimits | None:
    """What fits into the budget, None if too little does."""
    takes, stats = passes_take(shape, config), tally_of(shape)
    base = base_bytes(shape, config) + kept_trees(shape, config) * draws_bytes(shape, config) + takes.kept
    # While rows are written nothing is asked.
    free = budget - base - workers * takes.block
    written = takes.picked + TAG * BLOCK_ROWS
    if free < workers * written:
        return None
    # A count is 4 bytes in every task, of numbers 8, and once more while tasks are added up. A key is in one task only,
    # and there twice while the blocks are joined.
    cell = np.dtype(stats.cell).itemsize
    category = shape.extras.category
    count = cell * (workers + 1) + _KEPT_COUNT + max(_JUDGED, takes.judged) // _NODES
    room = free // (count + _ORDERED + LISTS if category else count)
    cells = min(_MOST_CELLS, room // (_NODES * takes.drawn))
    # A subtree is grown, and later written, each with all that is left of the budget, and where levels are listed the
    # upper part of the tree with half of it.
    own = (budget - base) // workers - COPIED
    rows = _most_rows(shape, takes, own // 2 if category else own)
    if cells < 4 * stats.parts or rows < _LEAST_ROWS or room < max(category * stats.parts, takes.asks):
        return None
    upper = _top_splits(shape, config, rows) * (category // 2) * _LISTED_ABOVE
    if upper > own // 2 or listed_bytes(shape, config, rows) > LISTS * room:
        return None
    # The values of a dictionary come before all else, and leave half for the blocks that are looked up; nothing is
    # counted while perceptrons are trained.
    held = max(own - takes.block - written, 0)
    return MemoryLimits(rows, max(room // _NODES, 1), cells, room, nodes=own // _LOOKED_UP, values=own // 16, held=held)


def learning_passes(shape: Shape, config: TrainConfig, limits: MemoryLimits) -> int:
    """How often a level of the trees takes the rows to learn perceptrons: once where those of a node can be held."""
    if config.family != "subspace-perceptron":
        return 0
    return 1 if shape.rows * (space_row(shape, config) + HELD_ROW) <= limits.held else config.max_epochs + 1


def _most_rows(shape: Shape, takes: PassMemory, memory: int) -> int:
    """Rows of a node that can be grown in so much memory, and written; it has two nodes per row at most."""

    def needed(rows: int) -> int:
        nodes = 2 * rows
        grown = rows * (8 + takes.row) + tree_bytes(rows, nodes, shape.classes)
        written = written_bytes(shape.classes) + nodes * (20 + NODE + 8 * shape.classes) + rows * takes.node
        return max(grown, written) + extra_bytes(shape, rows, nodes)

    return bisect_right(range(max(memory, 0)), memory, key=needed) - 1


def _top_splits(shape: Shape, config: TrainConfig, rows: int) -> int:
    """About how many nodes of a tree are split by passes where those of this many rows are grown in memory."""
    return _TOP * -(-bag_size(shape.rows, config) // rows)


def small_chunks(shape: Shape, config: TrainConfig, limits: MemoryLimits) -> int:
    """About how often a block holds rows of a small node of a tree, at most."""
    return _top_splits(shape, config, limits.rows) * block_count(shape.rows)


def listed_bytes(shape: Shape, config: TrainConfig, rows: int) -> int:
    """Bytes of the levels that the nodes of `_top_splits` list, as bits, twice while rows are sent down."""
    return 2 * _top_splits(shape, config, rows) * -(-shape.extras.category // 8)
