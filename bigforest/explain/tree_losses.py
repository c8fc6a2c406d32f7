"""Permutation importance by the losses of single trees on their out-of-bag rows (Breiman 2001, section 10).

A task routes the out-of-bag rows of some trees. For every permuted feature on the path of a row, it routes the row
again from the first node where the permuted value goes to the other child (kernels/explain/replace.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.explain.importance import error_over_trees
from bigforest.explain.job import ROW_BYTES, ExplainJob, LoadedTree, SectionPlan, TreeStock, load_trees, plan_groups
from bigforest.explain.permuted_groups import DRAW_NS, PermutationRules, permuted_groups
from bigforest.explain.row_table import replace_columns
from bigforest.storage.array_file import MatrixFile

# Bytes of permuted values that a task holds at a time.
_DRAWN_BYTES = 32 << 20


class TreeLosses(NamedTuple):
    """Changes of the losses of trees on their out-of-bag rows, by class of the rows. Regression has one class.

    change  float64 [trees, groups, classes], weighted sum over the rows of the increase of the loss when the group of
            features is permuted
    weight  float64 [trees, classes], weight of the rows
    """

    change: NDArray[np.float64]
    weight: NDArray[np.float64]

    @property
    def by_tree(self) -> NDArray[np.float64]:
        """Importance of each group in each tree, float64 [trees, groups]; nan for trees without out-of-bag rows."""
        means, weighed = np.full(self.change.shape[:2], np.nan), self.weighed
        means[weighed] = self.change[weighed].sum(axis=2) / self.weight[weighed].sum(axis=1)[:, None]
        return means

    @property
    def weighed(self) -> NDArray[np.bool_]:
        """True for trees with out-of-bag rows, bool [trees]."""
        return self.weight.sum(axis=1) > 0

    def mean_and_error(self, code: int | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the importance of each group, and its standard error over the trees.

        code  class of the rows; None for all rows
        """
        if code is None:
            values = self.by_tree[self.weighed]
        else:
            seen = self.weight[:, code] > 0
            values = self.change[seen, :, code] / self.weight[seen, code, None]
        mean = values.mean(axis=0) if len(values) else np.full(values.shape[1], np.nan)
        return mean, error_over_trees(values)


def plan_tree_losses(job: ExplainJob, name: str, chosen: int) -> SectionPlan:
    """Plan `permutation`, or `local` for `chosen` rows.

    Values are drawn for all out-of-bag rows. The rows to evaluate are routed once through each tree, and again for
    features on their path.
    """
    stock, features, groups = job.stock, len(job.described.used), permuted_groups(job)
    rows, widest = job.described.rows, max(len(group.places) for group in groups)
    again = float(np.minimum(stock.depths(), features).max()) / 4  # most paths below a split on a feature are short
    drawn = job.out_of_bag_share * rows
    walk = stock.walk_nanoseconds(job.out_of_bag_share * chosen) * (1.0 + again)
    work = drawn * stock.tree_count * features * DRAW_NS + walk
    task_bytes, sums, scratch = ROW_BYTES * rows + max(_DRAWN_BYTES, 8 * widest * rows), 0, 0
    if name == "local":
        sums, scratch = 3 * 8 * chosen * len(groups), 8 * stock.tree_count * chosen * len(groups)
    return plan_groups(name, stock, job.resources, task_bytes + sums, work=work, shared=sums, scratch=scratch)


def tree_losses(job: ExplainJob, plan: SectionPlan, rules: PermutationRules) -> TreeLosses:
    """Return the changes of the losses of all trees."""
    stock = job.shrunk
    losses = TreeLosses(
        np.zeros((stock.tree_count, len(rules.groups), stock.width)), np.zeros((stock.tree_count, stock.width))
    )

    def collect(trees: range, group_losses: TreeLosses) -> None:
        losses.change[trees], losses.weight[trees] = group_losses

    job.over_trees("permutation", plan, permute_trees, (stock, rules), collect)
    return losses


def permute_trees(stock: TreeStock, rules: PermutationRules, entries: range) -> TreeLosses:
    """Task: return the changes of the losses of some trees. A change depends only on seed, tree and group."""
    trees, row_weight = load_trees(stock, rules.oob.table, entries), rules.oob.table.weight()
    losses = TreeLosses(np.zeros((len(trees), len(rules.groups), stock.width)), np.zeros((len(trees), stock.width)))
    for at, tree in enumerate(trees):
        rows = rules.oob.out_of_bag(tree.number)
        if rows.size:
            classes = rules.oob.table.target()[rows] if stock.width > 1 else np.zeros(rows.size)
            columns = classes.astype(np.uint32)
            for numbers, sums in _permute_groups(tree, rules, (rows, rows), row_weight, columns, stock.width):
                losses.change[at, numbers], losses.weight[at] = sums.change, sums.weight
    return losses


def local_tree_losses(
    job: ExplainJob, plan: SectionPlan, rules: PermutationRules, positions: NDArray[np.uint32]
) -> tuple[NDArray[np.float64], NDArray[np.uint32]]:
    """Return the mean increase of the loss of each row, and the number of trees that leave the row out.

    positions  positions of the rows among RowTable.labelled_rows

    The increases are float64 [rows, groups], means over these trees, nan without trees. The numbers are uint32 [rows].
    """
    rows = rules.oob.table.labelled_rows()[positions]
    file = MatrixFile(job.work / "local", job.shrunk.tree_count, rows.size * len(rules.groups), "<f8")
    file.make()
    job.over_trees("local", plan, permute_rows, (job.shrunk, rules, rows, file))
    change, trees = np.zeros((rows.size, len(rules.groups))), np.zeros(rows.size, np.uint32)
    for tree_change in file.mapped().reshape(-1, *change.shape):
        left_out = ~np.isnan(tree_change[:, 0])
        change[left_out] += tree_change[left_out]
        trees += left_out
    file.path.unlink()
    with np.errstate(invalid="ignore"):
        return change / trees[:, None], trees


def permute_rows(
    stock: TreeStock, rules: PermutationRules, rows: NDArray[np.uint32], file: MatrixFile, entries: range
) -> None:
    """Task: write the increase of the loss of the chosen rows, [rows, groups], by tree; nan for rows in the bag."""
    for tree in load_trees(stock, rules.oob.table, entries):
        left_out = rules.oob.out_of_bag(tree.number)
        is_out = np.isin(rows, left_out)
        chosen, change = np.ascontiguousarray(rows[is_out]), np.full((rows.size, len(rules.groups)), np.nan)
        change[is_out] = 0.0
        if chosen.size:
            columns = np.arange(chosen.size, dtype=np.uint32)
            for numbers, sums in _permute_groups(tree, rules, (left_out, chosen), None, columns, chosen.size):
                change[np.flatnonzero(is_out)[:, None], numbers] = sums.change.T
        file.put(tree.number, change.reshape(-1))


def _permute_groups(
    tree: LoadedTree,
    rules: PermutationRules,
    rows: tuple[NDArray[np.uint32], NDArray[np.uint32]],
    weight: NDArray[np.float64] | None,
    columns: NDArray[np.uint32],
    width: int,
) -> Iterator[tuple[list[int], Any]]:
    """Yield the numbers of groups that are permuted together, and sums of the increases of the losses (Losses).

    rows     out-of-bag rows of the tree, and the rows to evaluate
    weight   weights of all rows of the table; None to weigh all rows equally
    columns  uint32, for each evaluated row the column of the sums to which its loss is added
    width    number of columns of the sums
    """
    from bigforest.kernels.explain.replace import Losses, make_parted, permute, shuffle_columns

    left_out, chosen = rows
    # `at` has the positions of the evaluated rows among the out-of-bag rows; None if all are evaluated.
    values, at = rules.oob.table.values(), None if chosen is left_out else np.searchsorted(left_out, chosen)
    left_out, chosen = read_only(left_out), read_only(chosen)
    parts = _losses_of_leaves(tree, rules, weight)
    for numbers in rules.together(max(1, _DRAWN_BYTES // (values.itemsize * left_out.size))):
        permuted, groups = rules.columns(numbers)
        keys = np.array([rules.key(tree.number, numbers[group]) for group in groups.tolist()], np.uint64)
        drawn = np.empty((permuted.size, left_out.size), values.dtype)
        with np.errstate(over="ignore"):
            shuffle_columns(values, left_out, permuted, keys, drawn)
        drawn = drawn if at is None else np.ascontiguousarray(drawn[:, at])
        replaced = replace_columns(values, drawn, permuted, groups)
        parted = make_parted(len(numbers))
        sums = Losses(np.zeros((len(numbers), width)), np.zeros(width), np.zeros(width))
        for leaf_losses in parts:
            sums.weight[:] = 0.0
            parted.seen[:] = 0
            permute(tree.walked, replaced, chosen, columns, leaf_losses, parted, sums)
        yield numbers, sums


def _losses_of_leaves(tree: LoadedTree, rules: PermutationRules, weight: NDArray[np.float64] | None) -> list[Any]:
    """Return one or two LeafLosses, which add up to the loss. The last one has the weights of the rows.

    The Poisson deviance of a row with target y and prediction p is 2 p - 2 y log(p), without terms that do not depend
    on p. It is the sum of two losses, each with a single class: -2 log(p) with the weight y, and 2 p.
    """
    from bigforest.kernels.explain.replace import LeafLosses

    target, begin = rules.oob.table.target(), np.uint64(tree.begin)
    if rules.loss != "poisson_deviance":
        losses = tree.answer if rules.loss == "mse" else rules.class_losses(tree.answer)
        return [LeafLosses(target, weight, begin, losses, rules.loss == "mse")]
    only, heavy = read_only(np.zeros(target.size, np.uint16)), read_only(target if weight is None else weight * target)
    mean = rules.raised_to_floor(tree.answer)
    return [LeafLosses(only, heavy, begin, -2.0 * np.log(mean)), LeafLosses(only, weight, begin, 2.0 * mean)]
