"""Whether a forest is grown in memory (grow/shared/memory_in_memory.py) or by passes over the store
(memory_out_of_core.py); what it needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from bigforest.common.errors import ConfigError
from bigforest.common.memory_estimate import MemoryEstimate, Shape
from bigforest.common.sizes import over_budget
from bigforest.execution.resources import Resources
from bigforest.grow.memory_out_of_core import (
    LISTS,
    decoded_bytes,
    learning_passes,
    limits_for,
    listed_bytes,
    passes_take,
    small_chunks,
    tally_of,
)
from bigforest.grow.out_of_core.decoded_table import sweeps
from bigforest.grow.out_of_core.node_search import buckets_for
from bigforest.grow.out_of_core.row_file import CHUNK, TAG
from bigforest.grow.out_of_core.row_nodes import STANDING_ROW
from bigforest.grow.out_of_core.upper_tree import MemoryLimits
from bigforest.grow.shared.memory_in_memory import (
    BY_VALUES,
    ON_FEATURES,
    base_bytes,
    drawn_from,
    in_memory,
    store_bytes,
    target_bytes,
)
from bigforest.sampling.bags import bag_size, distinct_rows, kept_trees
from bigforest.schema.config import TrainConfig

# A part holds about this many rows' worth of trees, so that its table stays small beside the codes.
_PART_ROWS = 1_000_000
# At least this many parts where trees allow, so that cores stay busy to the end and a crash loses little; fewer where
# they would hold fewer rows' worth of trees than this: writing a part and reading it back takes some milliseconds,
# as much as growing this many.
_PARTS = 16
_FEWEST_PARTS = 4
_PART_LEAST = 1 << 15
# Trees that share passes at most: more save little, and their rows wait on disk together.
_MOST_TREES = 16
# Bag rows from which a tree is divided among the workers of a cluster when there are fewer trees than workers, and
# subtrees for each of them: then the largest is not waited for long.
_SPREAD_ROWS = 1 << 20
_SUBTREES = 4


@dataclass(frozen=True, slots=True)
class GrowPlan:
    """How a forest is grown.

    workers  threads that fit
    limits   None: whole trees in memory. Otherwise large nodes are split by passes over the store.
    group    trees that share passes
    memory   most bytes of anonymous memory
    """

    workers: int
    limits: MemoryLimits | None
    group: int
    memory: int


def part_size(rows: int, trees: int) -> int:
    """Trees per part; a function of the task alone, so that the files do not depend on the machine."""
    parts = min(_PARTS, max(_FEWEST_PARTS, rows * trees // _PART_LEAST))
    return max(1, min(-(-trees // parts), _PART_ROWS // rows))


def choose_grow_plan(shape: Shape, config: TrainConfig, resources: Resources) -> GrowPlan:
    """The fastest way that keeps within the budget. Raises ConfigError, naming the smallest budget, if there is none.

    In memory means: the codes and the growing trees together fit, so that no page of the store is read twice.
    """
    check_memory_family(shape, config)
    budget = resources.memory
    for workers in range(resources.workers, 0, -1):
        memory = in_memory(shape, config, workers)
        if budget is None or memory + store_bytes(shape, config) <= budget:
            whole = GrowPlan(workers, None, config.trees, memory)
            return (
                whole if resources.cluster is None else _spread(shape, config, resources.executor(workers).size, whole)
            )
    assert budget is not None
    for workers in range(resources.workers, 0, -1):
        limits = limits_for(shape, config, workers, budget)
        if limits is not None:
            parts = tally_of(shape).parts
            takes = passes_take(shape, config)
            buckets = takes.drawn * buckets_for(shape.rows, parts, limits.cells)
            root = takes.asks or max(buckets, shape.extras.category) * parts
            lists = LISTS * limits.room // max(listed_bytes(shape, config, limits.rows), 1)
            group = max(1, min(kept_trees(shape, config), _MOST_TREES, 2 * limits.room // root, lists))
            return GrowPlan(workers, limits, group, budget)
    raise over_budget("growing this forest", _smallest(shape, config), budget)


def check_memory_family(shape: Shape, config: TrainConfig) -> None:
    """Raise ConfigError where trees of the family cannot be grown on what the table has."""
    extras = shape.extras
    if config.family in ON_FEATURES:
        if config.ranks and extras.odd:
            raise ConfigError(
                f"ranks are of numbers, and categories or missing values are in {_some(extras.odd)}: exclude these "
                "columns, fill or convert them, or drop ranks"
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


def _spread(shape: Shape, config: TrainConfig, size: int, whole: GrowPlan) -> GrowPlan:
    """The way for `size` tasks at once where whole trees fit: large trees that are too few for all are grown by passes
    until there are subtrees for all."""
    tasks = -(-config.trees // part_size(shape.rows, config.trees))
    bag = bag_size(shape.rows, config)
    if tasks >= size or bag < _SPREAD_ROWS:
        return whole
    limits = limits_for(shape, config, whole.workers, whole.memory + store_bytes(shape, config))
    if limits is None:
        return whole
    rows = min(limits.rows, bag * config.trees // (_SUBTREES * size))
    return replace(whole, limits=limits._replace(rows=rows), group=min(kept_trees(shape, config), _MOST_TREES))


def grow_estimate(shape: Shape, config: TrainConfig, resources: Resources) -> MemoryEstimate:
    """What growing needs. Where the budget is too small, `memory` is what the smallest one would take."""
    smallest = _smallest(shape, config)
    if resources.memory is not None and resources.memory < smallest:
        resources = replace(resources, memory=smallest)
    way = choose_grow_plan(shape, config, resources)
    if way.limits is None:
        return MemoryEstimate("grow", way.memory, smallest)
    rows = distinct_rows(shape.rows, config, shape.classes)
    by_values = config.family in BY_VALUES
    value = decoded_bytes(shape)
    column = 8 if config.family == "rotation" else value  # projections, or copies
    columns = column * drawn_from(shape.features, config) if by_values else shape.row_bytes
    spilled = rows * (columns + TAG + target_bytes(shape)) + CHUNK * small_chunks(shape, config, way.limits)
    scratch = way.group * (spilled + rows * STANDING_ROW)
    scratch += value * shape.features * shape.rows if by_values else 0
    levels = max(math.ceil(math.log2(bag_size(shape.rows, config) / way.limits.rows)), 0)
    takes = passes_take(shape, config)
    groups = -(-config.trees // way.group)
    # Bags are drawn, and rows spilled, once each.
    level = takes.level + learning_passes(shape, config, way.limits)
    passes = groups * (takes.before + level * levels + 2)
    if by_values:  # decoded once; a deviation takes the mean first
        deviations = config.family == "rotation" or config.normalize == "zscore"
        passes += sweeps(shape, way.limits) * (3 if deviations else 1)
    return MemoryEstimate("grow", way.memory, smallest, scratch, passes, way.group)


def _smallest(shape: Shape, config: TrainConfig) -> int:
    """The smallest budget for which `limits_for` says yes with one worker, or in which the trees grow in memory."""
    whole = in_memory(shape, config, 1) + store_bytes(shape, config)
    base = base_bytes(shape, config)
    low, high = base, base + (1 << 20)
    while limits_for(shape, config, 1, high) is None:
        low, high = high, base + 2 * (high - base)
    while high - low > 1 << 20:
        middle = (low + high) // 2
        low, high = (low, middle) if limits_for(shape, config, 1, middle) else (middle, high)
    return min(high, whole)
