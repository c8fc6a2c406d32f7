"""Files of trees, trees/part-NNNNNNN.parquet: read some nodes at a time, checked before anything uses them.

Arrow decodes a batch of about PIECE_BYTES. `NodeChecker` checks each column: nulls, kinds, features, levels, terms,
thresholds, counts. The kernel `check_nodes` then checks that the nodes form trees in preorder, with a stack of open
nodes that is carried from batch to batch, and that weights and counts of children add up to their parent.

Files are read back when a run continues, and written again as files of another forest (`recut`, `copy_parts`), a piece
at a time, so memory does not depend on the size of a tree.
"""

from __future__ import annotations

import os
import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import as_numpy, is_valid, read_only
from bigforest.columns.dataspec import DataSpec
from bigforest.errors import FormatError, damaged_forest
from bigforest.forest.files import (
    Header,
    check_file,
    decoding,
    open_checked,
    open_parquet,
    read_forest_levels,
    read_header,
)
from bigforest.forest.format import KINDS, NODE_KINDS, NODES, TREES, FileFormat, trees_format
from bigforest.forest.nodes import TreeArrays, check_levels, check_terms, join_trees, write_part
from bigforest.kernels.common.layout import LEAF, OBLIQUE
from bigforest.options.values import MAX_TREES
from bigforest.storage.parquet_footer import ColumnChunk, row_groups
from bigforest.storage.paths import UNFINISHED, files_in, is_remote, known_folder, local_path

# Problems by the result of the kernel check_nodes (kernels/predict/pack.py).
PROBLEMS = (
    "",
    "a left child does not follow its parent",
    "a right child is not where the left subtree ends",
    "a depth is not the depth of the parent plus one",
    "a tree ends too early or too late",
    "counts do not add up to the weight, or are all 0",
    "trees are not numbered consecutively",
    "nodes are not numbered 0, 1, 2, ...",
    "weights or counts of two children do not add up to the parent's",
)


class NodeChecker:
    """Checker of the nodes of a file of trees. It gets them in record batches of the columns NODES, in order.

    Its methods raise FormatError that names the file.
    """

    def __init__(self, path: Path, header: Header, first_tree: int) -> None:
        from bigforest.kernels.predict import pack

        self._path, self._header = path, header
        # State and stacks of the kernel check_nodes, carried from batch to batch.
        self._state = np.zeros(6, np.int64)
        self._state[pack.WHOLE], self._state[pack.TREE] = 1, first_tree - 1
        self._waiting = np.empty((0, 2), np.uint32)
        self._rest = np.empty((1, 1 + len(header.spec.target.classes)), np.uint64)

    def require(self, sound: object, problem: str) -> None:
        if not sound:
            raise damaged_forest(f"{self._path}: {problem}")

    def check(self, batch: Any) -> TreeArrays:
        """Check the next batch, and return its arrays."""
        from bigforest.kernels.predict import pack

        spec, require = self._header.spec, self.require
        column = {name: batch.column(name) for name in NODES.names}
        kind = _kinds(column["kind"], require)
        leaf, category, oblique = (kind == KINDS.index(name) for name in ("leaf", "category", "oblique"))
        for kinds in dict.fromkeys(NODE_KINDS.values()):
            valid = np.array([each in kinds for each in KINDS])[kind]
            for name in (name for name, allowed in NODE_KINDS.items() if allowed == kinds):
                sound = np.array_equal(is_valid(column[name]), valid)
                require(sound, f"{name} must be null except in {' and '.join(kinds)} nodes")
        feature = _features(column["feature"], kind, spec, require)
        levels = check_levels(column["levels"], feature, self._header, require) if category.any() else None
        terms = check_terms(column["terms"], spec, require) if oblique.any() else None
        threshold = _numbers(column["threshold"])
        require(not (np.isnan(threshold) & ~(leaf | category)).any(), "a threshold is not a number")
        gain = _numbers(column["gain"])
        require(not (np.isnan(gain) & ~leaf).any(), "a gain is not a number")
        default_left = as_numpy(column["default_left"], False)
        counts, value = _answers(column["counts"], column["value"], spec, require)
        numbers = {name: _numbers(column[name]) for name in ("tree", "node", "left", "right", "depth", "weight")}
        tree, node, left, right, depth, weight = map(read_only, numbers.values())
        room = int(self._state[pack.OPEN]) + tree.size
        if len(self._waiting) < room:
            self._waiting, self._rest = _reserve(self._waiting, room), _reserve(self._rest, room + 1)
        columns = (tree, node, leaf, left, right, depth, weight, read_only(counts))
        result = pack.check_nodes(self._state, *columns, self._waiting, self._rest)
        require(result == 0, PROBLEMS[result])
        shared = (feature, right, depth, threshold, default_left, gain, weight, counts)
        return TreeArrays(*shared, value, levels, terms, int(tree[0]))

    def last_tree(self) -> int:
        """Return the number of the last tree, which must be complete."""
        from bigforest.kernels.predict import pack

        self.require(self._state[pack.WHOLE], PROBLEMS[pack.WRONG_END])
        return int(self._state[pack.TREE])


def _reserve(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return the array with room for `rows` rows or twice its rows, whichever is more."""
    longer = np.empty((max(rows, 2 * len(array)), array.shape[1]), array.dtype)
    longer[: len(array)] = array
    return longer


def _numbers(array: Any) -> NDArray[Any]:
    """Return an Arrow array as a numpy array, with undefined values for nulls."""
    if array.null_count == 0:
        return as_numpy(array)
    values = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
    return values[array.offset : array.offset + len(array)]


def _kinds(kind: Any, require: Any) -> NDArray[np.int8]:
    """Return the kind of each node, as its place in KINDS; `require` raises."""
    names = kind.dictionary.to_pylist()
    index = as_numpy(kind.indices)
    require(
        all(names[i] in KINDS for i in np.unique(index)),
        f"a node is of a kind other than {' or '.join(KINDS)}",
    )
    return np.array([KINDS.index(name) if name in KINDS else 0 for name in names], np.int8)[index]


def _features(column: Any, kind: NDArray[np.int8], spec: DataSpec, require: Any) -> NDArray[np.int32]:
    """Return the position of the feature of each node; LEAF or OBLIQUE for nodes without one; `require` raises.

    kind  result of `_kinds`
    """
    category, oblique = kind == KINDS.index("category"), kind == KINDS.index("oblique")
    place = {feature.name: position for position, feature in enumerate(spec.features)}
    position_of = np.array([place.get(name, LEAF) for name in column.dictionary.to_pylist()] + [LEAF], dtype=np.int32)
    index = as_numpy(column.indices, -1)
    feature = position_of[index]
    without = oblique | (kind == KINDS.index("leaf"))
    require(np.array_equal(feature == LEAF, without), "a node splits on a feature that the dataspec does not have")
    of_category = np.array([each.splits_on_levels for each in spec.features] + [False])  # the last is for LEAF
    require(np.array_equal(of_category[feature], category), "a node is of another kind than the feature it splits on")
    feature[oblique] = OBLIQUE
    return feature


def _answers(counts: Any, value: Any, spec: DataSpec, require: Any) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    """Check the columns `counts` and `value`, and return them as in TreeArrays; `require` raises."""
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


_PART = re.compile(rf"part-(\d{{7,{len(str(MAX_TREES))}}})\.parquet")
# Advice if another kind of folder of bigforest is given as a forest.
_INSTEAD: dict[str | None, str] = {
    "a store": "it is a store; train one on it first",
    "an unfinished run": "it is an unfinished run; resume it first",
    "a comparison": "it is a comparison; give the folder winner.forest in it",
}

# Bytes of decoded nodes in memory at a time.
PIECE_BYTES = 1 << 20
# Bytes of a decoded node without counts, terms and levels; and of a term or level.
NODE_BYTES = 80
ENTRY_BYTES = 32
# Text column that is read as a dictionary, because its words repeat.
WORDS = ("levels.list.element",)
# All rows of any file.
ALL_ROWS = slice(0, sys.maxsize)


class Span(NamedTuple):
    """Rows from `start` to before `stop` of the file of trees `path`. They must have the trees `trees`."""

    path: Path
    trees: range
    start: int
    stop: int


def part_paths(directory: Path) -> list[Path]:
    """Return the files of trees of the forest `directory`, in order. Raises FormatError if there are none."""
    if not directory.is_dir():
        problem = "it is a file" if directory.exists() else "there is no such folder"
        begun = known_folder(directory.with_name(directory.name + UNFINISHED)) is not None
        hint = "its run is unfinished, resume it first" if begun else "give the folder that training wrote"
        raise FormatError(f"{directory} is not a forest: {problem}; {hint}")
    trees = directory / "trees"
    if not is_remote(directory) and trees.is_dir() and not os.access(trees, os.R_OK | os.X_OK):
        raise FormatError(f"{trees} may not be read by this user; check its permissions")
    paths = numbered_parts(trees)
    if not paths:
        problem = _INSTEAD.get(known_folder(directory), "it has no trees/part-*.parquet; check the path")
        raise FormatError(f"{directory} is not a forest: {problem}")
    return paths


def numbered_parts(folder: Path) -> list[Path]:
    """Return the files part-*.parquet of a folder, sorted by number.

    Raises FormatError if a name has no number, or the number of another file.
    """
    path_of = {}
    for path in files_in(folder, "part-*.parquet"):
        match = _PART.fullmatch(path.name)
        if match is None or int(match[1]) in path_of:
            raise damaged_forest(f"{path} is not named as a part with a number of its own")
        path_of[int(match[1])] = path
    return [path_of[first] for first in sorted(path_of)]


def parts_in(directory: Path, file_format: FileFormat) -> list[Path]:
    """Return the files of a format in the directory of a forest, in the order of their trees. Raises FormatError
    without any."""
    paths = numbered_parts(file_format.at(directory).parent)
    if not paths:
        raise damaged_forest(f"{directory} has no files {file_format.name.replace('NNNNNNN', '*')}")
    return paths


def first_tree(path: Path) -> int:
    match = _PART.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def part_ranges(paths: Sequence[Path], trees: int) -> list[range]:
    """Return the trees of each file of a forest with `trees` trees: from the number in its name to the next file.

    Raises FormatError if tree 0 has no file, or if a file is named after a tree beyond the last.
    """
    starts = [first_tree(path) for path in paths]
    if starts[0]:
        raise damaged_forest(f"{paths[0]}: tree 0 is missing")
    if starts[-1] >= trees:
        raise damaged_forest(f"{paths[-1]} is named after a tree beyond the {trees:,} of the forest")
    return [range(*pair) for pair in pairwise([*starts, trees])]


def check_parts(directory: Path, parts: Sequence[range] | None = None) -> tuple[Header, list[Span]]:
    """Check the metadata and columns of the files of trees of the forest in `directory`, and that they belong together.

    parts  the trees of each file of a growing forest; None for all files, see `part_ranges`.

    Returns the common header, with levels, and a span of all rows for each file. Raises FormatError.
    """
    paths = part_paths(directory) if parts is None else [TREES.part(directory, part.start) for part in parts]
    header, _ = read_header(paths[0], "trees")
    parts = part_ranges(paths, header.config.trees) if parts is None else parts
    spans = [check_part(path, part, header) for path, part in zip(paths, parts, strict=True)]
    return replace(header, levels=read_forest_levels(directory, header)), spans


def check_part(path: Path, trees: range, header: Header) -> Span:
    """Check the metadata and columns of a file of trees of the forest with this header. Return a span of all rows."""
    file = check_file(path, trees_format(header.spec), header)
    return Span(path, trees, 0, file.metadata.num_rows)


def piece_rows(classes: int, entries: float = 0.0) -> int:
    """Return the number of nodes that are decoded at a time: as many as fit in PIECE_BYTES.

    entries  mean number of terms and levels of a node

    Offsets into the counts of so few nodes also fit in 31 bits.
    """
    return max(1, int(PIECE_BYTES / (NODE_BYTES + 4 * classes + ENTRY_BYTES * entries)))


def read_span(span: Span, header: Header) -> Iterator[TreeArrays]:
    """Yield the nodes of a span, checked, some at a time.

    The metadata of the file are checked first; for a span that begins with the file, also the checksum of all bytes.
    Memory: a few times PIECE_BYTES. Raises FormatError at a damaged node or an unexpected tree. Nodes that were yielded
    before are sound, but may end within a tree.
    """
    file = open_checked(span.path, trees_format(header.spec), header, WORDS, whole=span.start == 0)
    checker, done = NodeChecker(span.path, header, span.trees.start), 0
    classes, rows = len(header.spec.target.classes), slice(span.start, span.stop)
    for batch in _batches_in(file, span.path, classes, None, rows):
        first = batch.column("tree")[0].as_py()
        if done == 0 and first != span.trees.start:
            raise damaged_forest(f"{span.path} begins with tree {first}, not {span.trees.start}")
        done += batch.num_rows
        yield checker.check(batch)
    if done == 0:
        raise damaged_forest(f"{span.path}: no nodes")
    if done != span.stop - span.start:
        raise damaged_forest(f"{span.path} has fewer rows than it says")
    if checker.last_tree() != span.trees[-1]:
        raise damaged_forest(f"{span.path} ends with tree {checker.last_tree()}, not {span.trees[-1]}")


def batches(path: Path, classes: int, columns: list[str] | None = None, rows: slice = ALL_ROWS) -> Iterator[Any]:
    """Yield rows of a file of trees as record batches of about PIECE_BYTES; columns: columns to read, None for all."""
    yield from _batches_in(open_parquet(path), path, classes, columns, rows)


def _batches_in(
    file: pq.ParquetFile,
    path: Path,
    classes: int,
    columns: list[str] | None,
    requested: slice,
) -> Iterator[Any]:
    """Yield the rows `requested` of an open file of trees, see `batches`."""
    with decoding(path):
        begin = 0
        for number, chunks in enumerate(row_groups(local_path(path))):
            rows = file.metadata.row_group(number).num_rows
            end = begin + rows
            if begin < requested.stop and end > requested.start:
                size = piece_rows(classes, _entries_per_node(chunks, rows))
                for batch in file.iter_batches(size, row_groups=[number], columns=columns, use_threads=False):
                    first, last = max(requested.start - begin, 0), min(requested.stop - begin, batch.num_rows)
                    begin += batch.num_rows
                    if first < last:
                        piece = batch.slice(first, last - first)
                        piece.validate(full=True)
                        yield piece
            begin = end


def _entries_per_node(chunks: Sequence[ColumnChunk], rows: int) -> float:
    """Return the mean number of terms and levels of a node of a row group, from its metadata."""
    values = dict.fromkeys(("terms", "levels"), 0)
    for chunk in chunks:
        name = chunk.name.partition(".")[0]
        if name in values:
            values[name] = max(values[name], chunk.values or 0)
    # In metadata, a node without terms or levels counts as one value.
    return sum(max(0.0, count / max(1, rows) - 1.0) for count in values.values())


def is_finished(directory: Path, part: range, header: Header) -> bool:
    """Return True if the file of a part exists and is complete.

    part  the trees of the part

    Raises FormatError if it is damaged, belongs to another forest or has other trees.
    """
    path = TREES.part(directory, part.start)
    if not path.exists():
        return False
    try:
        for _ in read_span(check_part(path, part, header), header):
            pass
    except FormatError as error:
        raise FormatError(f"{error.text}; remove this file and resume the run, which grows its trees again") from error
    return True


def recut(
    source: Path, parts: Sequence[range], directory: Path, header: Header, source_parts: Sequence[range] | None = None
) -> None:
    """Write trees of the forest in `source` as parts of a new forest in `directory`, with this header.

    parts         the trees of each part to write: the first parts of the new forest (`divide_into_parts`). `source`
                  must have all these trees.
    source_parts  the trees of each part to read, if `source` is a growing forest; None for all parts.

    A part has the same bytes as if its trees had been grown for it. If all these parts exist, they are kept. Raises
    FormatError.
    """
    if all(TREES.part(directory, part.start).exists() for part in parts):
        return
    read, spans = check_parts(source, source_parts)
    header, stops = replace(header, levels=read.levels), [part.stop for part in parts]
    for number, pieces in groupby(_tree_pieces(spans, read), lambda piece: bisect_right(stops, piece.tree)):
        if number == len(parts):
            break
        write_part(directory, parts[number].start, pieces, header)


def copy_parts(source: Path, offset: int, directory: Path, merged: Header) -> None:
    """Copy all trees of the forest in `source` to the `merged` forest in `directory`, with numbers from `offset` on.

    The division into files stays the same. Raises FormatError.
    """
    header, spans = check_parts(source)
    for span in spans:
        write_part(directory, offset + span.trees.start, read_span(span, header), merged)


def read_trees(span: Span, header: Header) -> Iterator[TreeArrays]:
    """Yield the nodes of each tree of a span, checked. Raises FormatError as `read_span`."""
    for _, pieces in groupby(_tree_pieces([span], header), attrgetter("tree")):
        yield join_trees(list(pieces))


def _tree_pieces(spans: Iterable[Span], header: Header) -> Iterator[TreeArrays]:
    """Yield the nodes of spans, checked, in pieces of one tree each."""
    for piece in (piece for span in spans for piece in read_span(span, header)):
        for tree, (begin, end) in enumerate(pairwise(dict.fromkeys([0, *piece.starts.tolist()])), piece.tree):
            yield piece.rows(begin, end)._replace(tree=tree)
