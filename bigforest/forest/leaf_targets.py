"""The training targets in the leaves of a regression forest, for predicting quantiles.

targets/values.parquet has the distinct targets of the training table. targets/part-NNNNNNN.parquet lists, for each leaf
of some trees, the targets of its rows and their weights (format.py TARGET_VALUES and LEAF_TARGETS).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import arrow_array, as_numpy
from bigforest.errors import FormatError, damaged_forest
from bigforest.forest.files import (
    Header,
    decoding,
    open_checked,
    open_parquet,
    read_table,
    write_tables,
)
from bigforest.forest.format import LEAF_TARGETS, TARGET_VALUES
from bigforest.forest.nodes import cut_entries
from bigforest.forest.parts import first_tree, parts_in
from bigforest.storage.array_file import mapped_array
from bigforest.storage.parquet_footer import row_groups
from bigforest.storage.paths import is_remote

# Most targets in a row group, which is read as a whole. A leaf with more targets is a row group of its own.
_GROUP_ENTRIES = 1 << 18
# The mean of the targets in a leaf may differ from the value of the leaf by this share of the range of all targets,
# plus the step of targets.
_NEAR = 2.0**-20


class LeafTargets(NamedTuple):
    """The targets of all leaves (kernels/predict/quantile.py). Leaves are numbered in the order of trees and nodes.

    first  int64 [trees + 1], tree t has the leaves first[t]:first[t + 1]
    node   uint32 [leaves], number of the node of each leaf
    start  uint64 [leaves + 1], leaf i has the entries start[i]:start[i + 1]
    code   uint32 [entries], mapped from a file if memory is limited
    reach  uint32 [entries], cumulative weights in each leaf, mapped likewise
    value  float64 [codes], the distinct targets, ascending
    """

    first: NDArray[np.int64]
    node: NDArray[np.uint32]
    start: NDArray[np.uint64]
    code: NDArray[np.uint32]
    reach: NDArray[np.uint32]
    value: NDArray[np.float64]

    @property
    def held(self) -> int:
        """Bytes of anonymous memory if `code` and `reach` are mapped."""
        return self.first.nbytes + self.node.nbytes + self.start.nbytes + self.value.nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of anonymous memory if nothing is mapped."""
        return self.held + self.code.nbytes + self.reach.nbytes

    def have_means(self, mean: NDArray[np.float64], leaf: int, step: float) -> bool:
        """Return True if the weighted means of the targets of leaves equal `mean`, up to the tolerance of _NEAR.

        mean  float64 [leaves], means of the leaves from number `leaf` on
        step  step of the targets, see TargetSpec
        """
        # Targets are scaled to the range from -1 to 1. The tolerance is a share of this range, because merged forests
        # may have different steps, and wide weights are stored rounded. It includes the rounding of targets that are
        # large compared with their range.
        low, high = float(self.value[0]), float(self.value[-1])
        middle, scale = low / 2 + high / 2, (high / 2 - low / 2) or 1.0
        value = (self.value - middle) / scale
        near = (step + float(np.spacing(max(-low, high)))) / scale + 2 * _NEAR
        starts = self.start[leaf : leaf + mean.size + 1].astype(np.int64)
        for begin, end in cut_entries(starts, _GROUP_ENTRIES):
            entries = slice(starts[begin], starts[end])
            first = starts[begin:end] - starts[begin]
            reach = self.reach[entries].astype(np.float64)
            weight = np.diff(reach, prepend=0.0)
            weight[first] = reach[first]
            total = np.add.reduceat(weight * value[self.code[entries]], first)
            with np.errstate(over="ignore"):
                apart = np.abs(total / np.add.reduceat(weight, first) - (mean[begin:end] - middle) / scale)
            if not (apart <= near).all():
                return False
        return True


def write_values(directory: Path, values: Iterable[NDArray[np.float64]], header: Header) -> None:
    """Write the distinct targets, ascending, in row groups."""
    tables = (TARGET_VALUES.table({"value": group}) for group in values)
    write_tables(tables, TARGET_VALUES.at(directory), TARGET_VALUES, header)


class LeavesOfTree(NamedTuple):
    """Targets of consecutive leaves of a tree.

    node    uint32 [leaves], node number of each leaf, ascending
    start   int64 [leaves + 1], leaf i has the targets start[i]:start[i + 1]
    code    uint32 [targets], codes of the targets, ascending in each leaf
    weight  uint32 [targets]
    """

    node: NDArray[np.uint32]
    start: NDArray[np.int64]
    code: NDArray[np.uint32]
    weight: NDArray[np.uint32]

    def rows(self, begin: int, end: int) -> LeavesOfTree:
        start = self.start[begin : end + 1]
        targets = slice(int(start[0]), int(start[-1]))
        return LeavesOfTree(self.node[begin:end], start - start[0], self.code[targets], self.weight[targets])

    def followed_by(self, other: LeavesOfTree) -> LeavesOfTree:
        start = np.append(self.start, self.start[-1] + other.start[1:])
        pairs = ((self.node, other.node), (self.code, other.code), (self.weight, other.weight))
        node, code, weight = (np.concatenate(pair) for pair in pairs)
        return LeavesOfTree(node, start, code, weight)


def leaves_tables(tree: int, leaves: Iterable[LeavesOfTree]) -> Iterator[pa.Table]:
    """Yield a table for each row group of a tree; leaves: consecutive leaves of the tree, some at a time."""
    rest: LeavesOfTree | None = None
    for piece in leaves:
        held = piece if rest is None else rest.followed_by(piece)
        cuts = list(cut_entries(held.start, _GROUP_ENTRIES))
        yield from (_table(tree, held.rows(begin, end)) for begin, end in cuts[:-1])
        rest = held.rows(*cuts[-1])  # the last table may not be full yet
    if rest is not None:
        yield _table(tree, rest)


def _table(tree: int, leaves: LeavesOfTree) -> pa.Table:
    trees = arrow_array(np.full(leaves.node.size, tree, np.uint32))
    lists = (_lists(leaves.start, entries) for entries in (leaves.code, leaves.weight))
    return pa.Table.from_arrays([trees, arrow_array(leaves.node), *lists], schema=LEAF_TARGETS.columns)


def _lists(start: NDArray[Any], entries: NDArray[np.uint32]) -> pa.Array:
    """Return a column of lists; list i is entries[start[i]:start[i + 1]]."""
    kind = LEAF_TARGETS.columns.field("targets").type
    return pa.ListArray.from_arrays(arrow_array(start.astype(np.int32)), arrow_array(entries), type=kind)


def read_targets(directory: Path, header: Header, scratch: Path | None, *, mapped: bool) -> LeafTargets:
    """Read and check the targets of the forest in `directory`.

    mapped   map the large arrays from files in `scratch`, or in the system's temporary folder if `scratch` is None or
             in an object store. The files disappear with the arrays.

    Raises FormatError if targets are missing or damaged.
    """
    from bigforest.kernels.predict.quantile import add_up_leaves

    value = read_values(directory, header)
    parts = parts_in(directory, LEAF_TARGETS)
    files = [open_parquet(path) for path in parts]
    leaves = sum(file.metadata.num_rows for file in files)
    most = sum(_most_entries(path) for path in parts)
    code, reach = (_entries_array(most, scratch, mapped=mapped) for _ in range(2))
    start = np.zeros(leaves + 1, np.uint64)
    tree, node = np.empty(leaves, np.uint32), np.empty(leaves, np.uint32)
    leaf = entry = 0
    for path in parts:
        for batch in _batches(path, header):
            trees, ends, codes, weights = _leaves(batch, path)
            if leaf + trees.size > leaves or entry + codes.size > most:
                raise damaged_forest(f"{path} has more rows than it says")
            tree[leaf : leaf + trees.size] = trees
            node[leaf : leaf + trees.size] = as_numpy(batch.column("node"))
            start[leaf + 1 : leaf + 1 + trees.size] = ends + entry
            code[entry : entry + codes.size], reach[entry : entry + codes.size] = codes, weights
            leaf, entry = leaf + trees.size, entry + codes.size
    ordered = (np.diff(tree.astype(np.int64)) >= 0).all() and (not leaves or int(tree[-1]) < header.config.trees)
    if leaf != leaves or not ordered or not add_up_leaves(start, code, reach, np.uint64(value.size)):
        raise damaged_forest(f"{LEAF_TARGETS.at(directory).parent}: leaves and targets do not match")
    first = np.searchsorted(tree, np.arange(header.config.trees + 1))
    return LeafTargets(first, node, start, code, reach, value)


def copy_targets(sources: Sequence[tuple[Path, Header]], directory: Path, merged: Header) -> None:
    """Write the targets of several forests, in this order, as the targets of the `merged` forest in `directory`."""
    values = [read_values(source, header) for source, header in sources]
    union = np.unique(np.concatenate(values))
    write_values(directory, [union], merged)
    offset = 0
    for (source, header), targets in zip(sources, values, strict=True):
        places = np.searchsorted(union, targets).astype(np.uint32)
        for path in parts_in(source, LEAF_TARGETS):
            tables = _renumber(path, header, offset, places)
            write_tables(tables, LEAF_TARGETS.part(directory, first_tree(path) + offset), LEAF_TARGETS, merged)
        offset += header.config.trees


def _renumber(path: Path, header: Header, offset: int, places: NDArray[np.uint32]) -> Iterator[pa.Table]:
    """Yield the leaves in a file with tree numbers raised by `offset` and code c replaced by places[c]."""
    for batch in _batches(path, header):
        _, ends, codes, weights = _leaves(batch, path)
        if codes.size and int(codes.max()) >= places.size:
            raise damaged_forest(f"{path}: a target is not in the training table")
        tree = arrow_array(as_numpy(batch.column("tree")) + np.uint32(offset))
        lists = (_lists(np.append(0, ends), entries) for entries in (places[codes], weights))
        yield pa.Table.from_arrays([tree, batch.column("node"), *lists], schema=LEAF_TARGETS.columns)


def read_values(directory: Path, header: Header) -> NDArray[np.float64]:
    path = TARGET_VALUES.at(directory)
    table = read_table(path, TARGET_VALUES, header)
    column = table["value"]
    value = np.array(as_numpy(column), np.float64)
    if column.null_count or not value.size or not np.isfinite(value).all() or (np.diff(value) < 0.0).any():
        raise damaged_forest(f"{path}: the targets are not ascending numbers")
    return value


def _most_entries(path: Path) -> int:
    """Return an upper bound of the number of targets in the leaves of a file, from its metadata."""
    with decoding(path):
        chunks = [chunk for group in row_groups(path) for chunk in group]
    return sum(chunk.values or 0 for chunk in chunks if chunk.name.startswith("targets."))


def _entries_array(entries: int, scratch: Path | None, *, mapped: bool) -> NDArray[np.uint32]:
    if not mapped or not entries:
        try:
            return np.empty(entries, np.uint32)
        except (MemoryError, ValueError) as error:
            raise FormatError(f"{entries:,} targets of leaves do not fit in memory; set a memory limit") from error
    folder = Path(tempfile.gettempdir()) if scratch is None or is_remote(scratch) else scratch
    return mapped_array(folder, entries, np.uint32)


def _batches(path: Path, header: Header) -> Iterator[Any]:
    """Yield the rows of a file of leaves, some at a time, validated by Arrow. Raises FormatError."""
    file = open_checked(path, LEAF_TARGETS, header)
    with decoding(path):
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(_GROUP_ENTRIES, row_groups=[group], use_threads=False):
                batch.validate(full=True)
                yield batch


def _leaves(
    batch: Any, path: Path
) -> tuple[NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the tree of each leaf, the end of its targets, and codes and weights of all targets of the batch."""
    lists = [batch.column(name) for name in ("targets", "weights")]
    offsets = [as_numpy(column.offsets).astype(np.int64) for column in lists]
    lengths = [np.diff(offsets_of_list) for offsets_of_list in offsets]
    entries = [column.flatten() for column in lists]
    if any(column.null_count for column in [*batch.columns, *entries]) or not np.array_equal(lengths[0], lengths[1]):
        raise damaged_forest(f"{path}: a leaf lacks a weight for one of its targets")
    ends = np.cumsum(lengths[0]).astype(np.uint64)
    return as_numpy(batch.column("tree")), ends, as_numpy(entries[0]), as_numpy(entries[1])
