"""Reading the nodes of a forest. A part is untrusted until `check_nodes` has passed it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.encode.dataspec import DataSpec
from bigforest.errors import FormatError
from bigforest.forest.files import Header, check_file, read_table
from bigforest.forest.table import KINDS, NODES

_PART = re.compile(r"part-(\d{7,})\.parquet")


class Nodes(NamedTuple):
    """Consecutive trees, one after another.

    All but the first two have one entry per node, and a leaf has the value in brackets.

    first_tree  number of the first tree
    starts      int64 [trees + 1], position of each tree's root, then the number of nodes
    feature     int32 (-1), position in the dataspec
    right       uint32 (0), number of the right child within the tree
    threshold   float64 (nan)
    gain        float64 (nan)
    weight      uint64
    counts      uint32 [nodes, classes]
    """

    first_tree: int
    starts: NDArray[np.int64]
    feature: NDArray[np.int32]
    right: NDArray[np.uint32]
    threshold: NDArray[np.float64]
    gain: NDArray[np.float64]
    weight: NDArray[np.uint64]
    counts: NDArray[np.uint32]


def part_paths(directory: Path) -> list[Path]:
    """The parts of the forest `directory` in the order of their trees; FormatError if there are none."""
    if not directory.is_dir():
        raise FormatError(f"{directory} is not a forest: there is no such folder")
    found = {
        int(match[1]): path
        for path in (directory / "trees").glob("part-*.parquet")
        if (match := _PART.fullmatch(path.name))
    }
    if not found:
        raise FormatError(f"{directory} is not a forest: it has no files trees/part-*.parquet")
    return [found[first] for first in sorted(found)]


def check_parts(paths: list[Path]) -> Header:
    """Check metadata and columns of all parts and that they are of one forest; returns what they agree on."""
    header, _ = check_file(paths[0], "trees", NODES)
    for path in paths[1:]:
        check_file(path, "trees", NODES, header.identity)
    return header


def read_parts(paths: list[Path]) -> Iterator[Nodes]:
    """The checked nodes of all parts, one part at a time.

    Raises FormatError at the first part that is damaged, and after the last one unless all trees of the
    configuration were there, each once and in order.
    """
    header = check_parts(paths)
    expected = 0
    for path in paths:
        _, table = read_table(path, "trees", NODES, header.identity)
        nodes = check_nodes(table, header.spec, path)
        if nodes.first_tree != expected:
            what = "is missing" if nodes.first_tree > expected else "is there more than once"
            raise FormatError(f"{path}: tree {min(expected, nodes.first_tree)} {what}; the forest is damaged")
        expected += nodes.starts.size - 1
        yield nodes
    if expected != header.config.trees:
        raise FormatError(
            f"{paths[0].parent} holds {expected} trees and {header.config.trees} were asked for; grow the forest again"
        )


def check_nodes(table: pa.Table, spec: DataSpec, path: Path) -> Nodes:
    """The arrays of a table of schema NODES (one chunk per column), which must be whole trees in preorder.

    Raises FormatError naming `path` otherwise.
    """

    def require(sound: object, problem: str) -> None:
        if not sound:
            raise FormatError(f"{path}: {problem}; the forest is damaged")

    require(table.num_rows > 0, "there are no nodes")
    column = {name: _chunk(table, name) for name in NODES.names}
    leaf = _leaves(column["kind"], require)
    for name in ("left", "right", "feature", "threshold", "gain"):
        require(np.array_equal(_nulls(column[name]), leaf), f"{name} must be null in leaves and nowhere else")
    require(column["terms"].null_count == table.num_rows, "terms must be null in leaves and axis-aligned nodes")
    feature = _features(column["feature"], leaf, spec, require)
    starts = _starts(_numbers(column["tree"]), _numbers(column["node"]), require)
    right = _numbers(column["right"])
    _check_shape(starts, leaf, _numbers(column["left"]), right, _numbers(column["depth"]), require)
    threshold, gain = _numbers(column["threshold"]), _numbers(column["gain"])
    require(np.array_equal(np.isnan(threshold), leaf), "a threshold is not a number")
    require(np.array_equal(np.isnan(gain), leaf), "a gain is not a number")
    weight = _numbers(column["weight"])
    counts = _counts(column["counts"], weight, len(spec.target.classes), require)
    return Nodes(int(column["tree"][0].as_py()), starts, feature, right, threshold, gain, weight, counts)


def _chunk(table: pa.Table, name: str) -> Any:
    return table.column(name).chunk(0)


def _nulls(array: Any) -> NDArray[np.bool_]:
    return array.is_null().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _numbers(array: Any) -> NDArray[Any]:
    """Values as numpy; null is 0 among integers and nan among floats."""
    if array.null_count == 0:
        return array.to_numpy()  # type: ignore[no-any-return]
    filler = np.nan if pa.types.is_floating(array.type) else 0
    return array.fill_null(pa.scalar(filler, array.type)).to_numpy()  # type: ignore[no-any-return]


def _leaves(kind: Any, require: Any) -> NDArray[np.bool_]:
    names = kind.dictionary.to_pylist()
    index = kind.indices.to_numpy()
    require(
        all(names[i] in KINDS for i in np.unique(index)),
        f"a node is of a kind other than {' or '.join(KINDS)}",
    )
    is_leaf = np.array([name == "leaf" for name in names])
    return is_leaf[index]  # type: ignore[no-any-return]


def _features(column: Any, leaf: NDArray[np.bool_], spec: DataSpec, require: Any) -> NDArray[np.int32]:
    place = {feature.name: position for position, feature in enumerate(spec.features)}
    known = np.array([place.get(name, -1) for name in column.dictionary.to_pylist()] + [-1], dtype=np.int32)
    index = column.indices.fill_null(-1).to_numpy()
    feature = known[index]
    require(np.array_equal(feature < 0, leaf), "a node splits on a feature that the dataspec does not have")
    return feature  # type: ignore[no-any-return]


def _starts(tree: NDArray[np.uint32], node: NDArray[np.uint32], require: Any) -> NDArray[np.int64]:
    first = np.flatnonzero(np.concatenate([[True], tree[1:] != tree[:-1]]))
    starts = np.append(first, tree.size)
    sizes = np.diff(starts)
    numbers = tree[first].astype(np.int64)
    require((np.diff(numbers) == 1).all(), f"trees are not consecutive (they start with {numbers[:5].tolist()})")
    require(
        np.array_equal(node, np.arange(tree.size) - np.repeat(first, sizes)),
        "nodes are not numbered 0, 1, 2, ...",
    )
    return starts


def _check_shape(
    starts: NDArray[np.int64],
    leaf: NDArray[np.bool_],
    left: NDArray[np.uint32],
    right: NDArray[np.uint32],
    depth: NDArray[np.uint32],
    require: Any,
) -> None:
    """Require one tree in preorder per root.

    With children after their parent and one parent for all but the root, the nodes of a tree do form one
    tree. It is in preorder if each right child comes where the left subtree has closed: give internal nodes
    +1 and leaves -1; then the sum over all nodes before it equals that of its parent, which fixes the
    matching of parents and right children.
    """
    root = starts[:-1]
    inner = np.flatnonzero(~leaf)
    offset = np.repeat(root, np.diff(starts))[inner]
    end = np.repeat(starts[1:], np.diff(starts))[inner]
    second = right[inner].astype(np.int64) + offset
    require(np.array_equal(left[inner] + offset, inner + 1), "a left child does not follow its parent")
    require(
        ((second > inner + 1) & (second < end)).all(),
        "a right child is not after the left one within its tree",
    )
    parents = np.bincount(np.concatenate([inner + 1, second]), minlength=leaf.size + 1)
    orphan_or_root = np.ones(leaf.size, dtype=np.int64)
    orphan_or_root[root] = 0
    require(
        parents.size == leaf.size + 1 and parents[-1] == 0 and np.array_equal(parents[:-1], orphan_or_root),
        "a node has no parent or more than one",
    )
    before = np.concatenate([[0], np.cumsum(np.where(leaf, -1, 1))[:-1]])
    require(np.array_equal(before[second], before[inner]), "nodes are not in preorder")
    below = depth[inner].astype(np.int64) + 1
    require(
        (depth[root] == 0).all() and np.array_equal(depth[inner + 1], below) and np.array_equal(depth[second], below),
        "a depth is not its parent's plus one",
    )


def _counts(column: Any, weight: NDArray[np.uint64], classes: int, require: Any) -> NDArray[np.uint32]:
    lengths = np.diff(column.offsets.to_numpy())
    require((lengths == classes).all(), f"counts must hold one number for each of the {classes} classes")
    counts: NDArray[np.uint32] = column.flatten().to_numpy().reshape(-1, classes)
    sums = counts.sum(axis=1, dtype=np.uint64)
    require(np.array_equal(sums, weight) and weight.all(), "counts must add up to the weight, which is above 0")
    return counts
