"""Where rows that are not in the bag of a tree end in it, of trees that were grown by passes: block by block.

What nodes split on is kept in scratch while the part of a tree is written, in arrays that are mapped: the system has
their pages in memory as long as there is room, and threads share them. So a tree need not fit into the budget. A task
for each run of blocks sends the rows down the trees of a group, and what all have found is put together by parts.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from operator import or_
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import FormatError
from bigforest.execution.executor import Executor
from bigforest.forest.format.nodes import TreeArrays
from bigforest.forest.votes.ballots import Ballots, GrownNodes, ballots_of, shifted
from bigforest.forest.votes.leaf_files import LeafChunk, leaf_chunk_rows, leaves_path, write_ballots, write_leaves
from bigforest.forest.votes.thresholds_to_codes import turn_thresholds
from bigforest.grow.shared.feature_kinds import Features
from bigforest.kernels.columns.row_major import CACHE_BYTES
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.common.transpose import row_items, transpose
from bigforest.kernels.out_of_core.blocks import BlockValues
from bigforest.kernels.predict.flat_tree import NodeLayout
from bigforest.kernels.predict.route_codes import CodeScratch, CodeView, GrownSplits, find_leaves
from bigforest.kernels.predict.route_projections import ProjectedScratch, ProjectedSplits, find_projected_leaves
from bigforest.sampling.bags import Sampler
from bigforest.schema.dataspec import DataSpec
from bigforest.storage.array_file import ArrayFile, writing_arrays
from bigforest.storage.paths import local_path, write_atomically
from bigforest.store.store import Dictionaries, Store

# The arrays of a tree, and their types. The levels and terms of each node begin where `lists` and `parts` say, which
# end with where the last ones end.
_SPLITS = {
    "feature": "<i4",
    "right": "<u4",
    "below": "<u4",
    "above": "<u4",
    "threshold": "<f8",
    "default_left": "|b1",
    "lists": "<i8",
    "level": "<u4",
    "parts": "<i8",
    "term": "<i4",
    "weight": "<f8",
}
# Nodes whose cuts are looked at together.
_STRETCH = 1 << 15
# Bits of a link below the feature of a node (kernels/predict/flat_tree.py).
_PLACE, _ONE = np.uint64(32), np.uint64(1)
# The leaves of a run of blocks, chunk by chunk, see LeafChunk.
_FOUND = {"rows": "<u2", "leaves": "<u4", "counts": "<u4"}


class BlockTable(Protocol):
    """What is needed of a table that passes go over (grow/out_of_core/table.py)."""

    @property
    def sampler(self) -> Sampler: ...
    @property
    def kind(self) -> Any: ...

    def reader(self, blocks: range, features: Sequence[int], again: bool) -> Any:
        """Reads blocks of codes, or of values where columns are projections."""


class _Arrays(NamedTuple):
    """Arrays in files, STEM-NAME.bin.

    types   of each, by name.
    sizes   entries of each.
    checks  CRC-32 of each.
    """

    folder: Path
    stem: str
    types: dict[str, str]
    sizes: list[int]
    checks: list[int]

    def path(self, name: str) -> Path:
        return self.folder / f"{self.stem}-{name}.bin"

    def load(self) -> dict[str, NDArray[Any]]:
        """The arrays, mapped. Raises FormatError for a damaged file."""
        found: dict[str, NDArray[Any]] = {}
        for (name, kind), size, check in zip(self.types.items(), self.sizes, self.checks, strict=True):
            here = local_path(self.path(name))
            if here.stat().st_size != size * np.dtype(kind).itemsize:
                raise FormatError(f"{self.path(name)}: the file is damaged; start the training again")
            array = np.asarray(np.memmap(here, kind, "r")) if size else np.empty(0, kind)
            array.flags.writeable = False
            if zlib.crc32(array.data) != check:
                raise FormatError(f"{self.path(name)}: the checksum differs; start the training again")
            found[name] = array
        return found

    def remove(self) -> None:
        """Remove the files."""
        for name in self.types:
            self.path(name).unlink(missing_ok=True)


class _Appending:
    """Writes such files, some entries at a time; a context manager."""

    def __init__(self, folder: Path, stem: str, types: dict[str, str]) -> None:
        self.arrays = _Arrays(folder, stem, types, [0] * len(types), [0] * len(types))
        self._files: list[BinaryIO] = []
        self._stack = ExitStack()

    def __enter__(self) -> _Appending:
        for name in self.arrays.types:
            here = self._stack.enter_context(write_atomically(self.arrays.path(name)))
            self._files.append(self._stack.enter_context(here.open("wb")))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def add(self, given: Mapping[str, NDArray[Any]]) -> None:
        """More of some of the arrays."""
        for place, (name, kind) in enumerate(self.arrays.types.items()):
            if name in given:
                content = np.ascontiguousarray(given[name], kind)
                self._files[place].write(content.data)
                self.arrays.sizes[place] += content.size
                self.arrays.checks[place] = zlib.crc32(content.data, self.arrays.checks[place])


class SplitFiles(NamedTuple):
    """What the nodes of a tree split on.

    depth  of the deepest node.
    cut    the largest code that goes left of each node, once it is known.
    """

    arrays: _Arrays
    depth: int
    cut: _Arrays | None = None

    @property
    def nodes(self) -> int:
        """How many there are."""
        return self.arrays.sizes[0]

    def load(self) -> dict[str, NDArray[Any]]:
        """The arrays by their names; `below` and `above` follow from `cut`, so that no code is between them."""
        found = self.arrays.load()
        if self.cut is not None:
            found["below"] = self.cut.load()["cut"]
            found["above"] = found["below"] + np.uint32(1)
            found["above"].flags.writeable = False
        return found

    def remove(self) -> None:
        """Remove the files."""
        for arrays in (self.arrays, self.cut):
            if arrays is not None:
                arrays.remove()


class SplitKeeper:
    """Keeps what is needed of the trees of a part, whose nodes go through; a context manager.

    splits  what their nodes split on, by tree, at the end.
    """

    def __init__(self, spec: DataSpec, directory: Path, folder: Path, part: range) -> None:
        self._directory, self._folder, self._part = directory, folder, part
        self._wide, self._classes = spec.wide_weights, max(1, len(spec.target.classes))
        whole = "<u8" if spec.wide_weights else "<u4"
        types = {"ballot": "<u4", "weight": whole, "mixed": "<f8" if spec.target.is_regression else whole}
        # A name per attempt: it is removed before the task has ended, and another attempt may not have read its own.
        self._cast = _Appending(folder, f"cast-{part.start}-{secrets.token_hex(8)}", types)
        self._first: list[NDArray[np.int64]] = []
        self._nodes = self._mixed = 0
        self.splits: dict[int, SplitFiles] = {}

    def through(self, tree: int, pieces: Iterator[TreeArrays]) -> Iterator[TreeArrays]:
        """The pieces of a tree."""
        ends, depth = {"level": 0, "term": 0}, 0
        with _Appending(self._folder, f"splits-{tree}", _SPLITS) as out:
            for nodes in pieces:
                depth = max(depth, int(nodes.depth.max(initial=0)))
                given = {name: getattr(nodes, name) for name in list(_SPLITS)[:6]}
                none = np.zeros(nodes.feature.size + 1, np.int64), np.empty(0), np.empty(0)
                lists, level = nodes.levels or none[:2]
                parts, term, weight = nodes.terms or none
                given |= {"lists": lists[:-1] + ends["level"], "parts": parts[:-1] + ends["term"]}
                out.add(given | {"level": level, "term": term, "weight": weight})
                ends["level"], ends["term"] = ends["level"] + level.size, ends["term"] + term.size
                self._add_ballots(nodes)
                yield nodes
            out.add({"lists": np.array([ends["level"]]), "parts": np.array([ends["term"]])})
        self.splits[tree] = SplitFiles(out.arrays, depth)

    def __enter__(self) -> SplitKeeper:
        self._cast.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cast.__exit__(kind, error, trace)

    def write_ballots(self) -> None:
        """Write what the leaves cast, when the block has ended."""
        cast = self._cast.arrays.load()
        first = np.concatenate([*self._first, [self._nodes]])
        mixed = cast["mixed"].reshape(-1, self._classes)
        write_ballots(
            leaves_path(self._directory, self._part.start), Ballots(first, cast["ballot"], cast["weight"], mixed)
        )
        self._cast.arrays.remove()

    def _add_ballots(self, nodes: TreeArrays) -> None:
        first = np.append(np.flatnonzero(nodes.depth == 0), nodes.depth.size)
        own = ballots_of(GrownNodes(first, nodes.feature, nodes.weight, nodes.counts, nodes.value), self._wide)
        ballot = shifted(own.ballot, self._classes, self._mixed)
        self._cast.add({"ballot": ballot, "weight": own.weight, "mixed": own.mixed.reshape(-1)})
        self._first.append(own.first[:-1] + self._nodes)
        self._nodes += own.ballot.size
        self._mixed += len(own.mixed)


def write_left_out(
    table: BlockTable,
    parts: Sequence[range],
    splits: Mapping[int, SplitFiles],
    directory: Path,
    folder: Path,
    ranges: Sequence[tuple[range]],
    room: int,
    executor: Executor,
    on_trees: Callable[[int], None],
) -> None:
    """Write the leaves of out-of-bag rows in the trees of these parts.

    ranges  runs of blocks
    room    nodes of trees that rows are sent down together, about
    """
    for some in _portions(parts, splits, room):
        trees = {tree: splits[tree] for part in some for tree in part}
        if not _by_values(table):
            [trees] = executor.map(cut_exactly, [(trees,)], (table.sampler.store,))
        # A task for each worker, which has the blocks of its passes.
        runs = executor.reduce(send_blocks, ranges, or_, (table, some, trees, folder))
        shared = (table.sampler.store, directory, [run for _, run in sorted(runs.items())])
        own = [(part, [trees[tree] for tree in part]) for part in some]
        executor.run(join_runs, own, lambda _, found: on_trees(found), shared, even=True)
        for path in (_piece(run, part) for run in runs.values() for part in some):  # only now: tasks may be done again
            path.unlink()


def _portions(parts: Sequence[range], splits: Mapping[int, SplitFiles], room: int) -> Iterator[list[range]]:
    """The parts whose trees go over the blocks together."""
    portion: list[range] = []
    left = room
    for part in parts:
        nodes = sum(splits[tree].nodes for tree in part)
        if portion and nodes > left:
            yield portion
            portion, left = [], room
        portion.append(part)
        left -= nodes
    yield portion


def cut_exactly(store: Store, trees: dict[int, SplitFiles]) -> dict[int, SplitFiles]:
    """Task: find the largest code that goes left of every node, also of rows that are not in the bag of its tree.

    Some of these have codes between those that the node was split by. A dictionary may be larger than memory, so their
    values are not looked up one by one: each dictionary is walked over once for all trees. Memory: 20 bytes a node.
    """
    loaded = [own.arrays.load() for own in trees.values()]
    sizes = [own["feature"].size for own in loaded]
    words = np.zeros((sum(sizes), 2), np.uint64)
    firsts = (np.cumsum(sizes) - sizes).tolist()
    for own, first in zip(loaded, firsts, strict=True):
        for some in _stretches(own["feature"].size):
            feature, threshold = own["feature"][some], own["threshold"][some]
            here = words[first:][some]
            here[:, 0] = threshold.view(np.uint64)
            here[:, 1] = np.where(np.isnan(threshold), 0, feature.astype(np.uint64) << _PLACE | _ONE)
    links = words.reshape(-1)
    thresholds = links.view(np.float64)
    layout = NodeLayout(thresholds, links, _PLACE, np.uint64(0), np.uint64(0))
    turn_thresholds(layout, np.arange(len(store.spec.features)), store, 1)
    found = {}
    for (tree, kept), own, first in zip(trees.items(), loaded, firsts, strict=True):
        with _Appending(kept.arrays.folder, f"cut-{tree}", {"cut": "<u4"}) as out:
            for some in _stretches(own["feature"].size):
                codes, unknown = np.nan_to_num(thresholds[2 * first :: 2][some]), np.isnan(own["threshold"][some])
                out.add({"cut": np.where(unknown, own["below"][some], codes).astype(np.uint32)})
        found[tree] = kept._replace(cut=out.arrays)
    return found


def _stretches(nodes: int) -> Iterator[slice]:
    """The nodes of a tree, some at a time."""
    return (slice(first, min(first + _STRETCH, nodes)) for first in range(0, nodes, _STRETCH))


def send_blocks(
    table: BlockTable, parts: Sequence[range], splits: Mapping[int, SplitFiles], folder: Path, blocks: range
) -> dict[int, Path]:
    """Task: find the leaves of the rows of some blocks; gives the name of their files, one for each part, by the first
    block."""
    run = folder / f"leaves-{blocks.start}-{secrets.token_hex(8)}"
    store, sender = table.sampler.store, _Sender(table, splits)
    every = range(len(store.spec.features))
    with ExitStack() as stack:
        reader = stack.enter_context(table.reader(blocks, every, True))
        files = [stack.enter_context(writing_arrays(_piece(run, part), _FOUND)) for part in parts]
        for block in blocks:
            cells = reader.read(block, every, block + 1 if block + 1 in blocks else None)
            view = block_view(cells, min(store.block_rows, store.rows - block * store.block_rows))
            for part, add in zip(parts, files, strict=True):
                for chunk in sender.chunks(part, block, view):
                    add(*chunk)
    return {blocks.start: run}


def join_runs(store: Store, directory: Path, runs: Sequence[Path], part: range, splits: Sequence[SplitFiles]) -> int:
    """Task: write the leaves of a part that were found in these runs of blocks; gives how many trees it has. What these
    split on is removed."""
    for own in splits:
        own.remove()
    found = (LeafChunk(*own) for run in runs for own in ArrayFile.of(_piece(run, part), _FOUND).each())
    classes = max(1, len(store.spec.target.classes))
    write_leaves(leaves_path(directory, part.start), part, store.rows, classes, found)
    return len(part)


def _piece(run: Path, part: range) -> Path:
    return run.with_name(f"{run.name}-{part.start}.bin")


def _by_values(table: BlockTable) -> bool:
    """Whether blocks hold values; else they hold codes."""
    return bool(np.dtype(table.kind.dtype).kind == "f")


class _Sender:
    """Finds the leaves of out-of-bag rows in some trees, block by block; for one thread."""

    def __init__(self, table: BlockTable, splits: Mapping[int, SplitFiles]) -> None:
        self._sampler, self._by_values = table.sampler, _by_values(table)
        store = self._sampler.store
        features, rows = Features.of(store), store.block_rows
        stack = np.empty((max(own.depth for own in splits.values()) + 2, 3), np.uint64)
        self._leaf = np.empty(rows, np.uint32)
        self._codes = CodeScratch(np.empty(rows, np.uint32), stack, np.zeros(features.largest, np.bool_))
        self._values = ProjectedScratch(self._codes.spare, np.empty(rows if self._by_values else 0), stack)
        made: Callable[..., Any] = _on_projections if self._by_values else _on_features
        self._splits = {tree: made(own.load(), features, store.dictionaries) for tree, own in splits.items()}

    def chunks(self, trees: range, block: int, view: CodeView) -> Iterator[LeafChunk]:
        """The leaves of the rows of a block in some of the trees."""
        found = [self._find(tree, block, view) for tree in trees]
        store = self._sampler.store
        step = leaf_chunk_rows(max(1, len(store.spec.target.classes)))
        for first in range(0, min(store.block_rows, store.rows - block * store.block_rows), step):
            cuts = [slice(*np.searchsorted(rows, [first, first + step]).tolist()) for rows, _ in found]
            rows = [(own[cut] - np.uint32(first)).astype(np.uint16) for (own, _), cut in zip(found, cuts, strict=True)]
            leaves = [own[cut] for (_, own), cut in zip(found, cuts, strict=True)]
            counts = np.array([own.size for own in rows], np.uint32)
            yield LeafChunk(np.concatenate(rows), np.concatenate(leaves), counts)

    def _find(self, tree: int, block: int, view: CodeView) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Rows of a block that are not in the bag of a tree, and their leaves."""
        rows = np.flatnonzero(self._sampler.block(tree, block) == 0).astype(np.uint32)
        sent, root, splits = rows.copy(), np.uint64(0), self._splits[tree]
        if self._by_values:
            find_projected_leaves(view, splits, root, sent, self._leaf, self._values)
        else:
            find_leaves(view, splits, root, sent, self._leaf, self._codes)
        return rows, self._leaf[rows]


def _on_features(of: dict[str, NDArray[Any]], features: Features, dictionaries: Dictionaries) -> GrownSplits:
    codes = of["feature"], of["right"], of["below"], of["above"]
    values = of["threshold"], of["default_left"], dictionaries.offsets, dictionaries.low
    return GrownSplits(*codes, *values, None if features.plain else features.kinds, of["lists"], of["level"])


def _on_projections(of: dict[str, NDArray[Any]], features: Features, dictionaries: Dictionaries) -> ProjectedSplits:
    nodes = of["feature"], of["right"], of["threshold"]
    return ProjectedSplits(*nodes, of["parts"], of["term"], of["weight"], dictionaries.offsets, None)


def block_view(cells: Codes | BlockValues, rows: int) -> CodeView:
    """The cells of a block of this many rows as rows are sent by them; codes by rows, too, once for all trees."""
    matrices: tuple[NDArray[Any], ...] = cells[:3] if isinstance(cells, Codes) else (cells.u8, cells.f32, cells.f64)
    widths, room = np.array([matrix.shape for matrix in matrices], np.uint64).T.copy()
    u8, u16, u32 = (matrix.reshape(-1) for matrix in matrices)
    if isinstance(cells, BlockValues):
        place = cells.place.copy()
        place[:, 0] = np.where(place[:, 0] == 1, 1, place[:, 0] // 2)
        return CodeView(u8, u16, u32, u8, u16, u32, room, widths, place, np.uint64(0))
    by_row = [np.empty((rows, len(matrix)), matrix.dtype) for matrix in matrices]
    for matrix, own in zip(matrices, by_row, strict=True):
        transpose(matrix, row_items(len(matrix)), 0, rows, own, 0)
    r8, r16, r32 = (_read_only(own.reshape(-1)) for own in by_row)
    reach = CACHE_BYTES // max(sum(own.itemsize * own.shape[1] for own in by_row), 1)
    return CodeView(u8, u16, u32, r8, r16, r32, room, widths, cells.place, np.uint64(reach))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
