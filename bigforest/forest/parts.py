"""Reading the nodes of a forest, some at a time. They are untrusted until `check_nodes` has passed them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigforest.encode.dataspec import DataSpec
from bigforest.errors import FormatError
from bigforest.forest.files import Header, check_bytes, check_file, open_parquet
from bigforest.forest.levels import check_levels, read_forest_levels
from bigforest.forest.lists import join_lists
from bigforest.forest.table import KINDS, NODES
from bigforest.forest.terms import check_terms
from bigforest.kernels.layout import LEAF, OBLIQUE, LevelLists, Terms
from bigforest.places import readable

_PART = re.compile(r"part-(\d{7,})\.parquet")

# Bytes of decoded nodes held at a time, of one of them besides its counts, terms and levels, and of one of those.
PIECE_BYTES = 2 << 20
NODE_BYTES = 80
ENTRY_BYTES = 32

# What kernels/packing.py check_nodes finds, by its number.
_PROBLEMS = (
    "",
    "a left child does not follow its parent",
    "a right child is not where the left subtree ends",
    "a depth is not that of the parent plus one",
    "a tree ends too early or too late",
    "counts do not add up to the weight, or are all 0",
    "trees are not numbered consecutively",
    "nodes are not numbered 0, 1, 2, ...",
)


class Span(NamedTuple):
    """Rows `start` to before `stop` of the part `path`, which are whole trees."""

    path: Path
    start: int
    stop: int


class Nodes(NamedTuple):
    """Checked nodes that follow each other, with one entry per node in all but the first two.

    tree        number of the tree of the first of them
    roots       int64, positions of the roots among them
    node        uint32, number within the tree
    feature     int32, position in the dataspec; LEAF or OBLIQUE (kernels/layout.py) where there is none
    right       uint32, number of the right child within the tree; anything in a leaf
    threshold   float64; anything in a leaf and on a category
    default_left  bool; anything in leaves and oblique nodes
    counts      uint32 [nodes, classes], without classes where numbers are predicted
    value       float64, finite; None where classes are predicted
    levels      what nodes on categories list; None when there are none
    terms       the directions of oblique nodes; None when there are none
    """

    tree: int
    roots: NDArray[np.int64]
    node: NDArray[np.uint32]
    feature: NDArray[np.int32]
    right: NDArray[np.uint32]
    threshold: NDArray[np.float64]
    default_left: NDArray[np.bool_]
    counts: NDArray[np.uint32]
    value: NDArray[np.float64] | None = None
    levels: LevelLists | None = None
    terms: Terms | None = None

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where trees begin, and the end of the last, int64 [trees + 1]."""
        return np.append(self.roots, self.feature.size)


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


def first_tree(path: Path) -> int:
    """The first tree of a part, by its name."""
    found = _PART.fullmatch(path.name)
    assert found is not None
    return int(found[1])


def check_parts(paths: list[Path]) -> Header:
    """Check metadata and columns of all parts and that they are of one forest; what they agree on, with its levels."""
    header, _ = check_file(paths[0], "trees", NODES)
    for path in paths[1:]:
        check_file(path, "trees", NODES, header.identity)
    return header._replace(levels=read_forest_levels(paths[0].parent.parent, header))


def node_count(path: Path) -> int:
    """Rows that a part says it has. Raises FormatError when it is not a readable Parquet file."""
    try:
        return int(pq.read_metadata(readable(path)).num_rows)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not a readable Parquet file ({error}); the forest is damaged") from error


def whole_parts(paths: list[Path]) -> list[Span]:
    """Everything that the parts say they hold."""
    return [Span(path, 0, node_count(path)) for path in paths]


def piece_rows(classes: int, entries: float = 0.0) -> int:
    """Nodes decoded at a time: as many as PIECE_BYTES hold, so that offsets into their counts fit in 31 bits too.

    entries  terms and levels of a node, on average
    """
    return max(1, int(PIECE_BYTES / (NODE_BYTES + 4 * classes + ENTRY_BYTES * entries)))


def read_span(span: Span, header: Header) -> Iterator[Nodes]:
    """The checked nodes of a span, some at a time.

    The bytes of the whole file are checked first where the span starts with it. Memory: a few times PIECE_BYTES. Raises
    FormatError for a part that is damaged, once the damage is reached; what came before is sound, but may be a part of
    a tree.
    """
    from bigforest.kernels import packing

    if span.start == 0:
        check_bytes(span.path)
    state = np.zeros(5, np.int64)
    state[packing.WHOLE] = 1
    waiting = np.empty((0, 2), np.uint32)
    done = 0
    for batch in batches(span, len(header.spec.target.classes)):
        if done == 0:
            state[packing.TREE] = batch.column("tree")[0].as_py() - 1
        done += batch.num_rows
        room = int(state[packing.OPEN]) + batch.num_rows
        if len(waiting) < room:
            more = np.empty((max(room, 2 * len(waiting)), 2), np.uint32)
            more[: state[packing.OPEN]] = waiting[: state[packing.OPEN]]
            waiting = more
        yield _check_batch(batch, header, span.path, state, waiting)
    if done == 0:
        raise FormatError(f"{span.path}: there are no nodes; the forest is damaged")
    if done != span.stop - span.start:
        raise FormatError(f"{span.path} has fewer rows than it says; the forest is damaged")
    if state[packing.WHOLE] == 0:
        raise FormatError(f"{span.path}: {_PROBLEMS[packing.WRONG_END]}; the forest is damaged")


def batches(span: Span, classes: int, columns: list[str] | None = None) -> Iterator[Any]:
    """The rows of a span as record batches of about PIECE_BYTES; of the named columns, all when None."""
    try:
        file = open_parquet(span.path)
        begin = 0
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            end = begin + group.num_rows
            if begin < span.stop and end > span.start:
                size = piece_rows(classes, _entries_per_node(group))
                for batch in file.iter_batches(size, row_groups=[number], columns=columns, use_threads=False):
                    first, last = max(span.start - begin, 0), min(span.stop - begin, batch.num_rows)
                    begin += batch.num_rows
                    if first < last:
                        wanted = batch.slice(first, last - first)
                        wanted.validate(full=True)
                        yield wanted
            begin = end
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{span.path} cannot be decoded ({error}); the forest is damaged") from error


def join_nodes(pieces: Sequence[Nodes]) -> Nodes:
    """Pieces that follow each other as one."""
    sizes = [piece.node.size for piece in pieces]
    begins = np.cumsum(sizes) - sizes
    roots = np.concatenate([piece.roots + begin for piece, begin in zip(pieces, begins, strict=True)])
    values = [piece.value for piece in pieces if piece.value is not None]
    columns = map(np.concatenate, zip(*(piece[2:-3] for piece in pieces), strict=True))
    levels = join_lists([piece.levels for piece in pieces], sizes)
    terms = join_lists([piece.terms for piece in pieces], sizes)
    value = np.concatenate(values) if values else None
    return Nodes._make([pieces[0].tree, roots, *columns, value, levels, terms])


def _entries_per_node(group: pq.RowGroupMetaData) -> float:
    """Terms and levels of a node of a row group, on average, as its metadata says."""
    values = dict.fromkeys(("terms", "levels"), 0)
    for number in range(group.num_columns):
        column = group.column(number)
        name = column.path_in_schema.partition(".")[0]
        if name in values:
            values[name] = max(values[name], int(column.num_values))
    # A node without any counts as one value.
    return sum(max(0.0, count / max(1, int(group.num_rows)) - 1.0) for count in values.values())


def check_order(paths: Sequence[Path], firsts: Sequence[int], trees: Sequence[int], expected: int = 0) -> None:
    """Raise FormatError unless files that begin with the trees `firsts` and hold so many follow from `expected` on."""
    for path, first, count in zip(paths, firsts, trees, strict=True):
        if first != expected:
            what = "is missing" if first > expected else "is there more than once"
            raise FormatError(f"{path}: tree {min(expected, first)} {what}; the forest is damaged")
        expected += count


def check_count(directory: Path, trees: int, header: Header) -> None:
    """Raise FormatError unless the `trees` found are those the configuration asked for."""
    if trees != header.config.trees:
        raise FormatError(
            f"{directory} holds {trees} trees and {header.config.trees} were asked for; grow the forest again"
        )


def _check_batch(
    batch: Any, header: Header, path: Path, state: NDArray[np.int64], waiting: NDArray[np.uint32]
) -> Nodes:
    """The arrays of a record batch of schema NODES, which must go on where `state` stands (see check_nodes).

    Raises FormatError naming `path` otherwise.
    """
    from bigforest.kernels.packing import check_nodes

    def require(sound: object, problem: str) -> None:
        if not sound:
            raise FormatError(f"{path}: {problem}; the forest is damaged")

    spec = header.spec
    column = {name: batch.column(name) for name in NODES.names}
    leaf, category, oblique = (_of_kind(column["kind"], name, require) for name in ("leaf", "category", "oblique"))
    for names, null, where in (
        (("left", "right", "gain"), leaf, "in leaves and nowhere else"),
        (("threshold",), leaf | category, "but in axis and oblique nodes"),
        (("feature", "default_left"), leaf | oblique, "but in axis nodes and those on a category"),
        (("levels",), ~category, "but in nodes on a category"),
        (("terms",), ~oblique, "but in oblique nodes"),
    ):
        for name in names:
            require(np.array_equal(_nulls(column[name]), null), f"{name} must be null {where}")
    feature = _features(column["feature"], category, leaf, oblique, spec, require)
    levels = check_levels(column["levels"], feature, header.levels, spec, require) if category.any() else None
    terms = check_terms(column["terms"], spec, require) if oblique.any() else None
    threshold = _numbers(column["threshold"])
    require(not np.isnan(threshold)[~leaf & ~category].any(), "a threshold is not a number")
    require(not np.isnan(_numbers(column["gain"]))[~leaf].any(), "a gain is not a number")
    default_left = column["default_left"].fill_null(False).to_numpy(zero_copy_only=False)
    counts, value = _answers(column["counts"], column["value"], spec, require)
    numbers = {name: _numbers(column[name]) for name in ("tree", "node", "left", "right", "depth", "weight")}
    tree, node, left, right, depth, weight = numbers.values()
    found = check_nodes(state, tree, node, leaf, left, right, depth, weight, counts, waiting)
    require(found == 0, _PROBLEMS[found])
    roots = np.flatnonzero(node == 0)
    return Nodes(int(tree[0]), roots, node, feature, right, threshold, default_left, counts, value, levels, terms)


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
    column: Any,
    category: NDArray[np.bool_],
    leaf: NDArray[np.bool_],
    oblique: NDArray[np.bool_],
    spec: DataSpec,
    require: Any,
) -> NDArray[np.int32]:
    place = {feature.name: position for position, feature in enumerate(spec.features)}
    known = np.array([place.get(name, LEAF) for name in column.dictionary.to_pylist()] + [LEAF], dtype=np.int32)
    index = column.indices.fill_null(-1).to_numpy()
    feature = known[index]
    without = leaf | oblique
    require(np.array_equal(feature == LEAF, without), "a node splits on a feature that the dataspec does not have")
    of_category = np.array([own.kind == "category" for own in spec.features] + [False])  # the last is that of LEAF
    require(np.array_equal(of_category[feature], category), "a node is of another kind than the feature it splits on")
    feature[oblique] = OBLIQUE
    return feature  # type: ignore[no-any-return]


def _answers(
    counts: Any, value: Any, spec: DataSpec, require: Any
) -> tuple[NDArray[np.uint32], NDArray[np.float64] | None]:
    """Counts of classes, or values and no counts."""
    if spec.target.task == "regression":
        require(counts.null_count == len(counts), "counts must be null where numbers are predicted")
        require(value.null_count == 0, "a node has no value")
        values = _numbers(value)
        require(np.isfinite(values).all(), "a value is not finite")
        return np.zeros((len(values), 0), np.uint32), values
    classes = len(spec.target.classes)
    require(value.null_count == len(value), "value must be null where classes are predicted")
    require(counts.null_count == 0, "a node has no counts")
    lengths = np.diff(counts.offsets.to_numpy())
    require((lengths == classes).all(), f"counts must hold one number for each of the {classes} classes")
    return counts.flatten().to_numpy().reshape(-1, classes), None
