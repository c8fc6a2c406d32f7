"""Untrusted nodes of a file, checked and converted to arrays that kernels may trust."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.arrow_arrays import as_numpy
from bigforest.common.errors import damaged_forest
from bigforest.forest.format.files import Header
from bigforest.forest.format.lists import check_levels, check_terms, join_fields
from bigforest.forest.format.schema import KINDS, NODE_KINDS, NODES
from bigforest.kernels.common.layout import LEAF, OBLIQUE, LevelLists, Terms
from bigforest.schema.dataspec import DataSpec

# What kernels/predict/flatten.py check_nodes finds, by its number.
PROBLEMS = (
    "",
    "a left child does not follow its parent",
    "a right child is not where the left subtree ends",
    "a depth is not that of the parent plus one",
    "a tree ends too early or too late",
    "counts do not add up to the weight, or are all 0",
    "trees are not numbered consecutively",
    "nodes are not numbered 0, 1, 2, ...",
    "what two children hold is not what their parent holds",
)


class Nodes(NamedTuple):
    """Checked nodes that follow each other, with one entry per node in all but the first two.

    tree        number of the tree of the first of them
    roots       int64, positions of the roots among them
    node        uint32, number within the tree
    feature     int32, position in the dataspec; LEAF or OBLIQUE (kernels/common/layout.py) where there is none
    right       uint32, number of the right child within the tree; anything in a leaf
    threshold   float64; anything in a leaf and on a category
    default_left  bool; anything in leaves and oblique nodes
    weight      uint64, what the rows of the bag in the node weigh
    counts      uint32, or uint64 of wide weights [nodes, classes], without classes for regression
    value       float64, finite; None where classes are predicted
    levels      what nodes on categories list; None without such nodes
    terms       the directions of oblique nodes; None without such nodes
    """

    tree: int
    roots: NDArray[np.int64]
    node: NDArray[np.uint32]
    feature: NDArray[np.int32]
    right: NDArray[np.uint32]
    threshold: NDArray[np.float64]
    default_left: NDArray[np.bool_]
    weight: NDArray[np.uint64]
    counts: NDArray[Any]
    value: NDArray[np.float64] | None = None
    levels: LevelLists | None = None
    terms: Terms | None = None

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where trees begin, and the end of the last, int64 [trees + 1]."""
        return np.append(self.roots, self.feature.size)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        lists = [field for field in (self.levels, self.terms) if field is not None]
        return sum(field.nbytes for fields in (self, *lists) for field in fields if isinstance(field, np.ndarray))


# Fields that have an entry, or a list, per node.
_OF_NODES = tuple(name for name in Nodes._fields if name not in ("tree", "roots"))


def join_nodes(pieces: Sequence[Nodes]) -> Nodes:
    """Pieces that follow each other as one."""
    sizes = [piece.node.size for piece in pieces]
    begins = np.cumsum(sizes) - sizes
    roots = np.concatenate([piece.roots + begin for piece, begin in zip(pieces, begins, strict=True)])
    return Nodes(pieces[0].tree, roots, **join_fields(pieces, sizes, _OF_NODES))


def check_batch(
    batch: Any,
    header: Header,
    path: Path,
    state: NDArray[np.int64],
    waiting: NDArray[np.uint32],
    rest: NDArray[np.uint64],
) -> Nodes:
    """The arrays of a record batch of schema NODES, which must continue where `state` stands (see check_nodes).

    Raises FormatError naming `path` otherwise.
    """
    from bigforest.kernels.predict.flatten import check_nodes

    def require(sound: object, problem: str) -> None:
        if not sound:
            raise damaged_forest(f"{path}: {problem}")

    spec = header.spec
    column = {name: batch.column(name) for name in NODES.names}
    kind = _kinds(column["kind"], require)
    leaf, category, oblique = (kind == KINDS.index(name) for name in ("leaf", "category", "oblique"))
    for kinds in dict.fromkeys(NODE_KINDS.values()):
        valid = np.array([one in kinds for one in KINDS])[kind]
        for name in (name for name, own in NODE_KINDS.items() if own == kinds):
            sound = np.array_equal(as_numpy(column[name].is_valid()), valid)
            require(sound, f"{name} must be null but in {' and '.join(kinds)} nodes")
    feature = _features(column["feature"], kind, spec, require)
    levels = check_levels(column["levels"], feature, header, require) if category.any() else None
    terms = check_terms(column["terms"], spec, require) if oblique.any() else None
    threshold = _numbers(column["threshold"])
    require(not np.isnan(threshold)[~leaf & ~category].any(), "a threshold is not a number")
    require(not np.isnan(_numbers(column["gain"]))[~leaf].any(), "a gain is not a number")
    default_left = as_numpy(column["default_left"], False)
    counts, value = _answers(column["counts"], column["value"], spec, require)
    numbers = {name: _numbers(column[name]) for name in ("tree", "node", "left", "right", "depth", "weight")}
    tree, node, left, right, depth, weight = numbers.values()
    found = check_nodes(state, tree, node, leaf, left, right, depth, weight, counts, waiting, rest)
    require(found == 0, PROBLEMS[found])
    roots = np.flatnonzero(node == 0)
    shared = (node, feature, right, threshold, default_left, weight, counts, value, levels, terms)
    return Nodes(int(tree[0]), roots, *shared)


def _numbers(array: Any) -> NDArray[Any]:
    """Values as numpy; where null, anything."""
    if array.null_count == 0:
        return as_numpy(array)
    values = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
    return values[array.offset : array.offset + len(array)]


def _kinds(kind: Any, require: Any) -> NDArray[np.int8]:
    """The kind of each node, as its place in KINDS."""
    names = kind.dictionary.to_pylist()
    index = as_numpy(kind.indices)
    require(
        all(names[i] in KINDS for i in np.unique(index)),
        f"a node is of a kind other than {' or '.join(KINDS)}",
    )
    return np.array([KINDS.index(name) if name in KINDS else 0 for name in names], np.int8)[index]


def _features(column: Any, kind: NDArray[np.int8], spec: DataSpec, require: Any) -> NDArray[np.int32]:
    """The position of the feature of each node; LEAF or OBLIQUE where there is none."""
    category, oblique = kind == KINDS.index("category"), kind == KINDS.index("oblique")
    place = {feature.name: position for position, feature in enumerate(spec.features)}
    known = np.array([place.get(name, LEAF) for name in column.dictionary.to_pylist()] + [LEAF], dtype=np.int32)
    index = as_numpy(column.indices, -1)
    feature = known[index]
    without = oblique | (kind == KINDS.index("leaf"))
    require(np.array_equal(feature == LEAF, without), "a node splits on a feature that the dataspec does not have")
    of_category = np.array([own.splits_on_levels for own in spec.features] + [False])  # the last is that of LEAF
    require(np.array_equal(of_category[feature], category), "a node is of another kind than the feature it splits on")
    feature[oblique] = OBLIQUE
    return feature


def _answers(counts: Any, value: Any, spec: DataSpec, require: Any) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    """Counts of classes, or values and no counts."""
    if spec.target.is_regression:
        require(counts.null_count == len(counts), "counts must be null where numbers are predicted")
        require(value.null_count == 0, "a node has no value")
        values = _numbers(value)
        require(np.isfinite(values).all(), "a value is not finite")
        return np.zeros((len(values), 0), np.uint32), values
    classes = len(spec.target.classes)
    require(value.null_count == len(value), "value must be null where classes are predicted")
    require(counts.null_count == 0, "a node has no counts")
    lengths = np.diff(as_numpy(counts.offsets))
    require((lengths == classes).all(), f"counts must hold one number for each of the {classes} classes")
    return as_numpy(counts.flatten()).reshape(-1, classes), None
