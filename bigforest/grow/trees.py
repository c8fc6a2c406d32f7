"""Convert trees in codes, as kernels grow them (`CodeTree`), to two other forms.

    CodeTree ── tree_arrays: thresholds, weights, gains ──► TreeArrays, the columns of the forest table
                                                                │ split_arrays, splits_of
                                                                ▼
    rows out of bag ── find_left_out ──────────────────────► GrownSplits, for routing rows

A tree that splits on features routes rows by codes. For a tree that splits on projections, values are looked up by
codes, or the cells are values already (`decoded`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.forest.leaf_votes import LeftOut
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.criteria import Criterion
from bigforest.grow.feature_kinds import Features
from bigforest.kernels.columns.project import LARGEST
from bigforest.kernels.common.layout import LEAF, Codes, CodeValues, LevelLists, RowMajorCodes, Terms
from bigforest.kernels.common.midpoint import midpoints
from bigforest.kernels.common.rng import PURPOSE_THRESHOLD, draw_rows, stream_key, to_fraction
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.predict.route_codes import CodeScratch, CodeView, GrownSplits, find_leaves
from bigforest.kernels.scan.categorical_missing import Subsets
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.tree.builder import CodeTree, Roots, Rules
from bigforest.kernels.tree.finalize import finalize_nodes
from bigforest.store.store import Dictionaries

# Rows of a node are read by rows if their codes take at most this many bytes of a core's second-level cache.
_CACHE_BYTES = 768 * 1024


class TreeRows(NamedTuple):
    """Rows, roots and rules of some trees, in the order of the arguments of `grow` (kernels/tree/grow.py).

    items  uint64 [rows of all trees], see kernels/common/node_scan.py
    """

    items: NDArray[np.uint64]
    target: ClassTarget | RegressionTarget
    roots: Roots
    rules: Rules


def tree_arrays(
    nodes: CodeTree,
    dictionaries: Dictionaries,
    criterion: Criterion,
    pool: DirectionExtras | None = None,
    thresholds: NDArray[np.float64] | None = None,
    subsets: Subsets | None = None,
    scale: tuple[float, float] = (0.0, 1.0),
) -> TreeArrays:
    """Return the columns of the forest table for trees `nodes` that were grown on codes of `dictionaries`.

    pool        directions and thresholds of oblique nodes; None for other trees
    thresholds  thresholds of all nodes; None to take the midpoints of the neighbouring values, except in oblique nodes
    subsets     data of the nodes for missing values and categories; None without these
    scale       offset and step of regression targets, see TargetSpec

    Missing values go to the child of more weight in nodes that had none in training; to the left if weights are equal.
    """
    size = nodes.feature.size
    roots = np.flatnonzero(nodes.depth == nodes.depth[0])
    root = np.repeat(roots, np.diff(np.append(roots, size)))
    known = pool.threshold if thresholds is None and pool is not None else thresholds
    threshold = np.empty(size) if known is None else known.copy()
    weight, gain, value = np.empty(size, np.uint64), np.empty(size), np.empty(size)
    default_left = np.empty(size, np.bool_)
    start = np.empty(size + 1, np.int64)  # of levels
    grown = (nodes, nodes.sum, subsets, dictionaries, thresholds is not None, criterion.impurity, scale)
    finalize_nodes(*grown, threshold, default_left, gain, weight, value, start)
    terms = None
    if pool is not None and pool.feature.size:
        terms = Terms(np.concatenate([[0], np.cumsum(pool.size, dtype=np.int64)]), pool.feature, pool.weight)
    return TreeArrays(
        feature=nodes.feature,
        right=np.where(nodes.feature == LEAF, 0, nodes.right - root).astype(np.uint32),
        depth=nodes.depth,
        threshold=threshold,
        default_left=default_left,
        gain=gain,
        weight=weight,
        counts=nodes.counts if nodes.sum is None else nodes.counts[:, :0],
        below=nodes.left_code,
        above=nodes.right_code,
        value=None if nodes.sum is None else value,
        levels=None if subsets is None or not start[-1] else LevelLists(start, subsets.level[: start[-1]]),
        terms=terms,
    )


class Ends(NamedTuple):
    """Neighbouring values that the thresholds of nodes separate, float64 [nodes]; undefined for other nodes."""

    below: NDArray[np.float64]
    above: NDArray[np.float64]

    @classmethod
    def of(cls, nodes: CodeTree, dictionaries: Dictionaries) -> Ends:
        """Look up the values of a tree in codes."""
        start = dictionaries.offsets[np.maximum(nodes.feature, 0)]
        return cls(dictionaries.high[start + nodes.left_code], dictionaries.low[start + nodes.right_code])

    def middle(self) -> NDArray[np.float64]:
        """Return thresholds half-way between, float64 [nodes]."""
        return midpoints(self.below, self.above)


def drawn_thresholds(ends: Ends, numbers: NDArray[np.uint64], seed: int, tree: int) -> NDArray[np.float64]:
    """Draw thresholds of random splits, uniform between the neighbouring values that they separate, float64 [nodes].

    numbers  numbers of the nodes in their tree

    The split was chosen by a threshold that is uniform over the range of the node (kernels/scan/random_split.py), and
    therefore uniform between the two neighbours that it separates. Growing does not keep this threshold. A new
    threshold, drawn by the number of the node, has the distribution of Geurts, Ernst and Wehenkel (2006, table 1).
    Infinite values count as the largest finite number. Entries of nodes without a threshold are undefined.
    """
    below, above = ends
    random = draw_rows(stream_key(seed, PURPOSE_THRESHOLD, tree, 0), numbers)
    with np.errstate(over="ignore", invalid="ignore"):
        share = to_fraction(random)
        drawn = np.maximum(below, -LARGEST) * (1.0 - share) + np.minimum(above, LARGEST) * share
    return np.where((below <= drawn) & (drawn < above), drawn, below)


def drawn_of_trees(nodes: CodeTree, dictionaries: Dictionaries, seed: int, first: int) -> NDArray[np.float64]:
    """Draw the thresholds of consecutive trees, from number `first` on."""
    below, above = Ends.of(nodes, dictionaries)
    bounds = pairwise([*np.flatnonzero(nodes.depth == 0).tolist(), nodes.depth.size])
    return np.concatenate(
        [
            drawn_thresholds(Ends(below[a:b], above[a:b]), np.arange(b - a, dtype=np.uint64), seed, tree)
            for tree, (a, b) in enumerate(bounds, first)
        ]
    )


def code_view(codes: Codes, by_row: RowMajorCodes) -> CodeView:
    """Return the codes of a table, by columns and by rows, for routing rows."""
    columns: tuple[NDArray[Any], ...] = codes[:3]
    rows: tuple[NDArray[Any], ...] = by_row[:3]
    u8, u16, u32, r8, r16, r32 = (read_only(matrix.reshape(-1)) for matrix in (*columns, *rows))
    widths, room = np.array([matrix.shape for matrix in columns], np.uint64).T.copy()
    row_bytes = sum(matrix.shape[1] * matrix.itemsize for matrix in rows)
    reach = np.uint64(_CACHE_BYTES // row_bytes if row_bytes else 0)
    return CodeView(u8, u16, u32, r8, r16, r32, room, widths, codes.place, reach)


def split_arrays(trees: TreeArrays) -> dict[str, NDArray[Any]]:
    """Return the arrays of TreeArrays that route rows, by name, for `splits_of`.

    Node i lists level[level_start[i]:level_start[i + 1]]. Its terms are term_start[i]:term_start[i + 1]: their features
    are in `term`, their weights in `weight`.
    """
    none = np.zeros(trees.feature.size + 1, np.int64)
    level_start, level = trees.levels or (none, np.empty(0, np.uint32))
    term_start, term, weight = trees.terms or (none, np.empty(0, np.int32), np.empty(0))
    plain = ("feature", "right", "below", "above", "threshold", "default_left")
    arrays = {name: getattr(trees, name) for name in plain}
    lists = {"level_start": level_start, "level": level}
    return arrays | lists | {"term_start": term_start, "term": term, "weight": weight}


def splits_of(
    arrays: Mapping[str, NDArray[Any]],
    dictionaries: Dictionaries,
    features: Features,
    *,
    projected: bool,
    decoded: bool = False,
) -> GrownSplits:
    """Return the splits of trees for the kernels.

    arrays     from `split_arrays`. `level_start` and `level` may be missing if no feature is a category; `above` and
               `threshold`, if `below` is the largest code of the table that goes left (out_of_core/out_of_bag.py
               cut_exactly)
    projected  nodes split on projections
    decoded    rows have values in place of codes
    """
    of = {name: read_only(array) for name, array in arrays.items()}
    nodes = of["feature"], of["right"], of.get("threshold")
    values = None if decoded else CodeValues(dictionaries.offsets, dictionaries.low)
    if projected:
        return GrownSplits(*nodes, terms=Terms(of["term_start"], of["term"], of["weight"]), values=values)
    level_start = of.get("level_start", read_only(np.empty(0, np.int64)))
    levels = LevelLists(level_start, of.get("level", read_only(np.empty(0, np.uint32))))
    kind = None if features.plain else features.kinds
    return GrownSplits(*nodes, of["below"], of.get("above"), of["default_left"], kind, levels, values=values)


def find_left_out(
    view: CodeView,
    splits: GrownSplits,
    root: int,
    bag: NDArray[np.uint16],
    *,
    depth: int,
    levels: int,
) -> LeftOut:
    """Return the out-of-bag rows of a tree, and their leaves.

    root    position of the root among the nodes of `splits`
    bag     how often each row of the table, or of a block, is in the bag, uint16 [rows]
    depth   depth of the deepest node
    levels  number of levels of the largest category, see Features
    """
    rows, leaf = np.flatnonzero(bag == 0).astype(np.uint32), np.empty(bag.size, np.uint32)
    spare, stack = np.empty(rows.size, np.uint32), np.empty((depth + 2, 3), np.uint64)
    read = np.empty(rows.size, np.uint32 if splits.terms is None else np.float64)
    scratch = CodeScratch(read, spare, stack, np.zeros(levels, np.bool_))
    find_leaves(view, splits, np.uint64(root), rows.copy(), leaf, scratch)
    return LeftOut(rows, leaf[rows])
