"""Permutation importance: the increase of the loss when features are permuted among out-of-bag rows.

Without a boosted stage it is of single trees (Breiman 2001, section 10): the features of the out-of-bag rows of a tree
are permuted among these, and the losses of the tree are averaged over the trees.

With one it is of whole predictions:

1. Predict each row by the trees and the sequences of the stage that do not use it, as the out-of-bag report does.
2. Permute a feature, or a group of features, among all rows, and predict again. Repeat this with other orders.
3. The importance is the mean increase of the loss of a row.

A task of trees routes their out-of-bag rows again from every permuted feature on their path. A task of whole
predictions has a range of rows, routes them through all trees once for each order, and adds up the changes of answers
by permuted values (kernels/explain/permute.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.columns.labels import label_series
from bigforest.errors import DataError, api
from bigforest.events import stage
from bigforest.explain.importance import by_tree, error_over_trees
from bigforest.explain.job import ExplainJob, OutOfBagRows
from bigforest.explain.tree_groups import (
    ROW_BYTES,
    LoadedTree,
    SectionPlan,
    Sweep,
    TreeStock,
    load_trees,
    plan_groups,
    plan_sweep,
)
from bigforest.forest.refinement import SEQUENCES
from bigforest.grow.boosted import stage_bags
from bigforest.oob.accumulator import least_counted
from bigforest.oob.refine import sample_share
from bigforest.options.values import several
from bigforest.planning.sizes import row_ranges
from bigforest.storage.array_file import read_arrays, write_arrays

# Bytes of permuted values that a task holds at a time.
DRAWN_BYTES = 32 << 20
# Shares are clipped to this and 1 minus this, so that logarithms are finite.
_LEAST_SHARE = float(np.finfo(np.float64).eps)
# Nanoseconds on one thread for drawing a value. Measured.
DRAW_NS = 3.0


class PermutedGroup(NamedTuple):
    """Features that are permuted together.

    stream  the key of the order, with seed and tree: the position of a single feature, and for groups the numbers
            after.
    places  positions in the dataspec.
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
    """Return the rules of the permutations. Raises DataError for rows without a deviance."""
    table = job.oob.table
    if loss == "poisson_deviance" and (least := table.target()[table.labelled_rows()].min(initial=0.0)) < 0.0:
        raise DataError(
            f"target {job.forest.spec.target.name!r} has the value {float(least)!r}, and the Poisson deviance is for "
            f"numbers of which none is below 0; set the {api('loss')} to mse, or drop these rows"
        )
    return PermutationRules(job.oob, groups, loss, job.options.seed)


def leaf_losses(answer: NDArray[np.float64], loss: str) -> NDArray[np.float64]:
    """Return the loss of each node on a row of each class, float64 [nodes, classes]; for regression its prediction."""
    if loss == "mse":
        return answer
    if loss == "log_loss":
        return -np.log(np.clip(answer, _LEAST_SHARE, 1.0 - _LEAST_SHARE))
    wrong = np.ones(answer.shape)
    wrong[np.arange(len(answer)), answer.argmax(axis=1)] = 0.0
    return wrong


def permuted_together(groups: list[PermutedGroup], used: tuple[int, ...], most: int) -> list[list[int]]:
    """Return lists of groups to permute at the same time: no feature is in two, and a list has at most `most` used
    features.

    Groups without a used feature are left out, because permuting them changes nothing; the first list may be empty.
    """
    found: list[list[int]] = [[]]
    used_places, taken = set(used), set[int]()
    for number, group in enumerate(groups):
        places = used_places & set(group.places)
        if not places:
            continue
        if taken & places or (taken and len(taken) + len(places) > most):
            found.append([])
            taken = set()
        found[-1].append(number)
        taken |= places
    return found


class PermutedColumns(NamedTuple):
    """The columns of rows that have other values, see kernels/explain/step.py Replaced.

    places  int64 [drawn columns], columns of the rows; groups: int64 [drawn columns], numbers of their groups
    column, member  fields `column` and `group` of Replaced
    """

    places: NDArray[np.int64]
    groups: NDArray[np.int64]
    column: NDArray[np.int32]
    member: NDArray[np.int32]


def permuted_columns(groups: list[PermutedGroup], used: tuple[int, ...]) -> PermutedColumns:
    """Return the columns of some groups, which share no feature, in rows with the features `used`."""
    place_of = {place: at for at, place in enumerate(used)}
    pairs = [
        (number, place_of[place]) for number, group in enumerate(groups) for place in group.places if place in place_of
    ]
    numbers, places = np.array(pairs, np.int64).reshape(-1, 2).T
    column, member = np.full(len(used) + 1, -1, np.int32), np.full(len(used) + 1, -1, np.int32)
    column[places], member[places] = np.arange(places.size), numbers
    return PermutedColumns(places, numbers, column, member)


def order_key(seed: int, draw: int, group: PermutedGroup) -> np.uint64:
    """Return the key of the random order of a group; draw: number of the tree, or of the repetition."""
    from bigforest.kernels.common.rng import stream_key
    from bigforest.kernels.explain.permute import PURPOSE_PERMUTE

    return stream_key(seed, PURPOSE_PERMUTE, draw, group.stream)


# Rows of a sample for local importance.
_SAMPLE = 1000
_LOCAL_TYPES = {"change": "<f8"}


# Importance and standard error of each feature or group of features, float64 [groups].
MeanAndError = tuple[NDArray[np.float64], NDArray[np.float64]]


class TreeLosses(NamedTuple):
    """Losses of some trees on their out-of-bag rows, by class of the rows, or, for regression, in one sum.

    change  float64 [trees, groups, classes], increase of the loss when the group is permuted
    loss    float64 [trees, classes], the deviance without terms that do not depend on the tree
    weight  float64 [trees, classes], weight of the rows
    """

    change: NDArray[np.float64]
    loss: NDArray[np.float64]
    weight: NDArray[np.float64]


def plan_permutation(job: ExplainJob) -> SectionPlan:
    """Plan `permutation`: rows are routed once through each tree, and again from every feature on their path."""
    if job.stage is not None:
        return plan_refined(job, "permutation", job.described.rows)
    work = _permuting_nanoseconds(job, job.described.rows)
    return plan_groups("permutation", job.stock, job.resources, _task_bytes(job), work=work)


def plan_local(job: ExplainJob) -> SectionPlan:
    """Plan `local`: values are drawn for all rows, and some rows are routed."""
    rows, groups = job.requested(_SAMPLE), len(permuted_groups(job))
    if job.stage is not None:
        return plan_refined(job, "local", rows)
    sums = 3 * 8 * rows * groups
    scratch = 8 * job.stock.tree_count * rows * groups
    task_bytes, work = _task_bytes(job) + sums, _permuting_nanoseconds(job, rows)
    return plan_groups("local", job.stock, job.resources, task_bytes, work=work, shared=sums, scratch=scratch)


def _task_bytes(job: ExplainJob) -> int:
    """Return the bytes of a task in addition to its trees: rows, and values that are drawn."""
    rows, widest = job.described.rows, max(len(group.places) for group in permuted_groups(job))
    return ROW_BYTES * rows + max(DRAWN_BYTES, 8 * widest * rows)


def _permuting_nanoseconds(job: ExplainJob, rows: int) -> float:
    """Estimate permuting values of the out-of-bag rows, and routing `rows` again from each feature on their path."""
    stock, features = job.stock, len(job.described.used)
    again = float(np.minimum(stock.depths(), features).max()) / 4  # most of the paths are short
    drawn = job.out_of_bag_share * job.described.rows
    walk = stock.walk_nanoseconds(job.out_of_bag_share * rows) * (1.0 + again)
    return drawn * stock.tree_count * features * DRAW_NS + walk


def write_permutation(job: ExplainJob, plan: SectionPlan) -> None:
    """Write `permutation`, `permutation-classes` and `permutation-trees`.

    importance  mean over the trees of the increase of the loss per out-of-bag row when the feature is permuted among
                these (Breiman 2001, section 10): the drop in accuracy, or the rise of log loss, squared error or
                deviance.
    scaled      the same over its standard error.

    With a boosted stage the loss is that of the whole prediction, and there is no table by tree.
    """
    options, spec = job.options, job.forest.spec
    loss, groups = options.loss_for(spec, job.forest.config.criterion), permuted_groups(job)
    settings = repr((loss, options.seed, groups, options.new_rows))
    names = ["permutation", *([] if job.forest.is_regression else ["permutation-classes"])]
    names += [] if job.stage is not None else ["permutation-trees"]
    if job.folder.has_all(names, settings):
        return
    rules, labels = (
        permutation_rules(job, groups, loss),
        None if job.forest.is_regression else label_series(spec.target),
    )
    group_names = [group.name for group in groups]
    if job.stage is not None:
        tables = tables_of_predictions(loss_sums(job, plan, rules), group_names, job.stock.tree_count, labels)
    else:
        tables = tables_by_tree(_losses(job, plan, rules), group_names, labels)
    for name in names:
        job.folder.write(name, tables[name], settings)


def write_local(job: ExplainJob, plan: SectionPlan) -> None:
    """Write `local`: the increase of the loss on a row when a feature is permuted, mean over the trees that leave the
    row out.

    A row per row and feature or group: `importance`, and `trees` that leave out the row; null where there are
    none. The orders are those of `permutation`, and with a boosted stage the loss is that of the whole prediction, as
    there. (Breiman and Cutler's local importance; ranger divides by all trees.)
    """
    options = job.options
    loss, groups = options.loss_for(job.forest.spec, job.forest.config.criterion), permuted_groups(job)
    settings = repr((loss, options.seed, groups, options.new_rows, options.rows, options.sample))
    if job.folder.has("local", settings):
        return
    rules, places = permutation_rules(job, groups, loss), job.chosen(_SAMPLE)
    rows = rules.oob.table.labelled_rows()[places]
    if job.stage is not None:
        found, votes = changed_losses_of(job, plan, rules, places)
        change = np.where(votes[:, None] > 0, found.T, np.nan)
    else:
        change, votes = _local_changes(job, plan, rules, rows)
    mean = pl.Series(change.reshape(-1)).fill_nan(None)
    columns = {
        "row": np.repeat(rows.astype(np.uint64), len(groups)),
        "feature": [group.name for group in groups] * rows.size,
        "importance": mean,
        "trees": np.repeat(votes, len(groups)),
    }
    job.folder.write("local", pl.DataFrame(columns), settings)


def _local_changes(
    job: ExplainJob, plan: SectionPlan, rules: PermutationRules, rows: NDArray[np.uint32]
) -> tuple[NDArray[np.float64], NDArray[np.uint32]]:
    """Return the mean over trees of `permute_rows`, nan without trees, and the number of trees, uint32 [rows]."""
    change, votes = np.zeros((rows.size, len(rules.groups))), np.zeros(rows.size, np.uint32)
    job.over_trees("local importance", plan, permute_rows, (job.shrunk, rules, rows, job.work))
    for tree in range(job.shrunk.tree_count):
        path = local_file(job.work, tree)
        [found] = read_arrays(path, _LOCAL_TYPES)
        path.unlink()
        seen = np.isnan(found[:, 0])
        change[~seen] += found[~seen]
        votes += ~seen
    with np.errstate(invalid="ignore"):
        return change / votes[:, None], votes


def local_file(folder: Path, tree: int) -> Path:
    """Return the file of a task with the increase of the loss of the chosen rows in a tree."""
    return folder / f"local-{tree}.bin"


def permute_rows(
    stock: TreeStock, rules: PermutationRules, rows: NDArray[np.uint32], folder: Path, entries: range
) -> None:
    """Task: increase of the loss of the chosen rows, float64 [rows, groups], by tree; nan for rows in the bag."""
    for tree in load_trees(stock, rules.oob.table, entries):
        left_out = rules.oob.out_of_bag(tree.number)
        is_out = np.isin(rows, left_out)
        found = np.full((rows.size, len(rules.groups)), np.nan)
        found[is_out] = _permute_chosen(tree, rules, left_out, np.ascontiguousarray(rows[is_out]))
        write_arrays(local_file(folder, tree.number), _LOCAL_TYPES, found)


def _permute_chosen(
    tree: LoadedTree, rules: PermutationRules, left_out: NDArray[np.uint32], chosen: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """Return the increase of the loss of the chosen ones of the out-of-bag rows of a tree, [rows, groups]."""
    from bigforest.kernels.explain import permute

    found = np.zeros((len(rules.groups), chosen.size))
    if chosen.size:
        kernel = permute.permute_number_rows if rules.loss == "mse" else permute.permute_class_rows
        for numbers, sums in _permute_groups(tree, rules, kernel, (left_out, chosen), None, chosen.size):
            found[numbers] = sums.change
    return found.T


def _permute_groups(
    tree: LoadedTree,
    rules: PermutationRules,
    kernel: Any,
    rows: tuple[NDArray[np.uint32], NDArray[np.uint32]],
    weight: NDArray[np.float64] | None,
    columns: int,
) -> Iterator[tuple[list[int], Any]]:
    """Yield groups that are permuted together, by their numbers, and the sums of their losses, of `columns` columns.

    rows  numbers of the out-of-bag rows, and of the evaluated rows among them.
    """
    from bigforest.kernels.explain.permute import Losses, Parted

    table, (left_out, chosen) = rules.oob.table, rows
    values, at = table.values(), None if chosen is left_out else np.searchsorted(left_out, chosen)
    parts = _losses_of_leaves(tree, rules, weight)
    for numbers in permuted_together(
        rules.groups, table.used, max(1, DRAWN_BYTES // (values.itemsize * left_out.size))
    ):
        replaced = _shuffle_groups(rules, values, left_out, numbers, tree.number)
        if at is not None:
            replaced = replaced._replace(drawn=np.ascontiguousarray(replaced.drawn[:, at]))
        count = len(numbers)
        parted = Parted(np.zeros(count, np.uint32), np.empty(count, np.int32), np.empty(count, np.uint32))
        sums = Losses(np.zeros((count, columns)), np.zeros(columns), np.zeros(columns))
        for labels in parts:
            sums.weight[:] = 0.0
            parted.seen[:] = 0
            kernel(tree.walked, replaced, chosen, labels, parted, sums)
        yield numbers, sums


def _losses(job: ExplainJob, plan: SectionPlan, rules: PermutationRules) -> TreeLosses:
    stock = job.shrunk
    shape = (stock.tree_count, len(rules.groups), stock.width)
    found = TreeLosses(np.zeros(shape), np.zeros((shape[0], shape[2])), np.zeros((shape[0], shape[2])))

    def collect(trees: range, losses: TreeLosses) -> None:
        for whole, part in zip(found, losses, strict=True):
            whole[trees] = part

    job.over_trees("permutation", plan, permute_trees, (stock, rules), collect)
    return found


def permute_trees(stock: TreeStock, rules: PermutationRules, entries: range) -> TreeLosses:
    """Task: the losses of the trees of some entries. They depend on seed, tree and group alone."""
    found = [_permute_tree(tree, rules) for tree in load_trees(stock, rules.oob.table, entries)]
    return TreeLosses._make(np.array(arrays) for arrays in zip(*found, strict=True))


def _permute_tree(
    tree: LoadedTree, rules: PermutationRules
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    from bigforest.kernels.explain import permute

    table, rows, width = rules.oob.table, rules.oob.out_of_bag(tree.number), tree.answer.shape[1]
    change, loss_sum, weight = np.zeros((len(rules.groups), width)), np.zeros(width), np.zeros(width)
    if rows.size:
        kernel = permute.permute_numbers if rules.loss == "mse" else permute.permute_classes
        for numbers, sums in _permute_groups(tree, rules, kernel, (rows, rows), table.weight(), width):
            change[numbers], loss_sum, weight = sums  # the loss without permutation is the same each time
    return change, loss_sum, weight


def _losses_of_leaves(tree: LoadedTree, rules: PermutationRules, weight: NDArray[np.float64] | None) -> list[Any]:
    """Return the LeafLosses that the kernels add up, one after the other; the last has the weights of the rows.

    The Poisson deviance of a row is 2 (p - y log(p)) without terms that do not depend on p. This is a number of the
    leaf, less y times another number of it: two losses on a row of the only class.
    """
    from bigforest.kernels.explain.permute import LeafLosses

    table, begin = rules.oob.table, np.uint64(tree.begin)
    if rules.loss != "poisson_deviance":
        return [LeafLosses(table.target(), weight, begin, leaf_losses(tree.answer, rules.loss))]
    target, kept = table.target(), table.labelled_rows()
    only, heavy = np.zeros(target.size, np.uint16), target if weight is None else weight * target
    only.flags.writeable = heavy.flags.writeable = False  # as those in files are; the kernel is compiled for these
    mean = np.maximum(tree.answer, least_counted(float(target[kept].max(initial=0.0))))
    return [
        LeafLosses(only, heavy, begin, -2.0 * np.log(mean)),
        LeafLosses(only, weight, begin, 2.0 * mean),
    ]


def _shuffle_groups(
    rules: PermutationRules, values: NDArray[Any], rows: NDArray[np.uint32], numbers: list[int], tree: int
) -> Any:
    """Return the rows with the values of each of these groups in random order."""
    from bigforest.kernels.explain.permute import shuffle_columns
    from bigforest.kernels.explain.step import Replaced

    groups = [rules.groups[number] for number in numbers]
    columns = permuted_columns(groups, rules.oob.table.used)
    keys = np.array([order_key(rules.seed, tree, groups[number]) for number in columns.groups.tolist()], np.uint64)
    drawn = np.empty((keys.size, rows.size), values.dtype)
    with np.errstate(over="ignore"):
        shuffle_columns(values, rows, columns.places.astype(np.uint64), keys, drawn)
    return Replaced(values, drawn, columns.column, columns.member)


def permutation_tables(
    names: list[str], trees: int, labels: pl.Series | None, mean_and_error: Callable[[int | None], MeanAndError]
) -> dict[str, pl.DataFrame]:
    """Return the tables `permutation` and, of classes, `permutation-classes`.

    mean_and_error  returns importance and standard error of each feature or group, on the rows of a class or, for
                    None, on all rows.
    """
    mean, error = mean_and_error(None)
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = np.where(error > 0, mean / error, np.nan)
    columns = {"feature": names, "importance": mean, "standard_error": error, "scaled": scaled}
    tables = {"permutation": pl.DataFrame(columns).with_columns(trees=pl.lit(trees, pl.Int64))}
    if labels is not None:
        pieces = []
        for code in range(len(labels)):
            mean, error = mean_and_error(code)
            label = labels.alias("class").new_from_index(code, len(names))
            pieces.append(pl.DataFrame({"feature": names, "class": label, "importance": mean, "standard_error": error}))
        tables["permutation-classes"] = pl.concat(pieces)
    return tables


def tables_by_tree(found: TreeLosses, names: list[str], labels: pl.Series | None) -> dict[str, pl.DataFrame]:
    """Return the tables of `write_permutation`, by name, with standard errors over the trees."""
    weight = found.weight.sum(axis=1)
    weighed = weight > 0
    whole = np.full(found.change.shape[:2], np.nan)
    whole[weighed] = found.change[weighed].sum(axis=2) / weight[weighed, None]

    def mean_and_error(code: int | None) -> MeanAndError:
        if code is None:
            values = whole[weighed]
        else:
            seen = found.weight[:, code] > 0
            values = found.change[seen, :, code] / found.weight[seen, code, None]
        mean = values.mean(axis=0) if len(values) else np.full(values.shape[1], np.nan)
        return mean, error_over_trees(values)

    tables = permutation_tables(names, int(weighed.sum()), labels, mean_and_error)
    return tables | {"permutation-trees": by_tree(names, whole)}


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
    cells, step = _piece_shape(job)
    task_bytes = 8 * cells * min(step, chosen) + _ROW_BYTES * rows
    orders, tasks = orders_of(rows), -(-chosen // step)
    walk = stock.walk_nanoseconds(chosen * orders) * stock.width * 2.0
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
    """Return the sums over all rows with a target."""
    found = _run_over_rows("permutation", job, plan, rules, sum_losses, range(rules.oob.table.labelled_rows().size))
    return LossSums._make(sum(arrays) for arrays in zip(*found, strict=True))


def changed_losses_of(
    job: ExplainJob, plan: SectionPlan, rules: PermutationRules, places: NDArray[np.uint32]
) -> tuple[NDArray[np.float64], NDArray[np.uint32]]:
    """Return `changed_losses` of rows at these places among those with a target."""
    found = _run_over_rows("local importance", job, plan, rules, changed_losses, places)
    return np.hstack([change for change, _ in found]), np.concatenate([voters for _, voters in found])


def _run_over_rows(
    name: str,
    job: ExplainJob,
    plan: SectionPlan,
    rules: PermutationRules,
    function: Callable[..., Any],
    places: range | NDArray[np.uint32],
) -> list[Any]:
    """Return the results of a task for some of the places at a time, in order."""
    _, step = _piece_shape(job)
    pieces = [(places[begin:end],) for begin, end in row_ranges(len(places), step)]
    shared = job.sweep(plan, ()), rules, orders_of(rules.oob.table.rows)
    with stage(name, len(places), "rows", job.listener) as progress, job.sweeping(plan.at_once) as executor:
        return executor.gather(function, pieces, lambda i: progress.advance(len(pieces[i][0])), shared)


def sum_losses(sweep: Sweep, rules: PermutationRules, orders: int, places: range) -> LossSums:
    """Task: the sums over the rows at these places among those with a target."""
    table = rules.oob.table
    change, voters = changed_losses(sweep, rules, orders, places)
    rows = table.labelled_rows()[places.start : places.stop]
    row_weight, width = table.weight(), sweep.stock.width
    weight = np.where(voters > 0, 1.0 if row_weight is None else row_weight[rows], 0.0)
    of_class = table.target()[rows].astype(np.int64) if table.classes else np.zeros(rows.size, np.int64)

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
    """Task: the mean increase of the loss of each of some rows, float64 [groups, rows], and the number of trees that do
    not use it, uint32 [rows]. chosen: places among the rows with a target, ascending.

    Oracle: tests/naive/explain.py refined_change.
    """
    table, stage, places = rules.oob.table, sweep.stock.stage, np.asarray(chosen, np.int64)
    assert stage is not None
    rows = np.ascontiguousarray(table.labelled_rows()[places])
    shares = len(stage.classes)
    answers = shares + stage.link.outputs
    drawn = _draw_orders(rules, orders, rows, places, answers)
    total, voters = np.zeros((answers, rows.size)), np.zeros(rows.size)
    bags = rules.oob.bags
    for tree, answer in sweep.trees():
        out = np.ones(rows.size) if bags is None else (bags.bag(tree.number)[places] == 0).astype(np.float64)
        _add_changes(tree, answer, out, drawn, total, 0)
        voters += out
    in_bag = _rows_in_sequences(rules.oob, places)
    for tree in sweep.stage_trees():
        _add_changes(tree, tree.answer, (~in_bag[tree.number]).astype(np.float64), drawn, total, shares)
    sequences = (SEQUENCES - in_bag.sum(axis=0)) / SEQUENCES

    def losses(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        values = (sums[:shares] / np.maximum(voters, 1.0)).T
        return _row_losses(stage.predictions(values, (sums[shares:] / sequences).T), rules, rows)

    before, change = losses(total), np.zeros((len(rules.groups), rows.size))
    for together in drawn:
        for at, group in enumerate(together.groups):
            change[group] += losses(total + together.change[:, at]) - before
    return change / orders, voters.astype(np.uint32)


def _draw_orders(
    rules: PermutationRules, orders: int, rows: NDArray[np.uint32], places: NDArray[np.int64], answers: int
) -> list[_Orders]:
    """Return the rows with the values of each group in each order, together as far as groups share no feature."""
    from bigforest.kernels.explain.permute import shuffle_columns
    from bigforest.kernels.explain.step import Replaced

    table = rules.oob.table
    values, kept = table.values(), table.labelled_rows()
    unchanged = read_only(values[rows])
    row_numbers, first = np.arange(kept.size, dtype=np.uint32), np.zeros(1, np.uint64)
    order = np.empty((1, kept.size), np.uint32)
    found = []
    for repetition in range(orders):
        for numbers in permuted_together(rules.groups, table.used, len(table.used)):
            groups = [rules.groups[number] for number in numbers]
            columns = permuted_columns(groups, table.used)
            drawn = np.empty((columns.places.size, rows.size), values.dtype)
            for number, group in enumerate(groups):
                key = np.array([order_key(rules.seed, repetition, group)])
                with np.errstate(over="ignore"):
                    shuffle_columns(kept[:, None], row_numbers, first, key, order)
                others = order[0, places]
                for column in np.flatnonzero(columns.groups == number).tolist():
                    drawn[column] = values[others, columns.places[column]]
            replaced = Replaced(unchanged, drawn, columns.column, columns.member)
            found.append(_Orders(numbers, replaced, np.zeros((answers, len(numbers), rows.size))))
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
        for at, together in enumerate(drawn):
            groups = len(together.groups)
            parted = Parted(np.zeros(groups, np.uint32), np.empty(groups, np.int32), np.empty(groups, np.uint32))
            sums = Losses(together.change[place], ignored if at else total[place], ignored)
            permute_class_rows(tree.walked, together.replaced, rows, labels, parted, sums)


def _rows_in_sequences(oob: OutOfBagRows, places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which sequences of the stage used each of some rows, bool [SEQUENCES, rows]."""
    if oob.bags is None or not places.size:
        return np.zeros((SEQUENCES, places.size), np.bool_)
    table: Any = oob.bags.inputs  # for these draws it is like a Store
    spec, classes = table.spec, len(table.spec.target.classes)
    share = sample_share(table.rows, len(spec.features), classes if classes > 2 else 1)
    return stage_bags(table, oob.bags.config, places, share)


def _row_losses(
    predictions: NDArray[np.float64], rules: PermutationRules, rows: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """Return the loss of each row; the deviance without terms that do not depend on the prediction."""
    table = rules.oob.table
    truth = table.target()[rows]
    if table.classes:
        return leaf_losses(predictions, rules.loss)[np.arange(rows.size), truth]
    number = predictions[:, 0]
    if rules.loss == "mse":
        return np.asarray((number - truth) ** 2)
    least = least_counted(float(table.target()[table.labelled_rows()].max(initial=0.0)))
    number = np.maximum(number, least)
    return np.asarray(2.0 * (number - truth * np.log(number)))


def tables_of_predictions(
    found: LossSums, names: list[str], trees: int, labels: pl.Series | None
) -> dict[str, pl.DataFrame]:
    """Return the tables of `write_permutation`, by name, but for that by tree, with standard errors over the rows."""

    def mean_and_error(code: int | None) -> MeanAndError:
        columns = slice(None) if code is None else slice(code, code + 1)
        (first, second, third), (weight, squares) = (
            found.change[..., columns].sum(axis=2),
            found.weight[:, columns].sum(axis=1),
        )
        rows = int(found.rows[columns].sum())
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = first / weight
            spread = np.maximum(third - 2.0 * mean * second + mean * mean * squares, 0.0)
            return mean, np.sqrt(spread * (rows / (rows - 1.0) if rows > 1 else np.nan)) / weight

    return permutation_tables(names, trees, labels, mean_and_error)
