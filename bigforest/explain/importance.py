"""Importance of features: by the decrease of impurity, on out-of-bag rows without bias, and by permutation.

importance   the mean decrease of impurity, on the rows of the bags
unbiased     MDI-oob (Li, Wang, Basu, Kumbier and Yu 2019): the decrease on out-of-bag rows
permutation  the increase of the loss when the values of a feature, or of a group of features, are permuted among
             out-of-bag rows (Breiman 2001, section 10)
local        the same for single rows
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.labels import label_series
from bigforest.events import stage
from bigforest.explain.job import ExplainJob, OutOfBagRows
from bigforest.explain.permuted_predictions import (
    changed_losses_of,
    loss_sums,
    plan_refined,
    refined_tables,
)
from bigforest.explain.permuting import (
    DRAW_NS,
    DRAWN_BYTES,
    Permuting,
    leaf_losses,
    order_key,
    permuted_columns,
    permuted_groups,
    permuted_together,
    permuting,
)
from bigforest.explain.tree_groups import LoadedTree, SectionPlan, TreeStock, load_trees, plan_groups
from bigforest.forest.decreases import tree_decreases
from bigforest.forest.parts import part_paths
from bigforest.oob.accumulator import least_counted
from bigforest.planning.memory import BASE_BYTES, MemoryEstimate
from bigforest.predict.groups import LOADING_BYTES
from bigforest.storage.array_file import read_arrays, write_arrays

# Bytes of a row while it is routed: its number, leaf, and count in the bag.
ROW_BYTES = 16
# Bytes of a feature in a tree: its decrease and its share, and its line of a table, before and while it is written.
_CELL_BYTES = 16 + 2 * 32
# Nanoseconds on one thread of a node that is read, and of a row that ends in a leaf. Measured.
_NODE_NS = 200.0
_HELD_NS = 20.0


def plan_importance(job: ExplainJob) -> SectionPlan:
    """Plan `importance`: the tables, one tree after the other."""
    cells = job.forest.trees * len(job.forest.spec.features)
    memory = BASE_BYTES + LOADING_BYTES + _CELL_BYTES * cells
    need = MemoryEstimate("importance", memory, memory)
    return SectionPlan(need, [range(job.forest.trees)], 1, _NODE_NS * job.stock.node_count)


def write_importance(job: ExplainJob, plan: SectionPlan) -> None:
    """Write `importance`, the mean decrease of impurity by feature, and `importance-trees`, by tree.

    decrease    share of the feature in the total decrease of impurity: forest/format.py FEATURES.
    importance  mean over the trees of its share in the tree's decrease, as scikit-learn has it (trees of a single leaf
                count as 0), and its standard error.
    """
    folder = job.folder.without_rows()
    if folder.has_all(["importance", "importance-trees"]):
        return
    del plan  # it runs here, at once
    spec, trees = job.forest.spec, job.forest.trees
    directory = job.stock.trees.directory  # it has checked the parts
    own = np.zeros((trees, len(spec.features)))
    with stage("importance", trees, "trees", job.listener) as progress:
        for tree, decrease in tree_decreases(part_paths(directory), spec):
            own[tree] = decrease
            progress.advance()
    whole = own.sum(axis=0)
    shares = tree_shares(own)
    columns = {
        "feature": spec.feature_names,
        "decrease": whole / whole.sum() if whole.sum() > 0 else whole,
        "importance": shares.mean(axis=0),
        "standard_error": error_over_trees(shares),
    }
    folder.write("importance", pl.DataFrame(columns))
    folder.write("importance-trees", by_tree(spec.feature_names, shares))


def tree_shares(decrease: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of each feature in the decrease of its tree, [trees, features]; 0 in trees without any.

    Where some rows weigh next to nothing beside others a decrease may be rounded to one below 0, which counts as 0.
    """
    own = np.maximum(decrease, 0.0)
    total = own.sum(axis=1, keepdims=True)
    return np.divide(own, total, out=np.zeros_like(own), where=total > 0.0)


def error_over_trees(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard error of the mean over the trees, values [trees, ...]; nan for a single tree."""
    trees = len(values)
    if trees < 2:
        return np.full(values.shape[1:], np.nan)
    # Of numbers from 0 to 1, whose squares are finite.
    _, exponent = np.frexp(np.abs(values).max(axis=0))
    return np.ldexp(np.ldexp(values, -exponent).std(axis=0, ddof=1), exponent) / np.sqrt(trees)


def by_tree(names: list[str], values: NDArray[np.float64]) -> pl.DataFrame:
    """Return one row per tree and feature, of values [trees, features]."""
    tree = np.repeat(np.arange(len(values), dtype=np.uint32), len(names))
    return pl.DataFrame({"tree": tree, "feature": names * len(values), "importance": values.reshape(-1)})


def plan_unbiased(job: ExplainJob) -> SectionPlan:
    """Plan `unbiased`: out-of-bag rows are routed once through each tree."""
    rows, stock = job.described.rows, job.stock
    left_out = job.out_of_bag_share * rows
    work = stock.walk_nanoseconds(left_out) + left_out * stock.tree_count * _HELD_NS
    return plan_groups("unbiased", stock, job.resources, ROW_BYTES * rows, work=work)


def write_unbiased(job: ExplainJob, plan: SectionPlan) -> None:
    """Write `unbiased`, the decrease of impurity on out-of-bag rows, and `unbiased-trees`, by tree.

    MDI-oob of Li, Wang, Basu, Kumbier and Yu 2019: irrelevant features get 0 on average, for any number of values and
    any depth.
    """
    settings = repr(job.options.new_rows)
    if job.folder.has_all(["unbiased", "unbiased-trees"], settings):
        return
    oob, stock = job.oob, job.stock
    spec = job.forest.spec
    own = np.full((stock.tree_count, len(spec.features)), np.nan)
    job.over_trees("unbiased", plan, oob_decreases, (stock, oob), own.__setitem__)
    known = own[~np.isnan(own).any(axis=1)]
    names = spec.feature_names
    columns = {
        "feature": names,
        "importance": known.mean(axis=0) if len(known) else np.full(len(names), np.nan),
        "standard_error": error_over_trees(known),
    }
    job.folder.write("unbiased", pl.DataFrame(columns), settings)
    job.folder.write("unbiased-trees", by_tree(names, own), settings)


def oob_decreases(stock: TreeStock, oob: OutOfBagRows, entries: range) -> NDArray[np.float64]:
    """Task: MDI-oob of each tree of some entries, float64 [trees, features]; nan of trees that leave out no row."""
    features = len(stock.trees.header.spec.features)
    found = []
    for tree in load_trees(stock, oob.table, entries):
        rows = oob.out_of_bag(tree.number)
        out = np.full(features, np.nan)
        if rows.size:
            out[:] = 0.0
            out[list(oob.table.used)] = _tree_decreases(tree, oob, rows)
        found.append(out)
    return np.array(found)


def _tree_decreases(tree: LoadedTree, oob: OutOfBagRows, rows: NDArray[np.uint32]) -> NDArray[np.float64]:
    from bigforest.kernels.explain.permute import LeafLosses, decreases, hold_classes, hold_numbers

    table = oob.table
    weight = table.weight()
    labels = LeafLosses(table.target(), weight, np.uint64(tree.begin), tree.answer)
    leaves = leaf_positions(tree, table.values(), rows)
    held = np.zeros(tree.answer.shape)
    if table.classes:
        hold_classes(leaves, rows, labels, held)
    else:
        hold_numbers(leaves, rows, labels, held)
    out = np.zeros(len(table.used) + 1)
    decreases(tree.walked, np.uint64(tree.begin), np.uint64(tree.end), tree.answer, held, out)
    return out[:-1] / (rows.size if weight is None else weight[rows].sum())


def leaf_positions(tree: LoadedTree, values: NDArray[np.float64], rows: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the positions, among the nodes of the group, of the leaves in which these rows end."""
    from bigforest.kernels.explain.step import walk_rows

    leaves = np.empty(rows.size, np.uint32)
    walk_rows(tree.walked, np.uint64(tree.begin), values, rows, leaves)
    return leaves


# Rows of a sample for local importance.
_SAMPLE = 1000
_LOCAL_TYPES = {"change": "<f8"}


class TreeLosses(NamedTuple):
    """Losses of some trees on their out-of-bag rows, by class of the rows, or, for regression, in one sum.

    change  float64 [trees, groups, classes], increase of the loss when the group is permuted
    loss    float64 [trees, classes], the deviance without what does not depend on the tree
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
    own, work = _task_bytes(job) + sums, _permuting_nanoseconds(job, rows)
    return plan_groups("local", job.stock, job.resources, own, work=work, shared=sums, scratch=scratch)


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

    With a boosted stage the loss is that of the whole prediction, and there is no table by tree: see
    permuted_predictions.py.
    """
    options, spec = job.options, job.forest.spec
    loss, groups = options.loss_for(spec, job.forest.config.criterion), permuted_groups(job)
    settings = repr((loss, options.seed, groups, options.new_rows))
    names = ["permutation", *([] if job.forest.is_regression else ["permutation-classes"])]
    names += [] if job.stage is not None else ["permutation-trees"]
    if job.folder.has_all(names, settings):
        return
    how, labels = permuting(job, groups, loss), None if job.forest.is_regression else label_series(spec.target)
    of = [group.name for group in groups]
    if job.stage is not None:
        tables = refined_tables(loss_sums(job, plan, how), of, job.stock.tree_count, labels)
    else:
        tables = permutation_tables(_losses(job, plan, how), of, labels)
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
    how, places = permuting(job, groups, loss), job.chosen(_SAMPLE)
    rows = how.oob.table.labelled_rows()[places]
    if job.stage is not None:
        found, votes = changed_losses_of(job, plan, how, places)
        change = np.where(votes[:, None] > 0, found.T, np.nan)
    else:
        change, votes = _local_changes(job, plan, how, rows)
    mean = pl.Series(change.reshape(-1)).fill_nan(None)
    columns = {
        "row": np.repeat(rows.astype(np.uint64), len(groups)),
        "feature": [group.name for group in groups] * rows.size,
        "importance": mean,
        "trees": np.repeat(votes, len(groups)),
    }
    job.folder.write("local", pl.DataFrame(columns), settings)


def _local_changes(
    job: ExplainJob, plan: SectionPlan, how: Permuting, rows: NDArray[np.uint32]
) -> tuple[NDArray[np.float64], NDArray[np.uint32]]:
    """Return the mean over trees of `permute_rows`, nan without trees, and the number of trees, uint32 [rows]."""
    change, votes = np.zeros((rows.size, len(how.groups))), np.zeros(rows.size, np.uint32)
    job.over_trees("local importance", plan, permute_rows, (job.shrunk, how, rows, job.work))
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


def permute_rows(stock: TreeStock, how: Permuting, rows: NDArray[np.uint32], folder: Path, entries: range) -> None:
    """Task: increase of the loss of the chosen rows, float64 [rows, groups], by tree; nan for rows in the bag."""
    for tree in load_trees(stock, how.oob.table, entries):
        left_out = how.oob.out_of_bag(tree.number)
        here = np.isin(rows, left_out)
        found = np.full((rows.size, len(how.groups)), np.nan)
        found[here] = _permute_chosen(tree, how, left_out, np.ascontiguousarray(rows[here]))
        write_arrays(local_file(folder, tree.number), _LOCAL_TYPES, found)


def _permute_chosen(
    tree: LoadedTree, how: Permuting, left_out: NDArray[np.uint32], chosen: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """Return the increase of the loss of the chosen ones of the out-of-bag rows of a tree, [rows, groups]."""
    from bigforest.kernels.explain import permute

    found = np.zeros((len(how.groups), chosen.size))
    if chosen.size:
        kernel = permute.permute_number_rows if how.loss == "mse" else permute.permute_class_rows
        for some, sums in _permuted(tree, how, kernel, (left_out, chosen), None, chosen.size):
            found[some] = sums.change
    return found.T


def _permuted(
    tree: LoadedTree,
    how: Permuting,
    kernel: Any,
    rows: tuple[NDArray[np.uint32], NDArray[np.uint32]],
    weight: NDArray[np.float64] | None,
    columns: int,
) -> Iterator[tuple[list[int], Any]]:
    """Yield groups that are permuted together, by their numbers, and the sums of their losses, of `columns` columns.

    rows  out of the bag, and those of them that are evaluated.
    """
    from bigforest.kernels.explain.permute import Losses, Parted

    table, (left_out, chosen) = how.oob.table, rows
    values, at = table.values(), None if chosen is left_out else np.searchsorted(left_out, chosen)
    parts = _losses_of_leaves(tree, how, weight)
    for some in permuted_together(how.groups, table.used, max(1, DRAWN_BYTES // (values.itemsize * left_out.size))):
        replaced = _drawn(how, values, left_out, some, tree.number)
        if at is not None:
            replaced = replaced._replace(drawn=np.ascontiguousarray(replaced.drawn[:, at]))
        count = len(some)
        parted = Parted(np.zeros(count, np.uint32), np.empty(count, np.int32), np.empty(count, np.uint32))
        sums = Losses(np.zeros((count, columns)), np.zeros(columns), np.zeros(columns))
        for labels in parts:
            sums.weight[:] = 0.0
            parted.seen[:] = 0
            kernel(tree.walked, replaced, chosen, labels, parted, sums)
        yield some, sums


def _losses(job: ExplainJob, plan: SectionPlan, how: Permuting) -> TreeLosses:
    stock = job.shrunk
    shape = (stock.tree_count, len(how.groups), stock.width)
    found = TreeLosses(np.zeros(shape), np.zeros((shape[0], shape[2])), np.zeros((shape[0], shape[2])))

    def collect(trees: range, part: TreeLosses) -> None:
        for whole, some in zip(found, part, strict=True):
            whole[trees] = some

    job.over_trees("permutation", plan, permute_trees, (stock, how), collect)
    return found


def permute_trees(stock: TreeStock, how: Permuting, entries: range) -> TreeLosses:
    """Task: the losses of the trees of some entries. They depend on seed, tree and group alone."""
    found = [_permute_tree(tree, how) for tree in load_trees(stock, how.oob.table, entries)]
    return TreeLosses._make(np.array(arrays) for arrays in zip(*found, strict=True))


def _permute_tree(
    tree: LoadedTree, how: Permuting
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    from bigforest.kernels.explain import permute

    table, rows, width = how.oob.table, how.oob.out_of_bag(tree.number), tree.answer.shape[1]
    change, loss_sum, weight = np.zeros((len(how.groups), width)), np.zeros(width), np.zeros(width)
    if rows.size:
        kernel = permute.permute_numbers if how.loss == "mse" else permute.permute_classes
        for some, sums in _permuted(tree, how, kernel, (rows, rows), table.weight(), width):
            change[some], loss_sum, weight = sums  # the loss without permutation is the same each time
    return change, loss_sum, weight


def _losses_of_leaves(tree: LoadedTree, how: Permuting, weight: NDArray[np.float64] | None) -> list[Any]:
    """Return the LeafLosses that the kernels add up, one after the other; the last has the weights of the rows.

    The Poisson deviance of a row, 2 (p - y log(p)) but for what does not depend on p, is a number of the leaf less y
    times another: two losses on a row of the only class.
    """
    from bigforest.kernels.explain.permute import LeafLosses

    table, begin = how.oob.table, np.uint64(tree.begin)
    if how.loss != "poisson_deviance":
        return [LeafLosses(table.target(), weight, begin, leaf_losses(tree.answer, how.loss))]
    target, kept = table.target(), table.labelled_rows()
    only, heavy = np.zeros(target.size, np.uint16), target if weight is None else weight * target
    only.flags.writeable = heavy.flags.writeable = False  # as those in files are; the kernel is compiled for these
    mean = np.maximum(tree.answer, least_counted(float(target[kept].max(initial=0.0))))
    return [
        LeafLosses(only, heavy, begin, -2.0 * np.log(mean)),
        LeafLosses(only, weight, begin, 2.0 * mean),
    ]


def _drawn(how: Permuting, values: NDArray[Any], rows: NDArray[np.uint32], some: list[int], tree: int) -> Any:
    """Return the rows with the values of each of these groups in random order."""
    from bigforest.kernels.explain.permute import shuffle_columns
    from bigforest.kernels.explain.step import Replaced

    groups = [how.groups[number] for number in some]
    columns = permuted_columns(groups, how.oob.table.used)
    keys = np.array([order_key(how.seed, tree, groups[number]) for number in columns.groups.tolist()], np.uint64)
    drawn = np.empty((keys.size, rows.size), values.dtype)
    with np.errstate(over="ignore"):
        shuffle_columns(values, rows, columns.places.astype(np.uint64), keys, drawn)
    return Replaced(values, drawn, columns.column, columns.member)


def permutation_tables(found: TreeLosses, names: list[str], classes: pl.Series | None) -> dict[str, pl.DataFrame]:
    """Return the tables of `write_permutation`, by name."""
    weight = found.weight.sum(axis=1)
    weighed = weight > 0
    whole = np.full(found.change.shape[:2], np.nan)
    whole[weighed] = found.change[weighed].sum(axis=2) / weight[weighed, None]
    mean, error = _mean_of_trees(whole[weighed])
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = np.where(error > 0, mean / error, np.nan)
    columns = {"feature": names, "importance": mean, "standard_error": error, "scaled": scaled}
    table = pl.DataFrame(columns).with_columns(trees=pl.lit(int(weighed.sum()), pl.Int64))
    tables = {"permutation": table, "permutation-trees": by_tree(names, whole)}
    if classes is not None:
        pieces = []
        for k in range(len(classes)):
            own = found.weight[:, k] > 0
            mean, error = _mean_of_trees(found.change[own, :, k] / found.weight[own, k, None])
            labels = classes.alias("class").new_from_index(k, len(names))
            pieces.append(
                pl.DataFrame({"feature": names, "class": labels, "importance": mean, "standard_error": error})
            )
        tables["permutation-classes"] = pl.concat(pieces)
    return tables


def _mean_of_trees(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean over the trees, values [trees, groups], and its standard error; nan without trees."""
    mean = values.mean(axis=0) if len(values) else np.full(values.shape[1], np.nan)
    return mean, error_over_trees(values)
