"""Trees as arrays, and the rows of the forest table that they become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.common.arrow_arrays import arrow_array, arrow_table, bitmap
from bigforest.forest.format.files import Header, write_tables
from bigforest.forest.format.lists import cut_lists, join_fields, levels_column, terms_column
from bigforest.forest.format.schema import GROUP_ENTRIES, GROUP_NODES, KINDS, NODE_KINDS, NODES, nodes_schema
from bigforest.kernels.common.layout import LEAF, OBLIQUE, LevelLists, Terms

T = TypeVar("T")


class TreeArrays(NamedTuple):
    """Trees in preorder, one after the other; all arrays have one entry per node, and a leaf has the value in brackets.

    feature       int32 (LEAF), position in the dataspec; OBLIQUE where the terms say it
    left          uint32 (0), always the node's own number in its tree + 1
    right         uint32 (0), number in the tree, too
    depth         uint32
    threshold     float64 (nan), nan on a category
    default_left  bool (False), False in oblique nodes
    gain          float64 (nan)
    weight        uint64
    counts        uint32 [nodes, classes], without classes for regression
    below, above  uint32 (0), largest code that went left and smallest that went right, of nodes that were grown on
                  codes of features; they are not written
    value         float64, mean of the target; None where classes are predicted
    levels        what nodes on categories list; None without such nodes
    terms         the directions of oblique nodes; None without such nodes
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
    below: NDArray[np.uint32]
    above: NDArray[np.uint32]
    value: NDArray[np.float64] | None = None
    levels: LevelLists | None = None
    terms: Terms | None = None

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where trees begin, and the end of the last, int64 [trees + 1]."""
        return np.append(np.flatnonzero(self.depth == 0), self.depth.size)

    @property
    def entries(self) -> NDArray[np.int64]:
        """Where the terms and levels of each node begin if they are put in one row, and the last ones end."""
        starts = [lists.start for lists in (self.levels, self.terms) if lists is not None]
        return sum(starts, np.zeros(self.feature.size + 1, np.int64))

    def rows(self, begin: int, end: int) -> TreeArrays:
        """Nodes from `begin` to before `end`."""
        levels = None if self.levels is None else cut_lists(self.levels, begin, end)
        terms = None if self.terms is None else cut_lists(self.terms, begin, end)
        arrays = self._asdict() | {"levels": None, "terms": None}
        cut: dict[str, Any] = {name: array if array is None else array[begin:end] for name, array in arrays.items()}
        return TreeArrays(**cut | {"levels": levels, "terms": terms})


def answers_of(counts: NDArray[np.uint32], value: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """The prediction of each node, float64 [nodes, outputs]: its shares of classes, or its mean."""
    if value is not None:
        return value[:, None]
    weights = counts.astype(np.float64)
    return weights / weights.sum(axis=1, keepdims=True)


def join_trees(trees: Sequence[TreeArrays]) -> TreeArrays:
    """The nodes of all, one after the other, as if they were one tree."""
    if len(trees) == 1:
        return trees[0]
    return TreeArrays(**join_fields(trees, [tree.feature.size for tree in trees], TreeArrays._fields))


def part_path(directory: Path, first_tree: int) -> Path:
    """Name of the part that starts with `first_tree` in the forest `directory`; names sort like trees."""
    return directory / "trees" / f"part-{first_tree:07d}.parquet"


def write_part(directory: Path, first_tree: int, pieces: Iterable[TreeArrays], header: Header) -> Path:
    """Write trees `first_tree`, `first_tree` + 1, ... as one part of the forest `directory`; returns its path.

    The trees come in pieces of consecutive nodes, each a tree, some of one, or several; left and right are numbers
    within the tree. Memory: two pieces, and a row group. May be called from any thread; writing the same part again
    replaces it.
    """
    groups = cut_row_groups((nodes, nodes.entries) for nodes in pieces)
    joined = (join_trees([nodes.rows(begin, end) for nodes, begin, end in group]) for group in groups)
    tables = (_nodes_table(*numbered, header) for numbered in _numbered(first_tree, joined))
    path = part_path(directory, first_tree)
    write_tables(nodes_schema(header.spec), tables, path, "trees", header)
    return path


def _numbered(
    first_tree: int, groups: Iterable[TreeArrays]
) -> Iterator[tuple[TreeArrays, NDArray[np.uint32], NDArray[np.uint32]]]:
    """Consecutive nodes, the tree of each, and the number of each in its tree, uint32 [nodes]."""
    tree, number = first_tree - 1, 0  # of the tree before the first root, and of its next node
    for nodes in groups:
        size = nodes.depth.size
        root = np.flatnonzero(nodes.depth == 0)
        length = np.diff(np.concatenate([[0], root, [size]]))
        trees = np.repeat(np.arange(tree, tree + length.size).astype(np.uint32), length)
        begin = np.repeat(np.append(-number, root).astype(np.uint32), length)
        numbers = np.arange(size, dtype=np.uint32) - begin  # modulo 2**32, as what continues has begun before
        yield nodes, trees, numbers
        tree, number = tree + root.size, int(numbers[-1]) + 1


def cut_row_groups(pieces: Iterable[tuple[T, NDArray[np.int64]]]) -> Iterator[list[tuple[T, int, int]]]:
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


def _nodes_table(nodes: TreeArrays, tree: NDArray[np.uint32], number: NDArray[np.uint32], header: Header) -> pa.Table:
    """Nodes, which have these numbers of their trees and in them, as a table of schema NODES."""
    schema, names = nodes_schema(header.spec), header.spec.feature_names
    size = nodes.feature.size
    kind = (nodes.feature != LEAF).astype(np.int8)  # places in KINDS
    kinds = {"axis"}
    if nodes.levels is not None:
        kind += np.diff(nodes.levels.start) > 0  # such a node is none of the others
        kinds.add("category")
    if nodes.terms is not None:
        kind[nodes.feature == OBLIQUE] = KINDS.index("oblique")
        kinds.add("oblique")
    bitmaps: dict[tuple[str, ...], pa.Buffer] = {}

    def valid(name: str) -> pa.Buffer:
        """Which nodes have a value in this column; several columns share a bitmap."""
        own = tuple(one for one in NODE_KINDS[name] if one in kinds)
        if own not in bitmaps:
            bitmaps[own] = bitmap(np.array([one in own for one in KINDS])[kind])
        return bitmaps[own]

    def where(name: str, values: NDArray[Any]) -> pa.Array:
        """The column `name` of numbers, null in the nodes of other kinds."""
        return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), size, [valid(name), pa.py_buffer(values)])

    columns = {
        "tree": arrow_array(tree),
        "node": arrow_array(number),
        "left": where("left", nodes.left),
        "right": where("right", nodes.right),
        "depth": arrow_array(nodes.depth),
        "kind": _named(arrow_array(kind), KINDS),
        "feature": _named(where("feature", nodes.feature), names),
        "threshold": where("threshold", nodes.threshold),
        "default_left": pa.Array.from_buffers(pa.bool_(), size, [valid("default_left"), bitmap(nodes.default_left)]),
        "levels": levels_column(nodes.levels, valid("levels"), nodes.feature, header, NODES.field("levels").type),
        "terms": terms_column(nodes.terms, size, names, NODES.field("terms").type),
        "gain": where("gain", nodes.gain),
        "weight": arrow_array(nodes.weight),
        "counts": counts_column(nodes.counts, schema.field("counts").type),
        "value": pa.nulls(size, pa.float64()) if nodes.value is None else arrow_array(nodes.value),
    }
    return arrow_table(columns, schema)


def _named(places: pa.Array, names: Sequence[str]) -> Any:
    """A column of places in `names`."""
    return pa.DictionaryArray.from_arrays(places, arrow_array(names, pa.string()), safe=False)


def counts_column(counts: NDArray[Any], kind: pa.DataType) -> Any:
    """The column `counts`, of the Arrow type `kind`, from an array [nodes, classes]; null without classes."""
    nodes, classes = counts.shape
    if not classes:
        return pa.nulls(nodes, kind)
    start = arrow_array(np.arange(nodes + 1, dtype=np.int64) * classes, pa.int32())
    return pa.ListArray.from_arrays(start, arrow_array(counts.reshape(-1), kind.value_type), type=kind)
