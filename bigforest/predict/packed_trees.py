"""Trees packed for prediction: read and checked a piece at a time, packed file by file, then joined.

A node is two words, 16 bytes. Nodes are in preorder, so the left child of a node is the next node. A tree on two
classes, whose third node is impure:

    x3 <= 0.5                  node  word 0            word 1
    |-- 4 rows of class 1      0     0.5               feature 3 | missing values go left | right child 2 nodes on
    `-- 5 rows of class 0,     1     NaN, ballot 1     0
        2 of class 1           2     NaN, ballot 2     0

A NaN marks a leaf; its lowest bits are the ballot. A ballot below the number of classes is one vote for that class. The
ballot classes + r means the votes in row r of `leaf_votes`, here 5/7 and 2/7. If leaves have values (regression,
shrinkage, weighted trees), each leaf has a row. The number of a feature is its position among the used features.
Oblique nodes and nodes on categories link to their terms and levels in separate arrays (Directions, LevelSets). The
bits of a word are described in kernels/predict/flat_tree.py.

To route rows of the store, thresholds are replaced by codes, so that rows need not be decoded (`replace_thresholds`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.columns.dataspec import DataSpec
from bigforest.errors import FormatError
from bigforest.execution.executor import Executor
from bigforest.forest.ballots import LeafShrinking, impure_leaves
from bigforest.forest.files import Header
from bigforest.forest.nodes import TreeArrays, join_lists, nonempty_lists
from bigforest.forest.parts import Span, read_span
from bigforest.kernels.common.layout import LEAF, LevelLists, Terms
from bigforest.store.store import Store

if TYPE_CHECKING:
    from bigforest.kernels.predict.flat_tree import Directions, LevelSets, NodeLayout


class PackedTrees(NamedTuple):
    """Consecutive trees, packed.

    layout      the nodes
    directions  directions of oblique nodes; None without oblique nodes
    sets        level sets of nodes on categories; None without nodes on categories
    roots       uint64 [trees], positions of the roots among the nodes
    used        int64 [used features], positions in the dataspec, ascending; never empty
    counts      uint32 [impure leaves, classes], or uint64 for wide weights: class counts of impure leaves.
                For regression, or if values are shrunk, the values of all leaves: float64 [leaves, lambdas], or
                [leaves, classes * lambdas]
    """

    layout: NodeLayout
    directions: Directions | None
    sets: LevelSets | None
    roots: NDArray[np.uint64]
    used: NDArray[np.int64]
    counts: NDArray[Any]

    @property
    def nodes(self) -> int:
        return self.layout.links.size // 2

    def leaf_nodes(self) -> list[NDArray[np.uint32]]:
        """Return the node numbers of the leaves of each tree."""
        leaves = np.flatnonzero(np.isnan(self.layout.thresholds[::2]))
        ends = [*self.roots.tolist(), self.nodes]
        return [
            (leaves[np.searchsorted(leaves, begin) : np.searchsorted(leaves, end)] - begin).astype(np.uint32)
            for begin, end in pairwise(ends)
        ]

    def leaf_votes(self, vote: str, weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return the votes of each row of `counts`, float64 [rows of counts, classes], see the function `leaf_votes`.

        weights  float64 [trees], factors of the votes of the trees; every leaf must then have a row in `counts`. None
                 for equal weights
        """
        votes = leaf_votes(self.counts, vote)
        if weights is None:
            return votes
        return votes * np.repeat(weights, [nodes.size for nodes in self.leaf_nodes()])[:, None]

    def with_second_lambda(self) -> PackedTrees:
        """Return the trees with the leaf values of the second of two lambdas.

        Changes the nodes of `self` in place: do not use it afterwards.
        """
        width = self.counts.shape[1] // 2
        leaf = np.isnan(self.layout.thresholds[::2])
        self.layout.links[::2][leaf] -= np.uint64(self.counts.shape[1] - width)
        return self._replace(counts=self.counts[:, 1::2].copy())


def leaf_votes(counts: NDArray[Any], vote: str) -> NDArray[np.float64]:
    """Return the votes of leaves from their counts or values, float64 [leaves, classes]; counts: see PackedTrees.

    "soft": the class shares (Ho 1995). "hard": 1 for the class with the largest count or shrunk value, the lowest among
    ties (Breiman 2001). Values for regression do not change.
    """
    if vote == "hard":
        unit = np.zeros(counts.shape)
        unit[np.arange(len(unit)), counts.argmax(axis=1)] = 1.0
        return unit
    if counts.dtype == np.float64:
        return np.require(counts, requirements="W")  # mapped files are read-only, and kernels need writeable arrays
    return counts / counts.sum(axis=1, dtype=np.uint64)[:, None]


_MAX_NODES = 2**32 - 1


def load(
    spans: Sequence[Span],
    header: Header,
    workers: int,
    used: NDArray[np.int64] | None = None,
    lambdas: Sequence[float] = (),
    make: Callable[..., NDArray[Any]] | None = None,
) -> PackedTrees:
    """Read and pack the trees of `spans` in their order, by `workers` threads.

    used     positions of the features that rows will have; None for the features that nodes split on.
    lambdas  lambdas of the leaf values; empty for leaves as grown.
    make     function that makes the array of nodes from a shape and a type. If given, trees are loaded without counts,
             for routing rows; if None, for prediction.

    Memory: `loaded_tree_bytes` (groups.py) of all trees, and LOADING_BYTES per thread. Raises FormatError for a part
    that is damaged or has other trees, for features that are not in `used`, and for more than 4,294,967,295 nodes.
    """
    parts = [(span.stop - span.start, read_span(span, header)) for span in spans]
    return _pack(parts, header.spec, lambdas, workers, used, make)


def pack(
    parts: Sequence[Sequence[TreeArrays]],
    spec: DataSpec,
    lambdas: Sequence[float] = (),
    workers: int = 1,
    used: NDArray[np.int64] | None = None,
) -> PackedTrees:
    """Pack all trees of a forest by `workers` threads.

    parts          parts of the forest; a part consists of pieces of whole trees
    lambdas, used  see `load`
    """
    sized = [(sum(piece.feature.size for piece in part), part) for part in parts]
    return _pack(sized, spec, lambdas, workers, used)


class _Trees(NamedTuple):
    """Result of packing one file of trees.

    words   the nodes, part of the words of all files.
    roots   positions among the nodes of these trees.
    used    bool [features], features that nodes split on.
    counts  pieces of `counts` of PackedTrees.
    terms   terms of the oblique nodes, piece by piece, without other nodes.
    levels  levels of the nodes on categories, likewise.
    blocks  number of blocks of all directions. A block has TERMS terms of one direction (flat_tree.py).
    sets    number of nodes on categories.
    """

    words: NDArray[np.uint64]
    roots: NDArray[np.int64]
    used: NDArray[np.bool_]
    counts: list[NDArray[Any]]
    terms: list[Terms]
    levels: list[LevelLists]
    blocks: int
    sets: int


def _pack(
    parts: Sequence[tuple[int, Iterable[TreeArrays]]],
    spec: DataSpec,
    lambdas: Sequence[float],
    workers: int,
    used: NDArray[np.int64] | None,
    make: Callable[..., NDArray[Any]] | None = None,
) -> PackedTrees:
    """Pack parts by `workers` threads, then join them; parts: number of nodes, and the nodes in pieces.

    lambdas, used, make  see `load`
    """
    ends = np.cumsum([size for size, _ in parts])
    words = _words(int(ends[-1]), make or np.empty)
    amounts = np.array(lambdas, np.float64) / spec.weight_unit
    width, features = spec.target.answer_width, len(spec.features)
    tasks = [
        (
            nodes,
            words[2 * (end - size) : 2 * end],
            features,
            LeafShrinking(amounts, width) if lambdas else None,
            make is None,
        )
        for (size, nodes), end in zip(parts, ends, strict=True)
    ]
    return _join(words, Executor(workers).gather(_pack_pieces, tasks), used)


def _words(nodes: int, make: Callable[..., NDArray[Any]]) -> NDArray[np.uint64]:
    """Allocate the words of this many nodes. Raises FormatError if they are too many, or do not fit in memory."""
    if nodes > _MAX_NODES:
        raise _too_many(f"nodes, {nodes:,}, where at most {_MAX_NODES:,} can be loaded together")
    try:
        return make(2 * nodes, np.uint64)
    except MemoryError as error:
        raise FormatError(
            f"{nodes:,} nodes do not fit in memory; set a memory limit, to load them in groups"
        ) from error


def _too_many(parts: str) -> FormatError:
    return FormatError(f"the trees have too many {parts}: set a memory limit, so that they are loaded in groups")


def _pack_pieces(
    pieces: Iterable[TreeArrays],
    words: NDArray[np.uint64],
    features: int,
    shrinking: LeafShrinking | None,
    votes: bool,
) -> _Trees:
    """Pack the nodes of a file of trees into `words`, uint64 [2 * nodes].

    shrinking  shrinks the values of leaves; None for leaves as grown
    votes      True to return counts or values of leaves; shrunk values are always returned
    """
    from bigforest.kernels.predict.pack import pack_nodes

    trees = _Trees(words, np.zeros(0, np.int64), np.zeros(features, np.bool_), [], [], [], 0, 0)
    roots: list[NDArray[np.int64]] = []
    done = before = impure = directions = sets = 0
    for piece in pieces:
        size = piece.feature.size
        layout = _layout_of(words[2 * done : 2 * (done + size)])
        counts = piece.counts if shrinking is None else piece.counts[:, :0]
        impure_rows = np.count_nonzero(impure_leaves(piece.feature, counts))
        impure_counts = np.empty((impure_rows, counts.shape[1]), counts.dtype)
        listed = np.zeros(size, np.bool_) if piece.levels is None else np.diff(piece.levels.start) > 0
        blocks = np.zeros(size, np.int64) if piece.terms is None else _blocks(piece.terms)
        columns: list[NDArray[Any]] = [piece.depth, piece.right, piece.threshold, piece.default_left, counts]
        depth, right, threshold, default_left, node_counts = map(read_only, columns)
        nodes = (before, depth, piece.feature, right, threshold, default_left, listed, blocks, node_counts)
        before = pack_nodes(*nodes, layout, impure_counts, impure, directions, sets, trees.used)
        roots.append(piece.roots + done)
        done += size
        impure += len(impure_counts)
        directions += int(blocks.sum())
        sets += int(listed.sum())
        if shrinking is not None:
            trees.counts.append(shrinking.values(piece))
        elif not votes:
            trees.counts.append(impure_counts[:0])
        else:
            value = None if piece.value is None else piece.value[piece.feature == LEAF]
            trees.counts.append(impure_counts if value is None else value if value.ndim == 2 else value[:, None])
        if piece.terms is not None:
            trees.terms.append(nonempty_lists(piece.terms))
            trees.used[piece.terms.feature] = True
        if piece.levels is not None:
            trees.levels.append(nonempty_lists(piece.levels))
    return trees._replace(roots=np.concatenate(roots), blocks=directions, sets=sets)


def _join(words: NDArray[np.uint64], trees: Sequence[_Trees], used: NDArray[np.int64] | None) -> PackedTrees:
    """Join trees that were packed separately. Number features, impure leaves, directions and sets consecutively.

    words  the nodes of all files
    used   see `load`
    """
    from bigforest.kernels.predict.pack import LAST_PLACE, number_nodes

    present = np.logical_or.reduce([piece_trees.used for piece_trees in trees])
    if used is None:
        present[0] |= not present.any()  # a tile must have a feature, even if all trees are single leaves
        used = np.flatnonzero(present)
    elif not np.isin(np.flatnonzero(present), used).all():
        raise FormatError("the trees of the forest have changed while they were in use; try again")
    if 2 * present.size + sum(piece_trees.blocks + piece_trees.sets for piece_trees in trees) > LAST_PLACE:
        raise _too_many("splits that are not on one value")
    counts = np.concatenate([values for piece_trees in trees for values in piece_trees.counts])
    place = np.zeros(present.size, np.uint64)
    place[used] = np.arange(used.size, dtype=np.uint64)
    # The lowest ballot of a leaf with a row in `counts`, and the number that is added to ballots. If leaves have
    # values, every leaf has a row, and its ballot was packed as if `counts` had one column.
    lowest, raised = (1, counts.shape[1] - 1) if counts.dtype == np.float64 else (counts.shape[1], 0)
    roots: list[NDArray[np.int64]] = []
    begin = impure = blocks = sets = 0
    for piece_trees in trees:
        number_nodes(_layout_of(piece_trees.words), place, used.size, blocks, sets, lowest, impure + raised)
        roots.append(piece_trees.roots + begin)
        begin += piece_trees.words.size // 2
        impure += sum(map(len, piece_trees.counts))
        blocks += piece_trees.blocks
        sets += piece_trees.sets
    return PackedTrees(
        layout=_layout_of(words),
        directions=_directions(trees, place, used.size),
        sets=_sets(trees, used.size),
        roots=np.concatenate(roots).astype(np.uint64),
        used=used,
        counts=counts,
    )


def _layout_of(words: NDArray[np.uint64]) -> NodeLayout:
    from bigforest.kernels.predict.flat_tree import NodeLayout

    return NodeLayout(words.view(np.float64), words, np.uint64(33), np.uint64(2**32), np.uint64(2**32 - 1))


def _directions(trees: Sequence[_Trees], place: NDArray[np.uint64], features: int) -> Directions | None:
    """Return the blocks of the used features, as many blocks of padding, then the blocks of all oblique nodes in order.

    place     uint64 [all features], column of each used feature in a tile
    features  number of used features
    """
    from bigforest.kernels.predict.flat_tree import MORE, TERMS, Directions

    parts = [part for piece in trees for part in piece.terms]
    terms = join_lists(parts, [part.start.size - 1 for part in parts])
    if terms is None:
        return None
    place_numbers = np.arange(features)
    sizes = np.concatenate([np.ones(features, np.int64), np.zeros(features, np.int64), np.diff(terms.start)])
    blocks = np.maximum(1, -(-sizes // TERMS))
    ends = np.cumsum(blocks)
    at = np.full((TERMS * int(ends[-1]), 2), np.uint64(features))
    weight = at.view(np.float64)
    weight[:, 1] = 0.0
    begin = np.cumsum(sizes) - sizes
    filled = np.arange(int(sizes.sum())) + np.repeat(TERMS * (ends - blocks) - begin, sizes)
    at[filled, 0] = np.concatenate([place_numbers.astype(np.uint64), place[terms.feature]])
    weight[filled, 1] = np.concatenate([np.ones(features), terms.weight])
    goes_on = np.full(int(ends[-1]), MORE)
    goes_on[ends - 1] = 0
    at[TERMS - 1 :: TERMS, 0] |= goes_on
    return Directions(at.reshape(-1), weight.reshape(-1))


def _blocks(terms: Terms) -> NDArray[np.int64]:
    """Return the number of blocks of each node's direction."""
    from bigforest.kernels.predict.flat_tree import TERMS

    return -(-np.diff(terms.start) // TERMS)


def _sets(trees: Sequence[_Trees], features: int) -> LevelSets | None:
    """Return the sets of levels of all nodes on categories, in their order; features: number of used features."""
    from bigforest.kernels.predict.flat_tree import LevelSets
    from bigforest.kernels.predict.pack import fill_sets, measure_sets

    parts = [part for piece in trees for part in piece.levels]
    lists = join_lists(parts, [part.start.size - 1 for part in parts])
    if lists is None:
        return None
    sets = lists.start.size - 1
    mask, low, span = (np.empty(sets, np.uint64) for _ in range(3))
    first = np.empty(sets + 1, np.uint64)
    measure_sets(lists.start, lists.code, mask, low, span, first)
    words = np.empty(int(first[-1]), np.uint32)
    fill_sets(lists.start, lists.code, first, words)
    return LevelSets(np.uint64(features), mask, low, span, first, words)


# Most nodes that are listed together.
LISTED_NODES = 1 << 23
# Number of listed nodes that all threads together sort at a time, and bytes of a node while it is sorted.
ORDERED_NODES = 1 << 18
ORDERED_BYTES = 28
# Values of a dictionary read at a time, so that they stay in the cache.
_PIECE = 1 << 16


def replace_thresholds(layout: NodeLayout, used: NDArray[np.int64], store: Store, workers: int) -> None:
    """Replace every threshold by the largest code that goes left; if there is none, by the code before the first.

    used  int64 [used features], positions in the dataspec, by their columns in links (kernels/predict/flat_tree.py)

    A dictionary may be larger than memory, so it is read in pieces, from its first value to its last: once if at most
    LISTED_NODES nodes are on its feature, otherwise once for each LISTED_NODES nodes of the trees. These nodes are
    listed in memory. If the dictionary has several pieces, the nodes are sorted by threshold, in batches.

    Memory: 4 bytes for each of LISTED_NODES, and ORDERED_BYTES for each of ORDERED_NODES, or for all nodes if these are
    fewer.
    """
    from bigforest.kernels.predict.pack import count_nodes, list_nodes

    nodes = layout.links.size // 2
    counts = np.zeros(used.size, np.int64)
    count_nodes(layout, counts)
    order = np.empty(min(LISTED_NODES, nodes), np.uint32)
    for places, first, last in _portions(counts, nodes, order.size):
        words = slice(2 * first, 2 * last)
        part = layout._replace(thresholds=layout.thresholds[words], links=layout.links[words])
        node_counts = counts[places.start : places.stop]
        begins = np.cumsum(node_counts) - node_counts
        ends = begins.copy()
        list_nodes(part, places.start, ends, order)
        features = used[places.start : places.stop]
        tasks = [(store, features, part.thresholds, order, begins, ends, task, workers) for task in range(workers)]
        Executor(workers).gather(_replace_of_features, tasks)


def _portions(counts: NDArray[np.int64], nodes: int, room: int) -> Iterator[tuple[range, int, int]]:
    """Yield places of features, and the bounds of a range of nodes with at most `room` nodes on these features.

    counts  int64 [places], number of nodes on each feature
    nodes   number of all nodes. They are cut into several ranges only for a feature with more than `room` nodes
    """
    begin = 0
    while begin < counts.size:
        fitting = int(np.searchsorted(np.cumsum(counts[begin:]), room, side="right"))
        places = range(begin, begin + max(fitting, 1))
        step = nodes if fitting else room
        yield from ((places, first, min(first + step, nodes)) for first in range(0, nodes, step))
        begin = places.stop


def _replace_of_features(
    store: Store,
    used: NDArray[np.int64],
    thresholds: NDArray[np.float64],
    order: NDArray[np.uint32],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    first: int,
    step: int,
) -> None:
    """Replace the thresholds of every `step`-th used feature, from `first` on.

    order, begins, ends  the nodes on used feature `place` are order[begins[place]:ends[place]]
    """
    from bigforest.kernels.predict.pack import nodes_to_codes

    held = max(1, ORDERED_NODES // step)
    for place in range(first, used.size, step):
        lowest = int(store.spec.features[int(used[place])].missing)  # code 0 may be the code of missing values
        low = store.low(int(used[place]))[lowest:]
        nodes = order[begins[place] : ends[place]]
        batches = [nodes[at : at + held] for at in range(0, nodes.size, held)]
        if low.size > _PIECE:
            for batch in batches:
                batch[:] = batch[thresholds[2 * batch.astype(np.int64)].argsort()]
        # Each piece begins with the last value of the previous piece.
        for begin in range(0, max(low.size - 1, 1), _PIECE - 1):
            values = low[begin : begin + _PIECE].copy()  # copied: a mapped file would be read at random
            is_last = begin + _PIECE >= low.size
            batches = [batch[nodes_to_codes(thresholds, batch, values, lowest + begin, is_last) :] for batch in batches]
