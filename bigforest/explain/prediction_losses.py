"""Permutation importance by the losses of whole predictions, for a forest with a boosted stage.

1. Predict each row as the out-of-bag report does: by the trees of the forest and the sequences of trees of the stage
   that were not grown on the row.
2. Permute a feature, or a group of features, among all rows, and predict again. Repeat this with other orders.
3. The importance is the mean increase of the loss of a row, over the orders and the rows with a vote.

A task has a range of rows, routes them through all trees once for each order, and adds up the changes of answers that
permuted values cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.explain.job import ExplainJob, LoadedTree, SectionPlan, Sweep, plan_sweep
from bigforest.explain.permuted_groups import DRAW_NS, PermutationRules, permuted_groups
from bigforest.explain.row_table import replace_columns
from bigforest.forest.refinement import SEQUENCES
from bigforest.grow.refine import stage_bags
from bigforest.planning.sizes import row_ranges

# A feature is permuted in up to _MOST_ORDERS random orders, as long as orders * rows is at most _ORDERED_ROWS. The mean
# over several orders is less noisy.
_MOST_ORDERS, _ORDERED_ROWS = 5, 50_000
# The rows are divided into _TASKS tasks of at least _LEAST_ROWS rows, or into more tasks so that none holds more than
# _CELLS numbers.
_CELLS, _LEAST_ROWS, _TASKS = 1 << 23, 2048, 64
# Bytes of a row of the table while its bag, and an order, are drawn.
_ROW_BYTES = 24


class LossSums(NamedTuple):
    """Sums over rows, by class (one column for regression); w: weight of a row, d: increase of its loss.

    change  float64 [3, groups, classes], sums of w d, w**2 d and w**2 d**2
    weight  float64 [2, classes], sums of w and w**2
    rows    int64 [classes], number of rows
    """

    change: NDArray[np.float64]
    weight: NDArray[np.float64]
    rows: NDArray[np.int64]

    def mean_and_error(self, code: int | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the importance of each group, and its standard error over the rows.

        code  class of the rows; None for all rows
        """
        columns = slice(None) if code is None else slice(code, code + 1)
        first, second, third = self.change[..., columns].sum(axis=2)
        weight, squares = self.weight[:, columns].sum(axis=1)
        rows = int(self.rows[columns].sum())
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = first / weight
            spread = np.maximum(third - 2.0 * mean * second + mean * mean * squares, 0.0)
            return mean, np.sqrt(spread * (rows / (rows - 1.0) if rows > 1 else np.nan)) / weight


class _Permuted(NamedTuple):
    """Rows in which some disjoint groups of features have permuted values.

    groups    numbers of the groups
    replaced  Replaced of kernels/explain/step.py, with the permuted values
    change    float64 [groups, rows, answers], sums over trees of the changes of their answers

    `answers` is how many numbers an answer of a tree has, see `changed_losses`.
    """

    groups: list[int]
    replaced: Any
    change: NDArray[np.float64]


def orders_of(rows: int) -> int:
    """Return the number of random orders of each feature in a table of this many rows."""
    return max(1, min(_MOST_ORDERS, _ORDERED_ROWS // max(1, rows)))


def plan_prediction_losses(job: ExplainJob, name: str, chosen: int) -> SectionPlan:
    """Plan `permutation`, or `local`, of a forest with a boosted stage; chosen: number of rows that are evaluated."""
    stock, rows, groups = job.voting, job.described.rows, len(permuted_groups(job))
    cells, step = _piece_shape(job)
    task_bytes = 8 * cells * min(step, chosen) + _ROW_BYTES * rows
    orders, tasks = orders_of(rows), -(-chosen // step)
    walk = stock.walk_nanoseconds(chosen * orders) * 2.0
    shared = 24 * groups * chosen if name == "local" else 0
    return plan_sweep(
        name, stock, job.resources, task_bytes + shared, work=walk + DRAW_NS * tasks * orders * groups * rows
    )


def _piece_shape(job: ExplainJob) -> tuple[int, int]:
    """Return how many numbers a task holds for each row, and how many rows it has."""
    stage = job.stage
    assert stage is not None
    groups, rows = permuted_groups(job), job.described.rows
    answers = len(stage.classes) + stage.link.outputs
    cells = orders_of(rows) * (sum(len(group.places) for group in groups) + answers * len(groups)) + 4 * answers
    return cells, max(1, min(_CELLS // cells, max(_LEAST_ROWS, rows // _TASKS)))


def loss_sums(job: ExplainJob, plan: SectionPlan, rules: PermutationRules) -> LossSums:
    """Return the sums over all rows with a target."""
    sums = _over_rows("permutation", job, plan, rules, sum_losses, range(rules.oob.table.labelled_rows().size))
    return LossSums._make(sum(arrays) for arrays in zip(*sums, strict=True))


def local_prediction_losses(
    job: ExplainJob, plan: SectionPlan, rules: PermutationRules, positions: NDArray[np.uint32]
) -> tuple[NDArray[np.float64], NDArray[np.uint32]]:
    """Return the increase of the loss of each row, and the number of trees not grown on it, see `local_tree_losses`."""
    pieces = _over_rows("local", job, plan, rules, changed_losses, positions)
    change, voters = np.hstack([change for change, _ in pieces]), np.concatenate([voters for _, voters in pieces])
    return np.where(voters[:, None] > 0, change.T, np.nan), voters


def _over_rows(
    name: str,
    job: ExplainJob,
    plan: SectionPlan,
    rules: PermutationRules,
    function: Callable[..., Any],
    positions: range | NDArray[np.uint32],
) -> list[Any]:
    """Run a task for each piece of the positions. Return the results in order."""
    pieces = [(positions[begin:end],) for begin, end in row_ranges(len(positions), _piece_shape(job)[1])]
    shared = job.sweep(plan), rules, orders_of(rules.oob.table.rows)
    return job.over_rows(name, plan, function, pieces, shared)


def sum_losses(sweep: Sweep, rules: PermutationRules, orders: int, positions: range) -> LossSums:
    """Task: return the sums over the rows at these positions among the rows with a target."""
    table = rules.oob.table
    change, voters = changed_losses(sweep, rules, orders, positions)
    rows = table.labelled_rows()[positions.start : positions.stop]
    row_weight, width = table.weight(), sweep.stock.width
    weight = np.where(voters > 0, 1.0 if row_weight is None else row_weight[rows], 0.0)
    of_class = table.target()[rows].astype(np.int64) if table.is_classification else np.zeros(rows.size, np.int64)

    def by_class(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(of_class, values, width).astype(np.float64)

    changes = np.array(
        [[by_class(factor * d) for d in change] for factor in (weight, weight * weight)]
        + [[by_class(weight * weight * d * d) for d in change]]
    )
    weights = np.array([by_class(weight), by_class(weight * weight)])
    return LossSums(changes, weights, np.bincount(of_class[voters > 0], minlength=width))


def changed_losses(
    sweep: Sweep, rules: PermutationRules, orders: int, chosen: range | NDArray[np.uint32]
) -> tuple[NDArray[np.float64], NDArray[np.uint32]]:
    """Task: return the increase of the loss of each row, and the number of trees that were not grown on it.

    chosen  positions among the rows with a target, ascending

    The increases are means over the orders, float64 [groups, rows]. The numbers are uint32 [rows].
    Oracle: tests/naive/explain.py refined_change.
    """
    table, stage, positions = rules.oob.table, sweep.stock.stage, np.asarray(chosen, np.int64)
    assert stage is not None
    rows = np.ascontiguousarray(table.labelled_rows()[positions])
    # An answer consists of the shares of `stage.classes` from the forest, then the outputs of the stage.
    shares = len(stage.classes)
    answers = shares + stage.link.outputs
    permuted = _permute_rows(rules, orders, rows, positions, answers)
    total, voters = np.zeros((rows.size, answers)), np.zeros(rows.size)
    bags = rules.oob.bags
    for tree, answer in sweep.trees():
        out = np.ones(rows.size, np.bool_) if bags is None else bags.bag(tree.number)[positions] == 0
        _add_answers(tree, answer, out, permuted, total, 0)
        voters += out
    in_bag = np.zeros((SEQUENCES, rows.size), np.bool_)
    if bags is not None and rows.size:
        inputs: Any = bags.inputs  # has the attributes of a Store that these draws use
        in_bag = stage_bags(inputs, bags.config, positions)
    for tree, answer in sweep.stage_trees():
        _add_answers(tree, answer, ~in_bag[tree.number], permuted, total, shares)
    # The share of the sequences that leave out each row. Answers of the stage are divided by SEQUENCES (`load_stage`).
    left_out = (SEQUENCES - in_bag.sum(axis=0)) / SEQUENCES

    def losses(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        values = sums[:, :shares] / np.maximum(voters, 1.0)[:, None]
        return _row_losses(stage.predictions(values, sums[:, shares:] / left_out[:, None]), rules, rows)

    before, change = losses(total), np.zeros((len(rules.groups), rows.size))
    for each in permuted:
        for at, group in enumerate(each.groups):
            change[group] += losses(total + each.change[at]) - before
    return change / orders, voters.astype(np.uint32)


def _permute_rows(
    rules: PermutationRules, orders: int, rows: NDArray[np.uint32], positions: NDArray[np.int64], answers: int
) -> list[_Permuted]:
    """Return the rows with each group of features permuted in each of several random orders.

    orders     number of orders
    positions  positions of `rows` among the rows with a target
    answers    how many numbers an answer of a tree has
    """
    from bigforest.kernels.explain.replace import shuffle_columns

    values, kept = rules.oob.table.values(), rules.oob.table.labelled_rows()
    unchanged = read_only(values[rows])
    row_numbers, only_column = read_only(np.arange(kept.size, dtype=np.uint32)), np.zeros(1, np.uint64)
    order = np.empty((1, kept.size), np.uint32)
    permuted = []
    for repetition in range(orders):
        for numbers in rules.together(len(rules.oob.table.used)):
            columns, groups = rules.columns(numbers)
            drawn = np.empty((columns.size, rows.size), values.dtype)
            for at, number in enumerate(numbers):
                with np.errstate(over="ignore"):
                    key = np.array([rules.key(repetition, number)])
                    shuffle_columns(kept[:, None], row_numbers, only_column, key, order)
                of_group = np.flatnonzero(groups == at)
                drawn[of_group] = values[order[0, positions], columns[of_group, None]]
            replaced = replace_columns(unchanged, drawn, columns, groups)
            permuted.append(_Permuted(numbers, replaced, np.zeros((len(numbers), rows.size, answers))))
    return permuted


def _add_answers(
    tree: LoadedTree,
    answer: NDArray[np.float64],
    out: NDArray[np.bool_],
    permuted: Sequence[_Permuted],
    total: NDArray[np.float64],
    first: int,
) -> None:
    """Add the answers of a tree to `total`, and the changes of its answers to `permuted`.

    out    bool [rows], True for the rows that the tree was not grown on; others are skipped
    total  float64 [rows, answers], sums of the answers of trees
    first  column of `total` to which the first number of an answer is added
    """
    from bigforest.kernels.explain.replace import make_parted, permute_answers

    rows, begin = np.flatnonzero(out).astype(np.uint32), np.uint64(tree.begin)
    leaves = np.empty(rows.size, np.uint32)
    for each in permuted:
        parted = make_parted(len(each.groups))
        permute_answers(tree.walked, each.replaced, rows, begin, answer, np.uint64(first), parted, leaves, each.change)
    total[rows, first : first + answer.shape[1]] += answer[leaves]


def _row_losses(
    predictions: NDArray[np.float64], rules: PermutationRules, rows: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """Return the loss of each row; the deviance without terms that do not depend on the prediction."""
    table = rules.oob.table
    truth = table.target()[rows]
    if table.is_classification:
        return rules.class_losses(predictions)[np.arange(rows.size), truth]
    number = predictions[:, 0]
    if rules.loss == "mse":
        return np.asarray((number - truth) ** 2)
    number = rules.raised_to_floor(number)
    return np.asarray(2.0 * (number - truth * np.log(number)))
