"""Defaults that are chosen where numbers are predicted: nodes draw half of the features and leaves have 2 rows, or
nodes draw all and leaves have 1.

The first is best for most tables, the second where few features carry a signal with little noise. Some small trees are
grown by each rule on the same bags, and judged on rows that are not in these. Of a row that two trees left out, the
product of their errors is on average what a forest of very many such trees is wrong by, squared (Breiman 2001, section
11): the mean over the pairs of trees of a row estimates its squared error. The second rule is taken where that is
lower by a standard error. What is chosen is a function of the table and of the options but for trees and seed, so that
forests of different seeds can be merged. Oracle: tests/naive/number_defaults.py.
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


class Rule(NamedTuple):
    """How many features a node draws, and rows of a leaf at least."""

    mtry: FeatureRule
    min_leaf: int


class Errors(NamedTuple):
    """Of each row, float64 [rows]: the sum of the errors of the trees that left it out, that of their squares, and how
    many there are."""

    total: NDArray[np.float64]
    squares: NDArray[np.float64]
    trees: NDArray[np.float64]


def is_open(config: TrainConfig, features: int, rows: int) -> bool:
    """Whether there is something to choose, for a configuration that has a task, and a table of this size."""
    return (
        config.task == "regression"
        and config.mtry is None
        and config.feature_fraction is None
        and OPTIONS["mtry"].of(options_of(config.family))
        and features > 1
        and _row_count(rows, features) >= _FEWEST_ROWS
    )


def rules_for(config: TrainConfig) -> tuple[Rule, Rule]:
    """What is chosen from: the default, and the other; a size of leaves that was given is that of both."""
    return Rule("half", config.leaf_rule), Rule("all", config.min_leaf or 1)


def most_chosen(config: TrainConfig) -> TrainConfig:
    """The configuration with what takes most memory of all that may be chosen."""
    return replace(config, **rules_for(config)[1]._asdict())


def choose_defaults(store: Store, config: TrainConfig, resources: Resources, listener: Listener) -> TrainConfig:
    """The configuration, settled for the target of the store, with all that was not given."""
    if not is_open(config, len(store.spec.features), store.rows):
        return config.with_defaults()
    executor = resources.executor(1 if resources.memory is not None else None)
    own, rules = _pilot_config(config), rules_for(config)
    with compiling(kernels_of(store.shape.extras, own, passes=False), executor, listener):
        executor.run_on_all_workers(compile_for, store.shape.extras, own, False, resources.scratch)
    tasks = [(rule, range(first, first + _TASK_TREES)) for rule in rules for first in range(0, _TREES, _TASK_TREES)]
    found: dict[int, Errors] = {}
    with stage("choose", len(tasks) * _TASK_TREES, "trees", listener) as progress:

        def end(index: int, errors: Errors) -> None:
            found[index] = errors
            progress.advance(_TASK_TREES)

        executor.run(judge, tasks, end, (store, own))
    plain, other = (_sum([found[index] for index, task in enumerate(tasks) if task[0] is rule]) for rule in rules)
    weight = None if store.weight is None else store.weight[rows_to_judge(store.rows, len(store.spec.features))]
    chosen = rules[is_better(other, plain, weight)]
    if chosen is not rules[0]:
        (usual, fewest), least = rules[0], chosen.min_leaf
        listener(Notice(f"mtry is all and min_leaf {least}, which is better out of bag here than {usual} and {fewest}"))
    return replace(config, **chosen._asdict())


def _sum(parts: list[Errors]) -> Errors:
    """Of all trees; added in their order, as sums of floats differ by it."""
    return Errors(*np.sum(parts, axis=0))


def is_better(other: Errors, plain: Errors, weight: NDArray[Any] | None) -> bool:
    """Whether the loss of the other trees is lower than that of the plain ones by more than its standard error.

    weight  of each row; None where all weigh the same.
    """
    judged = plain.trees > 1
    if np.count_nonzero(judged) < 2:
        return False
    gain = _losses(plain, judged) - _losses(other, judged)
    weights = np.ones(gain.size) if weight is None else weight[judged].astype(np.float64)
    weights /= weights.sum()
    mean = float(weights @ gain)
    error = math.sqrt(float(weights**2 @ (gain - mean) ** 2))
    return mean > error


def _losses(errors: Errors, judged: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The mean product of the errors of two trees, of each row that is judged."""
    total, squares, trees = (of[judged] for of in errors)
    return (total**2 - squares) / (trees * (trees - 1))


def judge(store: Store, config: TrainConfig, rule: Rule, trees: range) -> Errors:
    """Task: the errors of trees that are grown by a rule on some rows of the store, for each of these rows."""
    rows = rows_to_judge(store.rows, len(store.spec.features))
    some, config = store.of_rows(rows), replace(config, **rule._asdict())
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
