"""Which rows are judged together, by which trees: the least time within the memory, and what it takes.

The rows are judged a range at a time, and each range by the trees a group at a time. All trees of a group go over a
block while its codes are at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.common.memory_estimate import BASE_BYTES, MemoryEstimate, Shape
from bigforest.execution.executor import Executor
from bigforest.execution.resources import Resources
from bigforest.forest.load.load_plan import NODE_BYTES, LoadPlan, Visit, choose_load_plan, loading_bytes, tree_bytes
from bigforest.forest.load.row_batch import CHUNK_BYTES, tile_bytes
from bigforest.metrics.classes import MOST_SCORES, SCORE_BYTES
from bigforest.oob.shrinkage import lambdas_to_try
from bigforest.oob.thresholds_to_codes import LISTED_NODES, ORDERED_BYTES, ORDERED_NODES
from bigforest.sampling.bags import BLOCK_ROWS, distinct_rows, draws_bytes, kept_trees, max_nodes
from bigforest.schema.config import TrainConfig

# Trees that go over the rows together when memory is not limited: their bytes, also per row of the table, which keeps
# them in proportion to what growing took.
_GROUP_BYTES = 48 << 20
_GROUP_ROW_BYTES = 16
# And their number in any case: each thread holds the bags of this many trees for a block.
_GROUP_TREES = 32
# More where the table is small: this divided by its rows.
_GROUP_DRAWS = 1 << 21
# Tasks per thread; a block is cut into several when blocks are few.
PIECES = 4
# Bytes of votes in a row group of rows.parquet, for as many rows as a power of two.
_STEP_BYTES = 8 << 20
# Bytes of a row of a row group and a lambda while losses are added up.
_LOSS_BYTES = 64
# Nanoseconds, on one thread, to bring one code of a row before a group, and one value of a dictionary from the disk.
_CODE_NS = 1
_VALUE_NS = 4


def oob_estimate(
    shape: Shape, config: TrainConfig, resources: Resources, nodes: Sequence[int] | None = None
) -> MemoryEstimate:
    """What the report of a forest needs.

    nodes  nodes of each tree; None for as many as the bags allow. Leaves are all taken to hold several classes where
           that takes more memory, and oblique nodes to have TrainConfig.max_terms.

    `smallest` is the smallest budget that works; a smaller one gives a Need of more memory than the budget.
    """
    tried = len(lambdas_to_try(config, shape.rows, shape.classes))
    # With p pure leaves and m mixed ones, of two different rows at least, p + 2 m <= distinct rows of the bag.
    distinct = distinct_rows(shape.rows, config, shape.classes)
    terms = config.max_terms(shape.features)
    numbers = np.arange(config.trees + 1)
    if nodes is None:
        most = max_nodes(shape.rows, config, shape.classes)
        leaves = _most_mixed(most, distinct, shape.classes)
        given = np.full(config.trees, most, np.int64)
        pure = tree_bytes(given, np.zeros(1, np.int64), _some_terms(given, terms), shape.classes, tried)
        given = np.full(config.trees, 2 * leaves + 1, np.int64)
        mixed = tree_bytes(given, np.array([leaves]), _some_terms(given, terms), shape.classes, tried)
        return _with_votes(choose_oob(shape, config, np.maximum(pure, mixed), numbers, resources, tried), shape, config)
    given = np.asarray(nodes, np.int64)
    mixed = _most_mixed(given, distinct, shape.classes)
    sizes = tree_bytes(given, mixed, _some_terms(given, terms), shape.classes, tried)
    return _with_votes(choose_oob(shape, config, sizes, numbers, resources, tried), shape, config)


def _with_votes(way: LoadPlan, shape: Shape, config: TrainConfig) -> MemoryEstimate:
    """With the votes that wait in scratch: while trees are added (monitor.py), twice while they are replaced; and those
    of all ranges of rows, until lambda is chosen by all of them."""
    tried = len(lambdas_to_try(config, shape.rows, shape.classes))
    scratch = 0 if config.stop_oob is None else 2 * shape.rows * votes_bytes(shape.classes, 1)
    if tried > 1 and way.rows < shape.rows:
        scratch = max(scratch, shape.rows * votes_bytes(shape.classes, tried))
    return replace(way.need, scratch=scratch)


def _most_mixed(nodes: Any, distinct: int, classes: int) -> Any:
    """Leaves that may hold several classes in trees of this many nodes; all where they hold numbers."""
    return np.minimum((nodes + 1) // 2, distinct // 2 if classes > 1 else distinct)


def _some_terms(nodes: NDArray[np.int64], terms: float) -> NDArray[np.int64]:
    """Terms of trees of this many nodes whose inner nodes have `terms` each."""
    found: NDArray[np.int64] = np.ceil(nodes // 2 * terms).astype(np.int64)
    return found


def choose_oob(
    shape: Shape,
    config: TrainConfig,
    sizes: NDArray[np.int64],
    first: NDArray[np.int64],
    resources: Resources,
    lambdas: int = 0,
) -> LoadPlan:
    """How to go over the rows with trees of this many bytes; a range is a multiple of `step_rows`, or all rows.

    sizes, first  int64 [entries] and [entries + 1], see groups.py Trees.
    lambdas       by how many the leaves are shrunk: rows have votes by each.
    """
    votes = max(1, lambdas)
    step = min(step_rows(shape.classes), shape.rows)
    together = min(max(_GROUP_TREES, _GROUP_DRAWS // shape.rows), kept_trees(shape, config))
    nodes = int(sizes.sum()) // NODE_BYTES
    cells = 8 * shape.features * min(shape.rows, BLOCK_ROWS)
    tiles = 2 * max(min(CHUNK_BYTES, cells), tile_bytes(shape.features))  # and the values that are put into them
    predictor = tiles + 3 * together * min(shape.rows, BLOCK_ROWS)
    loading = loading_bytes(nodes, shape.classes)
    turning = 4 * min(LISTED_NODES, nodes) + ORDERED_BYTES * min(ORDERED_NODES, nodes)
    writing = 4 * step * (8 * shape.classes + 32) + (_LOSS_BYTES * votes * step if votes > 1 else 0)
    fixed = BASE_BYTES + turning + writing + resources.workers * max(predictor, loading)
    fixed += kept_trees(shape, config) * draws_bytes(shape, config)
    fixed += 8 * shape.codes if config.ranks else 0
    fixed += SCORE_BYTES * max_scores(shape.rows) if shape.classes == 2 else 0
    row_bytes = votes_bytes(shape.classes, votes)
    smallest = fixed + int(sizes.max()) + step * row_bytes
    if resources.memory is None:
        most = max(int(sizes.max()), _GROUP_BYTES, _GROUP_ROW_BYTES * shape.rows)
        room = most + shape.rows * row_bytes
    else:
        room = most = max(resources.memory, smallest) - fixed
    visit = Visit(
        stage="oob",
        rows=shape.rows,
        classes=shape.classes,
        fixed=fixed,
        row_bytes=row_bytes,
        step=step,
        row_ns=shape.features * _CODE_NS,
        group_ns=shape.codes * _VALUE_NS,
        one_keeps=True,
    )
    return choose_load_plan(sizes, first, visit, room, smallest, most, together)


def votes_bytes(classes: int, lambdas: int) -> int:
    """Bytes of the votes on a row, by this many lambdas."""
    return (8 * classes + 2) * lambdas + 4


def step_rows(classes: int) -> int:
    """Rows of a row group of rows.parquet; a function of the task alone, so that the file does not depend on memory."""
    rows = BLOCK_ROWS
    while rows > 256 and 8 * rows * classes > _STEP_BYTES:
        rows //= 2
    return rows


def range_rows(shape: Shape, most: int, executor: Executor) -> int:
    """Rows of a range, at most `most`: whole row groups of the report, and some ranges for every process."""
    if not executor.remote:
        return most
    step = step_rows(shape.classes)
    return min(most, -(-shape.rows // (PIECES * executor.processes * step)) * step)


def max_scores(rows: int) -> int:
    """Different scores held at a time: with more, rows.parquet is read again for each half of this many."""
    return min(max(rows // 16, 1 << 14), MOST_SCORES)


def cut_ranges(begin: int, end: int, most: int, pieces: int, block_rows: int = BLOCK_ROWS) -> list[tuple[int, int]]:
    """Rows `begin` to before `end` cut into ranges of `most` rows, and, with pieces > 1, within blocks."""
    if pieces == 1:
        return [(start, min(start + most, end)) for start in range(begin, end, most)]
    blocks = -(-end // block_rows) - begin // block_rows
    step = min(most, -(-block_rows // -(-pieces // blocks)))
    cuts_at = sorted({begin, *range(-(-begin // block_rows) * block_rows, end, block_rows), end})
    return [(start, min(start + step, last)) for first, last in pairwise(cuts_at) for start in range(first, last, step)]
