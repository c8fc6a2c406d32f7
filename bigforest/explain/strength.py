"""Strength and correlation of a forest, the resulting bound on its error, and the out-of-bag error.

Breiman 2001, appendix II. Q(x, j) is the share of votes for class j among the trees that row x is out of bag for. With
y the class of the row, and j^ the other class of most votes (the lowest among ties):

    margin       mr = Q(x, y) - Q(x, j^)
    strength     s = mean mr
    deviation    of a tree: sd = sqrt(p1 + p2 - (p1 - p2)^2), p1 and p2 the shares of its out-of-bag rows for
                 which it votes y, and j^
    correlation  rho = var(mr) / (mean sd)^2
    bound        of the error: rho (1 - s^2) / s^2; it holds where s > 0

The formula of sd has a minus before (p1 - p2)^2, because sd is the standard deviation of a number that is 1, -1 or 0;
the paper prints a plus. rho is an estimate: mr and sd are of different rows, so with few trees or rows it may exceed 1.
For regression (section 11): rho = MSE of the forest / (mean over the trees of the root of their MSE)^2, and the bound
is rho times the mean MSE of the trees.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.labels import label_series
from bigforest.explain.job import (
    ROW_BYTES,
    ExplainJob,
    OutOfBagRows,
    SectionPlan,
    TreeStock,
    leaf_positions,
    load_trees,
    plan_groups,
)
from bigforest.planning.sizes import milestones, row_ranges
from bigforest.storage.array_file import MatrixFile

# Entry in place of a class if a tree does not vote on a row, which is in its bag. For regression, the entry is nan.
_NO_VOTE = 65_535
# Type of a vote: for regression, for classification.
_VOTES = ("<f8", "<u2")
# Most votes and most rows of a task. Sums are added up in the order of the rows, for any order of tasks.
_PIECE_CELLS = 1 << 23
_PIECE_ROWS = 1 << 16
# Nanoseconds on one thread to add up a vote, once for each number of trees. Measured.
_VOTE_NS = 15.0


class Sums(NamedTuple):
    """Sums over rows, by number of trees (`milestones`) and by class of the row.

    rows     int64 [steps, classes], number of rows that are out of bag for at least one of these trees
    moments  float64 [4, steps, classes]: weight of these rows, and weighted mr, mr^2 and wrong predictions; for
             regression weight and weighted squared errors
    trees    float64 [3, steps, trees, classes]: weight of the out-of-bag rows of each tree, of those for which it votes
             y, and of those for which it votes j^; for regression weight and weighted squared errors
    """

    rows: NDArray[np.int64]
    moments: NDArray[np.float64]
    trees: NDArray[np.float64]


def plan_strength(job: ExplainJob) -> SectionPlan:
    """Plan `strength`: rows are routed once, and votes are added up for each number of trees."""
    rows, stock = job.described.rows, job.stock
    scratch = stock.tree_count * rows * np.dtype(_VOTES[job.described.is_classification]).itemsize
    votes = rows * sum(milestones(stock.tree_count)) * _VOTE_NS
    work = stock.walk_nanoseconds(job.out_of_bag_share * rows) + votes
    return plan_groups("strength", stock, job.resources, ROW_BYTES * rows, work=work, scratch=scratch)


def write_strength(job: ExplainJob, plan: SectionPlan) -> None:
    """Write `strength` and, for classes, `strength-classes`: the measures defined above, by number of trees.

    `strength-classes` has them for the rows of each class.
    """
    folder = job.folder.with_settings(job.options.new_rows)
    names = ["strength", *([] if job.forest.is_regression else ["strength-classes"])]
    if folder.has_all(names):
        return
    oob, stock = job.oob, job.shrunk
    rows = oob.table.labelled_rows().size
    votes = MatrixFile(job.work / "votes", stock.tree_count, rows, _VOTES[oob.table.is_classification])
    votes.make()
    steps = milestones(stock.tree_count)
    step = max(1, min(_PIECE_ROWS, _PIECE_CELLS // stock.tree_count))
    pieces = [(range(begin, end),) for begin, end in row_ranges(rows, step)]
    job.over_trees("votes", plan, cast_votes, (stock, oob, votes))
    sums = job.over_rows("strength", plan, sum_votes, pieces, (oob, votes, steps, stock.width))
    votes.path.unlink()
    total = Sums._make(sum(arrays) for arrays in zip(*sums, strict=True))
    if job.forest.is_regression:
        folder.write("strength", _number_table(total, steps))
        return
    folder.write("strength", _class_table(total, steps, None))
    labels = label_series(job.forest.spec.target).alias("class")
    tables = [
        _class_table(total, steps, k).with_columns(labels.new_from_index(k, len(steps))) for k in range(len(labels))
    ]
    folder.write("strength-classes", pl.concat(tables))


def cast_votes(stock: TreeStock, oob: OutOfBagRows, votes: MatrixFile, entries: range) -> None:
    """Task: write the votes of some trees on their out-of-bag rows."""
    kept = oob.table.labelled_rows()
    for tree in load_trees(stock, oob.table, entries):
        left_out = oob.out_of_bag(tree.number)
        leaves = leaf_positions(tree, oob.table.values(), left_out) - np.uint32(tree.begin)
        tree_votes = np.full(kept.size, _NO_VOTE if oob.table.is_classification else np.nan, votes.kind)
        node_votes = tree.answer.argmax(axis=1) if oob.table.is_classification else tree.answer[:, 0]
        tree_votes[np.searchsorted(kept, left_out)] = node_votes[leaves]
        votes.put(tree.number, tree_votes)


def sum_votes(oob: OutOfBagRows, votes: MatrixFile, steps: list[int], width: int, rows: range) -> Sums:
    """Task: return the sums over a range of the rows with a target.

    steps  numbers of trees
    width  number of classes; 1 for regression
    """
    table, span = oob.table, slice(rows.start, rows.stop)
    kept = table.labelled_rows()[span]
    tree_votes, truth, row_weight = np.array(votes.mapped()[:, span]), table.target()[kept], table.weight()
    weight = np.ones(kept.size) if row_weight is None else row_weight[kept]
    shapes = ((len(steps), width), (4, len(steps), width), (3, len(steps), votes.rows, width))
    sums = Sums(np.zeros(shapes[0], np.int64), np.zeros(shapes[1]), np.zeros(shapes[2]))
    add = _add_classes if table.is_classification else _add_numbers
    add(sums, tree_votes, truth, weight, steps)
    return sums


def _add_classes(
    sums: Sums, tree_votes: NDArray[Any], truth: NDArray[Any], weight: NDArray[np.float64], steps: list[int]
) -> None:
    """Add some rows to the sums of a classification.

    tree_votes  uint16 [trees, rows], the class that each tree votes for, or _NO_VOTE
    truth       uint16 [rows], class of each row
    weight      float64 [rows]
    steps       numbers of trees, ascending
    """
    size, width = truth.size, sums.rows.shape[1]
    counts = np.zeros((size, width), np.int64)
    places, done = np.arange(size), 0

    def by_class(values: NDArray[Any]) -> NDArray[np.float64]:
        return np.bincount(truth, values, minlength=width).astype(np.float64)

    for at, step in enumerate(steps):
        for tree in range(done, step):
            voted = np.flatnonzero(tree_votes[tree] != _NO_VOTE)
            counts[voted, tree_votes[tree, voted]] += 1
        done = step
        voters = counts.sum(axis=1)
        reached = voters > 0
        others = counts.copy()
        others[places, truth] = -1
        # The class j^ defined above. With a single class there is none.
        runner_up = others.argmax(axis=1) if width > 1 else np.full(size, _NO_VOTE)
        most = others.max(axis=1) if width > 1 else np.zeros(size, np.int64)
        margin = (counts[places, truth] - most) / np.maximum(voters, 1)
        counted = np.where(reached, weight, 0.0)
        sums.rows[at] += np.bincount(truth[reached], minlength=width)
        wrong = counts.argmax(axis=1) != truth
        for place, values in enumerate((counted, counted * margin, counted * margin * margin, counted * wrong)):
            sums.moments[place, at] += by_class(values)
        for tree in range(step):
            voted = tree_votes[tree] != _NO_VOTE
            sums.trees[0, at, tree] += by_class(weight * voted)
            sums.trees[1, at, tree] += by_class(weight * (tree_votes[tree] == truth))
            sums.trees[2, at, tree] += by_class(weight * (voted & (tree_votes[tree] == runner_up)))


def _add_numbers(
    sums: Sums, tree_votes: NDArray[Any], truth: NDArray[Any], weight: NDArray[np.float64], steps: list[int]
) -> None:
    """Add some rows to the sums of a regression: as `_add_classes`, but votes and targets are float64.

    A vote is nan if the tree has the row in its bag.
    """
    total, voters, done = np.zeros(truth.size), np.zeros(truth.size, np.int64), 0
    voted = ~np.isnan(tree_votes)
    squares = np.where(voted, (tree_votes - truth) ** 2, 0.0) * weight
    for at, step in enumerate(steps):
        for tree in range(done, step):
            total += np.where(voted[tree], tree_votes[tree], 0.0)
            voters += voted[tree]
        done = step
        reached = voters > 0
        error = total / np.maximum(voters, 1) - truth
        counted = np.where(reached, weight, 0.0)
        sums.rows[at, 0] += int(np.count_nonzero(reached))
        sums.moments[0, at, 0] += counted.sum()
        sums.moments[1, at, 0] += (counted * error * error).sum()
        sums.trees[0, at, :step, 0] += (voted[:step] * weight).sum(axis=1)
        sums.trees[1, at, :step, 0] += squares[:step].sum(axis=1)


def _class_table(total: Sums, steps: list[int], of_class: int | None) -> pl.DataFrame:
    """Return one row per number of trees, for all rows or, with `of_class`, for the rows of this class."""
    chosen = slice(None) if of_class is None else slice(of_class, of_class + 1)
    rows, moments = total.rows[:, chosen].sum(axis=1), total.moments[:, :, chosen].sum(axis=2)
    voted, right, wrong = total.trees[:, :, :, chosen].sum(axis=3)
    with np.errstate(invalid="ignore", divide="ignore"):
        strength = moments[1] / moments[0]
        variance = np.maximum(moments[2] / moments[0] - strength**2, 0.0)
        p1, p2 = right / voted, wrong / voted
        deviation = _mean_of_trees(np.sqrt(np.maximum(p1 + p2 - (p1 - p2) ** 2, 0.0)), voted)
        correlation = np.where(deviation > 0, variance / deviation**2, np.nan)
        bound = np.where(strength > 0, correlation * (1 - strength**2) / strength**2, np.nan)
        error = moments[3] / moments[0]
    columns = {
        "strength": strength,
        "variance": variance,
        "deviation": deviation,
        "correlation": correlation,
        "bound": bound,
        "error": error,
    }
    return _against_trees(steps, rows, columns)


def _number_table(total: Sums, steps: list[int]) -> pl.DataFrame:
    """Return one row per number of trees, for regression."""
    rows, moments = total.rows[:, 0], total.moments[:, :, 0]
    voted, squares = total.trees[0, :, :, 0], total.trees[1, :, :, 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        mse, trees = moments[1] / moments[0], squares / voted
        deviation = _mean_of_trees(np.sqrt(trees), voted)
        tree_mse = _mean_of_trees(trees, voted)
        correlation = np.where(deviation > 0, mse / deviation**2, np.nan)
    columns = {
        "deviation": deviation,
        "tree_mse": tree_mse,
        "correlation": correlation,
        "bound": correlation * tree_mse,
        "mse": mse,
    }
    return _against_trees(steps, rows, columns)


def _mean_of_trees(values: NDArray[np.float64], voted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of `values` [steps, trees] over the trees with out-of-bag rows, float64 [steps].

    voted  float64 [steps, trees], weight of the out-of-bag rows of each tree
    """
    counted = voted > 0
    return np.where(counted, values, 0.0).sum(axis=1) / counted.sum(axis=1)


def _against_trees(steps: list[int], rows: NDArray[np.int64], columns: dict[str, NDArray[np.float64]]) -> pl.DataFrame:
    index = {"trees": pl.Series(steps, dtype=pl.UInt32), "rows": pl.Series(rows, dtype=pl.UInt64)}
    return pl.DataFrame({**index, **columns})
