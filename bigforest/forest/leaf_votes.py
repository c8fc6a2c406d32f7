"""Leaves of out-of-bag rows in each tree, and the votes of leaves.

While a run grows trees it keeps two files per group of trees (storage/array_file.py), NNNNNNN being the first tree:

    votes/part-NNNNNNN.leaves   a block for every chunk of rows: for every tree the out-of-bag rows of the chunk,
                                ascending, and the leaf of each
    votes/part-NNNNNNN.ballots  votes and weights of the leaves (ballots.py); a separate file, because with wide weights
                                of rows (64 bits) it is written again later (oob/weigh.py)

With `keep_votes` the forest has the leaves in oob/votes/part-NNNNNNN.parquet (format.py VOTES), tree by tree. Together
with the nodes of the forest, they determine every estimate that is computed from out-of-bag votes.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import arrow_array, as_numpy, compute, read_only
from bigforest.columns.dataspec import DataSpec
from bigforest.errors import FormatError, damaged_forest
from bigforest.forest.ballots import Ballots, ballots_of, join_ballots, lambdas_to_try, loaded_bytes, shifted
from bigforest.forest.files import Header, check_file, open_checked, row_batches, write_tables
from bigforest.forest.format import VOTES
from bigforest.forest.nodes import TreeArrays
from bigforest.forest.parts import Span, first_tree, parts_in, read_span
from bigforest.forest.run_file import RunStamp
from bigforest.forest.tables import scan
from bigforest.options.train_config import TrainConfig
from bigforest.storage.array_file import ArrayFile, appending, damaged, read_arrays, write_arrays, writing_arrays
from bigforest.storage.paths import copy, files_in
from bigforest.store.store import Store

FOLDER = "votes"
_NAME = re.compile(r"part-(\d{7,10})\.leaves")
# Bytes of an out-of-bag row of a tree in a file.
VOTE_BYTES = 6
# A file is full when its leaves and loaded ballots take this many bytes in memory.
FILE_BYTES = 16 << 20
LEAF_TYPES = {"rows": "<u2", "leaves": "<u4", "counts": "<u4"}
# Most rows of a chunk. Reading and adding up a chunk costs some tens of microseconds, but a small table needs several
# chunks. Tables of _LARGE_TABLE rows and more have chunks of up to _LARGE_CHUNK.
_MOST_CHUNK = 1 << 14
_LARGE_TABLE, _LARGE_CHUNK = 1 << 18, 1 << 16
# Most bytes of votes, and most rows, of a row group of oob/rows.parquet. It has at least 256 rows.
_STEP_BYTES = 8 << 20
_MOST_STEP = 1 << 16


class LeafChunk(NamedTuple):
    """Out-of-bag rows of a chunk, tree by tree.

    rows    uint16, numbers within the chunk
    leaves  uint32, node number of the leaf in its tree
    counts  uint32 [trees], rows of each tree
    """

    rows: NDArray[np.uint16]
    leaves: NDArray[np.uint32]
    counts: NDArray[np.uint32]


class LeftOut(NamedTuple):
    """Out-of-bag rows of a tree, uint32, ascending, and the node number of the leaf of each, uint32."""

    rows: NDArray[np.uint32]
    leaves: NDArray[np.uint32]


class LeafFile(NamedTuple):
    """A complete file of leaves, with its file of ballots.

    path    path of both files, without the ending.
    trees   trees of the leaves.
    leaves  the file of leaves.
    """

    path: Path
    trees: range
    leaves: ArrayFile

    def chunk(self, file: FileIO, number: int) -> LeafChunk:
        """Read a chunk from the open file. Raises FormatError if it is damaged."""
        leaf_chunk = LeafChunk(*map(read_only, self.leaves.block(file, number)))
        if (
            not leaf_chunk.rows.size == leaf_chunk.leaves.size == leaf_chunk.counts.sum()
            or leaf_chunk.counts.size != len(self.trees)
        ):
            raise damaged(self.leaves.path)
        return leaf_chunk

    def ballots(self, spec: DataSpec, *, mapped: bool = False) -> Ballots:
        path = _ballots(self.path)
        first, ballot, weight, mixed = map(read_only, read_arrays(path, ballot_types(spec), mapped=mapped))
        sound = first.size == len(self.trees) + 1 and first[0] == 0 and first[-1] == ballot.size
        sound = sound and (np.diff(first) > 0).all() and weight.size == (ballot.size + len(self.trees)) // 2
        if not sound or mixed.shape[1:] != (spec.target.answer_width,):
            raise damaged(path)
        return Ballots(first, ballot, weight, mixed)

    def ballot_sizes(self, spec: DataSpec) -> tuple[int, int]:
        """Return the number of nodes of the trees, and the number of rows of Ballots.mixed. Raises FormatError."""
        file = ArrayFile.of(_ballots(self.path), ballot_types(spec))
        return int(file.rows("ballot").sum()), int(file.rows("mixed").sum())

    def move(self, directory: Path, *, ballots: bool = True) -> None:
        """Move the files, or the leaves without the ballots, to another directory of a forest."""
        target = leaves_path(directory, self.trees.start)
        target.parent.mkdir(parents=True, exist_ok=True)
        for named in (_ballots, _leaves) if ballots else (_leaves,):
            copy(named(self.path), named(target))
            named(self.path).unlink()

    @property
    def paths(self) -> list[Path]:
        return [_leaves(self.path), _ballots(self.path)]

    def remove(self) -> None:
        for path in self.paths:
            path.unlink(missing_ok=True)


def step_rows(classes: int) -> int:
    """Return the rows of a row group of oob/rows.parquet, a power of two. It depends only on the classes, so the file
    does not depend on memory."""
    rows = _MOST_STEP
    while rows > 256 and 8 * rows * classes > _STEP_BYTES:
        rows //= 2
    return rows


def leaf_chunk_rows(spec: DataSpec) -> int:
    """Return the rows of a chunk of a table."""
    return min(_MOST_CHUNK if spec.rows < _LARGE_TABLE else _LARGE_CHUNK, step_rows(spec.target.answer_width))


def leaves_path(directory: Path, first_tree: int) -> Path:
    return directory / FOLDER / f"part-{first_tree:07d}"


def write_leaves(path: Path, trees: range, spec: DataSpec, chunks: Iterable[LeafChunk]) -> None:
    """Write a file of leaves, a chunk at a time."""
    with writing_arrays(_leaves(path), LEAF_TYPES, _about(trees, spec)) as add:
        for chunk in chunks:
            add(*chunk)


def write_ballots(path: Path, ballots: Ballots) -> None:
    types = {name: array.dtype.str for name, array in ballots._asdict().items()}
    write_arrays(_ballots(path), types, *ballots)


@contextmanager
def writing_ballots(path: Path, spec: DataSpec, folder: Path) -> Iterator[Callable[[TreeArrays], None]]:
    """Yield a function that adds the ballots of the next trees, or of a piece of a tree. Write the file at the end.

    folder  scratch folder, for files that hold the ballots until then
    """
    classes, first = spec.target.answer_width, list[NDArray[np.int64]]()
    nodes = mixed = 0
    types = ballot_types(spec)
    del types["first"]
    # A name per attempt: the files are removed before the task has ended, while another attempt may still read its own.
    with appending(folder, f"ballots-{path.name}-{secrets.token_hex(8)}", types) as (arrays, append):

        def add(trees: TreeArrays) -> None:
            nonlocal nodes, mixed
            added = ballots_of(trees, spec.wide_weights)
            append(ballot=shifted(added.ballot, classes, mixed), weight=added.weight, mixed=added.mixed.reshape(-1))
            first.append(added.first[:-1] + nodes)
            nodes, mixed = nodes + added.ballot.size, mixed + len(added.mixed)

        yield add
    loaded = {name: array.load() for name, array in arrays.items()}
    loaded["mixed"] = loaded["mixed"].reshape(-1, classes)
    write_ballots(path, Ballots(np.concatenate([*first, [nodes]]), **loaded))
    for array in arrays.values():
        array.path.unlink()


def write_ballots_of(path: Path, spans: Sequence[Span], header: Header, folder: Path) -> None:
    """Write the ballots of the trees in some spans, which are read and checked. folder: scratch folder."""
    with writing_ballots(path, header.spec, folder) as add:
        for span in spans:
            for piece in read_span(span, header):
                add(piece)


class LeafWriter:
    """Writer of files of leaves and ballots. Consecutive trees are added, some at a time."""

    def __init__(self, store: Store, config: TrainConfig, directory: Path, first: int) -> None:
        self._spec = store.spec
        self._lambdas = len(lambdas_to_try(config, store.rows, store.spec.target.answer_width))
        self._held = 0
        self._directory = directory
        self._first = first
        self._found: list[LeftOut] = []
        self._ballots: list[Ballots] = []

    def add(self, left_out_rows: list[LeftOut], trees: TreeArrays) -> None:
        """Add the next trees. Write a file when its leaves and its loaded ballots together take FILE_BYTES."""
        ballots = ballots_of(trees, self._spec.wide_weights)
        self._found += left_out_rows
        self._ballots.append(ballots)
        self._held += sum(left_out.rows.nbytes + left_out.leaves.nbytes for left_out in left_out_rows)
        sizes = np.array([ballots.ballot.size]), np.array([len(ballots.mixed)])
        self._held += int(loaded_bytes(*sizes, self._spec.target.answer_width, self._lambdas)[0])
        if self._held >= FILE_BYTES:
            self.write()

    def write(self) -> None:
        if not self._found:
            return
        path, trees = leaves_path(self._directory, self._first), range(self._first, self._first + len(self._found))
        write_ballots(path, join_ballots(self._ballots, self._spec.target.answer_width))
        write_leaves(path, trees, self._spec, leaf_chunks(self._found, self._spec.rows, leaf_chunk_rows(self._spec)))
        self._first = trees.stop
        self._found, self._ballots, self._held = [], [], 0


def leaf_chunks(left_out_rows: Sequence[LeftOut], rows: int, step: int) -> Iterator[LeafChunk]:
    """Yield the out-of-bag rows of trees, in chunks of `step` rows of a table of `rows` rows."""
    starts = np.arange(0, rows + step, step)
    cuts = [np.searchsorted(left_out.rows, starts) for left_out in left_out_rows]
    for number, start in enumerate(starts[:-1].tolist()):
        parts = [
            (left_out, slice(*cut[number : number + 2])) for left_out, cut in zip(left_out_rows, cuts, strict=True)
        ]
        chunk = np.concatenate([left_out.rows[cut] for left_out, cut in parts])
        leaves = np.concatenate([left_out.leaves[cut] for left_out, cut in parts])
        counts = np.array([cut.stop - cut.start for _, cut in parts], np.uint32)
        yield LeafChunk((chunk - np.uint32(start)).astype(np.uint16), leaves, counts)


def found_leaves(directory: Path, spec: DataSpec, trees: range | None = None) -> list[LeafFile]:
    """Return the complete files of leaves with ballots in a directory, sorted by first tree.

    trees  range that contains the first tree of each returned file; None for all files.
    """
    names = (_NAME.fullmatch(path.name) for path in files_in(directory / FOLDER, "part-*.leaves"))
    firsts = [int(name[1]) for name in names if name is not None and (trees is None or int(name[1]) in trees)]
    paths = [leaves_path(directory, first) for first in firsts]
    files = (_open(path, spec) for path in paths if _ballots(path).exists())
    return sorted((file for file in files if file is not None), key=lambda file: file.trees.start)


def _open(path: Path, spec: DataSpec) -> LeafFile | None:
    """Open a file of leaves. Return None if it is damaged, or is not for this table."""
    try:
        file = ArrayFile.of(_leaves(path), LEAF_TYPES)
    except FormatError:
        return None
    first, count = (file.about.get(name, 0) for name in ("first", "trees"))
    trees = range(first, first + count)
    if file.about != _about(trees, spec) or not trees or path.name != f"part-{first:07d}":
        return None
    return LeafFile(path, trees, file) if file.blocks == -(-spec.rows // file.about["chunk"]) else None


def _about(trees: range, spec: DataSpec) -> dict[str, int]:
    """Return the facts that a file of leaves states: its trees, rows of the table, rows of a chunk."""
    return {"first": trees.start, "trees": len(trees), "rows": spec.rows, "chunk": leaf_chunk_rows(spec)}


def ballot_types(spec: DataSpec) -> dict[str, str]:
    whole = "<u8" if spec.wide_weights else "<u4"
    kind = "<f8" if spec.target.is_regression else whole
    return {"first": "<i8", "ballot": "<u4", "weight": whole, "mixed": kind}


def _leaves(path: Path) -> Path:
    return path.with_name(path.name + ".leaves")


def _ballots(path: Path) -> Path:
    return path.with_name(path.name + ".ballots")


# Approximate number of rows of a row group.
_GROUP_ROWS = 1 << 18


def read_votes(directory: Path, header: Header, holding: object, stamp: RunStamp | None) -> pl.LazyFrame:
    """Scan the kept leaves of a forest, by tree and row; columns VOTES. Raises FormatError."""
    paths = parts_in(directory, VOTES)
    for path in paths:
        check_file(path, VOTES, header)
    return scan(paths, VOTES.columns, row_batches, holding, stamp)


def write_votes(directory: Path, store: Store, config: TrainConfig, files: Sequence[LeafFile], trees: range) -> None:
    """Task: write the kept leaves of `trees` as a part, from the files of leaves. Memory: a chunk, and a row group."""
    tree_files = ((file, tree) for file in files for tree in file.trees if tree in trees)
    tables = (table for file, tree in tree_files for table in _tables(file, tree, store.row_numbers))
    write_tables(tables, VOTES.part(directory, trees.start), VOTES, Header(store.spec, config))


def copy_votes(sources: Sequence[tuple[Path, Header]], directory: Path, merged: Header) -> None:
    """Write the kept leaves of several forests, in this order, as the leaves of the `merged` forest in `directory`.

    Raises FormatError.
    """
    offset = 0
    (directory / "oob").mkdir(exist_ok=True)
    for source, header in sources:
        for path in parts_in(source, VOTES):
            open_checked(path, VOTES, header)
            tables = _renumber(path, offset, header.config.trees)
            write_tables(tables, VOTES.part(directory, first_tree(path) + offset), VOTES, merged)
        offset += header.config.trees


def _tables(file: LeafFile, tree: int, numbers: NDArray[np.uint64] | None) -> Iterator[pa.Table]:
    """Yield the leaves of one tree as tables VOTES.

    numbers  row number in the training table of each row; None if no row of the table was left out
    """
    rows: list[NDArray[np.uint64]] = []
    leaves: list[NDArray[np.uint32]] = []
    place = tree - file.trees.start
    with file.leaves.reading() as opened:
        for number in range(file.leaves.blocks):
            chunk = file.chunk(opened, number)
            begin = int(chunk.counts[:place].sum(dtype=np.int64))
            span = slice(begin, begin + int(chunk.counts[place]))
            places = chunk.rows[span].astype(np.uint64) + np.uint64(number * file.leaves.about["chunk"])
            rows.append(places if numbers is None else numbers[places])
            leaves.append(chunk.leaves[span])
            if sum(map(len, rows)) >= _GROUP_ROWS or number + 1 == file.leaves.blocks:
                joined = np.concatenate(rows)
                trees = np.full(joined.size, tree, np.uint32)
                yield VOTES.table({"tree": trees, "row": joined, "leaf": np.concatenate(leaves)})
                rows, leaves = [], []


def _renumber(path: Path, offset: int, trees: int) -> Iterator[pa.Table]:
    for batch in row_batches(path):
        tree = batch.column("tree")
        if batch.num_rows and compute().max(tree).as_py() >= trees:
            raise damaged_forest(f"{path} has votes of a tree that does not exist")
        moved = arrow_array(as_numpy(tree) + np.uint32(offset))
        yield pa.Table.from_arrays([moved, batch.column("row"), batch.column("leaf")], schema=VOTES.columns)
