"""What growing whole trees takes in memory, and what of it growing parts of them takes as well."""

from __future__ import annotations

import math

from bigforest.common.memory_estimate import BASE_BYTES, Shape
from bigforest.forest.format.schema import GROUP_ENTRIES, GROUP_NODES
from bigforest.forest.votes.leaf_files import FILE_BYTES
from bigforest.grow.shared.rank_store import CODE_BYTES
from bigforest.kernels.categories.ordering import levels_bytes
from bigforest.kernels.columns.decoded import WIDE_CODE
from bigforest.kernels.subspace.bits import WORD
from bigforest.sampling.bags import distinct_rows, draws_bytes, max_nodes
from bigforest.schema.config import TrainConfig
from bigforest.schema.options import SUBSPACE_FAMILIES

# Rows of the bags of trees that grow in one call of the kernel, at most, unless one has more.
_ROWS_TOGETHER = 1 << 17
# Bytes of a row of a growing tree besides its codes: its item 8, and scratch 24.
_ROW = 32
# The copy of a subtree's codes or values that each thread keeps in its cache (kernels/columns/code_cache.py,
# kernels/columns/value_cache.py), at most.
COPIED = 1_800_000
# Bytes of a node of a finished tree besides its counts: in codes 20, in values 40.
NODE = 60
# Bytes of a node of a row group on its way into a Parquet file, besides its counts, and of a term of one.
_WRITTEN = 200
_WRITTEN_TERM = 64
# Families that split on features, and others that grow by passes, too, over values instead of codes.
ON_FEATURES = ("axis", "tree")
BY_VALUES = ("sparse-oblique", "rotation", *SUBSPACE_FAMILIES)
# Bytes of a level that a node lists: twice while the lists are copied, and on its way into a Parquet file.
_LISTED = 8
_WRITTEN_LEVEL = 24
# Bytes of a row of a growing tree that predicts numbers, besides, and of a node of it; of a row that has a weight.
_NUMBER = 24
_NUMBER_NODE = 24
_WEIGHT = 8
# Bytes of a row of a growing tree of oblique splits besides: projections on two directions 16, what orders them 26.
PROJECTED = 42
# And of trees in subspaces: the row by class 4, its projection 8.
WEIGHED = 12
# Bytes of a term of a growing tree, twice while it is copied.
TERM = 24
# Bytes per row of the table while columns are measured one at a time.
_MEASURED = 48


def drawn_from(features: int, config: TrainConfig) -> int:
    """How many columns a node draws from: the axes of a rotated table, the subspace of the tree, or the features."""
    if config.in_subspaces and config.subspace_per == "tree":
        return config.subspace_size(features)
    return config.axes or features


def seen_as_bits(shape: Shape, config: TrainConfig) -> bool:
    """Whether trees in subspaces see the table as bits, see kernels/subspace/bits.py.

    Weights of bits have 32 bits. The square of a perceptron's weights grows by at most the ones of a row, the constant
    one included, with every mistake (Novikoff 1962).
    """
    mistakes = 0 if config.family == "subspace-cap" else shape.rows * config.max_epochs
    return shape.bits and not config.ranks and mistakes * (shape.features + 1) ** 2 < 2**62


def tree_bytes(rows: int, nodes: int, classes: int) -> int:
    """Growing a tree of `rows` different rows: the rows, and the nodes twice while they are copied."""
    return rows * _ROW + nodes * max(2 * (20 + 4 * classes), NODE + 4 * classes)


def trees_together(shape: Shape, config: TrainConfig) -> int:
    """Trees that grow in one call of the kernel: some small ones that split on features, of others one."""
    if config.family not in ON_FEATURES:
        return 1
    return max(1, min(config.trees, _ROWS_TOGETHER // distinct_rows(shape.rows, config, shape.classes)))


def written_bytes(classes: int) -> int:
    """A row group on its way into a Parquet file."""
    return GROUP_NODES * (_WRITTEN + 16 * classes)


def in_memory(shape: Shape, config: TrainConfig, workers: int) -> int:
    """Growing this many whole trees at a time."""
    together = trees_together(shape, config)
    rows = together * distinct_rows(shape.rows, config, shape.classes)
    nodes = together * max_nodes(shape.rows, config, shape.classes)
    by_row = 0 if config.in_subspaces else shape.rows * shape.row_bytes
    tree = (
        COPIED
        + 4 * shape.rows
        + draws_bytes(shape, config)
        + tree_bytes(rows, nodes, shape.classes)
        + min(nodes, GROUP_NODES) * written_bytes(shape.classes) // GROUP_NODES
    )
    shared, own = _oblique_bytes(shape, config, rows, nodes // 2)
    own += extra_bytes(shape, rows, nodes) + (_WEIGHT * shape.rows if shape.extras.weighted else 0)
    own += _left_out_bytes(shape, config, together, nodes)
    return base_bytes(shape, config) + by_row + shared + workers * (tree + own)


def _left_out_bytes(shape: Shape, config: TrainConfig, together: int, nodes: int) -> int:
    """What finding the leaves of rows out of bag takes besides (left_out.py), for trees of this many nodes together.

    It begins when the rows of the bags are not needed any more.
    """
    if not config.bootstrap or config.family not in ON_FEATURES:
        return 0
    distinct = distinct_rows(shape.rows, config, shape.classes)
    out = shape.rows - round(0.8 * distinct)  # the bound holds for rows in a bag
    found = 8 * out * together + 8 * out + 4 * shape.rows - _ROW * distinct * together
    kept = together * 8 * out + nodes * (4 + 4 * shape.classes)
    return max(0, found) + 2 * min(FILE_BYTES + kept, config.trees * kept)


def extra_bytes(shape: Shape, rows: int, nodes: int) -> int:
    """What each tree of this many rows and nodes takes besides, for what is more than numbers and classes."""
    extras = shape.extras
    size = _NUMBER * rows + _NUMBER_NODE * nodes if extras.numbers else 0
    if extras.odd:
        levels = min(rows, extras.category)
        # A node lists at most half of its levels, and the nodes of one depth half of their rows together.
        listed = min(nodes // 2 * (levels // 2), rows // 2 * rows.bit_length())
        size += levels_bytes(extras.category, rows, shape.classes) + 5 * nodes
        size += _LISTED * listed + _WRITTEN_LEVEL * min(listed, GROUP_ENTRIES)
    return size


def base_bytes(shape: Shape, config: TrainConfig) -> int:
    """Bytes of a process that has loaded everything, and the ranks where trees split on them."""
    return BASE_BYTES + (8 * shape.codes + CODE_BYTES * min(shape.rows, shape.codes) if config.ranks else 0)


def _oblique_bytes(shape: Shape, config: TrainConfig, rows: int, splits: int) -> tuple[int, int]:
    """What oblique splits take besides: for all trees together, and for each tree of this many rows and splits."""
    if config.family in ON_FEATURES:
        return 0, 0
    terms = math.ceil(splits * config.max_terms(shape.features))
    tree = terms * TERM + min(terms, GROUP_ENTRIES) * _WRITTEN_TERM
    if config.in_subspaces:
        own = rows * WEIGHED + 8 * (config.steps + 1) * shape.classes
        return _space_bytes(shape, config, own + tree)
    shared = shape.rows * _MEASURED
    if config.family == "rotation":
        axes = drawn_from(shape.features, config)
        codes = 2 * 4 * axes * shape.rows  # by columns and by rows
        return shared, tree + codes + 24 * axes * rows + shape.rows * _MEASURED
    tree += rows * PROJECTED + 8 * config.drawn_projections(shape.features)
    shared += 8 * shape.rows * shape.widths.count(WIDE_CODE)
    if config.mean_difference != "none":
        pairs = max_pairs(shape, config)
        shared += 8 * shape.codes
        tree += 8 * shape.features * shape.classes
        tree += pairs * (8 * shape.rows + 12 * shape.features) if config.mean_difference_scope == "tree" else 0
    return shared, tree


def _space_bytes(shape: Shape, config: TrainConfig, tree: int) -> tuple[int, int]:
    """`_oblique_bytes` of trees in subspaces, which see copies of columns; `tree` is what each takes besides."""
    seen = drawn_from(shape.features, config)
    columns = shape.rows * space_row(shape, config)
    tree += 8 * -(-seen // WORD) * WORD * (shape.classes + 4)
    return (columns, tree) if seen == shape.features else (0, columns + tree)


def space_row(shape: Shape, config: TrainConfig) -> int:
    """Bytes of a row of the columns that a tree in a subspace sees, see kernels/subspace/columns.py."""
    seen = drawn_from(shape.features, config)
    return -(-seen // WORD) * WORD // 8 if seen_as_bits(shape, config) else 8 * seen


def store_bytes(shape: Shape, config: TrainConfig) -> int:
    """What of the store is read at random: the codes, and the values where they are projected or thresholds drawn."""
    if config.in_subspaces:  # read in order, column by column, once for each tree
        return 0
    values = 0 if config.family in ON_FEATURES and config.splitter == "best" else 8 * shape.codes
    return shape.rows * (shape.row_bytes + target_bytes(shape)) + values


def target_bytes(shape: Shape) -> int:
    """Bytes of the number to predict of a row; classes are in the items."""
    return 8 if shape.extras.numbers else 0


def max_pairs(shape: Shape, config: TrainConfig) -> int:
    """Differences of class means at most."""
    pairs = shape.classes * (shape.classes - 1) // 2 if config.mean_difference == "all" else shape.classes - 1
    return 0 if config.mean_difference == "none" else pairs
