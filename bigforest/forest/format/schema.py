"""The forest as a table. This module *is* the description of the files of a forest directory, format version 3.

    trees/part-NNNNNNN.parquet  NODES: a row per node, trees and nodes ascending; NNNNNNN is the part's first tree
    features.parquet            FEATURES: a row per feature, in the order of the training table
    levels.parquet              bigforest/store/levels.py LEVELS: a row per level; only of forests with categories
    ranks.parquet               RANKS: a row per distinct value of a feature; only of forests grown on ranks
    boosting.parquet            BOOSTING: a row per tree; only of boosted forests (sampling arc-x4 and adaboost)
    run.parquet                 RUN: a row per stage of the run that grew the forest
    tuning/candidates.parquet   TUNING: a row per candidate; only of forests that were chosen with tune
    oob/rows.parquet            oob_rows(...): a row per training row, of the first 262,144; those after them are in
                                oob/rows-NNNNNNN.parquet, NNNNNNN being 1 and so on
    oob/curve.parquet           CURVE: a row per tree; NUMBER_CURVE for regression
    oob/confusion.parquet       confusion(...): a row per pair of true and predicted class that occurs; only of classes
    oob/metrics.parquet         metrics(...): a row per class, and one for all; NUMBER_METRICS: one of numbers
    oob/votes/part-NNNNNNN.parquet  VOTES: a row per tree and row that is not in its bag; only with keep_votes

A forest grown without bootstrap has no folder oob. Every file carries its version, its kind, the dataspec and the
configuration in its Parquet schema metadata: see files.py.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from bigforest.schema.dataspec import DataSpec

KINDS = ("leaf", "axis", "category", "oblique")

METRICS = ("precision", "recall", "f1", "log_loss", "brier", "auc")

# Nodes that fill a row group, and terms and levels in them: what is written and read at a time. A node is in one.
GROUP_NODES = 1 << 17
GROUP_ENTRIES = 1 << 21

# tree, node     node is the number in preorder within its tree; the root is 0
# left, right    node numbers of the children, null in a leaf; left is always node + 1
# depth          0 for the root
# kind           "leaf", "axis" (feature <= threshold goes left), "category" (the levels say what goes where), or
#                "oblique" (the projection on the terms <= threshold goes left; NaN goes right)
# feature        name of the feature; null but in axis nodes and those on a category
# threshold      null but in axis and oblique nodes; infinite where all values go left, and missing ones right
# default_left   where a row goes whose value is missing; on a category where levels go that are not listed, among them
#                those not seen in training. Null in leaves and oblique nodes
# levels         levels of a category, ascending; null is the missing one, which comes first. Rows of these levels go
#                right if default_left, else left. Null in other nodes
# terms          the direction of an oblique node: features, in the order of the training table, each once, and their
#                weights, finite and not 0; null in other nodes. The projection is the sum of weight * value in this
#                order, in float64
# gain           decrease of impurity: the node's minus the children's, weighted by bag rows; null in a leaf
# weight         rows of the bag in the node, repeats counted; where rows have weights, these, in steps of WeightSpec
# counts         the same by class, in the order of the dataspec's classes; null for regression. uint64
#                where weights are wide (nodes_schema)
# value          mean of the target in the node, weighted by bag rows; null where classes are predicted
NODES = pa.schema(
    [
        pa.field("tree", pa.uint32(), nullable=False),
        pa.field("node", pa.uint32(), nullable=False),
        pa.field("left", pa.uint32()),
        pa.field("right", pa.uint32()),
        pa.field("depth", pa.uint32(), nullable=False),
        pa.field("kind", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("feature", pa.dictionary(pa.int32(), pa.string())),
        pa.field("threshold", pa.float64()),
        pa.field("default_left", pa.bool_()),
        pa.field("levels", pa.list_(pa.string())),
        pa.field("terms", pa.list_(pa.struct([("feature", pa.string()), ("weight", pa.float64())]))),
        pa.field("gain", pa.float64()),
        pa.field("weight", pa.uint64(), nullable=False),
        pa.field("counts", pa.list_(pa.field("element", pa.uint32(), nullable=False))),
        pa.field("value", pa.float64()),
    ]
)


def nodes_schema(spec: DataSpec) -> pa.Schema:
    """NODES for the forest of a table: counts have 64 bits where its weights are wide."""
    if not spec.wide_weights:
        return NODES
    wide = pa.list_(pa.field("element", pa.uint64(), nullable=False))
    return NODES.set(NODES.get_field_index("counts"), pa.field("counts", wide))


# codes          number of distinct values (of codes, where max_bins capped them) in the training table
# importance     share of the feature in the total decrease of impurity: the sum of gain * weight over the nodes that
#                split on it, over the same sum for all nodes; all 0 when no split decreased anything
FEATURES = pa.schema(
    [
        pa.field("feature", pa.uint32(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("dtype", pa.string(), nullable=False),
        pa.field("codes", pa.uint64(), nullable=False),
        pa.field("importance", pa.float64(), nullable=False),
    ]
)

# error          share of the validation rows whose answer by the first `trees` trees is wrong, or missing
# rejected       rows whose answer is missing, because classes have equal votes
# rows           rows with a label
VALIDATION_KIND = "validation-curve"
VALIDATION = pa.schema(
    [
        pa.field("trees", pa.uint32(), nullable=False),
        pa.field("error", pa.float64(), nullable=False),
        pa.field("rejected", pa.uint64(), nullable=False),
        pa.field("rows", pa.uint64(), nullable=False),
    ]
)

# What a tuned forest was chosen from: one row per candidate in their order.
# options         its own, a JSON object
# loss            what `metric` says, out of bag, after its last round; null for one that could not be grown, as are the
#                 next two
# difference      how far that is above the least; standard_error: of the difference, paired by row
# cross_fitted    of the winner: the loss of the choice, each half of the rows by what the other half chooses
# bytes           of its forest; seconds: spent on it
# retired         why it grew no more; null for those that finished
TUNING_KIND = "tuning"
TUNING = pa.schema(
    [
        pa.field("candidate", pa.string(), nullable=False),
        pa.field("options", pa.string(), nullable=False),
        pa.field("trees", pa.uint32(), nullable=False),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("loss", pa.float64()),
        pa.field("difference", pa.float64()),
        pa.field("standard_error", pa.float64()),
        pa.field("cross_fitted", pa.float64()),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("bytes", pa.uint64(), nullable=False),
        pa.field("retired", pa.string()),
        pa.field("winner", pa.bool_(), nullable=False),
    ]
)

# The stages by which a pruned and a calibrated forest are known, and one that is shrunk by a lambda of the user's.
PRUNED = "prune"
CALIBRATED = "calibrate"
SHRUNK = "shrink"

# value          different targets of the training table, ascending
TARGET_VALUES = pa.schema([pa.field("value", pa.float64(), nullable=False)])

# node           number of a leaf in its tree; leaves come in the order of trees and nodes
# targets        places in TARGET_VALUES of the targets of its bag rows, ascending, each once
# weights        bag rows with this target, repeats and weights counted; wide weights in proportion, 2**32 together at
#                most
LEAF_TARGETS = pa.schema(
    [
        pa.field("tree", pa.uint32(), nullable=False),
        pa.field("node", pa.uint32(), nullable=False),
        pa.field("targets", pa.list_(pa.field("element", pa.uint32(), nullable=False)), nullable=False),
        pa.field("weights", pa.list_(pa.field("element", pa.uint32(), nullable=False)), nullable=False),
    ]
)

# error          share of the weight of all rows that the tree is wrong on, by the weights its bag was drawn by
# vote           the weight of the tree's vote, above 0: 1 with arc-x4, see sampling/boosting.py
BOOSTING = pa.schema(
    [
        pa.field("tree", pa.uint32(), nullable=False),
        pa.field("error", pa.float64(), nullable=False),
        pa.field("vote", pa.float64(), nullable=False),
    ]
)

# value          distinct values of the training table, ascending; both ends of the bins where max_bins capped them
# rank           average rank of its rows, from 1
RANKS = pa.schema(
    [
        pa.field("feature", pa.uint32(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("rank", pa.float64(), nullable=False),
    ]
)

# seconds        wall time of the stage
# config         TrainConfig as JSON; the other columns are versions of the software that ran
RUN = pa.schema(
    [
        pa.field("stage", pa.string(), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("threads", pa.uint32(), nullable=False),
        pa.field("bigforest", pa.string(), nullable=False),
        pa.field("python", pa.string(), nullable=False),
        pa.field("numpy", pa.string(), nullable=False),
        pa.field("numba", pa.string(), nullable=False),
        pa.field("polars", pa.string(), nullable=False),
        pa.field("config", pa.string(), nullable=False),
    ]
)

# error          share of the rows, by weight, whose vote by the first `trees` trees is wrong; null while rows is 0
# rows           rows left out of the bag of at least one of those trees
CURVE = pa.schema(
    [
        pa.field("trees", pa.uint32(), nullable=False),
        pa.field("error", pa.float64()),
        pa.field("rows", pa.uint64(), nullable=False),
    ]
)


# mse            mean squared error of these rows, by their weights; null while rows is 0
NUMBER_CURVE = pa.schema([pa.field("mse", field.type) if field.name == "error" else field for field in CURVE])

# r2, mse, mae   see metrics/numbers.py NumberMetrics, rows by their weights; null while no row is out of bag, r2 also
#                for one alone
NUMBER_METRICS = pa.schema(
    [
        pa.field("rows", pa.uint64(), nullable=False),
        pa.field("r2", pa.float64()),
        pa.field("mse", pa.float64()),
        pa.field("mae", pa.float64()),
    ]
)


# row            number of the row in the training data, from 0, as in oob_rows
# leaf           number in the tree of the leaf in which the row ends, as in NODES
VOTES = pa.schema(
    [
        pa.field("tree", pa.uint32(), nullable=False),
        pa.field("row", pa.uint64(), nullable=False),
        pa.field("leaf", pa.uint32(), nullable=False),
    ]
)


# Standard deviation of what the trees that voted on a row predict as grown; null where fewer than two did. Forests of
# before it was written lack the column.
SPREAD = "spread"


def oob_rows(label: pa.DataType, probabilities: Iterable[str]) -> pa.Schema:
    """Schema of oob/rows.parquet for a target of Arrow type `label`: that of its classes, or float64 of numbers.

    row: number of the row in the training data, from 0. prediction: null when the row is in every bag. trees: how many
    trees voted. p_<class>: mean posterior of those trees (vote "soft") or share of their votes ("hard"); null as above.
    Of numbers there is SPREAD in their place.
    """
    return pa.schema(
        [
            pa.field("row", pa.uint64(), nullable=False),
            pa.field("truth", label, nullable=False),
            pa.field("prediction", label),
            pa.field("trees", pa.uint32(), nullable=False),
            *(pa.field(name, pa.float64()) for name in probabilities),
        ]
    )


def confusion(label: pa.DataType) -> pa.Schema:
    """Schema of oob/confusion.parquet: rows of class `truth` voted to be `prediction`, where any,
    and their weight."""
    return pa.schema(
        [
            pa.field("truth", label, nullable=False),
            pa.field("prediction", label, nullable=False),
            pa.field("rows", pa.uint64(), nullable=False),
            pa.field("weight", pa.float64(), nullable=False),
        ]
    )


def metrics(label: pa.DataType) -> pa.Schema:
    """Schema of oob/metrics.parquet: see metrics/classes.py ClassMetrics, rows by their weights.

    class is null in the last row, of them all.

    Null besides: auc unless there are two classes and both have rows, and all shares while no row is out of bag.
    """
    return pa.schema(
        [
            pa.field("class", label),
            pa.field("rows", pa.uint64(), nullable=False),
            pa.field("predicted", pa.uint64(), nullable=False),
            *(pa.field(name, pa.float64()) for name in METRICS),
        ]
    )
