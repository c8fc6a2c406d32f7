"""Assemble a tree from its upper part and the subtrees below it, piece by piece in preorder, and cut it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.common.memory_estimate import release_freed
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.shared.cut import cut_nodes, decreases_in_tree, heap_size
from bigforest.grow.shared.tree_arrays import Ends
from bigforest.kernels.common.layout import LEAF
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.scan.categorical_missing import Subsets
from bigforest.kernels.tree.builder import CodeTree
from bigforest.kernels.tree.cut import CutRules, cut_trees
from bigforest.storage.array_file import read_arrays, write_arrays
from bigforest.storage.paths import local_workdir
from bigforest.store.store import Store

# Next to the file of a subtree: the values between which its thresholds are.
_ENDS = ".ends"
# Bytes of zeros that are written at a time.
_ZEROS = 1 << 20
# Values that are looked up at a time.
_LOOKED_UP = 1 << 16
# The arrays of a CodeTree, and of Subsets and DirectionExtras those that nodes have; others are empty.
_TYPES = {
    "feature": "<i4",
    "right": "<u4",
    "depth": "<u4",
    "left_code": "<u4",
    "right_code": "<u4",
    "counts": "<u4",
    "sums": "<i8",
    "missing": "<u1",
    "size": "<u4",
    "level": "<u4",
    "threshold": "<f8",
    "terms": "<u4",
    "term": "<i4",
    "weight": "<f8",
}
_END_TYPES = {"below": "<f8", "above": "<f8"}

# Nodes, and their further data.
Subtree = tuple[CodeTree, Subsets | DirectionExtras | None]


def write_subtree(path: Path, nodes: CodeTree, extras: Subsets | DirectionExtras | None) -> int:
    """Keep a finished subtree in a file of its own (storage/array_file.py); gives its nodes."""
    subsets = extras[:-1] if isinstance(extras, Subsets) else [None] * 3
    directions = extras[:-1] if isinstance(extras, DirectionExtras) else [None] * 4
    given = (*nodes, *subsets, *directions)
    write_arrays(path, _TYPES, *(np.empty(0) if array is None else array for array in given))
    return nodes.feature.size


def read_subtree(path: Path) -> Subtree:
    """Inverse of `write_subtree`. Raises FormatError for a damaged file."""
    *nodes, sums, missing, size, level, threshold, terms, term, weight = read_arrays(path, _TYPES)
    extras: Subsets | DirectionExtras | None = None
    if missing.size:
        extras = Subsets(missing, size, level, np.array([level.size], np.uint64))
    elif threshold.size:
        extras = DirectionExtras(threshold, terms, term, weight, np.array([term.size], np.uint64))
    return CodeTree._make((*nodes, sums if sums.size else None)), extras


def look_up_thresholds(store: Store, paths: Sequence[Path]) -> None:
    """Task: find the values between which the thresholds of the subtrees in `paths` are, and keep each one's beside it.

    Together, in ascending order of their places in the dictionaries: these may be larger than memory, and a cold map
    read at random costs a page for every node. Memory: 32 bytes per split, one per node, and a subtree. Raises
    FormatError for a damaged file.
    """
    dictionaries = store.dictionaries
    subtrees = [_places(path, dictionaries.offsets) for path in paths]
    place = np.concatenate([places for places, _ in subtrees], axis=1).reshape(-1)
    inner = [splits for _, splits in subtrees]
    del subtrees
    order = np.argsort(place)
    ends = place.view(np.float64)  # each where its place was
    for first in range(0, order.size, _LOOKED_UP):
        some = order[first : first + _LOOKED_UP]
        below = some < order.size // 2
        for values, nodes in ((dictionaries.high, some[below]), (dictionaries.low, some[~below])):
            ends[nodes] = values[place[nodes]]
    stops = np.cumsum([np.count_nonzero(splits) for splits in inner])[:-1]
    for path, splits, here in zip(paths, inner, np.split(ends.reshape(2, -1), stops, axis=1), strict=True):
        whole = np.full((2, splits.size), np.nan)
        whole[:, splits] = here
        write_arrays(path.with_suffix(_ENDS), _END_TYPES, *whole)
    release_freed()


def _places(path: Path, offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where in the dictionaries the values below and above the thresholds of a subtree are, int64 [2, splits], and
    which of its nodes are split, bool [nodes]."""
    nodes = read_subtree(path)[0]
    inner = nodes.feature >= 0
    return offsets[nodes.feature[inner]] + np.stack([nodes.left_code[inner], nodes.right_code[inner]]), inner


def read_ends(path: Path) -> Ends:
    """The values that `look_up_thresholds` wrote for the subtree in `path`. Raises FormatError for a damaged file."""
    return Ends(*read_arrays(path.with_suffix(_ENDS), _END_TYPES))


def files_of_subtree(path: Path) -> list[Path]:
    """The files of a subtree, of which the second may not be there."""
    return [path, path.with_suffix(_ENDS)]


def cut_pieces(
    pieces: Callable[[], Iterator[TreeArrays]], nodes: int, rules: CutRules, folder: Path
) -> Iterator[TreeArrays]:
    """The pieces of a tree of this many nodes, cut; they are read twice.

    What is known of all nodes is in files of `folder` without a name, which are mapped: the system has their pages in
    memory as long as there is room.
    """
    with local_workdir(folder) as work:
        right, number = (_mapped_zeros(work, np.uint32, nodes) for _ in range(2))
        decrease, inner = (_mapped_zeros(work, kind, nodes) for kind in (np.float64, np.bool_))
        heap = _mapped_zeros(work, np.int64, heap_size(nodes, rules))
    begin, root = 0, np.uint64(1)
    for piece in pieces():
        end = begin + piece.feature.size
        root = piece.weight[0] if begin == 0 < end else root
        right[begin:end] = piece.right
        decrease[begin:end] = decreases_in_tree(piece, root)
        begin = end
    cut_trees(np.array([0, nodes]), right, decrease, rules, number, inner, heap)
    begin = 0
    for piece in pieces():
        end = begin + piece.feature.size
        yield cut_nodes(piece, number[begin:end], inner[begin:end], number[piece.right])
        begin = end


def _mapped_zeros(folder: Path, kind: Any, size: int) -> NDArray[Any]:
    """An array of zeros in a file without a name, which is gone with it."""
    left = size * np.dtype(kind).itemsize
    with tempfile.TemporaryFile(dir=folder) as file:
        while left:  # written, so that a full disk is an error here rather than the end of the process
            left -= file.write(bytes(min(left, _ZEROS)))
        file.flush()
        return np.asarray(np.memmap(file, kind, "r+"))


def renumbered(nodes: TreeArrays, left: NDArray[Any], right: NDArray[Any]) -> TreeArrays:
    """The nodes with these numbers of their children; leaves have none."""
    inner = nodes.feature != LEAF
    left, right = (np.where(inner, side, 0).astype(np.uint32) for side in (left, right))
    return nodes._replace(left=left, right=right)
