"""The table for passes, as trees see it: it answers requests block by block.

Methods of a `TableView` depend on the family, and on whether columns are features (grow/families/axis.py) or
directions (grow/families/projection.py); it is sent to the workers with each task.

The values of a table by blocks, in scratch, for passes that project.

Values are looked up by code, and a dictionary may be larger than memory. So they are looked up once per forest, a
feature and a range of its dictionary at a time, in sweeps over the codes. A run of blocks has a file for each type of
values, little-endian, in C order; checksums of each column of each block are kept in memory:

    .4  float32 [columns, rows of the run]  features whose values are all float32
    .8  float64 [columns, rows of the run]  the others
    .1  uint8   [columns, rows of the run]  those whose values are all whole numbers below 256
"""

from __future__ import annotations

import secrets
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from io import FileIO
from itertools import pairwise
from operator import or_
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.execution.buffer_pool import BufferPool
from bigforest.execution.executor import Executor
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.cut import cut_rules
from bigforest.grow.encode_values import are_whole
from bigforest.grow.out_of_core.context import PROJECTIONS, Counts, GrowContext, MemoryLimits
from bigforest.grow.out_of_core.node_search import NodeSearch
from bigforest.grow.out_of_core.probes import CollectedRows, Spans
from bigforest.grow.out_of_core.requests import SplitRequest, SplitResponse, merged_all
from bigforest.grow.out_of_core.row_file import NodeItems, row_nodes, writing_rows
from bigforest.grow.out_of_core.upper_tree import Subtree, UpperTree, cut_pieces, renumbered
from bigforest.kernels.columns.decoded import is_float32
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.out_of_core.blocks import BlockValues, Steps, collect_rows, count_rows, route_rows, sum_rows
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.tree.builder import Roots, Rules
from bigforest.planning.memory import Shape
from bigforest.sampling.bags import Sampler
from bigforest.storage.array_file import damaged
from bigforest.storage.atomic import write_whole
from bigforest.storage.open_files import allow_many_files
from bigforest.storage.paths import local_path, write_atomically
from bigforest.store.blocks import BlockReader, ColumnFile, MatrixReader
from bigforest.store.format import BLOCK_ROWS, VALUE_TYPE, block_count, block_span
from bigforest.store.store import Store


class SubtreeScratch(NamedTuple):
    """Inputs of growing a subtree, besides the columns of its rows; see kernels/tree/grow.py."""

    items: NDArray[np.uint64]
    target: ClassTarget | RegressionTarget
    roots: Roots
    rules: Rules


@dataclass(frozen=True)
class TableView(ABC):
    """See above."""

    store: Store
    sampler: Sampler
    context: GrowContext

    @property
    def steps(self) -> Steps | None:
        """The steps in which features are summed; None if no node requests sums."""
        return None

    def ranges(self, tasks: int) -> list[tuple[range]]:
        """The runs of blocks, for this many tasks."""
        return block_ranges(self.store, tasks)

    def tree_data(self, trees: Sequence[int], totals: Counts, passes: Passes) -> Sequence[Any]:
        """The data of each tree; totals int64 [trees, parts], statistics of their bags."""
        return [None] * len(trees)

    def constant(self, tree_data: Any) -> NDArray[np.bool_]:
        """The columns known to be constant in a tree, bool [columns]."""
        return np.zeros(len(self.place(tree_data)), np.bool_)

    @abstractmethod
    def search(self, tree_data: Any, key: np.uint64, total: Counts, constant: NDArray[np.bool_]) -> NodeSearch:
        """The search for the split of a node; constant: bool [columns], known to be constant in it."""

    @abstractmethod
    def reader(self, blocks: range, features: Sequence[int], again: bool) -> MatrixReader:
        """Reads these features of some blocks; again: whether a pass has read them before."""

    def needed(self, columns: Collection[int]) -> Collection[int]:
        """Features that are read for these columns."""
        return columns

    def view(self, tree_data: Any, cells: Any, rows: int, columns: Collection[int] | None) -> Any:
        """The columns of a block of this many rows as a tree sees them; these, or all if whole rows are needed."""
        return cells

    def train_nodes(self, tops: Sequence[UpperTree], executor: Executor) -> None:
        """Run the steps that need the rows of nodes in sequence, if nodes request them."""
        return

    @abstractmethod
    def place(self, tree_data: Any) -> NDArray[np.uint32]:
        """Where the columns that a tree grows on are in its cells, uint32 [columns, 2]: bytes of a cell, and row of the
        matrix of these."""

    @abstractmethod
    def grow_below(
        self, tree_data: Any, cells: Sequence[NDArray[Any]], subtree: SubtreeScratch, room: BufferPool
    ) -> Subtree:
        """The subtree below a small node; cells: the matrices of its rows, in the order of their columns; room: for a
        copy of them."""

    def finish(self, sizes: Mapping[Path, int], executor: Executor) -> None:
        """Run the steps that are cheaper for many subtrees together; sizes: number of nodes of each by its file."""
        return

    @abstractmethod
    def finished(self, top: UpperTree, path: Path | None, numbers: NDArray[np.int64]) -> TreeArrays:
        """Nodes of a tree, which have these numbers, in the form of forests: those of the subtree in a file, or of the
        upper part."""

    # What is the same for all families.

    def pieces(self, top: UpperTree, folder: Path) -> Iterator[TreeArrays]:
        """The nodes of a tree in preorder, in pieces; folder: of the subtrees. Memory: one subtree, twice if cut."""
        rules, whole = cut_rules(self.sampler.config), partial(self._grown_pieces, top, folder)
        return whole() if rules is None else cut_pieces(whole, top.node_count, rules, folder)

    def _grown_pieces(self, top: UpperTree, folder: Path) -> Iterator[TreeArrays]:
        """The pieces of a tree before it is cut."""
        order = list(top.preorder())
        sizes = np.array([top.sizes.get(entry, 1) for entry in order], np.int64)
        numbers = np.cumsum(sizes) - sizes
        upper, begin = self.finished(top, None, numbers), 0
        upper = renumbered(upper, numbers[upper.left], numbers[upper.right])
        for place, entry in enumerate(order):
            if entry in top.sizes:
                yield upper.rows(begin, place)
                below = self.finished(top, top.subtree(folder, entry), numbers[place] + np.arange(sizes[place]))
                offset = np.uint32(numbers[place])
                yield renumbered(below, below.left + offset, below.right + offset)
                begin = place + 1
        yield upper.rows(begin, len(order))

    def answer(self, requests: Sequence[SplitRequest], folder: Path, blocks: range) -> list[SplitResponse]:
        """Task: the responses of some blocks to the requests. The new nodes of rows, and rows of small nodes, are
        written into `folder`."""
        read = np.empty(BLOCK_ROWS, self.context.kind.dtype)
        most = max((asked.max_probes() for asked in requests), default=0)
        stats = self.context.stats
        collected = CollectedRows.empty(self.context.kind, most * BLOCK_ROWS + 1, stats.regression)
        numbers = collected.number if stats.regression else None
        responses = [asked.no_response(self.context) for asked in requests]
        room = BufferPool()
        with ExitStack() as stack:
            sinks: list[Any] = []
            for asked, response in zip(requests, responses, strict=True):
                if asked.splits.node.size if asked.small is None else asked.small:
                    name = f"{'nodes' if asked.small is None else 'rows'}-{asked.tree}-{blocks.start}"
                    response.row_nodes[blocks.start] = path = folder / f"{name}-{secrets.token_hex(8)}.bin"
                sinks.append(stack.enter_context(writing_rows(path, asked.small, room)) if asked.small else None)
            for at, cells, node_items, value in self.route(requests, blocks, responses):
                asked, response, sink = requests[at], responses[at], sinks[at]
                rows = (cells, asked.asked, *node_items, value)
                counted = (response.counts, response.low, response.high, response.mark)
                count_rows(*rows, asked.counts, np.uint64(stats.parts), stats.weighted, read, *counted)
                if asked.collects.node.size:
                    ends = np.empty(asked.collects.node.size, np.uint64)
                    collect_rows(*rows, asked.collects, asked.wanted, read, *collected[:2], numbers, ends)
                    response.collected.append(collected.copied(ends))
                if asked.sums.node.size:
                    sum_rows(cells, *node_items, asked.sums, self.steps, response.sums)
                if sink is not None:
                    targets = [] if value is None else [value[np.newaxis]]
                    sink([*targets, *self._columns(asked.tree_data, cells)], node_items)
        return responses

    def route(
        self, requests: Sequence[SplitRequest], blocks: range, responses: Sequence[SplitResponse]
    ) -> Iterator[tuple[int, Any, NodeItems, NDArray[np.int64] | None]]:
        """For every block and request, the request's number, the block's cells as its tree sees them, its rows sorted
        by the nodes they fall into, and their regression targets; None for classes.

        responses  record what went left and right; they have the files of the new nodes of rows, unless small nodes
                   follow.
        """
        allow_many_files()  # two for each tree, on each thread
        store, regression = self.store, self.context.stats.regression
        items, spare = np.empty(BLOCK_ROWS, np.uint64), np.empty(BLOCK_ROWS, np.uint64)
        read = np.empty(BLOCK_ROWS, self.context.kind.dtype)
        columns = [asked.features() for asked in requests]
        some = [features for features in columns if features is not None]
        every = range(len(store.spec.features))
        needed = sorted(self.needed(set().union(*some))) if len(some) == len(columns) else every
        again = any(asked.row_nodes for asked in requests)
        with ExitStack() as stack:
            reader = stack.enter_context(self.reader(blocks, needed, again))
            rows = []
            for asked, response in zip(requests, responses, strict=True):
                kept, out = (files.row_nodes.get(blocks.start) for files in (asked, response))
                opened = row_nodes(self.sampler, asked.tree, kept, None if asked.small else out)
                rows.append(stack.enter_context(opened))
            for block, cells in reader.each(blocks, needed):
                store.check_unchanged()
                span = block_span(store.rows, block)
                target = store.labels(span.start, span.stop)
                for at, (asked, response) in enumerate(zip(requests, responses, strict=True)):
                    take, keep = rows[at]
                    node_items = take(block, target.size, None if regression else target, asked.nodes, items)
                    here, begin, end = node_items
                    seen = self.view(asked.tree_data, cells, target.size, columns[at])
                    ends = (begin, end, response.below, response.above)
                    route_rows(seen, asked.ways, here, spare, read, asked.splits, *ends)
                    keep(*node_items)
                    yield at, seen, node_items, target if regression else None

    def _columns(self, tree_data: Any, cells: Any) -> Iterator[NDArray[Any]]:
        """The columns that a tree grows on, from each matrix of a block."""
        place = self.place(tree_data)
        for matrix in cells[:3]:
            slots = place[place[:, 0] == matrix.itemsize, 1]
            yield read_only(matrix if slots.size == len(matrix) else matrix[slots])


class Passes(NamedTuple):
    """The passes of a group of trees over a table.

    ranges  the runs of blocks, a task each, the same for all passes
    folder  scratch for these trees, empty
    """

    table: TableView
    ranges: Sequence[tuple[range]]
    folder: Path
    executor: Executor

    @classmethod
    def of(cls, table: TableView, folder: Path, executor: Executor) -> Passes:
        """Passes with as many tasks as run at once."""
        return cls(table, table.ranges(executor.size), folder, executor)

    def responses(
        self, task: Callable[..., list[SplitResponse]], requests: Sequence[SplitRequest]
    ) -> list[SplitResponse]:
        """The responses of all blocks to the requests; task: TableView.answer, or what calls it."""
        return self.executor.reduce(task, self.ranges, merged_all, (self.table, requests, self.folder))


def block_ranges(store: Store, tasks: int) -> list[tuple[range]]:
    """All blocks of the store in `tasks` runs of about equal length, or fewer where there are fewer blocks."""
    blocks = block_count(store.rows)
    cuts = np.linspace(0, blocks, min(tasks, blocks) + 1).astype(int).tolist()
    return [(range(first, stop),) for first, stop in pairwise(cuts)]


# Values of a byte.
_BYTE = 256
# The types of the matrices of BlockValues by the bytes of a value, in their order.
_TYPES = {np.dtype(kind).itemsize: np.dtype(kind) for kind in PROJECTIONS.cells}
# In place of a checksum that was verified in this process: verifying in each pass took an eighth of growing.
_VERIFIED = -1


class DecodedTable(NamedTuple):
    """The values of a table.

    runs     by runs of blocks the path of their files, without the type, and int64 [features, blocks], the CRC-32 of
             each column of each block
    place    uint32 [features, 2], see kernels/out_of_core/blocks.py BlockValues
    spans    smallest and largest value of each feature
    steps    the steps in which they are summed; None if no family of trees asks for sums
    """

    runs: dict[range, tuple[Path, NDArray[np.int64]]]
    place: NDArray[np.uint32]
    spans: Spans
    steps: Steps | None = None


def sweeps(shape: Shape, limits: MemoryLimits) -> int:
    """How often codes are read to look up all values: once for each range of a dictionary, of mean size."""
    return max(1, -(-shape.codes // (shape.features * limits.values)))


def decode_table(
    store: Store, ranges: Sequence[tuple[range]], folder: Path, executor: Executor, most: int
) -> DecodedTable:
    """Write the values of the table into `folder`, files for each of the runs of blocks `ranges`.

    most  float64 of a dictionary that a task may hold.
    """
    features = range(len(store.spec.features))
    ends = np.array([store.ends(feature) for feature in features])
    width = np.array([_width_of(store.low(feature), *ends[feature]) for feature in features])
    slot = np.sum([(width == each) * np.cumsum(width == each) for each in _TYPES], axis=0) - 1
    place = np.stack([width, slot], axis=1).astype(np.uint32)
    runs = executor.reduce(decode_blocks, ranges, or_, (store, place, folder, most))
    ordered = dict(sorted(runs.items(), key=lambda run: run[0].start))
    return DecodedTable(ordered, place, Spans(ends[:, 0].copy(), ends[:, 1].copy()))


def decode_blocks(
    store: Store, place: NDArray[np.uint32], folder: Path, most: int, blocks: range
) -> dict[range, tuple[Path, NDArray[np.int64]]]:
    """Task: write the values of the rows of some blocks; see DecodedTable.runs."""
    path = folder / f"values-{blocks.start}-{secrets.token_hex(8)}"
    rows = _rows(store, blocks)
    crc = np.zeros((len(place), len(blocks)), np.int64)
    store.fetch(range(len(place)), blocks)
    with ExitStack() as stack:
        reader = BlockReader(store.folder, store.spec, store.place, False)
        stack.enter_context(reader)
        files: dict[int, FileIO] = {}
        for width in np.unique(place[:, 0]).tolist():
            temporary = stack.enter_context(write_atomically(path.with_suffix(f".{width}")))
            files[width] = stack.enter_context(temporary.open("w+b", buffering=0))
        for feature, (width, slot) in enumerate(place.tolist()):
            low, file = store.low(feature), files[width]
            step = most * VALUE_TYPE.itemsize // width
            for first in range(0, low.size, step):
                copied = np.array(low[first : first + step], _TYPES[width])  # a map would be read at random
                for number, (block, codes) in enumerate(reader.each(blocks, [feature])):
                    values = np.empty(reader.size(block), copied.dtype)
                    offset = width * (slot * rows + number * BLOCK_ROWS)
                    if first:
                        file.seek(offset)
                        file.readinto(values.data.cast("B"))
                    _look_up(column_of(codes, feature)[: values.size], copied, first, low.size, values)
                    file.seek(offset)
                    write_whole(file, values)
                    crc[feature, number] = zlib.crc32(values.data)
    return {blocks: (path, crc)}


def _rows(store: Store, blocks: range) -> int:
    return min(blocks.stop * BLOCK_ROWS, store.rows) - blocks.start * BLOCK_ROWS


def _look_up(codes: NDArray[Any], copied: NDArray[Any], first: int, size: int, values: NDArray[Any]) -> None:
    """values[i] = copied[codes[i] - first], where there is one; size: of the whole dictionary."""
    if copied.size == size:
        np.take(copied, codes, out=values, mode="clip")  # other modes make a copy
        return
    inside = (codes >= first) & (codes < first + copied.size)
    values[inside] = copied[codes[inside] - np.int64(first)]


class ValueReader(MatrixReader):
    """The values of a run of blocks."""

    _cells = BlockValues

    def __init__(self, store: Store, decoded: DecodedTable, blocks: range) -> None:
        self._path, self._crc = decoded.runs[blocks]
        rows, widths = _rows(store, blocks), decoded.place[:, 0].tolist()
        files = {}
        for width, kind in _TYPES.items():
            path = self._path.with_suffix(f".{width}")
            here, columns = (local_path(path), widths.count(width)) if width in widths else (path, 0)
            files[width] = ColumnFile(here, kind, columns, rows, BLOCK_ROWS, again=True)
        super().__init__(files, decoded.place, blocks, rows)

    def _check(self, feature: int, block: int, column: NDArray[Any]) -> None:
        known, number = self._crc[feature], block - self._first
        expected = known[number]  # read once: another thread may note that the column is verified
        if expected != _VERIFIED:
            if zlib.crc32(column.data) != expected:
                raise damaged(self._path)
            known[number] = _VERIFIED


def column_of(cells: Codes | BlockValues, feature: int) -> NDArray[Any]:
    """The column of a feature in a block."""
    width, slot = cells.place[feature].tolist()
    column: NDArray[Any] = next(matrix for matrix in cells[:3] if matrix.itemsize == width)[slot]
    return column


def tree_columns(matrices: Sequence[NDArray[Any]], place: NDArray[np.uint32]) -> list[NDArray[Any]]:
    """The columns of matrices that hold, of each width, those of these places in their order."""
    rows = {matrix.itemsize: iter(matrix) for matrix in matrices}
    return [next(rows[width]) for width in place[:, 0].tolist()]


def _width_of(values: NDArray[np.float64], least: float, most: float) -> int:
    """The narrowest type, in bytes, for all values, of which these are the ends."""
    if values.size <= _BYTE and 0.0 <= least <= most < _BYTE and not np.signbit(values).any() and are_whole(values):
        return 1
    return 4 if is_float32(values) else 8
