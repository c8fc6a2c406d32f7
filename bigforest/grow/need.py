"""Whether a forest is grown in memory or by passes over the store, and what either needs."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bigforest.config import TrainConfig
from bigforest.errors import ConfigError
from bigforest.forest.table import GROUP_ENTRIES, GROUP_NODES
from bigforest.grow.frontier import buckets_for
from bigforest.grow.ranked import CODE_BYTES
from bigforest.grow.spill import BUFFER_BYTES
from bigforest.grow.standing import STANDING_ROW
from bigforest.grow.tally import Tally
from bigforest.grow.top import Limits
from bigforest.kernels.bits import WORD
from bigforest.memory import BASE_BYTES, Need, Shape
from bigforest.resources import Resources
from bigforest.sample import BLOCK_ROWS, bag_size, distinct_rows, draws_bytes, kept_trees, most_nodes

# A part holds about this many rows' worth of trees, so that its table stays small beside the codes.
_PART_ROWS = 1_000_000
# At least this many parts where trees allow, so that cores stay busy to the end and a crash loses little.
_PARTS = 16
# Trees that share passes at most: more save little, and their rows wait on disk together.
_MOST_TREES = 16
# Fewest bag rows that a node grown in memory should have room for.
_LEAST_ROWS = 4_096
# Bag rows from which a tree is divided among the workers of a cluster when there are fewer trees than workers, and
# subtrees for each of them: then the largest is not waited for long.
_SPREAD_ROWS = 1 << 20
_SUBTREES = 4
# Counts of the histogram of one feature, at most.
_MOST_CELLS = 1 << 18
# Bytes of a row of a growing tree besides its codes: its item 8, and scratch 20.
_ROW = 28
# The copy of a subtree's codes or values that each thread keeps in its cache (kernels/nearby.py, local.py), at most.
_COPIED = 1_800_000
# Bytes of a node of a finished tree besides its counts: in codes 20, in values 36.
_NODE = 56
# Bytes of a node whose threshold is looked up, besides its counts.
_LOOKED_UP = 72
# Bytes of a node of a row group on its way into a Parquet file, besides its counts, and of a term of one.
_WRITTEN = 200
_WRITTEN_TERM = 64
# Families that split on features, and others that grow by passes, too, over values instead of codes.
_ON_FEATURES = ("axis", "tree")
BY_VALUES = ("sparse-oblique", "rotation")
# Bytes of a level of a category while a node is split, and of a row of a level where classes are more than two.
_LEVEL = 52
_LEVEL_ROW = 12
# Bytes of a level that a node lists: twice while the lists are copied, and on its way into a Parquet file.
_LISTED = 8
_WRITTEN_LEVEL = 24
# And in the upper part of a tree that is split by passes, once its levels are no longer bits.
_LISTED_ABOVE = 12
# Bytes of a count of a category besides, while its levels are put in order, and of lists of levels for each count that
# there is room for.
_ORDERED = 48
_LISTS = 16
# Nodes that are split by passes are so many times the bag's rows over those that are grown in memory: children are of
# unequal size, and come at several depths.
_TOP = 4
# Bytes of a row of a growing tree that predicts numbers, besides, and of a node of it; of a row that has a weight.
_NUMBER = 24
_NUMBER_NODE = 24
_WEIGHT = 8
# Bytes of a row of a growing tree of oblique splits besides: projections on two directions 16, what orders them 26.
_PROJECTED = 42
# And of trees in subspaces: the row by class 4, its projection 8.
_WEIGHED = 12
# Bytes of a term of a growing tree, twice while it is copied, and of a finished one.
_TERM = 36
# Bytes per row of the table while columns are measured one at a time.
_MEASURED = 48


@dataclass(frozen=True, slots=True)
class Way:
    """How a forest is grown.

    workers  threads that fit
    limits   None: whole trees in memory. Otherwise large nodes are split by passes over the store.
    group    trees that share passes
    memory   most bytes of anonymous memory
    """

    workers: int
    limits: Limits | None
    group: int
    memory: int


def part_size(rows: int, trees: int) -> int:
    """Trees per part; a function of the task alone, so that the files do not depend on the machine."""
    return max(1, min(-(-trees // _PARTS), _PART_ROWS // rows))


def drawn_from(features: int, config: TrainConfig) -> int:
    """How many columns a node draws from: the axes of a rotated table, or the features."""
    return config.axes or features


def seen_as_bits(shape: Shape, config: TrainConfig) -> bool:
    """Whether trees in subspaces see the table as bits, see kernels/bits.py.

    Weights of bits have 32 bits. The square of a perceptron's weights grows by at most the ones of a row, the constant
    one included, with every mistake (Novikoff 1962).
    """
    mistakes = 0 if config.family == "subspace-cap" else shape.rows * config.max_epochs
    return shape.bits and not config.ranks and mistakes * (shape.features + 1) ** 2 < 2**62


def choose_way(shape: Shape, config: TrainConfig, resources: Resources) -> Way:
    """The fastest way that keeps within the budget. Raises ConfigError, naming the smallest budget, if there is none.

    In memory means: the codes and the growing trees together fit, so that no page of the store is read twice.
    """
    check_family(shape, config)
    budget = resources.memory
    for workers in range(resources.workers, 0, -1):
        memory = _in_memory(shape, config, workers)
        if budget is None or memory + _store_bytes(shape, config) <= budget:
            whole = Way(workers, None, config.trees, memory)
            return whole if resources.cluster is None else _spread(shape, config, resources.crew(workers).size, whole)
    assert budget is not None
    smallest = _smallest(shape, config)
    if not _by_passes(shape, config):
        raise ConfigError(
            f"{budget:,} bytes of memory do not do for growing this forest: {_why_whole(shape, config)}; the smallest "
            f"budget is {smallest:,} bytes"
        )
    for workers in range(resources.workers, 0, -1):
        limits = _limits(shape, config, workers, budget)
        if limits is not None:
            parts = _tally(shape).parts
            buckets = _passes(shape, config).drawn * buckets_for(shape.rows, parts, limits.cells)
            root = max(buckets, shape.extras.category) * parts
            lists = _LISTS * limits.room // max(_listed(shape, config, limits.rows), 1)
            group = max(1, min(kept_trees(shape, config), _MOST_TREES, limits.room // root, lists))
            return Way(workers, limits, group, budget)
    raise ConfigError(
        f"{budget:,} bytes of memory do not do for growing this forest; the smallest budget is {smallest:,} bytes"
    )


def check_family(shape: Shape, config: TrainConfig) -> None:
    """Raise ConfigError where trees of the family cannot be grown on what the table has."""
    extras = shape.extras
    if config.family in _ON_FEATURES:
        if config.ranks and extras.odd:
            raise ConfigError(
                f"ranks are of numbers, and categories or missing values are in {_some(extras.odd)}: exclude these "
                "columns, fill or convert them, or leave ranks away"
            )
        return
    if extras.odd:
        raise ConfigError(
            f"the family {config.family} projects numbers, and categories or missing values are in "
            f"{_some(extras.odd)}: exclude these columns, fill or convert them, or choose the family axis"
        )
    if extras.numbers:
        raise ConfigError(f"the family {config.family} is for classes; choose the family axis to predict numbers")
    if extras.weighted and config.in_subspaces:
        raise ConfigError(f"the family {config.family} weighs all rows alike; choose the family axis for weighted rows")


def _some(names: tuple[str, ...], most: int = 10) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + rest


def _by_passes(shape: Shape, config: TrainConfig) -> bool:
    """Whether trees may be grown by passes."""
    return config.family in (*_ON_FEATURES, *BY_VALUES) and config.splitter == "best"


def _why_whole(shape: Shape, config: TrainConfig) -> str:
    """Why trees are not grown by passes, in words."""
    if config.family not in (*_ON_FEATURES, *BY_VALUES):
        return f"trees of the family {config.family} grow whole in memory, those of the family axis need not"
    return "trees of random splits grow whole in memory, those of the best splits need not"


def _spread(shape: Shape, config: TrainConfig, size: int, whole: Way) -> Way:
    """The way for `size` tasks at once where whole trees fit: large trees that are too few for all are grown by passes
    until there are subtrees for all."""
    tasks = -(-config.trees // part_size(shape.rows, config.trees))
    bag = bag_size(shape.rows, config)
    if tasks >= size or bag < _SPREAD_ROWS or not _by_passes(shape, config):
        return whole
    limits = _limits(shape, config, whole.workers, whole.memory + _store_bytes(shape, config))
    if limits is None:
        return whole
    rows = min(limits.rows, bag * config.trees // (_SUBTREES * size))
    return replace(whole, limits=limits._replace(rows=rows), group=min(kept_trees(shape, config), _MOST_TREES))


def grow_need(shape: Shape, config: TrainConfig, resources: Resources) -> Need:
    """What growing needs. Where the budget is too small, `memory` is what the smallest one would take."""
    smallest = _smallest(shape, config)
    if resources.memory is not None and resources.memory < smallest:
        resources = replace(resources, memory=smallest)
    way = choose_way(shape, config, resources)
    if way.limits is None:
        return Need("grow", way.memory, smallest)
    rows = distinct_rows(shape.rows, config, shape.classes)
    by_values = config.family in BY_VALUES
    columns = 8 * drawn_from(shape.features, config) if by_values else shape.row_bytes
    scratch = way.group * rows * (columns + 4 + STANDING_ROW + _target_bytes(shape))
    scratch += 8 * shape.features * shape.rows if by_values else 0
    levels = max(math.ceil(math.log2(bag_size(shape.rows, config) / way.limits.rows)), 0)
    groups = -(-config.trees // way.group)
    return Need("grow", way.memory, smallest, scratch, groups * (2 * levels + 2), way.group)


def _tree_bytes(rows: int, nodes: int, classes: int) -> int:
    """Growing a tree of `rows` different rows: the rows, and the nodes twice while they are copied."""
    return rows * _ROW + nodes * max(2 * (20 + 4 * classes), _NODE + 4 * classes)


def _written(classes: int) -> int:
    return GROUP_NODES * (_WRITTEN + 16 * classes)


def _in_memory(shape: Shape, config: TrainConfig, workers: int) -> int:
    rows = distinct_rows(shape.rows, config, shape.classes)
    nodes = most_nodes(shape.rows, config, shape.classes)
    by_row = 0 if config.in_subspaces else shape.rows * shape.row_bytes
    tree = (
        _COPIED
        + 4 * shape.rows
        + draws_bytes(shape, config)
        + _tree_bytes(rows, nodes, shape.classes)
        + min(nodes, GROUP_NODES) * _written(shape.classes) // GROUP_NODES
    )
    shared, own = _oblique_bytes(shape, config, rows, nodes // 2)
    own += _extra_bytes(shape, rows, nodes) + (_WEIGHT * shape.rows if shape.extras.weighted else 0)
    return _base(shape, config) + by_row + shared + workers * (tree + own)


def _extra_bytes(shape: Shape, rows: int, nodes: int) -> int:
    """What each tree of so many rows and nodes takes besides, for what is more than numbers and classes."""
    extras = shape.extras
    size = _NUMBER * rows + _NUMBER_NODE * nodes if extras.numbers else 0
    if extras.odd:
        levels = min(rows, extras.category)
        # A node lists at most half of its levels, and the nodes of one depth half of their rows together.
        listed = min(nodes // 2 * (levels // 2), rows // 2 * rows.bit_length())
        size += 4 * extras.category + _LEVEL * levels + (_LEVEL_ROW * rows if shape.classes > 2 else 0) + 5 * nodes
        size += _LISTED * listed + _WRITTEN_LEVEL * min(listed, GROUP_ENTRIES)
    return size


def _base(shape: Shape, config: TrainConfig) -> int:
    """Bytes of a process that has loaded everything, and the ranks where trees split on them."""
    return BASE_BYTES + (8 * shape.codes + CODE_BYTES * min(shape.rows, shape.codes) if config.ranks else 0)


def _oblique_bytes(shape: Shape, config: TrainConfig, rows: int, splits: int) -> tuple[int, int]:
    """What oblique splits take besides: for all trees together, and for each tree of so many rows and splits."""
    if config.family in _ON_FEATURES:
        return 0, 0
    terms = math.ceil(splits * config.most_terms(shape.features))
    tree = terms * _TERM + min(terms, GROUP_ENTRIES) * _WRITTEN_TERM
    if config.in_subspaces:
        own = rows * _WEIGHED + 8 * (config.steps + 1) * shape.classes
        return _space_bytes(shape, config, own + tree)
    shared = shape.rows * _MEASURED
    if config.family == "rotation":
        axes = drawn_from(shape.features, config)
        codes = 2 * 4 * axes * shape.rows  # by columns and by rows
        return shared, tree + codes + 24 * axes * rows + shape.rows * _MEASURED
    tree += rows * _PROJECTED + 8 * config.drawn_projections(shape.features)
    if config.mean_difference != "none":
        pairs = _pairs(shape, config)
        shared += 8 * shape.codes
        tree += 8 * shape.features * shape.classes
        tree += pairs * (8 * shape.rows + 12 * shape.features) if config.mean_difference_scope == "tree" else 0
    return shared, tree


def _space_bytes(shape: Shape, config: TrainConfig, tree: int) -> tuple[int, int]:
    """`_oblique_bytes` of trees in subspaces, which see copies of columns; `tree` is what each takes besides."""
    size = config.subspace_size(shape.features)
    same = config.subspace_per == "node" or size == shape.features
    seen = shape.features if same else size
    width = seen
    row = 8 * seen
    if seen_as_bits(shape, config):
        width = -(-seen // WORD) * WORD
        row = width // 8
    columns = shape.rows * row
    tree += 8 * width * (shape.classes + 4)
    return (columns, tree) if same else (0, columns + tree)


def _store_bytes(shape: Shape, config: TrainConfig) -> int:
    """What of the store is read at random: the codes, and the values where they are projected or thresholds drawn."""
    if config.in_subspaces:  # read in order, column by column, once for each tree
        return 0
    values = 0 if config.family in _ON_FEATURES and config.splitter == "best" else 8 * shape.codes
    return shape.rows * (shape.row_bytes + _target_bytes(shape)) + values


def _target_bytes(shape: Shape) -> int:
    """Bytes of the number to predict of a row; classes are in the items."""
    return 8 if shape.extras.numbers else 0


def _tally(shape: Shape) -> Tally:
    """What passes over the table count."""
    return Tally(0 if shape.extras.numbers else shape.classes, shape.extras.weighted)


class _Passes(NamedTuple):
    """What growing by passes takes, in bytes.

    drawn  histograms of a node, at most
    block  of the block in hand
    row    of a row of a subtree, besides what every family's takes: its columns, as they are grown on
    node   of a node of a finished subtree, besides
    kept   for all trees that grow together
    """

    drawn: int
    block: int
    row: int
    node: int = 0
    kept: int = 0


def _passes(shape: Shape, config: TrainConfig) -> _Passes:
    if config.family in _ON_FEATURES:
        drawn = shape.features if config.feature_fraction is not None else config.drawn_features(shape.features)
        target = _target_bytes(shape)
        block = BLOCK_ROWS * (2 * (shape.row_bytes + target) + 36 + (8 + target) * (drawn + 1))
        return _Passes(drawn, block, 2 * shape.row_bytes + target)  # codes by columns and by rows
    terms = math.ceil(_TERM * config.most_terms(shape.features))
    if config.family == "rotation":
        axes = drawn_from(shape.features, config)
        drawn = axes if config.feature_fraction is not None else config.drawn_features(axes)
        # Values of a row three times, its projections twice.
        block = BLOCK_ROWS * (24 * shape.features + 16 * axes + 68 + 12 * (drawn + 1))
        return _Passes(drawn, block, 24 * axes, terms, 24 * axes * shape.features * kept_trees(shape, config))
    pairs, of_tree = _pairs(shape, config), config.mean_difference_scope == "tree"
    drawn = config.drawn_projections(shape.features) + pairs
    # Values of a row twice, before they are written; what is collected of it, for each direction.
    block = BLOCK_ROWS * (16 * shape.features + 68 + 12 * (drawn + 1))
    # Of each cell the value, its code by columns and by rows, the distinct values, and their steps.
    row = (24 + (4 if pairs else 0)) * shape.features + _PROJECTED + (8 * pairs if of_tree else 0)
    return _Passes(drawn, block, row + terms, terms, 12 * shape.features * pairs * kept_trees(shape, config))


def _pairs(shape: Shape, config: TrainConfig) -> int:
    """Differences of class means at most."""
    pairs = shape.classes * (shape.classes - 1) // 2 if config.mean_difference == "all" else shape.classes - 1
    return 0 if config.mean_difference == "none" else pairs


def _limits(shape: Shape, config: TrainConfig, workers: int, budget: int) -> Limits | None:
    """What fits into the budget, None if too little does."""
    takes, tally = _passes(shape, config), _tally(shape)
    base = _base(shape, config) + kept_trees(shape, config) * draws_bytes(shape, config) + takes.kept
    free = budget - base - workers * (takes.block + BUFFER_BYTES)
    # A count is 4 bytes in every task, of numbers 8, and 8 in the sum; judging it takes 40 more, and so does sorting a
    # key.
    count = np.dtype(tally.cell).itemsize * workers + 48
    category = shape.extras.category
    room = free // (count + _ORDERED + _LISTS if category else count)
    cells = min(_MOST_CELLS, room // (2 * takes.drawn))
    # A subtree is grown, and later written, each with all that is left of the budget, and where levels are listed the
    # upper part of the tree with half of it.
    own = (budget - base) // workers - _COPIED
    rows = _most_rows(shape, takes, own // 2 if category else own)
    if cells < 4 * tally.parts or rows < _LEAST_ROWS or room < category * tally.parts:
        return None
    upper = _top_splits(shape, config, rows) * (category // 2) * _LISTED_ABOVE
    if upper > own // 2 or _listed(shape, config, rows) > _LISTS * room:
        return None
    return Limits(rows=rows, keys=max(room // 4, 1), cells=cells, room=room, nodes=own // _LOOKED_UP)


def _most_rows(shape: Shape, takes: _Passes, memory: int) -> int:
    """Rows of a node that can be grown in so much memory, and written; it has two nodes per row at most."""

    def needed(rows: int) -> int:
        nodes = 2 * rows
        grown = rows * (8 + takes.row) + _tree_bytes(rows, nodes, shape.classes)
        written = _written(shape.classes) + nodes * (20 + _NODE + 8 * shape.classes) + rows * takes.node
        return max(grown, written) + _extra_bytes(shape, rows, nodes)

    return bisect_right(range(max(memory, 0)), memory, key=needed) - 1


def _top_splits(shape: Shape, config: TrainConfig, rows: int) -> int:
    """About how many nodes of a tree are split by passes where those of so many rows are grown in memory."""
    return _TOP * -(-bag_size(shape.rows, config) // rows)


def _listed(shape: Shape, config: TrainConfig, rows: int) -> int:
    """Bytes of the levels that the nodes of `_top_splits` list, as bits, twice while rows are sent down."""
    return 2 * _top_splits(shape, config, rows) * -(-shape.extras.category // 8)


def _smallest(shape: Shape, config: TrainConfig) -> int:
    """The smallest budget for which `_limits` says yes with one worker, or in which the trees grow in memory."""
    whole = _in_memory(shape, config, 1) + _store_bytes(shape, config)
    if not _by_passes(shape, config):
        return whole
    base = _base(shape, config)
    low, high = base, base + (1 << 20)
    while _limits(shape, config, 1, high) is None:
        low, high = high, base + 2 * (high - base)
    while high - low > 1 << 20:
        middle = (low + high) // 2
        low, high = (low, middle) if _limits(shape, config, 1, middle) else (middle, high)
    return min(high, whole)
