"""Trees loaded a group at a time: the position and the memory of each tree."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import damaged_forest
from bigforest.forest.format.checks import Nodes
from bigforest.forest.format.files import Header
from bigforest.forest.format.nodes import part_path
from bigforest.forest.format.parts import Span, check_count, check_order, check_parts, first_tree, part_paths, read_span
from bigforest.forest.load.flat_tree import FlatTrees
from bigforest.forest.load.flatten import load
from bigforest.forest.load.load_plan import loaded_tree_bytes


class Trees(NamedTuple):
    """Where the trees of a forest are, and their sizes; an entry is one tree after `survey`, one part after `outline`.

    directory, paths  the forest and its parts.
    header       what they agree on.
    first        int64 [entries + 1], number of the first tree of each entry, then the number of trees.
    part, start  int64 [entries], number of the part and row of it where the entry begins.
    nodes        int64 [entries].
    mixed        int64 [entries], leaves with several classes, or with values; 0 where unknown.
    entries      int64 [entries], terms of oblique nodes and levels of those on categories; 0 where unknown.
    used         int64, positions in the dataspec of the features that some node splits on, ascending, never empty;
                 None where unknown.
    projects     whether some node splits on a projection; False where unknown.
    lambdas      by what their leaves are shrunk, each of them; none where they are as grown.
    """

    directory: Path
    paths: Sequence[Path]
    header: Header
    first: NDArray[np.int64]
    part: NDArray[np.int64]
    start: NDArray[np.int64]
    nodes: NDArray[np.int64]
    mixed: NDArray[np.int64]
    entries: NDArray[np.int64]
    used: NDArray[np.int64] | None
    projects: bool = False
    lambdas: tuple[float, ...] = ()

    def sizes(self) -> NDArray[np.int64]:
        """Bytes that each entry takes while it is loaded."""
        width = self.header.spec.target.answer_width
        return loaded_tree_bytes(self.nodes, self.mixed, self.entries, width, len(self.lambdas))

    def numbers(self, entries: range) -> range:
        """The trees of some entries."""
        return range(int(self.first[entries.start]), int(self.first[entries.stop]))

    def spans(self, entries: range) -> list[Span]:
        """Where the trees of some entries are."""
        spans: list[Span] = []
        for entry in entries:
            path, start = self.paths[int(self.part[entry])], int(self.start[entry])
            stop = start + int(self.nodes[entry])
            if spans and spans[-1].path == path:
                start = spans.pop().start
            spans.append(Span(path, start, stop))
        return spans

    def load(self, entries: range, workers: int) -> FlatTrees:
        """The packed trees of some entries; they may use any feature of `used`.

        Raises FormatError where they are damaged, or not the trees they should be.
        """
        trees = self.numbers(entries)
        packed = load(self.spans(entries), self.header, trees.start, workers, self.used, self.lambdas)
        if packed.roots.size != len(trees):
            if entries.stop == self.nodes.size:
                check_count(self.directory, trees.start + packed.roots.size, self.header)
            tree = trees.start + min(packed.roots.size, len(trees))
            what = "is missing" if packed.roots.size < len(trees) else "is there more than once"
            raise damaged_forest(f"{self.directory}: tree {tree} {what}")
        return packed


def outline(directory: Path, parts: Sequence[range] | None = None) -> Trees:
    """What names and metadata of the parts say; checked when they are loaded.

    parts  the trees of each part to look at, of a forest that is growing; None for all that are there.
    """
    paths = part_paths(directory) if parts is None else [part_path(directory, part.start) for part in parts]
    header, spans = check_parts(paths)
    if parts is None:
        first = np.array([*map(first_tree, paths), max(header.config.trees, first_tree(paths[-1]) + 1)], np.int64)
        if first[0]:
            raise damaged_forest(f"{paths[0]}: tree 0 is missing")
    else:
        first = np.array([*(part.start for part in parts), parts[-1].stop], np.int64)
    nodes = np.array([span.stop for span in spans], np.int64)
    none = np.zeros(nodes.size, np.int64)
    return Trees(directory, paths, header, first, np.arange(nodes.size), none, nodes, none, none, None)


def survey(directory: Path, workers: int, parts: Sequence[range] | None = None) -> Trees:
    """Read and check all trees, or those of some parts (see `outline`), without keeping them.

    Memory: LOADING_BYTES per thread. Raises FormatError as `load` does.
    """
    from bigforest.execution.executor import map_on_threads

    rough = outline(directory, parts)
    spans = (Span(path, 0, nodes) for path, nodes in zip(rough.paths, rough.nodes.tolist(), strict=True))
    read = map_on_threads(_survey_part, [(span, rough.header) for span in spans], workers)
    nodes, mixed, entries = np.concatenate([part.sizes for part in read], axis=1)
    trees = [part.sizes.shape[1] for part in read]
    begin = int(rough.first[0])
    check_order(rough.paths, [part.first for part in read], trees, begin)
    if parts is None:
        check_count(directory, nodes.size, rough.header)
    present = np.logical_or.reduce([part.used for part in read])
    present[0] |= not present.any()
    return rough._replace(
        first=np.arange(begin, begin + nodes.size + 1),
        part=np.repeat(np.arange(len(read)), trees),
        start=np.concatenate([np.cumsum(part.sizes[0]) - part.sizes[0] for part in read]),
        nodes=nodes,
        mixed=mixed,
        entries=entries,
        used=np.flatnonzero(present),
        projects=any(part.projects for part in read),
    )


class _SurveyedPart(NamedTuple):
    """The first tree, int64 [3, trees], the `nodes`, `mixed` and `entries` of each, bool [features], and `projects`."""

    first: int
    sizes: NDArray[np.int64]
    used: NDArray[np.bool_]
    projects: bool


def _survey_part(span: Span, header: Header) -> _SurveyedPart:
    first, projects = -1, False
    used = np.zeros(len(header.spec.features), np.bool_)
    sizes: list[NDArray[np.int64]] = []
    for piece in read_span(span, header):
        first = piece.tree if first < 0 else first
        used[np.unique(piece.feature[piece.feature >= 0])] = True
        if piece.terms is not None:
            used[piece.terms.feature] = True
            projects |= piece.terms.feature.size > 0
        for begin, end in pairwise(dict.fromkeys([0, *piece.roots.tolist(), piece.node.size])):
            if piece.node[begin] == 0:
                sizes.append(np.zeros(3, np.int64))
            sizes[-1] += _stretch(piece, begin, end)
    return _SurveyedPart(first, np.array(sizes).T, used, projects)


def _stretch(piece: Nodes, begin: int, end: int) -> tuple[int, int, int]:
    """How many there are of nodes from `begin` to before `end`, and of mixed leaves, and terms and levels, in them."""
    from bigforest.kernels.predict.flatten import count_mixed

    mixed = int(count_mixed(piece.feature[begin:end], piece.counts[begin:end]))
    lists = [found.start for found in (piece.terms, piece.levels) if found is not None]
    return end - begin, mixed, sum(int(start[end] - start[begin]) for start in lists)
