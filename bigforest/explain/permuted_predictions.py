"""Permutation importance of forests with a boosted stage: the loss of whole predictions, not of single trees.

1. Predict each row by the trees and the sequences of the stage that do not use it, as the out-of-bag report does.
2. Permute a feature, or a group of features, among all rows, and predict again. Repeat this with other orders.
3. The importance is the mean increase of the loss of a row.

A task computes this for a range of rows. It routes them through all trees once for each order, and adds up the changes
of answers by permuted values (kernels/explain/permute.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.events import stage
from bigforest.explain.job import ExplainJob, OutOfBagRows
from bigforest.explain.permuting import (
    DRAW_NS,
    Permuting,
    leaf_losses,
    order_key,
    permuted_columns,
    permuted_groups,
    permuted_together,
)
from bigforest.explain.tree_groups import LoadedTree, SectionPlan, Sweep, plan_sweep
from bigforest.forest.refinement import SEQUENCES
from bigforest.grow.boosted import stage_bags
from bigforest.oob.accumulator import least_counted
from bigforest.oob.refine import sample_share
from bigforest.planning.sizes import row_ranges

# Orders of each feature: small tables have several, whose mean is less noisy, up to about this many rows together.
_MOST_ORDERS, _ORDERED_ROWS = 5, 50_000
# Numbers that a task holds, and its rows if all of them would fit: tables of many rows have this many tasks.
_CELLS, _LEAST_ROWS, _TASKS = 1 << 23, 2048, 64
# Bytes of a row of the table while its bag, and an order, are drawn.
_ROW_BYTES = 24


class LossSums(NamedTuple):
    """Sums over rows, by class of the row, or, for regression, in one column. d is the increase of the loss of a row,
    and w its weight.

    change  float64 [3, groups, classes], of w d, w w d and w w d d
    weight  float64 [2, classes], of w and w w
    rows    int64 [classes]
    """

    change: NDArray[np.float64]
    weight: NDArray[np.float64]
    rows: NDArray[np.int64]


class _Orders(NamedTuple):
    """Some groups of features in a random order.

    groups    their numbers
    replaced  Replaced of kernels/explain/step.py, with the permuted values of the rows
    change    float64 [numbers of an answer, groups, rows], sums over trees of the changes of their answers
    """

    groups: list[int]
    replaced: Any
    change: NDArray[np.float64]


def orders_of(rows: int) -> int:
    """Return the number of orders in which each feature is permuted, in a table of as many rows."""
    return max(1, min(_MOST_ORDERS, _ORDERED_ROWS // max(1, rows)))


def plan_refined(job: ExplainJob, name: str, chosen: int) -> SectionPlan:
    """Plan `permutation`, or `local`, of a forest with a boosted stage; chosen: number of rows that are evaluated."""
    stock, rows, groups = job.voting, job.described.rows, len(permuted_groups(job))
    cells, step = _piece(job)
    own = 8 * cells * min(step, chosen) + _ROW_BYTES * rows
    orders, tasks = orders_of(rows), -(-chosen // step)
    walk = stock.walk_nanoseconds(chosen * orders) * stock.width * 2.0
    shared = 24 * groups * chosen if name == "local" else 0
    return plan_sweep(name, stock, job.resources, own + shared, work=walk + DRAW_NS * tasks * orders * groups * rows)


def _piece(job: ExplainJob) -> tuple[int, int]:
    """Return the numbers that a task holds for a row, and its number of rows."""
    stage = job.stage
    assert stage is not None
    groups, rows = permuted_groups(job), job.described.rows
    answers = len(stage.classes) + stage.link.outputs
    cells = orders_of(rows) * (sum(len(group.places) for group in groups) + answers * len(groups)) + 4 * answers
    return cells, max(1, min(_CELLS // cells, max(_LEAST_ROWS, rows // _TASKS)))


def loss_sums(job: ExplainJob, plan: SectionPlan, how: Permuting) -> LossSums:
    """Return the sums over all rows with a target."""
    table = how.oob.table
    _, step = _piece(job)
    pieces = row_ranges(table.labelled_rows().size, step)
    shared = _shared(job, plan, how)
    with (
        stage("permutation", table.labelled_rows().size, "rows", job.listener) as progress,
        job.sweeping(plan.at_once) as executor,
    ):
        found = executor.gather(sum_losses, pieces, lambda i: progress.advance(pieces[i][1] - pieces[i][0]), shared)
    return LossSums._make(sum(arrays) for arrays in zip(*found, strict=True))


def _shared(job: ExplainJob, plan: SectionPlan, how: Permuting) -> tuple[Sweep, Permuting, int]:
    return job.sweep(plan, ()), how, orders_of(how.oob.table.rows)


def sum_losses(sweep: Sweep, how: Permuting, orders: int, begin: int, end: int) -> LossSums:
    """Task: the sums over some of the rows with a target."""
    table = how.oob.table
    change, voters = changed_losses(sweep, how, orders, np.arange(begin, end))
    rows = table.labelled_rows()[begin:end]
    every, width = table.weight(), sweep.stock.width
    weight = np.where(voters > 0, 1.0 if every is None else every[rows], 0.0)
    of_class = table.target()[rows].astype(np.int64) if table.classes else np.zeros(rows.size, np.int64)

    def by_class(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(of_class, values, width).astype(np.float64)

    changes = np.array(
        [[by_class(own * d) for d in change] for own in (weight, weight * weight)]
        + [[by_class(weight * weight * d * d) for d in change]]
    )
    weights = np.array([by_class(weight), by_class(weight * weight)])
    return LossSums(changes, weights, np.bincount(of_class[voters > 0], minlength=width))


def changed_losses_of(
    job: ExplainJob, plan: SectionPlan, how: Permuting, places: NDArray[np.uint32]
) -> tuple[NDArray[np.float64], NDArray[np.uint32]]:
    """Return `changed_losses` of rows at these places among those with a target."""
    _, step = _piece(job)
    pieces = [(places[begin:end].astype(np.int64),) for begin, end in row_ranges(places.size, step)]
    with (
        stage("local importance", places.size, "rows", job.listener) as progress,
        job.sweeping(plan.at_once) as executor,
    ):
        found = executor.gather(
            changed_losses, pieces, lambda i: progress.advance(pieces[i][0].size), _shared(job, plan, how)
        )
    return np.hstack([change for change, _ in found]), np.concatenate([voters for _, voters in found])


def changed_losses(
    sweep: Sweep, how: Permuting, orders: int, places: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.uint32]]:
    """Task: the mean increase of the loss of each of some rows, float64 [groups, rows], and the number of trees that do
    not use it, uint32 [rows]. places: ascending, among the rows with a target.

    Oracle: tests/naive/explain.py refined_change.
    """
    table, stage = how.oob.table, sweep.stock.stage
    assert stage is not None
    rows = np.ascontiguousarray(table.labelled_rows()[places])
    shares = len(stage.classes)
    answers = shares + stage.link.outputs
    drawn = _drawn(how, orders, rows, places, answers)
    total = np.zeros((answers, rows.size))
    voters, sequences = np.zeros(rows.size), np.zeros(rows.size)
    bags = how.oob.bags
    for tree, answer in sweep.trees():
        out = np.ones(rows.size) if bags is None else (bags.bag(tree.number)[places] == 0).astype(np.float64)
        _add_changes(tree, answer, out, drawn, total, 0)
        voters += out
    in_bag = _in_sequences(how.oob, places)
    for tree in sweep.stage_trees():
        _add_changes(tree, tree.answer, (~in_bag[tree.number]).astype(np.float64), drawn, total, shares)
    sequences = (SEQUENCES - in_bag.sum(axis=0)) / SEQUENCES

    def losses(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        values = (sums[:shares] / np.maximum(voters, 1.0)).T
        return _row_losses(stage.predictions(values, (sums[shares:] / sequences).T), how, rows)

    before, change = losses(total), np.zeros((len(how.groups), rows.size))
    for some in drawn:
        for at, group in enumerate(some.groups):
            change[group] += losses(total + some.change[:, at]) - before
    return change / orders, voters.astype(np.uint32)


def _drawn(
    how: Permuting, orders: int, rows: NDArray[np.uint32], places: NDArray[np.int64], answers: int
) -> list[_Orders]:
    """Return the rows with the values of each group in each order, together as far as groups share no feature."""
    from bigforest.kernels.explain.permute import shuffle_columns
    from bigforest.kernels.explain.step import Replaced

    table = how.oob.table
    values, kept = table.values(), table.labelled_rows()
    own = read_only(values[rows])
    every, first = np.arange(kept.size, dtype=np.uint32), np.zeros(1, np.uint64)
    order = np.empty((1, kept.size), np.uint32)
    found = []
    for repetition in range(orders):
        for some in permuted_together(how.groups, table.used, len(table.used)):
            groups = [how.groups[number] for number in some]
            columns = permuted_columns(groups, table.used)
            drawn = np.empty((columns.places.size, rows.size), values.dtype)
            for number, group in enumerate(groups):
                key = np.array([order_key(how.seed, repetition, group)])
                with np.errstate(over="ignore"):
                    shuffle_columns(kept[:, None], every, first, key, order)
                others = order[0, places]
                for column in np.flatnonzero(columns.groups == number).tolist():
                    drawn[column] = values[others, columns.places[column]]
            replaced = Replaced(own, drawn, columns.column, columns.member)
            found.append(_Orders(some, replaced, np.zeros((answers, len(some), rows.size))))
    return found


def _add_changes(
    tree: LoadedTree,
    answer: NDArray[np.float64],
    counted: NDArray[np.float64],
    drawn: Sequence[_Orders],
    total: NDArray[np.float64],
    first: int,
) -> None:
    """Add the answers of a tree on the rows to `total`, from place `first` on, and their changes to `drawn`.

    counted  float64 [rows], 1 for rows that the tree does not use, else 0
    """
    from bigforest.kernels.explain.permute import LeafLosses, Losses, Parted, permute_class_rows

    rows = np.arange(counted.size, dtype=np.uint32)
    only = read_only(np.zeros(counted.size, np.uint16))  # the loss on the only class is the number itself
    ignored = np.empty(counted.size)
    for place, numbers in enumerate(answer.T, start=first):
        labels = LeafLosses(only, read_only(counted), np.uint64(tree.begin), np.ascontiguousarray(numbers[:, None]))
        for at, some in enumerate(drawn):
            groups = len(some.groups)
            parted = Parted(np.zeros(groups, np.uint32), np.empty(groups, np.int32), np.empty(groups, np.uint32))
            sums = Losses(some.change[place], ignored if at else total[place], ignored)
            permute_class_rows(tree.walked, some.replaced, rows, labels, parted, sums)


def _in_sequences(oob: OutOfBagRows, places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which sequences of the stage used each of some rows, bool [SEQUENCES, rows]."""
    if oob.bags is None or not places.size:
        return np.zeros((SEQUENCES, places.size), np.bool_)
    table: Any = oob.bags.inputs  # for these draws it is like a Store
    spec, classes = table.spec, len(table.spec.target.classes)
    share = sample_share(table.rows, len(spec.features), classes if classes > 2 else 1)
    return stage_bags(table, oob.bags.config, places, share)


def _row_losses(predictions: NDArray[np.float64], how: Permuting, rows: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Return the loss of each row; the deviance without what does not depend on the prediction."""
    table = how.oob.table
    truth = table.target()[rows]
    if table.classes:
        return leaf_losses(predictions, how.loss)[np.arange(rows.size), truth]
    number = predictions[:, 0]
    if how.loss == "mse":
        return np.asarray((number - truth) ** 2)
    least = least_counted(float(table.target()[table.labelled_rows()].max(initial=0.0)))
    number = np.maximum(number, least)
    return np.asarray(2.0 * (number - truth * np.log(number)))


def refined_tables(found: LossSums, names: list[str], trees: int, classes: pl.Series | None) -> dict[str, pl.DataFrame]:
    """Return the tables of importance.py `write_permutation`, by name, but for that by tree.

    Standard errors are over the rows.
    """
    mean, error = _mean_and_error(found.change.sum(axis=2), found.weight.sum(axis=1), int(found.rows.sum()))
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = np.where(error > 0, mean / error, np.nan)
    columns = {"feature": names, "importance": mean, "standard_error": error, "scaled": scaled}
    tables = {"permutation": pl.DataFrame(columns).with_columns(trees=pl.lit(trees, pl.Int64))}
    if classes is not None:
        pieces = []
        for k in range(len(classes)):
            mean, error = _mean_and_error(found.change[:, :, k], found.weight[:, k], int(found.rows[k]))
            labels = classes.alias("class").new_from_index(k, len(names))
            pieces.append(
                pl.DataFrame({"feature": names, "class": labels, "importance": mean, "standard_error": error})
            )
        tables["permutation-classes"] = pl.concat(pieces)
    return tables


def _mean_and_error(
    change: NDArray[np.float64], weight: NDArray[np.float64], rows: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weighted mean over rows, float64 [groups], and its standard error; see LossSums."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = change[0] / weight[0]
        squares = np.maximum(change[2] - 2.0 * mean * change[1] + mean * mean * weight[1], 0.0)
        return mean, np.sqrt(squares * (rows / (rows - 1.0) if rows > 1 else np.nan)) / weight[0]
