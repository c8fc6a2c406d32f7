"""The plan of the report within the memory budget: trees that are loaded together, and rows of a range.

Two steps need memory:

1. Routing all rows through a group of trees, if leaves are missing (leaves.py).
2. Adding up the votes on a range of rows (tally.py), from the ballots of the trees: the votes of their leaves
   (forest/ballots.py).

If the nodes or ballots of a tree do not fit, they are mapped, and a range may be one row group. The smallest budget
therefore does not grow with the rows or with the size of a tree. There are three exceptions: groups and boosting need 2
bytes per row, the option `ranks` needs 8 bytes per code, and the terms and levels of a tree's nodes are not mapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.executor import Executor
from bigforest.execution.resources import Resources
from bigforest.forest.ballots import file_bytes, lambdas_to_try, loaded_bytes
from bigforest.forest.leaf_votes import VOTE_BYTES, step_rows
from bigforest.grow.families.registry import family_of
from bigforest.metrics.classes import MOST_SCORES, SCORE_BYTES, curves_of
from bigforest.oob.choice import LOSS_ROWS, powers_to_try
from bigforest.oob.score_files import ROW_BYTES
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import BASE_BYTES, MemoryEstimate, Shape
from bigforest.predict.groups import NODE_BYTES, loaded_tree_bytes, loading_bytes
from bigforest.predict.packed_trees import LISTED_NODES, ORDERED_BYTES, ORDERED_NODES
from bigforest.predict.predictor import CHUNK_BYTES
from bigforest.predict.rows import tile_bytes
from bigforest.sampling.bags import distinct_rows, draws_bytes, kept_trees, max_nodes
from bigforest.store.format import BLOCK_ROWS

# Most trees that rows are routed through together. For each of these trees and each row of a block, a thread holds the
# multiplicity of the row in the bag and its leaf, and a copy of both for out-of-bag rows.
_GROUP_TREES = 16
_ROW_TREE_BYTES = 12
# Nodes or ballots of a tree are mapped only if they have more bytes than this.
FITTING_BYTES = 32 << 20
# Bytes for each row and each lambda or power while losses are added up.
_LOSS_BYTES = 80
# Most distinct scores in memory without a budget. If there are more, they are written to files.
_FREE_SCORES = 1 << 20
# Pieces of a range for each thread.
PIECES = 4


class OobPlan(NamedTuple):
    """The plan of the report.

    group_bytes  most bytes of trees or ballots that are loaded together; a larger tree is mapped
    group_trees  most trees that are loaded together
    rows         rows of a range, whose votes are in memory together
    need         memory estimate of the report
    """

    group_bytes: int
    group_trees: int
    rows: int
    need: MemoryEstimate


def oob_estimate(
    shape: Shape, config: TrainConfig, resources: Resources, nodes: Sequence[int] | None = None
) -> MemoryEstimate:
    """Return the memory estimate of the report of a forest.

    nodes  number of nodes of each tree; None for as many as the bags allow

    The number of impure leaves is unknown. Without `nodes`, the estimate is the larger one of two cases: the largest
    trees without impure leaves, and the most impure leaves. An oblique node is assumed to have Family.max_terms terms,
    which are in memory only while rows are routed through existing trees. A budget below the `smallest` of the estimate
    counts as `smallest`.
    """
    tried = len(lambdas_to_try(config, shape.rows, shape.classes))
    # An impure leaf has at least two distinct rows: with p pure and m impure leaves, p + 2 m <= distinct rows of the
    # bag.
    distinct = distinct_rows(shape.rows, config, shape.classes)
    terms = family_of(config).max_terms(shape.features, config)
    if nodes is None:
        most = max_nodes(shape.rows, config, shape.classes)
        leaves = _max_impure(most, distinct, shape.classes)
        cases = [(most, 0), (2 * leaves + 1, leaves)]
        trees = [(np.full(config.trees, size, np.int64), np.array([impure])) for size, impure in cases]
    else:
        node_counts = np.asarray(nodes, np.int64)
        trees = [(node_counts, _max_impure(node_counts, distinct, shape.classes))]
    sizes = np.maximum.reduce([_sizes(*each, terms, shape, tried) for each in trees])
    numbers, weighted = shape.extras.regression, shape.extras.weighted
    files = max(
        int(file_bytes(size, size if numbers else impure, shape.classes, numbers or weighted).sum())
        for size, impure in trees
    )
    plan = choose_oob(shape, config, sizes, resources, tried)
    mapped = int(sizes.max()) if sizes.max() > plan.group_bytes else 0
    return _add_scratch(plan, shape, config, files + mapped)


def _add_scratch(plan: OobPlan, shape: Shape, config: TrainConfig, ballots: int) -> MemoryEstimate:
    """Return the estimate of the plan, with the scratch for leaves, ballots, scores and votes.

    ballots  bytes of ballots in files, and of mapped trees or ballots

    If there are several ranges, their votes are on disk until the report is written. With stop_oob
    (training/growers.py) the votes on all rows are on disk, and twice while they are replaced.
    """
    inside = 0.0  # lower bound of the distinct rows of a bag: balanced or boosted bags may have very few
    if config.sampling != "balanced" and not config.boosts:
        singly = replace(config, group=None)  # bags of whole groups have as many distinct rows on average
        inside = 0.8 * distinct_rows(shape.rows, singly, shape.classes) * (1.0 - (config.calibration or 0.0))
    left_out = shape.rows - round(inside)
    scratch = VOTE_BYTES * config.trees * left_out
    votes = 0 if config.stop_oob is None else 2 * shape.rows * votes_bytes(shape.classes)
    if plan.rows < shape.rows:
        votes = max(votes, shape.rows * votes_bytes(shape.classes))
    scores = ROW_BYTES * shape.rows * curves_of(shape.classes)
    return replace(plan.need, scratch=scratch + ballots + votes + scores)


def _max_impure(nodes: Any, distinct: int, classes: int) -> Any:
    """Return the largest possible number of impure leaves (for regression, of leaves) of trees of this many nodes.

    distinct  distinct rows of a bag
    """
    return np.minimum((nodes + 1) // 2, distinct // 2 if classes > 1 else distinct)


def _sizes(nodes: NDArray[np.int64], impure: Any, terms: float, shape: Shape, lambdas: int) -> NDArray[np.int64]:
    """Return the bytes of each tree: while rows are routed or while ballots are converted, whichever takes more.

    terms  number of terms of a split
    """
    entries = np.ceil(nodes // 2 * terms).astype(np.int64)
    loaded = loaded_tree_bytes(nodes, impure, entries, shape.classes)
    held = nodes if shape.extras.regression else impure
    return np.maximum(loaded, loaded_bytes(nodes, held, shape.classes, lambdas))


def choose_oob(
    shape: Shape, config: TrainConfig, sizes: NDArray[np.int64], resources: Resources, lambdas: int, term_bytes: int = 0
) -> OobPlan:
    """Return the plan of the report for trees of these sizes. A range has a multiple of `step_rows` rows, or all rows.

    sizes       int64 [trees or files], bytes of each tree or file that is loaded as a whole
    lambdas     number of lambdas that are tried
    term_bytes  most bytes of the terms and levels of a tree that rows are routed through; they are never mapped
    """
    total, largest = int(sizes.sum()), int(sizes.max())
    step = min(step_rows(shape.classes), shape.rows)
    group_trees = min(_GROUP_TREES, kept_trees(shape, config))
    writing, scores = _writing_bytes(shape), _score_bytes(shape, limited=True)
    reporting = writing + scores + resources.workers * _losses_bytes(shape, config, lambdas)
    routing = _routing_bytes(shape, total // NODE_BYTES, group_trees, resources.workers) + term_bytes
    fixed = BASE_BYTES + max(routing, reporting) + kept_trees(shape, config) * draws_bytes(shape, config)
    fixed += 8 * shape.codes if config.ranks else 0
    row_bytes = _row_bytes(shape, lambdas)
    fitting = min(largest, FITTING_BYTES)
    smallest = fixed + fitting + step * row_bytes
    if resources.memory is None:
        limits, rows = resources.limits, shape.rows
        group = min(total, max(largest, limits.group_bytes, limits.group_row_bytes * rows))
        fixed += (resources.workers - 1) * writing  # every worker writes
        fixed += resources.workers * _score_bytes(shape, limited=False) - scores
    else:
        room = max(resources.memory, smallest) - fixed
        most_rows = (room - fitting) // row_bytes
        rows = shape.rows if most_rows >= shape.rows else max(step, most_rows // step * step)
        group = min(total, room - rows * row_bytes)
    return OobPlan(group, group_trees, rows, MemoryEstimate("oob", fixed + group + rows * row_bytes, smallest))


def _writing_bytes(shape: Shape) -> int:
    """Return the bytes of a row group of the report while it is written."""
    return 4 * min(step_rows(shape.classes), shape.rows) * (8 * shape.classes + 32)


def _losses_bytes(shape: Shape, config: TrainConfig, lambdas: int) -> int:
    """Return the bytes of the losses of a piece of rows; 0 if neither a lambda nor a power is to be chosen."""
    tried = max(lambdas, len(powers_to_try(config, shape.classes)))
    return _LOSS_BYTES * tried * min(LOSS_ROWS, shape.rows) if tried > 1 else 0


def _row_bytes(shape: Shape, lambdas: int) -> int:
    """Return the bytes of a row of a range: truth, and votes or, if larger, votes for the truth by lambda."""
    truth = 8 if shape.classes == 1 else 2
    return truth + max(votes_bytes(shape.classes), 8 * lambdas + 4 if lambdas > 1 else 0)


def _routing_bytes(shape: Shape, nodes: int, trees: int, workers: int) -> int:
    """Return the bytes of routing rows through some trees at a time; nodes: upper bound of the nodes of all trees."""
    block_rows = min(shape.rows, BLOCK_ROWS)
    cells = min(CHUNK_BYTES, 8 * shape.features * block_rows)
    tiles = 2 * max(cells, tile_bytes(shape.features))  # a tile, and the values that fill it
    finding = tiles + _ROW_TREE_BYTES * trees * block_rows
    # Thresholds are replaced by codes before rows are routed.
    replacing = 4 * min(LISTED_NODES, nodes) + ORDERED_BYTES * min(ORDERED_NODES, nodes)
    return replacing + workers * max(finding, loading_bytes(nodes, shape.classes))


def _score_bytes(shape: Shape, *, limited: bool) -> int:
    """Return the bytes of the distinct scores in memory, see `max_scores`; 0 without ROC curves."""
    curves = curves_of(shape.classes)
    return SCORE_BYTES * max_scores(shape.rows, curves, limited=limited) if curves else 0


def votes_bytes(classes: int) -> int:
    return 8 * classes + 6 + (24 if classes == 1 else 0)


def range_rows(shape: Shape, config: TrainConfig, most: int, nodes: int, executor: Executor) -> int:
    """Return the number of rows of a range, at most `most`, a multiple of the rows of a row group of the report.

    nodes  mean number of nodes of a tree

    On a cluster there are as many ranges as processes, or fewer: a range has at least about as many out-of-bag rows as
    a tree has nodes, because loading the ballots of n nodes takes as long as adding up n votes.
    """
    if not executor.remote:
        return most
    step = step_rows(shape.classes)
    left_out = shape.rows - distinct_rows(shape.rows, config, shape.classes)
    ranges = min(executor.processes, max(1, -(-left_out // max(nodes, 1))))
    return min(most, -(-shape.rows // (ranges * step)) * step)


def max_scores(rows: int, curves: int, *, limited: bool) -> int:
    """Return the most distinct scores in memory at a time. If there are more, they are sorted in files; the areas are
    the same.

    curves   number of ROC curves
    limited  True if there is a memory budget
    """
    return min(max(rows // 16, 1 << 14), MOST_SCORES) if limited else min(rows * curves, _FREE_SCORES)
