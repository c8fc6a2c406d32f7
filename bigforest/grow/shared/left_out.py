"""The leaves of the out-of-bag rows of a tree, found in the task that grew the tree.

The tree, and the codes of the table, are still in memory, so nothing is read back. A tree that splits on features is in
codes; for one that splits on projections, values are looked up by codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.forest.format.nodes import TreeArrays
from bigforest.forest.load.leaf_shrinking import lambdas_to_try
from bigforest.forest.votes.ballots import Ballots, GrownNodes, ballots_of, join_ballots, loaded_bytes
from bigforest.forest.votes.leaf_files import (
    FILE_BYTES,
    LeafChunk,
    leaf_chunk_rows,
    leaves_path,
    write_ballots,
    write_leaves,
)
from bigforest.grow.shared.feature_kinds import Features
from bigforest.kernels.columns.row_major import CACHE_BYTES
from bigforest.kernels.common.layout import Codes, RowMajorCodes, Terms
from bigforest.kernels.predict.route_codes import CodeScratch, CodeView, GrownSplits, find_leaves
from bigforest.kernels.predict.route_projections import ProjectedScratch, ProjectedSplits, find_projected_leaves
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Dictionaries, Store


def code_view(codes: Codes, by_row: RowMajorCodes) -> CodeView:
    """The codes, for routing rows."""
    columns: tuple[NDArray[Any], ...] = codes[:3]
    rows: tuple[NDArray[Any], ...] = by_row[:3]
    u8, u16, u32, r8, r16, r32 = (_read_only(matrix.reshape(-1)) for matrix in (*columns, *rows))
    width = sum(matrix.shape[1] * matrix.itemsize for matrix in rows)
    return CodeView(
        u8,
        u16,
        u32,
        r8,
        r16,
        r32,
        np.full(3, codes.u8.shape[1], np.uint64),
        np.array([matrix.shape[0] for matrix in columns], np.uint64),
        codes.place,
        np.uint64(CACHE_BYTES // width if width else 0),
    )


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The array as if it were of a file; other flags would be compiled apart."""
    found = array.view()
    found.flags.writeable = False
    return found


class LeftOut(NamedTuple):
    """Rows that are not in the bag of a tree, uint32, ascending, and the number of the leaf of each, uint32."""

    rows: NDArray[np.uint32]
    leaves: NDArray[np.uint32]


def leaves_of(
    view: CodeView,
    dictionaries: Dictionaries,
    features: Features,
    trees: TreeArrays,
    left_out: list[NDArray[np.uint32]],
) -> list[LeftOut]:
    """For each of the trees grown together, the leaves of its rows in `left_out`."""
    lists = trees.levels
    start = np.zeros(trees.feature.size + 1, np.int64) if lists is None else lists.start
    level = np.empty(0, np.uint32) if lists is None else lists.code
    splits = GrownSplits(
        _read_only(trees.feature),
        _read_only(trees.right),
        _read_only(trees.below),
        _read_only(trees.above),
        _read_only(trees.threshold),
        _read_only(trees.default_left),
        dictionaries.offsets,
        dictionaries.low,
        None if features.plain else features.kinds,
        _read_only(start),
        _read_only(level),
    )
    most = max(map(len, left_out))
    scratch = CodeScratch(
        np.empty(most, np.uint32),
        np.empty((int(trees.depth.max()) + 2, 3), np.uint64),
        np.zeros(features.largest, np.bool_),
    )
    leaf = np.empty(max((int(rows[-1]) + 1 for rows in left_out if rows.size), default=0), np.uint32)
    found = []
    for root, rows in zip(np.flatnonzero(trees.depth == 0).tolist(), left_out, strict=True):
        find_leaves(view, splits, np.uint64(root), rows.copy(), leaf, scratch)
        found.append(LeftOut(rows, leaf[rows]))
    return found


def projected_leaves_of(
    view: CodeView, dictionaries: Dictionaries, trees: TreeArrays, left_out: list[NDArray[np.uint32]]
) -> list[LeftOut]:
    """`leaves_of` trees that split on projections."""
    terms = trees.terms
    if terms is None:  # all trees are leaves
        terms = Terms(np.zeros(trees.feature.size + 1, np.int64), np.empty(0, np.int32), np.empty(0))
    splits = ProjectedSplits(
        trees.feature, trees.right, trees.threshold, *terms, dictionaries.offsets, dictionaries.low
    )
    most = max(map(len, left_out))
    stack = np.empty((int(trees.depth.max()) + 2, 3), np.uint64)
    scratch = ProjectedScratch(np.empty(most, np.uint32), np.empty(most), stack)
    leaf = np.empty(max((int(rows[-1]) + 1 for rows in left_out if rows.size), default=0), np.uint32)
    found = []
    for root, rows in zip(np.flatnonzero(trees.depth == 0).tolist(), left_out, strict=True):
        find_projected_leaves(view, splits, np.uint64(root), rows.copy(), leaf, scratch)
        found.append(LeftOut(rows, leaf[rows]))
    return found


class LeafWriter:
    """Writes files of the leaves of left out rows, of consecutive trees some at a time."""

    def __init__(self, store: Store, config: TrainConfig, directory: Path, first: int) -> None:
        """first: number of the first tree."""
        self._rows = store.rows
        self._classes = max(1, len(store.spec.target.classes))
        self._wide = store.spec.wide_weights
        self._lambdas = len(lambdas_to_try(config, store.rows, self._classes))
        self._held = 0
        self._directory = directory
        self._first = first
        self._found: list[LeftOut] = []
        self._ballots: list[Ballots] = []

    def add(self, found: list[LeftOut], trees: TreeArrays) -> None:
        """Add trees that were grown together."""
        first = np.append(np.flatnonzero(trees.depth == 0), trees.depth.size)
        nodes = GrownNodes(first, trees.feature, trees.weight, trees.counts, trees.value)
        self.put(found, ballots_of(nodes, self._wide))

    def put(self, found: list[LeftOut], ballots: Ballots) -> None:
        """Add trees with these ballots. A file is full when it, or its ballots when loaded, reach FILE_BYTES."""
        self._found += found
        self._ballots.append(ballots)
        self._held += sum(own.rows.nbytes + own.leaves.nbytes for own in found)
        sizes = np.array([ballots.ballot.size]), np.array([len(ballots.mixed)])
        self._held += int(loaded_bytes(*sizes, self._classes, self._lambdas)[0])
        if self._held >= FILE_BYTES:
            self.write()

    def write(self) -> None:
        """Write the trees added so far."""
        if not self._found:
            return
        path, trees = leaves_path(self._directory, self._first), range(self._first, self._first + len(self._found))
        write_ballots(path, join_ballots(self._ballots, self._classes))
        write_leaves(path, trees, self._rows, self._classes, self._chunks())
        self._first = trees.stop
        self._found, self._ballots, self._held = [], [], 0

    def _chunks(self) -> Iterator[LeafChunk]:
        step = leaf_chunk_rows(self._classes)
        starts = np.arange(0, self._rows + step, step)
        cuts = [np.searchsorted(found.rows, starts) for found in self._found]
        for number, start in enumerate(starts[:-1].tolist()):
            here = [(found, slice(*cut[number : number + 2])) for found, cut in zip(self._found, cuts, strict=True)]
            rows = np.concatenate([found.rows[own] for found, own in here])
            leaves = np.concatenate([found.leaves[own] for found, own in here])
            counts = np.array([own.stop - own.start for _, own in here], np.uint32)
            yield LeafChunk((rows - np.uint32(start)).astype(np.uint16), leaves, counts)
