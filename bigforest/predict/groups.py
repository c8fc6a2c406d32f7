"""Trees that are loaded in groups: positions and sizes of trees in files, and the division into groups.

Within a memory budget, the rows of a table are divided into ranges, and each group is loaded once for each range.
`choose_groups` chooses the groups and the number of rows of a range so that prediction takes the least time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.executor import Executor
from bigforest.forest.ballots import impure_leaves
from bigforest.forest.files import Header
from bigforest.forest.parts import (
    PIECE_BYTES,
    Span,
    check_parts,
    piece_rows,
    read_span,
)
from bigforest.planning.sizes import fitting
from bigforest.predict.packed_trees import PackedTrees, load

# Bytes of a node while trees are loaded.
NODE_BYTES = 16
# Bytes of an impure leaf for each class: its count and its vote.
IMPURE_LEAF_BYTES = 12
# Bytes of a term of an oblique node, or of a level of a node on a category: as read and as kept.
ENTRY_BYTES = 72
# Bytes of a shrunk value of a leaf: 8 in the pieces as computed, and 8 in the array that joins them.
SHRUNK_BYTES = 16

# Most bytes of reading trees, per thread: a piece, the arrays of its checks, and the buffers of Arrow. Measured.
LOADING_BYTES = 32 << 20
# Copies of a node that exist while trees are read, for small trees that take less than LOADING_BYTES.
_COPIES = 6

# Nanoseconds to load a node on one thread, and for each class in addition.
LOADING_NS = 60
COUNT_NS = 4

# Number of sizes of groups that are tried.
_CHOICES = 64


def loaded_tree_bytes(
    nodes: NDArray[np.int64], impure: NDArray[np.int64], entries: NDArray[np.int64], classes: int, lambdas: int = 0
) -> NDArray[np.int64]:
    """Return the bytes of each tree while it is loaded.

    nodes, impure, entries  numbers of nodes, of impure leaves, and of terms or levels of each tree.
    classes                 number of classes; 1 for regression.
    lambdas                 number of lambdas by which leaves are shrunk. If it is not 0, all leaves have values.
    """
    if lambdas:
        return NODE_BYTES * nodes + SHRUNK_BYTES * max(classes * lambdas, 2) * (nodes // 2 + 1) + ENTRY_BYTES * entries
    # The value of a regression leaf takes as much as the counts of two classes.
    return NODE_BYTES * nodes + IMPURE_LEAF_BYTES * max(classes, 2) * impure + ENTRY_BYTES * entries


def loading_bytes(nodes: int, classes: int) -> int:
    """Return the bytes per thread of reading trees with `nodes` nodes in all, at most LOADING_BYTES."""
    return min(LOADING_BYTES, _COPIES * PIECE_BYTES // piece_rows(classes) * nodes)


def group_bytes(sizes: NDArray[np.int64], groups: Sequence[range]) -> int:
    """Return the bytes of the largest group."""
    return max(int(sizes[group.start : group.stop].sum()) for group in groups)


def choose_groups(
    sizes: NDArray[np.int64], room: int, *, rows: int, classes: int, row_bytes: int, step: int, row_ns: float
) -> tuple[list[range], int]:
    """Choose the groups of entries, and the number of rows of a range, with the least time.

    For each range of rows, the groups are loaded in turn, and the rows are read for each group.

    sizes      int64 [entries], bytes of each entry.
    room       most bytes of a group and a range together; enough for the largest entry and `step` rows.
    rows       number of rows of the table.
    classes    number of classes of the target.
    row_bytes  bytes that are kept for a row of a range while groups are loaded in turn.
    step       the rows of a range are a multiple of it.
    row_ns     nanoseconds to read a row for a group.
    """
    total, largest = int(sizes.sum()), int(sizes.max())
    if total <= room:
        return [range(sizes.size)], rows
    most = max(largest, min(total, room - step * row_bytes))
    best: tuple[float, list[range], int] | None = None
    for bound in np.linspace(largest, most, _CHOICES).astype(np.int64).tolist():
        groups = fitting(range(sizes.size), sizes.tolist(), bound)
        left = room - group_bytes(sizes, groups)
        part = max(step, min(rows, left // row_bytes // step * step if left < rows * row_bytes else rows))
        loads = -(-rows // part) if len(groups) > 1 else 1
        load = float(total) / NODE_BYTES * (LOADING_NS + COUNT_NS * classes)
        time = loads * load + float(rows) * len(groups) * row_ns
        if best is None or time < best[0]:
            best = time, groups, part
    assert best is not None
    return best[1:]


class Trees(NamedTuple):
    """Files and sizes of consecutive trees of a forest. An entry is a tree after `survey`, a file after `outline`.

    parts          the files of trees, in order.
    header         common header of all files.
    first          int64 [entries + 1], entry e has the trees first[e]:first[e + 1].
    nodes          int64 [entries], number of nodes.
    impure_leaves  int64 [entries], leaves with several classes, or with values; 0 if unknown.
    list_entries   int64 [entries], terms of oblique nodes plus levels of nodes on categories; 0 if unknown.
    used           int64, positions in the dataspec of the features that nodes split on, ascending, never empty; None if
                   unknown.
    projects       True if a node splits on a projection; False if unknown.
    lambdas        lambdas of the leaf values; empty for leaves as grown.
    """

    parts: Sequence[Span]
    header: Header
    first: NDArray[np.int64]
    nodes: NDArray[np.int64]
    impure_leaves: NDArray[np.int64]
    list_entries: NDArray[np.int64]
    used: NDArray[np.int64] | None
    projects: bool = False
    lambdas: tuple[float, ...] = ()

    def sizes(self) -> NDArray[np.int64]:
        """Return the bytes of each entry while it is loaded, int64 [entries]."""
        width = self.header.spec.target.answer_width
        return loaded_tree_bytes(self.nodes, self.impure_leaves, self.list_entries, width, len(self.lambdas))

    def numbers(self, entries: range) -> range:
        """Return the numbers of the trees of some entries."""
        return range(int(self.first[entries.start]), int(self.first[entries.stop]))

    def spans(self, entries: range) -> list[Span]:
        """Return the spans of the trees of some entries: one for each file that contains any of these trees."""
        trees, spans, before = self.numbers(entries), list[Span](), 0
        begin, end = (int(self.nodes[:entry].sum()) for entry in (entries.start, entries.stop))
        for path, of_part, _, rows in self.parts:
            inside = range(max(trees.start, of_part.start), min(trees.stop, of_part.stop))
            if inside:
                spans.append(Span(path, inside, max(begin - before, 0), min(end - before, rows)))
            before += rows
        return spans

    def load(self, entries: range, workers: int, make: Callable[..., NDArray[Any]] | None = None) -> PackedTrees:
        """Load the trees of some entries. The trees may use any feature of `used`.

        make  function that makes the array of nodes from a shape and a type. If given, trees are loaded without counts,
              for routing rows; if None, for prediction

        Raises FormatError for damaged nodes, or if the files have other trees than when they were outlined.
        """
        return load(self.spans(entries), self.header, workers, self.used, self.lambdas, make)


def outline(directory: Path, parts: Sequence[range] | None = None) -> Trees:
    """Return the trees, an entry per file, with sizes from names and metadata. Loading checks the sizes.

    parts  as for `check_parts`
    """
    header, spans = check_parts(directory, parts)
    first = np.array([*(span.trees.start for span in spans), spans[-1].trees.stop], np.int64)
    nodes = np.array([span.stop for span in spans], np.int64)
    none = np.zeros(nodes.size, np.int64)
    return Trees(spans, header, first, nodes, none, none, None)


def survey(directory: Path, workers: int, parts: Sequence[range] | None = None) -> Trees:
    """Read and check all trees, or the trees of some parts (see `outline`), and return their sizes, an entry per tree.

    Memory: LOADING_BYTES per thread. Raises FormatError as `load` does.
    """
    rough = outline(directory, parts)
    read = Executor(workers).gather(_survey_part, [(part, rough.header) for part in rough.parts])
    sizes, used, projects = zip(*read, strict=True)
    nodes, impure, entries = np.concatenate(sizes, axis=1)
    begin = int(rough.first[0])
    present = np.logical_or.reduce(used)
    present[0] |= not present.any()
    return rough._replace(
        first=np.arange(begin, begin + nodes.size + 1),
        nodes=nodes,
        impure_leaves=impure,
        list_entries=entries,
        used=np.flatnonzero(present),
        projects=any(projects),
    )


def _survey_part(span: Span, header: Header) -> tuple[NDArray[np.int64], NDArray[np.bool_], bool]:
    """Return `nodes`, `impure_leaves` and `list_entries` of each tree of a file, int64 [3, trees]; used features, bool
    [features]; and `projects`."""
    projects = False
    used = np.zeros(len(header.spec.features), np.bool_)
    sizes: list[NDArray[np.int64]] = []
    for piece in read_span(span, header):
        used[piece.used] = True
        projects |= piece.terms is not None and piece.terms.feature.size > 0
        impure, entries = impure_leaves(piece.feature, piece.counts), piece.entries
        for begin, end in pairwise(dict.fromkeys([0, *piece.starts.tolist()])):
            if piece.depth[begin] == 0:
                sizes.append(np.zeros(3, np.int64))
            sizes[-1] += end - begin, np.count_nonzero(impure[begin:end]), entries[end] - entries[begin]
    return np.array(sizes).T, used, projects
