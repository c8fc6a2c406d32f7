"""Trees as arrays (TreeArrays), and their rows in trees/part-NNNNNNN.parquet.

Nodes on categories have lists of levels, and oblique nodes have lists of terms, of varying length. In memory they are
NamedTuples of `start`, int64 [nodes + 1], and arrays of entries; node i has the entries start[i]:start[i + 1]. In the
file they are columns of lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import arrow_array, arrow_table, as_numpy, bitmap, compute, is_valid
from bigforest.columns.dataspec import DataSpec
from bigforest.forest.files import Header, write_tables
from bigforest.forest.format import GROUP_ENTRIES, GROUP_NODES, KINDS, NODE_KINDS, NODES, TREES, trees_format
from bigforest.kernels.common.layout import LEAF, OBLIQUE, LevelLists, Terms

Lists = TypeVar("Lists", Terms, LevelLists)


def cut_lists(lists: Lists, begin: int, end: int) -> Lists:
    """Return the lists of the nodes from `begin` to before `end`."""
    first, last = lists.start[begin], lists.start[end]
    return _lists_like(lists, lists.start[begin : end + 1] - first, [entries[first:last] for entries in lists[1:]])


def join_lists(parts: Sequence[Lists | None], sizes: Sequence[int]) -> Lists | None:
    """Join the lists of consecutive nodes; sizes: number of nodes of each part. None if no part has lists."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    start = np.zeros(sum(sizes) + 1, np.int64)
    end = 0
    for part, size in zip(parts, sizes, strict=True):
        begin, end = end, end + size
        np.add(0 if part is None else part.start[1:], start[begin], out=start[begin + 1 : end + 1])
    return _lists_like(present[0], start, list(map(np.concatenate, zip(*(part[1:] for part in present), strict=True))))


def cut_entries(start: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of consecutive lists that have at most `most` entries together, or of a single longer list.

    start  where the entries of each list begin, and the end of the last.
    """
    begin, size = 0, start.size - 1
    while begin < size:
        end = max(begin + 1, int(start.searchsorted(start[begin] + most, side="right")) - 1)
        yield begin, end
        begin = end


def nonempty_lists(lists: Lists) -> Lists:
    """Drop the empty lists."""
    present = np.append(0, np.flatnonzero(np.diff(lists.start)) + 1)
    return lists._replace(start=lists.start[present])


def lists_of_some(lists: Lists, nodes: NDArray[np.int64], keeping: NDArray[np.bool_]) -> Lists | None:
    """Return the lists of some nodes; None if all are empty.

    nodes    numbers of the nodes, ascending
    keeping  bool [all nodes], nodes that keep their list; all are among `nodes`. Other lists become empty
    """
    length = np.diff(lists.start)
    start = np.append(0, np.cumsum((length * keeping)[nodes]))
    entries = np.repeat(keeping, length)
    return _lists_like(lists, start, [array[entries] for array in lists[1:]]) if start[-1] else None


def _lists_like(like: Lists, start: NDArray[np.int64], entries: list[NDArray[Any]]) -> Lists:
    kind: Any = type(like)
    return kind(start, *entries)


def levels_column(
    lists: LevelLists | None, valid: pa.Buffer, feature: NDArray[np.int32], header: Header, kind: pa.DataType
) -> Any:
    """Return the column `levels` of nodes on these features, of the Arrow type `kind`. A missing level is null.

    valid  bitmap of the nodes that have levels.
    """
    if lists is None:
        return pa.nulls(feature.size, kind)
    spec, levels = header.spec, header.levels
    assert levels is not None
    feature_of_level = np.repeat(feature, np.diff(lists.start))
    missing = np.array([feature_spec.missing for feature_spec in spec.features])[feature_of_level]
    place = levels.offsets[feature_of_level] + lists.code - missing
    words = levels.words.take(arrow_array(place, mask=missing & (lists.code == 0)))
    start = pa.py_buffer(lists.start.astype(np.int32))
    return pa.Array.from_buffers(kind, feature.size, [valid, start], children=[words])


def check_levels(
    column: Any, feature: NDArray[np.int32], header: Header, require: Callable[[object, str], None]
) -> LevelLists:
    """Check the column `levels` of nodes on these features, and return its lists; `require` raises.

    column  lists of text, read as a dictionary; nulls in place of lists have been checked
    """
    spec, levels = header.spec, header.levels
    assert levels is not None
    start = _starts(column, require, "a node on a category has no levels")
    words = column.flatten()
    missing = len(words.dictionary)  # represents null
    # Look up each word once per feature. The pairs of a feature are consecutive.
    pair = np.repeat(feature.astype(np.int64), np.diff(start)) * (missing + 1) + as_numpy(words.indices, missing)
    pairs, place = np.unique(pair, return_inverse=True)
    of_pair, word = np.divmod(pairs, missing + 1)
    code = np.zeros(pairs.size, np.uint32)
    for number in dict.fromkeys(of_pair.tolist()):
        begin, end = np.searchsorted(of_pair, [number, number + 1])
        if word[end - 1] == missing:
            end -= 1
            require(
                spec.features[number].missing,
                "a node lists a missing level of a category that is never missing",
            )
        level_words = levels.words[levels.offsets[number] : levels.offsets[number + 1]]
        level_codes = compute().index_in(words.dictionary.take(arrow_array(word[begin:end])), value_set=level_words)
        require(level_codes.null_count == 0, "a node has a level that its category does not")
        code[begin:end] = as_numpy(level_codes) + int(spec.features[number].missing)
    code = code[place]
    require(_ascend(start, code), "the levels of a node are not ascending, each once")
    return LevelLists(start, code)


def terms_column(terms: Terms | None, nodes: int, names: Sequence[str], kind: pa.DataType) -> Any:
    """Return the column `terms`, of the Arrow type `kind`, of this many nodes; names: of the features."""
    if terms is None:
        return pa.nulls(nodes, kind)
    words = arrow_array(names, pa.string()).take(arrow_array(terms.feature))
    pairs = pa.StructArray.from_arrays([words, arrow_array(terms.weight)], fields=list(kind.value_type))
    empty = arrow_array(np.diff(terms.start) == 0)
    return pa.ListArray.from_arrays(arrow_array(terms.start.astype(np.int32)), pairs, type=kind, mask=empty)


def check_terms(column: Any, spec: DataSpec, require: Callable[[object, str], None]) -> Terms:
    """Check the column `terms`, whose nulls have been checked, and return its lists; `require` raises."""
    start = _starts(column, require, "an oblique node has no terms")
    terms = column.flatten()
    names, weights = terms.flatten()
    require(names.null_count == 0 and weights.null_count == 0, "a term of an oblique node lacks its feature or weight")
    place = compute().index_in(names, arrow_array(spec.feature_names, pa.string()))
    require(place.null_count == 0, "an oblique node has a feature that the dataspec does not have")
    feature, weight = as_numpy(place).astype(np.int32), as_numpy(weights)
    require(_ascend(start, feature), "the terms of an oblique node are not in the order of the features, each once")
    require(np.isfinite(weight).all() and (weight != 0.0).all(), "a weight of an oblique node is not finite, or is 0")
    return Terms(start, feature, weight)


def _starts(column: Any, require: Callable[[object, str], None], problem: str) -> NDArray[np.int64]:
    """Return where the entries of each list begin, and the end of the last; `require` raises for an empty list."""
    length = as_numpy(compute().list_value_length(column), 0)
    require((length[is_valid(column)] > 0).all(), problem)
    return np.concatenate([[0], np.cumsum(length, dtype=np.int64)])


def _ascend(start: NDArray[np.int64], entries: NDArray[Any]) -> bool:
    inside = np.ones(max(entries.size - 1, 0), np.bool_)
    inside[start[(start > 0) & (start < entries.size)] - 1] = False  # neighbours of two nodes
    return bool((np.diff(entries.astype(np.int64))[inside] > 0).all())


class TreeArrays(NamedTuple):
    """Trees in preorder, one after the other. All arrays have one entry per node. Leaves have the value in brackets.

    Growing trees, checked trees from disk, and trees of a boosted stage have this form. From disk they come in pieces,
    which may begin and end within a tree. Then entries of `right`, `threshold` and `gain` are undefined where the file
    has null. The left child of a node follows it.

    feature       int32 (LEAF), position in the dataspec; OBLIQUE for a projection, which `terms` has
    right         uint32 (0), number of the right child in the tree
    depth         uint32
    threshold     float64 (nan), nan on a category
    default_left  bool (False), False in oblique nodes
    gain          float64 (nan)
    weight        uint64, weight of the bag rows in the node
    counts        uint32, or uint64 for wide weights, [nodes, classes]; [nodes, 0] for regression
    value         float64, mean of the target; None for classification. In a boosted stage float64 [nodes, outputs],
                  numbers that a leaf adds to the scores
    levels        levels that nodes on categories list; None without categories
    terms         directions of oblique nodes; None without oblique nodes
    tree          number of the tree of the first node, for trees from disk; otherwise 0
    below, above  uint32 [nodes], for growing trees, whose nodes split on codes: largest code that went left, smallest
                  code that went right; undefined in leaves. None for other trees
    """

    feature: NDArray[np.int32]
    right: NDArray[np.uint32]
    depth: NDArray[np.uint32]
    threshold: NDArray[np.float64]
    default_left: NDArray[np.bool_]
    gain: NDArray[np.float64]
    weight: NDArray[np.uint64]
    counts: NDArray[Any]
    value: NDArray[np.float64] | None = None
    levels: LevelLists | None = None
    terms: Terms | None = None
    tree: int = 0
    below: NDArray[np.uint32] | None = None
    above: NDArray[np.uint32] | None = None

    @property
    def roots(self) -> NDArray[np.int64]:
        """Positions of the roots, int64 [trees that begin here]."""
        return np.flatnonzero(self.depth == 0)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Starts of the trees, and the end of the last, int64 [trees + 1]."""
        return np.append(self.roots, self.depth.size)

    @property
    def root_of(self) -> NDArray[np.int64]:
        """Position of the root of the tree of each node, int64 [nodes], for whole trees."""
        return np.repeat(self.roots, np.diff(self.starts))

    @property
    def splits(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Positions of inner nodes, and of the left and the right child of each, int64 [splits], for whole trees."""
        inner = np.flatnonzero(self.feature != LEAF)
        return inner, inner + 1, self.root_of[inner] + self.right[inner]

    @property
    def parents(self) -> NDArray[np.int64]:
        """Position of the parent of each node, int64 [nodes], for whole trees; -1 for roots."""
        inner, left, right = self.splits
        parent = np.full(self.feature.size, -1)
        parent[left] = parent[right] = inner
        return parent

    @property
    def used(self) -> NDArray[np.int64]:
        """Positions in the dataspec of the features that some node splits on, int64, ascending."""
        terms = [] if self.terms is None else [self.terms.feature]
        return np.unique(np.concatenate([self.feature[self.feature >= 0], *terms])).astype(np.int64)

    @property
    def nbytes(self) -> int:
        lists = [field for field in (self.levels, self.terms) if field is not None]
        return sum(field.nbytes for fields in (self, *lists) for field in fields if isinstance(field, np.ndarray))

    @property
    def entries(self) -> NDArray[np.int64]:
        """Starts of the entries (terms and levels together) of each node, and the end of the last."""
        starts = [lists.start for lists in (self.levels, self.terms) if lists is not None]
        return sum(starts, np.zeros(self.feature.size + 1, np.int64))

    def rows(self, begin: int, end: int) -> TreeArrays:
        return self.of_nodes(lambda array: array[begin:end], lambda lists: cut_lists(lists, begin, end))

    def of_nodes(self, array: Callable[[NDArray[Any]], NDArray[Any]], lists: Callable[[Any], Any]) -> TreeArrays:
        """Apply the function `array` to each array, and `lists` to the levels and to the terms. Return the result."""
        made: dict[str, Any] = {
            name: lists if name in _LISTS else array for name in TreeArrays._fields if name != "tree"
        }
        for name, function in made.items():
            made[name] = None if getattr(self, name) is None else function(getattr(self, name))
        return self._replace(**made)


_LISTS = ("levels", "terms")


class SplitFeatures(NamedTuple):
    """The features that nodes split on.

    node     int64, number of the node of each entry of `feature`
    feature  int64, node n has the features feature[start[n] : start[n + 1]]
    start    int64 [nodes + 1]
    """

    node: NDArray[np.int64]
    feature: NDArray[np.int64]
    start: NDArray[np.int64]


def split_features(nodes: TreeArrays) -> SplitFeatures:
    number = (nodes.feature != LEAF).astype(np.int64)
    if nodes.terms is not None:
        number = np.where(nodes.feature == OBLIQUE, np.diff(nodes.terms.start), number)
    start = np.concatenate([[0], np.cumsum(number)])
    node = np.repeat(np.arange(number.size), number)
    feature = nodes.feature[node].astype(np.int64)
    if nodes.terms is not None:
        feature[feature == OBLIQUE] = nodes.terms.feature
    return SplitFeatures(node, feature, start)


def node_predictions(counts: NDArray[np.uint32], value: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the prediction of each node, float64 [nodes, outputs]: its class probabilities, or its mean."""
    if value is not None:
        return value[:, None]
    weights = counts.astype(np.float64)
    return weights / weights.sum(axis=1, keepdims=True)


def join_trees(trees: Sequence[TreeArrays]) -> TreeArrays:
    """Join the nodes of trees, or of pieces of trees, in order. Some may lack levels or terms."""
    if len(trees) == 1:
        return trees[0]
    sizes = [tree.feature.size for tree in trees]
    joined: dict[str, Any] = {name: join_lists([getattr(tree, name) for tree in trees], sizes) for name in _LISTS}
    for name in TreeArrays._fields:
        columns = [getattr(tree, name) for tree in trees]
        if name not in (*_LISTS, "tree"):
            joined[name] = None if columns[0] is None else np.concatenate(columns)
    return trees[0]._replace(**joined)


def write_part(directory: Path, first_tree: int, pieces: Iterable[TreeArrays], header: Header) -> Path:
    """Write trees `first_tree`, `first_tree` + 1, ... as one file of the forest `directory`, and return its path.

    A piece has consecutive nodes, of one tree or several, whole or in part. Memory: two pieces, and a row group. Any
    thread may call this function. Writing a part again replaces it.
    """
    groups = map(join_trees, _cut_row_groups(pieces, GROUP_NODES, GROUP_ENTRIES))
    tables = (nodes_table(*numbered, header) for numbered in _number_nodes(first_tree, groups))
    path = TREES.part(directory, first_tree)
    write_tables(tables, path, trees_format(header.spec), header)
    return path


def _number_nodes(
    first_tree: int, groups: Iterable[TreeArrays]
) -> Iterator[tuple[TreeArrays, NDArray[np.uint32], NDArray[np.uint32]]]:
    """Yield each group of nodes, the tree of each node, and the number of each node in its tree, uint32 [nodes]."""
    tree, number = first_tree - 1, 0  # tree before the first root; number of its next node
    for nodes in groups:
        size = nodes.depth.size
        root = np.flatnonzero(nodes.depth == 0)
        length = np.diff(np.concatenate([[0], root, [size]]))
        trees = np.repeat(np.arange(tree, tree + length.size).astype(np.uint32), length)
        begin = np.repeat(np.append(-number, root).astype(np.uint32), length)
        numbers = np.arange(size, dtype=np.uint32) - begin  # modulo 2**32: a tree may have begun in an earlier group
        yield nodes, trees, numbers
        tree, number = tree + root.size, int(numbers[-1]) + 1


def _cut_row_groups(pieces: Iterable[TreeArrays], most_nodes: int, most_entries: int) -> Iterator[list[TreeArrays]]:
    """Cut consecutive nodes into row groups as large as these sizes allow, regardless of the pieces."""
    waiting: list[TreeArrays] = []
    nodes, entries = most_nodes, most_entries
    for piece in pieces:
        begin, size, start = 0, piece.feature.size, piece.entries
        while begin < size:
            end = min(size, begin + nodes, int(start.searchsorted(int(start[begin]) + entries, side="right")) - 1)
            if end <= begin and waiting:
                yield waiting
                waiting, nodes, entries = [], most_nodes, most_entries
                continue
            end = max(end, begin + 1)
            waiting.append(piece.rows(begin, end))
            nodes -= end - begin
            entries -= int(start[end] - start[begin])
            begin = end
    if waiting:
        yield waiting


def nodes_table(nodes: TreeArrays, tree: NDArray[np.uint32], number: NDArray[np.uint32], header: Header) -> pa.Table:
    """Return nodes, with these numbers of trees and nodes, as a table of the schema of `trees_format`."""
    schema, names = trees_format(header.spec).columns, header.spec.feature_names
    size = nodes.feature.size
    kind = (nodes.feature != LEAF).astype(np.int8)  # places in KINDS
    kinds = {"axis"}
    if nodes.levels is not None:
        kind += np.diff(nodes.levels.start) > 0  # no other kind of node has levels
        kinds.add("category")
    if nodes.terms is not None:
        kind[nodes.feature == OBLIQUE] = KINDS.index("oblique")
        kinds.add("oblique")
    bitmaps: dict[tuple[str, ...], pa.Buffer] = {}

    def valid(name: str) -> pa.Buffer:
        """Return a bitmap of the nodes that have a value in this column; several columns share a bitmap."""
        kinds_with = tuple(each for each in NODE_KINDS[name] if each in kinds)
        if kinds_with not in bitmaps:
            bitmaps[kinds_with] = bitmap(np.array([each in kinds_with for each in KINDS])[kind])
        return bitmaps[kinds_with]

    def where(name: str, values: NDArray[Any]) -> pa.Array:
        """Return the numeric column `name`, null in the nodes of other kinds."""
        return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), size, [valid(name), pa.py_buffer(values)])

    columns = {
        "tree": arrow_array(tree),
        "node": arrow_array(number),
        "left": where("left", number + np.uint32(1)),
        "right": where("right", nodes.right),
        "depth": arrow_array(nodes.depth),
        "kind": _dictionary_column(arrow_array(kind), KINDS),
        "feature": _dictionary_column(where("feature", nodes.feature), names),
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


def _dictionary_column(places: pa.Array, names: Sequence[str]) -> Any:
    return pa.DictionaryArray.from_arrays(places, arrow_array(names, pa.string()), safe=False)


def counts_column(counts: NDArray[Any], kind: pa.DataType) -> Any:
    """Return the column `counts`, of the Arrow type `kind`, from an array [nodes, classes]; null without classes."""
    nodes, classes = counts.shape
    if not classes:
        return pa.nulls(nodes, kind)
    start = arrow_array(np.arange(nodes + 1, dtype=np.int64) * classes, pa.int32())
    return pa.ListArray.from_arrays(start, arrow_array(counts.reshape(-1), kind.value_type), type=kind)
