"""The families `subspace-cap` and `subspace-perceptron`: trees in random subspaces (Ho 1995).

Each tree, or each node, has a random subset of the features. A node splits at the best of several points between two
class means ("cap"), or by a perceptron; if the perceptron does not split the node, as in "cap". If the features that a
node drew do not split it, it tries all features. A tree has a copy of its columns row by row (`SubspaceColumns`),
stored as bits if the table has only zeros and ones (`stored_as_bits`).

Subspaces of trees. The subsets of one size are numbered. Trees whose subspaces have this size take them in the order
of a keyed permutation of the numbers: no two trees have the same, and the subspace of a tree does not depend on the
other trees.

By passes a large node (`SubspaceSearch`) requests the sums for its class means, then a perceptron. Without
perceptrons, or if the perceptron does not split the node, it requests the counts between the points from mean to mean.
A perceptron needs the rows of a node in order, so one task reads all blocks, with the weights of the perceptron so far
(`train_perceptrons`). A pass over the rows trains, and counts the errors of the previous pass: n training passes read
the rows n + 1 times. If the rows of a node fit in memory, they are read once for all training passes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.errors import ConfigError
from bigforest.execution.executor import Executor
from bigforest.execution.process_cache import BufferPool
from bigforest.grow.families.projection import (
    DecodedTable,
    ProjectionFamily,
    ProjectionTable,
    are_whole,
    column_of,
    decoded_bytes,
    places,
    tree_columns,
)
from bigforest.grow.memory_model import PassMemory, TreeMemory
from bigforest.grow.out_of_core.context import Counts, GrowContext
from bigforest.grow.out_of_core.node_search import NodeSearch, NodeSplit
from bigforest.grow.out_of_core.probes import Answer, Direction, Histogram, Probe, StepSums
from bigforest.grow.out_of_core.requests import SplitRequest, request
from bigforest.grow.out_of_core.row_file import NodeItems, numbered
from bigforest.grow.out_of_core.table import Passes
from bigforest.grow.out_of_core.upper_tree import Subtree, UpperTree
from bigforest.grow.row_codes import NO_ROWS
from bigforest.grow.trees import TreeRows
from bigforest.kernels.columns.project import LARGEST
from bigforest.kernels.common.layout import Codes, RowMajorCodes
from bigforest.kernels.common.node_scan import BITS32, SHIFT32
from bigforest.kernels.llvm.bit_sums import WORD
from bigforest.kernels.out_of_core.blocks import BlockValues, Steps
from bigforest.kernels.out_of_core.node_steps import aim_node, choose_columns, choose_stop, is_split, learn_rows
from bigforest.kernels.subspace.columns import (
    PACKED_ROWS,
    STEPS,
    Subspace,
    SubspaceColumns,
    make_subspace,
    pack_bits,
)
from bigforest.kernels.tree.grow import grow
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape
from bigforest.sampling.bags import Sampler
from bigforest.store.format import BLOCK_ROWS
from bigforest.store.store import Store

# Limits of the values and the range of a column that is used: their squares must neither overflow nor vanish.
_LARGEST_VALUE = 2.0**400
_MIN_SPAN = 2.0**-400
# Rounds of the permutation (Luby and Rackoff 1988: four are enough).
_ROUNDS = 4
# Rows of a block that are trained on at a time.
_ROWS = 4096
# Bytes of a row that a perceptron is trained on in memory, in addition to its columns.
TRAINED_ROW = 8
# Some rows of a node, in order: their columns, and items numbered from 0.
RowPiece = tuple[SubspaceColumns, NDArray[np.uint64]]
# Further bytes of a row of a growing tree: its place in the order by class 4, its projection 8.
_WEIGHED = 12


class SubspaceTrees(NamedTuple):
    """Data that all trees of a forest in subspaces share.

    epochs   most training passes of a perceptron; 0 without perceptrons
    columns  all features, without rows
    shared   columns with rows, if trees grow in memory and all have the same columns; else None
    """

    config: TrainConfig
    epochs: int
    columns: SubspaceColumns
    shared: SubspaceColumns | None

    def scratch(self, store: Store, items: NDArray[np.uint64], tree: int) -> Subspace:
        """Return scratch for growing tree number `tree` from the root `items`."""
        config, (features, classes) = self.config, (len(store.spec.features), len(store.spec.target.classes))
        space = self.shared or make_space(store, self.columns, tree_subspace(config, features, tree))
        return self.of(space, config.subspace_size(features, tree), classes, items.size)

    def of(self, space: SubspaceColumns, drawn: int, classes: int, rows: int) -> Subspace:
        """Return scratch for nodes of up to this many rows, which draw `drawn` of the columns of `space`."""
        return make_subspace(space, drawn, self.config.steps, self.epochs, classes, rows)


def is_shared(config: TrainConfig, features: int) -> bool:
    """Return True if all trees have the same columns: all features."""
    return config.subspace_per == "node" or config.subspace_sizes(features) == (features,)


def tree_subspace(config: TrainConfig, features: int, tree: int) -> NDArray[np.int64]:
    """Return the features of a tree, ascending, int64: all features if nodes draw subspaces.

    Trees take the sizes in turn. Each size has its own permutation.
    """
    if config.subspace_per == "node":
        return np.arange(features)
    sizes = config.subspace_sizes(features)
    turn, place = divmod(tree, len(sizes))
    size = sizes[place]
    count = math.comb(features, size)
    key = f"{config.seed}" if len(sizes) == 1 else f"{config.seed} of {size}"
    return _combination(_permuted_place(turn, count, key), features, size, count)


def _permuted_place(number: int, count: int, key: str) -> int:
    """Return the place of `number` in a permutation of 0 .. count - 1 with this key.

    A Feistel network on as many bits as the largest number has, rounded up to an even number, iterated until the
    result is one of the numbers (Black and Rogaway 2002).
    """
    half = ((count - 1).bit_length() + 1) // 2
    size = half // 8 + 1
    while True:
        left, right = number >> half, number & ((1 << half) - 1)
        for turn in range(_ROUNDS):
            text = f"bigforest subspace {key} {turn} {right}"
            mask = int.from_bytes(hashlib.shake_256(text.encode()).digest(size), "little") & ((1 << half) - 1)
            left, right = right, left ^ mask
        number = left << half | right
        if number < count:
            return number


def _combination(number: int, features: int, size: int, count: int) -> NDArray[np.int64]:
    """Return combination `number`, in lexicographic order, of `size` out of `features`; there are `count` of them."""
    chosen: list[int] = []
    for feature in range(features):
        if len(chosen) == size:
            break
        remaining = features - feature
        with_it = count * (size - len(chosen)) // remaining  # combinations of the `count` that have this feature
        if number < with_it:
            chosen.append(feature)
            count = with_it
        else:
            number -= with_it
            count -= with_it
    return np.array(chosen, np.int64)


def stored_as_bits(shape: Shape, config: TrainConfig, epochs: int) -> bool:
    """Return True if trees store their columns as bits, see kernels/subspace/columns.py; epochs: see SubspaceTrees.

    Weights of columns stored as bits are int32. With every mistake, the sum of squares of a perceptron's weights grows
    by at most the number of ones in a row, the constant one included (Novikoff 1962). The condition keeps projections
    below 2**31.
    """
    return shape.bits and not config.ranks and shape.rows * epochs * (shape.features + 1) ** 2 < 2**62


def columns_of(store: Store, config: TrainConfig, epochs: int) -> SubspaceColumns:
    """Return the features of a store for the kernels, without rows; epochs: see SubspaceTrees."""
    features = len(store.spec.features)
    low, rate, unit, scale = (np.zeros(features) for _ in range(4))
    for feature in range(features):
        least, most = store.ends(feature)
        span = most - least
        if not (max(-least, most) <= _LARGEST_VALUE and span >= _MIN_SPAN):
            continue
        low[feature] = least
        whole = span <= STEPS and are_whole(store.low(feature))
        rate[feature], unit[feature] = (1.0, 1.0) if whole else (STEPS / span, span / STEPS)
        scale[feature] = math.ldexp(1.0, -2 * math.frexp(math.nextafter(span, 0.0))[1])
    all_features = np.arange(features, dtype=np.int32)
    return _without_rows(stored_as_bits(store.shape, config, epochs), all_features, low, rate, unit, scale)


def make_space(store: Store, columns: SubspaceColumns, chosen: NDArray[np.int64]) -> SubspaceColumns:
    """Return the columns of the features `chosen` with all rows of the store; columns: result of `columns_of`."""
    space = _with_room(some_columns(columns, chosen), store.rows)
    if space.bits.shape[1]:
        slots = np.array([feature.slot for feature in store.spec.features], np.int64)[chosen]
        _pack(store.codes.u8, slots, space)
    else:
        for place in np.flatnonzero(space.unit).tolist():
            feature = int(chosen[place])
            space.value[:, place] = np.take(store.low(feature), store.feature_codes(feature), mode="clip")
    return space


def some_columns(space: SubspaceColumns, place: NDArray[np.int64]) -> SubspaceColumns:
    """Return the columns of a space at the places `place`, without rows."""
    feature, _, _, *steps = space
    return _without_rows(space.bits.shape[1] > 0, feature[place], *(array[place] for array in steps))


def _without_rows(bits: bool, feature: NDArray[np.int32], *steps: NDArray[np.float64]) -> SubspaceColumns:
    words = -(-feature.size // WORD) if bits else 0
    return SubspaceColumns(feature, np.empty((0, words), np.uint64), np.empty((0, feature.size)), *steps)


def with_cells(space: SubspaceColumns, cells: Sequence[NDArray[Any]], rows: int) -> SubspaceColumns:
    """Return the columns with rows; cells: their values, an array per column."""
    space = _with_room(space, rows)
    used = np.flatnonzero(space.unit).tolist()
    if space.bits.shape[1]:
        in_order = np.empty((space.feature.size, rows), np.uint8)
        for place in used:
            in_order[place] = cells[place]
        _pack(read_only(in_order), np.arange(space.feature.size), space)
    else:
        for place in used:
            space.value[:, place] = cells[place]
    return space


def _with_room(space: SubspaceColumns, rows: int) -> SubspaceColumns:
    """Return the columns with room for the values of this many rows."""
    if words := space.bits.shape[1]:
        return space._replace(bits=np.empty((rows, words), np.uint64))
    return space._replace(value=np.zeros((rows, space.feature.size)))


def _pack(matrix: NDArray[np.uint8], slots: NDArray[np.int64], space: SubspaceColumns) -> None:
    """Set the bits of a space. Column c has the zeros and ones of matrix[slots[c]], or zeros if it is not used."""
    pack_bits(matrix, np.where(space.unit > 0.0, slots, -1), space.bits, np.empty(PACKED_ROWS, np.uint64))


class PerceptronRequest(NamedTuple):
    """A probe (probes.py) for a perceptron.

    space   the columns of the node, without rows
    far     bool [classes], True if a class belongs on the right
    total   int64 [classes], rows of the node
    epochs  most passes of training
    """

    space: SubspaceColumns
    far: NDArray[np.bool_]
    total: Counts
    epochs: int

    def cells(self, slots: int) -> int:
        return 0  # no histogram

    @property
    def bytes(self) -> int:
        """Bytes of all rows in memory."""
        space = self.space
        return int(self.total.sum()) * (8 * (space.bits.shape[1] or space.feature.size) + TRAINED_ROW)


class TrainedPerceptron(NamedTuple):
    """The answer to a PerceptronRequest: the best perceptron.

    weight  float64 [columns of the node]
    cut     largest projection that goes left
    left    int64 [classes], class weights of the left side
    """

    weight: NDArray[np.float64]
    cut: float
    left: Counts


class PerceptronTrainer:
    """A perceptron in training: call `see` for all rows and `end` after each pass, until `end` returns True."""

    best: TrainedPerceptron

    def __init__(self, request: PerceptronRequest) -> None:
        self._request = request
        columns, classes = request.space.feature.size, request.total.size
        self._now, self._before = (
            make_subspace(request.space, columns, 1, request.epochs, classes, 0) for _ in range(2)
        )
        self._now.far[:] = request.far
        self._cut = self._cut_before = 0.0
        self._left = np.zeros(classes, np.int64)
        self._passes = 0
        self._least = int(request.total.sum()) + 1

    def see(self, piece: RowPiece) -> None:
        """Train on the next rows of a pass."""
        space, items = piece
        now, before = (each._replace(space=space) for each in (self._now, self._before))
        self._cut = learn_rows(before, now, items, self._cut_before, self._cut, self._left)

    def end(self) -> bool:
        """Finish a pass by the rules of `train_perceptron` (kernels/subspace/split.py).

        Return True if no further pass is needed: then `best` is final.
        """
        request, before = self._request, self._before
        is_final = False
        if self._passes:
            errors = int(np.where(request.far, self._left, request.total - self._left).sum())
            if errors < self._least:
                self._least = errors
                weights = (before.whole if before.whole.size else before.weight)[: request.space.feature.size]
                self.best = TrainedPerceptron(weights.astype(np.float64), self._cut_before, self._left.copy())
            is_final = errors == 0 or self._passes == request.epochs
        before.weight[:], before.whole[:] = self._now.weight, self._now.whole
        self._cut_before = self._cut
        self._left[:] = 0
        self._passes += 1
        return is_final


def train_by_passes(
    requests: dict[int, PerceptronRequest], rows: Callable[[Sequence[int]], Iterator[tuple[int, RowPiece]]], most: int
) -> dict[int, TrainedPerceptron]:
    """Train the requested perceptrons of some nodes. Return them by node.

    rows  function that yields the rows of some nodes by node, the rows of each node in order
    most  most bytes of rows in memory. The rows of a larger node are read again for every pass
    """
    trainers = {entry: PerceptronTrainer(request) for entry, request in requests.items()}
    waiting = list(requests)
    while waiting:
        in_memory: dict[int, list[RowPiece]] = {}
        room = most
        for entry in waiting:
            if requests[entry].bytes <= room:
                room -= requests[entry].bytes
                in_memory[entry] = []
        streamed = [entry for entry in waiting if requests[entry].bytes > most]
        for entry, piece in rows([*in_memory, *streamed]):
            take = in_memory[entry].append if entry in in_memory else trainers[entry].see
            take(piece)
        ended_nodes = {entry for entry in streamed if trainers[entry].end()} | set(in_memory)
        while in_memory:
            entry, pieces = in_memory.popitem()
            ended = False
            while not ended:
                for piece in pieces:
                    trainers[entry].see(piece)
                ended = trainers[entry].end()
        waiting = [entry for entry in waiting if entry not in ended_nodes]
    return {entry: trainer.best for entry, trainer in trainers.items()}


def row_pieces(
    cells: BlockValues, node_items: NodeItems, requests: dict[int, PerceptronRequest]
) -> Iterator[tuple[int, RowPiece]]:
    """Yield the rows of a block that are in the requested nodes; cells: of TableView.view."""
    items, begin, end = node_items
    for entry, perceptron in requests.items():
        for first in range(int(begin[entry]), int(end[entry]), _ROWS):
            node_rows = items[first : min(first + _ROWS, int(end[entry]))]
            row = (node_rows >> SHIFT32).astype(np.int64)
            columns = [column_of(cells, feature)[row] for feature in perceptron.space.feature.tolist()]
            yield entry, (with_cells(perceptron.space, columns, row.size), numbered(node_rows & BITS32))


class TreeSpace(NamedTuple):
    """The subspace of a tree.

    feature  int64, ascending
    drawn    number of these features that each node draws
    """

    feature: NDArray[np.int64]
    drawn: int


class SubspaceSearch(NodeSearch):
    """The search for the split of one node: in the columns that the node draws, then in all.

    It requests the sums for its class means, then a perceptron. Without perceptrons, or if the perceptron does not
    split the node, it requests the class counts between the stops, points from mean to mean. It takes the same split as
    kernels/subspace/split.py.
    """

    def __init__(
        self,
        scratch: Callable[[], Subspace],
        key: np.uint64,
        total: Counts,
        min_leaf: int,
        constant: NDArray[np.bool_],
    ) -> None:
        """Begin the search.

        scratch  returns a Subspace of the tree without rows; its content is not kept between requests
        total    int64 [classes], rows of the node
        """
        self.constant = constant
        self._given = scratch, key, total, min_leaf, constant
        self._received: list[Answer] = []
        self._found: NodeSplit | None = None
        self._finding = self._find(scratch, key, total, min_leaf)
        self.pending: list[Probe] = [next(self._finding)]

    def __reduce__(self) -> tuple[Callable[..., SubspaceSearch], tuple[Any, ...]]:
        """Pickle the answers, which are few and small: a generator cannot be sent, so it is run again with these."""
        return _search_again, (self._given, self._received)

    def receive(self, answers: Sequence[Answer]) -> None:
        [answer] = answers
        self._received.append(answer)
        try:
            self.pending = [self._finding.send(answer)]
        except StopIteration as end:
            self.pending, self._found = [], end.value

    def split(self) -> NodeSplit | None:
        return self._found

    @staticmethod
    def _find(
        scratch: Callable[[], Subspace], key: np.uint64, total: Counts, min_leaf: int
    ) -> Generator[Probe, Answer, NodeSplit | None]:
        """Yield the requests one after the other; see kernels/subspace/split.py find_cut."""
        subspace = scratch()
        epochs = subspace.epochs
        for count in sorted({int(subspace.drawn), subspace.column.size}):
            subspace = scratch()
            choose_columns(subspace, key, np.uint64(count))
            column = subspace.column[:count].astype(np.int64)
            space = some_columns(subspace.space, column)
            del subspace  # otherwise each waiting node would hold one
            sums = yield StepSums(space.feature.astype(np.uint32))
            subspace = scratch()
            differ, begin, end = aim_node(subspace, key, np.uint64(count), total, sums)
            line, stop, far = _line(space.feature, subspace.weight[column]), subspace.stop, subspace.far
            del subspace
            if not differ:  # all means are equal
                continue
            if epochs:
                trained = yield PerceptronRequest(space, far, total, epochs)
                if is_split(trained.left, total, total.sum(), min_leaf):
                    return NodeSplit(0, trained.cut, trained.left, direction=_line(space.feature, trained.weight))
            if not (begin < end and end - begin <= LARGEST):  # the means have the same projection, or are too far apart
                continue
            edge = np.nextafter(stop[:-1], np.inf)  # the rows above a stop and up to the next are in one bucket
            edge[0] = -LARGEST
            counted = yield Histogram(0, line, -LARGEST, LARGEST, 0.0, edge.size, edge)
            subspace = scratch()
            subspace.hist[1:] = counted.counts
            if at := int(choose_stop(subspace, total, total.sum(), min_leaf)):
                return NodeSplit(0, float(stop[at]), counted.counts[:at].sum(axis=0), direction=line)
        return None


def _search_again(arguments: tuple[Any, ...], received: Sequence[Answer]) -> SubspaceSearch:
    search = SubspaceSearch(*arguments)
    for answer in received:
        search.receive([answer])
    return search


def _line(feature: NDArray[np.int32], weight: NDArray[np.float64]) -> Direction:
    used = weight != 0.0
    return Direction(feature[used].astype(np.uint32), weight[used], line=True)


@dataclass(frozen=True)
class SubspaceTable(ProjectionTable):
    """A ProjectionTable whose trees have subspaces."""

    trees: SubspaceTrees

    def tree_data(self, trees: Sequence[int], totals: Counts, passes: Passes) -> list[TreeSpace]:
        config, columns = self.sampler.config, self.trees.columns.unit.size
        return [TreeSpace(tree_subspace(config, columns, tree), config.subspace_size(columns, tree)) for tree in trees]

    def search(
        self, tree_data: TreeSpace, key: np.uint64, total: Counts, constant: NDArray[np.bool_]
    ) -> SubspaceSearch:
        space = some_columns(self.trees.columns, tree_data.feature)
        scratch = partial(self.trees.of, space, tree_data.drawn, total.size, 0)
        return SubspaceSearch(scratch, key, total, self.context.rules.min_leaf, constant)

    def place(self, tree_data: TreeSpace) -> NDArray[np.uint32]:
        return self.decoded.place[tree_data.feature]

    def grow_below(
        self, tree_data: TreeSpace, cells: Sequence[NDArray[Any]], subtree: TreeRows, room: BufferPool
    ) -> Subtree:
        rows = subtree.items.size
        space = with_cells(
            some_columns(self.trees.columns, tree_data.feature), tree_columns(cells, self.place(tree_data)), rows
        )
        subspace = self.trees.of(space, tree_data.drawn, subtree.target.number, rows)
        columns = tree_data.feature.size
        none = np.empty((columns, 0), np.uint8), np.empty((0, 0), np.uint16), np.empty((0, 0), np.uint32)
        codes = Codes._make([read_only(array) for array in (*none, places(1, columns))])  # values are used instead
        return grow(codes, NO_ROWS, *subtree, subspace)

    def train_nodes(self, tops: Sequence[UpperTree], executor: Executor) -> None:
        """Train the requested perceptrons, a task for each tree, or several if there are few trees."""
        work = []
        for top in tops:
            pending = [(entry, probe) for entry, search in top.searching() for probe in search.pending]
            if requests := [(entry, probe) for entry, probe in pending if isinstance(probe, PerceptronRequest)]:
                work.append((top, requests))
        shares = max(1, executor.size // max(len(work), 1))
        tasks = [
            (request(top, {}, []), dict(share_requests))
            for top, requests in work
            for share in range(shares)
            if (share_requests := requests[share::shares])
        ]
        trained: dict[tuple[int, int], TrainedPerceptron] = {}
        executor.run(train_perceptrons, tasks, lambda _, perceptrons: trained.update(perceptrons), (self,))
        waiting = [(top, *node_search) for top, _ in work for node_search in top.searching()]
        for top, entry, search in waiting:
            if (top.tree, entry) in trained:
                search.receive([trained[top.tree, entry]])
                top.settle(entry, search, self.search)


def train_perceptrons(
    table: SubspaceTable, asked: SplitRequest, requests: dict[int, PerceptronRequest]
) -> dict[tuple[int, int], TrainedPerceptron]:
    """Task: train the perceptrons of nodes of a tree. Return them by tree and node.

    asked  request without probes, which routes the rows to the nodes
    """

    def rows(entries: Sequence[int]) -> Iterator[tuple[int, RowPiece]]:
        chosen = {entry: requests[entry] for entry in entries}
        for blocks in table.decoded.runs:
            for _, cells, node_items, _ in table.route([asked], blocks, [asked.no_response(table.context)]):
                yield from row_pieces(cells, node_items, chosen)

    trained = train_by_passes(requests, rows, table.context.limits.training)
    return {(asked.tree, entry): perceptron for entry, perceptron in trained.items()}


class SubspaceFamily(ProjectionFamily):
    """A family of trees in subspaces.

    learns  True if nodes train perceptrons; False if they only split between two class means
    """

    oracle = "tests/naive/subspace.py"
    compiling = (80, 10.0)
    variants = ({"subspace_per": "node"},)
    tasks = ("classification",)

    def __init__(self, name: str, splits_on: str, *, learns: bool) -> None:
        self.name = name
        self.splits_on = (splits_on, "Ho 1995")
        self.learns = learns

    def check(self, shape: Shape, config: TrainConfig) -> None:
        super().check(shape, config)
        if shape.extras.weighted:
            raise ConfigError(f"the family {self.name} has no weights of rows; use the family axis for weighted rows")

    def epochs(self, config: TrainConfig) -> int:
        """Return the most training passes of a perceptron; 0 without perceptrons."""
        return config.max_epochs if self.learns else 0

    def drawn_from(self, features: int, config: TrainConfig) -> int:
        return max(config.subspace_sizes(features)) if config.subspace_per == "tree" else features

    def max_terms(self, features: int, config: TrainConfig) -> float:
        return max(config.subspace_sizes(features))

    def expected_reads(self, features: int, config: TrainConfig) -> float:
        sizes = config.subspace_sizes(features)
        return 2 * (self.epochs(config) or 1) * sum(sizes) / len(sizes)

    def tree_memory(self, shape: Shape, config: TrainConfig, rows: int, splits: int) -> TreeMemory:
        # The store is read in order, column by column, once per tree, or once for all trees.
        words = -(-self.drawn_from(shape.features, config) // WORD)
        space = shape.rows * self._space_row(shape, config)
        tree = rows * _WEIGHED + 8 * (config.steps + 1) * shape.classes + self.grown_term_bytes(shape, config, splits)
        tree += 8 * words * WORD * (shape.classes + 4)
        shared = is_shared(config, shape.features)
        return TreeMemory(space, tree, 0) if shared else TreeMemory(0, space + tree, 0)

    def pass_memory(self, shape: Shape, config: TrainConfig) -> PassMemory:
        columns, value = self.drawn_from(shape.features, config), decoded_bytes(shape)
        terms, space = self.node_term_bytes(shape, config), self._space_row(shape, config)
        picked = BLOCK_ROWS * value * columns
        return PassMemory(
            drawn=1,
            # Values of a row, and copies of the values in the subspace; `picked` has the copies that are written.
            block=BLOCK_ROWS * (value * shape.features + 80) + picked,
            picked=picked,
            row=2 * value * columns + space + _WEIGHED + terms,
            spilled=value * columns,
            node=terms,
            # Sums for means, then the stops.
            asks=max(2 * columns * shape.classes, config.steps * (shape.classes + 1)),
            level=1 if self.learns else 2,
            trained=space + TRAINED_ROW,
            epochs=self.epochs(config),
            decoded=value * shape.features,
            sweeps=1,
        )

    def codes(self, store: Store) -> tuple[Store, RowMajorCodes]:
        # Trees have copies of their own.
        return store, NO_ROWS

    def shared(self, store: Store, config: TrainConfig) -> SubspaceTrees:
        features, epochs = len(store.spec.features), self.epochs(config)
        columns = columns_of(store, config, epochs)
        space = make_space(store, columns, np.arange(features)) if is_shared(config, features) else None
        return SubspaceTrees(config, epochs, columns, space)

    def projection_table(
        self, store: Store, sampler: Sampler, context: GrowContext, decoded: DecodedTable
    ) -> SubspaceTable:
        config, epochs = sampler.config, self.epochs(sampler.config)
        columns = columns_of(store, config, epochs)
        context = context._replace(steps=Steps(columns.low, np.where(columns.unit > 0.0, 0.0, -1.0), columns.rate))
        return SubspaceTable(store, sampler, context, decoded, SubspaceTrees(config, epochs, columns, None))

    def _space_row(self, shape: Shape, config: TrainConfig) -> int:
        """Return the bytes of a row of the columns of a subspace, see kernels/subspace/columns.py."""
        columns = self.drawn_from(shape.features, config)
        bits = stored_as_bits(shape, config, self.epochs(config))
        return -(-columns // WORD) * WORD // 8 if bits else 8 * columns


FAMILIES = (
    SubspaceFamily(
        "subspace-cap",
        "the best of several points between the two farthest class means of a random subspace; no bootstrap",
        learns=False,
    ),
    SubspaceFamily(
        "subspace-perceptron",
        "a perceptron that separates classes near one of the two farthest class means from the others; no bootstrap",
        learns=True,
    ),
)
