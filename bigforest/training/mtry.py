"""How many features a node draws where numbers are predicted and `mtry` is not given: half of them, or all.

Half is best for most tables, all where few features carry the whole signal. Some small trees are grown by each rule on
the same bags, and judged on rows that are not in these. Of a row that two trees left out, the product of their errors
is on average what a forest of very many such trees is wrong by, squared (Breiman 2001, section 11): the mean over the
pairs of trees of a row estimates its squared error. All features are drawn where that is lower than with half of them
by a standard error. What is chosen is a function of the table and of the options but for trees and seed, so that
forests of different seeds can be merged. Oracle: tests/naive/mtry.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.events import Listener, Notice, stage
from bigforest.common.memory_estimate import BASE_BYTES, MemoryEstimate, Shape
from bigforest.execution.compiling import compiling
from bigforest.execution.resources import Resources
from bigforest.grow.forest import compile_for
from bigforest.grow.in_memory import forget_shared, grow_trees
from bigforest.grow.shared.memory import extra_bytes, tree_bytes
from bigforest.grow.warm_up import kernels_of
from bigforest.sampling.bags import BLOCK_ROWS, block_count
from bigforest.schema.config import TrainConfig
from bigforest.schema.options import FeatureRule
from bigforest.schema.registered import options_of
from bigforest.schema.train_options import OPTIONS
from bigforest.store.store import Store

_RULES: tuple[FeatureRule, ...] = ("half", "all")
# Trees of each rule, in tasks of some of them.
_TREES = 16
_TASK_TREES = 4
# Rows that they are grown and judged on: this many, fewer of wide tables, or a share of a large table, within limits.
# Below the fewest nothing is chosen.
_ROWS = 4_000
_CELLS = 1 << 18
_SHARE = 32
_MOST_CELLS = 1 << 22
_FEWEST_ROWS = 1_000
# Rows of large tables are drawn from so many blocks of theirs, so that not all of a store is read.
_BLOCKS = 16
# Bytes of a cell: its code by columns and by rows.
_CELL_BYTES = 8


class Errors(NamedTuple):
    """Of each row, float64 [rows]: the sum of the errors of the trees that left it out, that of their squares, and how
    many there are."""

    total: NDArray[np.float64]
    squares: NDArray[np.float64]
    trees: NDArray[np.float64]


def is_open(config: TrainConfig, features: int, rows: int) -> bool:
    """Whether the number of features to draw is still to be chosen, for numbers to predict and a table of this size."""
    return (
        config.task == "regression"
        and config.mtry is None
        and config.feature_fraction is None
        and OPTIONS["mtry"].of(options_of(config.family))
        and features > 1
        and _row_count(rows, features) >= _FEWEST_ROWS
    )


def choose_mtry(store: Store, config: TrainConfig, resources: Resources, listener: Listener) -> TrainConfig:
    """The configuration with `mtry`, where that was not given."""
    if not is_open(config, len(store.spec.features), store.rows):
        return replace(config, mtry=config.draw_rule)
    executor = resources.executor(1 if resources.memory is not None else None)
    own = _pilot_config(config)
    with compiling(kernels_of(store.shape.extras, own, passes=False), executor, listener):
        executor.run_on_all_workers(compile_for, store.shape.extras, own, False, resources.scratch)
    tasks = [(rule, range(first, first + _TASK_TREES)) for rule in _RULES for first in range(0, _TREES, _TASK_TREES)]
    found: dict[int, Errors] = {}
    with stage("choose", len(tasks) * _TASK_TREES, "trees", listener) as progress:

        def end(index: int, errors: Errors) -> None:
            found[index] = errors
            progress.advance(_TASK_TREES)

        executor.run(judge, tasks, end, (store, own))
    half, every = (_sum([found[index] for index, task in enumerate(tasks) if task[0] == rule]) for rule in _RULES)
    weight = None if store.weight is None else store.weight[rows_to_judge(store.rows, len(store.spec.features))]
    rule = better_rule(half, every, weight)
    if rule == "all":
        listener(Notice("mtry is all: out of bag that is better here than to draw half of the features"))
    return replace(config, mtry=rule)


def _sum(parts: list[Errors]) -> Errors:
    """Of all trees; added in their order, as sums of floats differ by it."""
    return Errors(*np.sum(parts, axis=0))


def better_rule(half: Errors, every: Errors, weight: NDArray[Any] | None) -> FeatureRule:
    """ "all" where the loss of the trees that draw all features is lower by more than its standard error; else "half".

    weight  of each row; None where all weigh the same.
    """
    judged = half.trees > 1
    if np.count_nonzero(judged) < 2:
        return "half"
    gain = _losses(half, judged) - _losses(every, judged)
    weights = np.ones(gain.size) if weight is None else weight[judged].astype(np.float64)
    weights /= weights.sum()
    mean = float(weights @ gain)
    error = math.sqrt(float(weights**2 @ (gain - mean) ** 2))
    return "all" if mean > error else "half"


def _losses(errors: Errors, judged: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The mean product of the errors of two trees, of each row that is judged."""
    total, squares, trees = (of[judged] for of in errors)
    return (total**2 - squares) / (trees * (trees - 1))


def judge(store: Store, config: TrainConfig, rule: FeatureRule, trees: range) -> Errors:
    """Task: the errors of trees that are grown by a rule on some rows of the store, for each of these rows."""
    rows = rows_to_judge(store.rows, len(store.spec.features))
    some, config = store.of_rows(rows), replace(config, mtry=rule)
    target = np.asarray(some.spec.target.values(some.target), np.float64)
    errors = Errors(np.zeros(rows.size), np.zeros(rows.size), np.zeros(rows.size))
    try:
        for grown in grow_trees(some, config, trees):
            assert grown.left_out is not None
            for root, out in zip(np.flatnonzero(grown.trees.depth == 0), grown.left_out, strict=True):
                assert grown.trees.value is not None
                error = grown.trees.value[root + out.leaves] - target[out.rows]
                errors.total[out.rows] += error
                errors.squares[out.rows] += error**2
                errors.trees[out.rows] += 1.0
    finally:
        forget_shared(some, config)
    return errors


def rows_to_judge(rows: int, features: int) -> NDArray[np.int64]:
    """The rows that trees are grown and judged on, ascending: drawn, a function of the size of the table alone."""
    wanted = _row_count(rows, features)
    random = np.random.Generator(np.random.Philox(key=rows))
    blocks = block_count(rows)
    if blocks <= _BLOCKS:
        return np.sort(random.choice(rows, wanted, replace=False))
    chosen = np.sort(random.choice(blocks - 1, _BLOCKS, replace=False))  # the last may be short
    each = [np.sort(random.choice(BLOCK_ROWS, wanted // _BLOCKS, replace=False)) for _ in chosen]
    return np.concatenate([block * BLOCK_ROWS + own for block, own in zip(chosen, each, strict=True)])


def choose_estimate(shape: Shape, config: TrainConfig, resources: Resources) -> MemoryEstimate:
    """What choosing needs, see common/memory_estimate.py."""
    rows = _row_count(shape.rows, shape.features)
    own = _CELL_BYTES * rows * shape.features + tree_bytes(rows, 2 * rows, 1) + extra_bytes(shape, rows, 2 * rows)
    needed = BASE_BYTES + own * (1 if resources.memory is not None else resources.executor().size)
    return MemoryEstimate("choose", needed, BASE_BYTES + own)


def visits_to_choose(shape: Shape) -> float:
    """How often the trees that are judged look at a feature of a row, about; of a table that they are grown for."""
    rows = _row_count(shape.rows, shape.features)
    return _TREES * rows * math.log2(max(rows, 2)) * 1.5 * shape.features


def _row_count(rows: int, features: int) -> int:
    share = min(rows // _SHARE, _MOST_CELLS // features)
    return min(rows, max(share, min(_ROWS, _CELLS // features)))


def _pilot_config(config: TrainConfig) -> TrainConfig:
    """That of the trees that are judged: of a seed of their own, and with rows out of bag."""
    config = replace(config, trees=_TREES, seed=0, stop_oob=None, keep_votes=False, keep_targets=False)
    return config if config.bootstrap else replace(config, bootstrap=True)
