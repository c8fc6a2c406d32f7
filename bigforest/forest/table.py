"""The forest as a table. This module *is* the description of the files of a forest directory, format version 2.

    trees/part-NNNNNNN.parquet  NODES: a row per node, trees and nodes ascending; NNNNNNN is the part's first tree
    features.parquet            FEATURES: a row per feature, in the order of the training table
    levels.parquet              bigforest/levels.py LEVELS: a row per level; only of forests with categories
    ranks.parquet               RANKS: a row per distinct value of a feature; only of forests grown on ranks
    run.parquet                 RUN: a row per stage of the run that grew the forest
    oob/rows.parquet            oob_rows(...): a row per training row
    oob/curve.parquet           CURVE: a row per tree; NUMBER_CURVE where numbers are predicted
    oob/confusion.parquet       confusion(...): a row per pair of true and predicted class that occurs; only of classes
    oob/metrics.parquet         metrics(...): a row per class, and one for all; NUMBER_METRICS: one of numbers

A forest grown without bootstrap has no folder oob. Every file carries its version, its kind, the dataspec and the
configuration in its Parquet schema metadata: see files.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.encode.dataspec import DataSpec
from bigforest.forest.files import write_tables
from bigforest.forest.levels import levels_column
from bigforest.forest.lists import cut_lists, join_lists
from bigforest.forest.terms import terms_column
from bigforest.kernels.layout import LEAF, OBLIQUE, LevelLists, Terms
from bigforest.levels import Levels

T = TypeVar("T")

KINDS = ("leaf", "axis", "category", "oblique")

METRICS = ("precision", "recall", "f1", "log_loss", "brier", "auc")

# Nodes that fill a row group, and terms and levels in them: what is written and read at a time. A node is in one.
GROUP_NODES = 1 << 18
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
# weight         rows of the bag in the node, repeats counted
# counts         the same by class, in the order of the dataspec's classes; null where numbers are predicted
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

# codes          number of distinct values (of codes, where max_bins capped them) in the training table
# importance     share of the feature in all decrease of impurity: the sum of gain * weight over the nodes that split on
#                it, over the same sum for all nodes; all 0 when no split decreased anything
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

# The stages by which a pruned and a calibrated forest are known.
PRUNED = "prune"
CALIBRATED = "calibrate"

# value          different targets of the training table, ascending
TARGET_VALUES = pa.schema([pa.field("value", pa.float64(), nullable=False)])

# node           number of a leaf in its tree; leaves come in the order of trees and nodes
# targets        places in TARGET_VALUES of the targets of its bag rows, ascending, each once
# weights        bag rows with this target, repeats and weights counted
LEAF_TARGETS = pa.schema(
    [
        pa.field("tree", pa.uint32(), nullable=False),
        pa.field("node", pa.uint32(), nullable=False),
        pa.field("targets", pa.list_(pa.field("element", pa.uint32(), nullable=False)), nullable=False),
        pa.field("weights", pa.list_(pa.field("element", pa.uint32(), nullable=False)), nullable=False),
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

# error          share of the rows whose vote by the first `trees` trees is wrong; null while rows is 0
# rows           rows left out of the bag of at least one of those trees
CURVE = pa.schema(
    [
        pa.field("trees", pa.uint32(), nullable=False),
        pa.field("error", pa.float64()),
        pa.field("rows", pa.uint64(), nullable=False),
    ]
)


# mse            mean squared error of these rows; null while rows is 0
NUMBER_CURVE = pa.schema([pa.field("mse", field.type) if field.name == "error" else field for field in CURVE])

# r2, mse, mae   see metrics/numbers.py NumberMetrics; null while no row is out of bag, r2 also for one alone
NUMBER_METRICS = pa.schema(
    [
        pa.field("rows", pa.uint64(), nullable=False),
        pa.field("r2", pa.float64()),
        pa.field("mse", pa.float64()),
        pa.field("mae", pa.float64()),
    ]
)


def oob_rows(label: pa.DataType, probabilities: Iterable[str]) -> pa.Schema:
    """Schema of oob/rows.parquet for a target of Arrow type `label`: that of its classes, or float64 of numbers.

    row: number of the row in the training data, from 0. prediction: null when the row is in every bag. trees: how many
    trees voted. p_<class>: mean posterior of those trees (vote "soft") or share of their votes ("hard"); null as above.
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
    """Schema of oob/confusion.parquet: rows of class `truth` voted to be `prediction`, where any."""
    return pa.schema(
        [
            pa.field("truth", label, nullable=False),
            pa.field("prediction", label, nullable=False),
            pa.field("rows", pa.uint64(), nullable=False),
        ]
    )


def metrics(label: pa.DataType) -> pa.Schema:
    """Schema of oob/metrics.parquet: see metrics/classes.py ClassMetrics; class is null in the last row, of them all.

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


class TreeArrays(NamedTuple):
    """One tree in preorder; all arrays have one entry per node, and a leaf has the value in brackets.

    feature       int32 (LEAF), position in the dataspec; OBLIQUE where the terms say it
    left          uint32 (0), always the node's own number + 1
    right         uint32 (0)
    depth         uint32
    threshold     float64 (nan), nan on a category
    default_left  bool (False), False in oblique nodes
    gain          float64 (nan)
    weight        uint64
    counts        uint32 [nodes, classes], without classes where numbers are predicted
    value         float64, mean of the target; None where classes are predicted
    levels        what nodes on categories list; None when there are none
    terms         the directions of oblique nodes; None when there are none
    """

    feature: NDArray[np.int32]
    left: NDArray[np.uint32]
    right: NDArray[np.uint32]
    depth: NDArray[np.uint32]
    threshold: NDArray[np.float64]
    default_left: NDArray[np.bool_]
    gain: NDArray[np.float64]
    weight: NDArray[np.uint64]
    counts: NDArray[np.uint32]
    value: NDArray[np.float64] | None = None
    levels: LevelLists | None = None
    terms: Terms | None = None

    @property
    def entries(self) -> NDArray[np.int64]:
        """Where the terms and levels of each node begin if they are put in one row, and the last ones end."""
        starts = [lists.start for lists in (self.levels, self.terms) if lists is not None]
        return sum(starts, np.zeros(self.feature.size + 1, np.int64))

    def rows(self, begin: int, end: int) -> TreeArrays:
        """Nodes from `begin` to before `end`."""
        value = None if self.value is None else self.value[begin:end]
        levels = None if self.levels is None else cut_lists(self.levels, begin, end)
        terms = None if self.terms is None else cut_lists(self.terms, begin, end)
        return TreeArrays._make([*(array[begin:end] for array in self[:-3]), value, levels, terms])


def join_trees(trees: Sequence[TreeArrays]) -> TreeArrays:
    """The nodes of all, one after the other, as if they were one tree."""
    if len(trees) == 1:
        return trees[0]
    sizes = [tree.feature.size for tree in trees]
    values = [tree.value for tree in trees if tree.value is not None]
    columns = map(np.concatenate, zip(*(tree[:-3] for tree in trees), strict=True))
    levels, terms = (
        join_lists([tree.levels for tree in trees], sizes),
        join_lists([tree.terms for tree in trees], sizes),
    )
    return TreeArrays._make([*columns, np.concatenate(values) if values else None, levels, terms])


def part_path(directory: Path, first_tree: int) -> Path:
    """Name of the part that starts with `first_tree` in the forest `directory`; names sort like trees."""
    return directory / "trees" / f"part-{first_tree:07d}.parquet"


def write_part(
    directory: Path,
    first_tree: int,
    trees: Iterable[Iterable[TreeArrays]],
    spec: DataSpec,
    config: TrainConfig,
    levels: Levels | None = None,
) -> Path:
    """Write trees `first_tree`, `first_tree` + 1, ... as one part of the forest `directory`; returns its path.

    levels  of the categories; None where there are none.

    Each tree comes in one or more pieces of consecutive nodes, whose left and right are numbers within the tree.
    Memory: two pieces, and a row group. May be called from any thread; writing the same part again replaces it.
    """
    groups = row_groups(_numbered(first_tree, trees))
    tables = (nodes_table([piece.rows(begin, end) for piece, begin, end in group], spec, levels) for group in groups)
    path = part_path(directory, first_tree)
    write_tables(NODES, tables, path, "trees", spec, config)
    return path


class Piece(NamedTuple):
    """Consecutive nodes of one tree, from number `first` on."""

    tree: int
    first: int
    nodes: TreeArrays

    def rows(self, begin: int, end: int) -> Piece:
        """Nodes from `begin` to before `end` of the piece."""
        return Piece(self.tree, self.first + begin, self.nodes.rows(begin, end))


def _numbered(first_tree: int, trees: Iterable[Iterable[TreeArrays]]) -> Iterator[tuple[Piece, NDArray[np.int64]]]:
    """The nodes of all trees and where their entries begin, as `row_groups` takes them."""
    for tree, pieces in enumerate(trees, first_tree):
        number = 0
        for nodes in pieces:
            yield Piece(tree, number, nodes), nodes.entries
            number += nodes.feature.size


def row_groups(pieces: Iterable[tuple[T, NDArray[np.int64]]]) -> Iterator[list[tuple[T, int, int]]]:
    """Consecutive nodes cut into row groups, as large as GROUP_NODES and GROUP_ENTRIES allow, however they come in.

    pieces  some nodes, and where the entries of each begin, [nodes + 1]. A group is a list of pieces, and which nodes
            of them.
    """
    waiting: list[tuple[T, int, int]] = []
    nodes, entries = GROUP_NODES, GROUP_ENTRIES
    for piece, start in pieces:
        begin, size = 0, start.size - 1
        while begin < size:
            end = min(size, begin + nodes, int(start.searchsorted(int(start[begin]) + entries, side="right")) - 1)
            if end <= begin and waiting:
                yield waiting
                waiting, nodes, entries = [], GROUP_NODES, GROUP_ENTRIES
                continue
            end = max(end, begin + 1)
            waiting.append((piece, begin, end))
            nodes -= end - begin
            entries -= int(start[end] - start[begin])
            begin = end
    if waiting:
        yield waiting


def nodes_table(pieces: list[Piece], spec: DataSpec, levels: Levels | None) -> pa.Table:
    """The pieces as a table of schema NODES; `levels` are those of the categories."""
    names = [feature.name for feature in spec.features]
    sizes = [piece.nodes.feature.size for piece in pieces]
    joined = join_trees([piece.nodes for piece in pieces])
    leaf, oblique = joined.feature == LEAF, joined.feature == OBLIQUE
    category = np.zeros(leaf.size, np.bool_) if joined.levels is None else np.diff(joined.levels.start) > 0
    kind = np.select([leaf, oblique, category], [0, 3, 2], 1).astype(np.int8)
    numbers = [np.arange(piece.first, piece.first + size) for piece, size in zip(pieces, sizes, strict=True)]
    columns = {
        "tree": pa.array(np.repeat(np.array([piece.tree for piece in pieces], np.uint32), sizes)),
        "node": pa.array(np.concatenate(numbers).astype(np.uint32)),
        "left": pa.array(joined.left, mask=leaf),
        "right": pa.array(joined.right, mask=leaf),
        "depth": pa.array(joined.depth),
        "kind": pa.DictionaryArray.from_arrays(pa.array(kind), pa.array(KINDS)),
        "feature": pa.DictionaryArray.from_arrays(
            pa.array(joined.feature, mask=joined.feature < 0), pa.array(names, pa.string())
        ),
        "threshold": pa.array(joined.threshold, mask=leaf | category),
        "default_left": pa.array(joined.default_left, mask=leaf | oblique),
        "levels": levels_column(joined.levels, joined.feature, levels, spec, NODES.field("levels").type),
        "terms": terms_column(joined.terms, leaf.size, names, NODES.field("terms").type),
        "gain": pa.array(joined.gain, mask=leaf),
        "weight": pa.array(joined.weight),
        "counts": _counts_column(joined.counts),
        "value": pa.nulls(leaf.size, pa.float64()) if joined.value is None else pa.array(joined.value),
    }
    return pa.Table.from_arrays([columns[name] for name in NODES.names], schema=NODES)


def _counts_column(counts: NDArray[np.uint32]) -> Any:
    """The column `counts`; null where there are no classes."""
    nodes, classes = counts.shape
    kind = NODES.field("counts").type
    if not classes:
        return pa.nulls(nodes, kind)
    start = pa.array(np.arange(nodes + 1, dtype=np.int64) * classes, pa.int32())
    return pa.ListArray.from_arrays(start, pa.array(counts.reshape(-1)), type=kind)
