"""Reading the nodes of a forest. A part is untrusted until `check_nodes` has passed it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigforest.encode.dataspec import DataSpec
from bigforest.errors import FormatError
from bigforest.forest.files import Header, check_file, read_table
from bigforest.forest.table import KINDS, NODES
from bigforest.forest.terms import check_terms
from bigforest.kernels.layout import LEAF, OBLIQUE, Terms

_PART = re.compile(r"part-(\d{7,})\.parquet")


class Nodes(NamedTuple):
    """Consecutive trees, one after another; all but the first two have one entry per node.

    first_tree  number of the first tree
    starts      int64 [trees + 1], position of each tree's root, then the number of nodes
    feature     int32, position in the dataspec; LEAF or OBLIQUE (kernels/layout.py) where there is none
    right       uint32, number of the right child within the tree; anything in a leaf
    threshold   float64; anything in a leaf
    counts      uint32 [nodes, classes]
    terms       the directions of oblique nodes; None when there are none
    """

    first_tree: int
    starts: NDArray[np.int64]
    feature: NDArray[np.int32]
    right: NDArray[np.uint32]
    threshold: NDArray[np.float64]
    counts: NDArray[np.uint32]
    terms: Terms | None = None


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


def node_count(path: Path) -> int:
    """Rows that a part says it has. Raises FormatError when it is not a readable Parquet file."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{path} is not a readable Parquet file ({error}); the forest is damaged") from error


def read_parts(paths: list[Path], header: Header, first_tree: int, workers: int) -> list[Nodes]:
    """The checked nodes of parts that must hold consecutive trees from `first_tree` on, read by `workers` threads.

    Raises FormatError for a part that is damaged, and for trees that are missing or there more than once.
    """
    from bigforest.schedule.tasks import run

    found: dict[int, Nodes] = {}
    if workers == 1 or len(paths) == 1:
        found = {index: _read_part(path, header) for index, path in enumerate(paths)}
    else:
        run(_read_part, [(path, header) for path in paths], workers=workers, on_result=found.__setitem__)
    expected = first_tree
    for index, path in enumerate(paths):
        nodes = found[index]
        if nodes.first_tree != expected:
            what = "is missing" if nodes.first_tree > expected else "is there more than once"
            raise FormatError(f"{path}: tree {min(expected, nodes.first_tree)} {what}; the forest is damaged")
        expected += nodes.starts.size - 1
    return [found[index] for index in range(len(paths))]


def check_count(directory: Path, trees: int, header: Header) -> None:
    """Raise FormatError unless the `trees` found are those the configuration asked for."""
    if trees != header.config.trees:
        raise FormatError(
            f"{directory} holds {trees} trees and {header.config.trees} were asked for; grow the forest again"
        )


def _read_part(path: Path, header: Header) -> Nodes:
    return check_nodes(read_table(path, "trees", NODES, header.identity)[1], header.spec, path)


def check_nodes(table: pa.Table, spec: DataSpec, path: Path) -> Nodes:
    """The arrays of a table of schema NODES (one chunk per column), which must be whole trees in preorder.

    Raises FormatError naming `path` otherwise.
    """
    from bigforest.kernels.packing import check_trees

    def require(sound: object, problem: str) -> None:
        if not sound:
            raise FormatError(f"{path}: {problem}; the forest is damaged")

    require(table.num_rows > 0, "there are no nodes")
    column = {name: _chunk(table, name) for name in NODES.names}
    leaf, oblique = (_of_kind(column["kind"], name, require) for name in ("leaf", "oblique"))
    for name in ("left", "right", "threshold", "gain"):
        require(np.array_equal(_nulls(column[name]), leaf), f"{name} must be null in leaves and nowhere else")
    require(np.array_equal(_nulls(column["feature"]), leaf | oblique), "feature must be null but in axis nodes")
    require(np.array_equal(_nulls(column["terms"]), ~oblique), "terms must be null but in oblique nodes")
    feature = _features(column["feature"], leaf, oblique, spec, require)
    terms = check_terms(column["terms"], spec, require) if oblique.any() else None
    starts = _starts(_numbers(column["tree"]), _numbers(column["node"]), require)
    right = _numbers(column["right"])
    threshold = _numbers(column["threshold"])
    require(not np.isnan(threshold)[~leaf].any(), "a threshold is not a number")
    require(not np.isnan(_numbers(column["gain"]))[~leaf].any(), "a gain is not a number")
    counts = _counts(column["counts"], len(spec.target.classes), require)
    left, depth, weight = (_numbers(column[name]) for name in ("left", "depth", "weight"))
    waiting = np.empty(leaf.size, np.int64)
    require(*_judgement(check_trees(starts, leaf, left, right, depth, weight, counts, waiting)))
    return Nodes(int(column["tree"][0].as_py()), starts, feature, right, threshold, counts, terms)


def _chunk(table: pa.Table, name: str) -> Any:
    return table.column(name).chunk(0)


def _nulls(array: Any) -> NDArray[np.bool_]:
    return array.is_null().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _numbers(array: Any) -> NDArray[Any]:
    """Values as numpy; where null, anything."""
    if array.null_count == 0:
        return array.to_numpy()  # type: ignore[no-any-return]
    values = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
    return values[array.offset : array.offset + len(array)]


def _of_kind(kind: Any, wanted: str, require: Any) -> NDArray[np.bool_]:
    names = kind.dictionary.to_pylist()
    index = kind.indices.to_numpy()
    require(
        all(names[i] in KINDS for i in np.unique(index)),
        f"a node is of a kind other than {' or '.join(KINDS)}",
    )
    return np.array([name == wanted for name in names])[index]  # type: ignore[no-any-return]


def _features(
    column: Any, leaf: NDArray[np.bool_], oblique: NDArray[np.bool_], spec: DataSpec, require: Any
) -> NDArray[np.int32]:
    place = {feature.name: position for position, feature in enumerate(spec.features)}
    known = np.array([place.get(name, LEAF) for name in column.dictionary.to_pylist()] + [LEAF], dtype=np.int32)
    index = column.indices.fill_null(-1).to_numpy()
    feature = known[index]
    require(
        np.array_equal(feature == LEAF, leaf | oblique), "a node splits on a feature that the dataspec does not have"
    )
    feature[oblique] = OBLIQUE
    return feature  # type: ignore[no-any-return]


def _starts(tree: NDArray[np.uint32], node: NDArray[np.uint32], require: Any) -> NDArray[np.int64]:
    first = np.flatnonzero(np.concatenate([[True], tree[1:] != tree[:-1]]))
    starts = np.append(first, tree.size)
    sizes = np.diff(starts)
    numbers = tree[first].astype(np.int64)
    require((np.diff(numbers) == 1).all(), "trees are not numbered consecutively")
    require(
        np.array_equal(node, np.arange(tree.size) - np.repeat(first, sizes)),
        "nodes are not numbered 0, 1, 2, ...",
    )
    return starts


def _counts(column: Any, classes: int, require: Any) -> NDArray[np.uint32]:
    lengths = np.diff(column.offsets.to_numpy())
    require((lengths == classes).all(), f"counts must hold one number for each of the {classes} classes")
    counts: NDArray[np.uint32] = column.flatten().to_numpy().reshape(-1, classes)
    return counts


def _judgement(found: int) -> tuple[bool, str]:
    from bigforest.kernels import packing

    problems = {
        packing.SOUND: "",
        packing.WRONG_LEFT: "a left child does not follow its parent",
        packing.WRONG_RIGHT: "a right child is not where the left subtree ends",
        packing.WRONG_DEPTH: "a depth is not that of the parent plus one",
        packing.WRONG_END: "a tree ends too early or too late",
        packing.WRONG_COUNTS: "counts do not add up to the weight, or are all 0",
    }
    return found == packing.SOUND, problems[found]
