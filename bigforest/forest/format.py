"""The forest as a table. This module *is* the description of the files of a forest directory, format version 3.

FILES has the columns of each file. Writing, checks and documentation (docs/reference/files.md) follow from it.
The functions of files.py write, check and read a file by its FileFormat. forest_files.py has a drawing of the
directory. The version, the kind, the dataspec and the configuration are in the Parquet metadata of every file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from bigforest.columns.arrow_arrays import Column, arrow_table, file_schema
from bigforest.columns.dataspec import DataSpec, TargetSpec
from bigforest.columns.labels import proba_names, stored_labels
from bigforest.store.levels import LEVEL_COLUMNS, LEVELS, LEVELS_WITH_VALUES, VALUE_COLUMN

KINDS = ("leaf", "axis", "category", "oblique")

POISSON = "poisson_deviance"
METRICS = ("precision", "recall", "f1", "log_loss", "brier", "auc")

# Most nodes of a row group, and most terms and levels of its nodes, unless a single node has more. A row group is
# written in one piece.
GROUP_NODES = 1 << 17
GROUP_ENTRIES = 1 << 21

# Columns that only nodes of some kinds fill; they are null in other nodes. A row goes left in an axis node if its value
# is at most the threshold, in an oblique node if its projection is (NaN goes right), in a category node by its level. A
# projection is the sum of weight * value in the order of the terms, in float64.
_SPLITS = ("axis", "category", "oblique")
NODE_KINDS: dict[str, tuple[str, ...]] = {
    "left": _SPLITS,
    "right": _SPLITS,
    "feature": ("axis", "category"),
    "threshold": ("axis", "oblique"),
    "default_left": ("axis", "category"),
    "levels": ("category",),
    "terms": ("oblique",),
    "gain": _SPLITS,
}

_TREE = Column("tree", pa.uint32(), "number of the tree, from 0")
_ROW = Column("row", pa.uint64(), "number of the row in the training data, from 0")
_FEATURE = Column("feature", pa.uint32(), "position among the features of training")
_TREES = Column("trees", pa.uint32(), "number of trees, counted from the first")
_REACHED = Column("rows", pa.uint64(), "rows that are out of bag for at least one of these trees")
_OUT_OF_BAG = Column("rows", pa.uint64(), "rows that are out of bag for at least one tree")

# Placeholder for the type of the labels, which `oob_formats` fills in. No column is binary otherwise.
LABEL = pa.binary()
SPREAD = "spread"


def _counts(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


_NODES = (
    _TREE,
    Column("node", pa.uint32(), "number of the node in preorder within its tree; the root is 0"),
    Column("left", pa.uint32(), "node number of the left child, always `node` + 1; null in a leaf", null=True),
    Column("right", pa.uint32(), "node number of the right child; null in a leaf", null=True),
    Column("depth", pa.uint32(), "level; the root has 0"),
    Column("kind", pa.dictionary(pa.int8(), pa.string()), "`leaf`, `axis`, `category` or `oblique`"),
    Column(
        "feature",
        pa.dictionary(pa.int32(), pa.string()),
        "name of the feature; null except in axis and category nodes",
        null=True,
    ),
    Column(
        "threshold",
        pa.float64(),
        "a row goes left if its value, or its projection, is at most this; infinite if all values go left; "
        "null except in axis and oblique nodes",
        null=True,
    ),
    Column(
        "default_left",
        pa.bool_(),
        "axis nodes: whether rows with a missing value go left; category nodes: whether rows go left whose level (or "
        "missing value) is not in `levels`, such as levels that did not occur in training; null in other nodes",
        null=True,
    ),
    Column(
        "levels",
        pa.list_(pa.string()),
        "category nodes: rows of these levels go right if `default_left`, otherwise left; ascending, null means "
        "missing and comes first; null in other nodes",
        null=True,
    ),
    Column(
        "terms",
        pa.list_(pa.struct([("feature", pa.string()), ("weight", pa.float64())])),
        "the projection of an oblique node: weights are finite and not 0, features in the order of training, each "
        "once; null in other nodes",
        null=True,
    ),
    Column(
        "gain",
        pa.float64(),
        "decrease of impurity: the impurity of the node minus the mean impurity of its children, weighted by bag rows; "
        "null in a leaf",
        null=True,
    ),
    Column(
        "weight",
        pa.uint64(),
        "bag rows in the node, with repeats; if rows have weights, the sum of their weights in steps (`spec`)",
    ),
    Column(
        "counts",
        _counts(pa.uint32()),
        "`weight` by class, in the order of the classes in `spec`, list of uint64 for wide weights; null for "
        "regression",
        null=True,
    ),
    Column(
        "value",
        pa.float64(),
        "mean of the target, weighted by bag rows; null for classification",
        null=True,
    ),
)

FILES: dict[str, tuple[Column, ...]] = {
    "trees/part-NNNNNNN.parquet": _NODES,
    "features.parquet": (
        _FEATURE,
        Column("name", pa.string(), "name of the column"),
        Column("kind", pa.string(), "`numeric` or `category`"),
        Column("dtype", pa.string(), "Polars type in the training table"),
        Column("codes", pa.uint64(), "number of distinct values, or of bins if limited by `max_bins`"),
        Column(
            "importance",
            pa.float64(),
            "share of the feature in the total decrease of impurity, nodes weighted by bag rows; the features of an "
            "oblique node share equally; 0 for all features if no split decreased the impurity",
        ),
    ),
    "levels.parquet": (*LEVEL_COLUMNS, VALUE_COLUMN),
    "ranks.parquet": (
        _FEATURE,
        Column("value", pa.float64(), "value in the training table, ascending within a feature"),
        Column("rank", pa.float64(), "average rank of its rows, from 1"),
    ),
    "boosting.parquet": (
        _TREE,
        Column(
            "error",
            pa.float64(),
            "weighted error of the tree: weight of the wrongly predicted rows as a share of the weight of all rows, by "
            "the weights from which its bag was drawn",
        ),
        Column("vote", pa.float64(), "weight of the tree's vote, above 0; 1 with `arc-x4`"),
    ),
    "refine/trees.parquet": (
        Column("sequence", pa.uint32(), "number of the sequence, from 0"),
        Column("round", pa.uint32(), "number of the tree in its sequence, from 0"),
        *(column for column in _NODES if column.name not in ("tree", "terms", "weight", "counts", "value")),
        Column("weight", pa.uint64(), "rows of the sequence in the node"),
        Column(
            "values",
            _counts(pa.float64()),
            "what a leaf adds to the scores of its rows, on the scale of the link: the number itself, its logarithm "
            "(impurity poisson), the log odds of the second of two classes, or the log probability of each class; "
            "inner nodes have what a leaf in their place would add",
        ),
    ),
    "run.parquet": (
        Column(
            "stage",
            pa.string(),
            "in training `encode`, `compile` (kernels, or reading them from the cache), `choose` (trial trees), "
            "`grow`, `oob`, `refine` (the boosted stage), `targets`, `validate`; later `merge`, `prune`, `calibrate`, "
            "`shrink`, `sharpen`, `unrefine`",
        ),
        Column("seconds", pa.float64(), "wall time"),
        Column("threads", pa.uint32(), "worker threads"),
        *(Column(name, pa.string(), "version") for name in ("bigforest", "python", "numpy", "numba", "polars")),
        Column("config", pa.string(), "the options as JSON"),
    ),
    "oob/rows.parquet": (
        _ROW,
        Column("truth", LABEL, "label of the row"),
        Column(
            "prediction",
            LABEL,
            "class predicted by the out-of-bag trees of the row, corrected by a boosted stage if there is one; null if "
            "no tree leaves the row out",
            null=True,
        ),
        Column("trees", pa.uint32(), "number of the out-of-bag trees of the row"),
        Column(
            "p_<class>",
            pa.float64(),
            "probability of the class: its mean share in these trees (vote soft) or its share of their votes (hard), "
            "raised to the power of the forest and scaled to the sum 1, then corrected by a boosted stage if there is "
            "one; null if no tree leaves the row out",
            null=True,
        ),
    ),
    "oob/rows.parquet for regression": (
        _ROW,
        Column("truth", pa.float64(), "regression target of the row"),
        Column(
            "prediction",
            pa.float64(),
            "mean prediction of the out-of-bag trees of the row, corrected by a boosted stage if there is one; null if "
            "no tree leaves the row out",
            null=True,
        ),
        Column("trees", pa.uint32(), "number of the out-of-bag trees of the row"),
        Column(
            SPREAD,
            pa.float64(),
            "standard deviation of the predictions of these trees with unshrunk leaves; null if there are fewer than "
            "two. Missing in older forests",
            null=True,
            later=True,
        ),
    ),
    "oob/curve.parquet": (
        _TREES,
        Column(
            "error",
            pa.float64(),
            "weighted share of rows with a wrong out-of-bag prediction by these trees, without a boosted stage; null "
            "while `rows` is 0",
            null=True,
        ),
        _REACHED,
    ),
    "oob/curve.parquet for regression": (
        _TREES,
        Column(
            "mse",
            pa.float64(),
            "weighted mean squared error, without a boosted stage; null while `rows` is 0. With the impurity poisson "
            f"the column is `{POISSON}`, the weighted mean Poisson deviance, with predictions raised to at least "
            "2**-52 times the largest target",
            null=True,
        ),
        _REACHED,
    ),
    "oob/confusion.parquet": (
        Column("truth", LABEL, "class of the rows"),
        Column("prediction", LABEL, "predicted class"),
        Column("rows", pa.uint64(), "number of rows"),
        Column("weight", pa.float64(), "sum of their weights"),
    ),
    "oob/metrics.parquet": (
        Column("class", LABEL, "the class; null in the last row", null=True),
        _OUT_OF_BAG._replace(meaning="rows of the class that are out of bag for at least one tree"),
        Column("predicted", pa.uint64(), "rows predicted to be of the class"),
        Column(
            "precision",
            pa.float64(),
            "0 in the case of division by 0; in the last row the mean over the classes that are the truth or the "
            "prediction of a row (macro)",
            null=True,
        ),
        Column("recall", pa.float64(), "likewise", null=True),
        Column("f1", pa.float64(), "likewise", null=True),
        Column("log_loss", pa.float64(), "mean of -ln p(truth), p clipped to [eps, 1 - eps]", null=True),
        Column(
            "brier",
            pa.float64(),
            "mean squared error of p; in the last row the sum over the classes, halved for two classes",
            null=True,
        ),
        Column(
            "auc",
            pa.float64(),
            "area under the ROC curve of the class against the rest, in the last row their mean (macro); null if "
            "there are more than 100 classes",
            null=True,
        ),
    ),
    "oob/metrics.parquet for regression": (
        _OUT_OF_BAG,
        Column(
            "r2",
            pa.float64(),
            "share of the variance explained, by scikit-learn's definition, with the weights of the rows",
            null=True,
        ),
        Column("mse", pa.float64(), "mean squared error", null=True),
        Column("mae", pa.float64(), "mean absolute error", null=True),
        Column(
            POISSON,
            pa.float64(),
            "mean Poisson deviance, by scikit-learn's definition; null if a prediction is not above 0. Only with the "
            "impurity poisson",
            null=True,
        ),
    ),
    "oob/votes/part-NNNNNNN.parquet": (
        _TREE,
        _ROW,
        Column("leaf", pa.uint32(), "number of the row's leaf in the tree: `node` of `trees/`"),
    ),
    "validation/curve.parquet": (
        _TREES,
        Column("error", pa.float64(), "share of rows that these trees predict wrongly or reject"),
        Column("rejected", pa.uint64(), "rows that they reject because classes have equal votes"),
        Column("rows", pa.uint64(), "rows that have a label"),
    ),
    "tuning/candidates.parquet": (
        Column("candidate", pa.string(), "name of the candidate"),
        Column("options", pa.string(), "its own training options, as a JSON object"),
        Column("trees", pa.uint32(), "number of trees in its last round"),
        Column("metric", pa.string(), "the loss"),
        Column(
            "loss",
            pa.float64(),
            "out-of-bag loss after its last round; this and the next two columns are null for a candidate that could "
            "not be trained",
            null=True,
        ),
        Column("difference", pa.float64(), "its loss minus the lowest loss of the same round", null=True),
        Column("standard_error", pa.float64(), "standard error of the difference, paired by row", null=True),
        Column(
            "cross_fitted",
            pa.float64(),
            "for the winner, the cross-fitted loss: each half of the rows with the candidate selected on the other "
            "half; null for other candidates",
            null=True,
        ),
        Column("seconds", pa.float64(), "training time"),
        Column("bytes", pa.uint64(), "size of its trees"),
        Column("retired", pa.string(), "reason why it was retired; null for candidates that finished", null=True),
        Column("winner", pa.bool_(), "whether it is this forest"),
    ),
    "targets/values.parquet": (Column("value", pa.float64(), "distinct training targets, ascending"),),
    "targets/part-NNNNNNN.parquet": (
        _TREE,
        Column("node", pa.uint32(), "number of the leaf"),
        Column(
            "targets",
            _counts(pa.uint32()),
            "targets of its bag rows, as row numbers of `values.parquet` from 0, ascending, each once",
        ),
        Column(
            "weights",
            _counts(pa.uint32()),
            "number of bag rows with each target, with repeats and weights; scaled down in a leaf where the total "
            "would reach 2**32",
        ),
    ),
}

# Columns that files of older forests may lack.
LATER = frozenset(column.name for columns in FILES.values() for column in columns if column.later)


class FileFormat(NamedTuple):
    """A file of a forest, or all of its files part-NNNNNNN.parquet in a folder.

    name     path below the directory of the forest.
    kind     text `kind` in the metadata of the file.
    columns  schema of the file.
    """

    name: str
    kind: str
    columns: pa.Schema

    def at(self, directory: Path) -> Path:
        """Return the path of the file in the directory of a forest."""
        return directory / self.name

    def part(self, directory: Path, first_tree: int) -> Path:
        """Return the path of the file part-NNNNNNN.parquet that begins with tree `first_tree`."""
        return directory / self.name.replace("NNNNNNN", f"{first_tree:07d}")

    def table(self, columns: dict[str, Any]) -> pa.Table:
        return arrow_table(columns, self.columns)


def _format(name: str, kind: str) -> FileFormat:
    return FileFormat(name, kind, file_schema(FILES[name]))


FEATURES = _format("features.parquet", "features")
RANKS = _format("ranks.parquet", "ranks")
BOOSTING = _format("boosting.parquet", "boosting")
REFINEMENT = _format("refine/trees.parquet", "refine-trees")
RUN = _format("run.parquet", "run")
VOTES = _format("oob/votes/part-NNNNNNN.parquet", "oob-votes")
VALIDATION = _format("validation/curve.parquet", "validation-curve")
TUNING = _format("tuning/candidates.parquet", "tuning")
TARGET_VALUES = _format("targets/values.parquet", "target-values")
LEAF_TARGETS = _format("targets/part-NNNNNNN.parquet", "targets")
TREES = _format("trees/part-NNNNNNN.parquet", "trees")
NODES = TREES.columns

# Stages in run.parquet that mark a changed forest: pruned, calibrated, with a lambda or a power that the user chose,
# and without its boosted stage.
PRUNED = "prune"
CALIBRATED = "calibrate"
SHRUNK = "shrink"
SHARPENED = "sharpen"
UNREFINED = "unrefine"


def trees_format(spec: DataSpec) -> FileFormat:
    """Return the format of tree files, with the columns NODES. Counts have 64 bits if the table has wide weights."""
    if not spec.wide_weights:
        return TREES
    counts = pa.field("counts", _counts(pa.uint64()))
    return TREES._replace(columns=NODES.set(NODES.get_field_index("counts"), counts))


def levels_format(spec: DataSpec) -> FileFormat:
    """Return the format of the levels of categories. It has a column of values if trees split on values of levels."""
    has_values = any(feature.has_level_values for feature in spec.features)
    return FileFormat("levels.parquet", "levels", LEVELS_WITH_VALUES if has_values else LEVELS)


def oob_formats(target: TargetSpec, impurity: str) -> dict[str, FileFormat]:
    """Return the formats of the out-of-bag report, by name: rows, curve, metrics and, for classes, confusion.

    impurity  impurity by which the forest was grown

    The fields of the metrics are described in metrics/classes.py ClassMetrics and metrics/numbers.py NumberMetrics. The
    area of a class is also null if all rows or none are of this class. All metrics are null if no row is out of bag.
    """
    files: dict[str, Iterable[Column]]
    if target.is_regression:
        poisson = impurity == "poisson"
        loss = POISSON if poisson else "mse"
        curve, metrics = FILES["oob/curve.parquet for regression"], FILES["oob/metrics.parquet for regression"]
        files = {
            "rows": FILES["oob/rows.parquet for regression"],
            "curve": [column._replace(name=loss) if column.name == "mse" else column for column in curve],
            "metrics": [column for column in metrics if poisson or column.name != POISSON],
        }
    else:
        *columns, share = FILES["oob/rows.parquet"]
        files = {"rows": [*columns, *(share._replace(name=name) for name in proba_names(target))]}
        files |= {name: FILES[f"oob/{name}.parquet"] for name in ("curve", "metrics", "confusion")}
    label = stored_labels(target).type
    schemas = {
        name: file_schema(column._replace(type=label) if column.type == LABEL else column for column in columns)
        for name, columns in files.items()
    }
    return {name: FileFormat(f"oob/{name}.parquet", f"oob-{name}", schema) for name, schema in schemas.items()}
