"""The leaves of the out-of-bag rows of a tree, found in the task that grew the tree.

The tree, and the codes of the table, are still in memory, so nothing is read back. A tree that splits on features is in
codes; for one that splits on projections, values are looked up by codes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.forest.format.nodes import TreeArrays
from bigforest.forest.votes.leaf_files import LeftOut
from bigforest.grow.shared.feature_kinds import Features
from bigforest.kernels.columns.row_major import CACHE_BYTES
from bigforest.kernels.common.layout import Codes, RowMajorCodes, Terms
from bigforest.kernels.predict.route_codes import CodeScratch, CodeView, GrownSplits, find_leaves
from bigforest.kernels.predict.route_projections import ProjectedScratch, ProjectedSplits, find_projected_leaves
from bigforest.store.store import Dictionaries


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
