"""Trial trees: small forests that are grown before the forest, to choose options by their out-of-bag error.

All configurations are tried on the same bags of some rows. The error of a tree on a row is its prediction minus the
truth. For classes there is an error for each class: the predicted share minus 1 or 0. If two trees leave a row out, the
product of their errors is on average the squared error of a forest of very many trees (Breiman 2001, section 11). The
mean over pairs of trees estimates this error; for the Poisson deviance see `_losses`. choose.py compares the estimates
of configurations by their standard errors. The choice does not depend on the options trees and seed, so that forests of
different seeds can be merged.
Oracle: tests/naive/trial_trees.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigforest.events import Listener, stage
from bigforest.execution.compile_stage import compiling
from bigforest.execution.executor import in_order
from bigforest.execution.process_cache import ProcessCache
from bigforest.execution.resources import Resources
from bigforest.forest.leaf_votes import LeftOut
from bigforest.forest.nodes import TreeArrays, node_predictions
from bigforest.grow.forest import compile_for, forget_shared, grow_trees
from bigforest.grow.memory_model import cut_bytes, extra_bytes, tree_bytes
from bigforest.grow.needed_kernels import kernels_of
from bigforest.grow.refine import held_out_rows
from bigforest.kernels.common.layout import LEAF
from bigforest.metrics.numbers import poisson_deviances
from bigforest.oob.accumulator import error_unit
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import BASE_BYTES, MemoryEstimate, Shape
from bigforest.store.format import BLOCK_ROWS, block_count
from bigforest.store.store import Store

T = TypeVar("T")

# Trees of each configuration, and of a task, unless said otherwise.
TREES = 16
TASK_TREES = 4
# Rows on which trial trees are grown and evaluated (`row_count`):
#     max(share of the table, min(_ROWS, _CELLS / features)), at most _MOST_CELLS / features
# The share is 1 / _SHARE_OF_CLASSES for axis trees of classification, otherwise 1 / _SHARE. If _CELLS / features is
# below _WIDE_ROWS, _WIDE_ROWS replaces it for axis trees of classification, and for axis trees of regression with more
# features than rows.
_ROWS = 4_000
_CELLS = 1 << 18
_SHARE = 32
_SHARE_OF_CLASSES = 64
_WIDE_ROWS = 1_000
_MOST_CELLS = 1 << 22
# Rows of large tables are drawn from this many of their blocks, so that not all of a store is read.
_BLOCKS = 16
# Bytes of a cell in a process (code and value), and in a task (code, in an array by rows).
_SHARED_CELL_BYTES = 12
_CELL_BYTES = 4
# Bytes of an error in a task, of a sum of errors of a configuration, and of an error while two of them are compared.
_ERROR_BYTES = 24
_KEPT_BYTES = 8
_COMPARED_BYTES = 48
# Most rules of `mtry` that are compared.
_RULES = 3


class Errors(NamedTuple):
    """Sums of errors on each row over the trees that left the row out.

    total    float64 [rows, outputs], sums of the errors
    squares  float64 [rows], sums of the squared errors over all outputs
    trees    float64 [rows], number of trees that left the row out
    split    bag rows of all nodes that the trees split, a measure of time
    truth    float64 [rows], targets times `error_unit`, for the Poisson deviance; None for other losses
    """

    total: NDArray[np.float64]
    squares: NDArray[np.float64]
    trees: NDArray[np.float64]
    split: float
    truth: NDArray[np.float64] | None = None


class TrialTrees(NamedTuple):
    """Trees of one call of the kernel, the rows that each tree left out, and the truth, float64 [rows, outputs]."""

    trees: TreeArrays
    left_out: Sequence[LeftOut]
    truth: NDArray[np.float64]

    @property
    def predictions(self) -> NDArray[np.float64]:
        """Prediction of each node, float64 [nodes, outputs]: its class shares, or its mean."""
        return node_predictions(self.trees.counts, self.trees.value)


def try_each(
    measure: Callable[[Store, TrainConfig, range], T],
    configs: Sequence[TrainConfig],
    store: Store,
    resources: Resources,
    listener: Listener,
    trees: range | None = None,
    size: int = TASK_TREES,
    *,
    join: Callable[[T, T], T],
    before: Sequence[T] = (),
) -> list[T]:
    """Run the task `measure` on the trees of each configuration, `size` trees at a time. Return the joined results.

    trees   numbers of the trees of each configuration; both ends are multiples of `size`. None for all trees
    join    function that joins the result of earlier trees with the result of the next trees
    before  for each configuration, the result of the trees before `trees`
    """
    executor = resources.executor(1 if resources.memory is not None else None)
    for of_family in {config.family: config for config in configs}.values():
        with compiling(kernels_of(store.shape.extras, of_family, passes=False), executor, listener):
            executor.run_on_all_workers(compile_for, store.shape.extras, of_family, False, resources.scratch)
    trees = range(configs[0].trees) if trees is None else trees
    parts = [range(first, first + size) for first in range(trees.start, trees.stop, size)]
    tasks = [(config, part) for config in configs for part in parts]
    results: list[T | None] = list(before) or [None for _ in configs]

    def add(place: int, _: int, result: T) -> None:
        """Join the result of the next part of a configuration to the results of its earlier parts."""
        earlier = results[place]
        results[place] = result if earlier is None else join(earlier, result)

    add_part = [in_order(partial(add, place)) for place in range(len(configs))]

    def end(index: int, result: T) -> None:
        add_part[index // len(parts)](index % len(parts), result)
        progress.advance(size)

    with stage("choose", len(tasks) * size, "trees", listener) as progress:
        executor.run(measure, tasks, end, (store,))
    executor.run_on_all_workers(_forget_table, store, configs[0])
    return [result for result in results if result is not None]


def trial_config(config: TrainConfig, **options: Any) -> TrainConfig:
    """Return the configuration of trial trees: seed 0, with out-of-bag rows."""
    if config.boosts:
        options["sampling"] = "uniform"
    options = {"trees": TREES} | options
    return replace(config, seed=0, stop_oob=None, keep_votes=False, keep_targets=False, bootstrap=True, **options)


def trial_errors(store: Store, config: TrainConfig, trees: range) -> Errors:
    """Task: return the errors of some trees on each row of their table.

    Errors are multiplied by `error_unit`, so that the squares of large targets do not overflow.
    """
    unit = error_unit(store)
    errors: Errors | None = None
    for trial in trials(store, config, trees):
        if errors is None:
            rows = len(trial.truth)
            truth = trial.truth[:, 0] * unit if config.criterion == "poisson" else None
            errors = Errors(np.zeros_like(trial.truth), np.zeros(rows), np.zeros(rows), 0.0, truth)
        predictions = trial.predictions
        errors = errors._replace(split=errors.split + float(trial.trees.weight[trial.trees.feature != LEAF].sum()))
        for root, out in zip(trial.trees.roots, trial.left_out, strict=True):
            error = (predictions[root + out.leaves] - trial.truth[out.rows]) * unit
            errors.total[out.rows] += error
            errors.squares[out.rows] += (error**2).sum(axis=1)
            errors.trees[out.rows] += 1.0
    assert errors is not None
    return errors


def trials(store: Store, config: TrainConfig, trees: range) -> Iterator[TrialTrees]:
    """Grow some trees on the trial rows, and yield them, one call of the kernel at a time."""
    table = _tables.get(_table_key(store, config), lambda: store.of_rows(trial_rows(store, config)))
    config = replace(config, calibration=None)
    if config.task == "classification":
        truth = (table.target[:, None] == np.arange(len(store.spec.target.classes))).astype(np.float64)
    else:
        truth = np.asarray(table.spec.target.values(table.target), np.float64)[:, None]
    try:
        for grown in grow_trees(table, config, trees):
            assert grown.left_out is not None
            yield TrialTrees(grown.trees, grown.left_out, truth)
    finally:
        forget_shared(table, config)


# The rows that trial trees are grown on, shared by the tasks of this process.
_tables: ProcessCache[Store] = ProcessCache(1)


def _table_key(store: Store, config: TrainConfig) -> Hashable:
    return store, row_count(store.shape, config), config.calibration


def _forget_table(store: Store, config: TrainConfig) -> None:
    _tables.forget(_table_key(store, config))


def summed(errors: Errors, following: Errors) -> Errors:
    """Add the errors of trees and of the following trees. Sums of floats depend on the order of the trees."""
    return Errors(
        errors.total + following.total,
        errors.squares + following.squares,
        errors.trees + following.trees,
        errors.split + following.split,
        errors.truth,
    )


def gain_of(errors: Errors, reference: Errors, weight: NDArray[Any] | None) -> tuple[float, float]:
    """Return the mean decrease of the loss from `reference` to `errors` over the rows, and its standard error.

    weight  weight of each row; None if all are equal

    A row can be evaluated if at least two trees left it out. Both results are 0 for fewer than two such rows.
    """
    evaluated = reference.trees > 1
    if np.count_nonzero(evaluated) < 2:
        return 0.0, 0.0
    gain = _losses(reference, evaluated) - _losses(errors, evaluated)
    weights = np.ones(gain.size) if weight is None else weight[evaluated].astype(np.float64)
    weights /= weights.sum()
    mean = float(weights @ gain)
    return mean, math.sqrt(float(weights**2 @ (gain - mean) ** 2))


def spread_of(errors: Errors, weight: NDArray[Any] | None) -> float:
    """Return the mean excess loss of a single tree over an infinite forest. A forest of B trees has 1/B of it.

    It is 0 if no row can be evaluated.
    """
    evaluated = errors.trees > 1
    if not evaluated.any():
        return 0.0
    single = errors.squares[evaluated] / errors.trees[evaluated]
    return float(np.average(single - _losses(errors, evaluated), weights=None if weight is None else weight[evaluated]))


def _losses(errors: Errors, evaluated: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the loss of an infinite forest on each evaluated row: the mean product of the errors of two trees.

    For the Poisson deviance, return the deviance of the mean of the trees, corrected to second order for their number.
    """
    total, squares, trees = (of[evaluated] for of in errors[:3])
    if errors.truth is None:
        return ((total**2).sum(axis=1) - squares) / (trees * (trees - 1))
    truth, error = errors.truth[evaluated], total[:, 0] / trees
    mean = np.maximum(truth + error, truth.max() * 2.0**-52)
    variance = np.maximum(squares / trees - error**2, 0.0) / (trees - 1)  # of the mean of the trees
    return poisson_deviances(truth, mean) - truth * variance / mean**2


def trial_weights(store: Store, config: TrainConfig) -> NDArray[Any] | None:
    """Return the weights of the rows on which trees are evaluated; None if all are equal."""
    return None if store.weight is None else store.weight[trial_rows(store, config)]


def trial_rows(store: Store, config: TrainConfig) -> NDArray[np.int64]:
    """Return the rows on which trees are grown and evaluated: `sampled_rows` without held-out rows."""
    rows = sampled_rows(store.rows, row_count(store.shape, config))
    return rows if config.calibration is None else rows[~held_out_rows(store, config, rows)]


def sampled_rows(rows: int, count: int) -> NDArray[np.int64]:
    """Draw `count` row numbers, ascending; of a large table count // _BLOCKS from each of _BLOCKS blocks.

    The draw depends only on `rows` and `count`.
    """
    random = np.random.Generator(np.random.Philox(key=rows))
    blocks = block_count(rows)
    if blocks <= _BLOCKS:
        return np.sort(random.choice(rows, count, replace=False))
    chosen = np.sort(random.choice(blocks - 1, _BLOCKS, replace=False))  # the last may be short
    share = count // _BLOCKS
    return np.concatenate(
        [block * BLOCK_ROWS + np.sort(random.choice(BLOCK_ROWS, share, replace=False)) for block in chosen]
    )


def row_count(shape: Shape, config: TrainConfig) -> int:
    """Return the number of rows on which trees are grown and evaluated. `config.task` must be known."""
    rows, features = shape.rows, shape.features
    most = _MOST_CELLS // features
    axis, classes = config.base_family == "axis", config.task == "classification"
    share = rows // (_SHARE_OF_CLASSES if axis and classes else _SHARE)
    wide = max(_CELLS // features, _WIDE_ROWS if axis and (classes or features > rows) else 0)
    return min(rows, max(min(share, most), min(_ROWS, wide, most)))


def choose_estimate(shape: Shape, config: TrainConfig, resources: Resources) -> MemoryEstimate:
    rows = row_count(shape, config)
    task = _CELL_BYTES * rows * shape.features + tree_bytes(rows, 2 * rows, 1) + extra_bytes(shape, rows, 2 * rows)
    task += 2 * rows * cut_bytes(config, 1) + _ERROR_BYTES * rows * shape.classes
    settings = _RULES if config.base_family == "axis" else _RULES + shape.features.bit_length()
    base = BASE_BYTES + (_KEPT_BYTES * settings + _COMPARED_BYTES) * rows * shape.classes
    base += _SHARED_CELL_BYTES * rows * shape.features
    needed = base + task * (1 if resources.memory is not None else resources.executor().size)
    return MemoryEstimate("choose", needed, base + task)
