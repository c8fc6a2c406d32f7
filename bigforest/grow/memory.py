"""Choose how a forest grows within the memory: whole trees in memory, or by passes over the store.

`choose_grow_plan` tries growing in memory, first with all workers and then with fewer, and after that passes. With
boosting, one worker grows the trees in memory. The memory of growing in memory is the sum of the bytes that the family
declares (TreeMemory in memory_model.py) and of bytes that do not depend on the family. Passes may use the whole budget;
their limits follow from it and from PassMemory of the family.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np

from bigforest.execution.resources import Resources
from bigforest.forest.format import GROUP_NODES
from bigforest.forest.leaf_votes import FILE_BYTES
from bigforest.grow.families.registry import family_of
from bigforest.grow.memory_model import (
    COPIED,
    NODE,
    ROW,
    PassMemory,
    base_bytes,
    cut_bytes,
    extra_bytes,
    target_bytes,
    tree_bytes,
    written_bytes,
)
from bigforest.grow.out_of_core.context import CODES, PROJECTIONS, MemoryLimits, NodeStats
from bigforest.grow.out_of_core.node_search import histogram_buckets
from bigforest.grow.out_of_core.row_file import CHUNK, ROW_NODE_BYTES, TAG
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import MemoryEstimate, Shape
from bigforest.predict.groups import ENTRY_BYTES
from bigforest.sampling.bags import bag_size, distinct_rows, draws_bytes, kept_trees, max_nodes
from bigforest.sampling.boosting import ROW_BYTES
from bigforest.store.format import BLOCK_ROWS, block_count

# Share of the rows in a bag if n rows are drawn n times with replacement.
_DRAWN = 1.0 - math.exp(-1.0)
# Most rows of all trees of a part together, unless one tree has more, so that the table of a part stays small compared
# with the codes. Names of part files depend on it.
_PART_ROWS = 1_000_000
# Trees are divided among about _PARTS parts, or more because of _PART_ROWS, so that cores stay busy to the end and a
# crash loses little. Small forests have fewer parts, at least about _MIN_PARTS, so that the trees of a part have about
# _MIN_PART_ROWS rows together: writing and reading a part takes as long as growing _MIN_PART_ROWS / 2 rows.
_PARTS = 16
_MIN_PARTS = 4
_MIN_PART_ROWS = 1 << 16
# Most trees that share passes. More trees save little time on one machine, and the rows of all these trees wait on
# disk. On a cluster more trees save tasks, so _MAX_TREES_OF_CLUSTER trees share passes, or more if their waiting rows
# fit in _WAITING_BYTES.
_MAX_TREES = 16
_MAX_TREES_OF_CLUSTER = 32
_WAITING_BYTES = 16 << 30
# Trees of at least _SPREAD_ROWS bag rows are divided among the workers of a cluster if there are fewer parts than tasks
# that run at once. There are about _SUBTREES subtrees for each task, so that no task waits long for the largest one.
_SPREAD_ROWS = 1 << 20
_SUBTREES = 4
# Bytes of a node and its ballot, without counts, when boosting routes all rows through a grown tree.
_BOOSTED_NODE_BYTES = 48
# Bytes of the weight of a row.
_WEIGHT_BYTES = 8
# A worker must have room for a subtree of at least this many different bag rows.
_MIN_ROWS = 4_096
# Most counts of the histogram of one feature.
_MAX_CELLS = 1 << 18
# Bytes of a node while thresholds are looked up. Only half of the nodes have thresholds.
_LOOKED_UP_BYTES = 20
# Bytes of a node in the mapped file through which out-of-bag rows are routed after passes. If the nodes took more than
# the budget, they would be read from the disk again for each block of rows.
_ROUTED_BYTES = 25
# Bytes of a level in the list of levels of a node in the upper part of a tree.
_LISTED_LEVEL_BYTES = 12
# Bytes of a count that a node keeps until its bucket is opened. Most buckets are never opened.
_KEPT_COUNT_BYTES = 8
# The histograms of a node take at most 1 / _NODES_OF_ROOM of the room for counts. The collected rows of a node take at
# most the same. While a node is scored, each count takes _SCORED_BYTES, and each collected row PassMemory.scored.
_NODES_OF_ROOM = 8
_SCORED_BYTES = 48
# Further bytes for each count if features are categories, for ordering levels and for the bit sets of levels that go
# left. A single category with many levels may fill the whole room for counts.
_ORDERING_BYTES = 96
_LEVEL_SET_BYTES = 16
# Estimate of the nodes split by passes, as a multiple of (rows of the bag / rows of the largest node grown in memory).
# It is more than 1, because children have unequal sizes and become small enough at several depths.
_SPLITS_PER_SUBTREE = 4


@dataclass(frozen=True, slots=True)
class GrowPlan:
    """Decisions of growing.

    workers  number of threads of each process
    limits   limits of passes over the store, which split large nodes; None if whole trees grow in memory
    group    trees that share passes
    memory   most bytes of anonymous memory
    keeps    True if the finished trees stay in memory for the first prediction
    """

    workers: int
    limits: MemoryLimits | None
    group: int
    memory: int
    keeps: bool = False


def part_size(rows: int, trees: int) -> int:
    """Return the trees per part, a function of the numbers of rows and trees: files do not depend on the machine."""
    parts = min(_PARTS, max(_MIN_PARTS, rows * trees // _MIN_PART_ROWS))
    return max(1, min(-(-trees // parts), _PART_ROWS // rows))


def choose_grow_plan(shape: Shape, config: TrainConfig, resources: Resources) -> GrowPlan:
    """Return the fastest plan within the budget. Raise ConfigError, naming the smallest budget, if nothing fits.

    Also raise ConfigError for a table that the family cannot split.

    Trees grow in memory only if the codes and the growing trees fit together. If they did not fit, the system would
    drop pages of the store and read them again.
    """
    family = family_of(config)
    family.check(shape, config)
    budget = resources.memory
    for workers in range(1 if config.boosts else resources.workers, 0, -1):
        memory, store = in_memory(shape, config, workers)
        if budget is None or memory + store <= budget:
            if resources.cluster is not None:
                whole = GrowPlan(workers, None, config.trees, memory)
                return _spread(shape, config, resources.executor(workers).size, whole)
            kept = 0 if budget is None else _kept_bytes(shape, config)
            keeps = budget is None or memory + store + kept <= budget
            return GrowPlan(workers, None, config.trees, memory + kept if keeps else memory, keeps)
    assert budget is not None
    needs = family.pass_memory(shape, config)
    for workers in range(0 if config.boosts else resources.workers, 0, -1):  # boosting only grows in memory
        limits = limits_for(shape, config, needs, workers, budget)
        if limits is not None:
            slots = NodeStats.of(shape).slots
            kind = PROJECTIONS if family.uses_values else CODES
            buckets = needs.drawn * histogram_buckets(shape.rows, slots, limits.cells, kind)
            root = needs.asks or max(buckets, shape.extras.category) * slots
            lists = _LEVEL_SET_BYTES * limits.room // max(_listed_bytes(shape, config, limits.rows), 1)
            most = _max_trees(shape, config, resources, _waiting_bytes(shape, config, needs, limits))
            group = max(1, min(most, 2 * limits.room // root, lists))
            return GrowPlan(workers, limits, group, budget)
    raise MemoryEstimate("grow", budget, _smallest(shape, config)).refusal(budget)


def in_memory(shape: Shape, config: TrainConfig, workers: int) -> tuple[int, int]:
    """Return the bytes of growing in memory with `workers` threads, and the bytes of the store that stay in memory."""
    family = family_of(config)
    per_call = family.trees_per_call(shape, config)
    rows = per_call * distinct_rows(shape.rows, config, shape.classes)
    nodes = per_call * max_nodes(shape.rows, config, shape.classes)
    tree = (
        COPIED
        + 4 * shape.rows
        + draws_bytes(shape, config)
        + tree_bytes(rows, nodes, shape.classes)
        + min(nodes, GROUP_NODES) * written_bytes(shape.classes) // GROUP_NODES
        + extra_bytes(shape, rows, nodes)
        + nodes * cut_bytes(config, shape.classes)
        + (_WEIGHT_BYTES * shape.rows if shape.extras.weighted else 0)
    )
    if config.bootstrap:
        tree += _left_out_bytes(shape, config, per_call, nodes)
    if config.boosts:
        tree += ROW_BYTES * shape.rows + _BOOSTED_NODE_BYTES * nodes + 8 * shape.classes * nodes
    memory = family.tree_memory(shape, config, rows, nodes // 2)
    return base_bytes(shape, config) + memory.shared + workers * (tree + memory.tree), memory.store


def _kept_bytes(shape: Shape, config: TrainConfig) -> int:
    """Return the further memory for keeping the nodes of all trees and their terms, and for packing them."""
    nodes = max_nodes(shape.rows, config, shape.classes)
    packed = 16 * nodes + 2 * 8 * shape.classes * (nodes // 2 + 1)
    terms = math.ceil(nodes // 2 * family_of(config).max_terms(shape.features, config))
    return config.trees * (nodes * (NODE + 4 * shape.classes) + packed + ENTRY_BYTES * terms)


def _left_out_bytes(shape: Shape, config: TrainConfig, per_call: int, nodes: int) -> int:
    """Return the further memory for finding the leaves of out-of-bag rows, after the rows of the bags were freed.

    nodes  nodes of all trees of a call together
    """
    distinct = distinct_rows(shape.rows, config, shape.classes)
    out = shape.rows - round(0.8 * distinct)  # `distinct` is an upper bound, and a lower one is needed
    projected = 8 * out if family_of(config).max_terms(shape.features, config) else 0
    beyond_bags = 8 * out * per_call + 8 * out + projected + 4 * shape.rows - ROW * distinct * per_call
    kept = per_call * 8 * out + nodes * (6 + 4 * max(shape.classes, 2))
    return max(0, beyond_bags) + 2 * min(FILE_BYTES + kept, config.trees * kept)


def _spread(shape: Shape, config: TrainConfig, size: int, whole: GrowPlan) -> GrowPlan:
    """Return the plan for a cluster whose workers have room for whole trees.

    size   number of tasks that run at once
    whole  the plan that grows whole trees

    If there are fewer parts than tasks, large trees grow by passes until there are subtrees for all tasks.
    """
    parts = -(-config.trees // part_size(shape.rows, config.trees))
    bag = bag_size(shape.rows, config)
    if parts >= size or bag < _SPREAD_ROWS:
        return whole
    needs = family_of(config).pass_memory(shape, config)
    limits = limits_for(shape, config, needs, whole.workers, sum(in_memory(shape, config, whole.workers)))
    if limits is None:
        return whole
    rows = min(limits.rows, bag * config.trees // (_SUBTREES * size))
    return replace(
        whole, limits=limits._replace(rows=rows), group=min(kept_trees(shape, config), _MAX_TREES_OF_CLUSTER)
    )


def _max_trees(shape: Shape, config: TrainConfig, resources: Resources, waiting: int) -> int:
    """Return the most trees that share passes. All groups of trees get about the same size.

    waiting  bytes of each tree on disk between passes
    """
    most = _MAX_TREES if resources.cluster is None else max(_MAX_TREES_OF_CLUSTER, _WAITING_BYTES // waiting)
    return min(kept_trees(shape, config), -(-config.trees // -(-config.trees // most)))


def _waiting_bytes(shape: Shape, config: TrainConfig, needs: PassMemory, limits: MemoryLimits) -> int:
    """Return the bytes of a tree on disk between passes: the rows of its small nodes, and the node of each row."""
    row = needs.spilled + TAG + target_bytes(shape) + ROW_NODE_BYTES
    small = _top_splits(shape, config, limits.rows) * block_count(shape.rows)  # each block may have rows of each node
    return distinct_rows(shape.rows, config, shape.classes) * row + CHUNK * small


def expected_visits(shape: Shape, config: TrainConfig) -> float:
    """Return an estimate of the values that growing reads, for trees grown to max_depth, or to pure leaves."""
    drawn = min(1.0, config.sample_fraction * (_DRAWN if config.replace else 1.0)) if config.bootstrap else 1.0
    bag = max(2.0, shape.rows * drawn)
    levels = math.log2(bag) if config.max_depth is None else min(config.max_depth, math.log2(bag))
    return config.trees * bag * levels * family_of(config).expected_reads(shape.features, config)


def grow_estimate(shape: Shape, config: TrainConfig, resources: Resources) -> MemoryEstimate:
    """Return the estimate of growing. If the budget is too small, estimate for the smallest sufficient one."""
    smallest = _smallest(shape, config)
    if resources.memory is not None and resources.memory < smallest:
        resources = replace(resources, memory=smallest)
    plan = choose_grow_plan(shape, config, resources)
    if plan.limits is None:
        return MemoryEstimate("grow", plan.memory, smallest)
    needs = family_of(config).pass_memory(shape, config)
    scratch = plan.group * _waiting_bytes(shape, config, needs, plan.limits) + needs.decoded * shape.rows
    levels = max(math.ceil(math.log2(bag_size(shape.rows, config) / plan.limits.rows)), 0)
    groups = -(-config.trees // plan.group)
    # Two more passes: to draw the bags, and to spill rows.
    level = needs.level
    if needs.epochs:  # perceptrons read the rows once if the rows of a node fit in memory
        level += 1 if shape.rows * needs.trained <= plan.limits.training else needs.epochs + 1
    # Values are looked up in ranges of a dictionary. Each range reads the codes once. Dictionaries count by mean size.
    sweeps = needs.sweeps * max(1, -(-shape.codes // (shape.features * plan.limits.values)))
    passes = groups * (needs.before + level * levels + 2) + sweeps
    return MemoryEstimate("grow", plan.memory, smallest, scratch, passes, plan.group)


def _smallest(shape: Shape, config: TrainConfig) -> int:
    """Return the smallest budget with which one worker can grow the trees, in memory or by passes.

    If the trees must grow by passes, the returned budget may be up to 1 MiB too large.
    """
    whole = sum(in_memory(shape, config, 1))
    if config.boosts:
        return whole
    base, needs = base_bytes(shape, config), family_of(config).pass_memory(shape, config)
    low, high = base, base + (1 << 20)
    while limits_for(shape, config, needs, 1, high) is None:
        low, high = high, base + 2 * (high - base)
    while high - low > 1 << 20:
        middle = (low + high) // 2
        low, high = (low, middle) if limits_for(shape, config, needs, 1, middle) else (middle, high)
    return min(high, whole)


def limits_for(shape: Shape, config: TrainConfig, needs: PassMemory, workers: int, budget: int) -> MemoryLimits | None:
    """Return the limits of passes within the budget; None if it is too small."""
    stats = NodeStats.of(shape)
    base = base_bytes(shape, config) + kept_trees(shape, config) * draws_bytes(shape, config) + needs.kept
    # While rows are written, there are no counts, and the rows may take their memory.
    free = budget - base - workers * needs.block
    written = needs.picked + TAG * BLOCK_ROWS
    if free < workers * written:
        return None
    # A count takes 4 bytes, for regression 8, in each task and in the sum over tasks. A collected row counts as one
    # count: it takes 8 to 20 bytes, but in one task only, and twice as many while blocks are joined.
    cell = np.dtype(stats.cell_type).itemsize
    category = shape.extras.category
    count = cell * (workers + 1) + _KEPT_COUNT_BYTES + max(_SCORED_BYTES, needs.scored) // _NODES_OF_ROOM
    room = free // (count + _ORDERING_BYTES + _LEVEL_SET_BYTES if category else count)
    cells = min(_MAX_CELLS, room // (_NODES_OF_ROOM * needs.drawn))
    # Subtrees may use all of the share, first while they grow and later while they are written. With categories, half
    # of the share is for the levels that the upper part of the tree lists.
    share = (budget - base) // workers - COPIED
    cut = cut_bytes(config, shape.classes)
    rows = _most_subtree_rows(shape, needs, share // 2 if category else share, cut)
    if cells < 4 * stats.slots or rows < _MIN_ROWS or room < max(category * stats.slots, needs.asks):
        return None
    upper = _top_splits(shape, config, rows) * (category // 2) * _LISTED_LEVEL_BYTES
    if upper > share // 2 or _listed_bytes(shape, config, rows) > _LEVEL_SET_BYTES * room:
        return None
    # No counts are in memory while thresholds are looked up and perceptrons are trained. The values of a dictionary
    # take at most half of the share. The blocks need the rest.
    training = max(share - needs.block - written, 0)
    return MemoryLimits(
        rows=int(rows * _repeats(shape, config)),
        collects=max(room // _NODES_OF_ROOM, 1),
        cells=cells,
        room=room,
        nodes=share // _LOOKED_UP_BYTES,
        routed=budget // _ROUTED_BYTES,
        values=share // 16,
        training=training,
    )


def _repeats(shape: Shape, config: TrainConfig) -> float:
    """Return the mean multiplicity of the rows of a node, less a margin for nodes below the mean.

    It is 1 if each row counts once, or if the multiplicity depends on the node (weights, draws by class).
    """
    if shape.extras.weighted or config.draws_by_class or not config.bootstrap:
        return 1.0
    return max(1.0, 0.95 * bag_size(shape.rows, config) / distinct_rows(shape.rows, config, shape.classes))


def _most_subtree_rows(shape: Shape, needs: PassMemory, memory: int, cut: int) -> int:
    """Return the most different rows of a node whose subtree can be grown, and written, in this memory.

    cut  bytes of a node while its tree is cut

    A subtree has fewer than two nodes per different row.
    """

    def needed(rows: int) -> int:
        nodes = 2 * rows
        grown = rows * (8 + needs.row) + tree_bytes(rows, nodes, shape.classes)
        written = written_bytes(shape.classes) + nodes * (20 + NODE + 8 * shape.classes + cut) + rows * needs.node
        return max(grown, written) + extra_bytes(shape, rows, nodes)

    return bisect_right(range(max(memory, 0)), memory, key=needed) - 1


def _top_splits(shape: Shape, config: TrainConfig, rows: int) -> int:
    """Return an estimate of the nodes of a tree that are split by passes if nodes of `rows` rows grow in memory."""
    return _SPLITS_PER_SUBTREE * -(-bag_size(shape.rows, config) // rows)


def _listed_bytes(shape: Shape, config: TrainConfig, rows: int) -> int:
    """Return the bytes of the bit sets of levels in the upper nodes (`_top_splits`), and of their copy for routing."""
    return 2 * _top_splits(shape, config, rows) * -(-shape.extras.category // 8)
