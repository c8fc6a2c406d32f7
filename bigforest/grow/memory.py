"""The choice between growing in memory and by passes over the store (out_of_core/memory.py), and the memory of
growing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from bigforest.common.memory_estimate import MemoryEstimate, Shape
from bigforest.execution.resources import Resources
from bigforest.forest.format.schema import GROUP_NODES
from bigforest.forest.load.load_plan import ENTRY_BYTES
from bigforest.forest.votes.leaf_files import FILE_BYTES
from bigforest.grow.families.registry import family_of
from bigforest.grow.out_of_core.context import MemoryLimits, NodeStats
from bigforest.grow.out_of_core.decoded_table import sweeps
from bigforest.grow.out_of_core.memory import (
    LISTS,
    learning_passes,
    limits_for,
    listed_bytes,
    small_chunks,
)
from bigforest.grow.out_of_core.node_search import histogram_buckets
from bigforest.grow.out_of_core.row_file import CHUNK, TAG
from bigforest.grow.out_of_core.row_nodes import ROW_NODE_BYTES
from bigforest.grow.shared.memory import (
    COPIED,
    NODE,
    ROW,
    base_bytes,
    extra_bytes,
    target_bytes,
    tree_bytes,
    written_bytes,
)
from bigforest.sampling.bags import bag_size, distinct_rows, draws_bytes, kept_trees, max_nodes
from bigforest.sampling.boosting import ROW_BYTES
from bigforest.schema.config import TrainConfig

# A part holds about this many rows' worth of trees, so that its table stays small beside the codes. Names of files
# depend on it.
_PART_ROWS = 1_000_000
# At least this many parts where trees allow, so that cores stay busy to the end and a crash loses little; fewer where
# they would hold fewer rows' worth of trees than this: writing a part and reading it back takes some milliseconds,
# as much as growing this many.
_PARTS = 16
_FEWEST_PARTS = 4
_PART_LEAST = 1 << 15
# Trees that share passes at most: more save little, and their rows wait on disk together. On a cluster more save tasks.
_MOST_TREES = 16
_MOST_TREES_OF_CLUSTER = 32
# Bag rows from which a tree is divided among the workers of a cluster if there are fewer trees than workers, and
# subtrees per worker, so that no worker waits long for the largest.
_SPREAD_ROWS = 1 << 20
_SUBTREES = 4
# Bytes of a node of a tree that rows are routed through, besides its counts: packed, and its ballot.
_SENT_NODE_BYTES = 48
# Bytes of a row that has a weight.
_WEIGHT = 8


@dataclass(frozen=True, slots=True)
class GrowPlan:
    """How a forest is grown.

    workers  threads that fit
    limits   None: whole trees in memory. Otherwise large nodes are split by passes over the store.
    group    trees that share passes
    memory   most bytes of anonymous memory
    keeps    whether the trees are kept in memory for the first answers of the forest
    """

    workers: int
    limits: MemoryLimits | None
    group: int
    memory: int
    keeps: bool = False


def part_size(rows: int, trees: int) -> int:
    """Trees per part; a function of the task alone, so that the files do not depend on the machine."""
    parts = min(_PARTS, max(_FEWEST_PARTS, rows * trees // _PART_LEAST))
    return max(1, min(-(-trees // parts), _PART_ROWS // rows))


def choose_grow_plan(shape: Shape, config: TrainConfig, resources: Resources) -> GrowPlan:
    """The fastest plan within the budget. Raises ConfigError, naming the smallest budget, if there is none.

    In memory means: the codes and the growing trees together fit, so that no page of the store is read twice.
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
    takes = family.pass_memory(shape, config)
    for workers in range(0 if config.boosts else resources.workers, 0, -1):  # boosted trees route rows at once
        limits = limits_for(shape, config, takes, workers, budget)
        if limits is not None:
            parts = NodeStats.of(shape).parts
            buckets = takes.drawn * histogram_buckets(shape.rows, parts, limits.cells)
            root = takes.asks or max(buckets, shape.extras.category) * parts
            lists = LISTS * limits.room // max(listed_bytes(shape, config, limits.rows), 1)
            group = max(1, min(_together(shape, config, resources), 2 * limits.room // root, lists))
            return GrowPlan(workers, limits, group, budget)
    raise MemoryEstimate("grow", budget, _smallest(shape, config)).refusal(budget)


def in_memory(shape: Shape, config: TrainConfig, workers: int) -> tuple[int, int]:
    """Bytes of growing this many whole trees at a time, and of what they read of the store at random."""
    family = family_of(config)
    together = family.together(shape, config)
    rows = together * distinct_rows(shape.rows, config, shape.classes)
    nodes = together * max_nodes(shape.rows, config, shape.classes)
    tree = (
        COPIED
        + 4 * shape.rows
        + draws_bytes(shape, config)
        + tree_bytes(rows, nodes, shape.classes)
        + min(nodes, GROUP_NODES) * written_bytes(shape.classes) // GROUP_NODES
        + extra_bytes(shape, rows, nodes)
        + (_WEIGHT * shape.rows if shape.extras.weighted else 0)
    )
    if config.bootstrap:
        tree += _left_out_bytes(shape, config, together, nodes)
    if config.boosts:
        tree += ROW_BYTES * shape.rows + _SENT_NODE_BYTES * nodes + 8 * shape.classes * nodes
    memory = family.tree_memory(shape, config, rows, nodes // 2)
    return base_bytes(shape, config) + memory.shared + workers * (tree + memory.tree), memory.store


def _kept_bytes(shape: Shape, config: TrainConfig) -> int:
    """Further memory for the nodes of all trees and their terms, and for what leaves hold twice while the trees are
    packed."""
    nodes = max_nodes(shape.rows, config, shape.classes)
    packed = 16 * nodes + 2 * 8 * shape.classes * (nodes // 2 + 1)
    terms = math.ceil(nodes // 2 * family_of(config).max_terms(shape.features, config))
    return config.trees * (nodes * (NODE + 4 * shape.classes) + packed + ENTRY_BYTES * terms)


def _left_out_bytes(shape: Shape, config: TrainConfig, together: int, nodes: int) -> int:
    """Further memory for finding the leaves of out-of-bag rows (forest.py), for trees of this many nodes together.

    It begins when the rows of the bags are not needed any more.
    """
    distinct = distinct_rows(shape.rows, config, shape.classes)
    out = shape.rows - round(0.8 * distinct)  # the bound holds for rows in a bag
    projected = 8 * out if family_of(config).max_terms(shape.features, config) else 0
    beyond_bags = 8 * out * together + 8 * out + projected + 4 * shape.rows - ROW * distinct * together
    kept = together * 8 * out + nodes * (6 + 4 * max(shape.classes, 2))
    return max(0, beyond_bags) + 2 * min(FILE_BYTES + kept, config.trees * kept)


def _spread(shape: Shape, config: TrainConfig, size: int, whole: GrowPlan) -> GrowPlan:
    """The plan for `size` concurrent tasks if whole trees fit: if there are fewer large trees than tasks, they are
    grown by passes until there are subtrees for all."""
    tasks = -(-config.trees // part_size(shape.rows, config.trees))
    bag = bag_size(shape.rows, config)
    if tasks >= size or bag < _SPREAD_ROWS:
        return whole
    takes = family_of(config).pass_memory(shape, config)
    limits = limits_for(shape, config, takes, whole.workers, sum(in_memory(shape, config, whole.workers)))
    if limits is None:
        return whole
    rows = min(limits.rows, bag * config.trees // (_SUBTREES * size))
    return replace(
        whole, limits=limits._replace(rows=rows), group=min(kept_trees(shape, config), _MOST_TREES_OF_CLUSTER)
    )


def _together(shape: Shape, config: TrainConfig, resources: Resources) -> int:
    """The most trees that share passes, so that all passes have about equally many."""
    most = _MOST_TREES if resources.cluster is None else _MOST_TREES_OF_CLUSTER
    return min(kept_trees(shape, config), -(-config.trees // -(-config.trees // most)))


def grow_estimate(shape: Shape, config: TrainConfig, resources: Resources) -> MemoryEstimate:
    """The estimate of growing. If the budget is too small, `memory` is that of the smallest one."""
    smallest = _smallest(shape, config)
    if resources.memory is not None and resources.memory < smallest:
        resources = replace(resources, memory=smallest)
    way = choose_grow_plan(shape, config, resources)
    if way.limits is None:
        return MemoryEstimate("grow", way.memory, smallest)
    takes = family_of(config).pass_memory(shape, config)
    rows = distinct_rows(shape.rows, config, shape.classes)
    spilled = rows * (takes.spilled + TAG + target_bytes(shape)) + CHUNK * small_chunks(shape, config, way.limits)
    scratch = way.group * (spilled + rows * ROW_NODE_BYTES) + takes.decoded * shape.rows
    levels = max(math.ceil(math.log2(bag_size(shape.rows, config) / way.limits.rows)), 0)
    groups = -(-config.trees // way.group)
    # Bags are drawn, and rows spilled, once each.
    level = takes.level + learning_passes(shape, takes, way.limits)
    passes = groups * (takes.before + level * levels + 2) + sweeps(shape, way.limits) * takes.sweeps
    return MemoryEstimate("grow", way.memory, smallest, scratch, passes, way.group)


def _smallest(shape: Shape, config: TrainConfig) -> int:
    """The smallest budget for which `limits_for` says yes with one worker, or in which the trees grow in memory."""
    whole = sum(in_memory(shape, config, 1))
    if config.boosts:
        return whole
    base, takes = base_bytes(shape, config), family_of(config).pass_memory(shape, config)
    low, high = base, base + (1 << 20)
    while limits_for(shape, config, takes, 1, high) is None:
        low, high = high, base + 2 * (high - base)
    while high - low > 1 << 20:
        middle = (low + high) // 2
        low, high = (low, middle) if limits_for(shape, config, takes, 1, middle) else (middle, high)
    return min(high, whole)
