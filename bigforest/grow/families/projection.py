"""Code shared by families whose trees split on projections: values in scratch, the table for passes, the family.

Passes project rows on directions, in the same order of terms as in memory, so they need values, not codes. Values are
looked up by code, and a dictionary may be larger than memory. So all values are looked up once per forest, a feature
and a range of its dictionary at a time, in sweeps over the codes (`decode_table`). A run of consecutive blocks has a
file for each type of values, little-endian, in C order; checksums of each column of each block are kept in memory:

    .1  uint8   [columns, rows of the run]  features whose values are whole numbers from 0 to 255
    .4  float32 [columns, rows of the run]  other features whose values float32 represents exactly
    .8  float64 [columns, rows of the run]  all others

Oracle: grow/forest.py grow_tree, which holds all values in memory.
"""

from __future__ import annotations

import math
import secrets
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from operator import or_
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.encode.values import dense_ranks
from bigforest.execution.executor import Executor
from bigforest.forest.format import GROUP_ENTRIES
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.criteria import criterion_of
from bigforest.grow.families.family import Family, TreeCall, check_plain
from bigforest.grow.filled_store import with_defaults
from bigforest.grow.memory_model import code_bytes
from bigforest.grow.out_of_core.context import PROJECTIONS, GrowContext, MemoryLimits
from bigforest.grow.out_of_core.probes import Direction, Spans, terms_of
from bigforest.grow.out_of_core.table import TableView, block_ranges
from bigforest.grow.out_of_core.upper_tree import UpperTree, read_subtree
from bigforest.grow.trees import Ends, tree_arrays
from bigforest.kernels.common.layout import OBLIQUE, Codes
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.out_of_core.blocks import BlockValues
from bigforest.kernels.tree.builder import CodeTree, Rules
from bigforest.kernels.tree.grow import grow
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape
from bigforest.sampling.bags import Sampler
from bigforest.storage.array_file import damaged
from bigforest.storage.atomic import write_whole
from bigforest.storage.paths import local_path, write_atomically
from bigforest.store.blocks import BlockReader, ColumnFile, MatrixReader
from bigforest.store.format import BLOCK_ROWS, VALUE_TYPE
from bigforest.store.store import Dictionaries, Store

# Bytes of a term of a growing tree: the term and a copy.
_TERM = 24
# Bytes of a term while it is written to a Parquet file.
_WRITTEN_TERM = 64
# Bytes per row of the table while the deviation of one column, or the ranks of one projection, are computed.
MEASURED = 48

# Number of values of a byte.
_BYTE = 256
# Types of the matrices of BlockValues, in their order, by the bytes of a value.
_TYPES = {np.dtype(kind).itemsize: np.dtype(kind) for kind in PROJECTIONS.cell_types}
# Replaces a checksum that was verified in this process: verifying in each pass took an eighth of growing.
_VERIFIED = -1
# Values of a dictionary read at a time.
_CHUNK = 1 << 16


class DecodedTable(NamedTuple):
    """The values of a table in scratch files.

    runs   for each run of blocks the path of its files, without the ending, and the CRC-32 of each column of each
           block, int64 [features, blocks]
    place  uint32 [features, 2], see kernels/out_of_core/blocks.py BlockValues
    spans  smallest and largest value of each feature
    """

    runs: dict[range, tuple[Path, NDArray[np.int64]]]
    place: NDArray[np.uint32]
    spans: Spans


def decode_table(
    store: Store, ranges: Sequence[tuple[range]], folder: Path, executor: Executor, most: int
) -> DecodedTable:
    """Write the values of the table into `folder`.

    ranges  runs of blocks; each gets its own files
    most    most float64 values of a dictionary that a task may hold; more of narrower types
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
    """Task: write the values of the rows of some blocks; return an entry of DecodedTable.runs."""
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
    """Set values[i] = copied[codes[i] - first] where the code is in the copied range; size: of the whole dictionary."""
    if copied.size == size:
        np.take(copied, codes, out=values, mode="clip")  # other modes make a copy
        return
    inside = (codes >= first) & (codes < first + copied.size)
    values[inside] = copied[codes[inside] - np.int64(first)]


class ValueReader(MatrixReader):
    """Reader of the values of a run of blocks."""

    _cells = BlockValues

    def __init__(self, store: Store, decoded: DecodedTable, blocks: range) -> None:
        self._path, self._crc = decoded.runs[blocks]
        rows, widths = _rows(store, blocks), decoded.place[:, 0].tolist()
        files = {}
        for width, kind in _TYPES.items():
            path = self._path.with_suffix(f".{width}")
            local, columns = (local_path(path), widths.count(width)) if width in widths else (path, 0)
            files[width] = ColumnFile(local, kind, columns, rows, BLOCK_ROWS, again=True)
        super().__init__(files, decoded.place, blocks, rows)

    def _check(self, feature: int, block: int, column: NDArray[Any]) -> None:
        checksums, number = self._crc[feature], block - self._first
        expected = checksums[number]  # read once: another thread may note that the column is verified
        if expected != _VERIFIED:
            if zlib.crc32(column.data) != expected:
                raise damaged(self._path)
            checksums[number] = _VERIFIED


def column_of(cells: Codes | BlockValues, feature: int) -> NDArray[Any]:
    width, slot = cells.place[feature].tolist()
    column: NDArray[Any] = next(matrix for matrix in cells[:3] if matrix.itemsize == width)[slot]
    return column


def tree_columns(matrices: Sequence[NDArray[Any]], place: NDArray[np.uint32]) -> list[NDArray[Any]]:
    """Return columns in the order of `place`; matrices: a matrix for each width, with its columns in this order."""
    rows = {matrix.itemsize: iter(matrix) for matrix in matrices}
    return [next(rows[width]) for width in place[:, 0].tolist()]


def _width_of(values: NDArray[np.float64], least: float, most: float) -> int:
    """Return the bytes of the narrowest type for all values, which range from `least` to `most`."""
    if values.size <= _BYTE and 0.0 <= least <= most < _BYTE and not np.signbit(values).any() and are_whole(values):
        return 1
    return 4 if is_float32(values) else 8


def is_float32(values: NDArray[np.float64]) -> bool:
    """Return True if float32 represents all values, float64 [values], exactly. Reads chunks, as the array may be
    mapped."""
    chunks = (values[first : first + _CHUNK] for first in range(0, values.size, _CHUNK))
    with np.errstate(over="ignore"):
        return all((chunk.astype(np.float32) == chunk).all() for chunk in chunks)


def code_columns(
    columns: Iterable[NDArray[Any]], count: int, rows: int, used: NDArray[np.int64] | None = None
) -> tuple[Codes, Dictionaries]:
    """Rank the values of `count` columns, without NaN, as a table: codes of 4 bytes, and the dictionary of each.

        column   0.5  0.1  0.5        codes   1  0  1        values   0.1  0.5

    used  numbers of the rows that the columns have values for. Others of the `rows` rows get code 0. None for all.
    """
    matrix = (np.empty if used is None else np.zeros)((count, rows), np.uint32)
    where = slice(None) if used is None else used
    low: list[NDArray[np.float64]] = []
    for number, column in enumerate(columns):
        matrix[number, where], distinct = dense_ranks(column.astype(np.float64, copy=False))
        low.append(distinct)
    none = np.empty((0, rows), np.uint8), np.empty((0, rows), np.uint16)
    codes = Codes._make([read_only(array) for array in (*none, matrix, places(4, count))])
    values = read_only(np.concatenate(low))
    return codes, Dictionaries(np.cumsum([0, *map(len, low)]), values, values)


def places(width: int, columns: int) -> NDArray[np.uint32]:
    """Return the places of columns in cells of one type, of this many bytes, uint32 [columns, 2]."""
    return np.array([(width, column) for column in range(columns)], np.uint32)


def are_whole(values: NDArray[np.float64], most: float = np.inf) -> bool:
    """Return True if all values are whole numbers of absolute value up to `most`.

    Infinite values count as whole if `most` is infinite. Reads chunks, as the array may be mapped.
    """
    chunks = (values[first : first + _CHUNK] for first in range(0, values.size, _CHUNK))
    return all(((np.floor(chunk) == chunk) & (np.abs(chunk) <= most)).all() for chunk in chunks)


def with_thresholds(nodes: CodeTree, dictionaries: Dictionaries, pool: DirectionExtras) -> DirectionExtras:
    """Return the pool with thresholds also for nodes that split on a single column; dictionaries: of the columns."""
    axis = nodes.feature >= 0
    offsets, low, high = dictionaries
    start = offsets[nodes.feature[axis]]
    threshold = pool.threshold.copy()
    threshold[axis] = Ends(high[start + nodes.left_code[axis]], low[start + nodes.right_code[axis]]).middle()
    return pool._replace(threshold=threshold)


@dataclass(frozen=True)
class ProjectionTable(TableView):
    """A TableView whose cells are values."""

    decoded: DecodedTable

    def ranges(self, tasks: int) -> list[tuple[range]]:
        # Each run of blocks has its own files of values, whatever the number of tasks.
        return [(blocks,) for blocks in self.decoded.runs]

    def reader(self, blocks: range, features: Sequence[int], again: bool) -> ValueReader:
        return ValueReader(self.store, self.decoded, blocks)

    def place(self, tree_data: Any) -> NDArray[np.uint32]:
        return self.decoded.place

    def largest_equivalent(self, column: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return, for each of these values of a column, the largest value of its bin; by default there are no bins."""
        return values

    def extras(self, top: UpperTree) -> DirectionExtras:
        """Return directions and thresholds of the nodes of the upper part of a tree."""
        nodes = [top.nodes[entry] for entry in top.preorder()]
        below, above = np.array([node.below for node in nodes], float), np.array([node.above for node in nodes], float)
        for at, node in enumerate(nodes):
            if node.feature >= 0:
                below[at] = self.largest_equivalent(node.feature, below[at : at + 1])[0]
            if node.split is not None and node.direction is not None and node.direction.line:
                below[at] = above[at] = node.split.code
        none = Direction(np.empty(0, np.uint32), np.empty(0))
        directions = [node.direction if node.feature == OBLIQUE and node.direction else none for node in nodes]
        start, feature, weight = terms_of(directions)
        size, used = np.diff(start).astype(np.uint32), start[-1:].astype(np.uint64)
        return DirectionExtras(Ends(below, above).middle(), size, feature, weight, used)

    def finished(self, top: UpperTree, path: Path | None, numbers: NDArray[np.int64]) -> TreeArrays:
        nodes, pool = (top.skeleton(), self.extras(top)) if path is None else read_subtree(path)
        assert isinstance(pool, DirectionExtras)
        dictionaries, scale = self.store.dictionaries, self.store.spec.target.scale
        trees = tree_arrays(nodes, dictionaries, self.context.criterion, pool, thresholds=pool.threshold, scale=scale)
        return with_defaults(trees, self.store.spec)


class ProjectionFamily(Family):
    """A family of trees that split on projections."""

    def check(self, shape: Shape, config: TrainConfig) -> None:
        check_plain(shape)  # only fails with the option `ranks`: without it, categories and missing values are filled

    def grow(self, call: TreeCall, shared: Any) -> TreeArrays:
        # `shared` is a SparseObliqueTrees or SubspaceTrees; `scratch` makes the scratch of the kernels for a tree.
        store = call.sampler.store
        scratch = shared.scratch(store, call.rows.items, call.first)
        nodes, pool = grow(store.codes, call.by_row, *call.rows, scratch)
        criterion, scale = criterion_of(call.sampler.config), store.spec.target.scale
        return with_defaults(tree_arrays(nodes, store.dictionaries, criterion, pool, scale=scale), store.spec)

    @abstractmethod
    def projection_table(
        self, store: Store, sampler: Sampler, context: GrowContext, decoded: DecodedTable
    ) -> ProjectionTable:
        """Return the table for passes, from its decoded values."""

    def passed_table(
        self, store: Store, config: TrainConfig, rules: Rules, limits: MemoryLimits, folder: Path, executor: Executor
    ) -> ProjectionTable:
        context = GrowContext.of(store, config, rules, limits, PROJECTIONS)
        decoded = decode_table(store, block_ranges(store, executor.size), folder, executor, limits.values)
        return self.projection_table(store, Sampler(store, config), context, decoded)

    def grown_term_bytes(self, shape: Shape, config: TrainConfig, splits: int) -> int:
        """Return the bytes of the terms of a tree with `splits` splits."""
        terms = math.ceil(splits * self.max_terms(shape.features, config))
        return terms * _TERM + min(terms, GROUP_ENTRIES) * _WRITTEN_TERM

    def node_term_bytes(self, shape: Shape, config: TrainConfig) -> int:
        """Return the bytes of the terms of a node."""
        return math.ceil(_TERM * self.max_terms(shape.features, config))


def random_access_bytes(shape: Shape) -> int:
    """Return the bytes of all codes, targets and values of a table, which growing in memory reads at random."""
    return code_bytes(shape) + 8 * shape.codes


def decoded_bytes(shape: Shape) -> int:
    """Return the most bytes of a value of the table in scratch: 1 if all are known to fit in a byte (Shape.bits)."""
    return 1 if shape.bits else 8
