"""Memory of growing: what a family declares (TreeMemory, PassMemory), and bytes that all families need."""

from __future__ import annotations

from typing import NamedTuple

from bigforest.forest.format import GROUP_ENTRIES, GROUP_NODES
from bigforest.forest.ranks import CODE_BYTES
from bigforest.kernels.scan.level_order import levels_bytes
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import BASE_BYTES, Shape

# Bytes of a row of a growing tree in addition to its codes: its item 8, and scratch 32.
ROW = 40
# Most bytes of each thread: 1.3 MB for a copy of the codes or values of a small subtree, which fits the cache of one
# core (kernels/columns/code_cache.py), and 1.2 MB for features side by side (kernels/scan/two_class.py).
COPIED = 2_500_000
# Bytes of a node of a finished tree except for its counts: in codes 20, in values 40.
NODE = 60
# Bytes of a node while its tree is cut (cut.py).
_CUT_NODE = 48
# Bytes of a node of a row group on its way into a Parquet file, except for its counts.
_WRITTEN = 200
# Bytes of a level that a node lists, twice because lists are copied; and of a listed level on its way into Parquet.
_LISTED = 8
_WRITTEN_LEVEL = 24
# Bytes of a level while its value is found: sizes and groups 24, the value in single precision and in a dictionary 12.
_LEVEL_VALUE = 36
# Further bytes of a row, and of a node, of a growing regression tree.
_NUMBER = 24
_NUMBER_NODE = 24


class TreeMemory(NamedTuple):
    """Bytes of growing whole trees, in addition to what all families need.

    shared  for all trees together
    tree    for each call of the kernel
    store   data of the store that is read at random, so it must stay in memory
    """

    shared: int
    tree: int
    store: int


class PassMemory(NamedTuple):
    """Memory of growing by passes, in addition to what all families need, and the number of passes.

    drawn    most histograms of a node
    block    bytes of the current block, in each task
    picked   bytes of the rows of the block by node, in each task that writes them to disk
    row      bytes of a row of a subtree: its columns
    spilled  bytes of a row of a subtree on disk: its columns
    node     bytes of a node of a finished subtree
    kept     bytes for all trees that grow together
    scored   bytes of a collected row, while its node is scored
    asks     counts that a node requests at once; 0 if they depend on its rows
    level    passes for a level of the trees
    before   passes before the first level
    trained  bytes of a row of a node while a perceptron is trained in memory
    epochs   training passes of a perceptron. A level takes one more pass if the rows of a node fit in memory, else
             epochs + 1 more
    decoded  bytes of a row in scratch, if values are written to scratch first
    sweeps   number of times that codes are read for each range of a dictionary
    """

    drawn: int
    block: int
    picked: int
    row: int
    spilled: int
    node: int = 0
    kept: int = 0
    scored: int = 96
    asks: int = 0
    level: int = 2
    before: int = 0
    trained: int = 0
    epochs: int = 0
    decoded: int = 0
    sweeps: int = 0


def tree_bytes(rows: int, nodes: int, classes: int) -> int:
    """Return the bytes of growing a tree of `rows` different rows: rows, and nodes twice while they are copied."""
    return rows * ROW + nodes * max(2 * (20 + 4 * classes), NODE + 4 * classes)


def cut_bytes(config: TrainConfig, classes: int) -> int:
    """Return the bytes of a node while its tree is cut: scratch, and the node once more; 0 if trees are not cut."""
    return _CUT_NODE + NODE + 4 * classes if config.cuts else 0


def written_bytes(classes: int) -> int:
    """Return the bytes of a row group on its way into a Parquet file."""
    return GROUP_NODES * (_WRITTEN + 16 * classes)


def extra_bytes(shape: Shape, rows: int, nodes: int) -> int:
    """Return the further bytes of a tree of this many rows and nodes for categories, missing values and regression."""
    extras = shape.extras
    size = _NUMBER * rows + _NUMBER_NODE * nodes if extras.regression else 0
    if extras.non_plain_features:
        levels = min(rows, extras.category)
        # A node lists the levels of its lighter child: at most all levels but one, if that one is heavy. All nodes of
        # one depth together list at most about half as many levels as they have rows.
        listed = min(nodes // 2 * max(levels - 1, 0), rows // 2 * rows.bit_length())
        size += levels_bytes(extras.category, rows, shape.classes) + 5 * nodes
        size += _LISTED * listed + _WRITTEN_LEVEL * min(listed, GROUP_ENTRIES)
    return size


def base_bytes(shape: Shape, config: TrainConfig) -> int:
    """Return the bytes of a process after all imports, of ranks if trees split on them, and of values of levels."""
    ranks = 8 * shape.codes + CODE_BYTES * min(shape.rows, shape.codes) if config.ranks else 0
    return BASE_BYTES + ranks + _LEVEL_VALUE * shape.extras.levels


def target_bytes(shape: Shape) -> int:
    """Return the bytes of the regression target of a row; classes are in the items."""
    return 8 if shape.extras.regression else 0


def code_bytes(shape: Shape) -> int:
    """Return the bytes of the codes and targets of a table, which growing in memory reads at random."""
    return shape.rows * (shape.row_bytes + target_bytes(shape))
