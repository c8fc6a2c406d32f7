"""Permutation importance: the increase of the out-of-bag loss when features are permuted among rows.

Without a boosted stage, features are permuted among the out-of-bag rows of each tree, and the losses of single trees
are averaged over the trees (tree_losses.py). With a boosted stage, features are permuted among all rows, and the losses
of whole out-of-bag predictions are averaged over the rows (prediction_losses.py).
"""

from __future__ import annotations

import numpy as np
import polars as pl

from bigforest.columns.labels import label_series
from bigforest.explain.importance import by_tree
from bigforest.explain.job import ExplainJob, SectionPlan
from bigforest.explain.permuted_groups import permutation_rules, permuted_groups
from bigforest.explain.prediction_losses import LossSums, local_prediction_losses, loss_sums, plan_prediction_losses
from bigforest.explain.tree_losses import TreeLosses, local_tree_losses, plan_tree_losses, tree_losses

# Rows of a sample for local importance.
_SAMPLE = 1000


def plan_permutation(job: ExplainJob) -> SectionPlan:
    plan = plan_tree_losses if job.stage is None else plan_prediction_losses
    return plan(job, "permutation", job.described.rows)


def plan_local(job: ExplainJob) -> SectionPlan:
    plan = plan_tree_losses if job.stage is None else plan_prediction_losses
    return plan(job, "local", job.requested(_SAMPLE))


def write_permutation(job: ExplainJob, plan: SectionPlan) -> None:
    """Write `permutation`, `permutation-trees` and, for classes, `permutation-classes`.

    importance  increase of the loss per out-of-bag row when the feature is permuted among these rows, mean over the
                trees (Breiman 2001, section 10). The loss is the error, log loss, squared error or deviance.
    scaled      importance divided by its standard error.

    With a boosted stage, features are permuted among all rows, importance is the mean increase of the loss of the whole
    out-of-bag prediction of a row, and there is no table `permutation-trees`.
    """
    options, spec = job.options, job.forest.spec
    loss, groups = options.loss_for(spec, job.forest.config.criterion), permuted_groups(job)
    folder = job.folder.with_settings((loss, options.seed, groups, options.new_rows))
    names = ["permutation", *([] if job.forest.is_regression else ["permutation-classes"])]
    names += [] if job.stage is not None else ["permutation-trees"]
    if folder.has_all(names):
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
        folder.write(name, tables[name])


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
    folder = job.folder.with_settings((loss, options.seed, groups, options.new_rows, options.rows, options.sample))
    if folder.has("local"):
        return
    rules, positions = permutation_rules(job, groups, loss), job.chosen_positions(_SAMPLE)
    rows = rules.oob.table.labelled_rows()[positions]
    local_losses = local_tree_losses if job.stage is None else local_prediction_losses
    change, trees = local_losses(job, plan, rules, positions)
    columns = {
        "row": np.repeat(rows.astype(np.uint64), len(groups)),
        "feature": [group.name for group in groups] * rows.size,
        "importance": change.reshape(-1),
        "trees": np.repeat(trees, len(groups)),
    }
    folder.write("local", pl.DataFrame(columns))
