"""Permutation importance: the increase of the loss when features are permuted among out-of-bag rows.

Without a boosted stage, losses of single trees are averaged over the trees (Breiman 2001, section 10). A task routes
the out-of-bag rows of some trees. For every permuted feature on the path of a row, it routes the row again from the
first node where the permuted value goes to the other child (kernels/explain/replace.py).

With a boosted stage, losses of whole predictions are averaged over the rows:

1. Predict each row by the trees, and the sequences of the stage, that were not grown on it, as the out-of-bag report
   does.
2. Permute a feature, or a group of features, among all rows, and predict again. Repeat this with other orders.
3. The change is the mean increase of the loss of a row.

A task has a range of rows, routes them through all trees once for each order, and adds up the changes of answers by
permuted values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.columns.labels import label_series
from bigforest.errors import DataError, api
from bigforest.explain.importance import by_tree, error_over_trees
from bigforest.explain.job import (
    ROW_BYTES,
    ExplainJob,
    LoadedTree,
    OutOfBagRows,
    SectionPlan,
    Sweep,
    TreeStock,
    load_trees,
    plan_groups,
    plan_sweep,
)
from bigforest.explain.row_table import replace_columns
from bigforest.forest.refinement import SEQUENCES, outputs_of
from bigforest.grow.boosted import stage_bags
from bigforest.oob.accumulator import least_counted
from bigforest.oob.refine import sample_share
from bigforest.options.values import several
from bigforest.planning.sizes import row_ranges
from bigforest.storage.array_file import MatrixFile

# Shares are clipped to this and 1 minus this, so that logarithms are finite.
_LEAST_SHARE = float(np.finfo(np.float64).eps)
# Nanoseconds on one thread for drawing a value. Measured.
DRAW_NS = 3.0


class PermutedGroup(NamedTuple):
    """Features that are permuted together.

    stream  number from which, with seed and draw, the key of the random order is made: the position of a single
            feature; groups of features have the next numbers.
    places  positions of the features in the dataspec.
    """

    name: str
    stream: int
    places: tuple[int, ...]


class PermutationRules(NamedTuple):
    """Rows, the features that are permuted among out-of-bag rows, the loss, and the seed of the orders."""

    oob: OutOfBagRows
    groups: list[PermutedGroup]
    loss: str
    seed: int

    def together(self, most: int) -> list[list[int]]:
        """Return lists of groups, by number, to permute at the same time: no feature is in two groups of a list, and a
        list has at most `most` used features.

        Groups without a used feature are left out, because permuting them changes nothing; the first list may be empty.
        """
        lists: list[list[int]] = [[]]
        used, taken = set(self.oob.table.used), set[int]()
        for number, group in enumerate(self.groups):
            places = used & set(group.places)
            if not places:
                continue
            if taken & places or (taken and len(taken) + len(places) > most):
                lists.append([])
                taken = set()
            lists[-1].append(number)
            taken |= places
        return lists

    def columns(self, numbers: Sequence[int]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return the columns that these groups (disjoint) permute, and the index in `numbers` of the group of each."""
        column_of = self.oob.table.column_of
        pairs = [
            (column_of[place], index)
            for index, number in enumerate(numbers)
            for place in self.groups[number].places
            if place in column_of
        ]
        columns, indices = np.array(pairs, np.int64).reshape(-1, 2).T
        return columns.astype(np.uint64), indices

    def key(self, draw: int, number: int) -> np.uint64:
        """Return the key of the random order of a group; draw: number of the tree, or of the repetition."""
        from bigforest.kernels.common.rng import stream_key
        from bigforest.kernels.explain.replace import PURPOSE_PERMUTE

        return stream_key(self.seed, PURPOSE_PERMUTE, draw, self.groups[number].stream)


def permuted_groups(job: ExplainJob) -> list[PermutedGroup]:
    """Return all features, each alone, and the requested groups. Raises ConfigError."""
    spec = job.forest.spec
    single = [PermutedGroup(feature.name, place, (place,)) for place, feature in enumerate(spec.features)]
    together = [
        PermutedGroup(
            name, len(single) + number, tuple(job.options.places(several(columns), spec, f"the group {name!r}"))
        )
        for number, (name, columns) in enumerate(job.options.groups.items())
    ]
    return single + together


def permutation_rules(job: ExplainJob, groups: list[PermutedGroup], loss: str) -> PermutationRules:
    table = job.oob.table
    if loss == "poisson_deviance" and (least := table.target()[table.labelled_rows()].min(initial=0.0)) < 0.0:
        raise DataError(
            f"target {job.forest.spec.target.name!r} has the value {float(least)!r}, and the Poisson deviance is for "
            f"numbers of which none is below 0; set the {api('loss')} to mse, or drop these rows"
        )
    return PermutationRules(job.oob, groups, loss, job.options.seed)


def parted_scratch(groups: int) -> Any:
    from bigforest.kernels.explain.replace import Parted

    return Parted(np.zeros(groups, np.uint32), np.empty(groups, np.int32), np.empty(groups, np.uint32))


def class_losses(answer: NDArray[np.float64], loss: str) -> NDArray[np.float64]:
    """Return the loss of each answer on a row of each class, float64 [answers, classes]."""
    if loss == "log_loss":
        return -np.log(np.clip(answer, _LEAST_SHARE, 1.0 - _LEAST_SHARE))
    wrong = np.ones(answer.shape)
    wrong[np.arange(len(answer)), answer.argmax(axis=1)] = 0.0
    return wrong


def counted_means(rules: PermutationRules, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return predictions, raised where they are below the least one for which the Poisson deviance is counted."""
    table = rules.oob.table
    return np.maximum(mean, least_counted(float(table.target()[table.labelled_rows()].max(initial=0.0))))


# Bytes of permuted values that a task holds at a time.
_DRAWN_BYTES = 32 << 20


class TreeLosses(NamedTuple):
    """Changes of the losses of trees on their out-of-bag rows, by class of the rows. Regression has one class.

    change  float64 [trees, groups, classes], increase of the loss when the group of features is permuted
    weight  float64 [trees, classes], weight of the rows
    """

    change: NDArray[np.float64]
    weight: NDArray[np.float64]

    @property
    def by_tree(self) -> NDArray[np.float64]:
        """Importance of each group in each tree, float64 [trees, groups]; nan for trees without out-of-bag rows."""
        shares, weighed = np.full(self.change.shape[:2], np.nan), self.weighed
        shares[weighed] = self.change[weighed].sum(axis=2) / self.weight[weighed].sum(axis=1)[:, None]
        return shares

    @property
    def weighed(self) -> NDArray[np.bool_]:
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


def plan_trees(job: ExplainJob, name: str, chosen: int) -> SectionPlan:
    """Plan `permutation`, or `local` for `chosen` rows.

    Values are drawn for all rows. Rows are routed once through each tree, and again for features on their path.
    """
    stock, features, groups = job.stock, len(job.described.used), permuted_groups(job)
    rows, widest = job.described.rows, max(len(group.places) for group in groups)
    again = float(np.minimum(stock.depths(), features).max()) / 4  # most paths below a feature are short
    drawn = job.out_of_bag_share * rows
    walk = stock.walk_nanoseconds(job.out_of_bag_share * chosen) * (1.0 + again)
    work = drawn * stock.tree_count * features * DRAW_NS + walk
    task_bytes, sums, scratch = ROW_BYTES * rows + max(_DRAWN_BYTES, 8 * widest * rows), 0, 0
    if name == "local":
        sums, scratch = 3 * 8 * chosen * len(groups), 8 * stock.tree_count * chosen * len(groups)
    return plan_groups(name, stock, job.resources, task_bytes + sums, work=work, shared=sums, scratch=scratch)


def tree_losses(job: ExplainJob, plan: SectionPlan, rules: PermutationRules) -> TreeLosses:
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


def row_losses(
    job: ExplainJob, plan: SectionPlan, rules: PermutationRules, rows: NDArray[np.uint32]
) -> tuple[NDArray[np.float64], NDArray[np.uint32]]:
    """Return the mean increase of the loss of each row, and the number of trees that leave the row out.

    Returns float64 [rows, groups], the mean over these trees, nan without trees; and uint32 [rows].
    """
    file = MatrixFile(job.work / "local", job.shrunk.tree_count, rows.size * len(rules.groups), "<f8")
    file.make()
    job.over_trees("local importance", plan, permute_rows, (job.shrunk, rules, rows, file))
    change, votes = np.zeros((rows.size, len(rules.groups))), np.zeros(rows.size, np.uint32)
    for tree_change in file.mapped().reshape(-1, *change.shape):
        left_out = ~np.isnan(tree_change[:, 0])
        change[left_out] += tree_change[left_out]
        votes += left_out
    file.path.unlink()
    with np.errstate(invalid="ignore"):
        return change / votes[:, None], votes


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
    """Yield the numbers of groups that are permuted together, and the sums of their losses.

    rows     out-of-bag rows of the tree, and the rows to evaluate
    columns  uint32, the column of the sums to which each evaluated row is added
    width    number of columns of the sums
    """
    from bigforest.kernels.explain.replace import Losses, permute, shuffle_columns

    left_out, chosen = rows
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
        parted = parted_scratch(len(numbers))
        sums = Losses(np.zeros((len(numbers), width)), np.zeros(width), np.zeros(width))
        for leaf_losses in parts:
            sums.weight[:] = 0.0
            parted.seen[:] = 0
            permute(tree.walked, replaced, chosen, columns, leaf_losses, parted, sums)
        yield numbers, sums


def _losses_of_leaves(tree: LoadedTree, rules: PermutationRules, weight: NDArray[np.float64] | None) -> list[Any]:
    """Return the LeafLosses whose sum is the loss. The last one has the weights of the rows.

    The Poisson deviance of a row with target y and prediction p is 2 p - 2 y log(p), without terms that do not depend
    on p. It is the sum of two losses of one class: -2 log(p) with the weight y, and 2 p.
    """
    from bigforest.kernels.explain.replace import LeafLosses

    target, begin = rules.oob.table.target(), np.uint64(tree.begin)
    if rules.loss != "poisson_deviance":
        losses = tree.answer if rules.loss == "mse" else class_losses(tree.answer, rules.loss)
        return [LeafLosses(target, weight, begin, losses, rules.loss == "mse")]
    only, heavy = read_only(np.zeros(target.size, np.uint16)), read_only(target if weight is None else weight * target)
    mean = counted_means(rules, tree.answer)
    return [LeafLosses(only, heavy, begin, -2.0 * np.log(mean)), LeafLosses(only, weight, begin, 2.0 * mean)]


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
        """Return the importance of each group, and its standard error. code: class of the rows; None for all rows."""
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
    change    float64 [groups, rows, numbers of an answer], sums over trees of the changes of their answers
    """

    groups: list[int]
    replaced: Any
    change: NDArray[np.float64]


def orders_of(rows: int) -> int:
    """Return the number of random orders of each feature in a table of this many rows."""
    return max(1, min(_MOST_ORDERS, _ORDERED_ROWS // max(1, rows)))


def plan_predictions(job: ExplainJob, name: str, chosen: int) -> SectionPlan:
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
    """Return the numbers that a task holds for a row, and its number of rows."""
    stage = job.stage
    assert stage is not None
    groups, rows = permuted_groups(job), job.described.rows
    answers = len(stage.classes) + stage.link.outputs
    cells = orders_of(rows) * (sum(len(group.places) for group in groups) + answers * len(groups)) + 4 * answers
    return cells, max(1, min(_CELLS // cells, max(_LEAST_ROWS, rows // _TASKS)))


def loss_sums(job: ExplainJob, plan: SectionPlan, rules: PermutationRules) -> LossSums:
    sums = _over_rows("permutation", job, plan, rules, sum_losses, range(rules.oob.table.labelled_rows().size))
    return LossSums._make(sum(arrays) for arrays in zip(*sums, strict=True))


def changed_losses_of(
    job: ExplainJob, plan: SectionPlan, rules: PermutationRules, positions: NDArray[np.uint32]
) -> tuple[NDArray[np.float64], NDArray[np.uint32]]:
    """Return `changed_losses` of rows at these positions among the rows with a target."""
    pieces = _over_rows("local importance", job, plan, rules, changed_losses, positions)
    return np.hstack([change for change, _ in pieces]), np.concatenate([voters for _, voters in pieces])


def _over_rows(
    name: str,
    job: ExplainJob,
    plan: SectionPlan,
    rules: PermutationRules,
    function: Callable[..., Any],
    positions: range | NDArray[np.uint32],
) -> list[Any]:
    """Return the results of a task for some of the positions at a time, in order."""
    pieces = [(positions[begin:end],) for begin, end in row_ranges(len(positions), _piece_shape(job)[1])]
    shared = job.sweep(plan, ()), rules, orders_of(rules.oob.table.rows)
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
    """Task: compute the increase of the loss of rows, mean over the orders.

    chosen  positions among the rows with a target, ascending

    Return the increases, float64 [groups, rows], and the number of trees not grown on each row, uint32 [rows].
    Oracle: tests/naive/explain.py refined_change.
    """
    table, stage, positions = rules.oob.table, sweep.stock.stage, np.asarray(chosen, np.int64)
    assert stage is not None
    rows = np.ascontiguousarray(table.labelled_rows()[positions])
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
        inputs: Any = bags.inputs  # has what these draws use of a Store
        share = sample_share(inputs.rows, len(inputs.spec.features), outputs_of(inputs.spec))
        in_bag = stage_bags(inputs, bags.config, positions, share)
    for tree, answer in sweep.stage_trees():
        _add_answers(tree, answer, ~in_bag[tree.number], permuted, total, shares)
    sequences = (SEQUENCES - in_bag.sum(axis=0)) / SEQUENCES

    def losses(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        values = sums[:, :shares] / np.maximum(voters, 1.0)[:, None]
        return _row_losses(stage.predictions(values, sums[:, shares:] / sequences[:, None]), rules, rows)

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
    answers    numbers of an answer
    """
    from bigforest.kernels.explain.replace import shuffle_columns

    values, kept = rules.oob.table.values(), rules.oob.table.labelled_rows()
    unchanged = read_only(values[rows])
    row_numbers, first = read_only(np.arange(kept.size, dtype=np.uint32)), np.zeros(1, np.uint64)
    order = np.empty((1, kept.size), np.uint32)
    permuted = []
    for repetition in range(orders):
        for numbers in rules.together(len(rules.oob.table.used)):
            columns, groups = rules.columns(numbers)
            drawn = np.empty((columns.size, rows.size), values.dtype)
            for at, number in enumerate(numbers):
                with np.errstate(over="ignore"):
                    shuffle_columns(kept[:, None], row_numbers, first, np.array([rules.key(repetition, number)]), order)
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
    """Add the answers of a tree to `total`, float64 [rows, numbers], from column `first` on, and their changes to
    `permuted`; out: the rows that the tree was not grown on."""
    from bigforest.kernels.explain.replace import permute_answers

    rows, begin = np.flatnonzero(out).astype(np.uint32), np.uint64(tree.begin)
    leaves = np.empty(rows.size, np.uint32)
    for each in permuted:
        parted = parted_scratch(len(each.groups))
        permute_answers(tree.walked, each.replaced, rows, begin, answer, np.uint64(first), parted, leaves, each.change)
    total[rows, first : first + answer.shape[1]] += answer[leaves]


def _row_losses(
    predictions: NDArray[np.float64], rules: PermutationRules, rows: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """Return the loss of each row; the deviance without terms that do not depend on the prediction."""
    table = rules.oob.table
    truth = table.target()[rows]
    if table.is_classification:
        return class_losses(predictions, rules.loss)[np.arange(rows.size), truth]
    number = predictions[:, 0]
    if rules.loss == "mse":
        return np.asarray((number - truth) ** 2)
    number = counted_means(rules, number)
    return np.asarray(2.0 * (number - truth * np.log(number)))


# Rows of a sample for local importance.
_SAMPLE = 1000


def plan_permutation(job: ExplainJob) -> SectionPlan:
    return (plan_trees if job.stage is None else plan_predictions)(job, "permutation", job.described.rows)


def plan_local(job: ExplainJob) -> SectionPlan:
    return (plan_trees if job.stage is None else plan_predictions)(job, "local", job.requested(_SAMPLE))


def write_permutation(job: ExplainJob, plan: SectionPlan) -> None:
    """Write `permutation`, `permutation-classes` and `permutation-trees`.

    importance  increase of the loss per out-of-bag row when the feature is permuted among these rows, mean over the
                trees (Breiman 2001, section 10). The loss is the error, log loss, squared error or deviance.
    scaled      importance divided by its standard error.

    With a boosted stage, the loss of the whole prediction is used, and there is no table `permutation-trees`.
    """
    options, spec = job.options, job.forest.spec
    loss, groups = options.loss_for(spec, job.forest.config.criterion), permuted_groups(job)
    settings = repr((loss, options.seed, groups, options.new_rows))
    names = ["permutation", *([] if job.forest.is_regression else ["permutation-classes"])]
    names += [] if job.stage is not None else ["permutation-trees"]
    if job.folder.has_all(names, settings):
        return
    rules, group_names = permutation_rules(job, groups, loss), [group.name for group in groups]
    labels = None if job.forest.is_regression else label_series(spec.target)
    if job.stage is None:
        losses = tree_losses(job, plan, rules)
        tables = _tables(losses, group_names, int(losses.weighed.sum()), labels)
        tables["permutation-trees"] = by_tree(group_names, losses.by_tree)
    else:
        tables = _tables(loss_sums(job, plan, rules), group_names, job.stock.tree_count, labels)
    for name in names:
        job.folder.write(name, tables[name], settings)


def _tables(
    losses: TreeLosses | LossSums, names: list[str], trees: int, labels: pl.Series | None
) -> dict[str, pl.DataFrame]:
    """Return the tables `permutation` and, for classes, `permutation-classes`, by name."""
    mean, error = losses.mean_and_error(None)
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = np.where(error > 0, mean / error, np.nan)
    columns = {"feature": names, "importance": mean, "standard_error": error, "scaled": scaled}
    tables = {"permutation": pl.DataFrame(columns).with_columns(trees=pl.lit(trees, pl.Int64))}
    if labels is not None:
        pieces = []
        for code in range(len(labels)):
            mean, error = losses.mean_and_error(code)
            label = labels.alias("class").new_from_index(code, len(names))
            pieces.append(pl.DataFrame({"feature": names, "class": label, "importance": mean, "standard_error": error}))
        tables["permutation-classes"] = pl.concat(pieces)
    return tables


def write_local(job: ExplainJob, plan: SectionPlan) -> None:
    """Write `local` (Breiman and Cutler's local importance): an entry for each row and each feature or group.

    importance  increase of the loss on the row when the feature is permuted, mean over the trees that leave the row
                out; null if there are none. (ranger divides by the number of all trees.)
    trees       number of trees that leave the row out.

    Features are permuted as for `permutation`. With a boosted stage, the loss of the whole prediction is used.
    """
    options = job.options
    loss, groups = options.loss_for(job.forest.spec, job.forest.config.criterion), permuted_groups(job)
    settings = repr((loss, options.seed, groups, options.new_rows, options.rows, options.sample))
    if job.folder.has("local", settings):
        return
    rules, positions = permutation_rules(job, groups, loss), job.chosen_positions(_SAMPLE)
    rows = rules.oob.table.labelled_rows()[positions]
    if job.stage is None:
        change, votes = row_losses(job, plan, rules, rows)
    else:
        sums, votes = changed_losses_of(job, plan, rules, positions)
        change = np.where(votes[:, None] > 0, sums.T, np.nan)
    columns = {
        "row": np.repeat(rows.astype(np.uint64), len(groups)),
        "feature": [group.name for group in groups] * rows.size,
        "importance": change.reshape(-1),
        "trees": np.repeat(votes, len(groups)),
    }
    job.folder.write("local", pl.DataFrame(columns), settings)
