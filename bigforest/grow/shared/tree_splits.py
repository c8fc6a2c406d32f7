"""Trees that have just been grown, and the rows of a table, in the form in which kernels send rows down trees.

A tree that splits on features is in codes. For one that splits on projections, values are looked up by codes, or are
there in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.common.arrays import read_only
from bigforest.forest.format.nodes import TreeArrays
from bigforest.forest.votes.leaf_files import LeftOut
from bigforest.grow.shared.feature_kinds import Features
from bigforest.kernels.columns.row_major import CACHE_BYTES
from bigforest.kernels.common.layout import Codes, RowMajorCodes
from bigforest.kernels.predict.route_codes import CodeScratch, CodeView, GrownSplits, find_leaves
from bigforest.kernels.predict.route_projections import ProjectedScratch, ProjectedSplits, find_projected_leaves
from bigforest.store.store import Dictionaries


def code_view(codes: Codes, by_row: RowMajorCodes) -> CodeView:
    """The codes, for routing rows."""
    columns: tuple[NDArray[Any], ...] = codes[:3]
    rows: tuple[NDArray[Any], ...] = by_row[:3]
    u8, u16, u32, r8, r16, r32 = (read_only(matrix.reshape(-1)) for matrix in (*columns, *rows))
    widths, room = np.array([matrix.shape for matrix in columns], np.uint64).T.copy()
    width = sum(matrix.shape[1] * matrix.itemsize for matrix in rows)
    reach = np.uint64(CACHE_BYTES // width if width else 0)
    return CodeView(u8, u16, u32, r8, r16, r32, room, widths, codes.place, reach)


def split_arrays(trees: TreeArrays) -> dict[str, NDArray[Any]]:
    """What the nodes of trees split on: arrays of TreeArrays; levels and terms, those of a node from where `lists` and
    `parts` say; these end with where the last ones end."""
    none = np.zeros(trees.feature.size + 1, np.int64)
    lists, level = trees.levels or (none, np.empty(0, np.uint32))
    parts, term, weight = trees.terms or (none, np.empty(0, np.int32), np.empty(0))
    given = ("feature", "right", "below", "above", "threshold", "default_left")
    arrays = {name: getattr(trees, name) for name in given}
    return arrays | {"lists": lists, "level": level, "parts": parts, "term": term, "weight": weight}


def splits_of(
    arrays: Mapping[str, NDArray[Any]],
    dictionaries: Dictionaries,
    features: Features,
    *,
    projected: bool,
    decoded: bool = False,
) -> GrownSplits | ProjectedSplits:
    """What nodes split on, for the kernels. projected: whether on projections; decoded: whether rows have values in
    place of codes. Levels are needed only where features are categories."""
    of = {name: read_only(array) for name, array in arrays.items()}
    offsets, low, _ = dictionaries
    if projected:
        nodes = of["feature"], of["right"], of["threshold"]
        return ProjectedSplits(*nodes, of["parts"], of["term"], of["weight"], offsets, None if decoded else low)
    codes = of["feature"], of["right"], of["below"], of["above"], of["threshold"], of["default_left"]
    lists = of.get("lists", read_only(np.empty(0, np.int64))), of.get("level", read_only(np.empty(0, np.uint32)))
    return GrownSplits(*codes, offsets, low, None if features.plain else features.kinds, *lists)


def find_left_out(
    view: CodeView,
    splits: GrownSplits | ProjectedSplits,
    root: int,
    bag: NDArray[np.uint16],
    *,
    depth: int,
    levels: int,
) -> LeftOut:
    """The rows that are not in the bag of a tree, and their leaves.

    root    position of the root among the nodes of `splits`
    bag     how often each row of the table, or of a block, is in the bag, uint16 [rows]
    depth   of the deepest node
    levels  of the largest category, see Features
    """
    rows, leaf = np.flatnonzero(bag == 0).astype(np.uint32), np.empty(bag.size, np.uint32)
    spare, stack = np.empty(rows.size, np.uint32), np.empty((depth + 2, 3), np.uint64)
    tree = (view, splits, np.uint64(root), rows.copy(), leaf)
    if isinstance(splits, ProjectedSplits):
        find_projected_leaves(*tree, ProjectedScratch(spare, np.empty(rows.size), stack))
    else:
        find_leaves(*tree, CodeScratch(spare, stack, np.zeros(levels, np.bool_)))
    return LeftOut(rows, leaf[rows])
