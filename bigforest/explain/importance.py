"""Importance of features by the decrease of impurity: on the bags, and without bias on out-of-bag rows.

importance   the mean decrease of impurity, on the rows of the bags
unbiased     MDI-oob (Li, Wang, Basu, Kumbier and Yu 2019): the decrease on out-of-bag rows
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.explain.job import (
    ROW_BYTES,
    ExplainJob,
    LoadedTree,
    OutOfBagRows,
    SectionPlan,
    TreeStock,
    leaf_positions,
    load_trees,
    plan_groups,
)
from bigforest.forest.decreases import decrease_shares, tree_decreases
from bigforest.forest.parts import read_span
from bigforest.predict.groups import Trees

# Bytes for each feature of each tree: its decrease and share, and its row of a table, held twice while it is written.
_CELL_BYTES = 16 + 2 * 32
# Nanoseconds on one thread for reading a node, and for adding the label of a row to its leaf. Measured.
_NODE_NS = 450.0
_LABEL_NS = 20.0


def plan_importance(job: ExplainJob) -> SectionPlan:
    stock = job.stock
    shared, sizes = _CELL_BYTES * stock.tree_count * len(job.forest.spec.features), np.ones(stock.tree_count, np.int64)
    # Nodes are read in pieces, so that a task needs no memory for its trees: groups have equally many trees.
    plan = plan_groups("importance", stock, job.resources, 0, work=0.0, shared=shared, sizes=sizes)
    return plan._replace(nanoseconds=_NODE_NS * stock.node_count)


def write_importance(job: ExplainJob, plan: SectionPlan) -> None:
    """Write `importance`, the mean decrease of impurity by feature, and `importance-trees`, by tree.

    decrease    share of the feature in the total decrease of impurity: forest/format.py FEATURES.
    importance  mean over the trees of the share of the feature in the decrease of the tree, as in scikit-learn. The
                share in a tree of a single leaf is 0. `standard_error` is the standard error of this mean.
    """
    folder = job.folder.without_rows()
    if folder.has_all(["importance", "importance-trees"]):
        return
    spec = job.forest.spec
    decreases = np.zeros((job.forest.trees, len(spec.features)))
    job.over_trees("importance", plan, bag_decreases, (job.stock.trees,), decreases.__setitem__)
    shares = decrease_shares(decreases)
    columns = {
        "feature": spec.feature_names,
        "decrease": decrease_shares(decreases.sum(axis=0)),
        "importance": shares.mean(axis=0),
        "standard_error": error_over_trees(shares),
    }
    folder.write("importance", pl.DataFrame(columns))
    folder.write("importance-trees", by_tree(spec.feature_names, shares))


def bag_decreases(trees: Trees, entries: range) -> NDArray[np.float64]:
    """Task: return the decreases of impurity of some trees, float64 [trees, features]."""
    pieces = (piece for span in trees.spans(entries) for piece in read_span(span, trees.header))
    return np.array([decrease for _, decrease in tree_decreases(pieces, trees.header.spec)])


def error_over_trees(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard error of the mean over the trees, values [trees, ...]; nan for fewer than two."""
    trees = len(values)
    if trees < 2:
        return np.full(values.shape[1:], np.nan)
    # The numbers are scaled to at most 1, so that their squares are finite.
    _, exponent = np.frexp(np.abs(values).max(axis=0))
    return np.ldexp(np.ldexp(values, -exponent).std(axis=0, ddof=1), exponent) / np.sqrt(trees)


def by_tree(names: list[str], values: NDArray[np.float64]) -> pl.DataFrame:
    """Return the importance of each feature in each tree as a table; values: float64 [trees, features]."""
    tree = np.repeat(np.arange(len(values), dtype=np.uint32), len(names))
    return pl.DataFrame({"tree": tree, "feature": names * len(values), "importance": values.reshape(-1)})


def plan_unbiased(job: ExplainJob) -> SectionPlan:
    rows, stock = job.described.rows, job.stock
    left_out = job.out_of_bag_share * rows
    work = stock.walk_nanoseconds(left_out) + left_out * stock.tree_count * _LABEL_NS
    return plan_groups("unbiased", stock, job.resources, ROW_BYTES * rows, work=work)


def write_unbiased(job: ExplainJob, plan: SectionPlan) -> None:
    """Write `unbiased`, the decrease of impurity on out-of-bag rows, and `unbiased-trees`, by tree.

    MDI-oob of Li, Wang, Basu, Kumbier and Yu 2019: irrelevant features get 0 on average, for any number of values and
    any depth.
    """
    folder = job.folder.with_settings(job.options.new_rows)
    if folder.has_all(["unbiased", "unbiased-trees"]):
        return
    oob, stock = job.oob, job.stock
    spec = job.forest.spec
    decreases = np.full((stock.tree_count, len(spec.features)), np.nan)
    job.over_trees("unbiased", plan, oob_decreases, (stock, oob), decreases.__setitem__)
    tested = decreases[~np.isnan(decreases).any(axis=1)]
    names = spec.feature_names
    columns = {
        "feature": names,
        "importance": tested.mean(axis=0) if len(tested) else np.full(len(names), np.nan),
        "standard_error": error_over_trees(tested),
    }
    folder.write("unbiased", pl.DataFrame(columns))
    folder.write("unbiased-trees", by_tree(names, decreases))


def oob_decreases(stock: TreeStock, oob: OutOfBagRows, entries: range) -> NDArray[np.float64]:
    """Task: return MDI-oob of some trees, float64 [trees, features]; nan for a tree without out-of-bag rows."""
    features = len(stock.trees.header.spec.features)
    decreases = []
    for tree in load_trees(stock, oob.table, entries):
        rows = oob.out_of_bag(tree.number)
        out = np.full(features, np.nan)
        if rows.size:
            out[:] = 0.0
            out[list(oob.table.used)] = _oob_decrease(tree, oob, rows)
        decreases.append(out)
    return np.array(decreases)


def _oob_decrease(tree: LoadedTree, oob: OutOfBagRows, rows: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Return the MDI-oob of a tree for each used feature, float64; rows: its out-of-bag rows."""
    from bigforest.kernels.explain.replace import decreases

    table = oob.table
    weight = table.weight()
    leaves = leaf_positions(tree, table.values(), rows) - np.uint32(tree.begin)
    label_sums, truth = np.zeros(tree.answer.shape), table.target()[rows]
    row_weight = np.ones(rows.size) if weight is None else weight[rows]
    if table.is_classification:
        np.add.at(label_sums, (leaves, truth), row_weight)
    else:
        np.add.at(label_sums[:, 0], leaves, row_weight * truth)
    out = np.zeros(len(table.used) + 1)
    decreases(tree.walked, np.uint64(tree.begin), np.uint64(tree.end), tree.answer, label_sums, out)
    return out[:-1] / row_weight.sum()
